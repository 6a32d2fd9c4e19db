"""Who wrote what in each data set: kind, family, model and size, as the sets' own papers name them."""

from __future__ import annotations

import pandas as pd

from heart_utils.collect.sources.errors import DataError
from heart_utils.tables import check_table

__all__ = ["ESCONV_SUPPORTER", "FAMILIES", "load_responders"]

ESCONV_SUPPORTER = "esconv-supporter"

FAMILIES = {"claude-3.7-sonnet": "anthropic", "gpt-4o": "openai", "gpt-4": "openai", "o4-mini": "openai"}
FAMILIES |= {"gemini-2.5-flash": "google", "gemini-2.5-pro": "google"}
"""Name of a model that judges -> its family, as in the column ``family`` of responders."""

_SUPPORTER = (
    ESCONV_SUPPORTER,
    "human",
    None,
    "ESConv crowd supporter, unconstrained, from dialogues kept as successful",
    None,
)

# responder, kind, family, what wrote it, size in billions of parameters
_KNOWN: dict[str, list[tuple[str, str, str | None, str | None, float | None]]] = {
    "mtbench": [
        ("alpaca-13b", "model", "meta", "Alpaca 13B, tuned from LLaMA", 13),
        ("claude-v1", "model", "anthropic", "Claude v1", None),
        ("gpt-3.5-turbo", "model", "openai", "GPT-3.5 Turbo", None),
        ("gpt-4", "model", "openai", "GPT-4", None),
        ("llama-13b", "model", "meta", "LLaMA 13B", 13),
        ("vicuna-13b-v1.2", "model", "meta", "Vicuna 13B v1.2, tuned from LLaMA", 13),
    ],
    "mentalalign": [
        ("original", "source", None, "came with the question's data set; author not known", None),
        ("claude-3.5-haiku", "model", "anthropic", "Claude 3.5 Haiku", None),
        ("deepseek-llama-8b", "model", "deepseek", "DeepSeek distillation into LLaMA 8B", 8),
        ("deepseek-qwen-7b", "model", "deepseek", "DeepSeek distillation into Qwen 7B", 7),
        ("gemini-2.0-flash", "model", "google", "Gemini 2.0 Flash", None),
        ("gpt-4o", "model", "openai", "GPT-4o", None),
        ("gpt-4o-mini", "model", "openai", "GPT-4o mini", None),
        ("llama-3.1-8b", "model", "meta", "LLaMA 3.1 8B Instruct", 8),
        ("qwen-2.5-7b", "model", "alibaba", "Qwen 2.5 7B", 7),
        ("qwen-3-4b", "model", "alibaba", "Qwen 3 4B", 4),
    ],
    "empathic_comm": [
        ("empatheticdialogues-supporter", "human", None, "crowd worker of EmpatheticDialogues", None),
        ("epitome-supporter", "human", None, "peer who answered on Reddit, from EPITOME", None),
        ("perceived_empathy-supporter", "human", None, "person who answered in the Perceived Empathy study", None),
        ("lend_an_ear-supporter", "source", None, "supporter in the Lend an Ear pilot; the files do not say who", None),
    ],
    "esconv": [_SUPPORTER],
    "heart": [_SUPPORTER],
}


def load_responders(name: str) -> pd.DataFrame:
    """Tell who wrote the replies of a data set.

    Parameters
    ----------
    name : str
        ``"mtbench"``, ``"mentalalign"``, ``"empathic_comm"``, ``"esconv"``, ``"heart"`` or
        ``"sample"``.

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
    if name not in _KNOWN:
        raise DataError(f"No responders are known for {name!r}. They are for {', '.join(_KNOWN)} and sample.")
    rows = pd.DataFrame(_KNOWN[name], columns=["responder", "responder_kind", "family", "model", "size"])
    return check_table("responders", rows.assign(released=None, price=None, simulated=False))
