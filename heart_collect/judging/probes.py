"""Probes with known answers, and rewritten replies for a conjoint study.

A probe is a reply spoilt in one way and compared with itself.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from heart_collect.judging.design import pair_replies, seeded
from heart_collect.judging.prompts import AUTHORS, PROMPTS
from heart_collect.judging.responders import PROBES as RULES
from heart_utils.runs import find_root
from heart_utils.sources.defaults import read_objects, read_sample
from heart_utils.tables import check_table, empty_table

__all__ = ["CHECKS", "REWRITES", "Check", "profile_features"]


@dataclass(frozen=True)
class Check:
    """One way of spoiling a reply."""

    name: str  #: The responder's name in the tables.
    expected: str  #: What the spoilt reply is, by construction, beside the reply it was made from.
    about: str  #: What was done, for captions.
    text: str  #: How: around the reply in braces, or another in its place.


CHECKS = tuple(Check(**check) for check in PROMPTS["checks"])

PADDING = next(check.text for check in CHECKS if check.name == "padded").removeprefix("{base} ")
WARMTH = "Thank you for telling me this. It makes sense that it weighs on you."
SENTENCE_END = re.compile(r"(?:(?<=[.!?…])|(?<=[.!?…][\"”’')]))\s+")

REWRITES = ("shortened", "padded", "listed", "warmed")
"""What is done to a reply, in this order: its first half of sentences kept, a sentence without
content added, each sentence set as a line of a list, and two warm sentences without content put
before it."""
PROFILES = tuple(
    "+".join(name for place, name in enumerate(REWRITES) if number >> place & 1) or "plain"
    for number in range(2 ** len(REWRITES))
)


@lru_cache(maxsize=1)
def make_probes() -> dict[str, pd.DataFrame]:
    """Build the tables of probes from the sample's standard histories and replies.

    Each probe is compared with the reference reply it was made from.
    """
    histories = read_sample("histories")
    histories = histories[histories["slice"] == "standard"].reset_index(drop=True)
    base = read_sample("replies").set_index("history_id").loc[histories["history_id"]].reset_index()
    # Rewritten by hand: by rule, they would be broken as well as bare.
    lines = read_objects(find_root() / "data" / "sample" / "specifics_removed.jsonl")
    bare = {row["history_id"]: row["text"] for row in lines}
    rows: list[dict[Any, Any]] = []
    for number, (history, reply) in enumerate(
        zip(histories.to_dict("records"), base.to_dict("records"), strict=True)
    ):
        other = base["text"].iloc[(number + 1) % len(base)]
        texts = {"base": reply["text"], "other": other, "bare": bare[history["history_id"]]}
        texts |= {rule: say(history["turns"]) for rule, say in RULES.items()}
        for check in CHECKS:
            named = {
                "reply_id": f"{history['history_id']}--probe-{check.name}",
                "responder": check.name,
            }
            rows.append({**reply, **named, "text": check.text.format_map(texts), "flags": []})
    replies = check_table("replies", pd.concat([base, pd.DataFrame(rows)]))
    rng = np.random.default_rng(0)  # nothing is drawn where all pairs are shown in both orders
    pairs = [
        pair_replies(replies[replies["responder"].isin(["reference", check.name])], rng=rng)
        for check in CHECKS
    ]
    responders = pd.concat(
        [read_sample("responders"), named_probes([check.name for check in CHECKS])],
        ignore_index=True,
    )
    comparisons = pd.concat(pairs, ignore_index=True)
    return {
        "histories": histories,
        "responders": responders,
        "replies": replies,
        "comparisons": comparisons,
    }


def named_probes(names: Sequence[str]) -> pd.DataFrame:
    """Make the table of responders for replies that were changed by rule."""
    return check_table("responders", pd.DataFrame({"responder": names, "responder_kind": "probe"}))


def rewrite_replies(
    replies: pd.DataFrame, n: int, *, labels: Sequence[str] = (), seed: int
) -> pd.DataFrame:
    """Rewrite each reply in `n` ways, an even number of at most 16, drawn by seed and id.

    The id is that of the history.

    Ways come in opposites, such as ``listed`` and ``shortened+padded+warmed``: each of
    :data:`REWRITES` is on in half of them. Labels (``expert``, ``person``, ``ai``) are drawn apart,
    as evenly as `n` allows.
    """
    if replies["history_id"].duplicated().any():
        raise ValueError(
            "rewrites: some history has several given replies; expected one, which is rewritten."
        )
    rows: list[dict[Any, Any]] = []
    for reply in replies[replies["state"] == "valid"].to_dict("records"):
        if len(SENTENCE_END.split(reply["text"].strip())) < 2:
            continue
        generator = seeded(seed, reply["history_id"], "rewrites")
        half = generator.sample(range(len(PROFILES) // 2), n // 2)
        drawn = generator.sample(list(labels), len(labels)) * n
        labels_drawn = generator.sample(drawn[:n], n) if labels else [None] * n
        for number, label in zip(
            [way for one in half for way in (one, len(PROFILES) - 1 - one)],
            labels_drawn,
            strict=True,
        ):
            name, text = PROFILES[number], _rewrite(reply["text"], PROFILES[number].split("+"))
            named = {
                "reply_id": f"{reply['history_id']}--{name}",
                "responder": name,
                "label": label,
            }
            rows.append({**reply, **named, "text": text, "flags": []})
    if left := len(replies) - len(rows) // n:
        warnings.warn(
            f"{left} of {len(replies)} replies have one sentence or are not valid, and are not"
            " rewritten.",
            stacklevel=2,
        )
    return check_table("replies", pd.DataFrame(rows)) if rows else empty_table("replies")


def profile_features(replies: pd.DataFrame) -> pd.DataFrame:
    """List the features of each rewritten reply, and whom it is said to be from.

    In a conjoint study each reply is rewritten in several ways, and which features a version has is
    drawn at random. A feature that then goes with winning moves the judge by itself: better authors
    cannot be the reason. This table is what :func:`heart_utils.judges.position.feature_bias` needs
    for it.

    Parameters
    ----------
    replies : pandas.DataFrame
        As ``rewrite_replies`` returns them: the column ``responder`` names the features of a
        version, joined by ``+``, and ``label`` whom it is said to be from, if anyone.

    Returns
    -------
    pandas.DataFrame
        One row a reply, with the index ``reply_id``; one column of 0 and 1 for each feature, in the
        order in which features are applied: shortened, padded, listed and warmed. Where replies
        were labelled, the columns ``said: ...`` for a person and an expert; an AI is the reference.

    Notes
    -----
    Randomised conjoint: Hainmueller, Hopkins and Yamamoto (2014),
    https://doi.org/10.1093/pan/mpt024. Estimates are average effects over the other features'
    distribution in the design, and hold for replies of this kind and length.

    Examples
    --------
    >>> rewritten = pd.DataFrame({"reply_id": ["r1"], "responder": "listed+warmed"})
    >>> profile_features(rewritten).values.tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """
    table = replies.set_index("reply_id")
    ways = table["responder"].str.split("+")
    features = {name: ways.map(lambda way, name=name: name in way) for name in REWRITES}
    if "label" in table and table["label"].notna().any():
        features |= {
            f"said: {AUTHORS[label]}": table["label"] == label for label in ("person", "expert")
        }
    return pd.DataFrame(features).astype(float)


def _rewrite(text: str, ways: Sequence[str]) -> str:
    sentences = SENTENCE_END.split(text.strip())
    sentences = sentences[: (len(sentences) + 1) // 2] if "shortened" in ways else sentences
    sentences = [*sentences, PADDING] if "padded" in ways else sentences
    mark, gap = ("- ", "\n") if "listed" in ways else ("", " ")
    return gap.join(
        [*([WARMTH] if "warmed" in ways else []), *(f"{mark}{one}" for one in sentences)]
    )
