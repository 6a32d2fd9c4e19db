"""What texts speak of, by the words of a codebook, and how one coder compares with another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.tables import need_columns

__all__ = ["CodesError", "code_reasons", "spread_codes"]


class CodesError(ValueError):
    """Texts, labels or codes cannot be used as they stand."""


def code_reasons(reasons: pd.DataFrame, codebook: Mapping[str, Any], *, text: str = "rationale") -> pd.DataFrame:
    """Code each reason for each theme by the words of a codebook.

    Parameters
    ----------
    reasons : pandas.DataFrame
        Columns ``reason_id`` and the one named by `text`.
    codebook : mapping
        As in ``data/rubrics/reasons.yaml``: ``themes``, each with ``name`` and ``words``. A star stands
        for any ending of a word; words in a row may be parted by punctuation; case does not matter.
    text : str
        Which column holds the reason.

    Returns
    -------
    pandas.DataFrame
        One row a reason and theme: ``reason_id``, ``coder`` (``"lexicon"``), ``code``, ``probability``
        (1 where the reason speaks of it, for or against, else 0) and ``state``. A reason that is absent
        or blank has state ``abstained`` and no probability: silence is not the absence of a theme.

    Raises
    ------
    CodesError
        If a column is missing, a reason appears twice, or the codebook has no words for a theme.

    Examples
    --------
    >>> book = {"themes": [{"name": "warmth", "words": ["warm*"]}, {"name": "advice", "words": ["next step"]}]}
    >>> reasons = pd.DataFrame({"reason_id": ["r"], "rationale": ["Warmer; but no next, step."]})
    >>> code_reasons(reasons, book)["probability"].tolist()
    [1.0, 1.0]
    """
    need_columns(reasons, ["reason_id", text], CodesError)
    twice = reasons["reason_id"].duplicated()
    if twice.any():
        raise CodesError(
            f"reason_id: {reasons.loc[twice, 'reason_id'].iloc[0]!r} appears more than once; each reason needs its own."
        )
    patterns = _patterns(codebook)
    said = reasons[text].astype("str").where(reasons[text].notna(), "")
    blank = said.str.strip().eq("")
    parts = [
        pd.DataFrame(
            {
                "reason_id": reasons["reason_id"],
                "coder": "lexicon",
                "code": name,
                "probability": said.str.contains(pattern).astype(float).where(~blank),
                "state": np.where(blank, "abstained", "valid"),
            }
        )
        for name, pattern in patterns.items()
    ]
    return pd.concat(parts, ignore_index=True)


def spread_codes(reasons: pd.DataFrame, themes: Sequence[str]) -> pd.DataFrame:
    """Lay codes that stand with each reason as a list out as one row a reason and theme.

    Parameters
    ----------
    reasons : pandas.DataFrame
        Columns ``reason_id`` and ``codes``, a list of themes.
    themes : sequence of str
        All themes, named or not.

    Returns
    -------
    pandas.DataFrame
        ``reason_id``, ``code`` and ``probability`` (1 where it is in the list, else 0).

    Raises
    ------
    CodesError
        If a reason holds a code that is no theme.

    Examples
    --------
    >>> spread_codes(pd.DataFrame({"reason_id": ["r"], "codes": [["warmth"]]}), ["warmth", "advice"]).values.tolist()
    [['r', 'warmth', 1.0], ['r', 'advice', 0.0]]
    """
    need_columns(reasons, ["reason_id", "codes"], CodesError)
    if strange := sorted({code for codes in reasons["codes"] for code in codes} - {*themes}):
        raise CodesError(f"codes: {', '.join(strange)} is no theme of the codebook; the themes are {', '.join(themes)}.")
    spread = reasons[["reason_id", "codes"]].merge(pd.Series(list(themes), name="code"), how="cross")
    there = [float(code in codes) for code, codes in zip(spread["code"], spread["codes"], strict=True)]
    return spread.assign(probability=there)[["reason_id", "code", "probability"]]


def _patterns(codebook: Mapping[str, Any]) -> dict[str, re.Pattern[str]]:
    themes = codebook.get("themes")
    if not themes:
        raise CodesError("The codebook has no themes. Expected a list under 'themes', each with a name and words.")
    patterns = {}
    for theme in themes:
        name, words = theme.get("name"), theme.get("words")
        if not name or not words or name in patterns:
            raise CodesError(f"Each theme of the codebook needs a name of its own and a list of words; got {theme!r}.")
        patterns[name] = re.compile("|".join(_pattern(str(word)) for word in words), re.IGNORECASE)
    return patterns


def _pattern(words: str) -> str:
    parts = [re.escape(word.removesuffix("*")) + (r"\w*" if word.endswith("*") else r"(?!\w)") for word in words.split()]
    return r"(?<!\w)" + r"\W+".join(parts)
