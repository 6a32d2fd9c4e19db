"""From tables to what people look at: figures, leaderboards, the gate."""

from pathlib import Path
from typing import Any

import yaml

WORDS: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "words.yaml").read_text(encoding="utf-8"))
"""What columns, kinds and methods are called before readers."""
