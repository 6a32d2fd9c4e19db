"""The numbers that the study calculator interpolates are those that Python computes now."""

import json

from heart_utils.runs import find_root
from tools.calculator import PAGE_DATA, calculator_data


def test_the_numbers_in_the_book_are_those_that_python_computes():
    written = (find_root() / PAGE_DATA).read_text(encoding="utf-8").split("STUDY_GRID = ")[1].rstrip(";\n")
    assert json.loads(written) == json.loads(json.dumps(calculator_data())), "run `python -m tools.calculator`"
