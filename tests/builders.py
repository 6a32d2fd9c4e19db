"""Small tables for tests, written out so that a value by hand can be checked against them."""

import errno
import os
from contextlib import contextmanager

import pandas as pd


@contextmanager
def full_disk(monkeypatch, *, after: int = 0):
    """Let the disk have room for so many files, and for no more."""
    room = iter(range(after))

    def sync(descriptor):
        if next(room, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", sync)
        yield


def verdicts(rows: list[tuple], **columns) -> pd.DataFrame:
    """Make a table of verdicts from (dialogue, responder a, responder b, verdict) or with a rater
    as fifth."""
    table = pd.DataFrame(
        [(*row, "rater_1") if len(row) == 4 else row for row in rows],
        columns=["dialogue_id", "responder_a", "responder_b", "verdict", "rater"],
    )
    table = table.assign(
        comparison_id=[f"c{number:04d}" for number in range(len(table))],
        pair_id=table["dialogue_id"] + "-" + table["responder_a"] + "-" + table["responder_b"],
        history_id=table["dialogue_id"],
        slice="standard",
        rater_kind="human",
        dimension="overall",
        dimension_position=None,
        margin=None,
        p_a=None,
        state="valid",
        order="ab",
        protocol="heart",
        answer_format=None,
        repeat=0,
        group=None,
        flags=[[] for _ in range(len(table))],
        rationale=None,
        call_id=None,
        simulated=False,
    )
    return table.assign(**columns)


def histories(**columns) -> pd.DataFrame:
    """Make one short history; keyword arguments replace columns."""
    row = {
        "history_id": "h1",
        "dialogue_id": "d1",
        "source": "test",
        "slice": "standard",
        "twin_id": None,
        "emotion": "sadness",
        "problem": "moving",
        "situation": None,
        "turns": [[{"speaker": "seeker", "text": "The flat is empty now."}]],
        "licence": "CC0-1.0",
        "flags": [[]],
        "simulated": False,
    }
    return pd.DataFrame({**row, **columns})
