"""The command ``heart-gate``: read two sides, compare them and write the reports."""

from __future__ import annotations

import argparse
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
    compare_anytime,
    compare_responders,
    describe_change,
)
from heart_utils.identities import redact_message, refuse_identities
from heart_utils.ratings.verdicts import combine_orders, is_simulated
from heart_utils.report import WORDS
from heart_utils.report.conversation import fill_page
from heart_utils.report.figures import COLOURS, plot_intervals, plot_leaderboard
from heart_utils.report.gate_calibration import (
    LEAST_LABELS,
    check_calibration,
    compare_powered,
    decide_nothing,
)
from heart_utils.report.tables import as_workbook
from heart_utils.runs import RunError, find_home, known_people, open_run, write_together
from heart_utils.sources.catalogue import DataError
from heart_utils.sources.files import read_file
from heart_utils.sources.formats import COMPRESSED, SUFFIXES
from heart_utils.sources.options import FileOptions, add_reading, as_yaml, reading_of
from heart_utils.tables import empty_table

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

    verdicts: pd.DataFrame  # orders combined
    responders: pd.DataFrame  # the table for all of them
    baseline: str  # a name that two runs share carries its run
    candidate: str
    note: str  # where the verdicts come from
    run: str | None = None  # that both come from, or the candidate's; None of files

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

    def met(self) -> set[str]:
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
        *(_find(asked, run, protocol, reading) for asked in (baseline, candidate))
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
    opponents = one.met() & other.met()
    if not opponents:
        said = ", ".join(
            f"{', '.join(sorted(side.met()))} in {side.where}" for side in (one, other)
        )
        raise GateError(f"{baseline!r} and {candidate!r} met no common opponent: {said}.")
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


def _find(asked: str, run: str | None, protocol: str | None, reading: FileOptions) -> Side:
    """Read the run or the file of a side.

    A responder's own name may hold a colon, and a file need name none.
    """
    if file := VOTE_FILE.match(asked):
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
    here, responder = (None if run is None else open_run(run, create=False)), asked
    if (
        here is None
        or not here.has("responders")
        or asked not in set(here.read("responders")["responder"])
    ):
        for colon in reversed([found.start() for found in re.finditer(":", asked)]):
            try:
                here, responder = open_run(asked[:colon], create=False), asked[colon + 1 :]
                break
            except RunError:
                continue
    if here is None:
        there = (
            ", ".join(
                sorted(
                    folder.name for folder in (find_home() / "runs").glob("*") if folder.is_dir()
                )
            )
            or "none yet"
        )
        raise GateError(
            f"{asked!r} names no run that is here. Write run:responder, or give `run`. Runs here:"
            f" {there}."
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
    there = sorted(rows["protocol"].unique())
    if protocol is None and len(there) > 1:
        raise GateError(
            f"In {side.where} are verdicts under {', '.join(there)}; choose one with `protocol`."
        )
    rows = rows[rows["protocol"].isin(there if protocol is None else [protocol])].reset_index(
        drop=True
    )
    if rows.empty:
        under = (
            f" under {protocol!r}; there are {', '.join(there) or 'none at all'}"
            if protocol
            else ""
        )
        raise GateError(f"In {side.where} are no verdicts by a judge (rater_kind 'model'){under}.")
    if side.responder not in (known := {"", *rows[SIDES].to_numpy().flat}):
        said = f"The responder {side.responder!r} appears in no verdict of {side.where}"
        raise GateError(f"{said}; there are {', '.join(sorted(known - {''}))}.")
    side.tables["verdicts"] = rows
    return side


def _name_both(one: Side, other: Side) -> tuple[Side, Side]:
    """Find the responder of a file without a name: the one that the other side lacks."""
    named = []
    for side, elsewhere in ((one, other), (other, one)):
        here, there = (
            set(each.tables["verdicts"][SIDES].to_numpy().flat) for each in (side, elsewhere)
        )
        own = sorted(here - there)
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

    A judged history, or an opponent's reply to it.
    """
    told = [side.tables["histories"].set_index("history_id")["turns"] for side in (one, other)]
    words = [
        turns.map(lambda turns: repr([(turn["speaker"], turn["text"]) for turn in turns]))
        for turns in told
    ]
    for what, (here, there) in {
        "histories": words,
        "replies of opponents": [side.replies(opponents) for side in (one, other)],
    }.items():
        both = pd.concat([here, there], axis=1, join="inner", keys=["one", "other"])
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
    table, said = comparison.table, _words(comparison)
    _refuse_people(comparison, note)
    low, high = (
        table[column].map("{:.1f}".format).replace("nan", "n/a")
        for column in ("drop_low", "drop_high")
    )
    ends = table[["drop", "drop_low", "drop_high"]].itertuples(index=False)
    change = pd.Series([describe_change(*row)["change"] for row in ends], table.index)
    shown = {
        "dimension": table["dimension"],
        f"change ({said['unit']})": change.where(table["drop"].notna(), "n/a"),
        "bounds of the drop": low + " to " + high,
        "p (Holm)": table["p_holm"].map("{:.3f}".format).replace("nan", "n/a"),
        "dialogues": table["n_dialogues"],
        "verdicts": table["n_verdicts"],
        "failed answers": table["n_failed"],
        "outcome": table["outcome"],
    }
    figure = Markup(_figure(comparison)) if name.endswith(".html") else ""
    rows = table[["dimension", "outcome", "message"]].to_dict("records")
    return fill_page(
        name,
        gate=comparison,
        said=said,
        note=note,
        rows=rows,
        shown=pd.DataFrame(shown).astype(str),
        simulated=_simulated(comparison),
        counts=table["outcome"].value_counts().to_dict(),
        figure=figure,
    )


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
    table, said = comparison.table, _words(comparison)
    ax = plot_intervals(
        table,
        value="drop",
        label="dimension",
        by="outcome",
        looks=LOOKS,
        xlabel=said["axis"],
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

    board = comparison.ratings
    if len(board):
        board = board[board["dimension"] == board["dimension"].iloc[0]]
    heights = [1 + 0.4 * count for count in (len(comparison.table), len(board)) if count]
    figure, axes = plt.subplots(
        len(heights),
        squeeze=False,
        figsize=(9, 1 + sum(heights)),
        height_ratios=heights,
        layout="constrained",
    )
    plot_drops(comparison, ax=axes[0, 0])
    if len(board):
        plot_leaderboard(
            board, title=f"Everyone who was met, on {board['dimension'].iloc[0]}", ax=axes[1, 0]
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
    asked = _parser().parse_args(arguments)
    try:
        sides = read_sides(
            asked.baseline, asked.candidate, protocol=asked.protocol, **reading_of(asked)
        )
        found, sides = _decide(sides, asked)
        _refuse_people(found, sides.note)
        code, answer = EXITS[found.outcome]
        contents = _report_files(found, asked.out, sides.note) if asked.out else {}
        if asked.xlsx:
            contents[asked.xlsx] = as_workbook({"gate": found.table, "ratings": found.ratings})
        for file, name in ((asked.junit, "gate.xml"), (asked.markdown, "gate.md")):
            if file:
                contents[file] = report_text(found, name, sides.note).encode()
        if asked.json:
            report = {
                "answer": answer.lower(),
                "exit_code": code,
                "note": sides.note,
                "baseline": found.baseline,
                "candidate": found.candidate,
                "mode": found.mode,
                "alpha": found.alpha,
                "dimensions": json.loads(found.table.to_json(orient="records")),
            }
            contents[asked.json] = f"{json.dumps(report, indent=1, ensure_ascii=False)}\n".encode()
        write_together(contents)
    except (ValueError, OSError, MissingExtraError) as error:
        print(f"heart-gate: {redact_message(str(error))}", file=sys.stderr)
        if isinstance(error, DataError) and error.options:
            print(f"The same as a file for --reading:\n{as_yaml(error.options)}", file=sys.stderr)
        return BAD_INPUT
    print(f"{answer}: {found.candidate} against {found.baseline}")
    print(*(f"  {message}" for message in found.table["message"]), sides.note, sep="\n")
    return code


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
        help="share of pairs in which a judge may follow the order (0.5)",
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


def _decide(sides: Sides, asked: argparse.Namespace) -> tuple[Comparison, Sides]:
    """Compare, and let the result decide only if a required calibration is there."""
    if asked.people is not None and asked.anytime:
        raise GateError(
            "--people corrects a test that is made once; without --anytime it may be used."
        )
    if asked.require_calibration is None:
        return _compare(sides, asked), sides
    judges = check_calibration(
        sides.verdicts,
        asked.require_calibration,
        run=sides.run,
        judges=asked.judges,
        least_lead=asked.least_lead,
        least_labels=asked.least_labels,
        dimensions=asked.dimension,
    )
    if judges.faults:
        return decide_nothing(_compare(sides, asked), judges.faults), sides
    if asked.people is not None:  # limits and interval are people's already
        return _compare(sides, asked), sides
    for limit in ("margin", "max_drop", "max_detectable"):
        setattr(asked, limit, getattr(asked, limit) * judges.discernment)
    return _compare(sides, asked), replace(sides, note=sides.note + judges.note)


def _compare(sides: Sides, asked: argparse.Namespace) -> Comparison:
    releases = asked.releases or (8 if asked.anytime else 1)
    if asked.anytime:
        return compare_anytime(
            sides.verdicts,
            baseline=sides.baseline,
            candidate=sides.candidate,
            margin=asked.margin,
            alpha=asked.alpha,
            n_releases=releases,
            max_inconsistent=asked.max_inconsistent,
            dimensions=asked.dimension,
        )
    if asked.people is not None:
        return compare_powered(
            sides.verdicts,
            _read_people(asked.people, reading_of(asked)),
            baseline=sides.baseline,
            candidate=sides.candidate,
            mode=asked.mode,
            alpha=asked.alpha / releases,
            max_drop=asked.max_drop,
            max_detectable=asked.max_detectable,
            max_inconsistent=asked.max_inconsistent,
            dimensions=asked.dimension,
        )
    return sides.compare(
        mode=asked.mode,
        alpha=asked.alpha / releases,
        max_drop=asked.max_drop,
        max_detectable=asked.max_detectable,
        max_inconsistent=asked.max_inconsistent,
        dimensions=asked.dimension,
        rng=np.random.default_rng(20260109),
    )


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
