"""Rows come into being: data sets, replies, comparisons, verdicts, scores."""
