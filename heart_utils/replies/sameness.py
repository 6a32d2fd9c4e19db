"""How alike one author's replies are, and whether replies repeat what really came next."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import draw_weights, interval_of, ratio
from heart_utils.tables import need_columns

__all__ = ["OverlapError", "measure_overlap", "measure_sameness"]

COLUMNS = ["reply_id", "history_id", "responder", "overlap", "overlap_others", "longest_run"]
TOKEN = r"\w+(?:'\w+)?"
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class OverlapError(ValueError):
    """Replies and turns cannot be compared as given."""


def measure_overlap(replies: pd.DataFrame, truths: pd.DataFrame) -> pd.DataFrame:
    """Compare each reply with the turn that really came next, and with turns that did not.

    Some overlap comes from the topic, which turns of other dialogues understate; long runs are the
    clearer sign.

    Parameters
    ----------
    replies
        ``reply_id``, ``history_id``, ``responder``, ``text``; ``attrs["left_out"]`` of the result
        counts rows left out.
    truths
        ``history_id`` and ``text``, one row per history; a turn without text is none.

    Returns
    -------
    pandas.DataFrame
        One row per reply with text and a true turn: ``overlap``, the share of its runs of three
        words that the turn has (none below three words); ``overlap_others``, a mean with turns of
        other histories; ``longest_run`` of shared words.

    Raises
    ------
    OverlapError
        If a column is missing, or a history has two true turns.

    Examples
    --------
    >>> truths = pd.DataFrame({"history_id": ["h1"], "text": ["That must be very hard for you."]})
    >>> replies = truths.assign(reply_id="r", responder="m", text="It must be very hard.")
    >>> measure_overlap(replies, truths)["longest_run"].tolist()
    [4]
    """
    need_columns(replies, ["reply_id", "history_id", "responder", "text"], OverlapError)
    need_columns(truths, ["history_id", "text"], OverlapError)
    if (twice := truths["history_id"].duplicated()).any():
        error_message = (
            f"{truths.loc[twice, 'history_id'].iloc[0]} has more than one true next turn"
        )
        raise OverlapError(f"truths: {error_message}; expected one row per history.")
    turns = truths.dropna(subset="text").set_index("history_id")["text"].map(_words)
    runs, rows = turns.map(_runs), []
    compared = replies[replies["text"].notna() & replies["history_id"].isin(turns.index)]
    for row in compared.itertuples():
        history, words = str(row.history_id), _words(str(row.text))
        mine = _runs(words)
        shares = runs.map(lambda turn, mine=mine: len(mine & turn) / len(mine) if mine else np.nan)
        longest = (
            SequenceMatcher(None, words, turns[history], autojunk=False).find_longest_match().size
        )
        rows.append(
            (
                row.reply_id,
                history,
                row.responder,
                shares[history],
                shares.drop(history).mean(),
                longest,
            )
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    table.attrs["left_out"] = len(replies) - len(compared)
    return table


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    return set(zip(words, words[1:], words[2:], strict=False))


def measure_sameness(
    replies: pd.DataFrame,
    *,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Compare each author's replies with that author's replies to other dialogues.

    Similarity is the cosine of word counts weighted by rarity (TF-IDF over the table). Only pairs
    across dialogues count, since replies to one dialogue share its topic.

    Parameters
    ----------
    replies
        Valid replies with ``text``, ``responder`` and ``dialogue_id``.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`; dialogues are drawn, and a pair
        counts the product of its two dialogues' counts.

    Returns
    -------
    pandas.DataFrame
        One row an author, the most alike first: ``sameness``, ``ci_low``, ``ci_high``,
        ``ci_level``, ``to_others`` (other authors' replies), ``n``, ``n_clusters``, ``n_repeated``
        (given word for word elsewhere); ``nan`` with one dialogue.

    Examples
    --------
    >>> texts = ["I am here for you", "I am here for you", "your dog", "that exam"]
    >>> replies = pd.DataFrame(
    ...     {"responder": list("xxyy"), "dialogue_id": list("dede"), "text": texts}
    ... )
    >>> measure_sameness(replies, rng=np.random.default_rng(1), n_resamples=20)["sameness"].round(
    ...     3
    ... ).tolist()
    [1.0, 0.0]
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    features = TfidfVectorizer(token_pattern=TOKEN).fit_transform(replies["text"])
    alike, (codes, names) = (features @ features.T).toarray(), pd.factorize(replies["dialogue_id"])
    across = codes[:, None] != codes
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    rows = []
    for name, mine in replies.groupby("responder", sort=True):
        at = np.asarray(replies["responder"] == name)
        own, others = np.ix_(at, at), np.ix_(at, ~at)
        drawn, n_clusters = weights[:, codes[at]], len(np.unique(codes[at]))
        pairs, sums = (
            np.einsum("ri,ij,rj->r", drawn, part, drawn, optimize=True)
            # fmt: skip
            for part in (across[own].astype(float), alike[own] * across[own])
        )
        means, elsewhere = ratio(sums, pairs), alike[others][across[others]]
        low, high = interval_of(
            float(means[0]), means[1:], n_clusters, ci_level, least=0.0, most=1.0
        )
        row = {
            "responder": name,
            "sameness": means[0],
            "ci_low": low,
            "ci_high": high,
            "ci_level": ci_level,
        }
        row |= {
            "to_others": float(ratio(elsewhere.sum(), np.array(len(elsewhere)))),
            "n": len(mine),
        }
        rows.append(
            row
            | {
                "n_clusters": n_clusters,
                "n_repeated": int(mine["text"].duplicated(keep=False).sum()),
            }
        )
    return pd.DataFrame(rows).sort_values("sameness", ascending=False, ignore_index=True)
