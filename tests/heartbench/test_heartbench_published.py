"""HeartBench's printed tables: what adds up and what does not."""

import pandas as pd
import pytest

from heart_utils.runs import find_root

PUBLISHED = find_root() / "data" / "published"
SOURCE = "6c79c0809c0c2dfe78dc090dd0685bd6ef69f245"


def read(name):
    return pd.read_csv(PUBLISHED / f"heartbench_{name}.csv")


@pytest.mark.parametrize(
    "file", sorted(PUBLISHED.glob("heartbench_*.csv")), ids=lambda file: file.stem
)
def test_every_row_names_its_source(file):
    table = pd.read_csv(file)
    assert table["source"].str.contains(SOURCE, regex=False).all()


def test_the_printed_table_adds_up_for_all_thirteen_models():
    mean = read("overall_by_ability").groupby("model")["score"].mean()
    printed = read("leaderboard_overall").set_index("model")["score"]
    assert len(printed) == 13
    assert (mean - printed).abs().max() <= 0.01


def test_each_figure_has_fifteen_abilities_a_model():
    for name in ("overall_by_ability", "hardset_by_ability"):
        assert read(name).groupby("model")["ability"].nunique().tolist() == [15] * 13


def test_the_decline_is_27_4_percent_of_what_it_falls_from():
    said = read("reported_aggregates").set_index("quantity")["value"]
    high, low = (
        said["mean score of all models, all questions"],
        said["mean score of all models, hard questions"],
    )
    assert 100 * (high - low) / high == pytest.approx(27.4, abs=0.05)
    assert 100 * (high - low) / low == pytest.approx(said["stated decline"], abs=0.05)


def test_neither_stated_mean_is_the_mean_of_its_figure():
    assert read("leaderboard_overall")["score"].mean() == pytest.approx(56.94, abs=0.005)
    assert read("hardset_by_ability").groupby("model")["score"].mean().mean() == pytest.approx(
        42.62, abs=0.005
    )


def test_two_agreements_are_stated():
    assert sorted(read("human_judge_agreement")["agreement"]) == [0.86, 0.87]


def test_two_rows_are_what_the_report_calls_placeholders():
    board = read("leaderboard_overall")
    assert set(board.loc[board["placeholder"], "model"]) == {"GPT-5", "Gemini-3-pro-preview"}


def test_the_share_printed_for_personality_is_another():
    counts = read("counts").set_index("name")
    assert 100 * counts.loc["personality", "count"] / counts.loc[
        "total", "count"
    ].max() == pytest.approx(58.0, abs=0.05)
    assert counts.loc["personality", "percent"] == 39


def test_the_hard_figure_ranks_gemini_3_fifth_where_the_text_says_eighth():
    ranks = read("hardset_by_ability").groupby("model")["score"].mean().rank(ascending=False)
    assert ranks["Gemini-3-pro-preview"] == 5
