"""The study calculator in a real browser: it says what `plan_study` and `study_cost` say, at grid
points and between them."""

import numpy as np
import pytest

from heart_collect.people.assignment import study_cost
from heart_utils.agreement.generalizability import cheapest_design, variance_components
from heart_utils.runs import find_root
from heart_utils.simulate.conversations import (
    ConversationCosts,
    difference_error,
    plan_conversations,
)
from heart_utils.simulate.study import Design, plan_study
from tools.calculator import conversation_components, published_scores

pytestmark = pytest.mark.services

ROOT = find_root()
PAGE = ROOT / "build" / "html" / "book" / "calculator.html"
AROUND = {
    "load": 30,
    "seconds": 60,
    "minutes_around": 10,
    "pay": 12,
    "orders": 2,
    "tokens_in": 1000,
    "tokens_out": 500,
}


@pytest.fixture(scope="module")
def scripts(chromium):
    """A page with the calculator's scripts and nothing else."""
    page = chromium.new_page()
    for name in ("calculator_data", "calculator"):
        page.add_script_tag(path=ROOT / "book" / "style" / f"{name}.js")
    yield page
    page.close()


def cases():
    """Grid points, and thirty designs drawn between them."""
    at_grid = {
        "responders": 17,
        "dialogues": 280,
        "pairs": 10,
        "votes": 15,
        "dialogue_sd": 0.8,
        "rater_sd": 0.4,
        "ties": 0.2,
    }
    yield at_grid
    yield at_grid | {"rater_sd": 0.0, "dialogue_sd": 0.0, "ties": 0.0}
    yield at_grid | {"dialogues": 2, "responders": 2, "pairs": 1, "votes": 1, "load": 1000}
    rng = np.random.default_rng(20261123)
    for _ in range(30):
        size = int(rng.integers(2, 31))
        yield {
            "responders": size,
            "dialogues": int(np.exp(rng.uniform(np.log(5), np.log(3000)))),
            "pairs": int(rng.integers(1, size * (size - 1) // 2 + 1)),
            "votes": int(rng.integers(1, 12)),
            "load": int(rng.integers(5, 400)),
            "dialogue_sd": rng.uniform(0, 2),
            "rater_sd": rng.uniform(0, 1),
            "ties": rng.uniform(0, 0.5),
        }


def compare(found, design, power):
    for name, n_contrasts in (("board", None), ("named", 1)):
        [planned] = plan_study([design], power=power, n_contrasts=n_contrasts).to_dict("records")
        if planned["why"]:
            reckoned = found[name]["why"].startswith("not reckoned")
            assert reckoned == planned["why"].startswith("not reckoned"), design
            continue
        parts = {part: planned[part] for part in ("verdicts", "dialogues", "raters")}
        assert found[name]["points"] == pytest.approx(planned["gap_points"], rel=0.01), design
        assert found[name]["parts"] == pytest.approx(parts, abs=0.01), design


@pytest.mark.parametrize("power", [0.8, 0.9])
def test_gaps_people_hours_and_cost_are_those_of_python(scripts, power):
    for case in cases():
        asked = AROUND | case | {"power": str(power), "judges": [[2.5, 10.0], [3.0, 15.0]]}
        found = scripts.evaluate("(asked) => StudyCalculator.plan(asked)", asked)
        people, judges = found["people"], found["judges"]
        n_pairs = asked["dialogues"] * asked["pairs"]
        design = {"n_dialogues": asked["dialogues"], "n_responders": asked["responders"]}
        design |= {name: asked[name] for name in ("pairs", "dialogue_sd", "rater_sd")}
        design["tie_share"] = asked["ties"]
        pay = {"load": asked["load"], "seconds_each": 60, "minutes_around": 10, "pay_per_hour": 12}
        [cost] = study_cost(n_pairs, raters_per_pair=[asked["votes"]], **pay).to_dict("records")
        told = [people[name] for name in ("verdicts", "raters", "minutes", "hours", "cost")]
        names = ("verdicts", "raters", "minutes_each", "hours", "cost")
        assert told == pytest.approx([cost[name] for name in names])
        compare(people, Design(**design, votes=asked["votes"], n_raters=cost["raters"]), power)
        compare(judges, Design(**design, votes=2, n_raters=2), power)
        # two orders, 1,000 tokens in and 500 out: by hand
        by_hand = n_pairs * 2 * ((2.5 + 5.0) + (3.0 + 7.5)) / 1000
        assert judges["cost"] == pytest.approx(by_hand)


def test_reliability_and_the_cheapest_design_are_those_of_python(scripts):
    rng = np.random.default_rng(20261123)
    code = (
        "([what, party, asked]) => ['predict', 'cheapest'].map((name) => "
        "ReliabilityCalculator[name](STUDY_GRID.scored[what][party], asked))"
    )
    n_checked = 0
    for what, party, scores in published_scores():
        parts = variance_components(scores)
        for same in (True, False) if parts.n_raters > 1 else (True,):
            n, m = int(rng.integers(2, 300)), int(rng.integers(1, parts.n_raters + 1))
            wanted = rng.uniform(0.4, 0.95)
            costs = dict(zip(("cost_dialogue", "cost_rating"), rng.uniform(0, 3, 2), strict=True))
            asked = {"dialogues": n, "raters": m, "same": same, "wanted": wanted, **costs}
            found, best = scripts.evaluate(code, [what, party, asked])
            for name, absolute in (("relative", False), ("absolute", True)):
                expected = parts.reliability(n, m, same_raters=same, absolute=absolute)
                assert found[name] == pytest.approx(expected, abs=1e-4)
            limits = {"reliability": wanted, "same_raters": same, "most_raters": 20}
            try:
                plan = cheapest_design(parts, **limits, **costs).iloc[0]
            except ValueError:
                assert best is None, (what, party, asked)
            else:
                assert best["cost"] == pytest.approx(plan["cost"], rel=0.01), (what, party, asked)
            n_checked += 1
    assert n_checked == 24  # 16 tables, and 8 with raters to choose others from


def test_studies_of_conversations_are_those_of_python(scripts):
    rng = np.random.default_rng(34)
    code = (
        "([what, asked]) => ConversationCalculator.plan("
        "STUDY_GRID.conversations[what].variance, asked)"
    )
    costs = ConversationCosts(start=1.5, turn=0.01, judging=0.2, turns=9)
    for what, (parts, _) in conversation_components().items():
        inner = {facet for name in parts.index for facet in name.split(":")}
        for _ in range(8):
            asked = {"starts": int(rng.integers(5, 400)), "responders": int(rng.integers(2, 12))}
            asked |= {name: int(rng.integers(1, 7)) for name in ("seekers", "repeats", "raters")}
            asked |= {f"{name}s": 1 for name in ("seeker", "rater") if name not in inner}
            asked |= {"turns": 9, "cost_start": 1.5, "cost_turn": 0.01, "cost_judging": 0.2}
            asked |= {"power": "0.8", "fixed": bool(rng.integers(2))}
            found = scripts.evaluate(code, [what, asked])
            fixed = ["seeker", "rater"] if asked["fixed"] else []
            sizes = {"dialogue": asked["starts"], "repeat": asked["repeats"]}
            sizes |= {name: asked[f"{name}s"] for name in ("seeker", "rater") if name in inner}
            error, df = difference_error(parts, sizes, fixed=fixed)
            assert found["error"] == pytest.approx(error, rel=1e-4), (what, asked)
            design = {name: [asked[name]] for name in ("seekers", "repeats", "raters")}
            design |= {"budget": found["cost"], "n_responders": asked["responders"]}
            plans = plan_conversations(parts, **design, fixed=fixed, costs=costs)
            [plan] = plans.to_dict("records")
            assert plan["n_starts"] == asked["starts"]
            assert plan["n_conversations"] == found["conversations"]
            if np.isnan(df):
                assert found["gap"] is None or np.isnan(found["gap"])
            else:  # the quantiles bend most where there are few degrees of freedom
                rel = 0.01 if df > 5 else 0.1
                assert found["gap"] == pytest.approx(plan["smallest_gap"], rel=rel), (what, asked)


@pytest.fixture
def page(chromium):
    if not PAGE.is_file():
        pytest.skip("needs book: run `make book`")
    opened = chromium.new_page(viewport={"width": 360, "height": 800})
    opened.goto(PAGE.as_uri())
    yield opened
    opened.close()


def test_the_page_answers_what_python_on_it_prints_and_follows_a_change(page):
    def row(name):
        return page.locator(f"[data-row={name}] td").all_inner_texts()

    assert [row(name)[0] for name in ("raters", "cost")] == ["100", "800"]
    assert row("board")[0].startswith("108 points")
    assert row("relative") == ["0.91", "0.87 with 1 rater"]
    page.get_by_label("Raters of each reply").fill("4")
    assert row("relative")[-1] == "0.89 with 4 raters"
    assert row("cheapest")[-1] == "22 dialogues with 4 raters, cost 119"
    page.get_by_label("Dialogues", exact=True).fill("400")
    assert row("verdicts")[0] == "12,000"
    for tick in page.locator("[type=checkbox]").all():
        tick.uncheck()
    assert row("board")[-1] == "–"


def test_the_page_says_which_field_cannot_be_and_keeps_the_last_answer(page):
    page.get_by_label("Pairs a dialogue").fill("99")
    assert page.locator(".said").inner_text() == "Pairs a dialogue: give a number from 1 to 36."
    assert page.locator("[data-row=raters] td").first.inner_text() == "100"


def test_without_scripts_the_page_says_what_to_run(chromium, page):
    context = chromium.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(PAGE.as_uri())
    assert opened.locator("noscript p").is_visible()
    assert not opened.locator(".heart-calculator").is_visible()
    context.close()
