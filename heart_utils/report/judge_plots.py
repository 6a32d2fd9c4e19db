"""Figures of what a judge adds to people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from heart_utils.report.estimates import plot_estimates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_powered"]

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
        The ``table`` that :func:`heart_utils.analysis.prediction_powered.prediction_powered_ratings` gives.
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
