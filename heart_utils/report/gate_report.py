"""The command ``heart-gate``: read two sides, compare them and write the reports."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pandas as pd
from markupsafe import Markup

from heart_utils import __version__
from heart_utils.extras import MissingExtraError, extra
from heart_utils.gate import (
    MODES,
    Comparison,
    GateError,
    GateRule,
    compare_anytime,
    compare_responders,
    describe_change,
)
from heart_utils.identities import redact_message, refuse_identities
from heart_utils.ratings.verdicts import combine_orders, is_simulated
from heart_utils.report import WORDS
from heart_utils.report.figures import COLOURS, plot_intervals, plot_leaderboard
from heart_utils.report.gate_calibration import (
    LEAST_LABELS,
    check_calibration,
    compare_powered,
    decide_nothing,
)
from heart_utils.report.html import fill_page
from heart_utils.report.tables import as_workbook
from heart_utils.runs import RunError, find_home, known_people, open_run, write_together
from heart_utils.sources.files import read_file
from heart_utils.sources.formats import COMPRESSED, SUFFIXES
from heart_utils.sources.options import FileOptions, add_reading, as_yaml, reading_of
from heart_utils.tables import DataError, empty_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GateError", "Sides", "read_sides", "write_reports"]

SIDES = ["responder_a", "responder_b"]
ENDS = "|".join(map(re.escape, sorted(SUFFIXES, key=len, reverse=True)))
PACKED = "|".join(map(re.escape, COMPRESSED))
VOTE_FILE = re.compile(rf"(.+?(?:{ENDS})(?:{PACKED})?)(?::(.+))?$", flags=re.IGNORECASE)
TABLES = ("histories", "replies", "responders", "verdicts")
LOOKS = {"passed": (COLOURS[0], "o"), "failed": (COLOURS[4], "X"), "cannot tell": (COLOURS[5], "s")}
EXITS = {"passed": (0, "PASSED"), "failed": (1, "WORSE"), "cannot tell": (3, "INCONCLUSIVE")}
BAD_INPUT = 2


@dataclass(frozen=True)
class Sides:
    """Verdicts that put a baseline and a candidate into one fit."""

    verdicts: pd.DataFrame  #: orders combined
    responders: pd.DataFrame  #: the table for all of them
    baseline: str  #: a name that two runs share carries its run
    candidate: str
    note: str  #: where the verdicts come from
    run: str | None = None  #: that both come from, or the candidate's; None of files

    def compare(self, **options: Any) -> Comparison:
        """Test the candidate against the baseline.

        Options are those of :func:`heart_utils.gate.compare_responders`.
        """
        return compare_responders(
            self.verdicts,
            baseline=self.baseline,
            candidate=self.candidate,
            responders=self.responders,
            **options,
        )


@dataclass(frozen=True)
class Side:
    """What one side comes from: its tables, empty where there is none, and the responder."""

    name: str  # of the run or the file
    where: str  # the same in a sentence
    folder: Path
    tables: dict[str, pd.DataFrame]
    responder: str  # empty where a file was given alone

    @property
    def run(self) -> str | None:
        """Name the run that it is, if it is one."""
        return self.name if self.folder.is_dir() else None

    def opponents(self) -> set[str]:
        """Name whom the responder met."""
        sides = self.tables["verdicts"][SIDES]
        return {*sides[(sides == self.responder).any(axis=1)].to_numpy().flat} - {self.responder}

    def replies(self, who: Iterable[str]) -> pd.Series:
        """Return the texts by responder and history; several replies to one history are joined."""
        rows = self.tables["replies"].fillna({"text": ""})
        written = rows[rows["responder"].isin(who)].groupby(["responder", "history_id"])["text"]
        return written.agg(lambda texts: "\n".join(sorted(texts)))


def read_sides(
    baseline: str,
    candidate: str,
    *,
    run: str | None = None,
    protocol: str | None = None,
    **reading: Unpack[FileOptions],
) -> Sides:
    """Bring the judges' verdicts on two responders into one table, joining two runs if they match.

    Runs match if their histories and opponents' replies are the same word for word. People's
    verdicts are left out, and the opponents' on one another are taken once, from the baseline's
    run.

    Parameters
    ----------
    baseline
        A responder of `run`, or ``run:responder``, or, of a file of votes, ``votes.csv:responder``.
    candidate
        The same. Of two files that differ in one responder each, ``old.csv`` and ``new.csv`` are
        enough.
    run
        The run of responders that are named alone.
    protocol
        Protocol of the verdicts, needed where a run holds several.
    **reading
        Of files, as in :func:`~heart_utils.sources.load.load_verdicts`.

    Returns
    -------
    Sides

    Raises
    ------
    GateError, heart_utils.runs.RunError
        If a responder or a run is not there, or the runs do not match.

    Examples
    --------
    >>> read_sides("old", "new", run="nowhere")
    Traceback (most recent call last):
    heart_utils.runs.RunError: There is no run 'nowhere'.
    """
    one, other = _name_both(
        *(_find(named, run, protocol, reading) for named in (baseline, candidate))
    )
    if one.folder == other.folder:
        note = f"Both from {one.where}.{_alike(one, other)}"
        joint = combine_orders(one.tables["verdicts"])
        return Sides(
            joint, one.tables["responders"], one.responder, other.responder, note, run=other.run
        )
    if one.tables["verdicts"].equals(other.tables["verdicts"]):
        raise GateError(
            f"{one.where} and {other.where} hold the same verdicts, row for row: no candidate was"
            " judged."
        )
    opponents = one.opponents() & other.opponents()
    if not opponents:
        opponents_met = ", ".join(
            f"{', '.join(sorted(side.opponents()))} in {side.where}" for side in (one, other)
        )
        raise GateError(f"{baseline!r} and {candidate!r} met no common opponent: {opponents_met}.")
    verdicts, responders, names = [], [], []
    for side in (one, other):
        rows, who = side.tables["verdicts"], side.tables["responders"]
        rows = rows[rows[SIDES].isin({side.responder, *opponents}).all(axis=1)]
        if side is other:  # what opponents are to each other is in the baseline's run
            rows, who = (
                rows[(rows[SIDES] == side.responder).any(axis=1)],
                who[who["responder"] == side.responder],
            )
            rows = rows.assign(
                **{
                    column: f"{side.name}:" + rows[column]
                    for column in ("comparison_id", "pair_id")
                }
            )
        names.append(
            f"{side.name}:{side.responder}" if one.responder == other.responder else side.responder
        )
        verdicts.append(rows.replace(dict.fromkeys(SIDES, {side.responder: names[-1]})))
        who = who[who["responder"].isin({side.responder, *opponents})]
        responders.append(who.replace({"responder": {side.responder: names[-1]}}))
    _check_words(one, other, opponents, set(verdicts[0]["history_id"]))
    note = f"The baseline from {one.where}, the candidate from {other.where}.{_alike(one, other)}"
    joined = pd.concat(verdicts, ignore_index=True), pd.concat(responders, ignore_index=True)
    return Sides(combine_orders(joined[0]), joined[1], names[0], names[1], note, run=other.run)


def _find(named: str, run: str | None, protocol: str | None, reading: FileOptions) -> Side:
    """Read the run or the file of a side.

    A responder's own name may hold a colon, and a file need name none.
    """
    if file := VOTE_FILE.match(named):
        path = Path(file[1]).expanduser().resolve()
        if path.is_file() or run is None:
            # Ids stay, since it is about judges alone: people's rows are left out below.
            verdicts = read_file("verdicts", path, FileOptions({**reading, "keep_ids": True}))
            # a person or a model: nobody said
            who = {"responder_kind": "source", "simulated": is_simulated(verdicts)}
            responders = pd.DataFrame(
                {"responder": sorted({*verdicts[SIDES].to_numpy().flat}), **who}
            )
            tables = {
                **{table: empty_table(table) for table in TABLES},
                "verdicts": verdicts,
                "responders": responders,
            }
            name = redact_message(path.name)
            return _judged(Side(name, f"the file {name}", path, tables, file[2] or ""), protocol)
    here, responder = (None if run is None else open_run(run, create=False)), named
    if (
        here is None
        or not here.has("responders")
        or named not in set(here.read("responders")["responder"])
    ):
        for colon in reversed([colon_match.start() for colon_match in re.finditer(":", named)]):
            try:
                here, responder = open_run(named[:colon], create=False), named[colon + 1 :]
                break
            except RunError:
                continue
    if here is None:
        runs_here = (
            ", ".join(
                sorted(
                    folder.name for folder in (find_home() / "runs").glob("*") if folder.is_dir()
                )
            )
            or "none yet"
        )
        raise GateError(
            f"{named!r} names no run that is here. Write run:responder, or give `run`. Runs here:"
            f" {runs_here}."
        )
    if not here.has("verdicts"):
        raise GateError(
            f"The run {here.name!r} has no verdicts; `make collect RUN={here.name}` asks the judges"
            " for them."
        )
    tables = {
        table: here.read(table) if here.has(table) else empty_table(table) for table in TABLES
    }
    return _judged(
        Side(here.name, f"the run {here.name!r}", here.folder, tables, responder), protocol
    )


def _judged(side: Side, protocol: str | None) -> Side:
    """Keep the judges' verdicts under one protocol, and refuse a responder whom nobody judged."""
    rows = side.tables["verdicts"].query("rater_kind == 'model'")
    protocols = sorted(rows["protocol"].unique())
    if protocol is None and len(protocols) > 1:
        raise GateError(
            f"In {side.where} are verdicts under {', '.join(protocols)}; choose one with"
            " `protocol`."
        )
    rows = rows[rows["protocol"].isin(protocols if protocol is None else [protocol])].reset_index(
        drop=True
    )
    if rows.empty:
        under = (
            f" under {protocol!r}; there are {', '.join(protocols) or 'none at all'}"
            if protocol
            else ""
        )
        raise GateError(f"In {side.where} are no verdicts by a judge (rater_kind 'model'){under}.")
    if side.responder not in (known := {"", *rows[SIDES].to_numpy().flat}):
        error_message = f"The responder {side.responder!r} appears in no verdict of {side.where}"
        raise GateError(f"{error_message}; there are {', '.join(sorted(known - {''}))}.")
    side.tables["verdicts"] = rows
    return side


def _name_both(one: Side, other: Side) -> tuple[Side, Side]:
    """Find the responder of a file without a name: the one that the other side lacks."""
    named = []
    for side, elsewhere in ((one, other), (other, one)):
        here, others = (
            set(each.tables["verdicts"][SIDES].to_numpy().flat) for each in (side, elsewhere)
        )
        own = sorted(here - others)
        if not side.responder and len(own) != 1:
            raise GateError(
                f"{side.name}: which responder is compared? In this file alone there is"
                f" {', '.join(own) or 'none'}; there are {', '.join(sorted(here))}. Name one, as in"
                f" {side.name}:{min(here)}."
            )
        named.append(side if side.responder else replace(side, responder=own[0]))
    return named[0], named[1]


def _alike(one: Side, other: Side) -> str:
    """Count replies of the candidate that repeat the baseline's word for word.

    On these only the judges' random variation can differ.
    """
    written = [side.replies([side.responder]).droplevel("responder") for side in (one, other)]
    both = pd.concat(written, axis=1, join="inner", keys=["one", "other"])
    both = both[both.map(bool).all(axis=1)]
    same = int((both["one"] == both["other"]).sum())
    return (
        f" {same} of {len(both)} replies of the candidate are the baseline's, word for word."
        if same
        else ""
    )


def _check_words(one: Side, other: Side, opponents: set[str], judged: set[str]) -> None:
    """Refuse runs that show different texts under one name.

    The text may be a judged history, or an opponent's reply to it.
    """
    turns_of = [side.tables["histories"].set_index("history_id")["turns"] for side in (one, other)]
    words = [
        turns.map(lambda turns: repr([(turn["speaker"], turn["text"]) for turn in turns]))
        for turns in turns_of
    ]
    for what, (own_words, other_words) in {
        "histories": words,
        "replies of opponents": [side.replies(opponents) for side in (one, other)],
    }.items():
        both = pd.concat([own_words, other_words], axis=1, join="inner", keys=["one", "other"])
        changed = both[
            (both["one"] != both["other"]) & both.index.get_level_values("history_id").isin(judged)
        ]
        if len(changed):
            raise GateError(
                f"{len(changed)} {what} have the same name but other words in {one.name!r} and"
                f" {other.name!r}, such as {changed.index[0]!r}. A comparison needs the same"
                " conversations, and the opponents that the baseline met."
            )


def write_reports(comparison: Comparison, folder: Path, *, note: str = "") -> list[Path]:
    """Write ``gate.html``, ``gate.xml`` and ``gate.md``, each atomically.

    The XML is JUnit's: a test case for each dimension.

    Parameters
    ----------
    comparison : Comparison
        What a gate found.
    folder : pathlib.Path
        Where to write; it is made if need be.
    note : str
        Where the verdicts come from.

    Returns
    -------
    list of pathlib.Path

    Examples
    --------
    >>> import tempfile
    >>> from heart_utils.gate import compare_anytime
    >>> duels = {
    ...     "dialogue_id": ["d1", "d2"],
    ...     "responder_a": "new",
    ...     "responder_b": "old",
    ...     "verdict": "b",
    ...     "state": "valid",
    ... }
    >>> found = compare_anytime(
    ...     pd.DataFrame({**duels, "dimension": "overall"}), baseline="old", candidate="new"
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_reports(found, Path(folder))
    """
    contents = _report_files(comparison, folder, note)
    write_together(contents)
    return list(contents)


def _report_files(comparison: Comparison, folder: Path, note: str) -> dict[Path, bytes]:
    names = [f"gate.{kind}" for kind in ("html", "xml", "md")]
    return {folder / name: report_text(comparison, name, note).encode() for name in names}


def report_text(comparison: Comparison, name: str, note: str = "") -> str:
    """Fill one of the templates ``gate.html``, ``gate.xml`` and ``gate.md``.

    Only the first draws a figure, and needs matplotlib.
    """
    table, words = comparison.table, _words(comparison)
    _refuse_people(comparison, note)
    low, high = (
        table[column].map("{:.1f}".format).replace("nan", "n/a")
        for column in ("drop_low", "drop_high")
    )
    ends = table[["drop", "drop_low", "drop_high"]].itertuples(index=False)
    change = pd.Series([describe_change(*row)["change"] for row in ends], table.index)
    columns = {
        "dimension": table["dimension"],
        f"change ({words['unit']})": change.where(table["drop"].notna(), "n/a"),
        "bounds of the drop": low + " to " + high,
        "p (Holm)": table["p_holm"].map(_p_in_words),
        "dialogues": table["n_dialogues"],
        "verdicts": table["n_verdicts"],
        "in both orders": table["n_both_orders"],
        "order unknown": table["n_unknown_order"],
        "failed answers": table["n_failed"],
        "outcome": table["outcome"],
    }
    figure = Markup(_figure(comparison)) if name.endswith(".html") else ""
    rows = table[["dimension", "outcome", "message"]].to_dict("records")
    return fill_page(
        name,
        gate=comparison,
        said=words,
        note=note,
        rows=rows,
        shown=pd.DataFrame(columns).astype(str),
        simulated=_simulated(comparison),
        counts=table["outcome"].value_counts().to_dict(),
        figure=figure,
        md=as_markdown,
    )


def as_markdown(text: object) -> str:
    """Escape a user's text, so that Markdown shows it and does nothing else with it."""
    one_line = " ".join(str(text).split())
    without_tags = re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", re.sub(r"&(?=[#\w])", "&amp;", one_line))
    return re.sub(r"([\\`*|~$#])", r"\\\1", without_tags).replace("](", r"]\(")


def _p_in_words(p: float) -> str:
    return "n/a" if np.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _refuse_people(comparison: Comparison, note: str) -> None:
    """Refuse to report on somebody by an address or an id, before the first file is written."""
    names = {
        "the note": note,
        "the baseline": comparison.baseline,
        "the candidate": comparison.candidate,
    }
    refuse_identities(
        {"ratings": comparison.ratings, "the gate": comparison.table}, names, known=known_people()
    )


def plot_drops(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Draw the drop on each dimension between two one-sided bounds.

    Right of the solid line is worse.
    """
    table, words = comparison.table, _words(comparison)
    ax = plot_intervals(
        table,
        value="drop",
        label="dimension",
        by="outcome",
        looks=LOOKS,
        xlabel=words["axis"],
        simulated=_simulated(comparison),
        ax=ax,
    )
    # a drop that nobody knows is not a drop of zero
    for row in np.flatnonzero(table["drop"].isna()).tolist():
        ax.text(
            0.5,
            row,
            "no estimate",
            ha="center",
            va="center",
            color="0.35",
            transform=ax.get_yaxis_transform(),
        )
    ax.axvline(0, color="black", linewidth=1)
    if comparison.mode != "regression":
        ax.axvline(comparison.margin, color="black", linewidth=1, linestyle="--", label="margin")
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def _words(comparison: Comparison) -> dict[str, str]:
    """Write in the words of its mode what the gate tested and its error rate.

    The numbers are those of this comparison.
    """
    alpha = comparison.alpha
    # no more than this, since runs that share a baseline share its luck
    series = 1 - (1 - alpha) ** 8
    numbers = {
        "alpha": alpha,
        "level": 100 * (1 - alpha),
        "margin": comparison.margin,
        "series": series,
    }
    words: dict[str, str] = WORDS["gate"][comparison.mode]
    return {
        name: text.format(n_releases=comparison.n_releases, **numbers)
        for name, text in words.items()
    }


def _simulated(comparison: Comparison) -> bool:
    return is_simulated(comparison.ratings)


def _figure(comparison: Comparison) -> str:
    with extra("plots"):
        import matplotlib.pyplot as plt

    ratings = comparison.ratings
    if len(ratings):
        ratings = ratings[ratings["dimension"] == ratings["dimension"].iloc[0]]
    heights = [1 + 0.4 * count for count in (len(comparison.table), len(ratings)) if count]
    figure, axes = plt.subplots(
        len(heights),
        squeeze=False,
        figsize=(9, 1 + sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    plot_drops(comparison, ax=axes[0, 0])
    if len(ratings):
        plot_leaderboard(
            ratings, title=f"Everyone who was met, on {ratings['dimension'].iloc[0]}", ax=axes[1, 0]
        )
    drawn = io.StringIO()
    with plt.rc_context({"svg.hashsalt": "gate"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


USAGE = """The command ``heart-gate BASELINE CANDIDATE``: did a candidate get worse?

Its exit code is the answer: 0 passed, 1 worse (non-inferiority: not shown to be as good), 2 bad
input, 3 inconclusive. Each side is a file of votes or a run, with the responder after a colon where
it is not evident: ``old.csv new.csv``, ``votes.csv:old votes.csv:new``,
``runs/before:assistant runs/after:assistant``.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two responders as the command line asks, and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        sides = read_sides(
            options.baseline, options.candidate, protocol=options.protocol, **reading_of(options)
        )
        comparison, sides = _decide(sides, options)
        _refuse_people(comparison, sides.note)
        code, answer = EXITS[comparison.outcome]
        contents = _report_files(comparison, options.out, sides.note) if options.out else {}
        if options.xlsx:
            contents[options.xlsx] = as_workbook(
                {"gate": comparison.table, "ratings": comparison.ratings}
            )
        for file, name in ((options.junit, "gate.xml"), (options.markdown, "gate.md")):
            if file:
                contents[file] = report_text(comparison, name, sides.note).encode()
        if options.json:
            report = {
                "answer": answer.lower(),
                "exit_code": code,
                "note": sides.note,
                "baseline": comparison.baseline,
                "candidate": comparison.candidate,
                "mode": comparison.mode,
                "alpha": comparison.alpha,
                "dimensions": json.loads(comparison.table.to_json(orient="records")),
            }
            contents[options.json] = (
                f"{json.dumps(report, indent=1, ensure_ascii=False)}\n".encode()
            )
        write_together(contents)
    except (ValueError, OSError, MissingExtraError) as error:
        print(f"heart-gate: {redact_message(str(error))}", file=sys.stderr)
        if options.markdown:  # the summary of a build shows it
            _write_bad_input(options.markdown, redact_message(str(error)))
        if isinstance(error, DataError) and error.options:
            print(f"The same as a file for --reading:\n{as_yaml(error.options)}", file=sys.stderr)
        return BAD_INPUT
    print(f"{answer}: {comparison.candidate} against {comparison.baseline}")
    print(*(f"  {message}" for message in comparison.table["message"]), sides.note, sep="\n")
    return code


def _write_bad_input(file: Path, message: str) -> None:
    text = f"## The gate could not compare: bad input\n\n{as_markdown(message)}\n"
    with contextlib.suppress(OSError):  # a full disk, which the message says already
        write_together({file: text.encode()})


def _parser() -> argparse.ArgumentParser:
    first, rest = USAGE.split("\n", 1)
    parser = argparse.ArgumentParser(prog="heart-gate", description=first, epilog=rest)
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {__version__}")
    add("baseline", help="FILE[:RESPONDER] or RUN:RESPONDER, judged before")
    add("candidate", help="the same, for what is to be released")
    add(
        "--anytime",
        action="store_true",
        help="valid however often you look: run it after every few dialogues, stop at 0 or 1",
    )
    add(
        "--releases",
        type=int,
        help="candidates that share the error rate: by default 8 with --anytime, else 1",
    )
    add("--alpha", type=float, default=0.05, help="error rate, one-sided (0.05)")
    add(
        "--mode",
        choices=MODES,
        default="regression",
        help="without --anytime: is it worse, or is it shown not to be",
    )
    add(
        "--max-detectable",
        type=float,
        default=50.0,
        help="rating points: no pass if only larger drops would be found (50)",
    )
    add(
        "--max-drop",
        type=float,
        default=25.0,
        help="rating points that non-inferiority rules out (25)",
    )
    add(
        "--margin",
        type=float,
        default=0.10,
        help="win share that --anytime must rule out to pass (0.10)",
    )
    add(
        "--max-inconsistent",
        type=float,
        default=0.5,
        help="share of pairs in which a judge may follow the order, shown to be less (0.5)",
    )
    add("--dimension", action="append", help="a line of the rubric; all by default")
    add("--protocol", help="where verdicts are under several")
    add(
        "--require-calibration",
        type=Path,
        action="append",
        metavar="FILE",
        help=(
            "a judge's record, by calibrate_judge; where none fits, the gate reports and decides"
            " nothing (exit code 3)"
        ),
    )
    add(
        "--judges",
        type=Path,
        metavar="FILE",
        help="YAML: what each judge is now, where votes come from a file",
    )
    add(
        "--people",
        type=Path,
        metavar="FILE",
        help=(
            "people's votes on a part of these dialogues, drawn at random: the interval is then"
            " that of people's opinion, whatever the judge rewards"
        ),
    )
    add(
        "--least-lead",
        type=float,
        default=0.0,
        help="over the authors' names, that a calibration must show (0)",
    )
    add(
        "--least-labels",
        type=int,
        default=LEAST_LABELS,
        help=f"by people, that a calibration must rest on ({LEAST_LABELS})",
    )
    add("--out", type=Path, help="a folder for gate.html, gate.xml and gate.md (needs matplotlib)")
    for kind in ("json", "junit", "markdown", "xlsx"):
        add(f"--{kind}", type=Path, metavar="FILE", help=f"write the result as {kind}")
    add_reading(parser)
    return parser


def _decide(sides: Sides, options: argparse.Namespace) -> tuple[Comparison, Sides]:
    """Compare, and let the result decide only if a required calibration is there."""
    if options.people is not None and options.anytime:
        raise GateError(
            "--people corrects a test that is made once; without --anytime it may be used."
        )
    if options.require_calibration is None:
        return _compare(sides, options), sides
    judges = check_calibration(
        sides.verdicts,
        options.require_calibration,
        run=sides.run,
        judges=options.judges,
        least_lead=options.least_lead,
        least_labels=options.least_labels,
        dimensions=options.dimension,
    )
    if judges.faults:
        return decide_nothing(_compare(sides, options), judges.faults), sides
    if options.people is not None:  # limits and interval are people's already
        return _compare(sides, options), sides
    for limit in ("margin", "max_drop", "max_detectable"):
        setattr(options, limit, getattr(options, limit) * judges.discernment)
    return _compare(sides, options), replace(sides, note=sides.note + judges.note)


def _compare(sides: Sides, options: argparse.Namespace) -> Comparison:
    releases = options.releases or (8 if options.anytime else 1)
    if options.anytime:
        return compare_anytime(
            sides.verdicts,
            baseline=sides.baseline,
            candidate=sides.candidate,
            margin=options.margin,
            alpha=options.alpha,
            n_releases=releases,
            max_inconsistent=options.max_inconsistent,
            dimensions=options.dimension,
        )
    rule = GateRule(
        mode=options.mode,
        alpha=options.alpha / releases,
        max_drop=options.max_drop,
        max_detectable=options.max_detectable,
        max_inconsistent=options.max_inconsistent,
    )
    if options.people is not None:
        return compare_powered(
            sides.verdicts,
            _read_people(options.people, reading_of(options)),
            baseline=sides.baseline,
            candidate=sides.candidate,
            rule=rule,
            dimensions=options.dimension,
        )
    rng = np.random.default_rng(20260109)
    return sides.compare(rule=rule, dimensions=options.dimension, rng=rng)


def _read_people(file: Path, reading: FileOptions) -> pd.DataFrame:
    """Read votes by people, refuse others', and join their orders."""
    votes = read_file("verdicts", file, reading)
    others = sorted(set(votes["rater_kind"]) - {"human"})
    if others:
        raise GateError(
            f"{file.name} holds votes whose rater_kind is {', '.join(others)}: --people takes"
            " people's alone. Keep the rows with rater_kind human."
        )
    return combine_orders(votes)


if __name__ == "__main__":
    sys.exit(main())
