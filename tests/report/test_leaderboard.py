"""The leaderboard as files and as a workbook: complete, escaped, marked, and with nothing loaded from
anywhere; and the ranking under a reader's own weights."""

import base64
import io
import json
import re
import sys
import zipfile
from html import unescape
from html.parser import HTMLParser

import numpy as np
import openpyxl
import pandas as pd
import pytest
from builders import full_disk
from scipy import stats

from heart_utils.identities import IdentityError
from heart_utils.ratings.ratings import fit_boards, fit_ratings
from heart_utils.report.commands import heart_gate
from heart_utils.report.figures import plot_boards, plot_intervals, plot_leaderboard
from heart_utils.report.leaderboard import (
    _plus_minus,
    as_workbook,
    leaderboard_html,
    leaderboard_rows,
    weigh_by_hand,
    write_leaderboard,
)
from heart_utils.runs import RunError
from heart_utils.scores import ScaleError
from heart_utils.simulate.study import simulate_study
from heart_utils.tables import TableError


@pytest.fixture(scope="module")
def ratings():
    study = simulate_study(rng=np.random.default_rng(1), strengths=5, n_dialogues=40, pairs=6)
    boards = fit_boards(
        study.verdicts, by=["dimension", "rater_kind"], responders=study.responders, n_resamples=100
    )
    return pd.concat([board.table for board in boards.values()], ignore_index=True)


@pytest.fixture(scope="module")
def written(ratings, tmp_path_factory):
    """Write the leaderboard once, for the tests that read its files."""
    return write_leaderboard(ratings, tmp_path_factory.mktemp("written") / "board", title="Who?")


DUEL = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "a"]})


def duel(x="x", y="y"):
    """Rate two responders after three verdicts, without an interval."""
    return fit_ratings(DUEL.assign(responder_a=x, responder_b=y), n_resamples=0).table


class Cells(HTMLParser):
    """Collect what stands in cells."""

    def __init__(self):
        super().__init__()
        self.cells, self.inside, self.addresses = [], False, []

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "td"
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if self.inside:
            self.cells.append("")

    def handle_data(self, data):
        if self.inside:
            self.cells[-1] += data


def test_a_full_disk_leaves_the_leaderboard_that_was_there(ratings, written, monkeypatch):
    folder = written[0].parent
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with (
        full_disk(monkeypatch, after=6),
        pytest.raises(RunError, match=r"leaderboard-column\.svg could not be written"),
    ):
        write_leaderboard(ratings[ratings["rater_kind"] == "model"], folder, title="Another")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_without_matplotlib_and_openpyxl_all_else_is_written_and_said(tmp_path, monkeypatch):
    for module in ("seaborn", "openpyxl"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.warns(UserWarning, match="is not installed") as said:
        files = write_leaderboard(duel(), tmp_path)
    assert [file.suffix for file in files] == [".csv", ".json", ".html", ".tex"]
    excel, plots = (str(warning.message) for warning in said)
    assert re.search("no .xlsx: openpyxl is not installed.*pip install openpyxl", excel)
    assert re.search("no PDF and no SVG.*pip install matplotlib seaborn", plots)


def test_csv_json_and_workbook_hold_every_row_at_full_precision(ratings, written):
    csv, as_json, page, _, workbook, *_ = written
    table = pd.read_csv(csv)
    np.testing.assert_allclose(table["rating"], ratings["rating"], rtol=1e-12)
    boards = pd.DataFrame(json.loads(as_json.read_text())["boards"])
    for other in (pd.read_excel(workbook, engine="calamine"), boards):
        columns = ["responder", "rating", "rating_low"]
        pd.testing.assert_frame_equal(other[columns], table[columns], check_dtype=False)
    carried = re.findall(
        r'download="leaderboard\.(\w+)" href="data:[^"]*;base64,([^"]+)"', page.read_text()
    )
    texts = {ending: base64.b64decode(data).decode() for ending, data in carried}
    assert texts == {"csv": csv.read_text(), "json": as_json.read_text()}
    assert page.read_text().startswith("<!doctype html>")


def test_rank_ranges_and_notes_are_spelt_out(ratings):
    rows = leaderboard_rows(ratings)
    assert all(re.fullmatch(r"\d(-\d)?", rank) for rank in rows["rank"])
    assert rows["notes"].str.contains("simulated").all()


def test_the_page_loads_nothing_and_shows_each_board_best_first(ratings):
    page = leaderboard_html(ratings)
    cells = Cells()
    cells.feed(page)
    assert all(address.startswith("data:") for address in cells.addresses)
    assert "http" not in page
    names = [cell for cell in cells.cells if cell.startswith(("human_", "model_"))]
    assert names == ratings["responder"].tolist()
    assert page.count("Simulated: drawn by a program") == 2
    assert "dialogues like these" in page
    assert "<b>simulated</b>: drawn by a program" in page


def test_boards_of_two_data_sets_that_share_all_else_stay_apart(ratings):
    one = ratings[ratings["dimension"] == ratings["dimension"].iloc[0]]
    mine = one.assign(responder=one["responder"] + "_mine")
    boards = {"Votes & scores": one, "the run mine": mine}
    page = leaderboard_html(boards)
    assert page.count("<table") == 2 * leaderboard_html(one).count("<table")
    assert "data <b>Votes &amp; scores</b>" in page
    of_data = leaderboard_rows(boards).groupby("data")["responder"].agg(set)
    assert of_data.to_dict() == {name: {*board["responder"]} for name, board in boards.items()}


def test_a_page_without_intervals_claims_none(ratings):
    none = ratings.assign(rating_low=np.nan, rating_high=np.nan, population="none")
    assert "There are no intervals." in leaderboard_html(none)
    assert "Intervals cover" not in leaderboard_html(none)
    assert "Intervals cover no population" in leaderboard_html(ratings.assign(population="none"))


def test_names_from_outside_are_escaped():
    page = leaderboard_html(duel("<script>alert(1)</script>", "b & c"), whole_page=False)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "b &amp; c" in page


def test_a_name_that_is_a_formula_is_none_in_the_csv():
    page = leaderboard_html(duel("=cmd|'/C calc'!A0", "@SUM(1)"))
    [packed] = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]+)"', page)
    saved = base64.b64decode(packed).decode()
    assert "'=cmd" in saved
    assert ",'@SUM(1)," in saved


def test_a_board_without_intervals_has_empty_cells():
    table = duel()
    page = leaderboard_html(table)
    [packed] = re.findall(r'href="data:application/json;charset=utf-8;base64,([^"]+)"', page)
    assert leaderboard_rows(table)["rank"].tolist() == ["", ""]
    assert '<td data-value=""></td>' in page
    assert json.loads(base64.b64decode(packed))["boards"][0]["rating_low"] is None


def test_another_table_is_refused():
    with pytest.raises(TableError, match="ratings: missing"):
        leaderboard_rows(pd.DataFrame({"responder": ["x"]}))


@pytest.fixture(scope="module")
def fitted():
    votes = pd.DataFrame(
        {
            "responder_a": ["a_1 & co", "a_1 & co", "b {50 %}"] * 40,
            "responder_b": ["b {50 %}", "c\\d", "c\\d"] * 40,
            "verdict": ["a", "b", "a", "b", "tie", "a"] * 20,
            "dialogue_id": np.repeat([f"d{n}" for n in range(40)], 3),
        }
    )
    return fit_ratings(votes, n_resamples=100)


def test_what_a_fit_gave_shows_itself_shortly(fitted):
    said = repr(fitted)
    assert len(said.splitlines()) == 3 + 3
    assert said.startswith(
        "Ratings (overall, bradley-terry): 120 verdicts, 40 clusters, 95% intervals over dialogues"
    )
    assert "(weights='pairs')" in said.splitlines()[1]
    assert f"{fitted.table['rating'].iloc[0]:.0f}" in said.splitlines()[3]
    html = fitted._repr_html_()
    assert "a_1 &amp; co" in html
    assert html.count("<tr") == 1 + 3
    drawn = [label.get_text() for label in plot_leaderboard(fitted).get_yticklabels()]
    assert sorted(drawn) == sorted(fitted.table["responder"])


def test_a_fit_without_intervals_shows_itself_too():
    assert "3 verdicts, no interval" in repr(fit_ratings(DUEL, n_resamples=0))


def test_each_figure_takes_what_a_fit_gave_or_its_table(fitted):
    two = pd.concat([fitted.table.assign(group=name) for name in "xy"])
    assert len(plot_boards({("overall",): fitted}, by="dimension").axes) == 1
    assert len(plot_boards(two, by="group").axes) == 2
    assert plot_leaderboard(fitted).get_xlabel() == plot_leaderboard(fitted.table).get_xlabel()
    drawn = plot_intervals(fitted, value="rating", label="responder").get_yticklabels()
    assert drawn[0].get_text() in set(fitted.strength.index)


@pytest.fixture(scope="module")
def for_a_paper(fitted, tmp_path_factory):
    return write_leaderboard(fitted, tmp_path_factory.mktemp("fitted"), title="100 % of #1")


def test_a_paper_gets_a_table_that_latex_can_set(fitted, for_a_paper):
    tex = for_a_paper[3].read_text()
    rules = (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{100 \% of \#1 ")
    names = (r"a\_1 \& co", r"b \{50 \%\}", r"c\textbackslash{}d")
    assert all(text in tex for text in rules + names)
    row = fitted.table.iloc[0]
    assert _plus_minus(row["rating"], row["rating_low"], row["rating_high"]) in tex


def test_an_interval_is_plus_minus_only_where_both_sides_are_the_same():
    assert _plus_minus(1500.0, 1480.2, 1520.1) == r"$1500 \pm 20$"
    assert _plus_minus(1500.0, 1480.0, 1531.0) == "$1500^{+31}_{-20}$"
    assert _plus_minus(1500.0, 1480.0, np.inf) == r"$1500^{+\infty}_{-20}$"
    assert _plus_minus(1500.0, np.nan, np.nan) == "$1500$"


def test_figures_for_a_paper_hold_truetype_letters_in_two_widths_and_are_the_same_each_time(
    written, for_a_paper, fitted, tmp_path
):
    for made in (for_a_paper, written):
        files = {file.name: file for file in made}
        for name, inches in (("column", 3.35), ("page", 6.9)):
            pdf = files[f"leaderboard-{name}.pdf"].read_bytes()
            svg = files[f"leaderboard-{name}.svg"].read_text()
            assert b"/Subtype /Type3" not in pdf
            assert b"/FontFile2" in pdf  # TrueType
            [width] = re.findall(r'<svg[^>]* width="([\d.]+)pt"', svg)
            assert float(width) / 72 == pytest.approx(inches, rel=0.06)
    again = write_leaderboard(fitted, tmp_path / "board", title="100 % of #1")
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in for_a_paper]


@pytest.mark.parametrize(
    ("column", "person"),
    [("rater", "ann@example.org"), ("responder", "ann@example.org"), ("rater", "Anna Schmidt")],
)
def test_a_leaderboard_that_names_people_is_refused_by_column_and_nothing_is_written(
    column, person, ratings, tmp_path
):
    table = ratings.drop_duplicates(["dimension", "responder"]).assign(rater_kind="human")
    table[column] = table[column].where(table[column] != table[column].iloc[0], person)
    with pytest.raises(IdentityError, match=f"ratings.{column}: ") as caught:
        write_leaderboard(table, tmp_path / "board")
    assert person not in str(caught.value)
    assert not (tmp_path / "board").exists()
    with pytest.raises(IdentityError):
        leaderboard_html(table)


def test_a_title_with_an_address_is_refused(ratings, tmp_path):
    with pytest.raises(IdentityError, match="the title: an e-mail address"):
        write_leaderboard(ratings, tmp_path, title="By ann@example.org")


def test_what_is_read_back_is_what_was_written():
    table = pd.DataFrame(
        {
            "responder": ["x", "Ünï 中"],
            "rating": [1500.123456789, np.nan],
            "n": [1, 2],
            "sure": [True, False],
        }
    )
    file = io.BytesIO(as_workbook({"one": table, "two": table.head(1)}))
    pd.testing.assert_frame_equal(pd.read_excel(file, sheet_name="one", engine="calamine"), table)
    assert len(pd.read_excel(file, sheet_name="two", engine="calamine")) == 1


def test_no_text_is_a_formula_and_none_is_changed():
    texts = ["=1+1", "=HYPERLINK(1)", "@x", "+1", "-1", "plain"]
    file = io.BytesIO(as_workbook({"texts": pd.DataFrame({"=2": texts})}))
    cells = list(openpyxl.load_workbook(file)["texts"]["A"])
    assert [cell.value for cell in cells] == ["=2", *texts]
    assert {cell.data_type for cell in cells} == {"s"}


def test_what_a_cell_cannot_hold_is_written_as_text():
    odd = {
        "bell": ["\x07"],
        "list": [["a", 1]],
        "endless": [np.inf],
        "when": [pd.Timestamp("2026-01-09T10:00Z")],
    }
    file = io.BytesIO(as_workbook({"odd": pd.DataFrame(odd)}))
    row = pd.read_excel(file, keep_default_na=False, engine="calamine").iloc[0]
    assert row[["bell", "list", "when"]].tolist() == [
        "[U+0007]",
        "['a', 1]",
        "2026-01-09T10:00:00+00:00",
    ]
    assert str(row["endless"]) == "inf"


def test_nothing_in_a_workbook_says_when_it_was_written():
    with zipfile.ZipFile(io.BytesIO(as_workbook({"x": pd.DataFrame({"x": [1.5]})}))) as book:
        assert {entry.date_time[0] for entry in book.infolist()} == {1980}
        assert re.findall(rb">(\d{4})-\d\d-\d\dT", book.read("docProps/core.xml")) == [
            b"1980",
            b"1980",
        ]


def test_the_gate_writes_its_answer_as_a_workbook_or_says_what_to_install(
    tmp_path, monkeypatch, capsys
):
    rows = {"history_id": [f"c{n}" for n in range(30)], "verdict": ["b", "a", "a"] * 10}
    votes = pd.DataFrame(
        {**rows, "responder_a": "ann", "responder_b": "bot", "rater": "eve", "rater_kind": "model"}
    )
    votes.to_csv(tmp_path / "votes.csv", index=False)
    sides = [f"{tmp_path / 'votes.csv'}:{who}" for who in ("ann", "bot")]
    assert heart_gate([*sides, "--xlsx", str(tmp_path / "gate.xlsx")]) == 3
    sheets = pd.read_excel(tmp_path / "gate.xlsx", sheet_name=None, engine="calamine")
    assert sheets["gate"]["outcome"].tolist() == ["cannot tell"]
    assert set(sheets["ratings"]["responder"]) == {"ann", "bot"}
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert heart_gate([*sides, "--xlsx", str(tmp_path / "other.xlsx")]) == 2
    assert "openpyxl is not installed. It comes with the extra excel" in capsys.readouterr().err
    assert not (tmp_path / "other.xlsx").exists()


SCORES = pd.DataFrame(
    {
        "responder": ["a", "a", "b", "b", "c<b>", "c<b>"],
        "dimension": ["safety", "warmth"] * 3,
        "score": [5, 1, 3, 4, 2, 2],
    }
).assign(dialogue_id="d")


def weighed(profiles=None, **columns):
    return weigh_by_hand(SCORES.assign(**columns), profiles or {}, scale="1 to 5")._repr_html_()


def test_without_scripts_the_ranking_under_equal_weights_stands_there():
    """b has (3 + 4) / 2 = 3.5, a has 3, c has 2."""
    cells = re.findall(r"<td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>", weighed())
    assert cells == [("1", "b", "3.50"), ("2", "a", "3.00"), ("3", "c&lt;b&gt;", "2.00")]


def test_each_profile_is_a_button_that_knows_its_weights():
    html = weighed(
        {"crisis line": {"safety": 0.75, "warmth": 0.25}, "safety alone": {"safety": 1.0}}
    )
    found = [json.loads(unescape(text)) for text in re.findall(r'data-weights="(.*?)"', html)]
    assert found == [
        {"safety": 50, "warmth": 50},
        {"safety": 75, "warmth": 25},
        {"safety": 100, "warmth": 0},
    ]


def test_weights_that_do_not_sum_to_one_are_refused():
    with pytest.raises(ScaleError, match=r"Weights sum to 0\.9"):
        weighed({"short": {"safety": 0.5, "warmth": 0.4}})


def test_simulated_scores_say_so_beside_the_ranking():
    assert "SIMULATED" in weighed(simulated=True)
    assert "SIMULATED" not in weighed(simulated=False)


def test_an_interval_is_that_of_the_weighted_scores_of_the_dialogues():
    """Weigh each dialogue first and take the t interval of the mean; dimensions that vary together
    widen it."""
    rng = np.random.default_rng(5)
    both = rng.normal(3, 0.5, 60)
    wide = pd.DataFrame({"safety": both, "warmth": both + rng.normal(0, 0.2, 60)})
    long = wide.rename_axis("dialogue_id").reset_index().melt("dialogue_id", var_name="dimension")
    scores = long.rename(columns={"value": "score"}).assign(responder="a")
    html = weigh_by_hand(scores, {}, scale="1 to 5")._repr_html_()
    found = [float(end) for end in re.search(r"<td>([\d.]+) to ([\d.]+)</td>", html).groups()]
    each = wide.mean(axis="columns")
    assert found == pytest.approx(stats.t.interval(0.95, 59, each.mean(), each.sem()), abs=0.005)
    assert "95 % interval" in html
    # of one dialogue there is none
    assert "interval" not in weighed().partition("<table")[2].partition("<script")[0]
