"""Studies with people: who rates what, the study itself, its answers, and privacy."""
