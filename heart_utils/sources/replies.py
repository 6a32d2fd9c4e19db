"""What ESConv's supporters really answered, as replies of people."""

from __future__ import annotations

import itertools
import os
import re

import pandas as pd

from heart_utils.sources.esconv import read_dialogues
from heart_utils.sources.files import complete, read_sample
from heart_utils.sources.heart import load_heart, next_turns
from heart_utils.tables import check_table

__all__ = ["MAX_SENTENCES", "MAX_WORDS", "flag_reply"]

MAX_WORDS = 40
MAX_SENTENCES = 3
"""HEART's limits of a reply."""

ESCONV_SUPPORTER = "esconv-supporter"

GREETING = re.compile(
    r"\s*(hi|hello|hey|good (morning|afternoon|evening|day)|greetings|welcome)\b|.*\bhow are (you|things)\b", re.I
)
CLOSING = re.compile(
    r"\b(bye|goodbye|good ?night(?!'?s)|take care(?=\W*$|\W+and\b)|(nice|great|pleasure|good) (talking|chatting|speaking)"
    r"|have an? (\w+ )?(great|good|nice|wonderful|lovely|blessed) (day|night|evening|afternoon|weekend|one|rest)"
    r"|best of luck|good luck|thank you for (chatting|talking)|thanks for (chatting|talking))\b",
    re.I,
)


def published_replies(name: str, *, twins: bool = False, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load the replies that came with a set of histories."""
    if name == "sample":
        return read_sample("replies")
    if name == "heart":
        found = next_turns(load_heart(twins=twins, mirror=mirror), mirror=mirror)
        found["reply_id"] = found["history_id"] + f"--{ESCONV_SUPPORTER}"
    else:
        found = _supporter_turns(mirror)
    flags = [
        flag_reply(text, n_before=before, n_after=after)
        for text, before, after in zip(found["text"], found["n_before"], found["n_after"], strict=True)
    ]
    rows = found[["reply_id", "history_id", "text"]].assign(responder=ESCONV_SUPPORTER, flags=pd.Series(flags, dtype=object))
    return check_table("replies", complete("replies", rows))


def flag_reply(text: str, *, n_before: int, n_after: int) -> list[str]:
    """Flag a reply of a person that a model under HEART's protocol would not write.

    Parameters
    ----------
    text : str
        The reply.
    n_before, n_after : int
        How many turns of the supporter stand before and after it in its dialogue.

    Returns
    -------
    list of str
        ``greeting`` if it is the supporter's first turn and opens with a greeting or asks how the
        seeker is; ``closing`` if it says goodbye, wishes luck or a good day, or thanks for the
        talk, and at most half of the supporter's turns follow; ``over_40_words`` if it has more
        than 40 words, counted at white space.

    Examples
    --------
    >>> flag_reply("Hello, what brings you here?", n_before=0, n_after=9)
    ['greeting']
    >>> flag_reply("Good luck with the talk, and have a nice day!", n_before=9, n_after=1)
    ['closing']
    """
    flags = ["greeting"] if n_before == 0 and GREETING.match(text) else []
    flags += ["closing"] if n_after <= n_before and CLOSING.search(text) else []
    flags += ["over_40_words"] if len(text.split()) > MAX_WORDS else []
    return flags


def _supporter_turns(mirror: str | os.PathLike[str] | None) -> pd.DataFrame:
    rows = []
    for dialogue in itertools.chain(*read_dialogues(mirror=mirror).values()):
        texts = {number: turn["text"] for number, turn in enumerate(dialogue.turns) if turn["speaker"] == "supporter"}
        for before, (number, text) in enumerate(texts.items()):
            after = len(texts) - before - 1
            rows.append((f"{dialogue.dialogue_id}--t{number:02d}", dialogue.dialogue_id, text, before, after))
    return pd.DataFrame(rows, columns=["reply_id", "history_id", "text", "n_before", "n_after"])
