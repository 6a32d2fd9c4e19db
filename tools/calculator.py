"""Write the numbers that the book's study calculator interpolates.

The file is `book/style/calculator_data.js`.

``python -m tools.calculator`` writes them again, for instance after a change of the formula or of a
price.

A page cannot call :func:`heart_utils.simulate.study.plan_study`, so what its formula needs beside
sums and products is computed here on grids: three covariances by the two standard deviations and
the share of ties, and quantiles of Student's t; and the variance components of published scores,
for :func:`heart_utils.agreement.generalizability.cheapest_design` and
:func:`heart_utils.simulate.conversations.plan_conversations`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pandas as pd
from scipy import stats

from heart_collect.calls.prices import price
from heart_collect.judging.recipe import read_recipe
from heart_utils import load_scores, load_verdicts
from heart_utils.agreement.generalizability import variance_components, win_scores
from heart_utils.ratings.ratings import POINTS
from heart_utils.ratings.resampling import FEW_RATERS
from heart_utils.runs import PUBLIC, find_root, open_run, write_atomically
from heart_utils.simulate.conversations import find_shift
from heart_utils.simulate.study import (
    LARGEST_GAP,
    LEAST_A_PAIR,
    OTHERS,
    Design,
    critical_value,
    shared_covariances,
)

__all__ = ["PAGE_DATA", "calculator_data"]

PAGE_DATA = "book/style/calculator_data.js"
DIALOGUE_SD = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
RATER_SD = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
TIES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
DF = [*range(1, 21), 22, 25, 30, 40, 60, 120, 1e9]
POWER = [0.8, 0.9]
MOST_RESPONDERS = 30
MOST_RATERS = 20
SAGE_SEEKERS = ("deepseek-v3", "gpt-4o")  # of the three, those that talked with several models
SMALL = 1e-4
"""In the place of 0, where a covariance over its standard deviation squared has a limit."""


def published_scores() -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield every table of scores: what was scored, by whom, and its rows."""
    people = {"human": "people", "model": "judges"}
    for (attribute, kind), rows in load_scores("mentalalign").groupby(["dimension", "rater_kind"]):
        yield f"MentalAlign, {attribute}", people[str(kind)], rows
    for kind, rows in load_verdicts("mtbench").groupby("rater_kind"):
        yield (
            "MT-Bench, wins",
            people[str(kind)],
            win_scores(rows, panels=2 if kind == "human" else 1),
        )


def calculator_data(responders: Sequence[int] = range(2, MOST_RESPONDERS + 1)) -> dict[str, object]:
    """Compute the grids.

    Parameters
    ----------
    responders : sequence of int
        For how many responders ``critical`` has a row; each takes some seconds.

    Returns
    -------
    dict of str to object
        ``covariances`` in the order of ``dialogue_sd``, ``rater_sd`` and ``ties``, each over the
        variance that it grows with; ``critical`` by number of responders and ``df``, ``named`` for
        one pair, ``found`` by power, ``shift`` in standard errors by power and ``df``;
        ``variance`` components and the number of raters by what was scored and by whom; those of
        ``conversations`` by set.

    Examples
    --------
    >>> data = calculator_data([2])
    >>> len(data["covariances"]), len(data["critical"]), round(data["named"][-1], 2)
    (396, 1, 1.96)
    """
    plain = Design(n_dialogues=2, n_responders=2, pairs=1, votes=1, n_raters=1)
    covariances = []
    for dialogue_sd, rater_sd, ties in product(DIALOGUE_SD, RATER_SD, TIES):
        reply, taste = max(dialogue_sd, SMALL), max(rater_sd, SMALL)
        shared = shared_covariances(
            replace(plain, dialogue_sd=reply, rater_sd=taste, tie_share=ties)
        )
        over = {"reply": reply**2, "replies": 2 * reply**2, "taste": taste**2}
        covariances.append([round(shared[name] / over[name], 6) for name in over])
    reach = [[round(critical_value(n, df), 6) for df in DF] for n in responders]
    judges = [
        {
            "name": judge.name.removesuffix("-judge"),
            "prices": [round(1e6 * rate, 4) for rate in price(judge) or ()],
        }
        for judge in read_recipe("api").judges
    ]
    scored: dict[str, dict[str, object]] = {}
    for what, party, scores in published_scores():
        parts = variance_components(scores)
        variance = {name: round(float(value), 6) for name, value in parts.table["variance"].items()}
        scored.setdefault(what, {})[party] = {"n_raters": parts.n_raters, "variance": variance}
    conversations = {
        what: {
            "variance": {name: round(float(part), 6) for name, part in parts.items()},
            "of": scale,
        }
        for what, (parts, scale) in conversation_components().items()
    }
    return {
        "conversations": conversations,
        "dialogue_sd": DIALOGUE_SD,
        "rater_sd": RATER_SD,
        "ties": TIES,
        "covariances": covariances,
        "df": DF,
        "critical": reach,
        "named": [round(critical_value(2, df, n_contrasts=1), 6) for df in DF],
        "found": {f"{power:g}": round(float(stats.norm.ppf(power)), 6) for power in POWER},
        "shift": {f"{power:g}": [round(find_shift(power, df), 6) for df in DF] for power in POWER},
        "few_raters": FEW_RATERS,
        "least_a_pair": LEAST_A_PAIR,
        "largest_gap": LARGEST_GAP,
        "others": OTHERS,
        "points": POINTS,
        "judges": judges,
        "most_raters": MOST_RATERS,
        "scored": scored,
    }


def conversation_components() -> dict[str, tuple[pd.Series, str]]:
    """Estimate variance components of two published sets of conversations, and their scale.

    SAGE's seekers score their own conversation, so a further seeker is a further conversation.
    MindEval's experts read the same conversation of one simulated seeker: how seekers differ is not
    known from it, nor what a repeat would bring.
    """
    sage = load_scores("sage").sort_values("item").groupby("reply_id").tail(1)
    both = sage[sage["rater"].isin(SAGE_SEEKERS)]
    n_seekers = both.groupby("responder")["rater"].nunique()
    crossed = both[both["responder"].isin(n_seekers[n_seekers == len(SAGE_SEEKERS)].index)]
    of_sage = variance_components(
        crossed.rename(columns={"rater": "seeker"}), facets=["dialogue_id", "seeker"]
    )
    mindeval = open_run(PUBLIC).read("estimates", "mindeval").query("quantity == 'variance'")
    experts = mindeval.set_index("stratum")["value"].astype(float).clip(lower=0.0)
    return {
        "SAGE: the seeker's own score, two simulated seekers": (of_sage.table["variance"], "100"),
        "MindEval: scores by experts, one simulated seeker": (experts, "6"),
    }


def main() -> None:
    """Write them where the book's pages find them."""
    text = json.dumps(calculator_data(), separators=(",", ":"))
    words = (
        "// Written by `python -m tools.calculator`; a test compares it with what that computes.\n"
    )
    write_atomically(find_root() / PAGE_DATA, f"{words}const STUDY_GRID = {text};\n".encode())


if __name__ == "__main__":
    main()
