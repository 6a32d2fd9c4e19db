"""Chips: what a cell rests on follows its data, and nothing simulated can pass for a
measurement."""

import ast

import pandas as pd
import pytest
from small_project import cell

from heart_utils.runs import find_root, open_run
from tools.evidence import DEMOS, KINDS, check_chips, mark_chapter, weigh
from tools.flow import Flow
from tools.notebooks import NotebookError

SETUP = """\
from heart_utils.runs import find_root, open_run
from heart_utils.simulate.study import Panel, simulate_study
from heart_utils.sources.load import load_histories
own, public = open_run(run), open_run("public")
votes = public.read("verdicts", "mtbench")
"""


def sources(*cells):
    """What the last of these cells rests on."""
    flow = Flow()
    return [flow.follow(ast.parse(source)) for source in (SETUP, *cells)][-1]


def figure(source, name="fig-votes"):
    return cell(source, mystnb={"figure": {"name": name, "caption": "Three overlap."}})


def words(text):
    return cell(text, kind="markdown")


@pytest.fixture
def run(tmp_path):
    return open_run(tmp_path / "sample")


def caption(run, *sources, **options):
    """The caption of a figure that the last of these cells draws."""
    *before, drawn = sources
    cells = [words("# Who?\n\n## Votes"), *map(cell, (SETUP, *before)), figure(drawn)]
    mark_chapter(cells, "02_who", run, **options)
    return next(
        one["metadata"]["mystnb"]["figure"]["caption"]
        for one in cells
        if "mystnb" in one["metadata"]
    )


KEPT = "from heart_utils.report.kept import kept"
READ = (
    "try:\n    texts = load_histories('esconv')\nexcept ValueError:\n    texts = simulate_study()"
)


@pytest.mark.parametrize(
    ("cells", "chips"),
    [
        (["plot(votes)"], "{measured}`MT-Bench`"),
        # spoiled: a study drawn by a program takes the place of the votes
        (["votes = simulate_study(n_dialogues=9).verdicts", "plot(votes)"], "{simulated}`-`"),
        (["votes = simulate_study(spread=votes.std())", "plot(votes)"], "{simulated}`-`"),
        (
            ["both = pd.concat([votes, simulate_study().verdicts])", "plot(both)"],
            "{measured}`MT-Bench` {simulated}`-`",
        ),
        # kept: whatever its settings were taken from
        ([KEPT, "drawn = kept('power', power, votes.std())", "plot(drawn)"], "{simulated}`-`"),
        ([READ, "plot(texts)"], "{measured}`ESConv`"),
    ],
)
def test_a_figure_says_which_published_set_was_read_and_nothing_simulated_is_measured(
    run, cells, chips
):
    assert caption(run, *cells) == f"Three overlap. {chips}"


def test_a_set_that_is_not_at_hand_leaves_what_took_its_place(run):
    shown = caption(run, READ, "plot(texts)", absent={"esconv"})
    assert shown == "Three overlap. {simulated}`-`"


@pytest.mark.parametrize(
    ("name", "simulated", "chip"),
    [
        ("sample", False, "{demo}`-`"),
        ("sample", True, "{simulated}`-`"),  # whatever the manifest says
        ("heart", False, "{measured}`-`"),
    ],
)
def test_rows_of_a_run_are_what_they_say_that_they_are(tmp_path, name, simulated, chip):
    run = open_run(tmp_path / name)
    row = {"reply_id": "r", "coder": "c", "code": "question", "state": "valid"}
    run.record(tables={"codes": {"source": "a study", "licence": "MIT", "origin": "live"}})
    run.write("codes", pd.DataFrame([row | {"probability": None, "simulated": simulated}]))
    assert caption(run, 'plot(own.read("codes"))') == f"Three overlap. {chip}"


@pytest.mark.parametrize(
    ("cells", "rests_on"),
    [
        (
            ["quoted = pd.read_csv(find_root() / 'data' / 'published' / 'effects.csv')", "quoted"],
            {"quoted"},
        ),
        (["rng = make(); x = rng.normal(size=9)", "x.mean()"], {"simulated"}),
        (["x = estimate_rng(seed, 'power').binomial(24, 0.5)", "x.mean()"], {"simulated"}),
        (
            ["from heart_utils.simulate.study import BEHAVIOURS", "BEHAVIOURS['coin']"],
            {"simulated"},
        ),
        (["from heart_utils import study_cost", "study_cost(280, load=9)"], {"simulated"}),
        (["x = rng.permutation(votes)", "x"], {"public/verdicts/mtbench"}),
        (["def share(rows):\n    return own.read('scores')", "share(1)"], {"scores"}),
        (["a, b = own.read('scores'), 1", "b"], set()),
        (["table = pd.DataFrame()", "table['x'] = own.read('codes')['x']", "table"], {"codes"}),
        (
            ["rows = []", "for one in votes:\n    rows.append(one)", "rows"],
            {"public/verdicts/mtbench"},
        ),
        (
            ["if x:\n    y = votes\nelse:\n    y = own.read('codes')", "y"],
            {"public/verdicts/mtbench", "codes"},
        ),
        (["made = own.read('codes')", "[made for made in votes]"], {"public/verdicts/mtbench"}),
        (["votes = own.read('codes')", "votes"], {"codes"}),
        (["own.name, Panel(3)"], set()),
        (
            ["one = own.read('codes')", "for one in votes:\n    x = one\nx"],
            {"public/verdicts/mtbench"},
        ),
        (
            [
                "def share(votes):\n    found = votes\n    return found",
                "found = own.read('codes')",
                "share(1)",
            ],
            set(),
        ),
        (
            [
                "from heart_utils.simulate.study import Margins",
                "said = Margins()",
                "said.ties",
            ],
            {"quoted"},
        ),
    ],
)
def test_what_a_name_rests_on_goes_where_the_name_goes(cells, rests_on):
    assert sources(*cells) == rests_on


def test_the_strip_and_the_headings_name_each_kind_and_where_it_is(run):
    cells = [
        words("(who)=\n# Who?\n\nWords."),
        cell(SETUP),
        words("## Votes\n\nMore."),
        figure("plot(votes)"),
        words("### Drawn"),
        figure("plot(simulate_study())", "fig-drawn"),
        words("## Limits"),
    ]
    mark_chapter(cells, "02_who", run)
    top, votes, drawn, limits, tables = (
        one["source"] for one in cells if one["cell_type"] == "markdown"
    )
    assert (
        "This chapter rests on {measured}`-` {ref}`2.1 <02-who-part-1>` {simulated}`-` {ref}`2.1"
        in top
    )
    assert votes.startswith(
        "(02-who-part-1)=\n## Votes\n\n:::{container} heart-evidence\n{measured}`MT-Bench`"
        " {simulated}`-`\n:::"
    )
    assert "{simulated}`-`\n:::" in drawn
    assert "container" not in limits
    assert "public/verdicts/mtbench: MT-Bench" in tables


def test_the_strip_names_a_section_whose_words_alone_carry_a_chip_and_not_the_exercises(run):
    cells = [
        words("(who)=\n# Who? {demo}`-`"),
        cell(SETUP),
        words("## Votes"),
        figure("plot(votes)"),
        words("## Benches\n\nIn 95 % of studies. {simulated}`-`"),
        words("## Exercises\n\nA digest says so. {quoted}`-`"),
    ]
    mark_chapter(cells, "02_who", run)
    strip = cells[0]["source"].splitlines()[4]
    assert (
        "{measured}`-` {ref}`2.1 <02-who-part-1>` {simulated}`-` {ref}`2.2 <02-who-part-2>` ("
        in strip
    )
    assert "{quoted}" not in strip


def test_a_chip_in_the_text_names_no_other_study_than_its_numbers_rest_on(run):
    cells = [
        words("# Who?\n\n{glue:text}`n:d` votes. {measured}`Moore et al.`"),
        cell(SETUP + "results = {'n': len(votes)}"),
    ]
    with pytest.raises(
        NotebookError,
        match=r"measured on Moore et al\., .*rest on MT-Bench",
    ):
        mark_chapter(cells, "02_who", run)


def test_a_chip_in_the_text_must_say_what_the_numbers_beside_it_rest_on(run):
    cells = [
        words("# Who?\n\n**{glue:text}`n:d` of 7.** {measured}`MT-Bench` So."),
        cell(SETUP + "results = {'n': len(votes)}"),
    ]
    mark_chapter(cells, "02_who", run)
    with pytest.raises(NotebookError, match="`n` rests on simulated"):
        mark_chapter(
            [cells[0], cell(SETUP + "results = {'n': simulate_study().size}")], "02_who", run
        )
    with pytest.raises(NotebookError, match="its numbers rest on measured"):
        check_chips(
            "{glue:text}`../notebooks/a.ipynb::n` {measured}`x` {demo}`-`",
            {"a": {"n": {"measured": []}}},
            "intro",
        )


def test_each_kind_has_a_chip_in_the_book():
    from heart_utils.runs import find_root

    source = (find_root() / "book" / "extensions" / "heart_book.py").read_text()
    chips = next(
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CHIPS"
    )
    assert set(ast.literal_eval(chips)) == set(KINDS)


def test_each_run_of_recorded_calls_is_a_demo_and_no_measurement():
    recorded = {
        file.stem
        for file in (find_root() / "params").glob("*.yaml")
        if "recorded: data/sample/" in file.read_text(encoding="utf-8")
    }
    assert set(DEMOS) == recorded
    assert weigh({"run"}, {}, "conversations") == {"demo": []}
    assert weigh({"run"}, {}, "mine") == {"measured": []}
