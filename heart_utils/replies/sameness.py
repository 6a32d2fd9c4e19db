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


def measure_overlap(replies: pd.DataFrame, truths: pd.DataFrame) -> pd.DataFrame:
    """Compare each reply with the turn that really came next, and with turns that did not.

    A reply's overlap with a turn is the share of its runs of three words that stand in the turn too. Some overlap comes
    from the topic alone, and the topic is the history's: turns of other dialogues understate what a model that never saw
    the data would share. Long runs are the clearer sign.

    Parameters
    ----------
    replies : pandas.DataFrame
        With columns ``reply_id``, ``history_id``, ``responder`` and ``text``. Rows without text
        or without a true next turn are left out, and counted in ``attrs["left_out"]`` of what comes back.
    truths : pandas.DataFrame
        With columns ``history_id`` and ``text``, one row per history; a turn without text is none.

    Returns
    -------
    pandas.DataFrame
        One row per reply compared: ``overlap`` with the true turn; ``overlap_others`` (mean) and ``overlap_others_max`` with
        those of the ``n_others`` other histories; and ``longest_run``, the most words in a row that reply and true turn
        share. Overlaps of replies of fewer than three words are missing.

    Raises
    ------
    OverlapError
        If a column is missing, or a history has two true turns.

    Examples
    --------
    >>> truths = pd.DataFrame({"history_id": ["h1", "h2"], "text": ["That must be very hard for you.", "Have you slept?"]})
    >>> replies = pd.DataFrame({"reply_id": ["r"], "history_id": ["h1"], "responder": ["m"], "text": ["It must be very hard."]})
    >>> measure_overlap(replies, truths)[["overlap", "overlap_others", "longest_run"]].round(3).to_dict("records")
    [{'overlap': 0.667, 'overlap_others': 0.0, 'longest_run': 4}]
    """
    need_columns(replies, ["reply_id", "history_id", "responder", "text"], OverlapError)
    need_columns(truths, ["history_id", "text"], OverlapError)
    twice = truths.loc[truths["history_id"].duplicated(), "history_id"]
    if len(twice):
        raise OverlapError(f"truths: {twice.iloc[0]} has more than one true next turn; expected one row per history.")
    truths = truths[truths["text"].notna()]
    truth = dict(zip(truths["history_id"], map(_words, truths["text"]), strict=True))
    runs = {history: _runs(words) for history, words in truth.items()}
    rows = []
    compared = replies[replies["text"].notna() & replies["history_id"].isin(truth)]
    for row in compared.itertuples():
        history, words = str(row.history_id), _words(str(row.text))
        mine = _runs(words)
        shares = {other: len(mine & turn) / len(mine) if mine else np.nan for other, turn in runs.items()}
        own, elsewhere = shares.pop(history), np.array(list(shares.values()))
        mean, most = (elsewhere.mean(), elsewhere.max()) if len(elsewhere) else (np.nan, np.nan)
        longest = SequenceMatcher(None, words, truth[history], autojunk=False).find_longest_match().size
        rows.append((row.reply_id, history, row.responder, own, mean, most, len(elsewhere), longest))
    table = pd.DataFrame(rows, columns=COLUMNS)
    table.attrs["left_out"] = len(replies) - len(compared)
    return table


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    return set(zip(words, words[1:], words[2:], strict=False))


def measure_sameness(
    replies: pd.DataFrame, *, n_resamples: int = 1000, ci_level: float = 0.95, rng: np.random.Generator
) -> pd.DataFrame:
    """Compare each author's replies with that author's replies to other dialogues.

    Similarity is the cosine of word counts weighted by rarity (TF-IDF over all replies of the table).
    Two replies to one dialogue share its topic, so only pairs across dialogues count. Beside it stands
    the similarity to other authors' replies across dialogues: what anybody's replies share.

    Parameters
    ----------
    replies : pandas.DataFrame
        Valid replies with ``text``, `by` and `cluster`.
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
    codes, names = pd.factorize(replies["dialogue_id"])
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    rows = []
    for name, mine in replies.reset_index(drop=True).groupby("responder", sort=True):
        own = np.asarray((features[mine.index] @ features[mine.index].T).todense())
        where = codes[mine.index]
        across = where[:, None] != where[None, :]
        rest = np.setdiff1d(np.arange(len(replies)), mine.index)
        n_clusters = len(np.unique(where))
        row = {"responder": name, **dict.fromkeys(("sameness", "ci_low", "ci_high"), np.nan)}
        row |= {"ci_level": ci_level, "to_others": np.nan}
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
