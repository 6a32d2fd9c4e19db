"""A small project for the tests of the graph."""

import pytest
from small_project import Project


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)
