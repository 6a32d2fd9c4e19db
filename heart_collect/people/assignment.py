"""What a study with people takes: balanced seats, their cost, and its replies in a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.runs import Run
from heart_utils.tables import check_table, need_columns

__all__ = [
    "StudyError",
    "add_people",
    "assign_raters",
    "assign_writers",
    "check_balance",
    "choose_pairs",
    "study_cost",
]

NEEDED = ("comparison_id", "pair_id", "history_id", "responder_a", "responder_b", "order")


class StudyError(ValueError):
    """A study cannot be shared out, written, started or read as asked."""


def choose_pairs(
    comparisons: pd.DataFrame, *, pairs_per_history: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Choose pairs of each history so that responders, alone and by two, meet about equally often.

    Parameters
    ----------
    comparisons
        With ``pair_id``, ``history_id``, ``responder_a`` and ``responder_b``.
    pairs_per_history
        Most pairs to keep of a history.
    rng
        Orders histories, and breaks ties.

    Returns
    -------
    pandas.DataFrame
        The rows that are kept.

    Raises
    ------
    StudyError
        If a column is missing or `pairs_per_history` is below 1.

    Examples
    --------
    >>> met = {"pair_id": ["p", "q", "r"], "history_id": "h"}
    >>> met = met | {"responder_a": ["x", "x", "y"], "responder_b": ["y", "z", "z"]}
    >>> len(choose_pairs(pd.DataFrame(met), pairs_per_history=2, rng=np.random.default_rng(1)))
    2
    """
    _check_columns(comparisons, ("pair_id", "history_id", "responder_a", "responder_b"))
    if pairs_per_history < 1:
        raise StudyError(f"pairs_per_history is {pairs_per_history}, expected 1 or more.")
    pairs = comparisons.drop_duplicates("pair_id").sort_values(["history_id", "pair_id"])
    by_history: dict[object, pd.DataFrame] = dict(iter(pairs.groupby("history_id")))
    times_met: dict[tuple[str, str], int] = defaultdict(int)
    times_shown: dict[str, int] = defaultdict(int)
    kept: set[str] = set()
    for history in rng.permutation(np.array(list(by_history), dtype=object)):
        rows = by_history[history]
        names = rows[["pair_id", "responder_a", "responder_b"]].to_numpy(dtype=str)
        ties = rng.random(len(rows))
        free = [
            (pair, min(a, b), max(a, b), tie)
            for (pair, a, b), tie in zip(names.tolist(), ties.tolist(), strict=True)
        ]
        for _ in range(min(pairs_per_history, len(free))):
            best = min(
                free,
                key=lambda one: (
                    times_met[one[1], one[2]],
                    times_shown[one[1]] + times_shown[one[2]],
                    one[3],
                ),
            )
            free.remove(best)
            kept.add(best[0])
            times_met[best[1], best[2]] += 1
            times_shown[best[1]] += 1
            times_shown[best[2]] += 1
    return comparisons[comparisons["pair_id"].isin(kept)].reset_index(drop=True)


def assign_raters(
    comparisons: pd.DataFrame,
    *,
    raters_per_pair: int | Mapping[str, int],
    load: int,
    n_checks: int = 0,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Share comparisons out among seats: what one rater will do, in order.

    Loads, and how often either order is shown, differ by at most one for each pair, rater and two
    responders.

    Parameters
    ----------
    comparisons
        Both orders of each pair (``pair_replies(..., orders="both")``).
    raters_per_pair
        How many, or a mapping from ``pair_id``.
    load
        Most comparisons of a rater.
    n_checks
        Attention checks of a seat besides, never first.
    rng
        Source of chance.

    Returns
    -------
    pandas.DataFrame
        One row per page: ``seat``, ``position`` (from 1), ``task`` (``rate`` or ``check``), the
        comparison's columns, and ``check``, its number.

    Raises
    ------
    StudyError
        If a pair lacks an order or is unknown, or a number is below 1.

    Examples
    --------
    >>> both = {"comparison_id": ["c", "d"], "pair_id": "p", "history_id": "h"}
    >>> both |= {"responder_a": "x", "responder_b": "y", "order": ["ab", "ba"]}
    >>> rng = np.random.default_rng(1)
    >>> assign_raters(pd.DataFrame(both), raters_per_pair=2, load=5, rng=rng)["order"].tolist()
    ['ab', 'ba']
    """
    pairs, votes = _pairs_and_votes(comparisons, raters_per_pair, load)
    if not 0 <= n_checks <= load:
        raise StudyError(
            f"{n_checks} attention checks on {load} comparisons; expected 0 or more, no more than"
            " comparisons."
        )
    history = pairs["history_id"].to_numpy(dtype=str)
    pair, seat = _fill_seats(votes, history, _count_seats(votes, load), rng)
    seat = _part_crowds(pair, seat, history[pair], rng)
    first = _split_in_two(pair, seat, pairs, rng)
    rows = pairs.loc[pair, ["pair_id", "history_id", "responder_a", "responder_b"]].reset_index(
        drop=True
    )
    a_is_low = (rows["responder_a"] < rows["responder_b"]).to_numpy()
    rows["order"] = np.where(first == a_is_low, "ab", "ba")
    rows["seat"] = [f"seat-{number + 1:03d}" for number in seat]
    ids = comparisons.set_index(["pair_id", "order"])["comparison_id"]
    rows["comparison_id"] = ids.loc[pd.MultiIndex.from_frame(rows[["pair_id", "order"]])].to_numpy()
    return _in_sequence(rows.assign(task="rate"), n_checks, rng)


def check_balance(assignment: pd.DataFrame) -> pd.DataFrame:
    """Measure how even an assignment is, before anyone starts.

    Parameters
    ----------
    assignment
        From :func:`assign_raters`.

    Returns
    -------
    pandas.DataFrame
        One row per ``measure``, with ``least``, ``most``, ``allowed`` (in words) and ``holds``.

    Examples
    --------
    >>> shown = {"seat": ["s1", "s2"], "task": "rate", "pair_id": "p1", "history_id": "h1"}
    >>> shown |= {"responder_a": "x", "responder_b": "y", "order": ["ab", "ba"]}
    >>> bool(check_balance(pd.DataFrame(shown))["holds"].all())
    True
    """
    rated = assignment[assignment["task"] == "rate"]
    if rated.empty:
        raise StudyError("The assignment holds nothing to rate; make it with assign_raters.")
    one, other = rated["responder_a"], rated["responder_b"]
    lead = pd.Series(np.where((rated["order"] == "ab") == (one < other), 1, -1), index=rated.index)
    duels = one.where(one < other, other) + " / " + other.where(one < other, one)
    per_seat = rated.groupby("seat").size()
    visits = rated.groupby(["seat", "history_id"]).size()
    n_histories = rated["history_id"].nunique()
    rows = [
        _limit("comparisons a rater", per_seat, 1, apart=True),
        _limit(
            "attention checks a rater",
            (assignment["task"] == "check").groupby(assignment["seat"]).sum(),
            0,
            apart=True,
        ),
        _limit("times a rater meets the same pair", rated.groupby(["seat", "pair_id"]).size(), 1),
        _limit(
            "times a rater meets the same history",
            visits,
            _most_visits(int(per_seat.max()), n_histories),
        ),
        _limit(
            "one order more than the other, by pair", lead.groupby(rated["pair_id"]).sum().abs(), 1
        ),
        _limit(
            "one order more than the other, by rater", lead.groupby(rated["seat"]).sum().abs(), 1
        ),
        _limit("one order more than the other, by responders", lead.groupby(duels).sum().abs(), 1),
    ]
    return pd.DataFrame(rows, columns=["measure", "least", "most", "allowed", "holds"])


def assign_writers(
    histories: pd.DataFrame,
    *,
    writers_per_history: int = 3,
    n_writers: int = 12,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Share histories out among people who write replies, so that writers overlap evenly.

    Parameters
    ----------
    histories
        With ``history_id``.
    writers_per_history
        Writers of each history.
    n_writers
        Size of the pool.
    rng
        Source of chance.

    Returns
    -------
    pandas.DataFrame
        One row per page: ``seat``, ``position`` and ``history_id``.

    Raises
    ------
    StudyError
        If there are too few writers, or a number is below 1.

    Examples
    --------
    >>> four = pd.DataFrame({"history_id": ["h1", "h2", "h3", "h4"]})
    >>> seats = assign_writers(four, n_writers=6, rng=np.random.default_rng(1))
    >>> set(seats.groupby("seat").size())
    {2}
    """
    _check_columns(histories, ("history_id",))
    if not 1 <= writers_per_history <= n_writers:
        raise StudyError(
            f"{writers_per_history} writers a history out of {n_writers}; expected 1 or more, and"
            " that many writers."
        )
    ids = histories["history_id"].to_numpy(dtype=str)
    history, seat = _fill_seats(
        np.full(len(ids), writers_per_history), ids, n_writers, rng, meetings=True
    )
    table = pd.DataFrame(
        {"seat": [f"seat-{number + 1:03d}" for number in seat], "history_id": ids[history]}
    )
    table = table.iloc[rng.permutation(len(table))].sort_values(
        "seat", kind="stable", ignore_index=True
    )
    table.insert(1, "position", table.groupby("seat").cumcount() + 1)
    return table


def assign_conversations(
    histories: pd.DataFrame, *, writers_per_history: int, n_writers: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Share starts out, each with each seeker; nobody meets a start twice."""
    seekers = [str(seeker) for seeker in histories["seeker"].unique()]
    starts = histories.drop_duplicates("start_id").assign(history_id=lambda rows: rows["start_id"])
    shared = assign_writers(
        starts,
        writers_per_history=writers_per_history * len(seekers),
        n_writers=n_writers,
        rng=rng,
    )
    ids = histories.set_index(["start_id", "seeker"])["history_id"].to_dict()
    times_with = {seat: dict.fromkeys(seekers, 0) for seat in shared["seat"]}
    history = pd.Series(index=shared.index, dtype=object)
    for start, rows in shared.groupby("history_id"):
        left = seekers * writers_per_history
        for row in rng.permutation(rows.index):
            seat = shared["seat"][row]
            seeker = min(map(str, rng.permutation(left)), key=times_with[seat].__getitem__)
            left.remove(seeker)
            times_with[seat][seeker] += 1
            history[row] = ids[start, seeker]
    return shared.assign(history_id=history)


def study_cost(
    n_pairs: int,
    *,
    raters_per_pair: list[int],
    load: int,
    seconds_each: float,
    minutes_around: float,
    pay_per_hour: float,
    fee_share: float = 0.0,
) -> pd.DataFrame:
    """Compute the raters, hours and cost of a rating study, without drop-outs.

    Parameters
    ----------
    n_pairs
        Pairs of replies.
    raters_per_pair
        Raters of each pair; one row a number.
    load
        Comparisons of one rater.
    seconds_each
        Seconds on one comparison, from a pilot.
    minutes_around
        Minutes of consent, instructions, practice and debrief.
    pay_per_hour
        In any currency.
    fee_share
        What a platform adds, as a share of the pay.

    Returns
    -------
    pandas.DataFrame
        ``raters_per_pair``, ``verdicts``, ``raters``, ``minutes_each``, ``hours`` and ``cost``
        (pay and fee).

    Examples
    --------
    >>> costs = study_cost(
    ...     2800,
    ...     raters_per_pair=[15],
    ...     load=35,
    ...     seconds_each=60,
    ...     minutes_around=10,
    ...     pay_per_hour=12,
    ... )
    >>> costs[["raters", "hours"]].values.tolist()
    [[1200.0, 900.0]]
    """
    table = pd.DataFrame({"raters_per_pair": raters_per_pair})
    table["verdicts"] = n_pairs * table["raters_per_pair"]
    table["raters"] = np.maximum(
        np.ceil(table["verdicts"] / load), table["raters_per_pair"]
    ).astype(int)
    table["minutes_each"] = table["verdicts"] / table["raters"] * seconds_each / 60 + minutes_around
    table["hours"] = table["raters"] * table["minutes_each"] / 60
    table["cost"] = table["hours"] * pay_per_hour * (1 + fee_share)
    return table


def add_people(run: Run, replies: pd.DataFrame, histories: pd.DataFrame) -> pd.DataFrame:
    """Add what people wrote in studies of a run to the replies of its recipe.

    Parameters
    ----------
    run
        Its imported replies take part; each study is a part of ``replies``.
    replies
        The recipe's replies.
    histories
        The recipe's histories.

    Returns
    -------
    pandas.DataFrame
        The replies, people's last.

    Raises
    ------
    StudyError
        If people answered a history that the recipe does not choose any more.

    Examples
    --------
    >>> from heart_utils import load_histories, load_replies, open_run
    >>> len(add_people(open_run("./a new run"), load_replies("sample"), load_histories("sample")))
    36
    """
    tables = {part: run.read("replies", part) for part in run.parts("replies")}
    for part, rows in tables.items():
        lost = rows.loc[~rows["history_id"].isin(histories["history_id"]), "history_id"].unique()
        if len(lost):
            raise StudyError(
                f"In {part} people answered {len(lost)} histories that the run {run.name!r} does"
                f" not choose (any more), first {lost[0]!r}. Choose them again under `collect:`, or"
                f" move {run.folder / 'replies' / part}.parquet away."
            )
    return (
        check_table("replies", pd.concat([replies, *tables.values()], ignore_index=True))
        if tables
        else replies
    )


def _check_columns(table: pd.DataFrame, needed: tuple[str, ...]) -> None:
    need_columns(table, needed, StudyError)
    if table.empty:
        raise StudyError("The table has no rows, so there is nothing to share out.")


def _pairs_and_votes(
    comparisons: pd.DataFrame, raters_per_pair: int | Mapping[str, int], load: int
) -> tuple[pd.DataFrame, np.ndarray]:
    _check_columns(comparisons, NEEDED)
    if load < 1:
        raise StudyError(f"load is {load}, expected 1 or more.")
    orders = comparisons.groupby("pair_id")["order"].agg(
        lambda orders_of: " ".join(sorted(orders_of.dropna()))
    )
    wrong = orders[orders != "ab ba"]
    if len(wrong):
        raise StudyError(
            f"{len(wrong)} pairs are not there once in each order, first {wrong.index[0]} with"
            f" {wrong.iloc[0] or 'no order'}. Sides cannot be balanced without; pair replies with"
            ' orders="both".'
        )
    pairs = comparisons.drop_duplicates("pair_id").sort_values(
        ["history_id", "pair_id"], ignore_index=True
    )
    if isinstance(raters_per_pair, Mapping):
        if unknown := sorted(set(raters_per_pair) - set(pairs["pair_id"])):
            raise StudyError(
                f"raters_per_pair names {len(unknown)} pairs that are not compared, first"
                f" {unknown[0]}."
            )
        votes = pairs["pair_id"].map(lambda pair: raters_per_pair.get(pair, 0)).to_numpy(dtype=int)
    else:
        votes = np.full(len(pairs), raters_per_pair)
    if (votes < 0).any() or votes.sum() < 1:
        raise StudyError(
            f"raters_per_pair is {raters_per_pair!r}, expected 1 or more for some pair, and never"
            " less than 0."
        )
    return pairs, votes


def _count_seats(votes: np.ndarray, load: int) -> int:
    return max(-(-int(votes.sum()) // load), int(votes.max()))


def _most_visits(load: int, n_histories: int) -> int:
    """Allow a rater one meeting with a history more than if spread over all."""
    return -(-load // n_histories) + 1


def _fill_seats(
    votes: np.ndarray,
    history: np.ndarray,
    n_seats: int,
    rng: np.random.Generator,
    *,
    meetings: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Assign each pair its seats: the emptiest first, then the newest."""
    filled, together = np.zeros(n_seats, dtype=int), np.zeros((n_seats, n_seats))
    visits_of: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(n_seats, dtype=int))
    pairs: list[int] = []
    seats: list[int] = []
    for number in rng.permutation(len(votes)):
        visits, luck, chosen = visits_of[history[number]], rng.random(n_seats), list[int]()
        # each one chosen changes who shares histories with whom
        at_once = 1 if meetings else max(1, votes[number])
        for _ in range(0, votes[number], at_once):
            before = together[:, chosen].sum(axis=1) if meetings else visits
            taken = len(votes) * np.isin(np.arange(n_seats), chosen)
            chosen += np.lexsort((luck, before, filled + taken))[:at_once].tolist()
        together[np.ix_(chosen, chosen)] += 1
        filled[chosen] += 1
        visits[chosen] += 1
        pairs += [int(number)] * len(chosen)
        seats += chosen
    return np.array(pairs), np.array(seats)


def _part_crowds(
    pair: np.ndarray, seat: np.ndarray, history: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Share two seats out anew where one meets a history too often."""
    seat = seat.copy()
    number = np.unique(history, return_inverse=True)[1]
    visits = np.zeros((number.max() + 1, seat.max() + 1), dtype=int)
    np.add.at(visits, (number, seat), 1)
    needed = -(-visits.sum(axis=1) // visits.shape[1])
    most = np.maximum(needed, _most_visits(int(visits.sum(axis=0).max()), len(visits)))
    while len(crowds := np.argwhere(visits > most[:, None])):
        met, full = crowds[0]
        two = [full, np.lexsort((rng.random(visits.shape[1]), visits[met]))[0]]
        here = np.flatnonzero(np.isin(seat, two))
        here = here[
            np.lexsort(
                (
                    rng.permutation(pair.max() + 1)[pair[here]],
                    rng.permutation(len(visits))[number[here]],
                )
            )
        ]
        seat[here] = np.resize(rng.permutation(two), len(here))
        visits[:, two] = 0
        np.add.at(visits, (number[here], seat[here]), 1)
    return seat


def _split_in_two(
    pair: np.ndarray, seat: np.ndarray, pairs: pd.DataFrame, rng: np.random.Generator
) -> np.ndarray:
    """Choose for each rating whether the alphabet's first responder is shown first."""
    names = pairs[["responder_a", "responder_b"]].to_numpy(dtype=str)
    duel = [tuple(sorted(names[number])) for number in pair]
    # Euler splitting: two linked ratings show opposite sides. Each rating has at most one link by
    # its pair and one by its seat, so the links form paths and even cycles, and alternating along
    # them always works. Every pair and every seat then is balanced up to one rating.
    order = rng.permutation(len(pair))
    here, left = _link(order, pair)
    across, _ = _link(np.array(left, dtype=int), duel)
    by_pair, by_seat = here | across, _link(rng.permutation(len(pair)), seat)[0]
    side = np.full(len(pair), -1)
    for start in order:
        chain = [(int(start), int(rng.integers(2)))] if side[start] < 0 else []
        while chain:
            rating, value = chain.pop()
            if side[rating] >= 0:
                continue
            side[rating] = value
            chain += [(links[rating], 1 - value) for links in (by_pair, by_seat) if rating in links]
    return side.astype(bool)


def _link(ratings: np.ndarray, group: object) -> tuple[dict[int, int], list[int]]:
    """Link a group's ratings by two; return the links both ways, and who is left."""
    waiting: dict[object, int] = {}
    links: dict[int, int] = {}
    for rating in ratings.tolist():
        key = group[rating]  # type: ignore[index]
        if key in waiting:
            other = waiting.pop(key)
            links[rating], links[other] = other, rating
        else:
            waiting[key] = rating
    return links, list(waiting.values())


def _in_sequence(rows: pd.DataFrame, n_checks: int, rng: np.random.Generator) -> pd.DataFrame:
    """Order each seat at random, histories apart if possible, with checks."""
    pages: list[dict[Any, Any]] = []
    records, seats = rows.to_dict("records"), rows.groupby("seat").indices
    for seat, rows_of_seat in sorted(seats.items()):
        waiting = [records[position] for position in rng.permutation(rows_of_seat)]
        sequence: list[dict[Any, Any]] = []
        while waiting:
            history, times = Counter(row["history_id"] for row in waiting).most_common(1)[0]
            last = sequence[-1]["history_id"] if sequence else None
            crowded = history if times * 2 > len(waiting) else None
            pick = next(
                (k for k, row in enumerate(waiting) if row["history_id"] == crowded != last), None
            )
            if pick is None:
                pick = next((k for k, row in enumerate(waiting) if row["history_id"] != last), 0)
            sequence.append(waiting.pop(pick))
        width = len(sequence) / n_checks if n_checks else 0
        for number in range(n_checks, 0, -1):
            position = max(1, int((number - 1) * width + rng.integers(1, max(2, int(width) + 1))))
            sequence.insert(position, {"seat": seat, "task": "check", "check": number})
        pages += [{**row, "position": number} for number, row in enumerate(sequence, 1)]
    table = pd.DataFrame(pages).reindex(columns=["seat", "position", "task", *NEEDED, "check"])
    return table.assign(check=table["check"].astype("Int64"))


def _limit(
    measure: str, counts: pd.Series, allowed: int, *, apart: bool = False
) -> tuple[str, int, int, str, bool]:
    least, most = int(counts.min()), int(counts.max())
    if apart:
        return (
            measure,
            least,
            most,
            f"differ by {allowed} at most" if allowed else "all the same",
            most - least <= allowed,
        )
    return measure, least, most, f"{allowed} at most", most <= allowed
