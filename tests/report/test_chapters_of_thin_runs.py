"""A chapter that reads a run of one's own takes one that shows little: a sentence, and no traceback."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from gate_case import write_run

from heart_utils.runs import find_root

ROOT = find_root()


def beside_people(verdicts):
    """A judge that contradicts itself in each pair, and three people."""
    always_first = np.where(verdicts["order"] == "ab", "a", "b")
    parts = [verdicts.assign(verdict=always_first)]
    for number in range(3):
        person = verdicts[verdicts["order"] == "ab"].assign(
            rater=f"rater-{number}", rater_kind="human", p_a=None
        )
        parts.append(person.assign(comparison_id=person["comparison_id"] + f":{number}"))
    return parts


@pytest.mark.slow
def test_the_chapter_on_agreement_runs_where_a_judge_shows_nothing_beside_people(tmp_path):
    run = write_run(tmp_path / "mine", {"old": 0.0, "x": 1.0}, n=6)
    run.write("verdicts", pd.concat(beside_people(run.read("verdicts")), ignore_index=True))
    words = ["-m", "papermill", "--no-progress-bar", "--cwd", "notebooks"]
    words += ["notebooks/06_do_judges_agree.ipynb", str(tmp_path / "out.ipynb")]
    words += ["-p", "run", str(tmp_path / "mine"), "-p", "n_resamples", "20"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
