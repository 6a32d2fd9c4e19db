"""Fixtures that several files about people share."""

from chat_case import folder, run

__all__ = ["folder", "run"]
