"""How alike one author's replies to different people are; and whether replies repeat what really came next."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import draw_weights, interval_of
from heart_utils.tables import need_columns

__all__ = ["OverlapError", "measure_overlap", "measure_sameness"]

COLUMNS = ["reply_id", "history_id", "responder", "overlap", "overlap_others", "overlap_others_max", "n_others", "longest_run"]
TOKEN = re.compile(r"\w+(?:'\w+)?")
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
        words, true = _words(str(row.text)), truth[str(row.history_id)]
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
                "longest_run": SequenceMatcher(None, words, true, autojunk=False).find_longest_match().size,
            }
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    table.attrs["left_out"] = len(replies) - len(compared)
    return table


def _check(replies: pd.DataFrame, truths: pd.DataFrame, others: pd.DataFrame | None, n: int) -> None:
    need_columns(replies, ["reply_id", "history_id", "responder", "text"], OverlapError)
    for table in (truths, *([] if others is None else [others])):
        need_columns(table, ["history_id", "text"], OverlapError)
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


def measure_sameness(
    replies: pd.DataFrame,
    *,
    by: str = "responder",
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Compare each author's replies with that author's replies to other dialogues.

    Similarity is the cosine of word counts weighted by rarity (TF-IDF over all replies of the table).
    Two replies to one dialogue share its topic, so only pairs across dialogues count. Beside it stands
    the similarity to other authors' replies across dialogues: what anybody's replies share.

    Parameters
    ----------
    replies : pandas.DataFrame
        Valid replies with ``text``, `by` and `cluster`.
    by, cluster : str
        Whose replies; what is resampled together.
    n_resamples, ci_level, rng
        Of the bootstrap: dialogues are drawn, and a pair counts the product of its two dialogues' counts.

    Returns
    -------
    pandas.DataFrame
        One row an author, the most alike first: ``sameness``, ``ci_low``, ``ci_high``, ``ci_level``, ``to_others``, ``n``,
        ``n_clusters``, ``n_repeated`` (replies whose very words the author gave elsewhere). ``nan`` with one dialogue.

    Examples
    --------
    >>> replies = pd.DataFrame({"responder": list("xxyy"), "dialogue_id": list("dede"),
    ...     "text": ["I am here for you", "I am here for you", "your dog", "that exam"]})
    >>> found = measure_sameness(replies, rng=np.random.default_rng(1), n_resamples=20)
    >>> found[["responder", "sameness", "n_repeated"]].round(3).values.tolist()
    [['x', 1.0, 2], ['y', 0.0, 0]]
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    features = TfidfVectorizer(token_pattern=TOKEN.pattern).fit_transform(replies["text"])
    codes, names = pd.factorize(replies[cluster])
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    rows = []
    for name, mine in replies.reset_index(drop=True).groupby(by, sort=True):
        own = np.asarray((features[mine.index] @ features[mine.index].T).todense())
        where = codes[mine.index]
        across = where[:, None] != where[None, :]
        rest = np.setdiff1d(np.arange(len(replies)), mine.index)
        n_clusters = len(np.unique(where))
        row = {by: name, "sameness": np.nan, "ci_low": np.nan, "ci_high": np.nan, "ci_level": ci_level, "to_others": np.nan}
        if across.any():
            drawn = weights[:, where]
            pairs = np.einsum("ri,ij,rj->r", drawn, across.astype(float), drawn, optimize=True)
            found = np.einsum("ri,ij,rj->r", drawn, own * across, drawn, optimize=True) / np.where(pairs > 0, pairs, np.nan)
            low, high = interval_of(float(found[0]), found[1:], n_clusters, ci_level, least=0.0, most=1.0)
            row |= {"sameness": float(found[0]), "ci_low": low, "ci_high": high}
        if len(rest):
            other = np.asarray((features[mine.index] @ features[rest].T).todense())
            apart = where[:, None] != codes[rest][None, :]
            row["to_others"] = float(other[apart].mean()) if apart.any() else np.nan
        repeated = int(mine["text"].duplicated(keep=False).sum())
        rows.append(row | {"n": len(mine), "n_clusters": n_clusters, "n_repeated": repeated})
    return pd.DataFrame(rows).sort_values("sameness", ascending=False, ignore_index=True)
