"""What replies and reasons say: codes by words, shared themes, and sameness."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    draw_weights,
    interval_columns,
    interval_of,
    ratio,
    sums_by,
)
from heart_utils.settings import extra
from heart_utils.tables import need_columns

__all__ = ["CodesError", "code_by_words", "measure_overlap", "measure_sameness", "theme_overlap"]


class CodesError(ValueError):
    """Texts or codes cannot be used."""


def code_by_words(replies: pd.DataFrame, codes: Sequence[Any]) -> pd.DataFrame:
    """Code replies by a lexicon: transparent, and blind to everything said in other words.

    A code holds if one of its phrases occurs, whole and in any case.

    Parameters
    ----------
    replies
        With ``reply_id``, ``text``, ``state`` and ``simulated``.
    codes
        With ``name`` and ``words``, as in a codebook; those without words are left out. A star
        matches any ending; punctuation may separate words.

    Returns
    -------
    pandas.DataFrame
        One row a reply and code: ``reply_id``, ``coder`` (``"words"``), ``code``, ``probability``
        (1, 0 or missing), ``state`` (``abstained`` without words) and ``simulated``.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> replies = pd.DataFrame({"reply_id": [*"rs"], "text": ["I promise it passes.", "Hard."]})
    >>> promise = SimpleNamespace(name="false_promise", words=("i promise",))
    >>> codes = code_by_words(replies.assign(state="valid", simulated=False), [promise])
    >>> codes["probability"].tolist()
    [1.0, 0.0]
    """
    texts = replies.set_index(["reply_id", "state", "simulated"])["text"].astype("str").fillna("")
    nothing = texts.str.strip().eq("") | (texts.index.get_level_values("state") != "valid")
    words = {code.name: _pattern(code.words) for code in codes if code.words}
    matches = {
        name: texts.str.contains(pattern).astype(float).mask(nothing)
        for name, pattern in words.items()
    }
    code_rows = pd.DataFrame(matches, texts.index)
    code_rows = (
        code_rows.melt(var_name="code", value_name="probability", ignore_index=False)
        .reset_index()
        .assign(coder="words")
    )
    code_rows["state"] = code_rows["state"].mask(
        code_rows["probability"].isna() & code_rows["state"].eq("valid"), "abstained"
    )
    return code_rows[["reply_id", "coder", "code", "probability", "state", "simulated"]]


def _pattern(phrases: Sequence[str]) -> re.Pattern[str]:
    def ending(word: str) -> str:
        return re.escape(word.removesuffix("*")) + (r"\w*" if word.endswith("*") else r"(?!\w)")

    patterns = (r"(?<!\w)" + r"\W+".join(map(ending, str(phrase).split())) for phrase in phrases)
    return re.compile("|".join(patterns), re.IGNORECASE)


def theme_overlap(
    reasons: pd.DataFrame,
    codes: pd.DataFrame,
    *,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    """Measure how often reasons of people and models share themes, beyond chance.

    Reasons for the same verdict on a pair are compared.

    Parameters
    ----------
    reasons
        ``reason_id``, ``pair_id``, ``dialogue_id``, ``rater_kind``, ``verdict``, ``dimension`` if
        several.
    codes
        ``reason_id``, ``code``, ``probability`` (named from 0.5); reasons without a valid code are
        left out.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row: ``overlap`` :math:`o`, twice the common themes over all named (Dice); ``permuted``
        :math:`e`, with reasons for pairs of other dialogues; ``excess``, the difference;
        ``corrected``, :math:`(o - e) / (1 - e)`; each with ``_low`` and ``_high``; ``ci_level``,
        ``n_reason_pairs``, ``n_empty`` (reasons), ``n_clusters``, ``provisional``.

    Raises
    ------
    CodesError
        If the parties share no pair.

    Examples
    --------
    >>> reasons = pd.DataFrame({"reason_id": list("hmHM"), "pair_id": list("ppqq"), "verdict": "a"})
    >>> reasons = reasons.assign(rater_kind=["human", "model"] * 2, dialogue_id=reasons["pair_id"])
    >>> codes = reasons[["reason_id"]].assign(code=["warmth", "warmth", "advice", "warmth"])
    >>> theme_overlap(reasons, codes.assign(probability=1.0), n_resamples=0)["overlap"].tolist()
    [0.5]
    """
    need_columns(
        reasons, ["reason_id", "pair_id", "rater_kind", "dialogue_id", "verdict"], CodesError
    )
    need_columns(codes, ["reason_id", "code", "probability"], CodesError)
    valid = codes.dropna(subset="probability")
    themes = valid.pivot_table("probability", "reason_id", "code", aggfunc="max").ge(0.5)
    coded = reasons[reasons["reason_id"].isin(themes.index)]
    some = themes.loc[coded["reason_id"]].any(axis=1).to_numpy()
    rows = coded[some].assign(place=np.arange(some.sum()))
    keys = ["pair_id", "verdict", *(["dimension"] if "dimension" in rows else [])]
    people, models = (
        rows.loc[rows["rater_kind"] == who, [*keys, "place"]] for who in ("human", "model")
    )
    both = people.merge(models, on=keys)
    if both.empty:
        raise CodesError(
            f"{len(people)} reasons by people and {len(models)} by models name a theme; they share"
            " no pair on which they agree, so none can be compared."
        )
    named = themes.loc[rows["reason_id"]].to_numpy(float)
    where, clusters = pd.factorize(rows["dialogue_id"])
    # Only reasons that stand beside one of the other party are shuffled, so that both figures are
    # of the same reasons.
    first, one = np.unique(both["place_x"], return_inverse=True)
    second, other = np.unique(both["place_y"], return_inverse=True)
    n_named = named[first].sum(axis=1)[:, None] + named[second].sum(axis=1)
    dice = 2.0 * named[first] @ named[second].T / n_named
    n = len(clusters)
    same = sums_by(where[first][one], np.column_stack([dice[one, other], np.ones(len(both))]), n)
    dialogue_pair, other_dialogue = (
        (where[first][:, None] * n + where[second]).ravel(),
        1.0 - np.eye(n),
    )
    weighted = [
        other_dialogue * np.bincount(dialogue_pair, of, n**2).reshape(n, n)
        for of in (dice.ravel(), np.ones(dice.size))
    ]
    weights = np.vstack([np.ones((1, n)), draw_weights(n, n_resamples, rng)])
    overlap = ratio(*(weights @ same).T)
    permuted = ratio(*(((weights @ part) * weights).sum(axis=1) for part in weighted))
    measures = np.stack(
        [overlap, permuted, overlap - permuted, ratio(overlap - permuted, 1.0 - permuted)], axis=-1
    )[:, None]
    n_clusters = int((same[:, 1] > 0).sum())
    ranges = dict.fromkeys(("overlap", "permuted", "excess", "corrected"), (-np.inf, 1.0))
    columns = interval_columns(ranges, measures[0], measures[1:], n_clusters, ci_level)
    counts = {"n_reason_pairs": len(both), "n_empty": int((~some).sum()), "n_clusters": n_clusters}
    level = ci_level if n_resamples else np.nan
    return pd.DataFrame(
        {**columns, "ci_level": level, **counts, "provisional": n_clusters < ENOUGH_CLUSTERS}
    )


COLUMNS = ["reply_id", "history_id", "responder", "overlap", "overlap_others", "longest_run"]
TOKEN = r"\w+(?:'\w+)?"
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def measure_overlap(replies: pd.DataFrame, truths: pd.DataFrame) -> pd.DataFrame:
    """Compare each reply with the turn that really came next, and with turns that did not.

    Parameters
    ----------
    replies
        ``reply_id``, ``history_id``, ``responder``, ``text``. The result's ``attrs["left_out"]``
        counts rows left out.
    truths
        ``history_id`` and ``text``, one row a history.

    Returns
    -------
    pandas.DataFrame
        One row a reply with text and a true turn: ``overlap``, the share of its runs of three words
        that the turn has; ``overlap_others``, a mean with turns of other histories; ``longest_run``
        of shared words.

    Raises
    ------
    CodesError
        If a history has two true turns.

    Examples
    --------
    >>> truths = pd.DataFrame({"history_id": ["h1"], "text": ["That must be very hard for you."]})
    >>> replies = truths.assign(reply_id="r", responder="m", text="It must be very hard.")
    >>> measure_overlap(replies, truths)["longest_run"].tolist()
    [4]
    """
    need_columns(replies, ["reply_id", "history_id", "responder", "text"], CodesError)
    need_columns(truths, ["history_id", "text"], CodesError)
    if (twice := truths["history_id"].duplicated()).any():
        raise CodesError(
            f"truths: {truths.loc[twice, 'history_id'].iloc[0]} has more than one true next turn;"
            " expected one row per history."
        )
    turns = truths.dropna(subset="text").set_index("history_id")["text"].map(_words)
    runs, rows = turns.map(_runs), []
    compared = replies[replies["text"].notna() & replies["history_id"].isin(turns.index)]
    for row in compared.itertuples():
        history, words = str(row.history_id), _words(str(row.text))
        mine = _runs(words)
        shares = runs.map(lambda turn, mine=mine: len(mine & turn) / len(mine) if mine else np.nan)
        longest = SequenceMatcher(None, words, turns[history], autojunk=False).find_longest_match()
        overlaps = shares[history], shares.drop(history).mean(), longest.size
        rows.append((row.reply_id, history, row.responder, *overlaps))
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

    Similarity is the cosine of TF-IDF over the table.

    Parameters
    ----------
    replies
        Valid ones with ``text``, ``responder`` and ``dialogue_id``.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row an author, the most alike first: ``sameness``, ``ci_low``, ``ci_high``,
        ``ci_level``, ``to_others`` (other authors' replies), ``n``, ``n_clusters``, ``n_repeated``
        (word for word); ``nan`` with one dialogue.

    Examples
    --------
    >>> replies = pd.DataFrame({"responder": list("xxyy"), "dialogue_id": list("dede")})
    >>> replies["text"] = ["with you", "with you", "your dog", "that exam"]
    >>> same = measure_sameness(replies, rng=np.random.default_rng(1), n_resamples=20)
    >>> same["sameness"].round(3).tolist()
    [1.0, 0.0]
    """
    with extra("stats"):
        from sklearn.feature_extraction.text import TfidfVectorizer

    features = TfidfVectorizer(token_pattern=TOKEN).fit_transform(replies["text"])
    alike = (features @ features.T).toarray()
    codes, names = pd.factorize(replies["dialogue_id"])
    across = codes[:, None] != codes
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    rows = []
    for name, mine in replies.groupby("responder", sort=True):
        at = np.asarray(replies["responder"] == name)
        own, others = np.ix_(at, at), np.ix_(at, ~at)
        drawn, n_clusters = weights[:, codes[at]], len(np.unique(codes[at]))
        pairs, sums = (
            np.einsum("ri,ij,rj->r", drawn, part, drawn, optimize=True)
            for part in (across[own].astype(float), alike[own] * across[own])
        )
        means, elsewhere = ratio(sums, pairs), alike[others][across[others]]
        value = float(means[0])
        low, high = interval_of(value, means[1:], n_clusters, ci_level, least=0.0, most=1.0)
        row = {"responder": name, "sameness": value, "ci_low": low, "ci_high": high}
        row |= {"to_others": float(ratio(elsewhere.sum(), np.array(len(elsewhere))))}
        row |= {"n": len(mine), "n_clusters": n_clusters}
        rows.append(row | {"n_repeated": int(mine["text"].duplicated(keep=False).sum())})
    table = pd.DataFrame(rows).sort_values("sameness", ascending=False, ignore_index=True)
    table.insert(4, "ci_level", ci_level)
    return table
