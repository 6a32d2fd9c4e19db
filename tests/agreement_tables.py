"""Small tables of votes and scores for the tests of agreement, and slow ways to the same
numbers."""

import itertools

import numpy as np
import pandas as pd
from scipy import stats

LABELS = ("a", "tie", "b")


def expanded_percentiles(values, n_clusters):
    """Give the ends of a 95 % interval from 50 clusters on: Hesterberg's expanded percentiles,
    written out."""
    reach = stats.t.ppf(0.975, n_clusters - 1) * np.sqrt(n_clusters / (n_clusters - 1))
    return tuple(np.quantile(values, [stats.norm.cdf(-reach), stats.norm.cdf(reach)]))


def wilsons_interval(estimate, values, n_clusters, least=0.0, most=1.0):
    """Give the ends of a 95 % interval of a number with a range: where t is its quantile, by
    solving for them."""
    t, wide = stats.t.ppf(0.975, n_clusters - 1), most - least
    x = (estimate - least) / wide
    n = x * (1 - x) / (np.var(values, ddof=1) * n_clusters / (n_clusters - 1) / wide**2)
    # where (x - end)^2 = t^2 end (1 - end) / n
    ends = np.roots([1 + t**2 / n, -(2 * x + t**2 / n), x**2])
    return tuple(least + wide * np.sort(ends))


def votes(rows):
    """Make verdicts from (pair, dialogue, rater, verdict); raters called m...

    are models, all else people.

    A pair ``x-y`` or ``x-y/1`` compares the responders x and y.
    """
    table = pd.DataFrame(rows, columns=["pair_id", "dialogue_id", "rater", "verdict"])
    sides = table["pair_id"].str.split("/").str[0].str.split("-", expand=True)
    return table.assign(
        pair_id=table["dialogue_id"] + "/" + table["pair_id"],
        responder_a=sides[0],
        responder_b=sides[1],
        rater_kind=np.where(table["rater"].str.startswith("m"), "model", "human"),
        dimension="overall",
    )


def scores(sheet, *, raters=None):
    """Make scores from a sheet with a row a reply and a column a rater; None is no answer."""
    sheet = pd.DataFrame(sheet, dtype=float)
    if raters is not None:
        sheet.columns = raters
    long = (
        sheet.rename(columns=str)
        .reset_index(names="reply_id")
        .melt("reply_id", var_name="rater", value_name="score")
        .dropna()
    )
    return long.assign(
        reply_id="reply_" + long["reply_id"].astype(str),
        rater_kind=np.where(long["rater"].str.startswith("m"), "model", "human"),
    )


def random_votes(rng, *, n_dialogues=5, n_responders=3, n_people=3, n_judges=2, miss=0.3):
    """Draw verdicts without much sense, with answers missing anywhere."""
    rows = []
    pairs = list(itertools.combinations("wxyz"[:n_responders], 2))
    for dialogue in range(n_dialogues):
        for one, other in pairs:
            lean = rng.uniform(0.1, 0.9)
            for rater in [*(f"p{k}" for k in range(n_people)), *(f"m{k}" for k in range(n_judges))]:
                if rng.random() > miss:
                    rows.append(
                        (
                            f"{one}-{other}",
                            f"d{dialogue:02d}",
                            rater,
                            rng.choice(LABELS, p=[0.8 * lean, 0.2, 0.8 * (1 - lean)]),
                        )
                    )
    return votes(rows)


def count_by_hand(table, first, second, *, ties, guess=True):
    """Go through all pairs of votes one by one: equal ones, all, and what the authors' names would
    have said."""
    equal = total = predicted = 0.0
    same = first == second
    for _, rows in table.groupby("pair_id"):
        rows = rows.to_dict("records")
        if same:
            meetings = [
                (x, y)
                for x, y in itertools.combinations(rows, 2)
                if x["rater_kind"] == y["rater_kind"] == first
            ]
        else:
            meetings = [
                (x, y)
                for x in rows
                for y in rows
                if x["rater_kind"] == first and y["rater_kind"] == second
            ]
        for x, y in meetings:
            if ties == "exclude" and "tie" in (x["verdict"], y["verdict"]):
                continue
            total += 1
            equal += x["verdict"] == y["verdict"]
            if guess:
                share = _guess(table, x, first, ties)
                predicted += (
                    share.get(x["verdict"], 0.0)
                    if not same
                    else sum(share.get(v["verdict"], 0.0) for v in (x, y)) / 2
                )
    return equal / total, int(total), predicted / total


def _guess(table, row, kind, ties):
    elsewhere = table[
        (table["rater_kind"] == kind)
        & (table["responder_a"] == row["responder_a"])
        & (table["responder_b"] == row["responder_b"])
        & (table["dialogue_id"] != row["dialogue_id"])
    ]
    labels = [label for label in LABELS if ties == "include" or label != "tie"]
    counts = {label: int((elsewhere["verdict"] == label).sum()) for label in labels}
    leaders = [label for label in labels if counts[label] == max(counts.values())]
    return dict.fromkeys(leaders, 1.0 / len(leaders))


# Shrout and Fleiss (1979), https://doi.org/10.1037/0033-2909.86.2.420, table 2: six targets, four
# judges.
SHROUT_FLEISS = [
    [9, 2, 5, 8],
    [6, 1, 3, 2],
    [8, 4, 6, 8],
    [7, 1, 2, 6],
    [10, 5, 6, 9],
    [6, 2, 4, 7],
]
