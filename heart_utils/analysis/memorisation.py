"""Did a model read the true next turn before? Word overlap of its replies with that turn, against other turns."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

__all__ = ["OverlapError", "measure_overlap"]

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class OverlapError(ValueError):
    """Replies and turns cannot be compared as given."""


def measure_overlap(
    replies: pd.DataFrame, truths: pd.DataFrame, *, others: pd.DataFrame | None = None, n: int = 3
) -> pd.DataFrame:
    """Compare each reply with the turn that really came next, and with turns that did not.

    A reply's overlap with a turn is the share of its runs of `n` words that stand in the turn too.
    Some overlap comes from the topic alone, and the topic is the history's: turns of other
    dialogues understate what a model that never saw the data would share. Later turns of the
    same dialogue (`others`) are the fairer yardstick, and long runs the clearer sign.

    Parameters
    ----------
    replies : pandas.DataFrame
        With columns ``reply_id``, ``history_id``, ``responder`` and ``text``. Rows without text
        or without a true next turn are left out, and counted in ``attrs["left_out"]`` of what comes back.
    truths : pandas.DataFrame
        With columns ``history_id`` and ``text``, one row per history; a turn without text is none.
    others : pandas.DataFrame, optional
        With columns ``history_id`` and ``text``: turns to compare a history's replies with, in
        place of the true next turns of all other histories.
    n : int
        Words in a run.

    Returns
    -------
    pandas.DataFrame
        One row per reply compared: ``overlap`` with the true turn, ``overlap_others`` (mean) and
        ``overlap_others_max``, ``n_others``, and ``longest_run``, the most words in a row that
        reply and true turn share. Overlaps of replies of fewer than `n` words are missing.

    Raises
    ------
    OverlapError
        If a column is missing, a history has two true turns, or `n` is below one.

    Examples
    --------
    >>> truths = pd.DataFrame({"history_id": ["h1", "h2"], "text": ["That must be very hard for you.", "Have you slept?"]})
    >>> replies = pd.DataFrame({"reply_id": ["r"], "history_id": ["h1"], "responder": ["m"], "text": ["It must be very hard."]})
    >>> measure_overlap(replies, truths)[["overlap", "overlap_others", "longest_run"]].round(3).to_dict("records")
    [{'overlap': 0.667, 'overlap_others': 0.0, 'longest_run': 4}]
    """
    _check(replies, truths, others, n)
    truths = truths[truths["text"].notna()]
    truth = dict(zip(truths["history_id"], map(_words, truths["text"]), strict=True))
    runs = {history: _runs(words, n) for history, words in truth.items()}
    elsewhere = None if others is None else _runs_by_history(others, n)
    rows = []
    compared = replies[replies["text"].notna() & replies["history_id"].isin(truth)]
    for row in compared.itertuples():
        words = _words(str(row.text))
        mine = _runs(words, n)
        if elsewhere is None:
            turns = [its for history, its in runs.items() if history != row.history_id]
        else:
            turns = elsewhere.get(str(row.history_id), [])
        shares = [len(mine & turn) / len(mine) for turn in turns] if mine else []
        rows.append(
            {
                "reply_id": row.reply_id,
                "history_id": row.history_id,
                "responder": row.responder,
                "overlap": len(mine & runs[str(row.history_id)]) / len(mine) if mine else np.nan,
                "overlap_others": float(np.mean(shares)) if shares else np.nan,
                "overlap_others_max": max(shares, default=np.nan),
                "n_others": len(turns),
                "longest_run": _longest_run(words, truth[str(row.history_id)]),
            }
        )
    columns = [
        "reply_id",
        "history_id",
        "responder",
        "overlap",
        "overlap_others",
        "overlap_others_max",
        "n_others",
        "longest_run",
    ]
    table = pd.DataFrame(rows, columns=columns)
    table.attrs["left_out"] = len(replies) - len(compared)
    return table


def _check(replies: pd.DataFrame, truths: pd.DataFrame, others: pd.DataFrame | None, n: int) -> None:
    needs = [("replies", replies, ["reply_id", "history_id", "responder", "text"]), ("truths", truths, ["history_id", "text"])]
    for name, table, columns in [*needs, *([] if others is None else [("others", others, ["history_id", "text"])])]:
        missing = [column for column in columns if column not in table]
        if missing:
            raise OverlapError(f"{name} lacks {', '.join(missing)}; it needs {', '.join(columns)}.")
    twice = truths.loc[truths["history_id"].duplicated(), "history_id"]
    if len(twice):
        raise OverlapError(f"truths: {twice.iloc[0]} has more than one true next turn; expected one row per history.")
    if n < 1:
        raise OverlapError(f"n is {n}; a run has at least one word.")


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def _runs(words: list[str], n: int) -> set[tuple[str, ...]]:
    return set(zip(*(words[start:] for start in range(n)), strict=False))


def _runs_by_history(turns: pd.DataFrame, n: int) -> dict[str, list[set[tuple[str, ...]]]]:
    runs: dict[str, list[set[tuple[str, ...]]]] = {}
    for history, text in turns[["history_id", "text"]].dropna().itertuples(index=False):
        runs.setdefault(str(history), []).append(_runs(_words(text), n))
    return runs


def _longest_run(mine: list[str], theirs: list[str]) -> int:
    """Count the words of the longest run that stands in both."""
    longest, before = 0, [0] * (len(theirs) + 1)
    for word in mine:
        row = [0, *(before[i] + 1 if word == other else 0 for i, other in enumerate(theirs))]
        longest = max(longest, *row)
        before = row
    return longest
