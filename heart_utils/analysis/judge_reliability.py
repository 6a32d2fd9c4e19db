"""How reliable each judge is beside people, dimension by dimension: reply by reply, or between the authors' means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from heart_utils.analysis.intraclass import KINDS, icc_of_table
from heart_utils.analysis.votes import AgreementError, Array, Codes, read_votes, scores_only, unit_values

__all__ = ["judge_reliability", "left_out_changes"]

COLUMNS = ("reply_id", "dimension", "item", "responder", "rater", "score", "state")


def judge_reliability(
    scores: pd.DataFrame,
    *,
    person: str,
    of: str | None = "responder",
    kinds: Sequence[str] = ("C,1",),
    own: Mapping[str, str] | None = None,
    leave_out: Sequence[str] = (),
) -> pd.DataFrame:
    """Correlate each judge's scores with a person's, on each dimension, with all authors and without some of them.

    Each value is that of :func:`~heart_utils.analysis.agreement.icc` on the scores of the two; the table is
    read once for all of them, and no interval is drawn.

    Parameters
    ----------
    scores : pandas.DataFrame
        The scores table, with a column ``dimension``.
    person : str
        The rater whom all others are held against.
    of : str or None
        What is a row: ``"responder"`` takes the means of each author; None takes each reply.
    kinds : sequence of str
        As `kind` of :func:`~heart_utils.analysis.agreement.icc`.
    own : mapping of str to str, optional
        Judge -> the responder that stays out for this judge, such as a member of its family.
    leave_out : sequence of str
        Responders; each is also left out alone.

    Returns
    -------
    pandas.DataFrame
        One row per dimension, judge, kind and responder left out (``""`` is none): ``dimension``, ``judge``,
        ``kind``, ``left_out``, ``value``, and ``n_rows`` that enter. ``nan`` where there is no variance.

    Raises
    ------
    AgreementError
        If the person scored nothing, or shares fewer than two rows with a judge.

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "responder": list("uvw") * 2, "dimension": "warmth",
    ...     "rater": ["ann"] * 3 + ["judge"] * 3, "score": [1, 2, 3, 2, 3, 3]})
    >>> judge_reliability(scores, person="ann", leave_out=["w"])[["judge", "left_out", "value"]].round(2).values.tolist()
    [['judge', '', 0.75], ['judge', 'w', 1.0]]
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise AgreementError(f"kinds must be of {', '.join(KINDS)}; got {', '.join(map(repr, unknown))}.")
    needed = ["dimension", "responder"]
    if missing := [column for column in needed if column not in scores_only(scores)]:
        raise AgreementError(f"scores have no column {', '.join(missing)}. They have {', '.join(map(str, scores.columns))}.")
    found = []
    for dimension, rows in scores[[column for column in COLUMNS if column in scores]].groupby("dimension"):
        table, author, raters = _lay_out(rows, person)
        for judge in (name for name in raters if name != person):
            two = table[:, raters.get_indexer(pd.Index([person, judge]))]
            shared = ~np.isnan(two).any(axis=1) & (author != (own or {}).get(judge))
            for name in ("", *leave_out):
                kept = shared & (author != name)
                row = np.arange(int(kept.sum())) if of is None else pd.factorize(author[kept])[0]
                n_rows = _enough(row, person, judge)
                values = icc_of_table(two[kept], row, kinds, means=of is not None)
                found += [(dimension, judge, kind, name, value, n_rows) for kind, value in zip(kinds, values, strict=True)]
    return pd.DataFrame(found, columns=["dimension", "judge", "kind", "left_out", "value", "n_rows"])


def left_out_changes(found: pd.DataFrame) -> pd.DataFrame:
    """Say how far each reliability moves when one responder is left out.

    Parameters
    ----------
    found : pandas.DataFrame
        From :func:`judge_reliability`, with responders left out.

    Returns
    -------
    pandas.DataFrame
        Its rows with a responder left out, with ``change`` (the value less that with all of them) and ``most`` (the
        largest change, up or down, that leaving this responder out brings); whoever moves most is first.

    Examples
    --------
    >>> found = pd.DataFrame({"left_out": ["", "v", "w"], "value": [0.75, 0.5, 1.0]})
    >>> found = found.assign(dimension="warmth", judge="x", kind="C,1")
    >>> left_out_changes(found)[["left_out", "change"]].values.tolist()
    [['v', -0.25], ['w', 0.25]]
    """
    of = ["dimension", "judge", "kind"]
    whole = found.loc[found["left_out"] == "", [*of, "value"]].rename(columns={"value": "whole"})
    found = found[found["left_out"] != ""].drop_duplicates([*of, "left_out"]).merge(whole, on=of)
    found["change"] = found["value"] - found["whole"]
    found["most"] = found["change"].abs().groupby(found["left_out"]).transform("max")
    found = found.sort_values("most", ascending=False, kind="stable", ignore_index=True)
    return found.drop(columns="whole")


def _lay_out(rows: pd.DataFrame, person: str) -> tuple[Array, np.ndarray, pd.Index]:
    """Lay scores out as replies by raters, with each reply's author."""
    votes = read_votes(rows, cluster=None)
    if person not in votes.raters:
        raise AgreementError(f"{person} has no score that counts. Raters: {', '.join(map(str, votes.raters))}.")
    table = np.full((len(votes.units), len(votes.raters)), np.nan)
    table[votes.unit, votes.rater] = votes.categories.astype(float)[votes.value]
    return table, unit_values(votes, rows, "responder").to_numpy(dtype=object), votes.raters


def _enough(row: Codes, person: str, judge: str) -> int:
    n_rows = int(row.max(initial=-1)) + 1
    if n_rows < 2:
        raise AgreementError(f"{person} and {judge} share {n_rows} rows; an intraclass correlation needs two or more.")
    return n_rows
