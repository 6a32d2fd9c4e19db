"""A study of conversations in a project of its own, and leaderboards without drawings."""

import pytest
from conversation_case import lay_out, speak
from server import Provider, serving


@pytest.fixture
def provider():
    with serving(Provider(answer=speak, piece_s=0.0)) as running:
        yield running


@pytest.fixture
def project(tmp_path, provider, monkeypatch):
    return lay_out(tmp_path, provider.address, monkeypatch)


@pytest.fixture
def no_drawings(monkeypatch):
    """Draw no leaderboard, which takes a second each: tests of the report look at drawings."""
    monkeypatch.setattr("heart_utils.report.leaderboard.WIDTHS", {})
