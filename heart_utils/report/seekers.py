"""The report cards of the simulated seekers of a run, from its tables."""

from __future__ import annotations

import os

import pandas as pd

from heart_utils.replies.codes import code_by_words
from heart_utils.replies.conversations import (
    LIMITS,
    STAYS,
    TOLD_APART,
    TurnsError,
    seeker_card,
    split_turns,
)
from heart_utils.runs import Run, open_run
from heart_utils.sources.catalogue import DataUnavailableError
from heart_utils.sources.heart import load_codebooks, next_seeker_turns
from heart_utils.tables import need_columns

__all__ = ["check_seekers"]

SILENT = ["conversation_id", "dialogue_id", "seeker"]


def check_seekers(
    run: Run | str | os.PathLike[str],
    *,
    dimension: str = "overall",
    real: pd.DataFrame | None = None,
    guesses: pd.DataFrame | None = None,
    codes: pd.DataFrame | None = None,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Make the report card of each simulated seeker of a run, before any leaderboard.

    Are its first turns told from people's at the same places? Does it stay adversarial? Do probes
    score lower with it than real supporters? Do outside raters agree with it? What the run lacks is
    not checked, and the card says so.

    Parameters
    ----------
    run
        A run with the table ``conversations``, or its name or folder.
    dimension
        Of the scores to read.
    real
        What people said next: ``history_id`` (or ``start_id``), ``dialogue_id`` and ``text``; by
        default from ESConv, if starts are its and it is on this machine.
    guesses
        Of raters who saw turns of both kinds, with ``seeker``.
    codes
        One coder's probability that a seeker's turn is adversarial. By default by the words of the
        codebook ``seeker``, with half of what they find in the starts as limit.
    ci_level
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a seeker and check.

    Raises
    ------
    RunError
        If the run has no conversations.
    TurnsError
        If a table lacks a column, or codes are by several coders.

    Examples
    --------
    >>> cards = check_seekers("mine")  # doctest: +SKIP
    """
    opened = run if isinstance(run, Run) else open_run(run)
    talks, histories = opened.read("conversations"), opened.read("histories")
    kinds = opened.read("responders").set_index("responder")["responder_kind"]
    probes = sorted(kinds.index[kinds == "probe"])
    supported = talks[~talks["responder"].isin(probes)]
    turns = split_turns(supported)
    seeker_turns = turns[turns["speaker"] == "seeker"]
    why_not = "no real turn is of a start of this seeker"
    if real is None:
        real, why_not = _real_turns(histories)
    coded, limit = _codes(seeker_turns, histories, codes)
    # A seeker that ended without a word has no last turn: nothing shows what it was.
    spoke = supported["conversation_id"].isin(seeker_turns["conversation_id"])
    silent = supported.loc[~spoke & (supported["slice"] == "adversarial"), SILENT]
    coded = pd.concat([coded, silent.assign(exchange=0)], ignore_index=True)
    limits = LIMITS if limit is None else {**LIMITS, STAYS: (limit, "at least")}
    cards = []
    for seeker in sorted(talks["seeker"].dropna().unique()):
        own = seeker_turns[seeker_turns["seeker"] == seeker]
        people, first = _same_places(own, supported, real)
        card = seeker_card(
            seeker,
            simulated=first,
            real=people,
            guesses=None if guesses is None else guesses[guesses["seeker"] == seeker],
            adversarial=coded[coded["seeker"] == seeker],
            scores=_scores(opened, dimension, seeker, set(talks["seeker"]) - {seeker}),
            probes=probes,
            limits=limits,
            ci_level=ci_level,
        )
        unknown = (card["check"] == TOLD_APART) & (card["of"] == "classifier") & (first is None)
        card.loc[unknown, "note"] = why_not
        if limit == 0.0:
            card.loc[card["check"] == STAYS, ["outcome", "note"]] = (
                "not checked",
                "the words find none of the starts' own adversarial turns",
            )
        cards.append(card)
    return pd.concat(cards, ignore_index=True) if cards else seeker_card("").head(0)


def _real_turns(histories: pd.DataFrame) -> tuple[pd.DataFrame | None, str]:
    try:
        real = next_seeker_turns(histories)
    except DataUnavailableError:
        return None, "ESConv is not on this machine; `make data NAME=esconv` fetches it"
    return real, "no start is the beginning of a dialogue of ESConv; give real="


def _same_places(
    own: pd.DataFrame, talks: pd.DataFrame, real: pd.DataFrame | None
) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Return people's turns and the seeker's first, at the same starts."""
    if real is None or real.empty:
        return None, None
    key = "start_id" if "start_id" in real else "history_id"
    need_columns(real, [key, "dialogue_id", "text"], TurnsError)
    first = own[own["exchange"] == 1]
    start = first["conversation_id"].map(talks.set_index("conversation_id")[key])
    people = real[real[key].isin(set(start))].drop_duplicates([key])
    first = first.assign(**{key: start})[start.isin(set(people[key]))]
    return (None, None) if people.empty else (people, first)


def _codes(
    seeker_turns: pd.DataFrame, histories: pd.DataFrame, codes: pd.DataFrame | None
) -> tuple[pd.DataFrame, float | None]:
    """Join codes to turns from adversarial starts; by words, with their limit."""
    columns = ["reply_id", "coder", "probability"]
    adversarial = seeker_turns[seeker_turns["slice"] == "adversarial"]
    if codes is not None:
        need_columns(codes, columns, TurnsError)
        return adversarial.merge(codes[columns], "left"), None
    begun = histories[histories["slice"] == "adversarial"]
    last_words = [
        next(turn["text"] for turn in reversed(turns) if turn["speaker"] == "seeker")
        for turns in begun["turns"]
    ]
    starts = pd.DataFrame({"reply_id": begun["history_id"], "text": last_words})
    words = [code for code in load_codebooks()["seeker"] if code.name == "pushes_back"]
    of_turns, of_starts = (
        code_by_words(texts[["reply_id", "text"]].assign(state="valid", simulated=False), words)
        for texts in (adversarial, starts)
    )
    coded = adversarial.merge(of_turns[columns], "left")
    return coded, 0.5 * float(of_starts["probability"].mean()) if len(starts) else None


def _scores(run: Run, dimension: str, seeker: str, other_seekers: set[str]) -> pd.DataFrame | None:
    scores = run.read("scores") if run.has("scores") else pd.DataFrame()
    if "seeker" not in scores:
        return None
    own = scores["seeker"].eq(seeker) & scores["dimension"].eq(dimension)
    return scores[own & ~scores["rater"].isin(other_seekers)]
