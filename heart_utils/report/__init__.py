"""From tables to what people look at: figures, leaderboards, the gate."""
