import ast

import pandas as pd
import pytest

from heart_utils.runs import find_root

JUDGES = {
    "claude-3.7-sonnet": "Claude-3.7-Sonnet",
    "gpt-4o": "GPT-4o",
    "gemini-2.5-flash": "Gemini-2.5-Flash",
    "o4-mini": "o4-mini",
}


@pytest.fixture(scope="module")
def published():
    return pd.read_csv(find_root() / "data" / "published" / "agreement.csv")


def test_each_published_figure_names_its_source_and_stands_once(published):
    assert published["source"].str.len().min() > 20
    assert not published.duplicated(["data_set", "part", "one", "other", "measure"]).any()
    assert published["value"].between(-1, 1).all()


@pytest.mark.mirror
def test_the_kappas_are_those_of_the_release(published, mirror):
    release = pd.read_csv(mirror / "empathic_comm_judges" / "table_kappa.csv")
    pairs = release["Annotator Pair"].map(ast.literal_eval)
    theirs = {
        (dimension, *pair): kappa
        for dimension, pair, kappa in zip(
            release["Dimension"], pairs, release.iloc[:, 3], strict=True
        )
    }
    ours = published[published["data_set"] == "empathic_comm"].set_index(["part", "one", "other"])[
        "value"
    ]
    assert len(ours) == 63
    assert {key: theirs[key] for key in ours.index} == ours.to_dict()


@pytest.mark.mirror
def test_the_reliabilities_are_those_of_the_release(published, mirror):
    release = pd.read_csv(mirror / "mentalalign70k" / "published_icc.csv").set_index(
        ["judge", "attribute"]
    )
    ours = published[published["data_set"] == "mentalalign"]
    assert len(ours) == 56
    for row in ours.itertuples():
        column = {"ICC(C,1)": "icc_c1", "ICC(A,1)": "icc_a1"}[row.measure]
        assert row.value == release.loc[(JUDGES[row.other], row.part), column]
