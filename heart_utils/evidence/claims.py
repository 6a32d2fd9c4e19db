"""The claims ledger: published figures compared with arithmetic and with released data."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.evidence import SAID
from heart_utils.tables import need_columns

__all__ = ["FINDINGS", "ClaimsError", "check_claims"]

FINDINGS: dict[str, str] = SAID["findings"]
"""What may be said of a figure -> what it means."""

NEEDED = (
    "claim_id",
    "about",
    "claim",
    "value",
    "source",
    "source_kind",
    "check",
    "tolerance",
    "finding",
    "otherwise",
    "note",
)
HELPERS = {"abs": abs, "len": len, "log10": np.log10, "norm": stats.norm}


class ClaimsError(ValueError):
    """The ledger cannot be read, or one of its checks cannot be computed."""


def check_claims(claims: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Compare each claim's value with what its check computes.

    The checks are run as code, so only load a ledger that you trust.

    Parameters
    ----------
    claims : pandas.DataFrame
        One row a figure, all text: ``claim_id``, ``about``, ``claim``, ``value``, ``source``,
        ``source_kind``, ``note``; ``check``, an expression of `tables` and other rows' values
        (``claims.H016``), or empty; ``tolerance``, by default half of the last printed digit;
        ``finding``, of :data:`FINDINGS`; ``otherwise``, if it fails (``"arithmetic fails"``).
    tables : mapping of str to pandas.DataFrame
        What the checks name.

    Returns
    -------
    pandas.DataFrame
        Claims with ``ours`` and ``holds`` (within the tolerance), both missing without a check, and
        ``finding``.

    Raises
    ------
    ClaimsError
        If a column is absent, a claim stands twice, a word is unknown, checks go in a circle or
        cannot be computed.

    Examples
    --------
    >>> names = "about claim source source_kind tolerance otherwise note claim_id value".split()
    >>> names += ["check", "finding"]
    >>> claims = pd.DataFrame([[*[""] * 7, "x", "18.4", "100 - 82.6", "adds up"]], columns=names)
    >>> check_claims(claims, {})["finding"].tolist()
    ['arithmetic fails']
    """
    need_columns(claims, NEEDED, ClaimsError)
    claims = claims.fillna("").reset_index(drop=True)
    if (twice := claims["claim_id"].duplicated()).any():
        raise ClaimsError(f"Claim {claims.loc[twice, 'claim_id'].iloc[0]} is listed twice.")
    if strange := sorted(
        (set(claims["finding"]) | set(claims["otherwise"]) - {""}) - set(FINDINGS)
    ):
        raise ClaimsError(
            f"Unknown finding {', '.join(map(repr, strange))}; the words are {', '.join(FINDINGS)}."
        )
    _refuse_circles(claims)
    values = dict(
        zip(claims["claim_id"], pd.to_numeric(claims["value"], errors="coerce"), strict=True)
    )
    names = {**tables, **HELPERS, "claims": SimpleNamespace(**values), "__builtins__": {}}
    checked = claims["check"] != ""
    ours = pd.Series(
        [_compute(row, names) if row.check else np.nan for row in claims.itertuples()], dtype=float
    )
    digits = claims["value"].str.partition(".")[2].str.len()
    reach = pd.to_numeric(claims["tolerance"]).fillna(0.5 * 10.0**-digits)
    holds = (pd.Series(list(values.values()), dtype=float) - ours).abs() <= reach + 1e-9
    failed = claims["otherwise"].replace("", "arithmetic fails")
    return claims.assign(
        ours=ours,
        holds=holds.astype("boolean").where(checked),
        finding=claims["finding"].where(holds | ~checked, failed),
    )


def _refuse_circles(claims: pd.DataFrame) -> None:
    """Refuse claims that are checked by themselves, alone or in a circle."""
    named = claims.set_index("claim_id")["check"].str.findall(r"\bclaims\.(\w+)")
    try:
        TopologicalSorter(named.to_dict()).prepare()
    except CycleError as error:
        circle = " by ".join(error.args[1])
        raise ClaimsError(f"{circle}: a claim may not be checked by itself.") from error


def _compute(row: object, names: dict[str, object]) -> float:
    name, check = (str(getattr(row, column)) for column in ("claim_id", "check"))
    try:
        value = float(eval(check, dict(names)))  # noqa: S307, the ledger is a file of the project
    except Exception as error:
        raise ClaimsError(
            f"The check of claim {name}, {check!r}, cannot be computed: {error!r}."
        ) from error
    if np.isnan(value):
        raise ClaimsError(
            f"The check of claim {name}, {check!r}, gives no number; a claim that it names has"
            " none."
        )
    return value
