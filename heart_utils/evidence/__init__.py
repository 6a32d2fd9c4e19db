"""Shares of wins between people and models, and the ledger of published claims."""

from pathlib import Path

from heart_utils.settings import JsonObject, read_yaml

SAID: JsonObject = read_yaml(Path(__file__).parents[1] / "evidence.yaml", JsonObject, ValueError)
