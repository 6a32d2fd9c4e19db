"""Programs of the project's upkeep, not installed with it."""
