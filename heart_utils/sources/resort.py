"""Replies to 29 Reddit posts by trained people, commenters and three models in eight set-ups; four psychologists rated."""

from __future__ import annotations

import json
import os

import pandas as pd

from heart_utils.sources.errors import DataError
from heart_utils.sources.fetch import check_size, find_data
from heart_utils.sources.tallies import tally

__all__: list[str] = []

FILE = "human_eval_annotations_cleaned.json"
PEOPLE = {"oracle_response": "trained", "top_reddit_comment": "commenter"}
MODELS = {
    "gpt-4-turbo": "gpt-4-turbo",
    "Llama-2-13b-chat-hf": "llama-2-13b-chat",
    "Mistral-7B-Instruct-v0.1": "mistral-7b-instruct",
}
PLAIN = ("vanilla", "self-refine")
SCALES = {"empathy": (1, 5), "alignment_with_standards": (1, 10), "harmfulness": (0, 1)}
DIMENSIONS = {"empathy": "empathy", "alignment_with_standards": "alignment", "harmfulness": "harmlessness"}
SHOWN = ["Reddit ID", "appraisal_dimension_id"]
KEYS = ["dimension", "responder_a", "responder_b", "cluster"]


def tally_resort(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Count whether one rater scored a person's reply (a) or a model's (b) to the same post higher."""
    records = json.loads(find_data("resort", mirror=mirror)[FILE].read_text(encoding="utf-8"))
    rows = pd.json_normalize(records)
    used = [f"human_eval_annotation_{number}.{what}" for number in (1, 2) for what in ("annotator", *SCALES)]
    check_size("resort", FILE, rows, [*SHOWN, "model", "pipeline", "method", *used])
    unknown = sorted(set(rows["model"]) - {*PEOPLE, *MODELS})
    if unknown:
        raise DataError(f"{FILE}: the author {unknown[0]!r} is not known; expected {', '.join([*PEOPLE, *MODELS])}.")
    scores = pd.concat([_scores(rows, number) for number in (1, 2)], ignore_index=True)
    pairs = _pairs(scores)
    by_post = tally(pairs, [*KEYS, "rater", "stratum"], study="resort", by="post")
    by_setup = tally(pairs.assign(cluster=pairs["setup"]), KEYS, study="resort", by="setup")
    return pd.concat([by_post, by_setup], ignore_index=True)


def _scores(rows: pd.DataFrame, number: int) -> pd.DataFrame:
    """Give one row a reply and dimension of the first or the second rating."""
    given = rows[[f"human_eval_annotation_{number}.{what}" for what in ("annotator", *SCALES)]]
    given.columns = ["annotator", *SCALES]
    for what, (low, high) in SCALES.items():
        outside = ~given[what].between(low, high)
        if outside.any():
            row = int(outside.to_numpy().argmax())
            raise DataError(f"{FILE}: row {row} has {what} {given[what].iloc[row]}; expected {low} to {high}.")
    # Higher is better on every dimension.
    scores = given.assign(harmfulness=1 - given["harmfulness"]).rename(columns=DIMENSIONS)
    setup = rows["pipeline"].where(rows["pipeline"].isin(PLAIN), rows["pipeline"] + " " + rows["method"])
    posts = rows["Reddit ID"].unique()
    about = pd.DataFrame(
        {
            **{column: rows[column] for column in SHOWN},
            "cluster": rows["Reddit ID"].map({post: f"post_{place:02d}" for place, post in enumerate(posts, 1)}),
            "author": rows["model"],
            "setup": setup,
            "stratum": rows["pipeline"].isin(PLAIN).map({True: "plain", False: "guided"}),
        }
    )
    return about.join(scores).melt([*about.columns, "annotator"], list(DIMENSIONS.values()), "dimension", "score")


def _pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Set each person's reply against each model's that one rater scored on the same post."""
    names = {name: f"psychologist_{place}" for place, name in enumerate(sorted(scores["annotator"].unique()), 1)}
    scores = scores.assign(rater=scores["annotator"].map(names))
    same = [*SHOWN, "cluster", "rater", "dimension"]
    people = scores[scores["author"].isin(PEOPLE)].assign(responder_a=scores["author"].map(PEOPLE))
    models = scores[scores["author"].isin(MODELS)].assign(responder_b=scores["author"].map(MODELS))
    return people[[*same, "responder_a", "score"]].merge(
        models[[*same, "responder_b", "setup", "stratum", "score"]], on=same, suffixes=("_a", "_b")
    )
