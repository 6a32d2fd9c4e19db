import pytest
from server import Provider, serving

from heart_collect.calls.ledger import open_ledger


@pytest.fixture
def provider():
    with serving(Provider()) as running:
        yield running


@pytest.fixture
def ledger(tmp_path):
    opened = open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    yield opened
    opened.close()
