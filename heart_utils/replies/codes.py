"""Coding replies and reasons by the words of a codebook, and how codes overlap.

It also counts how often reasons or safety failures recur.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    draw_weights,
    interval_columns,
    ratio,
    sums_by,
)
from heart_utils.tables import need_columns

__all__ = ["CodesError", "code_by_words", "theme_overlap"]


class CodesError(ValueError):
    """Texts or codes cannot be used as they stand."""


def code_by_words(replies: pd.DataFrame, codes: Sequence[Any]) -> pd.DataFrame:
    """Code replies by a lexicon: transparent, and blind to everything said in other words.

    A code holds for a reply if one of its phrases occurs in it. Anyone can check why. But a reply
    can promise, blame or validate in words that no list has, and a listed phrase can be negated, so
    compare such codes with people's or a model's before you rest a result on them.

    Parameters
    ----------
    replies
        The table of replies, with ``reply_id``, ``text``, ``state`` and ``simulated``.
    codes
        Sequence of objects with ``name`` and ``words``, as in a codebook; those without words are
        left out. A star matches any ending of a word; words in a row may be separated by
        punctuation; case does not matter.

    Returns
    -------
    pandas.DataFrame
        The table of codes, one row a reply and code: ``reply_id``, ``coder`` (``"words"`` for the
        lexicon), ``code``, ``probability`` (1 or 0, or missing for a reply that failed or has no
        words), ``state`` (``abstained`` for a reply without words) and ``simulated``.

    Notes
    -----
    Phrases are matched whole, as words: ``"you will"`` does not match "you willing". No stemming,
    no spelling correction and no sense of context is applied.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> replies = pd.DataFrame(
    ...     {
    ...         "reply_id": ["r", "s"],
    ...         "text": ["I promise it passes.", "That sounds hard."],
    ...         "state": "valid",
    ...         "simulated": False,
    ...     }
    ... )
    >>> promise = SimpleNamespace(name="false_promise", words=("i promise",))
    >>> codes = code_by_words(replies, [promise])
    >>> codes[["reply_id", "probability"]].values.tolist()
    [['r', 1.0], ['s', 0.0]]
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
    """Build a pattern that finds any of some phrases whole, in any case.

    A star matches any ending, and punctuation may separate words.
    """

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
        Rows of ``reason_id``, ``pair_id``, ``dialogue_id``, ``rater_kind``, ``verdict`` and, of
        several, ``dimension``.
    codes
        ``reason_id``, ``code``, ``probability``; 0.5 or more is named; reasons without a valid code
        are left out.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row: ``overlap`` :math:`o`, twice the common themes over all named (Dice); ``permuted``
        :math:`e`, a mean with the other party's reasons for pairs of other dialogues; ``excess``,
        the difference; ``corrected``, :math:`(o - e) / (1 - e)`; each with ``_low`` and ``_high``;
        ``ci_level``, ``n_reason_pairs``, ``n_empty`` (reasons left out, without a theme),
        ``n_clusters``, ``provisional``.

    Raises
    ------
    CodesError
        If a column is missing, or the parties share no pair.

    Examples
    --------
    >>> kinds = ["human", "model"] * 2
    >>> reasons = pd.DataFrame(
    ...     {
    ...         "reason_id": list("hmHM"),
    ...         "pair_id": list("ppqq"),
    ...         "verdict": "a",
    ...         "rater_kind": kinds,
    ...     }
    ... )
    >>> codes = pd.DataFrame(
    ...     {
    ...         "reason_id": list("hmHM"),
    ...         "code": ["warmth"] * 2 + ["advice", "warmth"],
    ...         "probability": 1.0,
    ...     }
    ... )
    >>> float(
    ...     theme_overlap(reasons.assign(dialogue_id=reasons["pair_id"]), codes, n_resamples=0)[
    ...         "overlap"
    ...     ][0]
    ... )
    0.5
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
        error_message = f"{len(people)} reasons by people and {len(models)} by models name a theme"
        raise CodesError(
            f"{error_message}; they share no pair on which they agree, so none can be compared."
        )
    named, (where, clusters) = (
        themes.loc[rows["reason_id"]].to_numpy(float),
        pd.factorize(rows["dialogue_id"]),
    )
    # Only reasons that stand beside one of the other party are shuffled, so that both figures are
    # of the same reasons.
    (first, one), (second, other) = (
        np.unique(both[side], return_inverse=True) for side in ("place_x", "place_y")
    )
    dice = (
        2.0
        * named[first]
        @ named[second].T
        / (named[first].sum(axis=1)[:, None] + named[second].sum(axis=1))
    )
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
