"""Figures of what a judge adds to people, and of faults that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from heart_utils.report.estimates import plot_estimates
from heart_utils.report.figures import interval_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_powered", "plot_recovered"]

KINDS = {
    "people alone": ("people_strength", "people_low", "people_high"),
    "with the judge": ("strength", "ci_low", "ci_high"),
    "the judge alone": ("judge_strength", None, None),
}


def plot_powered(table: pd.DataFrame, *, simulated: bool = False, ax: Axes | None = None) -> Axes:
    """Draw strengths from people alone, sharpened by a judge, and from the judge alone.

    Parameters
    ----------
    table : pandas.DataFrame
        The ``table`` that :func:`heart_utils.agreement.prediction_powered.prediction_powered_ratings` gives.
    simulated : bool
        Whether the figure says SIMULATED across its face.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. The judge alone has no interval: it does not speak of people.

    Examples
    --------
    >>> table = pd.DataFrame({"responder": ["x", "y"], "strength": [0.5, -0.5], "ci_low": [0.3, -0.7], "ci_high": [0.7, -0.3],
    ...     "ci_level": 0.95, "people_strength": [0.4, -0.4], "people_low": [0.1, -0.7], "people_high": [0.7, -0.1],
    ...     "judge_strength": [2.0, -2.0]})
    >>> plot_powered(table).get_legend_handles_labels()[1]
    ['people alone', 'with the judge', 'the judge alone']
    """
    parts = [
        pd.DataFrame(
            {
                "responder": table["responder"],
                "kind": kind,
                "theta": table[value],
                "theta_low": table[low] if low else np.nan,
                "theta_high": table[high] if high else np.nan,
            }
        )
        for kind, (value, low, high) in KINDS.items()
    ]
    said = f"Strength (log-odds, mean 0); bars: {table['ci_level'].max():.0%} interval over dialogues like these"
    return plot_estimates(
        pd.concat(parts), value="theta", label="responder", by="kind", xlabel=said, simulated=simulated, ax=ax
    )


def plot_recovered(recovered: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the faults planted in simulated judges beside what was found of them.

    Parameters
    ----------
    recovered : pandas.DataFrame
        From :func:`heart_utils.simulate.faulty_judge.recover_faults`; the rows that are shares.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, marked as simulated.

    Examples
    --------
    >>> found = pd.DataFrame({"measure": ["ties"], "planted": [0.2], "found": [0.22], "ci_low": [0.18], "ci_high": [0.26],
    ...     "ci_level": 0.95})
    >>> plot_recovered(found).get_legend_handles_labels()[1]
    ['found', 'planted']
    """
    planted = {"value": recovered["planted"], "ci_low": recovered["planted"], "ci_high": recovered["planted"]}
    rows = pd.concat([recovered.assign(value=recovered["found"], which="found"), recovered.assign(**planted, which="planted")])
    said = f"Share; bars: {interval_words(recovered)}s over dialogues"
    return plot_estimates(
        rows, value="value", label="measure", by="which", low="ci_low", high="ci_high", xlabel=said, simulated=True, ax=ax
    )
