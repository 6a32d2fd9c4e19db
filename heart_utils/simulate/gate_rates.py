"""How often the gate is wrong: studies simulated with no drop, or a known one, sent through it."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import expit

from heart_utils.ratings.anytime import compare_anytime
from heart_utils.ratings.gate import GateError, compare_responders
from heart_utils.ratings.ratings import POINTS
from heart_utils.simulate.coverage import tends_to

__all__ = ["NULLS", "simulate_gate"]

NULLS = ("regenerated", "re-asked")
BASELINE, CANDIDATE = 0, 1
HISTORY_SD = REPLY_SD = POSITION = 0.5
"""What is assumed, in log-odds: what a history does to a responder, how one reply turns out, the pull of the first side."""

Array = NDArray[np.float64]


def simulate_gate(
    *,
    null: str = "regenerated",
    drop: float = 0.0,
    mode: str = "regression",
    max_drop: float = 25.0,
    alpha: float = 0.05,
    n_studies: int = 1000,
    n_runs: int = 1,
    n_dimensions: int = 1,
    n_dialogues: int = 36,
    n_opponents: int = 3,
    n_raters: int = 1,
    direct: bool = False,
    margin: float = 0.10,
    n_resamples: int = 500,
    rng: np.random.Generator,
) -> pd.DataFrame:
    r"""Send simulated studies through the gate and note what it says.

    A judge shown i first prefers it to j with log-odds :math:`q_i - q_j + \delta`, each pair in both
    orders, where :math:`q = \theta + w + e`: strength, what a history does to a responder whenever
    it answers, and how one reply turned out. Both have a standard deviation of 0.5, and :math:`\delta` is 0.5.
    Candidate and baseline share :math:`w`. They meet the same opponents, and each other only where `direct` says so.

    Parameters
    ----------
    null : {"regenerated", "re-asked"}
        What differs between baseline and candidate where `drop` is 0: their replies were written
        anew, or the same replies were judged anew.
    drop : float
        How far the candidate truly lies below, in rating points of the fit.
    mode, max_drop, alpha
        As in :func:`heart_utils.ratings.gate.compare_responders`; ``"anytime"`` is
        :func:`heart_utils.ratings.anytime.compare_anytime`, for as many releases as `n_runs`.
    n_studies, n_runs : int
        Studies, and candidates tested one after another against the same baseline in each.
    n_dimensions, n_dialogues, n_opponents, n_raters : int
        Size of each study. Dimensions share how a reply turned out.
    direct : bool
        Whether baseline and candidate meet.
    margin : float
        For ``"anytime"``: the drop in win share that must be ruled out to pass.
    n_resamples, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row per study and run, all simulated: ``passed``, the first dimension's ``drop``, ``se``, ``outcome`` and
        ``n_dialogues``, after which the anytime gate stopped. With `drop` 0 the share of ``"failed"`` is the alarm rate; with
        `drop` at `max_drop` the share that passed is the false pass rate of non-inferiority.

    Raises
    ------
    GateError
        If `null` is not known.

    Examples
    --------
    >>> runs = simulate_gate(drop=400, n_studies=3, n_dialogues=12, rng=np.random.default_rng(1))
    >>> runs["passed"].tolist()  # 400 points are odds of 10 to 1: found each time
    [False, False, False]
    """
    if null not in NULLS:
        raise GateError(f"null={null!r} is not known; expected one of {', '.join(NULLS)}.")
    names = ["baseline", "candidate", *(f"opponent {k + 1}" for k in range(n_opponents))]
    spread = float(np.hypot(HISTORY_SD, REPLY_SD))
    opponents = np.linspace(-0.6, 0.6, n_opponents) if n_opponents > 1 else np.zeros(n_opponents)
    theta = np.array([0.0, -true_gap(drop, opponents, spread, direct), *opponents])
    shape = (n_dialogues, len(names))
    fixed = [pair for pair in combinations(range(len(names)), 2) if CANDIDATE not in pair]
    moving = [(CANDIDATE, k) for k in range(2, len(names))] + [(BASELINE, CANDIDATE)] * direct
    sides: dict[str, Any] = {"baseline": names[BASELINE], "candidate": names[CANDIDATE], "alpha": alpha}
    options: dict[str, Any] = {"mode": mode, "max_drop": max_drop, "n_resamples": n_resamples, "rng": rng}
    rows = []
    for study in range(n_studies):
        stable = rng.normal(0, HISTORY_SD, shape)
        turned = rng.normal(0, REPLY_SD, shape)
        stable[:, CANDIDATE] = stable[:, BASELINE]
        asked = (n_dimensions, n_raters, rng)
        once = _verdicts(theta + stable + turned, fixed, names, *asked)
        for run in range(n_runs):
            turned[:, CANDIDATE] = turned[:, BASELINE] if null == "re-asked" else rng.normal(0, REPLY_SD, n_dialogues)
            verdicts = pd.concat([once, _verdicts(theta + stable + turned, moving, names, *asked)], ignore_index=True)
            if mode == "anytime":
                found = compare_anytime(verdicts, margin=margin, n_releases=n_runs, **sides)
            else:
                found = compare_responders(verdicts, **sides, **options)
            first = found.table.reindex(columns=["drop", "se", "outcome", "n_dialogues"]).iloc[0]
            rows.append({"study": study, "run": run, "passed": found.passed, **first})
    return pd.DataFrame(rows).assign(null=null, mode=mode, true_drop=drop, simulated=True)


def true_gap(drop: float, opponents: Array, spread: float, direct: bool) -> float:
    """Find the gap in log-odds at which the fit, to infinitely many dialogues, shows a drop of so many points.

    Replies that turn out well or badly make verdicts noisier, so the fitted gap is smaller than the true one.
    """
    one, other = np.triu_indices(len(opponents) + 2, k=1)
    meet = (one != BASELINE) | (other != CANDIDATE) | direct

    def shown(gap: float) -> float:
        fitted = tends_to(np.array([[0.0, -gap, *opponents]]), spread, (one[meet], other[meet]))
        return float(POINTS * (fitted[BASELINE] - fitted[CANDIDATE])) - drop

    return float(optimize.brentq(shown, 0.0, 4.0 * drop / POINTS)) if drop else 0.0


def _verdicts(
    quality: Array,
    pairs: list[tuple[int, int]],
    names: list[str],
    n_dimensions: int,
    n_raters: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Judge each pair in each dialogue in both orders, and join the two."""
    one, other = np.array(pairs).T
    gap = quality[:, one] - quality[:, other]
    shape = (n_dimensions, n_raters, *gap.shape)
    first = rng.random(shape) < expit(gap + POSITION)
    second = rng.random(shape) < expit(gap - POSITION)
    dimension, rater, dialogue, pair = (index.ravel() for index in np.indices(shape))
    same = (first == second).ravel()
    verdict = np.where(first.ravel(), "a", "b").astype(object)
    verdict[~same] = None
    label = np.array(names, dtype=object)
    ids = np.array([f"d{number}" for number in range(len(quality))], dtype=object)
    return pd.DataFrame(
        {
            "history_id": ids[dialogue],
            "dialogue_id": ids[dialogue],
            "responder_a": label[one[pair]],
            "responder_b": label[other[pair]],
            "rater": np.array([f"judge {k + 1}" for k in range(n_raters)], dtype=object)[rater],
            "dimension": np.array([f"dimension {k + 1}" for k in range(n_dimensions)], dtype=object)[dimension],
            "verdict": verdict,
            "state": np.where(same, "valid", "inconsistent"),
        }
    )
