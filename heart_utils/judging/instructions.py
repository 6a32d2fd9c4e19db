"""What whoever writes a reply is told: the same words for a model and for a person in a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heart_utils.sources.replies import MAX_SENTENCES, MAX_WORDS
from heart_utils.tables import SPEAKERS

__all__ = ["REPLY_INSTRUCTIONS"]

REPLY_INSTRUCTIONS = (
    "You are the supporter in a conversation with someone who is going through a hard time. "
    "Read the conversation so far, and write what you would say next, as one human being to another. "
    f"Write a single reply of 1 to {MAX_SENTENCES} sentences and no more than {MAX_WORDS} words. "
    "Write only the words of the reply: no name or label before it, no quotation marks, no notes."
)

LABELS = dict(zip(SPEAKERS, ("Seeker", "Supporter"), strict=True))


def show_turns(turns: Sequence[Mapping[str, str]]) -> str:
    """Write a conversation down, each turn under the one who spoke it."""
    return "\n".join(f"{LABELS[turn['speaker']]}: {' '.join(turn['text'].split())}" for turn in turns)


def reply_messages(turns: Sequence[Mapping[str, str]], instructions: str = REPLY_INSTRUCTIONS) -> tuple[dict[str, str], ...]:
    """Ask a model for the supporter's next turn.

    The conversation stands in one message, as a transcript, since it may begin with either speaker, and not every
    provider lets an assistant speak first.
    """
    return (
        {"role": "system", "content": instructions},
        {"role": "user", "content": f"The conversation so far:\n\n{show_turns(turns)}\n\nYour reply as the supporter:"},
    )
