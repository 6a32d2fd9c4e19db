"""Who meets whom, in which order: pairs of replies to one history, and the comparisons made of them."""

from __future__ import annotations

import hashlib
import random
import warnings
from itertools import combinations

import numpy as np
import pandas as pd

from heart_utils.judging.prompts import load_protocol
from heart_utils.tables import check_table, empty_table, need_columns

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
    orders: str | None = None,
    pairs: str | int = "all",
    protocol: str = "heart",
) -> pd.DataFrame:
    """Pair the replies to each history, and say in which order each pair is shown.

    Only valid replies are paired, and never two of one responder. What is drawn depends on `rng` through one number alone and
    on each pair's own id, so that a reply more or less, or another order of rows, changes nothing for the other pairs.

    Parameters
    ----------
    replies : pandas.DataFrame
        One row per reply, with columns ``reply_id``, ``history_id``, ``responder`` and ``state``
        (and ``simulated``, if any reply is).
    rng : numpy.random.Generator
        One number is drawn from it, whatever the options.
    orders : str, optional
        ``"both"``: two comparisons a pair; ``"random"``: one, in an order drawn for the pair. What
        the protocol says if not given: both for ``heart``, random for ``heart-release``.
    pairs : "all" or int
        How many pairs of each history; fewer than there are is a random choice of them, the same under each protocol.
    protocol : str
        The word in the column ``protocol``; part of the comparison's id.

    Returns
    -------
    pandas.DataFrame
        The table ``comparisons``, sorted by history and pair. ``reply_a`` is the smaller id.

    Raises
    ------
    DesignError
        If an option is unknown, a column is missing, a reply_id stands twice, a history or a
        responder is not named, or nothing can be paired.

    Warns
    -----
    UserWarning
        How many replies are left out, by their state, and how many histories have no pair.

    Examples
    --------
    >>> ids, responders = ["r2", "r1", "r3"], ["x", "y", "z"]
    >>> replies = pd.DataFrame({"reply_id": ids, "history_id": "h1", "responder": responders, "state": "valid"})
    >>> comparisons = pair_replies(replies, rng=np.random.default_rng(1))
    >>> comparisons.loc[comparisons["order"] == "ab", ["reply_a", "reply_b"]].to_numpy().tolist()
    [['r1', 'r2'], ['r1', 'r3'], ['r2', 'r3']]
    """
    how = load_protocol(protocol) if orders is None else None
    if how is not None and how.asks != "pair":
        raise DesignError(f"The protocol {protocol!r} asks about one reply alone; there is nothing to pair.")
    orders = how.orders if how is not None else orders
    if orders not in ORDERS:
        raise DesignError(f"orders is {orders!r}, expected one of {', '.join(ORDERS)}.")
    whole = isinstance(pairs, int | np.integer) and not isinstance(pairs, bool)
    if pairs != "all" and not (whole and int(pairs) >= 1):
        raise DesignError(f"pairs is {pairs!r}, expected 'all' or a whole number of pairs for each history, 1 or more.")
    _check_replies(replies)
    seed = int(rng.integers(2**63))
    valid = replies[replies["state"] == "valid"].sort_values(["history_id", "reply_id"])
    simulated = valid["simulated"] if "simulated" in valid else pd.Series(False, index=valid.index)
    rows: list[tuple[str, str, str, str, str, str, str, str, bool]] = []
    n_paired = 0
    columns = (valid["history_id"], valid["reply_id"], valid["responder"], simulated)
    by_history: dict[str, list[tuple[str, str, bool]]] = {}
    for history_id, reply_id, responder, drawn in zip(*columns, strict=True):
        by_history.setdefault(history_id, []).append((reply_id, responder, bool(drawn)))
    for history_id, there in by_history.items():
        met = [(one, other, digest("pair", one[0], other[0])) for one, other in combinations(there, 2) if one[1] != other[1]]
        n_paired += bool(met)
        if pairs != "all" and len(met) > int(pairs):
            places = {pair_id: seeded(seed, pair_id, "kept").random() for _, _, pair_id in met}
            kept = set(sorted(places, key=places.__getitem__)[: int(pairs)])
            met = [pair for pair in met if pair[2] in kept]
        for a, b, pair_id in met:
            shown: tuple[str, ...] = ("ab", "ba")
            if orders == "random":
                shown = shown[:1] if seeded(seed, pair_id, protocol, "order").random() < 0.5 else shown[1:]
            for order in shown:
                comparison_id = digest("comparison", pair_id, order, protocol)
                rows.append((comparison_id, pair_id, history_id, a[0], b[0], a[1], b[1], order, a[2] or b[2]))
    _say_what_is_left_out(replies, replies["history_id"].nunique() - n_paired)
    if not rows:
        raise DesignError(
            f"Nothing can be paired: of {len(replies)} replies {len(valid)} are valid, to {len(by_history)} histories, "
            f"by {valid['responder'].nunique()} responders. A pair needs two valid replies of two responders to one history."
        )
    names = [name for name in empty_table("comparisons").columns if name != "protocol"]
    return check_table("comparisons", pd.DataFrame(rows, columns=names).assign(protocol=protocol))


def seeded(*parts: object) -> random.Random:
    """Make a generator that depends on nothing but what it is for."""
    return random.Random(int(digest(*parts), 16))


def digest(*parts: object) -> str:
    """Give a short stable hash of some words and numbers."""
    text = "".join(f"{len(word)}:{word}" for word in map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]


def _check_replies(replies: pd.DataFrame) -> None:
    need_columns(replies, NEEDED, DesignError)
    for column in NEEDED:
        empty = replies[column].isna()
        if empty.any():
            said = f"replies.{column} is empty in {int(empty.sum())} rows, first in row {empty.idxmax()}"
            raise DesignError(f"{said}; name it in each.")
    twice = replies["reply_id"].duplicated(keep=False)
    if twice.any():
        shown = ", ".join(sorted(replies.loc[twice, "reply_id"].unique())[:3])
        raise DesignError(f"replies.reply_id: {int(twice.sum())} rows share an id ({shown}); expected each reply once.")


def _say_what_is_left_out(replies: pd.DataFrame, alone: int) -> None:
    failed = replies.loc[replies["state"] != "valid", "state"].value_counts()
    said = []
    if len(failed):
        counts = ", ".join(f"{count} {state}" for state, count in sorted(failed.items()))
        said.append(f"{int(failed.sum())} of {len(replies)} replies are not paired ({counts})")
    if alone:
        said.append(f"{alone} histories have no two valid replies of two responders, and so no pair")
    if said:
        warnings.warn(f"{'; '.join(said)}.", stacklevel=3)
