"""455 people who wrote what troubled them and got one reply, by a person or an AI, labelled as either (Yin et al. 2024)."""

from __future__ import annotations

import os

import pandas as pd

from heart_utils.sources.errors import DataError
from heart_utils.sources.fetch import check_size, find_data
from heart_utils.tables import check_table

__all__: list[str] = []

OWN, OBSERVED = "perceived_empathy_self_ratings.csv", "sample_perceived_empathy_annotations.csv"
ITEMS = {
    "understood": "understood",
    "validated": "validated",
    "affirmed": "affirmed",
    "seen": "seen",
    "accepted": "accepted",
    "caredfor": "cared_for",
    "feelheard": "felt_heard",
    "connection": "connection",
}
TRUST = ("trust_p", "trust_b")
"""Trust in the person, asked of those told that a person replied; in Bing, of those told that an AI did."""

REPLIES = {"human response": "person", "ai response": "bing-chat"}
LABELS = {"human label": "person", "ai label": "ai"}
LOW, HIGH = 1, 7


def load_recipients(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load what recipients said of the reply they got."""
    files = find_data("recipients", mirror=mirror)
    own, observed = pd.read_csv(files[OWN]), pd.read_csv(files[OBSERVED])
    check_size("recipients", OWN, own, ["id", "responseR", "labelR", *TRUST, *ITEMS])
    check_size("recipients", OBSERVED, observed, ["OriginalDiscloserID"])
    if set(observed["OriginalDiscloserID"]) - set(own["id"]):
        raise DataError(f"{OBSERVED}: it names recipients whom {OWN} lacks.")
    names = [*observed["OriginalDiscloserID"], *own.loc[~own["id"].isin(observed["OriginalDiscloserID"]), "id"]]
    number = own["id"].map({name: f"{place:03d}" for place, name in enumerate(names, 1)})
    wide = own[list(ITEMS)].rename(columns=ITEMS).assign(trust=own[TRUST[0]].fillna(own[TRUST[1]]))
    about = pd.DataFrame(
        {
            "rater": "recipient_" + number,
            "history_id": "perceived_empathy-" + number,
            "responder": _word(own, "responseR", REPLIES),
            "label": _word(own, "labelR", LABELS),
        }
    )
    rows = about.join(wide).melt(list(about), var_name="dimension", value_name="score")
    outside = ~rows["score"].between(LOW, HIGH)
    if outside.any():
        row = rows[outside].iloc[0]
        raise DataError(f"{OWN}: {row['dimension']} of {row['rater']} is {row['score']:g}; expected {LOW} to {HIGH}.")
    rows = rows.sort_values(["rater", "dimension"], ignore_index=True).assign(
        reply_id=lambda table: table["history_id"] + "--" + table["responder"],
        dialogue_id=lambda table: table["history_id"],
        rater_kind="human",
        item=None,
        state="valid",
        protocol="likert",
        group=None,
        flags=pd.Series([[]] * len(rows), dtype=object),
        call_id=None,
        simulated=False,
    )
    return check_table("scores", rows)


def _word(own: pd.DataFrame, column: str, words: dict[str, str]) -> pd.Series:
    strange = ~own[column].isin(words)
    if strange.any():
        row = int(strange.to_numpy().argmax())
        raise DataError(f"{OWN}: row {row} has {column} {own[column].iloc[row]!r}; expected {' or '.join(words)}.")
    return own[column].map(words)
