"""How many histories a conjoint of rewritten replies needs, and coverage: simulated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit

from heart_collect.judging.design import profile_features, rewrite_replies
from heart_utils.judges.position import fit_logistic
from tools.bench import Figure

N, LABELS = 4, ("expert", "person", "ai")  # rewritings a history, all pairs of them in both orders
# log-odds: of a reply, of an effect between histories, towards the first side
SD_REPLY, SD_EFFECT, LEAN = 0.5, 0.5, 1.0
TRUTH = np.array([0.4, 0.5, 0.6, 0.7, 0.6, 0.5])
"""Shares won by a reply with the feature against itself without it, two of them labels."""
SIZES = (12, 24, 50, 100, 200)
ONE, OTHER = np.triu_indices(N, 1)


def run(quick: bool) -> Iterator[Figure]:
    """Yield power at ten points, coverage and bias in percent; every verdict here is simulated."""
    n_studies = 20 if quick else 300
    effects = log_odds()
    for n in SIZES:
        rng = np.random.default_rng([20260109, n])
        studies = [study(gaps, effects, rng) for gaps in designs(n) for _ in range(n_studies // 10)]
        share, low, high = np.moveaxis(np.array(studies), 2, 0)
        away, held = (low > 0.5) | (high < 0.5), 100.0 * ((low <= TRUTH) & (high >= TRUTH))
        for what, columns, enough in (("feature", [0, 2], 50), ("label", [4], 100)):
            power, error = _percent(100.0 * away[:, columns])
            met = None if n < enough else power >= 80.0 - 2.0 * error * quick
            yield Figure(
                f"{n} histories: power, {what}",
                power,
                "%",
                f"at least 80 % from {enough}",
                met,
                f"+-{error:.1f}",
            )
        coverage, error = _percent(held)
        met = coverage >= 93.0 - 2.0 * error * quick
        yield Figure(
            f"{n} histories: coverage", coverage, "%", "at least 93 %", met, f"+-{error:.1f}"
        )
        false, error = _percent(100.0 * away[:, [1, 5]])
        met = false <= 7.0 + 2.0 * error * quick
        yield Figure(
            f"{n} histories: false alarms", false, "%", "at most 7 %", met, f"+-{error:.1f}"
        )
        bias = float(100.0 * np.abs(share.mean(axis=0) - TRUTH).max())
        yield Figure(
            f"{n} histories: largest bias", bias, "points", "at most 2", bias <= 2.0 + 3.0 * quick
        )


def log_odds() -> np.ndarray:
    """Compute the mean effects that produce the shares of :data:`TRUTH`.

    The mean is over histories, replies and both orders.
    """
    spread = np.sqrt(2.0 * SD_REPLY**2 + SD_EFFECT**2) * np.random.default_rng(0).normal(
        size=100_000
    )

    def share(effect: float) -> float:
        return float(np.mean(expit(effect + spread + LEAN) + expit(effect + spread - LEAN)) / 2.0)

    return np.array(
        [brentq(lambda effect, truth=truth: share(effect) - truth, -5.0, 5.0) for truth in TRUTH]
    )


def designs(n: int) -> Iterator[np.ndarray]:
    """Rewrite `n` replies of two sentences ten times, and yield differences of features.

    The shape is (histories, pairs, features).
    """
    given: dict[str, object] = {
        "responder": "given",
        "text": "One. Two.",
        "state": "valid",
        "simulated": True,
    }
    given |= dict.fromkeys(["author_id", "call_id", "ttft_ms", "total_ms", "typing_ms", "cost_usd"])
    given |= dict.fromkeys(["prompt_tokens", "completion_tokens"])
    rows = [{"reply_id": f"r{i}", "history_id": f"h{i}", "flags": [], **given} for i in range(n)]
    for seed in range(10):
        features = profile_features(
            rewrite_replies(pd.DataFrame(rows), N, labels=LABELS, seed=seed)
        )
        by_history = features.to_numpy().reshape(n, N, len(TRUTH))
        yield by_history[:, ONE] - by_history[:, OTHER]


def study(gaps: np.ndarray, effects: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one verdict a pair and order, and give share, low and high of each feature."""
    n = len(gaps)
    own = effects + SD_EFFECT * rng.normal(size=(n, 1, len(effects)))
    reply = SD_REPLY * rng.normal(size=(n, N))
    lead = (gaps * own).sum(axis=2) + reply[:, ONE] - reply[:, OTHER]
    won = (
        sum((rng.random(lead.shape) < expit(lead + lean)).astype(float) for lean in (LEAN, -LEAN))
        / 2.0
    )
    fit, missing = fit_logistic(
        gaps.reshape(-1, len(effects)),
        won.ravel(),
        pd.Series(np.repeat(np.arange(n), len(ONE))),
        0.95,
    )
    if missing:
        raise ValueError(f"A simulated study has no estimate: {missing}.")
    return np.asarray(expit(fit[["log_odds", "ci_low", "ci_high"]].to_numpy()))


def _percent(by_study: np.ndarray) -> tuple[float, float]:
    """Compute a mean over studies and columns with its Monte Carlo error."""
    each = by_study.mean(axis=1)
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))
