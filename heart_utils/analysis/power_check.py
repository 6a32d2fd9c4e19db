"""Whether a design finds the gap that the calculation promises it finds: by drawing its studies."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import optimize

from heart_utils.analysis.bradley_terry import BradleyTerry
from heart_utils.analysis.coverage import draw_study, tends_to
from heart_utils.analysis.power import Design, critical_value
from heart_utils.analysis.sandwich import FEW_RATERS, one_way, two_way

__all__ = ["simulate_power"]

OTHERS = 0.6
"""The other responders lie from minus this to this, in a dialogue's log-odds."""


def simulate_power(
    design: Design,
    gap: float,
    *,
    rng: np.random.Generator,
    n_studies: int = 200,
    ci_level: float = 0.95,
    n_contrasts: int | None = None,
) -> pd.DataFrame:
    """Draw studies in which two responders lie a gap apart, and note in which it is found.

    The gap is on the scale of the fit, as in :func:`heart_utils.analysis.power.minimum_gap`. It is found
    if the interval of the difference leaves out zero on the right side: a sandwich over dialogues and
    raters, or over dialogues alone where raters do not differ or are fewer than 20 and so fixed.

    Parameters
    ----------
    design : Design
        Ties follow Davidson's model.
    gap : float
        In units of strength, above zero.
    rng : numpy.random.Generator
        The source of chance.
    n_studies : int
        How many.
    ci_level : float
        Such as 0.95.
    n_contrasts : int, optional
        As in :func:`heart_utils.analysis.power.minimum_gap`.

    Returns
    -------
    pandas.DataFrame
        One row a study: ``estimate``, ``se``, ``found``, ``simulated``. The share found estimates the power.

    Raises
    ------
    ValueError
        If the gap is not above zero.

    Examples
    --------
    >>> from heart_utils.analysis.power import Design
    >>> design = Design(n_dialogues=60, n_responders=4, pairs=6, votes=3, n_raters=40)
    >>> bool(simulate_power(design, 1.5, rng=np.random.default_rng(1), n_studies=5)["found"].all())
    True
    """
    if not gap > 0:
        raise ValueError(f"gap is {gap}; expected a gap above zero.")
    pairs = np.triu_indices(design.n_responders, k=1)
    others = (
        np.linspace(-OTHERS, OTHERS, design.n_responders - 2) if design.n_responders > 3 else np.zeros(design.n_responders - 2)
    )
    spread, ties = float(np.hypot(design.dialogue_sd, design.rater_sd)), design.ties

    def placed(apart: float) -> np.ndarray:
        return np.concatenate([[apart / 2.0, -apart / 2.0], others])

    def shown(apart: float) -> float:
        fitted = tends_to(placed(apart)[None], spread, pairs, ties)
        return float(fitted[0] - fitted[1]) - gap

    theta = placed(float(optimize.brentq(shown, 0.0, 4.0 * gap * (1.0 + spread))))
    varying = design.rater_sd > 0 and design.n_raters >= FEW_RATERS
    fewest = min(design.n_dialogues, design.n_raters) if varying else design.n_dialogues
    reach = critical_value(design.n_responders, fewest - 1, ci_level=ci_level, n_contrasts=n_contrasts)
    rows = []
    for _ in range(n_studies):
        tastes = rng.normal(0.0, design.rater_sd, (design.n_raters, design.n_responders))
        entries, rater = draw_study(design, rng, theta, tastes, pairs)
        model = BradleyTerry.fit(entries, "pairs")
        covariance = two_way(model, rater, design.n_raters) if varying else one_way(model)
        se = np.sqrt(max(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1], 0.0))
        estimate = model.theta[0] - model.theta[1]
        rows.append({"estimate": estimate, "se": se, "found": estimate > reach * se})
    return pd.DataFrame(rows).assign(simulated=True)
