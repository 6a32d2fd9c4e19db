"""Shares of wins between people and models, and the ledger of published claims."""

from pathlib import Path
from typing import Any

from heart_utils.settings import read_yaml

SAID: dict[str, Any] = read_yaml(
    Path(__file__).parents[1] / "evidence.yaml", dict[str, Any], ValueError
)
