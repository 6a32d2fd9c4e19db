"""The paragraph for a paper: each count is of the table, and what is not known is not said."""

import re

import pandas as pd
import pytest

from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.verdicts import combine_orders
from heart_utils.report.commands import methods
from heart_utils.runs import find_root, open_run
from heart_utils.sources.load import load_verdicts


@pytest.fixture
def run(tmp_path):
    votes = pd.DataFrame(
        {
            "history_id": [f"c{n // 2}" for n in range(80)],
            "responder_a": "ann",
            "responder_b": "bot",
            "rater": "judge-x",
            "rater_kind": "model",
            "verdict": ["a", "a", "a", "b", "b", "b", "b", "b"] * 10,
            "order": ["ab", "ba"] * 40,
        }
    )
    opened = open_run(tmp_path / "mine")
    opened.write("verdicts", load_verdicts(votes))
    return opened


def test_each_count_of_the_paragraph_is_of_the_table(run):
    rows = run.read("verdicts")
    said = methods(run, fit_ratings(combine_orders(rows), n_resamples=100))
    assert (
        "2 responders were compared on 40 histories (40 dialogues) by 1 model judge (judge-x), 80"
        " verdicts" in said
    )
    assert "100% of pairs were shown to a rater in both orders" in said
    assert "40 verdicts entered the fit, 10 of them as half a win" in said
    assert "a bootstrap with 100 resamples of dialogues and cover dialogues like these" in said
    assert "people" not in said
    assert "SIMULATED" not in said
    run.write("verdicts", rows.assign(simulated=True))
    assert "80 of the verdicts are SIMULATED" in methods(
        run, fit_ratings(combine_orders(rows), n_resamples=0)
    )


def test_whatever_it_cites_is_in_the_references(run):
    bib = (find_root() / "book" / "references.bib").read_text(encoding="utf-8")
    for method in ("bradley-terry", "davidson"):
        said = methods(
            run, fit_ratings(combine_orders(run.read("verdicts")), method=method, n_resamples=0)
        )
        keys = re.findall(r"\[@(\w+)\]", said)
        assert keys
        assert all(f"{{{key}," in bib for key in keys)
        assert "Intervals" not in said
