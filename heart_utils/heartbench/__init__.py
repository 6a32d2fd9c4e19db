"""HeartBench's formula, leaderboard and linter."""
