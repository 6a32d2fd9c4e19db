"""A study of conversations in a project of its own, for the tests that need one."""

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
