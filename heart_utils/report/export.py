"""Pairs of a preferred and another reply, for training; none from texts whose licence does not allow it."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from heart_utils.runs import may_publish

__all__ = ["ExportError", "export_preferences"]

COLUMNS = ["prompt", "chosen", "rejected", "margin", "p_chosen", "dimension", "rater", "rater_kind", "history_id", "pair_id"]


class ExportError(ValueError):
    """Preferences may not, or cannot, be exported."""


def export_preferences(
    verdicts: pd.DataFrame,
    comparisons: pd.DataFrame,
    replies: pd.DataFrame,
    histories: pd.DataFrame,
    *,
    licences: Iterable[str] = (),
) -> pd.DataFrame:
    """Turn verdicts into rows of prompt, chosen and rejected reply.

    Only decided verdicts make a row: ties, two orders that contradict each other, and failures
    leave nothing to prefer. They are counted in ``attrs["left_out"]`` of the table.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The table ``verdicts``, with orders combined.
    comparisons, replies, histories : pandas.DataFrame
        The other tables of the run.
    licences : iterable of str
        What the run's manifest records for these tables; replies of people may be under stricter
        terms than the histories they answer.

    Returns
    -------
    pandas.DataFrame
        ``prompt`` (the turns), ``chosen``, ``rejected`` (texts) and what is known of the verdict. Ready for
        ``to_json(lines=True, orient="records")``.

    Raises
    ------
    ExportError
        If a history's licence does not let its text be passed on, or a text is missing.

    Examples
    --------
    >>> histories = pd.DataFrame({"history_id": ["h"], "licence": ["CC-BY-NC-4.0"]})
    >>> export_preferences(histories, histories, histories, histories)
    Traceback (most recent call last):
    heart_utils.report.export.ExportError: 1 of 1 histories may not be passed on: CC-BY-NC-4.0 (1). ...
    """
    _check_licences(verdicts, histories, licences)
    decided = verdicts[(verdicts["state"] == "valid") & verdicts["verdict"].isin(["a", "b"])]
    left_out = verdicts.loc[~verdicts.index.isin(decided.index)]
    sides = comparisons.drop_duplicates("pair_id").set_index("pair_id")[["reply_a", "reply_b"]]
    text = replies.set_index("reply_id")["text"]
    table = decided[[*COLUMNS[5:], "verdict", "margin", "p_a", "simulated"]].copy()
    shown = sides.loc[table["pair_id"]]
    first = (table["verdict"] == "a").to_numpy()
    chosen = shown["reply_a"].where(first, shown["reply_b"])
    rejected = shown["reply_b"].where(first, shown["reply_a"])
    table["chosen"], table["rejected"] = text.reindex(chosen).to_numpy(), text.reindex(rejected).to_numpy()
    missing = table[["chosen", "rejected"]].isna().any(axis=1)
    if missing.any():
        first = table.loc[missing, "pair_id"].iloc[0]
        raise ExportError(f"{int(missing.sum())} of {len(table)} pairs have a reply without text, such as the pair {first!r}.")
    about = histories.set_index("history_id")
    table["prompt"] = about["turns"].reindex(table["history_id"]).to_numpy()
    table["licence"] = about["licence"].reindex(table["history_id"]).to_numpy()
    table["p_chosen"] = table["p_a"].where(table["verdict"] == "a", 1 - table["p_a"])
    table = table[[*COLUMNS, "licence", "simulated"]].reset_index(drop=True)
    table.attrs["left_out"] = left_out["state"].mask(left_out["state"] == "valid", "tie").value_counts().to_dict()
    return table


def _check_licences(verdicts: pd.DataFrame, histories: pd.DataFrame, licences: Iterable[str]) -> None:
    """Refuse texts that may not be passed on; a licence that is not known does not allow it."""
    used = histories[histories["history_id"].isin(verdicts["history_id"])]
    lost = sorted(set(verdicts["history_id"]) - set(used["history_id"]))
    if lost:
        raise ExportError(f"{len(lost)} verdicts' histories are not in the table histories, such as {lost[0]!r}.")
    kept_back = sorted({licence for licence in licences if not may_publish(licence)})
    if kept_back:
        raise ExportError(f"The run's manifest records tables under {'; '.join(kept_back)}: their texts may not be passed on.")
    allowed = used["licence"].map(may_publish)
    if not allowed.all():
        counts = used.loc[~allowed, "licence"].value_counts()
        named = ", ".join(f"{licence} ({count})" for licence, count in counts.items())
        said = f"{int((~allowed).sum())} of {len(used)} histories may not be passed on: {named}"
        raise ExportError(f"{said}. Drop their verdicts first, or export a run on your own histories or the sample.")
