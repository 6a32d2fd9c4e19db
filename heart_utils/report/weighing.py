"""Weights under the reader's hand: a slider a dimension, and the ranking that follows, offline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape

import pandas as pd

from heart_utils.ratings.scores import weigh_scores
from heart_utils.report.conversation import Reading

__all__ = ["weigh_by_hand"]

SCRIPT = """
for (const box of document.querySelectorAll(".heart-weights")) {
  const body = box.querySelector("tbody"), said = box.querySelector(".said"), sliders = [...box.querySelectorAll("input")];
  const rank = () => {
    const steps = sliders.map((slider) => Number(slider.value)), sum = steps.reduce((one, other) => one + other, 0);
    sliders.forEach((slider, place) => {
      const share = sum ? Math.round(100 * steps[place] / sum) + " %" : "none";
      slider.nextElementSibling.textContent = share;
      slider.setAttribute("aria-valuetext", share);
    });
    if (!sum) {
      said.textContent = "No dimension has a weight: move a slider.";
      return;
    }
    const rows = [...body.rows].map((row) => {
      const scores = JSON.parse(row.dataset.scores);
      return { row, name: row.dataset.name, score: scores.reduce((all, one, place) => all + one * steps[place], 0) / sum };
    });
    rows.sort((one, other) => other.score - one.score || (one.name < other.name ? -1 : 1));
    rows.forEach(({ row, score }) => {
      row.cells[0].textContent = 1 + rows.filter((other) => other.score > score + 1e-12).length;
      row.cells[2].textContent = score.toFixed(2);
    });
    body.append(...rows.map(({ row }) => row));
    said.textContent = "Ranking: " + rows.slice(0, 3).map(({ row, name }) => row.cells[0].textContent + " " + name).join(", ")
      + (rows.length > 3 ? " and " + (rows.length - 3) + " more." : ".");
  };
  for (const slider of sliders) slider.addEventListener("input", rank);
  for (const button of box.querySelectorAll("button")) button.addEventListener("click", () => {
    const weights = JSON.parse(button.dataset.weights);
    sliders.forEach((slider) => { slider.value = weights[slider.name]; });
    rank();
  });
  box.classList.add("live");
  rank();
}
"""

STYLE = """
.heart-weights { max-width: 46rem; margin: 1rem 0; padding: .8rem 1rem; border: 1px solid var(--pst-color-border, #767676); }
.heart-weights:not(.live) .only-live { display: none; }
.heart-weights fieldset { border: 0; padding: 0; margin: 0 0 .5rem; min-width: 0; }
.heart-weights legend { font-size: 1rem; font-weight: 600; }
.heart-weights label { display: grid; grid-template-columns: 9rem minmax(4rem, 1fr) 3.5rem; gap: .5rem; align-items: center; }
.heart-weights input { min-width: 0; width: 100%; }
.heart-weights button { padding: .2rem .7rem; margin: .3rem .3rem 0 0; }
.heart-weights td:last-child, .heart-weights th:last-child { text-align: right; }
.heart-weights th, .heart-weights td { padding: .15rem .7rem; text-align: left; overflow-wrap: normal; }
.heart-weights .simulated { background: #fff1e0; color: #8a3b00; padding: 0 .3rem; font-weight: 700; }
@media (max-width: 30rem) { .heart-weights label { grid-template-columns: 8.2rem minmax(2rem, 1fr) 2.6rem; gap: .3rem; } }
"""


def weigh_by_hand(
    means: pd.DataFrame, profiles: Mapping[str, Mapping[str, float]], *, scale: str, simulated: bool = False
) -> Reading:
    """Make sliders for the weights of dimensions beside the ranking that they give.

    Parameters
    ----------
    means : pandas.DataFrame
        One row per responder and dimension: ``responder``, ``dimension``, ``score``.
    profiles : mapping of str to mapping of str to float
        Name -> weights with the sum 1; each becomes a button that sets the sliders to whole hundredths.
    scale : str
        What the scores are.
    simulated : bool
        Whether any score was simulated; it is then said beside the ranking.

    Returns
    -------
    Reading
        HTML with its own script. It opens with equal weights, and without scripts it shows that ranking.

    Raises
    ------
    heart_utils.ratings.scores.ScaleError
        If a responder lacks a dimension, or a profile's weights lack the sum 1 or name what nobody scored.

    Examples
    --------
    >>> means = pd.DataFrame({"responder": ["a", "a", "b", "b"], "dimension": ["safety", "warmth"] * 2, "score": [5, 1, 3, 4]})
    >>> "<td>1</td><td>b</td><td>3.50</td>" in weigh_by_hand(means, {}, scale="1 to 5")._repr_html_()
    True
    """
    dimensions = list(dict.fromkeys(means["dimension"]))
    ranking = weigh_scores(means, {name: 1 / len(dimensions) for name in dimensions})
    wide = means.pivot_table("score", "responder", "dimension")[dimensions]
    scores = dict(zip(wide.index, wide.to_numpy().tolist(), strict=True))
    sliders = "".join(
        f'<label>{escape(name)}<input type="range" name="{escape(name)}" min="0" max="100" value="50" '
        f'autocomplete="off"><span></span></label>'
        for name in dimensions
    )
    choices = {"equal weights": dict.fromkeys(dimensions, 50)}
    for name, weights in profiles.items():
        weigh_scores(means, weights)  # refuses weights that lack the sum 1 or fit no dimension
        choices[name] = {dimension: round(100 * weights.get(dimension, 0)) for dimension in dimensions}
    buttons = "".join(
        f'<button type="button" data-weights="{escape(json.dumps(steps))}">{escape(name)}</button>'
        for name, steps in choices.items()
    )
    rows = "".join(
        f'<tr data-name="{escape(str(row["responder"]))}" data-scores="{json.dumps(scores[row["responder"]])}">'
        f"<td>{row['rank']}</td><td>{escape(str(row['responder']))}</td><td>{row['score']:.2f}</td></tr>"
        for row in ranking.to_dict("records")
    )
    caption = f"{escape(scale)}; it opens with equal weights"
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Rank", "Written by", "Weighted score"))
    mark = '<p><span class="simulated">SIMULATED: nobody gave these scores.</span></p>' if simulated else ""
    return Reading(
        '<section class="heart-weights mathjax_ignore" aria-label="Ranking under your own weights">'
        f'<style>{STYLE}</style>{mark}<fieldset class="only-live"><legend>Weight of each dimension</legend>{sliders}{buttons}'
        '</fieldset><p class="said only-live" aria-live="polite"></p>'
        f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<script>{SCRIPT}</script></section>"
    )
