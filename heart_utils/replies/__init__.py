"""What a reply does: strategies, cues, sameness, safety."""
