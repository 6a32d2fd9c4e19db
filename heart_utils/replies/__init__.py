"""What a reply does, and how quality moves with latency, size and price.

Strategies, cues, sameness and safety.
"""
