"""From tables to what people look at: figures, leaderboards, the gate."""

from pathlib import Path

from heart_utils.settings import JsonObject, read_yaml

WORDS: JsonObject = read_yaml(Path(__file__).parents[1] / "words.yaml", JsonObject, ValueError)
"""What columns, kinds and methods are called before readers."""
