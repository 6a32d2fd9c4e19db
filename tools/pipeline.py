"""Fill the page *From a conversation to a rating* with one row of each table of a run.

``book/pipeline.md`` is a template; which rows it shows is decided here, when the book is laid out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from heart_utils.ratings.verdicts import combine_orders
from heart_utils.runs import Run, may_publish, visible_text

__all__ = ["fill_pipeline", "follow_one_pair"]

TABLES = ("histories", "responders", "replies", "comparisons", "verdicts", "ratings")
TURNS_SHOWN = 3
KNOWN_BEST = ("human", "reference", "source", "model", "probe")
"""Kinds of responders, the most telling first: the pair that is followed has one reply of the
first kind that there is."""


def fill_pipeline(page: Path, run: Run) -> str:
    """Fill the page with rows of a run.

    Parameters
    ----------
    page : pathlib.Path
        The template.
    run : Run
        Whose tables are read.

    Returns
    -------
    str
        MyST; a run without verdicts has a page that says so.
    """
    template = Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True)
    return template.from_string(page.read_text(encoding="utf-8")).render(
        run=run.name, row=follow_one_pair(run)
    )


def follow_one_pair(run: Run) -> dict[str, Any] | None:
    """Choose the first history with a pair judged in both orders, and return its rows.

    They come from each table.

    Parameters
    ----------
    run : Run
        With the tables of histories, responders, replies, comparisons, verdicts and ratings.

    Returns
    -------
    dict or None
        What the page shows by name; none if a table is missing or no pair was judged in both
        orders.
    """
    if not all(list(run.folder.glob(f"{name}*")) for name in TABLES):
        return None
    histories, responders, replies, comparisons, verdicts, ratings = (
        run.read(name) for name in TABLES
    )
    kinds = responders.set_index("responder")["responder_kind"]
    verdicts = verdicts[
        verdicts["dimension"].isin(ratings["dimension"]) & verdicts["order"].notna()
    ]
    verdicts = verdicts[verdicts["state"] == "valid"]
    pair = _choose_pair(histories, verdicts, kinds)
    if pair is None:
        return None
    judged = verdicts[
        (verdicts["pair_id"] == pair["pair_id"]) & (verdicts["rater"] == pair["rater"])
    ]
    judged = judged[judged["dimension"] == pair["dimension"]].sort_values("order")
    [joined] = combine_orders(judged).to_dict("records")
    history = histories.set_index("history_id", drop=False).loc[pair["history_id"]]
    judged_pairs = comparisons.set_index("comparison_id").loc[judged["comparison_id"]]
    reply_ids = judged_pairs[["reply_a", "reply_b"]].iloc[0]
    texts = replies.set_index("reply_id").loc[reply_ids, "text"]
    orders = [_describe(one) for one in judged.to_dict("records")]
    rows = ratings[
        (ratings["dimension"] == pair["dimension"])
        & ratings["rater"].isin([pair["rater"], joined["rater"]])
    ]
    rows = (
        (rows if len(rows) else ratings)
        .drop_duplicates("responder")
        .set_index("responder", drop=False)
    )
    authors = [pair["responder_a"], pair["responder_b"]]
    share = (
        joined["p_a"]
        if pd.notna(joined["p_a"])
        else {"a": 1.0, "b": 0.0}.get(joined["verdict"], 0.5)
    )
    return {
        "history": history,
        "n_turns": len(history["turns"]),
        "last_turns": _last_turns(history),
        "replies": [
            {
                "responder": who,
                "kind": kinds[who],
                "text": _one_line(text),
                "n_words": len(text.split()),
            }
            for who, text in zip(authors, texts, strict=True)
        ],
        "rater": pair["rater"],
        "orders": orders,
        "joined_state": joined["state"],
        "chose_first": all(one["preferred"] == one["first"] for one in orders),
        "responder_a": authors[0],
        "responder_b": authors[1],
        "share_a": f"{share:.2f}",
        "n_pairs": f"{verdicts[verdicts['dimension'] == pair['dimension']]['pair_id'].nunique():,}",
        "n_dialogues": verdicts["dialogue_id"].nunique(),
        "level": f"{100 * rows['ci_level'].iloc[0]:.0f}",
        "ratings": [_describe_rating(rows.loc[who]) for who in authors],
    }


def _choose_pair(
    histories: pd.DataFrame, verdicts: pd.DataFrame, kinds: pd.Series
) -> dict[str, Any] | None:
    """Choose the most telling pair of the first history with a pair judged in both orders.

    Pairs that the judge did not write come first.

    Among its pairs, one that the judge did not write.
    """
    by_question = verdicts.groupby(
        ["history_id", "pair_id", "rater", "dimension", "responder_a", "responder_b"],
        as_index=False,
    )
    pairs = by_question.agg(
        n_orders=("order", "nunique"), n_rows=("order", "size"), flags=("flags", "first")
    )
    pairs = pairs[(pairs["n_orders"] == 2) & (pairs["n_rows"] == 2)]
    if pairs.empty:
        return None
    ranks = pairs[["responder_a", "responder_b"]].map(lambda who: KNOWN_BEST.index(kinds[who]))
    places = pairs["history_id"].map(
        {name: number for number, name in enumerate(histories["history_id"])}
    )
    own = pairs["flags"].map(lambda flags: "own_reply" in list(flags))
    order = pd.DataFrame(
        {"place": places, "best": ranks.min(axis=1), "own": own, "pair": pairs["pair_id"]}
    )
    chosen: dict[str, Any] = pairs.loc[
        order.sort_values(["place", "best", "own", "pair"]).index[0]
    ].to_dict()
    return chosen


def _last_turns(history: pd.Series) -> list[dict[str, str]]:
    """Return the last turns, where the licence lets a page show them."""
    if not may_publish(str(history["licence"])):
        return []
    return [
        {"speaker": turn["speaker"], "text": _one_line(turn["text"])}
        for turn in history["turns"][-TURNS_SHOWN:]
    ]


def _one_line(text: str) -> str:
    """Write a text so that a table of the page holds it and none of its signs are markup."""
    words = " ".join(visible_text(text).split())
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]<>|#$~@" else sign for sign in words)


def _describe(verdict: dict[str, Any]) -> dict[str, Any]:
    authors = {"a": verdict["responder_a"], "b": verdict["responder_b"]}
    p_a = f"{verdict['p_a']:.2f}" if pd.notna(verdict["p_a"]) else "not given"
    preferred = authors.get(verdict["verdict"], "neither")
    return {**verdict, "p_a": p_a, "first": authors[verdict["order"][0]], "preferred": preferred}


def _describe_rating(row: pd.Series) -> dict[str, str]:
    ranks = f"{row['rank_low']:.0f} to {row['rank_high']:.0f}"
    ends = {"low": f"{row['rating_low']:.0f}", "high": f"{row['rating_high']:.0f}"}
    return {"responder": row["responder"], "rating": f"{row['rating']:.0f}", **ends, "ranks": ranks}
