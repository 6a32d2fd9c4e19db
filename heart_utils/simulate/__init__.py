"""Studies with known truth."""
