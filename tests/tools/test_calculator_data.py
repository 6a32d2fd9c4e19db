"""The numbers that the study calculator interpolates are those that Python computes now."""

import json

import pytest

from heart_utils.runs import find_root
from tools.calculator import PAGE_DATA, calculator_data

SOME = [2, 3, 10, 17]


@pytest.fixture(scope="module")
def written():
    return json.loads((find_root() / PAGE_DATA).read_text(encoding="utf-8").split("STUDY_GRID = ")[1].rstrip(";\n"))


def test_the_numbers_in_the_book_are_those_that_python_computes(written):
    written = written | {"critical": [written["critical"][n - 2] for n in SOME]}
    assert written == json.loads(json.dumps(calculator_data(SOME))), "run `python -m tools.calculator`"


@pytest.mark.slow
def test_so_are_the_critical_values_of_every_number_of_responders(written):
    assert written == json.loads(json.dumps(calculator_data())), "run `python -m tools.calculator`"
