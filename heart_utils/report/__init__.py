"""From tables to what people look at: figures, leaderboards, the gate."""

from pathlib import Path
from typing import Any

from heart_utils.settings import read_yaml

WORDS: dict[str, Any] = read_yaml(
    Path(__file__).parents[1] / "words.yaml", dict[str, Any], ValueError
)
"""What columns, kinds and methods are called before readers."""
