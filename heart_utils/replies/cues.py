"""Is a feeling named, or must it be read between the lines? A short lexicon, and what it counts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

__all__ = ["EMOTION_WORDS", "describe_turns"]

EMOTION_WORDS: dict[str, tuple[str, ...]] = {
    "sadness": (
        "sad", "sadness", "sadder", "unhappy", "miserable", "depressed", "depressing", "depression", "heartbroken",
        "grief", "grieving", "devastated", "hopeless", "despair", "lonely", "loneliness", "miss", "crying", "cried",
    ),
    "anger": (
        "angry", "anger", "mad", "furious", "annoyed", "annoying", "frustrated", "frustrating", "frustration", "rage",
        "resent", "resentful", "irritated", "bitter", "hate",
    ),
    "fear": (
        "afraid", "fear", "scared", "scary", "terrified", "anxious", "anxiety", "nervous", "worried", "worry", "worries",
        "worrying", "panic", "panicking", "dread", "stressed", "stress", "stressful", "overwhelmed", "overwhelming",
    ),
    "shame": (
        "ashamed", "shame", "guilty", "guilt", "embarrassed", "embarrassing", "humiliated", "mortified", "worthless",
        "regret", "jealous",
    ),
    "hurt": ("hurt", "hurts", "betrayed", "rejected", "abandoned", "disappointed", "disappointing", "insulted", "broken"),
    "disgust": ("disgusted", "disgusting", "disgust", "sick of", "fed up"),
    "joy": ("happy", "happiness", "glad", "relieved", "relief", "proud", "grateful", "excited", "joy", "hopeful"),
}  # fmt: skip
"""Families of feelings and the English words that name them, chosen for this project and checked on no other data."""

_PATTERNS = {family: r"\b(?:" + "|".join(re.escape(word) for word in words) + r")\b" for family, words in EMOTION_WORDS.items()}


def count_cues(texts: pd.Series) -> pd.DataFrame:
    """Count the words in each text that name a feeling."""
    counts = pd.DataFrame(
        {family: texts.str.count(pattern, flags=re.IGNORECASE) for family, pattern in _PATTERNS.items()}, index=texts.index
    )
    return counts.assign(n_named=counts.sum(axis="columns"), explicit=counts.sum(axis="columns") > 0)


def describe_turns(histories: pd.DataFrame) -> pd.DataFrame:
    """Measure each history: how long it is, who opens it, and how openly its seeker names a feeling.

    Parameters
    ----------
    histories : pandas.DataFrame
        The histories table.

    Returns
    -------
    pandas.DataFrame
        Column ``history_id``, ``slice``, ``n_turns``, ``first_speaker``, ``last_speaker``,
        ``seeker_words`` and ``supporter_words`` (mean words a turn; ``nan`` for who never speaks),
        ``explicit`` (a word of the lexicon in any seeker turn) and ``explicit_last`` (in the last one).

    Examples
    --------
    >>> one = pd.DataFrame({"history_id": ["h"], "slice": ["standard"], "turns": [[{"speaker": "seeker", "text": "I am sad"}]]})
    >>> describe_turns(one)[["n_turns", "seeker_words", "explicit"]].values.tolist()
    [[1, 3.0, True]]
    """
    said = [_describe(turns) for turns in histories["turns"]]
    measured = pd.DataFrame(said, index=histories.index)
    for name, column in {"explicit": "_seeker", "explicit_last": "_last"}.items():
        measured[name] = count_cues(measured[column])["explicit"]
    return histories[["history_id", "slice"]].join(measured.drop(columns=["_seeker", "_last"]))


def _describe(turns: Sequence[Mapping[str, str]]) -> dict[str, object]:
    by_speaker = {name: [turn["text"] for turn in turns if turn["speaker"] == name] for name in ("seeker", "supporter")}
    words = {
        name: sum(len(text.split()) for text in texts) / len(texts) if texts else float("nan")
        for name, texts in by_speaker.items()
    }
    return {
        "n_turns": len(turns),
        "first_speaker": turns[0]["speaker"],
        "last_speaker": turns[-1]["speaker"],
        "seeker_words": words["seeker"],
        "supporter_words": words["supporter"],
        "_seeker": " ".join(by_speaker["seeker"]),
        "_last": by_speaker["seeker"][-1] if by_speaker["seeker"] else "",
    }
