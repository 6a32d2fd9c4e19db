"""What a reply does (strategies, cues, sameness, safety), and how quality moves with latency, size and price."""
