"""Design of comparisons: who answers, pairs, orders, probes and rewritten replies."""

from __future__ import annotations

import hashlib
import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, groupby
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from heart_collect.calls.models import Model
from heart_collect.calls.prices import price
from heart_collect.judging.prompts import AUTHORS, PROMPTS
from heart_utils.runs import find_root
from heart_utils.sources.defaults import read_objects, read_sample
from heart_utils.sources.heart import MAX_WORDS
from heart_utils.tables import check_table, empty_table, need_columns, needed_columns, refuse_rows

__all__ = [
    "CHECKS",
    "Check",
    "DesignError",
    "PROBES",
    "REWRITES",
    "RespondError",
    "pair_replies",
    "profile_features",
]


class RespondError(ValueError):
    """Histories or responders cannot be used as asked."""


def _echo(turns: Sequence[Mapping[str, str]]) -> str:
    last_words = [turn["text"] for turn in turns if turn["speaker"] == "seeker"][-1]
    return " ".join(last_words.split()[:MAX_WORDS])


def _always(text: str) -> Callable[[Sequence[Mapping[str, str]]], str]:
    return lambda _: text


@lru_cache(maxsize=1)
def _replies_to_others() -> list[tuple[tuple[str, ...], str, str]]:
    histories = read_sample("histories")[["history_id", "dialogue_id", "turns"]]
    rows = histories.merge(read_sample("replies")[["history_id", "text"]], on="history_id")
    return [
        (tuple(turn["text"] for turn in turns), dialogue, text)
        for _, dialogue, turns, text in rows.itertuples(index=False)
    ]


def _other_history(turns: Sequence[Mapping[str, str]]) -> str:
    begun_with = tuple(turn["text"] for turn in turns)
    known = _replies_to_others()
    own = {dialogue for begun, dialogue, _ in known if begun_with[: len(begun)] == begun}
    others = [text for _, dialogue, text in known if dialogue not in own]
    n_before = sum(turn["speaker"] == "supporter" for turn in turns)
    begins_at = int(hashlib.sha256(begun_with[0].encode()).hexdigest(), 16)
    return others[(begins_at + n_before) % len(others)]


PROBES = {
    **{name: _always(text) for name, text in PROMPTS["probes"].items()},
    "echo": _echo,
    "other-history": _other_history,
}
"""Replies by rule, written for this project: warm and about nobody, advice and no warmth, nothing
but dots, the seeker's last words, and a good reply to somebody else."""


def describe_responders(responders: Sequence[Model | str]) -> pd.DataFrame:
    check_responders(responders)
    rows: list[dict[str, str | float | None]] = []
    for one in responders:
        if isinstance(one, str):
            rows.append({"responder_kind": "probe", "responder": one})
            continue
        rates = price(one)
        rows.append(
            {
                "responder_kind": "model",
                "responder": one.name,
                "family": one.family,
                "model": one.model,
                "price": None if rates is None else rates[1] * 1e6,
            }
        )
    return check_table("responders", pd.DataFrame(rows)) if rows else empty_table("responders")


def check_responders(responders: Sequence[Model | str]) -> None:
    """Refuse unknown probes and shared names."""
    names = [
        responder if isinstance(responder, str) else responder.name for responder in responders
    ]
    unknown = [name for name in responders if isinstance(name, str) and name not in PROBES]
    if unknown:
        raise RespondError(
            f"There is no probe {', '.join(unknown)}; the probes are {', '.join(PROBES)}. A model"
            " is read by heart_collect.calls.models.read_models."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RespondError(
            f"Each responder needs a name of its own; {', '.join(twice)} appears more than once."
        )


ORDERS = ("both", "random")
NEEDED = ("reply_id", "history_id", "responder", "state")
ID_LENGTH = 16


class DesignError(ValueError):
    """Replies cannot be paired as asked."""


def pair_replies(
    replies: pd.DataFrame,
    *,
    rng: np.random.Generator,
    orders: str = "both",
    pairs: str | int = "all",
    protocol: str = "heart",
) -> pd.DataFrame:
    """Pair the replies to each history, and order each pair.

    Only valid replies are paired, never two of one responder. Another reply changes nothing that is
    drawn for other pairs.

    Parameters
    ----------
    replies : pandas.DataFrame
        With ``reply_id``, ``history_id``, ``responder`` and ``state``.
    rng : numpy.random.Generator
        The source of chance.
    orders : str
        ``"both"``: two comparisons a pair; ``"random"``: one, in a drawn order.
    pairs : "all" or int
        Pairs of each history, drawn; the same under each protocol.
    protocol : str
        The column ``protocol``.

    Returns
    -------
    pandas.DataFrame
        The table ``comparisons``; ``reply_a`` is the smaller id. Warns how many replies and
        histories are left out.

    Raises
    ------
    DesignError, TableError
        If an option is unknown, a column or name missing, a reply_id doubled, or there is no pair.

    Examples
    --------
    >>> replies = pd.DataFrame(
    ...     {
    ...         "reply_id": ["r2", "r1"],
    ...         "history_id": "h1",
    ...         "responder": ["x", "y"],
    ...         "state": "valid",
    ...     }
    ... )
    >>> pair_replies(replies, rng=np.random.default_rng(1))[
    ...     ["reply_a", "reply_b", "order"]
    ... ].to_numpy().tolist()
    [['r1', 'r2', 'ab'], ['r1', 'r2', 'ba']]
    """
    if orders not in ORDERS:
        raise DesignError(f"orders is {orders!r}, expected one of {', '.join(ORDERS)}.")
    whole = isinstance(pairs, int | np.integer) and not isinstance(pairs, bool)
    if pairs != "all" and not (whole and int(pairs) >= 1):
        raise DesignError(
            f"pairs is {pairs!r}, expected 'all' or a whole number of pairs for each history, 1 or"
            " more."
        )
    need_columns(replies, NEEDED, DesignError)
    for column in NEEDED:
        refuse_rows(
            "replies", column, replies[column].isna(), replies[column], "a name in each row"
        )
    refuse_rows(
        "replies",
        "reply_id",
        replies["reply_id"].duplicated(),
        replies["reply_id"],
        "each reply once",
    )
    made = make_pairs(replies, rng=rng, orders=orders, pairs=pairs, protocol=protocol)
    return check_table("comparisons", made)


def make_pairs(
    replies: pd.DataFrame,
    *,
    rng: np.random.Generator,
    orders: str,
    pairs: int | str,
    protocol: str,
) -> pd.DataFrame:
    """Make :func:`pair_replies`' comparisons from checked replies."""
    seed = int(rng.integers(2**63))
    valid = replies[replies["state"] == "valid"].sort_values(["history_id", "reply_id"])
    valid = valid if "simulated" in valid else valid.assign(simulated=False)
    rows: list[tuple[object, ...]] = []
    n_paired = 0
    shown_by: Any = valid[[*NEEDED, "simulated"]].itertuples(index=False)
    for history_id, group in groupby(shown_by, attrgetter("history_id")):
        pairs_by_id = {
            digest("pair", a.reply_id, b.reply_id): (a, b)
            for a, b in combinations(group, 2)
            if a.responder != b.responder
        }
        n_paired += bool(pairs_by_id)
        if pairs != "all":
            kept = set(
                sorted(pairs_by_id, key=lambda pair_id: seeded(seed, pair_id, "kept").random())[
                    : int(pairs)
                ]
            )
            pairs_by_id = {
                pair_id: sides for pair_id, sides in pairs_by_id.items() if pair_id in kept
            }
        for pair_id, (a, b) in pairs_by_id.items():
            shown_orders: tuple[str, ...] = ("ab", "ba")
            if orders == "random":
                shown_orders = (
                    shown_orders[:1]
                    if seeded(seed, pair_id, protocol, "order").random() < 0.5
                    else shown_orders[1:]
                )
            for order in shown_orders:
                names = digest("comparison", pair_id, order, protocol), pair_id, history_id
                sides = a.reply_id, b.reply_id, a.responder, b.responder
                rows.append((*names, *sides, order, protocol, a.simulated or b.simulated))
    _say_what_is_left_out(replies, replies["history_id"].nunique() - n_paired)
    if not rows:
        raise DesignError(
            f"Nothing can be paired: of {len(replies)} replies {len(valid)} are valid, to"
            f" {valid['history_id'].nunique()} histories, by {valid['responder'].nunique()}"
            " responders. A pair needs two valid replies of two responders to one history."
        )
    return pd.DataFrame(rows, columns=needed_columns("comparisons"))


def cross_seekers(histories: pd.DataFrame, seekers: Sequence[str]) -> pd.DataFrame:
    """Repeat each history once a seeker."""
    tables = []
    for seeker in seekers:
        rows = histories.assign(seeker=seeker, start_id=histories["history_id"])
        tables.append(
            rows.assign(
                history_id=rows["history_id"] + f"--{seeker}",
                twin_id=rows["twin_id"] + f"--{seeker}",
            )
        )
    with_seekers = pd.concat(tables, ignore_index=True) if tables else histories
    return check_table("histories", with_seekers)


def seeded(*parts: object) -> random.Random:
    """Make a generator that depends only on what it is for."""
    return random.Random(int(digest(*parts), 16))


def digest(*parts: object) -> str:
    """Hash words and numbers shortly and stably."""
    text = "".join(f"{len(word)}:{word}" for word in map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]


def _say_what_is_left_out(replies: pd.DataFrame, alone: int) -> None:
    failed = replies.loc[replies["state"] != "valid", "state"].value_counts()
    reasons = []
    if len(failed):
        counts = ", ".join(f"{count} {state}" for state, count in sorted(failed.items()))
        reasons.append(f"{int(failed.sum())} of {len(replies)} replies are not paired ({counts})")
    if alone:
        reasons.append(
            f"{alone} histories have no two valid replies of two responders, and so no pair"
        )
    if reasons:
        warnings.warn(f"{'; '.join(reasons)}.", stacklevel=3)


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
    """Build probes' tables from the sample's standard histories and replies."""
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
        texts |= {rule: say(history["turns"]) for rule, say in PROBES.items()}
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
    """Make the responders' table for replies changed by rule."""
    return check_table("responders", pd.DataFrame({"responder": names, "responder_kind": "probe"}))


def rewrite_replies(
    replies: pd.DataFrame, n: int, *, labels: Sequence[str] = (), seed: int
) -> pd.DataFrame:
    """Rewrite each reply in `n` ways (even, at most 16), drawn by seed and history."""
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
    """List each rewritten reply's features, and whom it is said to be from.

    Features are drawn at random, so one that goes with winning moves the judge by itself.
    :func:`heart_utils.judges.position.feature_bias` takes this table.

    Parameters
    ----------
    replies : pandas.DataFrame
        ``responder`` names the features, joined by ``+``; ``label`` whom a reply is said to be
        from, if anyone.

    Returns
    -------
    pandas.DataFrame
        By ``reply_id``, 0 or 1: shortened, padded, listed, warmed and, if labelled, ``said: ...``
        for a person and an expert (an AI is the reference).

    References
    ----------
    .. [1] Hainmueller, Hopkins and Yamamoto (2014), https://doi.org/10.1093/pan/mpt024

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
