"""A pass needs evidence that the judge reads: which judges that do not read are caught, and how."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.gate import GateRule, compare_anytime, compare_responders, find_fault

STRENGTH = {"old": 0.0, "new": 0.0, "rival": 0.8, "template": -0.8}
MET = [("old", "rival"), ("old", "template"), ("new", "rival"), ("new", "template")]
BOTH, ONE = ("ab", "ba"), (None,)


def first(row, rng):
    return row["order"][0]


def second(row, rng):
    return row["order"][1]


def coin(row, rng):
    return "ab"[rng.integers(2)]


def first_unless_a_tie(row, rng):
    return "tie" if rng.random() < 0.8 else row["order"][0]


def tie(row, rng):
    return "tie"


def tie_on_the_two(row, rng):
    return "tie" if {"old", "new"} & {row["responder_a"], row["responder_b"]} else reads(row, rng)


def alternates(row, rng):
    """The first reply in one dialogue, the second in the next: half of all verdicts each."""
    return (first if int(row["dialogue_id"][1:]) % 2 else second)(row, rng)


def reads(row, rng):
    gap = STRENGTH[row["responder_a"]] - STRENGTH[row["responder_b"]] + row["turn"]
    lean = {"ab": 0.3, "ba": -0.3}.get(row["order"], 0.0)
    return "a" if rng.random() < 1 / (1 + np.exp(-gap - lean)) else "b"


def longest(row, rng):
    """Answers by length alone, which no order shows."""
    return "a" if row["turn"] > 0 else "b"


def verdicts(judge, orders=BOTH, *, n=150, seed=1, known=True, met=MET, **columns):
    """One row a verdict; with ``ONE`` each pair is shown once, in an order drawn at random."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        for a, b in met:
            turn = rng.normal(0, 1.5)
            for order in orders:
                shown = BOTH[rng.integers(2)] if order is None else order
                row = {"dialogue_id": f"d{number}", "responder_a": a, "responder_b": b}
                row |= {"order": shown, "turn": turn}
                rows.append(row | {"verdict": judge(row, rng)})
    table = pd.DataFrame(rows).assign(
        history_id=lambda rows: rows["dialogue_id"], dimension="overall", rater="judge", state="valid",
        rater_kind="model",
    )  # fmt: skip
    return (table if known else table.drop(columns="order")).assign(**columns)


def swap(rows):
    """Name the two the other way round in every second row, in the same order shown."""
    turned = rows.assign(responder_a=rows["responder_b"], responder_b=rows["responder_a"])
    turned["order"] = rows["order"].map({"ab": "ba", "ba": "ab"})
    turned["verdict"] = rows["verdict"].map({"a": "b", "b": "a", "tie": "tie"})
    return rows.where(pd.Series(np.arange(len(rows)) % 2 == 0, rows.index), turned)


def some_orders_lost():
    rows = verdicts(reads, ONE, n=300)
    return rows.assign(order=rows["order"].where(rows.index % 2 == 0))


def gates(rows):
    """Whichever way the gate is asked, however small a drop would be found."""
    sides = {"baseline": "old", "candidate": "new"}
    rng = np.random.default_rng(2)
    for mode in ("regression", "non-inferiority"):
        rule = GateRule(mode=mode, max_drop=400, max_detectable=np.inf, n_resamples=20)
        yield compare_responders(rows, rule=rule, rng=rng, **sides)
    yield compare_anytime(rows, margin=0.3, **sides)


def faults(rows):
    """What keeps these judges from passing, tested once and after every dialogue."""
    return [find_fault(rows, "old", "new", 0.5, anytime=anytime) for anytime in (False, True)]


BLIND = {
    "always the first, both orders": (verdicts(first), "decided in both orders"),
    "always the first, one order": (verdicts(first, ONE), "shown first"),
    "always the second, one order": (verdicts(second, ONE), "shown first"),
    "always the first, order not known": (verdicts(first, ONE, known=False), "not known"),
    "a coin, both orders": (verdicts(coin), "decided in both orders"),
    "a coin, one order": (verdicts(coin, ONE), "told no opponent"),
    "the first unless it ties": (verdicts(first_unless_a_tie), "decided in both orders"),
    "alternates, both orders": (verdicts(alternates), "decided in both orders"),
    "alternates, one order": (verdicts(alternates, ONE), "told no opponent"),
    "always ties": (verdicts(tie), "decided nothing"),
    "ties on the two sides": (
        verdicts(tie_on_the_two, met=[*MET, ("rival", "template")]), "decided nothing",
    ),
    "always the first, one place throughout": (verdicts(first, ("ab",)), "shown first"),
    "reads, but one place throughout": (verdicts(reads, ("ab",)), "place and quality"),
    "reads, order not known": (verdicts(reads, known=False, orders=("ab",)), "not known"),
    "reads the baseline alone": (
        pd.concat([verdicts(reads, met=MET[:2]), verdicts(first, met=MET[2:])]), "decided in both orders",
    ),
    "one of two judges": (
        pd.concat([verdicts(reads), verdicts(first, rater="other")]), "other decided in both orders",
    ),
    "three dialogues": (verdicts(longest, n=3), "decided in both orders"),
    "half of the orders not known": (some_orders_lost(), "the order of 600 of 1200 is not known"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BLIND)
def test_a_judge_that_is_not_shown_to_read_is_named(kind):
    rows, why = BLIND[kind]
    assert all(why in fault for fault in faults(rows))


@pytest.mark.parametrize("kind", ["a coin, both orders", "a coin, one order", "always ties"])
def test_a_judge_that_is_not_shown_to_read_passes_nobody(kind):
    assert [gate.outcome for gate in gates(BLIND[kind][0])] == ["cannot tell"] * 3


SEEN = {
    "both orders": verdicts(reads, seed=4),
    "both orders, the names changed": swap(verdicts(reads, seed=4)),
    "one order, known and balanced": verdicts(reads, ONE, n=300),
    "by length, which no order shows": verdicts(longest),
    "a part in both orders, the rest in one": pd.concat(
        [verdicts(reads, n=60), verdicts(reads, ONE, seed=3).assign(
            dialogue_id=lambda rows: "e" + rows["dialogue_id"], history_id=lambda rows: "e" + rows["history_id"])]
    ),
    "people, whose order is not known": verdicts(reads, ("ab",), known=False, rater_kind="human"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SEEN)
def test_a_judge_that_reads_is_not_named(kind):
    assert faults(SEEN[kind]) == ["", ""]


@pytest.mark.parametrize("kind", ["both orders", "one order, known and balanced"])
def test_a_judge_that_reads_passes_an_equal_candidate(kind):
    assert all(gate.passed for gate in gates(SEEN[kind]))


@pytest.mark.parametrize("orders", [BOTH, ONE])
def test_a_person_who_always_takes_the_first_is_caught_where_the_order_is_known(orders):
    people = [
        verdicts(reads, orders, seed=seed, rater=f"p{seed}", rater_kind="human")
        for seed in range(3)
    ]
    lazy = verdicts(first, orders, rater="lazy", rater_kind="human")
    assert faults(pd.concat(people)) == ["", ""]
    assert all("lazy follow the place" in fault for fault in faults(pd.concat([*people, lazy])))


def test_a_drop_is_found_whatever_the_judge():
    rows = verdicts(reads)
    worse = rows.assign(verdict=np.where(rows["responder_a"].eq("new"), "b", rows["verdict"]))
    for gate in gates(worse):
        assert gate.outcome == "failed" or gate.mode == "non-inferiority"


def test_five_dialogues_without_a_contradiction_are_the_fewest_that_show_a_judge_that_reads():
    """Wilson's bound of 0 of 5 is 48 %, of 0 of 4 it is 58 %."""
    few, enough = (faults(verdicts(longest, n=n, met=[("new", "old")]))[0] for n in (4, 5))
    assert "up to 58%" in few
    assert enough == ""
