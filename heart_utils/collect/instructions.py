"""What whoever writes a reply is told: the same words for a model and for a person in a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heart_utils.tables import SPEAKERS

__all__ = ["MAX_SENTENCES", "MAX_WORDS", "REPLY_INSTRUCTIONS", "reply_messages", "show_turns"]

MAX_WORDS = 40
MAX_SENTENCES = 3
"""HEART's limits of a reply."""

REPLY_INSTRUCTIONS = (
    "You are the supporter in a conversation with someone who is going through a hard time. "
    "Read the conversation so far, and write what you would say next, as one human being to another. "
    f"Write a single reply of 1 to {MAX_SENTENCES} sentences and no more than {MAX_WORDS} words. "
    "Write only the words of the reply: no name or label before it, no quotation marks, no notes."
)

LABELS = dict(zip(SPEAKERS, ("Seeker", "Supporter"), strict=True))


def show_turns(turns: Sequence[Mapping[str, str]]) -> str:
    """Write a conversation down, each turn under the one who spoke it.

    Parameters
    ----------
    turns : sequence of mapping
        Each with ``speaker`` (``seeker`` or ``supporter``) and ``text``.

    Returns
    -------
    str
        A turn a line.

    Examples
    --------
    >>> print(show_turns([{"speaker": "supporter", "text": "How are you?"}, {"speaker": "seeker", "text": "Not well."}]))
    Supporter: How are you?
    Seeker: Not well.
    """
    return "\n".join(f"{LABELS[turn['speaker']]}: {' '.join(turn['text'].split())}" for turn in turns)


def reply_messages(turns: Sequence[Mapping[str, str]], instructions: str = REPLY_INSTRUCTIONS) -> tuple[dict[str, str], ...]:
    """Ask a model for the supporter's next turn.

    The conversation stands in one message, as a transcript, since it may begin with either
    speaker, and not every provider lets an assistant speak first.

    Parameters
    ----------
    turns : sequence of mapping
        A history that ends with the seeker.
    instructions : str
        What the writer is told; words of one's own for another language or another task.

    Returns
    -------
    tuple of dict
        Messages with ``role`` and ``content``.

    Examples
    --------
    >>> system, user = reply_messages([{"speaker": "seeker", "text": "I lost my job."}])
    >>> print(user["content"])
    The conversation so far:
    <BLANKLINE>
    Seeker: I lost my job.
    <BLANKLINE>
    Your reply as the supporter:
    """
    return (
        {"role": "system", "content": instructions},
        {"role": "user", "content": f"The conversation so far:\n\n{show_turns(turns)}\n\nYour reply as the supporter:"},
    )
