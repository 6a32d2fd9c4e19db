"""The page that follows one row of each table, as it is laid out for the book of a run."""

import pandas as pd
import pytest

from heart_utils.runs import find_root, open_run
from tools.pipeline import fill_pipeline, follow_one_pair

PAGE = find_root() / "book" / "pipeline.md"


@pytest.fixture
def copied(tmp_path):
    """A run whose tables a test may change."""

    def copy(**changed):
        run, sample = open_run(tmp_path / "mine"), open_run("sample")
        for name in ("histories", "responders", "replies", "comparisons", "verdicts", "ratings"):
            table = changed.get(name, lambda rows: rows)(sample.read(name))
            if table is not None:
                run.write(name, table)
        return run

    return copy


@pytest.fixture
def sample():
    run = open_run("sample")
    if not run.has("ratings"):
        pytest.skip("needs book: run `make book`")
    return run


def test_each_step_shows_rows_that_are_in_its_table(sample):
    row = follow_one_pair(sample)
    verdicts, ratings = sample.read("verdicts"), sample.read("ratings").set_index("responder")
    assert {one["order"] for one in row["orders"]} == {"ab", "ba"}
    for one in row["orders"]:
        [kept] = verdicts[verdicts["comparison_id"] == one["comparison_id"]].to_dict("records")
        assert (kept["verdict"], f"{kept['p_a']:.2f}") == (one["verdict"], one["p_a"])
        assert one["first"] == kept[f"responder_{kept['order'][0]}"]
    for one in row["ratings"]:
        assert one["rating"] == f"{ratings.loc[one['responder'], 'rating']:.0f}"
    mean = sum(float(one["p_a"]) for one in row["orders"]) / 2
    assert float(row["share_a"]) == pytest.approx(mean, abs=0.006)


def test_words_under_a_licence_that_keeps_them_back_are_not_shown(copied, sample):
    page = fill_pipeline(PAGE, copied(histories=lambda rows: rows.assign(licence="CC-BY-NC-4.0")))
    assert "keeps their words out of a page" in page
    replies = sample.read("replies")["text"].dropna()
    assert not [text for text in replies if " ".join(text.split()[:8]) in page]
    assert "{demo}" not in page


def test_a_run_without_verdicts_in_both_orders_says_so_and_keeps_its_labels(copied):
    page = fill_pipeline(PAGE, copied(verdicts=lambda rows: rows[rows["order"] == "ab"]))
    assert "no pair of replies with verdicts" in page
    assert page.count("(step-") == 5


def test_signs_of_markup_in_a_reply_are_words_on_the_page(copied):
    spoiled = "| # *loud* {ref}`x` <b>"
    page = fill_pipeline(
        PAGE,
        copied(replies=lambda rows: rows.assign(text=spoiled, flags=pd.Series([[]] * len(rows)))),
    )
    assert "\\| \\# \\*loud\\* \\{ref\\}\\`x\\` \\<b\\>" in page
