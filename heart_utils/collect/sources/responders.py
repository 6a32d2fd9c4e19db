"""Who wrote what in each data set: kind, family, model and size, as the sets' own papers name them."""

from __future__ import annotations

import pandas as pd

from heart_utils.collect.sources.catalogue import SOURCES
from heart_utils.collect.sources.errors import DataError
from heart_utils.tables import check_table

__all__ = ["ESCONV_SUPPORTER", "FAMILIES", "load_responders"]

ESCONV_SUPPORTER = "esconv-supporter"

FAMILIES = {"claude-3.7-sonnet": "anthropic", "gpt-4o": "openai", "gpt-4": "openai", "o4-mini": "openai"}
FAMILIES |= {"gemini-2.5-flash": "google", "gemini-2.5-pro": "google"}
"""Name of a model that judges -> its family, as in the column ``family`` of responders."""


def load_responders(name: str) -> pd.DataFrame:
    """Tell who wrote the replies of a data set.

    Parameters
    ----------
    name : str
        ``"sample"``, or a set of ``data/sources.yaml`` with responders.

    Returns
    -------
    pandas.DataFrame
        A table of responders. ``family`` is a model's maker, so that a judge's verdicts on its own
        family can be found; ``size`` is in billions of parameters, where the maker states it.

    Raises
    ------
    DataError
        If the set has no responders of its own.

    Examples
    --------
    >>> load_responders("mentalalign")["responder_kind"].value_counts().to_dict()
    {'model': 9, 'source': 1}
    """
    if name == "sample":
        from heart_utils.collect.sources.files import read_sample

        return read_sample("responders")
    source = SOURCES.get(name)
    if source is None or not source.responders:
        known = ", ".join(name for name, source in SOURCES.items() if source.responders)
        raise DataError(f"No responders are known for {name!r}. They are for {known} and sample.")
    rows = pd.DataFrame(source.responders, columns=["responder", "responder_kind", "family", "model", "size"])
    return check_table("responders", rows.assign(released=None, price=None, simulated=False))
