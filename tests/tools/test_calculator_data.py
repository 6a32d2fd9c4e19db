"""The numbers that the study calculator interpolates are those that Python computes now."""

import json

import pytest

from heart_utils.runs import find_root
from heart_utils.simulate.study import critical_value
from tools.calculator import MOST_RESPONDERS, PAGE_DATA, calculator_data

SOME = [2, 3, 10, 17]


@pytest.fixture(scope="module")
def written():
    return json.loads(
        (find_root() / PAGE_DATA)
        .read_text(encoding="utf-8")
        .split("STUDY_GRID = ")[1]
        .rstrip(";\n")
    )


def test_the_numbers_in_the_book_are_those_that_python_computes(written):
    written = written | {"critical": [written["critical"][n - 2] for n in SOME]}
    assert written == json.loads(json.dumps(calculator_data(SOME))), (
        "run `python -m tools.calculator`"
    )


@pytest.mark.slow
def test_so_are_the_critical_values_of_every_number_of_responders(written):
    """Two degrees of freedom a row, others in each row, so that every column is checked too: all of
    them take minutes."""
    for n, row in enumerate(written["critical"], start=2):
        columns = [(5 * n + shift) % len(written["df"]) for shift in (0, 13)]
        values = [round(critical_value(n, written["df"][column]), 6) for column in columns]
        assert [row[column] for column in columns] == values, "run `python -m tools.calculator`"
    assert len(written["critical"]) == MOST_RESPONDERS - 1
