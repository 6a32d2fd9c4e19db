"""What a reply does, and how quality moves with latency, size and price.

The modules cover strategies, cues, sameness and safety.
"""
