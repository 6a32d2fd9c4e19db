"""Design of comparisons: pairs of replies to one history, and their orders."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Sequence
from itertools import combinations, groupby
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.tables import check_table, need_columns, needed_columns, refuse_rows

__all__ = ["DesignError", "pair_replies"]

ORDERS = ("both", "random")
NEEDED = ("reply_id", "history_id", "responder", "state")
ID_LENGTH = 16


class DesignError(ValueError):
    """Replies cannot be paired as asked."""


def pair_replies(
    replies: pd.DataFrame,
    *,
    rng: np.random.Generator,
    orders: str = "both",
    pairs: str | int = "all",
    protocol: str = "heart",
) -> pd.DataFrame:
    """Pair the replies to each history, and say in which order each pair is shown.

    Only valid replies are paired, and never two of one responder. What is drawn depends on one
    number from `rng` and on each pair's own id, so that a reply more or less changes nothing for
    the other pairs.

    Parameters
    ----------
    replies : pandas.DataFrame
        One row per reply, with ``reply_id``, ``history_id``, ``responder`` and ``state`` (and
        ``simulated``, if any is).
    rng : numpy.random.Generator
        The source of chance.
    orders : str
        ``"both"``: two comparisons a pair; ``"random"``: one, in an order drawn for the pair.
    pairs : "all" or int
        How many pairs of each history; fewer than there are is a random choice of them, the same
        under each protocol.
    protocol : str
        The column ``protocol``; part of the comparison's id.

    Returns
    -------
    pandas.DataFrame
        The table ``comparisons``, sorted by history and pair. ``reply_a`` is the smaller id.

    Raises
    ------
    DesignError, TableError
        If an option is unknown, a column or a name is missing, a reply_id stands twice, or nothing
        can be paired.

    Warns
    -----
    UserWarning
        How many replies are left out, and how many histories have no pair.

    Examples
    --------
    >>> replies = pd.DataFrame(
    ...     {
    ...         "reply_id": ["r2", "r1"],
    ...         "history_id": "h1",
    ...         "responder": ["x", "y"],
    ...         "state": "valid",
    ...     }
    ... )
    >>> pair_replies(replies, rng=np.random.default_rng(1))[
    ...     ["reply_a", "reply_b", "order"]
    ... ].to_numpy().tolist()
    [['r1', 'r2', 'ab'], ['r1', 'r2', 'ba']]
    """
    if orders not in ORDERS:
        raise DesignError(f"orders is {orders!r}, expected one of {', '.join(ORDERS)}.")
    whole = isinstance(pairs, int | np.integer) and not isinstance(pairs, bool)
    if pairs != "all" and not (whole and int(pairs) >= 1):
        raise DesignError(
            f"pairs is {pairs!r}, expected 'all' or a whole number of pairs for each history, 1 or"
            " more."
        )
    need_columns(replies, NEEDED, DesignError)
    for column in NEEDED:
        refuse_rows(
            "replies", column, replies[column].isna(), replies[column], "a name in each row"
        )
    refuse_rows(
        "replies",
        "reply_id",
        replies["reply_id"].duplicated(),
        replies["reply_id"],
        "each reply once",
    )
    made = make_pairs(replies, rng=rng, orders=orders, pairs=pairs, protocol=protocol)
    return check_table("comparisons", made)


def make_pairs(
    replies: pd.DataFrame,
    *,
    rng: np.random.Generator,
    orders: str,
    pairs: int | str,
    protocol: str,
) -> pd.DataFrame:
    """Make the comparisons of :func:`pair_replies` from replies that were checked."""
    seed = int(rng.integers(2**63))
    valid = replies[replies["state"] == "valid"].sort_values(["history_id", "reply_id"])
    valid = valid if "simulated" in valid else valid.assign(simulated=False)
    rows: list[tuple[object, ...]] = []
    n_paired = 0
    shown_by: Any = valid[[*NEEDED, "simulated"]].itertuples(index=False)
    for history_id, group in groupby(shown_by, attrgetter("history_id")):
        pairs_by_id = {
            digest("pair", a.reply_id, b.reply_id): (a, b)
            for a, b in combinations(group, 2)
            if a.responder != b.responder
        }
        n_paired += bool(pairs_by_id)
        if pairs != "all":
            kept = set(
                sorted(pairs_by_id, key=lambda pair_id: seeded(seed, pair_id, "kept").random())[
                    : int(pairs)
                ]
            )
            pairs_by_id = {
                pair_id: sides for pair_id, sides in pairs_by_id.items() if pair_id in kept
            }
        for pair_id, (a, b) in pairs_by_id.items():
            shown_orders: tuple[str, ...] = ("ab", "ba")
            if orders == "random":
                shown_orders = (
                    shown_orders[:1]
                    if seeded(seed, pair_id, protocol, "order").random() < 0.5
                    else shown_orders[1:]
                )
            for order in shown_orders:
                names = digest("comparison", pair_id, order, protocol), pair_id, history_id
                sides = a.reply_id, b.reply_id, a.responder, b.responder
                rows.append((*names, *sides, order, protocol, a.simulated or b.simulated))
    _say_what_is_left_out(replies, replies["history_id"].nunique() - n_paired)
    if not rows:
        raise DesignError(
            f"Nothing can be paired: of {len(replies)} replies {len(valid)} are valid, to"
            f" {valid['history_id'].nunique()} histories, by {valid['responder'].nunique()}"
            " responders. A pair needs two valid replies of two responders to one history."
        )
    return pd.DataFrame(rows, columns=needed_columns("comparisons"))


def cross_seekers(histories: pd.DataFrame, seekers: Sequence[str]) -> pd.DataFrame:
    """Make of each history one row a seeker.

    Conversations that are compared began alike and met the same seeker.
    """
    tables = []
    for seeker in seekers:
        rows = histories.assign(seeker=seeker, start_id=histories["history_id"])
        tables.append(
            rows.assign(
                history_id=rows["history_id"] + f"--{seeker}",
                twin_id=rows["twin_id"] + f"--{seeker}",
            )
        )
    with_seekers = pd.concat(tables, ignore_index=True) if tables else histories
    return check_table("histories", with_seekers)


def seeded(*parts: object) -> random.Random:
    """Make a generator that depends on nothing but what it is for."""
    return random.Random(int(digest(*parts), 16))


def digest(*parts: object) -> str:
    """Return a short stable hash of some words and numbers."""
    text = "".join(f"{len(word)}:{word}" for word in map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]


def _say_what_is_left_out(replies: pd.DataFrame, alone: int) -> None:
    failed = replies.loc[replies["state"] != "valid", "state"].value_counts()
    reasons = []
    if len(failed):
        counts = ", ".join(f"{count} {state}" for state, count in sorted(failed.items()))
        reasons.append(f"{int(failed.sum())} of {len(replies)} replies are not paired ({counts})")
    if alone:
        reasons.append(
            f"{alone} histories have no two valid replies of two responders, and so no pair"
        )
    if reasons:
        warnings.warn(f"{'; '.join(reasons)}.", stacklevel=3)
