"""What the gate leaves behind: a page with figures, a JUnit file for the build, and a summary in Markdown."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from heart_utils.ratings.gate import Comparison, GateError, compare_responders
from heart_utils.ratings.verdicts import combine_orders
from heart_utils.report.figures import mark_simulated, plot_leaderboard
from heart_utils.runs import Run, RunError, find_root, open_run, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "GateError",
    "GateFailedError",
    "GateInconclusiveError",
    "Sides",
    "markdown_summary",
    "plot_drops",
    "read_sides",
    "require_pass",
    "run_gate",
    "write_reports",
]


class GateFailedError(AssertionError):
    """The candidate did not pass. Raised last, after all reports are written, so that the build exits non-zero."""


class GateInconclusiveError(GateFailedError):
    """No dimension failed, but one cannot be told: nobody was told apart, or the judge followed the order."""


@dataclass(frozen=True)
class Sides:
    """Verdicts that put a baseline and a candidate into one fit.

    Attributes
    ----------
    verdicts : pandas.DataFrame
        The table ``verdicts``, with orders combined.
    responders : pandas.DataFrame
        The table ``responders`` for all of them.
    baseline, candidate : str
        What they are called in it; a name that two runs share carries its run.
    note : str
        Where the verdicts come from, in a sentence.
    """

    verdicts: pd.DataFrame
    responders: pd.DataFrame
    baseline: str
    candidate: str
    note: str


def run_gate(
    baseline: str,
    candidate: str,
    *,
    run: str | None = None,
    mode: str = "regression",
    max_drop: float = 25.0,
    alpha: float = 0.05,
    max_inconsistent: float = 0.5,
    dimensions: Sequence[str] | None = None,
    protocol: str | None = None,
    n_resamples: int = 1000,
    rng: np.random.Generator,
) -> Comparison:
    """Read two responders' verdicts and test the candidate against the baseline.

    Parameters
    ----------
    baseline, candidate : str
        A responder of `run`, or ``run:responder``.
    run : str, optional
        The run of a name that carries none.
    mode, max_drop, alpha, max_inconsistent, dimensions, n_resamples, rng
        As in :func:`heart_utils.ratings.gate.compare_responders`.
    protocol : str, optional
        Needed where a run holds verdicts under several.

    Returns
    -------
    Comparison
        Its ``passed`` is the gate's answer.

    Raises
    ------
    GateError
        If the two cannot be compared; see :func:`read_sides`.

    Examples
    --------
    >>> from heart_utils import open_run
    >>> from pathlib import Path
    >>> import tempfile
    >>> from heart_utils.simulate.study import Panel, simulate_study
    >>> strengths, judges = {"old": 0.0, "new": -1.5, "x": 0.4, "y": -0.4}, [Panel("model", 1, 1)]
    >>> study = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=strengths, n_dialogues=30, pairs="all", orders="both", panels=judges
    ... )
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = open_run(Path(folder.name) / "run")
    >>> for name in ("histories", "responders", "replies", "comparisons", "verdicts"):
    ...     written = run.write(name, getattr(study, name))
    >>> run_gate("old", "new", run=str(run.folder), n_resamples=50, rng=np.random.default_rng(1)).passed
    False
    >>> folder.cleanup()
    """
    sides = read_sides(baseline, candidate, run=run, protocol=protocol)
    return compare_responders(
        sides.verdicts,
        baseline=sides.baseline,
        candidate=sides.candidate,
        mode=mode,
        max_drop=max_drop,
        alpha=alpha,
        max_inconsistent=max_inconsistent,
        dimensions=dimensions,
        responders=sides.responders,
        n_resamples=n_resamples,
        rng=rng,
    )


def read_sides(baseline: str, candidate: str, *, run: str | None = None, protocol: str | None = None) -> Sides:
    """Bring the judges' verdicts on two responders into one table, joining two runs if they match.

    Two runs match if they share histories word for word, protocol, and opponents with the same
    replies; that the judges are the same is for the comparison to check. The opponents' verdicts on
    one another are taken once, from the baseline's run.

    Parameters
    ----------
    baseline, candidate : str
        A responder of `run`, or ``run:responder``.
    run : str, optional
        The run of a name that carries none.
    protocol : str, optional
        Needed where a run holds verdicts under several.

    Returns
    -------
    Sides
        Orders combined, people's verdicts left out: the gate speaks of judges.

    Raises
    ------
    GateError
        If a run or a responder is not there, or the runs do not match.

    Examples
    --------
    >>> from heart_utils import open_run
    >>> from pathlib import Path
    >>> import tempfile
    >>> from heart_utils.simulate.study import Panel, simulate_study
    >>> strengths, judges = {"old": 0.0, "new": -1.5, "x": 0.4, "y": -0.4}, [Panel("model", 1, 1)]
    >>> study = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=strengths, n_dialogues=30, pairs="all", orders="both", panels=judges
    ... )
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = open_run(Path(folder.name) / "run")
    >>> for name in ("histories", "responders", "replies", "comparisons", "verdicts"):
    ...     written = run.write(name, getattr(study, name))
    >>> sides = read_sides("old", "new", run=str(run.folder))
    >>> sorted(set(sides.verdicts["responder_a"]) | set(sides.verdicts["responder_b"]))
    ['new', 'old', 'x', 'y']
    >>> folder.cleanup()
    """
    one, other = _parse(baseline, run), _parse(candidate, run)
    if one[0].folder == other[0].folder:
        verdicts = _verdicts(one[0], protocol)
        note = f"Both from the run {one[0].name!r}."
        return Sides(combine_orders(verdicts), one[0].read("responders"), one[1], other[1], note)
    mine, theirs = (_verdicts(side[0], protocol) for side in (one, other))
    for run_, name, verdicts in ((one[0], one[1], mine), (other[0], other[1], theirs)):
        _check_there(run_, name, verdicts)
    opponents = _opponents(mine, one[1]) & _opponents(theirs, other[1])
    if not opponents:
        raise GateError(
            f"{baseline!r} and {candidate!r} met no common opponent: {', '.join(sorted(_opponents(mine, one[1])))} in the run "
            f"{one[0].name!r}, {', '.join(sorted(_opponents(theirs, other[1])))} in {other[0].name!r}."
        )
    mine, theirs = _between(mine, {one[1]}, opponents, field=True), _between(theirs, {other[1]}, opponents, field=False)
    _check_histories(one[0], other[0], mine, theirs)
    _check_replies(one[0], other[0], opponents, sorted(set(mine["history_id"])))
    names = [f"{side[0].name}:{side[1]}" if one[1] == other[1] else side[1] for side in (one, other)]
    theirs = theirs.assign(**{column: other[0].name + ":" + theirs[column] for column in ("comparison_id", "pair_id")})
    tables = [_rename(mine, one[1], names[0]), _rename(theirs, other[1], names[1])]
    note = f"The baseline from the run {one[0].name!r}, the candidate from {other[0].name!r}."
    responders = pd.concat(
        [
            _renamed(one[0].read("responders"), {one[1]: names[0]}, {one[1], *opponents}),
            _renamed(other[0].read("responders"), {other[1]: names[1]}, {other[1]}),
        ],
        ignore_index=True,
    )
    return Sides(combine_orders(pd.concat(tables, ignore_index=True)), responders, names[0], names[1], note)


def require_pass(comparison: Comparison) -> None:
    """End with an error unless the candidate passed; call it last, when the reports are written.

    Parameters
    ----------
    comparison : Comparison
        What :func:`run_gate` gave.

    Raises
    ------
    GateFailedError
        If a dimension failed.
    GateInconclusiveError
        If none failed, but one cannot be told. Papermill ends with the same exit code; the error's name and ``gate.xml``
        tell the two apart.

    Examples
    --------
    >>> from heart_utils.ratings.gate import compare_responders
    >>> import pandas as pd
    >>> rows = [(f"d{i}", "new", "old", "b" if i % 5 else "a") for i in range(40)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "responder_a", "responder_b", "verdict"])
    >>> verdicts = verdicts.assign(history_id=verdicts["dialogue_id"], dimension="overall", rater="judge", state="valid")
    >>> gate = compare_responders(verdicts, baseline="old", candidate="new", rng=np.random.default_rng(1))
    >>> require_pass(gate)
    Traceback (most recent call last):
    heart_utils.report.gate_report.GateFailedError: The gate (regression) stops 'new' against 'old'.
    """
    if comparison.passed:
        return
    said = "; ".join(comparison.table.loc[comparison.table["outcome"] != "passed", "message"])
    sides = f"{comparison.candidate!r} against {comparison.baseline!r}"
    if (comparison.table["outcome"] == "failed").any():
        raise GateFailedError(f"The gate ({comparison.mode}) stops {sides}. {said}")
    raise GateInconclusiveError(f"The gate ({comparison.mode}) is inconclusive on {sides}. {said}")


def _parse(name: str, run: str | None) -> tuple[Run, str]:
    """Tell run and responder apart; a responder's own name may hold a colon."""
    if run is not None and name in _responders(_open(run)):
        return _open(run), name
    head, colon, tail = name.rpartition(":")
    asked = name.partition(":")[0]
    while colon:
        try:
            return open_run(head, create=False), name[len(head) + 1 :]
        except RunError:
            head, colon, tail = head.rpartition(":")
    if run is None and ":" in name:
        there = sorted(folder.name for folder in (find_root() / "runs").glob("*") if folder.is_dir())
        raise GateError(f"{name!r}: there is no run {asked!r}. Runs here: {', '.join(there) or 'none yet'}.")
    if run is None:
        raise GateError(f"{name!r} names no run. Write run:responder, such as 'sample:{name}', or give `run`.")
    known = ", ".join(sorted(_responders(_open(run)))) or "none"
    raise GateError(f"There is no responder {name!r} in the run {run!r} (there are: {known}), and no run before a colon in it.")


def _open(run: str) -> Run:
    try:
        return open_run(run, create=False)
    except RunError as error:
        raise GateError(str(error)) from None


def _responders(run: Run) -> set[str]:
    return set(run.read("responders")["responder"]) if run.has("responders") else set()


def _verdicts(run: Run, protocol: str | None) -> pd.DataFrame:
    """Read the judges' verdicts under one protocol."""
    if not run.has("verdicts"):
        raise GateError(f"The run {run.name!r} has no verdicts; `make collect RUN={run.name}` asks the judges for them.")
    verdicts = run.read("verdicts")
    verdicts = verdicts[verdicts["rater_kind"] == "model"]
    protocols = sorted(verdicts["protocol"].unique())
    if protocol is None and len(protocols) > 1:
        raise GateError(f"The run {run.name!r} holds verdicts under {', '.join(protocols)}; choose one with `protocol`.")
    if protocol is not None:
        verdicts = verdicts[verdicts["protocol"] == protocol]
    if verdicts.empty:
        there = f"; there are {', '.join(protocols)}" if protocols else ""
        raise GateError(f"The run {run.name!r} has no verdicts by a judge{f' under {protocol!r}' if protocol else ''}{there}.")
    return verdicts.reset_index(drop=True)


def _check_there(run: Run, name: str, verdicts: pd.DataFrame) -> None:
    known = sorted(set(verdicts["responder_a"]) | set(verdicts["responder_b"]))
    if name not in known:
        raise GateError(f"The responder {name!r} appears in no verdict of the run {run.name!r}; there are {', '.join(known)}.")


def _opponents(verdicts: pd.DataFrame, name: str) -> set[str]:
    one, other = verdicts["responder_a"], verdicts["responder_b"]
    return (set(other[one == name]) | set(one[other == name])) - {name}


def _between(verdicts: pd.DataFrame, own: set[str], opponents: set[str], *, field: bool) -> pd.DataFrame:
    """Keep verdicts between one's own responder and the opponents, and among opponents where `field` says so."""
    one, other = verdicts["responder_a"], verdicts["responder_b"]
    kept = (one.isin(own) & other.isin(opponents)) | (other.isin(own) & one.isin(opponents))
    if field:
        kept |= one.isin(opponents) & other.isin(opponents)
    return verdicts[kept].reset_index(drop=True)


def _check_histories(one: Run, other: Run, mine: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Refuse runs whose judges read other histories or worked under another protocol."""
    if set(mine["protocol"]) != set(theirs["protocol"]):
        raise GateError(
            f"The runs follow other protocols: {', '.join(sorted(set(mine['protocol'])))} in {one.name!r}, "
            f"{', '.join(sorted(set(theirs['protocol'])))} in {other.name!r}. Judge the candidate under the baseline's."
        )
    ids = [set(table["history_id"]) for table in (mine, theirs)]
    if ids[0] != ids[1]:
        raise GateError(
            f"The runs judge other histories: {len(ids[0] & ids[1])} in common, {len(ids[0] - ids[1])} in {one.name!r} alone, "
            f"{len(ids[1] - ids[0])} in {other.name!r} alone. Let the candidate answer the baseline's histories."
        )
    turns = [run.read("histories").set_index("history_id")["turns"] for run in (one, other)]
    changed = [name for name in sorted(ids[0]) if _words(turns[0][name]) != _words(turns[1][name])]
    if changed:
        raise GateError(
            f"{len(changed)} histories have the same id but other words in the two runs, such as {changed[0]!r}. "
            f"A comparison needs the same conversations."
        )


def _words(turns: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(turn["speaker"], turn["text"]) for turn in turns]


def _check_replies(one: Run, other: Run, opponents: set[str], histories: list[str]) -> None:
    """Refuse opponents that wrote other replies in the two runs: they would be two opponents under one name."""
    texts = []
    for run in (one, other):
        replies = run.read("replies")
        replies = replies[replies["responder"].isin(opponents) & replies["history_id"].isin(histories)]
        groups = replies.assign(text=replies["text"].fillna("")).groupby(["responder", "history_id"])["text"]
        texts.append(groups.agg(lambda written: "\n".join(sorted(written))))
    shared = texts[0].index.intersection(texts[1].index)
    differ = shared[(texts[0].loc[shared] != texts[1].loc[shared]).to_numpy()]
    if len(differ):
        responder, history = differ[0]
        raise GateError(
            f"The opponents wrote {len(differ)} other replies in {other.name!r} than in {one.name!r} (such as {responder!r} to "
            f"{history!r}). Judge the candidate against the replies that the baseline met."
        )


def _rename(verdicts: pd.DataFrame, old: str, new: str) -> pd.DataFrame:
    columns = ["responder_a", "responder_b"]
    return verdicts.assign(**{column: verdicts[column].where(verdicts[column] != old, new) for column in columns})


def _renamed(responders: pd.DataFrame, names: dict[str, str], kept: set[str]) -> pd.DataFrame:
    return responders[responders["responder"].isin(kept)].replace({"responder": names})


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
    >>> from heart_utils.ratings.gate import compare_responders
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
    """Put the outcome into JUnit XML: one test case a dimension, a failure or an error where it did not pass."""
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
    >>> from heart_utils.ratings.gate import compare_responders
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
    >>> from heart_utils.ratings.gate import compare_responders
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
