"""Reading a file of a million votes: load_verdicts beside pandas.read_csv.

The processor's time; pandas.read_csv checks nothing. It reads the same columns as text, as a
checked reading must, since an id such as 007 is no number. By its defaults pandas guesses types,
and then reads this file in parallel and faster than as text; the note has that too.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from heart_utils import load_verdicts
from tools.bench import Figure

__all__ = ["run"]

N_ROWS, N_QUICK = 1_000_000, 50_000
N_MODELS, N_RATERS = 20, 500
REPEATS = 5
N_HISTORIES = {"every row of another conversation": 1, "a hundred votes on each conversation": 100}


def run(quick: bool) -> Iterator[Figure]:
    """Yield how many times as long a checked reading takes."""
    n_rows = N_QUICK if quick else N_ROWS
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "votes.csv")
        for name, votes in N_HISTORIES.items():
            _write(file, n_rows, votes)
            alone, guessed, checked = [], [], []
            for _ in range(REPEATS):  # side by side, so that what else runs slows all
                alone.append(
                    _processor_seconds(lambda: pd.read_csv(file, dtype=str, keep_default_na=False))
                )
                guessed.append(_processor_seconds(lambda: pd.read_csv(file)))
                checked.append(_processor_seconds(lambda: load_verdicts(file, repeats="number")))
            ratio = min(checked) / min(alone)
            note = (
                f"{min(checked):.2f} s of the processor and {min(alone):.2f} s; pandas by its"
                f" defaults {min(guessed):.2f} s, so {min(checked) / min(guessed):.1f} times"
            )
            yield Figure(f"{n_rows:,} rows, {name}", ratio, "times", "at most 3", ratio <= 3, note)


def _write(file: Path, n_rows: int, votes: int) -> None:
    rng = np.random.default_rng(1)
    models = np.array([f"model-{number}" for number in range(N_MODELS)])
    first = rng.integers(N_MODELS, size=n_rows)
    second = (first + rng.integers(1, N_MODELS, size=n_rows)) % N_MODELS
    rows = {
        "history_id": [f"h{row // votes}" for row in range(n_rows)],
        "responder_a": models[first],
        "responder_b": models[second],
        "rater": np.array([f"r{number}" for number in range(N_RATERS)])[
            rng.integers(N_RATERS, size=n_rows)
        ],
        "rater_kind": "model",
        "verdict": np.array(["a", "b", "tie"])[rng.integers(3, size=n_rows)],
    }
    pd.DataFrame(rows).to_csv(file, index=False)


def _processor_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
