"""What the gate leaves behind: a page with figures, a JUnit file for the build, and a summary in Markdown."""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pandas as pd

from heart_utils.analysis.drops import Comparison
from heart_utils.report.plots import mark_simulated, plot_leaderboard
from heart_utils.runs import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["junit_xml", "markdown_summary", "plot_drops", "write_reports"]

QUESTION = {
    "regression": "Is the candidate worse than its baseline?",
    "non-inferiority": "Is the candidate shown not to be worse by the margin?",
}
COLOURS = {"passed": "#0173b2", "failed": "#d55e00", "cannot tell": "#949494"}
RELEASES = 8  # in a series that one report speaks of
MARKS = {"passed": "o", "failed": "X", "cannot tell": "s"}


def write_reports(comparison: Comparison, folder: Path, *, note: str = "") -> list[Path]:
    """Write ``gate.html``, ``gate.xml`` and ``gate.md``, each whole or not at all.

    Parameters
    ----------
    comparison : Comparison
        What the gate found.
    folder : pathlib.Path
        Made if need be.
    note : str
        Where the verdicts come from.

    Returns
    -------
    list of pathlib.Path
        The three files.

    Examples
    --------
    >>> import numpy as np
    >>> import tempfile
    >>> from heart_utils.analysis.drops import compare_responders
    >>> rows = [(f"d{i}", "new", "old", "b" if i % 5 else "a") for i in range(40)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    >>> verdicts = verdicts.assign(history_id=verdicts["dialogue_id"], dimension="overall", rater="judge", state="valid")
    >>> gate = compare_responders(verdicts, baseline="old", candidate="new", rng=np.random.default_rng(1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in write_reports(gate, Path(folder))]
    ...
    ['gate.html', 'gate.xml', 'gate.md']
    """
    contents = {
        "gate.html": _page(comparison, note),
        "gate.xml": junit_xml(comparison),
        "gate.md": markdown_summary(comparison, note=note),
    }
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    return [folder / name for name in contents]


def junit_xml(comparison: Comparison) -> str:
    """Put the outcome into JUnit XML: one test case a dimension, a failure where it failed, an error where none can be told.

    Parameters
    ----------
    comparison : Comparison
        What the gate found.

    Returns
    -------
    str
        A document with one ``testsuite``.

    Examples
    --------
    >>> from xml.etree import ElementTree
    >>> import numpy as np
    >>> from heart_utils.analysis.drops import compare_responders
    >>> rows = [(f"d{i}", "new", "old", "b" if i % 5 else "a") for i in range(40)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    >>> verdicts = verdicts.assign(history_id=verdicts["dialogue_id"], dimension="overall", rater="judge", state="valid")
    >>> gate = compare_responders(verdicts, baseline="old", candidate="new", rng=np.random.default_rng(1))
    >>> ElementTree.fromstring(junit_xml(gate).encode()).attrib["failures"]
    '1'
    """
    table = comparison.table
    suite = ElementTree.Element(
        "testsuite",
        name=f"regression gate ({comparison.mode})",
        tests=str(len(table)),
        failures=str((table["outcome"] == "failed").sum()),
        errors=str((table["outcome"] == "cannot tell").sum()),
        skipped="0",
    )
    for row in table.itertuples():
        name = f"{comparison.candidate} against {comparison.baseline}: {row.dimension}"
        case = ElementTree.SubElement(suite, "testcase", classname=f"gate.{comparison.mode}", name=name)
        if row.outcome != "passed":
            kind = "failure" if row.outcome == "failed" else "error"
            ElementTree.SubElement(case, kind, message=str(row.message), type=comparison.mode).text = str(row.message)
        ElementTree.SubElement(case, "system-out").text = str(row.message)
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def markdown_summary(comparison: Comparison, *, note: str = "") -> str:
    """Sum the gate up for the page of a build or a pull request.

    Parameters
    ----------
    comparison : Comparison
        What the gate found.
    note : str
        Where the verdicts come from.

    Returns
    -------
    str
        Markdown with one table.

    Examples
    --------
    >>> import numpy as np
    >>> from heart_utils.analysis.drops import compare_responders
    >>> rows = [(f"d{i}", "new", "old", "b" if i % 5 else "a") for i in range(40)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    >>> verdicts = verdicts.assign(history_id=verdicts["dialogue_id"], dimension="overall", rater="judge", state="valid")
    >>> gate = compare_responders(verdicts, baseline="old", candidate="new", rng=np.random.default_rng(1))
    >>> print(markdown_summary(gate).splitlines()[0])
    ## new did not pass against old
    """
    lines = [f"## {_verdict(comparison)}", "", f"{_setting(comparison)} {note}".strip(), ""]
    lines += ["| dimension | drop (points) | bounds | p (Holm) | dialogues | failed answers | outcome |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for row in comparison.table.itertuples():
        cells = [
            row.dimension,
            _number(row.drop),
            _bounds(row),
            _number(row.p_holm, 3),
            row.n_dialogues,
            row.n_failed,
            row.outcome,
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    lines += ["", *(f"- {str(message)}" for message in comparison.table["message"]), ""]
    return "\n".join(lines)


def plot_drops(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Draw the drop on each dimension between its two one-sided bounds.

    Parameters
    ----------
    comparison : Comparison
        What the gate found.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        Right of the solid line is worse than the baseline.

    Examples
    --------
    >>> import numpy as np
    >>> from heart_utils.analysis.drops import compare_responders
    >>> rows = [(f"d{i}", "new", "old", "b" if i % 5 else "a") for i in range(40)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    >>> verdicts = verdicts.assign(history_id=verdicts["dialogue_id"], dimension="overall", rater="judge", state="valid")
    >>> gate = compare_responders(verdicts, baseline="old", candidate="new", rng=np.random.default_rng(1))
    >>> plot_drops(gate).get_xlabel()
    "Drop in rating points (right: worse); bars: one-sided 95% bounds or Holm's, over dialogues"
    """
    import matplotlib.pyplot as plt

    table = comparison.table.iloc[::-1].reset_index(drop=True)
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 1.2 + 0.4 * len(table)), layout="constrained")
    for outcome, rows in table.groupby("outcome"):
        colour, mark = COLOURS[str(outcome)], MARKS[str(outcome)]
        ax.hlines(rows.index, rows["drop_low"], rows["drop_high"], color=colour)
        ax.plot(rows["drop"], rows.index, mark, color=colour, label=outcome)
    for row in table.index[table["drop"].isna()]:  # a drop that nobody knows is not a drop of zero
        ax.text(0.5, row, "no estimate", ha="center", va="center", color="0.35", transform=ax.get_yaxis_transform())
    ax.axvline(0, color="black", linewidth=1)
    if comparison.mode == "non-inferiority":
        ax.axvline(comparison.max_drop, color="black", linewidth=1, linestyle="--", label="margin")
    level = 100 * (1 - comparison.alpha)
    ax.set(yticks=table.index, yticklabels=table["dimension"], ylim=(-0.6, len(table) - 0.4))
    ax.set_xlabel(f"Drop in rating points (right: worse); bars: one-sided {level:g}% bounds or Holm's, over dialogues")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    if len(comparison.ratings):
        mark_simulated(ax, comparison.ratings)
    return ax


def _page(comparison: Comparison, note: str) -> str:
    """Put everything on one page that needs no other file."""
    table = comparison.table
    rows = "".join(
        f"<tr><td>{html.escape(str(row.dimension))}</td><td>{_number(row.drop)}</td><td>{_bounds(row)}</td>"
        f"<td>{_number(row.p_holm, 3)}</td><td>{row.n_dialogues}</td><td>{row.n_verdicts}</td><td>{row.n_failed}</td>"
        f"<td class='{str(row.outcome).replace(' ', '-')}'>{row.outcome}</td></tr>"
        for row in table.itertuples()
    )
    said = "".join(f"<li>{html.escape(str(message))}</li>" for message in table["message"])
    simulated = bool(len(comparison.ratings)) and bool(comparison.ratings["simulated"].any())
    banner = "<p><strong>Simulated: these verdicts were drawn by a program.</strong></p>" if simulated else ""
    title = html.escape(_verdict(comparison))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
body {{ color: #222; background: #fff }}
table {{ border-collapse: collapse }} td, th {{ padding: .25rem .75rem; border-bottom: 1px solid #ddd; text-align: right }}
td:first-child, th:first-child, td:last-child {{ text-align: left }} svg {{ max-width: 100%; height: auto }}
.failed {{ color: #a33f00; font-weight: bold }} .passed {{ color: #01568a }} .cannot-tell {{ color: #555; font-style: italic }}
</style></head><body>
<h1>{title}</h1>{banner}
<p>{html.escape(_setting(comparison))} {html.escape(note)}</p>
<figure>{_figure(comparison)}<figcaption>{html.escape(_alt(comparison))}</figcaption></figure>
<table><thead><tr><th>dimension</th><th>drop</th><th>bounds</th><th>p (Holm)</th><th>dialogues</th><th>verdicts</th>
<th>failed answers</th><th>outcome</th></tr></thead><tbody>{rows}</tbody></table>
<ul>{said}</ul>
</body></html>
"""


def _figure(comparison: Comparison) -> str:
    """Draw both panels as one SVG."""
    import matplotlib.pyplot as plt

    n = [len(comparison.table), comparison.ratings["responder"].nunique() if len(comparison.ratings) else 0]
    heights = [1 + 0.4 * count for count in n if count]
    figure, axes = plt.subplots(
        len(heights), figsize=(9, 1 + sum(heights)), height_ratios=heights, layout="constrained", squeeze=False
    )
    plot_drops(comparison, ax=axes[0, 0])
    if n[1]:
        board = comparison.ratings[comparison.ratings["dimension"] == comparison.ratings["dimension"].iloc[0]]
        plot_leaderboard(board, title=f"Everyone who was met, on {board['dimension'].iloc[0]}", ax=axes[1, 0])
    drawn = io.StringIO()
    with plt.rc_context({"svg.hashsalt": "gate"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    svg = drawn.getvalue()
    label = html.escape(_alt(comparison), quote=True)
    return svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _verdict(comparison: Comparison) -> str:
    word = "passed" if comparison.passed else "did not pass"
    return f"{comparison.candidate} {word} against {comparison.baseline}"


def _setting(comparison: Comparison) -> str:
    margin = f" Margin: {comparison.max_drop:g} rating points." if comparison.mode == "non-inferiority" else ""
    error = {"regression": "equal candidates is stopped", "non-inferiority": "candidates worse by the margin passes"}
    series = 1 - (1 - comparison.alpha) ** RELEASES  # no more than this, since runs that share a baseline share its luck
    return (
        f"{QUESTION[comparison.mode]} Mode: {comparison.mode}, one-sided error rate {comparison.alpha:g} for this run.{margin} "
        f"If {RELEASES} runs use one baseline, at least one of {RELEASES} {error[comparison.mode]} with a probability of up to "
        f"{series:.0%}."
    )


def _alt(comparison: Comparison) -> str:
    counts = comparison.table["outcome"].value_counts()
    said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in COLOURS if outcome in counts)
    worst = comparison.table["drop"].max()
    largest = f"; the largest drop is {worst:.1f} points" if pd.notna(worst) else ""
    return f"Drop by dimension and ratings of all who were met: {said}{largest}."


def _number(value: Any, digits: int = 1) -> str:
    return "n/a" if pd.isna(value) else f"{value:.{digits}f}"


def _bounds(row: object) -> str:
    low, high = getattr(row, "drop_low", None), getattr(row, "drop_high", None)
    return f"{_number(low)} to {_number(high)}"
