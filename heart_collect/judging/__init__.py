"""From histories to verdicts: replies, pairs, prompts, and how a judge is asked and read."""
