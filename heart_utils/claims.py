"""The claims ledger: published figures compared with arithmetic and with released data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.settings import JsonObject, read_yaml

__all__ = ["FINDINGS", "ClaimsError", "check_claims"]

FINDINGS: dict[str, str] = read_yaml(
    Path(__file__).with_name("evidence.yaml"), JsonObject, ValueError
)["findings"]
"""What may be said of a figure -> what it means."""

HELPERS = {"abs": abs, "len": len, "log10": np.log10, "norm": stats.norm}


class ClaimsError(ValueError):
    """A check of the ledger cannot be computed."""


def check_claims(claims: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Compare each claim's value with what its check computes.

    The checks are run as code, so only load a ledger that you trust.

    Parameters
    ----------
    claims
        One row a figure, all text: ``claim_id``, ``value``, ``finding`` (of :data:`FINDINGS`);
        ``check``, an expression of `tables` and other rows' values (``claims.H016``), or empty;
        ``tolerance``, by default half of the last printed digit; ``otherwise``, the finding if it
        fails, by default ``"arithmetic fails"``.
    tables
        What the checks name.

    Returns
    -------
    pandas.DataFrame
        Claims with ``ours`` and ``holds`` (within the tolerance), both missing without a check, and
        ``finding``.

    Raises
    ------
    ClaimsError
        If a check cannot be computed.

    Examples
    --------
    >>> names = ["claim_id", "value", "check", "finding", "tolerance", "otherwise"]
    >>> claims = pd.DataFrame([["x", "18.4", "100 - 82.6", "adds up", "", ""]], columns=names)
    >>> check_claims(claims, {})["finding"].tolist()
    ['arithmetic fails']
    """
    claims = claims.fillna("").reset_index(drop=True)
    printed = pd.to_numeric(claims["value"], errors="coerce")
    values = SimpleNamespace(**dict(zip(claims["claim_id"], printed, strict=True)))
    names = {**tables, **HELPERS, "claims": values, "__builtins__": {}}
    checked = claims["check"] != ""
    ours = claims["check"].map(lambda check: _compute(check, names)).astype(float)
    digits = claims["value"].str.partition(".")[2].str.len()
    reach = pd.to_numeric(claims["tolerance"]).fillna(0.5 * 10.0**-digits)
    holds = (printed - ours).abs() <= reach + 1e-9
    failed = claims["otherwise"].replace("", "arithmetic fails")
    return claims.assign(
        ours=ours,
        holds=holds.astype("boolean").where(checked),
        finding=claims["finding"].where(holds | ~checked, failed),
    )


def _compute(check: str, names: dict[str, Any]) -> float:
    """Compute what a check says, or ``nan`` where there is none."""
    if not check:
        return np.nan
    try:
        value = float(eval(check, dict(names)))  # noqa: S307, the ledger is a file of the project
    except Exception as error:
        raise ClaimsError(f"The check {check!r} cannot be computed: {error!r}.") from error
    if np.isnan(value):
        raise ClaimsError(f"The check {check!r} gives no number; a claim that it names has none.")
    return value
