"""Data sets and users' files as the project's tables: histories, replies, scores, verdicts."""
