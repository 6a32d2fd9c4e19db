"""What texts speak of, by the words of a codebook, and how one coder compares with another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.tables import need_columns

__all__ = ["CodesError", "code_reasons", "compare_coders", "spread_codes"]


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
        ``reason_id``, ``code`` and ``probability`` (1 where it is in the list, else 0), as :func:`compare_coders` takes them.

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


def compare_coders(codes: pd.DataFrame, other: pd.DataFrame, *, of: str = "reason_id") -> pd.DataFrame:
    """Compare two coders code by code, on what both coded.

    Parameters
    ----------
    codes, other : pandas.DataFrame
        Columns `of`, ``code`` and ``probability``; 0.5 or more is coded as there. Rows without a probability do not count.
    of : str
        What was coded: ``"reason_id"`` or ``"reply_id"``.

    Returns
    -------
    pandas.DataFrame
        One row a code, and one for ``"all"``: ``n``, ``share`` and ``other_share`` (how often each coded it), ``precision``
        and ``recall`` of `codes` with `other` as the measure, ``kappa`` (``nan`` where neither varies).

    Raises
    ------
    CodesError
        If a column is missing, something is coded twice, or the two share nothing.

    Examples
    --------
    >>> one = pd.DataFrame({"reason_id": list("rstu"), "code": "warmth", "probability": [1, 1, 0, 0]})
    >>> compare_coders(one, one.assign(probability=[1, 0, 0, 0]))[["code", "precision", "recall", "kappa"]].values.tolist()
    [['warmth', 0.5, 1.0, 0.5], ['all', 0.5, 1.0, 0.5]]
    """
    for table in (codes, other):
        need_columns(table, [of, "code", "probability"], CodesError)
        if table.duplicated([of, "code"]).any():
            row = table.loc[table.duplicated([of, "code"]), [of, "code"]].iloc[0]
            raise CodesError(f"{row[of]} is coded for {row['code']} more than once; compare one coder with one other.")
    joined = codes[[of, "code", "probability"]].merge(
        other[[of, "code", "probability"]], on=[of, "code"], suffixes=("", "_other")
    )
    joined = joined.dropna()
    if joined.empty:
        raise CodesError("The two coders share nothing that both coded.")
    joined = joined.assign(here=joined["probability"] >= 0.5, there=joined["probability_other"] >= 0.5)
    groups = [*joined.groupby("code", sort=False), ("all", joined)]
    return pd.DataFrame(
        [{"code": name, **_compare(rows["here"].to_numpy(), rows["there"].to_numpy())} for name, rows in groups]
    )


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


def _compare(here: NDArray[np.bool_], there: NDArray[np.bool_]) -> dict[str, float]:
    from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

    vary = len({*here, *there}) > 1
    return {
        "n": len(here),
        "share": float(here.mean()),
        "other_share": float(there.mean()),
        "precision": float(precision_score(there, here, zero_division=np.nan)),
        "recall": float(recall_score(there, here, zero_division=np.nan)),
        "kappa": float(cohen_kappa_score(here, there)) if vary else float("nan"),
    }
