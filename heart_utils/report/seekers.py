"""The report cards of the simulated seekers of a run, from its tables."""

from __future__ import annotations

import os
from collections.abc import Mapping

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
from heart_utils.sources.codebooks import load_codebooks
from heart_utils.sources.heart import next_seeker_turns
from heart_utils.tables import need_columns

__all__ = ["check_seekers"]

BOOK, CODE = "seeker", "pushes_back"
SILENT = ["conversation_id", "dialogue_id", "seeker"]


def check_seekers(
    run: Run | str | os.PathLike[str],
    *,
    dimension: str = "overall",
    real: pd.DataFrame | None = None,
    guesses: pd.DataFrame | None = None,
    codes: pd.DataFrame | None = None,
    limits: Mapping[str, tuple[float, str]] = LIMITS,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Make the report card of each simulated seeker of a run, before any leaderboard.

    The card has four questions. Are the seeker's first turns told from what people said at the same
    places? Does it stay adversarial where it began so? Do probes in the supporter's place get lower
    scores from it than real supporters? And do outside raters of the same transcripts agree with
    it? What the run does not have is not checked, and the card says what is missing.

    Parameters
    ----------
    run : Run or str
        A run with the table ``conversations``, or its name or folder.
    dimension : str
        Of scores, those that are read.
    real : pandas.DataFrame, optional
        What people said next: ``history_id`` (or ``start_id``), ``dialogue_id`` and ``text``. By
        default from ESConv, where starts come from it and it is on this machine.
    guesses : pandas.DataFrame, optional
        Of raters who were shown turns of both kinds: as
        :func:`~heart_utils.replies.conversations.told_by_raters` takes them, with ``seeker``.
    codes : pandas.DataFrame, optional
        The table of codes of seekers' turns by one coder, by the ``reply_id`` of
        :func:`~heart_utils.replies.conversations.split_turns`: the probability that a turn is
        adversarial. By default by the words of the codebook ``seeker``, which miss much: the limit
        is then half of the share that they find among the last turns of the adversarial starts
        themselves.
    limits : mapping
        As in :func:`~heart_utils.replies.conversations.seeker_card`.
    ci_level : float
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a seeker and check, as :func:`~heart_utils.replies.conversations.seeker_card` gives
        them.

    Raises
    ------
    RunError
        If the run has no conversations.
    TurnsError
        If a table lacks a column, or codes are by several coders.

    Examples
    --------
    >>> cards = check_seekers("mine")  # doctest: +SKIP
    >>> describe_seekers(cards)  # doctest: +SKIP
    """
    opened = run if isinstance(run, Run) else open_run(run)
    talks, histories = opened.read("conversations"), opened.read("histories")
    kinds = opened.read("responders").set_index("responder")["responder_kind"]
    probes = sorted(kinds.index[kinds == "probe"])
    supported = talks[~talks["responder"].isin(probes)]
    turns = split_turns(supported)
    seeker_turns = turns[turns["speaker"] == "seeker"]
    if real is None:
        real, why_not = _real_turns(histories)
    else:
        why_not = "no real turn is of a start of this seeker"
    coded, limit = _codes(seeker_turns, histories, codes)
    # A seeker that ended without a word has no last turn: nothing shows what it was.
    spoke = supported["conversation_id"].isin(seeker_turns["conversation_id"])
    silent = supported.loc[~spoke & (supported["slice"] == "adversarial"), SILENT]
    coded = pd.concat([coded, silent.assign(exchange=0)], ignore_index=True)
    scores = _scores(opened, dimension)
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
            scores=_of_seeker(scores, seeker, set(talks["seeker"])),
            probes=probes,
            limits={**limits, STAYS: limits[STAYS] if limit is None else (limit, "at least")},
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
    """Take what people said next from ESConv, or say why there is nothing."""
    try:
        real = next_seeker_turns(histories)
    except DataUnavailableError:
        return None, "ESConv is not on this machine; `make data NAME=esconv` fetches it"
    return real, "no start is the beginning of a dialogue of ESConv; give real="


def _same_places(
    own: pd.DataFrame, talks: pd.DataFrame, real: pd.DataFrame | None
) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Return people's turns and the seeker's first ones at the same starts."""
    if real is None or real.empty:
        return None, None
    key = "start_id" if "start_id" in real else "history_id"
    need_columns(real, [key, "dialogue_id", "text"], TurnsError)
    of = talks.set_index("conversation_id")[key]
    first = own[own["exchange"] == 1]
    first = first.assign(**{key: first["conversation_id"].map(of)})
    people = real[real[key].isin(set(first[key]))].drop_duplicates([key])
    if people.empty:
        return None, None
    return people, first[first[key].isin(set(people[key]))]


def _codes(
    seeker_turns: pd.DataFrame, histories: pd.DataFrame, codes: pd.DataFrame | None
) -> tuple[pd.DataFrame, float | None]:
    """Join codes to seekers' turns from adversarial starts; by words, with the limit for words."""
    adversarial = seeker_turns[seeker_turns["slice"] == "adversarial"]
    if codes is not None:
        need_columns(codes, ["reply_id", "coder", "probability"], TurnsError)
        return adversarial.merge(codes[["reply_id", "coder", "probability"]], "left"), None
    begun = histories[histories["slice"] == "adversarial"]
    starts = pd.DataFrame(
        {
            "reply_id": begun["history_id"],
            "text": [
                next(turn["text"] for turn in reversed(turns) if turn["speaker"] == "seeker")
                for turns in begun["turns"]
            ],
        }
    )
    codings = [
        code_by_words(
            texts[["reply_id", "text"]].assign(state="valid", simulated=False),
            [code for code in load_codebooks()[BOOK] if code.name == CODE],
        )
        for texts in (adversarial, starts)
    ]
    coded = adversarial.merge(codings[0][["reply_id", "coder", "probability"]], "left")
    known = codings[1]["probability"].mean()
    return coded, 0.5 * float(known) if len(starts) else None


def _scores(run: Run, dimension: str) -> pd.DataFrame | None:
    """Read the scores of whole conversations on one dimension."""
    if not run.has("scores"):
        return None
    scores = run.read("scores")
    if "seeker" not in scores:
        return None
    return scores[(scores["dimension"] == dimension) & scores["seeker"].notna()]


def _of_seeker(scores: pd.DataFrame | None, seeker: str, seekers: set[str]) -> pd.DataFrame | None:
    """Keep scores of a seeker's own conversations, by itself and by those who are no seekers."""
    if scores is None:
        return None
    others = seekers - {seeker}
    return scores[(scores["seeker"] == seeker) & ~scores["rater"].isin(others)]
