"""The gate for builds: two sides brought together, the command ``heart-gate``, and the reports that it leaves behind."""

from __future__ import annotations

import argparse
import html
import io
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from markupsafe import Markup

from heart_utils.gate import MODES, Comparison, GateError, compare_anytime, compare_responders
from heart_utils.ratings.verdicts import combine_orders
from heart_utils.report import WORDS
from heart_utils.report.conversation import fill_page
from heart_utils.report.figures import COLOURS, plot_intervals, plot_leaderboard
from heart_utils.runs import Run, RunError, find_home, open_run, write_atomically
from heart_utils.sources.files import SUFFIXES, read_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "GateError",
    "GateFailedError",
    "GateInconclusiveError",
    "Sides",
    "read_sides",
    "require_pass",
    "write_reports",
]


SIDES = ["responder_a", "responder_b"]


@dataclass(frozen=True)
class VoteFile:
    """A file of verdicts, read like a run that has no other table."""

    name: str
    folder: Path
    verdicts: pd.DataFrame

    def has(self, table: str) -> bool:
        """Tell whether there is such a table."""
        return table in ("verdicts", "responders")

    def read(self, table: str) -> pd.DataFrame:
        """Give the verdicts, or who is in them: whether a person or a model wrote is not known."""
        if table == "verdicts":
            return self.verdicts
        names = sorted({*self.verdicts["responder_a"], *self.verdicts["responder_b"]})
        simulated = bool(self.verdicts["simulated"].any())
        return pd.DataFrame({"responder": names, "responder_kind": "source", "simulated": simulated})


Place = Run | VoteFile


class GateFailedError(AssertionError):
    """The candidate did not pass. Raised last, after all reports are written, so that the build exits non-zero."""


class GateInconclusiveError(GateFailedError):
    """No dimension failed, but one cannot be told: nobody was told apart, or the judge followed the order."""


@dataclass(frozen=True)
class Sides:
    """Verdicts that put a baseline and a candidate into one fit.

    ``verdicts`` have their orders combined, ``responders`` is the table for all of them, a name that two runs share carries its
    run, and ``note`` says where the verdicts come from.
    """

    verdicts: pd.DataFrame
    responders: pd.DataFrame
    baseline: str
    candidate: str
    note: str

    def compare(self, **options: Any) -> Comparison:
        """Test the candidate against the baseline, with the options of :func:`heart_utils.gate.compare_responders`."""
        sides: dict[str, Any] = {"baseline": self.baseline, "candidate": self.candidate, "responders": self.responders}
        return compare_responders(self.verdicts, **sides, **options)


def read_sides(baseline: str, candidate: str, *, run: str | None = None, protocol: str | None = None) -> Sides:
    """Bring the judges' verdicts on two responders into one table, joining two runs if they match.

    Two runs match if their histories are the same word for word, and their opponents' replies; that histories, judges and
    protocol are the same on both sides is for the comparison to check. The opponents' verdicts on one another are taken
    once, from the baseline's run.

    Parameters
    ----------
    baseline, candidate : str
        A responder of `run`, or ``run:responder``. A file of votes may stand in place of a run, as in ``votes.csv:new``;
        of two files that differ in one responder each, ``old.csv`` and ``new.csv`` are enough.
    run : str, optional
        The run of a name that carries none.
    protocol : str, optional
        Needed where a run holds verdicts under several.

    Returns
    -------
    Sides
        Orders combined, people's verdicts left out: the gate is about judges.

    Raises
    ------
    GateError
        If a run or a responder is not there, or the runs do not match.

    Examples
    --------
    >>> read_sides("old", "new", run="nowhere")
    Traceback (most recent call last):
    heart_utils.gate.GateError: There is no run 'nowhere'.
    """
    one, other = _name_both(_parse(baseline, run), _parse(candidate, run))
    if one[0].folder == other[0].folder:
        verdicts = _verdicts(one[0], protocol)
        note = f"Both from {_where(one[0])}.{_alike(one, other)}"
        return Sides(combine_orders(verdicts), one[0].read("responders"), one[1], other[1], note)
    mine, theirs = (_verdicts(side[0], protocol) for side in (one, other))
    for (place, name), verdicts in ((one, mine), (other, theirs)):
        if name not in (known := sorted({*verdicts["responder_a"], *verdicts["responder_b"]})):
            raise GateError(f"The responder {name!r} appears in no verdict of {_where(place)}; there are {', '.join(known)}.")
    if mine.equals(theirs):
        raise GateError(
            f"{_where(one[0])} and {_where(other[0])} hold the same verdicts, row for row: no candidate was judged."
        )
    met = [_opponents(mine, one[1]), _opponents(theirs, other[1])]
    opponents = met[0] & met[1]
    if not opponents:
        said = [f"{', '.join(sorted(who))} in {_where(side[0])}" for who, side in zip(met, (one, other), strict=True)]
        raise GateError(f"{baseline!r} and {candidate!r} met no common opponent: {', '.join(said)}.")
    mine = mine[mine[SIDES].isin({one[1], *opponents}).all(axis=1)].reset_index(drop=True)
    met_in_both = theirs[SIDES].isin({other[1], *opponents}).all(axis=1)
    theirs = theirs[met_in_both & (theirs[SIDES] == other[1]).any(axis=1)].reset_index(drop=True)
    judged = set(mine["history_id"])
    _check_histories(one[0], other[0], judged)
    _check_replies(one[0], other[0], opponents, judged)
    names = [f"{side[0].name}:{side[1]}" if one[1] == other[1] else side[1] for side in (one, other)]
    theirs = theirs.assign(**{column: other[0].name + ":" + theirs[column] for column in ("comparison_id", "pair_id")})
    new = [{one[1]: names[0]}, {other[1]: names[1]}]
    renamed, who = [], []
    for (place, own), table, beside, called in zip((one, other), (mine, theirs), (opponents, set[str]()), new, strict=True):
        renamed.append(table.replace(dict.fromkeys(SIDES, called)))
        there = place.read("responders")
        who.append(there[there["responder"].isin({own, *beside})].replace({"responder": called}))
    note = f"The baseline from {_where(one[0])}, the candidate from {_where(other[0])}.{_alike(one, other)}"
    verdicts, responders = pd.concat(renamed, ignore_index=True), pd.concat(who, ignore_index=True)
    return Sides(combine_orders(verdicts), responders, names[0], names[1], note)


def require_pass(comparison: Comparison) -> None:
    """End with an error unless the candidate passed; call it last, when the reports are written.

    Parameters
    ----------
    comparison : Comparison
        What was found.

    Raises
    ------
    GateFailedError, GateInconclusiveError
        If a dimension failed; if none failed, but one cannot be told. Papermill ends with the same exit code for both.

    Examples
    --------
    >>> from heart_utils.gate import Comparison
    >>> table = pd.DataFrame({"dimension": ["overall"], "outcome": "failed", "message": "overall: worse than the baseline"})
    >>> require_pass(Comparison(table, pd.DataFrame(), "old", "new", "regression", 25.0, 0.05))
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


def _parse(name: str, run: str | None) -> tuple[Place, str]:
    """Tell run or file and responder apart; a responder's own name may hold a colon, and a file need name none."""
    if file := re.match(rf"(.+?(?:{'|'.join(map(re.escape, SUFFIXES))}))(?::(.+))?$", name, flags=re.IGNORECASE):
        path = Path(file[1]).expanduser().resolve()
        if path.is_file() or run is None:
            return VoteFile(path.name, path, read_file("verdicts", path)), file[2] or ""
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
        there = sorted(folder.name for folder in (find_home() / "runs").glob("*") if folder.is_dir())
        raise GateError(f"{name!r}: there is no run {asked!r}. Runs here: {', '.join(there) or 'none yet'}.")
    if run is None:
        raise GateError(f"{name!r} names no run. Write run:responder, such as 'sample:{name}', or give `run`.")
    known = ", ".join(sorted(_responders(_open(run)))) or "none"
    raise GateError(f"There is no responder {name!r} in the run {run!r} (there are: {known}), and no run before a colon in it.")


def _name_both(one: tuple[Place, str], other: tuple[Place, str]) -> tuple[tuple[Place, str], tuple[Place, str]]:
    """Name the responder of a file that was given without one: the only one that the other side does not have."""
    named = []
    for (place, name), (elsewhere, _) in ((one, other), (other, one)):
        own = sorted(_responders(place) - _responders(elsewhere))
        if not name and len(own) != 1:
            raise GateError(
                f"{place.name}: which responder is compared? In this file alone there is {', '.join(own) or 'none'}; there are "
                f"{(there := ', '.join(sorted(_responders(place))))}. Name one, as in {place.name}:{there.partition(', ')[0]}."
            )
        named.append((place, name or own[0]))
    return named[0], named[1]


def _where(place: Place) -> str:
    return f"the run {place.name!r}" if isinstance(place, Run) else f"the file {place.name}"


def _alike(one: tuple[Place, str], other: tuple[Place, str]) -> str:
    """Say how many replies of the candidate are the baseline's, word for word: of those only the judges' luck can differ."""
    if not all(place.has("replies") for place, _ in (one, other)):
        return ""
    written = [
        place.read("replies").query("responder == @name").set_index("history_id")["text"] for place, name in (one, other)
    ]
    pairs = pd.concat([text.groupby(level=0).first() for text in written], axis=1, join="inner").dropna()
    same = int((pairs.iloc[:, 0] == pairs.iloc[:, 1]).sum())
    return f" {same} of {len(pairs)} replies of the candidate are the baseline's, word for word." if same else ""


def _open(run: str) -> Run:
    try:
        return open_run(run, create=False)
    except RunError as error:
        raise GateError(str(error)) from None


def _responders(run: Place) -> set[str]:
    return set(run.read("responders")["responder"]) if run.has("responders") else set()


def _verdicts(run: Place, protocol: str | None) -> pd.DataFrame:
    """Read the judges' verdicts under one protocol."""
    if not run.has("verdicts"):
        raise GateError(f"The run {run.name!r} has no verdicts; `make collect RUN={run.name}` asks the judges for them.")
    verdicts = run.read("verdicts")
    verdicts = verdicts[verdicts["rater_kind"] == "model"]
    protocols = sorted(verdicts["protocol"].unique())
    if protocol is None and len(protocols) > 1:
        raise GateError(f"In {_where(run)} are verdicts under {', '.join(protocols)}; choose one with `protocol`.")
    if protocol is not None:
        verdicts = verdicts[verdicts["protocol"] == protocol]
    if verdicts.empty:
        there = f"; there are {', '.join(protocols)}" if protocols else ""
        under = f" under {protocol!r}" if protocol else ""
        raise GateError(f"In {_where(run)} are no verdicts by a judge (rater_kind 'model'){under}{there}.")
    return verdicts.reset_index(drop=True)


def _opponents(verdicts: pd.DataFrame, name: str) -> set[str]:
    return set(verdicts.loc[(verdicts[SIDES] == name).any(axis=1), SIDES].to_numpy().flat) - {name}


def _check_histories(one: Place, other: Place, judged: set[str]) -> None:
    """Refuse runs in which judged histories have the same id and other words."""
    if not (one.has("histories") and other.has("histories")):
        return
    told = [run.read("histories").set_index("history_id")["turns"] for run in (one, other)]
    words = [turns.map(lambda turns: [(turn["speaker"], turn["text"]) for turn in turns]) for turns in told]
    shared = words[0].index.intersection(words[1].index).intersection(sorted(judged))
    changed = sorted(name for name in shared if words[0][name] != words[1][name])
    if changed:
        said = f"{len(changed)} histories have the same id but other words in the two runs, such as {changed[0]!r}"
        raise GateError(f"{said}. A comparison needs the same conversations.")


def _check_replies(one: Place, other: Place, opponents: set[str], judged: set[str]) -> None:
    """Refuse opponents that wrote other replies in the two runs: they would be two opponents under one name."""
    if not (one.has("replies") and other.has("replies")):
        return
    texts = []
    for run in (one, other):
        replies = run.read("replies")
        replies = replies[replies["responder"].isin(opponents) & replies["history_id"].isin(judged)]
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


QUESTION: dict[str, str] = WORDS["gate"]
LOOKS = {"passed": (COLOURS[0], "o"), "failed": (COLOURS[4], "X"), "cannot tell": (COLOURS[5], "s")}
RELEASES = 8  # in a series that one report speaks of


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
    >>> import tempfile
    >>> from heart_utils.gate import compare_anytime
    >>> duels = pd.DataFrame({"dialogue_id": ["d1", "d2"], "responder_a": "new", "responder_b": "old", "verdict": "b"})
    >>> duels = duels.assign(history_id=duels["dialogue_id"], dimension="overall", rater="judge", state="valid")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in write_reports(compare_anytime(duels, baseline="old", candidate="new"), Path(folder))]
    ['gate.html', 'gate.xml', 'gate.md']
    """
    contents = {"gate.html": _page(comparison, note), "gate.xml": junit_xml(comparison)}
    contents["gate.md"] = markdown_summary(comparison, note=note)
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    return [folder / name for name in contents]


def junit_xml(comparison: Comparison) -> str:
    """Put the outcome into JUnit XML: one test case a dimension, a failure or an error where it did not pass."""
    table = comparison.table
    counts = {"tests": len(table), "failures": (table["outcome"] == "failed").sum(), "skipped": 0}
    counts["errors"] = (table["outcome"] == "cannot tell").sum()
    counted = {name: str(count) for name, count in counts.items()}
    suite = ElementTree.Element("testsuite", name=f"regression gate ({comparison.mode})", attrib=counted)
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
    """Sum the gate up, with a sentence on where the verdicts come from, for the page of a build or a pull request."""
    shown = _shown(comparison).drop(columns="verdicts")
    rule = ["---", *["---:"] * (len(shown.columns) - 2), "---"]
    rows: list[list[str]] = [shown.columns.tolist(), rule, *shown.to_numpy().tolist()]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in rows]
    messages = [f"- {message}" for message in comparison.table["message"]]
    head = [f"## {_verdict(comparison)}", "", f"{_setting(comparison)} {note}".strip(), ""]
    return "\n".join([*head, *table, "", *messages, ""])


def plot_drops(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Draw the drop on each dimension between its two one-sided bounds; right of the solid line is worse."""
    table = comparison.table
    level = 100 * (1 - comparison.alpha)
    xlabel = f"Drop in rating points (right: worse); bars: one-sided {level:g}% bounds or Holm's, over dialogues"
    if comparison.mode == "anytime":
        xlabel = "Drop in percentage points of win share (right: worse); bars: bounds valid at every look"
    how: dict[str, Any] = {"looks": LOOKS, "xlabel": xlabel, "simulated": _simulated(comparison), "ax": ax}
    ax = plot_intervals(table, value="drop", label="dimension", by="outcome", **how)
    for row in np.flatnonzero(table["drop"].isna()).tolist():  # a drop that nobody knows is not a drop of zero
        ax.text(0.5, row, "no estimate", ha="center", va="center", color="0.35", transform=ax.get_yaxis_transform())
    ax.axvline(0, color="black", linewidth=1)
    if comparison.mode != "regression":
        margin = comparison.max_drop * (100 if comparison.mode == "anytime" else 1)
        ax.axvline(margin, color="black", linewidth=1, linestyle="--", label="margin")
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def _page(comparison: Comparison, note: str) -> str:
    """Put everything on one page that needs no other file."""
    shown, setting = _shown(comparison), f"{_setting(comparison)} {note}"
    said = {"title": _verdict(comparison), "simulated": _simulated(comparison), "setting": setting, "alt": _alt(comparison)}
    rows = {"headings": list(shown), "rows": shown.to_numpy().tolist(), "messages": comparison.table["message"]}
    return fill_page("gate_report", figure=Markup(_figure(comparison)), **said, **rows)


def _simulated(comparison: Comparison) -> bool:
    return bool(len(comparison.ratings)) and bool(comparison.ratings["simulated"].any())


def _figure(comparison: Comparison) -> str:
    """Draw both panels as one SVG."""
    import matplotlib.pyplot as plt

    n = [len(comparison.table), comparison.ratings["responder"].nunique() if len(comparison.ratings) else 0]
    heights = [1 + 0.4 * count for count in n if count]
    how: dict[str, Any] = {"figsize": (9, 1 + sum(heights)), "height_ratios": heights, "layout": "constrained"}
    figure, axes = plt.subplots(len(heights), squeeze=False, **how)
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
    if comparison.mode == "anytime":
        return (
            f"{QUESTION['anytime']} However often one looks, at least one of {comparison.n_releases} equal candidates is "
            f"stopped with a probability of up to {comparison.alpha:.0%}. A candidate worse by {100 * comparison.max_drop:g} "
            f"percentage points of win share passes with one of up to {comparison.alpha:.0%}."
        )
    margin = f" Margin: {comparison.max_drop:g} rating points." if comparison.mode == "non-inferiority" else ""
    error = {"regression": "equal candidates is stopped", "non-inferiority": "candidates worse by the margin passes"}
    series = 1 - (1 - comparison.alpha) ** RELEASES  # no more than this, since runs that share a baseline share its luck
    return (
        f"{QUESTION[comparison.mode]} Mode: {comparison.mode}, one-sided error rate {comparison.alpha:g} for this run.{margin} "
        f"If {RELEASES} runs use one baseline, at least one of {RELEASES} {error[comparison.mode]} with a probability of up to "
        f"{series:.0%}."
    )


def _unit(comparison: Comparison) -> str:
    return "points of win share" if comparison.mode == "anytime" else "points"


def _alt(comparison: Comparison) -> str:
    counts = comparison.table["outcome"].value_counts()
    said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in LOOKS if outcome in counts)
    worst = comparison.table["drop"].max()
    largest = f"; the largest drop is {worst:.1f} {_unit(comparison)}" if pd.notna(worst) else ""
    return f"Drop by dimension and ratings of all who were met: {said}{largest}."


def _shown(comparison: Comparison) -> pd.DataFrame:
    """Give the cells of the table that the page and the summary show."""
    table = comparison.table.reindex(columns=comparison.table.columns.union(["drop_low", "drop_high"]))
    number = {name: table[name].map(_number) for name in ("drop", "drop_low", "drop_high")}
    shown = {
        "dimension": table["dimension"],
        f"drop ({_unit(comparison)})": number["drop"],
        "bounds": number["drop_low"] + " to " + number["drop_high"],
        "p (Holm)": table["p_holm"].map(lambda p: _number(p, 3)),
        "dialogues": table["n_dialogues"],
        "verdicts": table["n_verdicts"],
        "failed answers": table["n_failed"],
        "outcome": table["outcome"],
    }
    return pd.DataFrame(shown).astype(str)


def _number(value: float, digits: int = 1) -> str:
    return "n/a" if pd.isna(value) else f"{value:.{digits}f}"


USAGE = """The command ``heart-gate BASELINE CANDIDATE``: did a candidate get worse? Its exit code is the answer.

Each side is a file of votes or a run, with the responder after a colon where it is not evident: ``old.csv new.csv``,
``votes.csv:old votes.csv:new``, ``runs/before:assistant runs/after:assistant``. Exit codes: 0 passed, 1 worse (non-inferiority:
not shown to be as good), 2 bad input, 3 inconclusive.
"""
PASSED, WORSE, BAD_INPUT, INCONCLUSIVE = range(4)
ANSWERS = ("PASSED", "WORSE", "BAD INPUT", "INCONCLUSIVE")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two responders as the command line says, report in the terminal, and give the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        sides = read_sides(asked.baseline, asked.candidate, protocol=asked.protocol)
        found = _compare(sides, asked)
        failed = (found.table["outcome"] == "failed").any()
        code = PASSED if found.passed else WORSE if failed else INCONCLUSIVE
        if asked.out:
            write_reports(found, asked.out, note=sides.note)
        contents = {
            asked.json: _json(found, code, sides.note),
            asked.junit: junit_xml(found),
            asked.markdown: markdown_summary(found, note=sides.note),
        }
        for file, content in contents.items():
            if file:
                write_atomically(file, content.encode())
    except ModuleNotFoundError as error:
        print(f"heart-gate: --out needs {error.name}: pip install matplotlib seaborn", file=sys.stderr)
        return BAD_INPUT
    except (ValueError, OSError) as error:
        print(f"heart-gate: {error}", file=sys.stderr)
        return BAD_INPUT
    print(f"{ANSWERS[code]}: {found.candidate} against {found.baseline}")
    print(*(f"  {message}" for message in found.table["message"]), sides.note, sep="\n")
    return code


def _parser() -> argparse.ArgumentParser:
    first, rest = USAGE.split("\n", 1)
    parser = argparse.ArgumentParser(prog="heart-gate", description=first, epilog=rest)
    add = parser.add_argument
    add("baseline", help="FILE[:RESPONDER] or RUN:RESPONDER, judged before")
    add("candidate", help="the same, for what is to be released")
    add("--anytime", action="store_true", help="valid however often you look: run it after every few dialogues, stop at 0 or 1")
    add("--releases", type=int, help="candidates that share the error rate: by default 8 with --anytime, else 1")
    add("--alpha", type=float, default=0.05, help="error rate, one-sided (0.05)")
    add("--mode", choices=MODES, default="regression", help="without --anytime: is it worse, or is it shown not to be")
    add("--max-detectable", type=float, default=50.0, help="rating points: no pass if only larger drops would be found (50)")
    add("--max-drop", type=float, default=25.0, help="rating points that non-inferiority rules out (25)")
    add("--margin", type=float, default=0.10, help="win share that --anytime must rule out to pass (0.10)")
    add("--max-inconsistent", type=float, default=0.5, help="share of pairs in which a judge may follow the order (0.5)")
    add("--dimension", action="append", help="a line of the rubric; all by default")
    add("--protocol", help="where verdicts are under several")
    add("--out", type=Path, help="a folder for gate.html, gate.xml and gate.md (needs matplotlib)")
    for kind in ("json", "junit", "markdown"):
        add(f"--{kind}", type=Path, metavar="FILE", help=f"write the result as {kind}")
    return parser


def _compare(sides: Sides, asked: argparse.Namespace) -> Comparison:
    both: dict[str, Any] = {"max_inconsistent": asked.max_inconsistent, "dimensions": asked.dimension}
    releases = asked.releases or (8 if asked.anytime else 1)
    if asked.anytime:
        both |= {"baseline": sides.baseline, "candidate": sides.candidate}
        return compare_anytime(sides.verdicts, margin=asked.margin, alpha=asked.alpha, n_releases=releases, **both)
    fixed = {"mode": asked.mode, "max_drop": asked.max_drop, "max_detectable": asked.max_detectable}
    return sides.compare(alpha=asked.alpha / releases, rng=np.random.default_rng(20260109), **fixed, **both)


def _json(found: Comparison, code: int, note: str) -> str:
    said: dict[str, Any] = {"answer": ANSWERS[code].lower(), "exit_code": code}
    said |= {name: getattr(found, name) for name in ("baseline", "candidate", "mode", "alpha")} | {"note": note}
    rows = json.loads(found.table.to_json(orient="records"))
    return json.dumps({**said, "dimensions": rows}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
