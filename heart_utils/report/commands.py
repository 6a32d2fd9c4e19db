"""The commands ``heart-gate`` and ``heart-audit``, their reports, and the methods paragraph.

``heart-gate BASELINE CANDIDATE``: did a candidate get worse? Each is a file of votes or a run.
``heart-audit VOTES``: what can these votes support?
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pandas as pd
from markupsafe import Markup

from heart_utils import __version__
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
from heart_utils.judges import NOT_CALIBRATED
from heart_utils.ratings.verdicts import combine_orders, is_simulated
from heart_utils.replies.conversations import seekers_in_words
from heart_utils.report import WORDS, fill_page
from heart_utils.report.audit import PAGES, Audit, audit_votes
from heart_utils.report.calibration import (
    LEAST_LABELS,
    CalibrationRecord,
    check_calibration,
    compare_powered,
    decide_nothing,
    load_calibration,
)
from heart_utils.report.figures import COLOURS, plot_intervals, plot_leaderboard
from heart_utils.report.leaderboard import as_workbook
from heart_utils.report.tables import versions_in_words
from heart_utils.runs import Run, RunError, find_home, known_people, open_run, write_together
from heart_utils.settings import MissingExtraError, extra
from heart_utils.sources.defaults import FileOptions, add_reading, as_yaml, reading_of
from heart_utils.sources.formats import COMPRESSED, SUFFIXES
from heart_utils.sources.load import load_replies, load_verdicts, read_file
from heart_utils.tables import DataError, empty_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from heart_utils.ratings.ratings import Ratings

__all__ = [
    "GateError",
    "Sides",
    "methods",
    "read_sides",
    "write_reports",
]

SIDES = ["responder_a", "responder_b"]
ENDS = "|".join(map(re.escape, sorted(SUFFIXES, key=len, reverse=True)))
PACKED = "|".join(map(re.escape, COMPRESSED))
VOTE_FILE = re.compile(rf"(.+?(?:{ENDS})(?:{PACKED})?)(?::(.+))?$", flags=re.IGNORECASE)
TABLES = ("histories", "replies", "responders", "verdicts")
LOOKS = {"passed": (COLOURS[0], "o"), "failed": (COLOURS[4], "X"), "cannot tell": (COLOURS[5], "s")}
EXITS = {"passed": (0, "PASSED"), "failed": (1, "WORSE"), "cannot tell": (3, "INCONCLUSIVE")}
AUDIT_EXITS = {"sound": 0, "unsupported": 1, "undecided": 3}
BAD_INPUT = 2
SCORES = """These are scores, and heart-audit reads votes. Make votes of them in Python:
from heart_utils import load_scores, scores_to_verdicts
scores_to_verdicts(load_scores("scores.csv")).to_csv("votes.csv", index=False)"""


@dataclass(frozen=True)
class Sides:
    """Verdicts that put baseline and candidate into one fit."""

    verdicts: pd.DataFrame  #: orders combined
    responders: pd.DataFrame  #: the table for all of them
    baseline: str  #: a name that two runs share carries its run
    candidate: str
    note: str  #: where the verdicts come from
    run: str | None = None  #: that both come from, or the candidate's; None of files

    def compare(self, **options: Any) -> Comparison:
        """Test the candidate, with the options of `compare_responders`."""
        return compare_responders(
            self.verdicts,
            baseline=self.baseline,
            candidate=self.candidate,
            responders=self.responders,
            **options,
        )


@dataclass(frozen=True)
class Side:
    """One side's tables, empty where there is none, and its responder."""

    name: str  # of the run or the file
    where: str  # the same in a sentence
    folder: Path
    tables: dict[str, pd.DataFrame]
    responder: str  # empty where a file was given alone

    def own(self) -> Side:
        """Keep the responder's verdicts, under ids of this side."""
        rows, who = self.tables["verdicts"], self.tables["responders"]
        rows = rows[(rows[SIDES] == self.responder).any(axis=1)]
        ids = {name: f"{self.name}:" + rows[name] for name in ("comparison_id", "pair_id")}
        who = who[who["responder"] == self.responder]
        tables = self.tables | {"verdicts": rows.assign(**ids), "responders": who}
        return replace(self, tables=tables)

    def among(self, opponents: set[str], name: str) -> Side:
        """Keep the responder, under another name, and these opponents."""
        rows, who = self.tables["verdicts"], self.tables["responders"]
        kept = {self.responder, *opponents}
        rows = rows[rows[SIDES].isin(kept).all(axis=1)]
        rows = rows.replace(dict.fromkeys(SIDES, {self.responder: name}))
        who = who[who["responder"].isin(kept)].replace({"responder": {self.responder: name}})
        return replace(self, tables=self.tables | {"verdicts": rows, "responders": who})

    def opponents(self) -> set[str]:
        rows = self.tables["verdicts"]
        return _names(rows[(rows[SIDES] == self.responder).any(axis=1)]) - {self.responder}

    def replies(self, who: Iterable[str]) -> pd.Series:
        """Return texts by responder and history, several joined."""
        rows = self.tables["replies"].fillna({"text": ""})
        written = rows[rows["responder"].isin(who)].groupby(["responder", "history_id"])["text"]
        return written.agg(lambda texts: "\n".join(sorted(texts)))


def _names(verdicts: pd.DataFrame) -> set[str]:
    return set(verdicts[SIDES].to_numpy().flat)


def read_sides(
    baseline: str,
    candidate: str,
    *,
    run: str | None = None,
    protocol: str | None = None,
    **reading: Unpack[FileOptions],
) -> Sides:
    """Bring the judges' verdicts on two responders into one table, joining two runs if they match.

    Runs match if histories and opponents' replies are the same word for word. People's verdicts are
    left out; the opponents' on one another are the baseline run's.

    Parameters
    ----------
    baseline, candidate
        A responder of `run`, ``run:responder``, or ``votes.csv:responder``; a file's name is enough
        if two files differ in one responder each.
    run
        The run of responders named alone.
    protocol
        Needed where a run holds verdicts of several.
    **reading
        Of files, as in :func:`~heart_utils.sources.load.load_verdicts`.

    Returns
    -------
    Sides

    Raises
    ------
    GateError, heart_utils.runs.RunError
        If a responder or a run is not there, or runs do not match.

    Examples
    --------
    >>> read_sides("old", "new", run="nowhere")
    Traceback (most recent call last):
    heart_utils.runs.RunError: There is no run 'nowhere'.
    """
    found = [_find(named, run, protocol, reading) for named in (baseline, candidate)]
    one, other = _name_both(*found)
    names = [one.responder, other.responder]
    sides: tuple[Side, ...] = (one,)
    note = f"Both from {one.where}."
    if one.folder != other.folder:
        opponents = _common_opponents(one, other)
        note = f"The baseline from {one.where}, the candidate from {other.where}."
        if one.responder == other.responder:
            names = [f"{side.name}:{side.responder}" for side in (one, other)]
        sides = one.among(opponents, names[0]), other.own().among(opponents, names[1])
        _check_words(one, other, opponents, set(sides[0].tables["verdicts"]["history_id"]))
    rows = pd.concat([side.tables["verdicts"] for side in sides], ignore_index=True)
    who = pd.concat([side.tables["responders"] for side in sides], ignore_index=True)
    run_of = other.name if other.folder.is_dir() else None
    return Sides(
        combine_orders(rows), who, names[0], names[1], note + _alike(one, other), run=run_of
    )


def _common_opponents(one: Side, other: Side) -> set[str]:
    if one.tables["verdicts"].equals(other.tables["verdicts"]):
        raise GateError(
            f"{one.where} and {other.where} hold the same verdicts, row for row: no candidate was"
            " judged."
        )
    opponents = one.opponents() & other.opponents()
    if not opponents:
        met = ", ".join(
            f"{', '.join(sorted(side.opponents()))} in {side.where}" for side in (one, other)
        )
        raise GateError(f"{one.responder!r} and {other.responder!r} met no common opponent: {met}.")
    return opponents


def _find(named: str, run: str | None, protocol: str | None, reading: FileOptions) -> Side:
    """Read a side's run or file; a responder's name may hold a colon."""
    if file := VOTE_FILE.match(named):
        path = Path(file[1]).expanduser().resolve()
        if path.is_file() or run is None:
            return _judged(_of_file(path, file[2] or "", reading), protocol)
    opened = None if run is None else open_run(run, create=False)
    responder = named
    if opened is None or named not in _responders(opened):
        for colon in reversed(list(re.finditer(":", named))):
            with contextlib.suppress(RunError):
                opened = open_run(named[: colon.start()], create=False)
                responder = named[colon.end() :]
                break
    if opened is None:
        runs = sorted(run.name for run in (find_home() / "runs").glob("*") if run.is_dir())
        raise GateError(
            f"{named!r} names no run that is here. Write run:responder, or give `run`. Runs here:"
            f" {', '.join(runs) or 'none yet'}."
        )
    if not opened.has("verdicts"):
        raise GateError(
            f"The run {opened.name!r} has no verdicts; `make collect RUN={opened.name}` asks the"
            " judges for them."
        )
    tables = {name: opened.read(name) if opened.has(name) else empty_table(name) for name in TABLES}
    where = f"the run {opened.name!r}"
    return _judged(Side(opened.name, where, opened.folder, tables, responder), protocol)


def _responders(run: Any) -> set[str]:
    return set(run.read("responders")["responder"]) if run.has("responders") else set()


def _of_file(path: Path, responder: str, reading: FileOptions) -> Side:
    # Ids stay, since it is about judges alone: people's rows are left out below.
    verdicts = read_file("verdicts", path, FileOptions({**reading, "keep_ids": True}))
    # a person or a model: nobody said
    who = pd.DataFrame({"responder": sorted(_names(verdicts)), "responder_kind": "source"})
    tables = {name: empty_table(name) for name in TABLES}
    tables |= {"verdicts": verdicts, "responders": who.assign(simulated=is_simulated(verdicts))}
    name = redact_message(path.name)
    return Side(name, f"the file {name}", path, tables, responder)


def _judged(side: Side, protocol: str | None) -> Side:
    rows = side.tables["verdicts"].query("rater_kind == 'model'")
    protocols = sorted(rows["protocol"].unique())
    if protocol is None and len(protocols) > 1:
        raise GateError(
            f"In {side.where} are verdicts under {', '.join(protocols)}; choose one with"
            " `protocol`."
        )
    if protocol is not None:
        rows = rows[rows["protocol"] == protocol]
    if rows.empty:
        under = f" under {protocol!r}; there are {', '.join(protocols) or 'none at all'}"
        under = under if protocol else ""
        raise GateError(f"In {side.where} are no verdicts by a judge (rater_kind 'model'){under}.")
    if side.responder not in {"", *_names(rows)}:
        raise GateError(
            f"The responder {side.responder!r} appears in no verdict of {side.where}; there are"
            f" {', '.join(sorted(_names(rows)))}."
        )
    tables = side.tables | {"verdicts": rows.reset_index(drop=True)}
    return replace(side, tables=tables)


def _name_both(one: Side, other: Side) -> tuple[Side, Side]:
    """Find a file's unnamed responder: the one that the other lacks."""
    named = []
    for side, elsewhere in ((one, other), (other, one)):
        names = _names(side.tables["verdicts"])
        own = sorted(names - _names(elsewhere.tables["verdicts"]))
        if not side.responder and len(own) != 1:
            raise GateError(
                f"{side.name}: which responder is compared? In this file alone there is"
                f" {', '.join(own) or 'none'}; there are {', '.join(sorted(names))}. Name one, as"
                f" in {side.name}:{min(names)}."
            )
        named.append(side if side.responder else replace(side, responder=own[0]))
    return named[0], named[1]


def _alike(one: Side, other: Side) -> str:
    """Count the candidate's replies on which only judges' random variation can differ."""
    written = [side.replies([side.responder]).droplevel("responder") for side in (one, other)]
    both = pd.concat(written, axis=1, join="inner", keys=["one", "other"])
    both = both[both.map(bool).all(axis=1)]
    same = int((both["one"] == both["other"]).sum())
    if not same:
        return ""
    return f" {same} of {len(both)} replies of the candidate are the baseline's, word for word."


def _check_words(one: Side, other: Side, opponents: set[str], judged: set[str]) -> None:
    """Refuse runs whose judged histories or opponents' replies differ."""
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
    """Write ``gate.html``, ``gate.xml`` (JUnit's, a test case a dimension) and ``gate.md``.

    Parameters
    ----------
    comparison
        What a gate found.
    folder
        Made if need be.
    note
        Where the verdicts come from.

    Returns
    -------
    list of pathlib.Path

    Examples
    --------
    >>> import tempfile
    >>> from heart_utils.gate import compare_anytime
    >>> duels = pd.DataFrame({"dialogue_id": ["d1", "d2"], "verdict": "b", "state": "valid"})
    >>> duels = duels.assign(responder_a="new", responder_b="old", dimension="overall")
    >>> found = compare_anytime(duels, baseline="old", candidate="new")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_reports(found, Path(folder))[0].name
    'gate.html'
    """
    contents = _gate_files(comparison, folder, note)
    write_together(contents)
    return list(contents)


def _gate_files(comparison: Comparison, folder: Path, note: str) -> dict[Path, bytes]:
    names = [f"gate.{kind}" for kind in ("html", "xml", "md")]
    return {folder / name: report_text(comparison, name, note).encode() for name in names}


def report_text(comparison: Comparison, name: str, note: str = "") -> str:
    """Fill ``gate.html`` (its figure needs matplotlib), ``gate.xml`` or ``gate.md``."""
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
    return fill_page(
        name,
        gate=comparison,
        said=words,
        note=note,
        rows=table[["dimension", "outcome", "message"]].to_dict("records"),
        shown=pd.DataFrame(columns).astype(str),
        simulated=is_simulated(comparison.ratings),
        counts=table["outcome"].value_counts().to_dict(),
        figure=_gate_figure(comparison) if name.endswith(".html") else "",
        md=as_markdown,
    )


def as_markdown(text: object) -> str:
    """Escape a text, so that Markdown only shows it."""
    one_line = " ".join(str(text).split())
    without_tags = re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", re.sub(r"&(?=[#\w])", "&amp;", one_line))
    return re.sub(r"([\\`*|~$#])", r"\\\1", without_tags).replace("](", r"]\(")


def _p_in_words(p: float) -> str:
    return "n/a" if np.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _refuse_people(comparison: Comparison, note: str) -> None:
    names = {"the baseline": comparison.baseline, "the candidate": comparison.candidate}
    tables = {"ratings": comparison.ratings, "the gate": comparison.table}
    refuse_identities(tables, {"the note": note, **names}, known=known_people())


def plot_drops(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Draw each dimension's drop between two one-sided bounds; right is worse."""
    table = comparison.table
    ax = plot_intervals(
        table,
        value="drop",
        label="dimension",
        by="outcome",
        looks=LOOKS,
        xlabel=_words(comparison)["axis"],
        simulated=is_simulated(comparison.ratings),
        ax=ax,
    )
    # a drop that nobody knows is not a drop of zero
    centred: dict[str, Any] = {"ha": "center", "va": "center", "color": "0.35"}
    for row in np.flatnonzero(table["drop"].isna()).tolist():
        ax.text(0.5, row, "no estimate", transform=ax.get_yaxis_transform(), **centred)
    ax.axvline(0, color="black", linewidth=1)
    if comparison.mode != "regression":
        ax.axvline(comparison.margin, color="black", linewidth=1, linestyle="--", label="margin")
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def _words(comparison: Comparison) -> dict[str, str]:
    alpha = comparison.alpha
    numbers = {"n_releases": comparison.n_releases, "alpha": alpha, "margin": comparison.margin}
    # no more than this, since runs that share a baseline share its luck
    numbers |= {"level": 100 * (1 - alpha), "series": 1 - (1 - alpha) ** 8}
    words: dict[str, str] = WORDS["gate"][comparison.mode]
    return {name: text.format(**numbers) for name, text in words.items()}


def _gate_figure(comparison: Comparison) -> Markup:
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
        title = f"Everyone who was met, on {ratings['dimension'].iloc[0]}"
        plot_leaderboard(ratings, title=title, ax=axes[1, 0])
    return _svg(figure, "gate")


def _svg(figure: Figure, salt: str) -> Markup:
    import matplotlib.pyplot as plt

    drawn = io.StringIO()
    with plt.rc_context({"svg.hashsalt": salt}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    return Markup(drawn.getvalue()[drawn.getvalue().index("<svg") :])


def report_audit(audit: Audit, name: str) -> str:
    """Fill ``audit.html`` (its figures need matplotlib) or ``audit.md``."""
    refuse_identities({"the audit": audit.findings}, {}, known=known_people())
    drawn = audit.boards if name.endswith(".html") else {}
    return audit.fill(
        name,
        figures={board: _board_figure(audit, board) for board in drawn},
        words={board: _board_in_words(audit, board) for board in drawn},
        md=as_markdown,
        links=addresses(),
    )


def addresses() -> dict[str, str]:
    """Return the address of each check's page, if the package names any."""
    told: Sequence[str] = ()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        told = importlib.metadata.metadata("heart-utils").get_all("Project-URL") or ()
    found = [url.removeprefix("Repository, ") for url in told if url.startswith("Repository, ")]
    return {
        label: f"{repository}/blob/HEAD/{file}"
        for repository in found[:1]
        for label, (_, file) in PAGES.items()
    }


def _board_in_words(audit: Audit, board: str) -> str:
    table = audit.boards[board].table
    places = zip(table["responder"], table["rating"], strict=True)
    return f"{board}: " + ", ".join(f"{who} {rating:.0f}" for who, rating in places)


def _board_figure(audit: Audit, board: str) -> Markup:
    with extra("plots"):
        import matplotlib.pyplot as plt

    table = audit.boards[board].table
    figure, ax = plt.subplots(figsize=(5.5, 1.4 + 0.35 * len(table)), layout="constrained")
    plot_leaderboard(table, title=board, ax=ax)
    return _svg(figure, "audit")


def methods(
    run: Run | str | os.PathLike[str],
    ratings: Ratings,
    *,
    records: Sequence[CalibrationRecord] | None = None,
    cards: pd.DataFrame | None = None,
) -> str:
    """Write the paragraph of a paper's methods section on a run's verdicts and a fit to them.

    Parameters
    ----------
    run
        A run with the table ``verdicts``, or its name or folder.
    ratings
        What was fitted to them.
    records
        Of the judges; by default those in the run's ``calibration``.
    cards
        Of simulated seekers, from :func:`~heart_utils.report.seekers.check_seekers`.

    Returns
    -------
    str
        What was recorded, citing keys of ``book/references.bib`` as ``[@key]``; who the raters were
        is yours to add.

    Examples
    --------
    >>> from heart_utils import fit_ratings, open_run
    >>> run = open_run("public")
    >>> methods(run, fit_ratings(run.read("verdicts"), n_resamples=0)).split(" (")[0]
    '6 responders were compared on 160 histories'
    """
    opened, settings = run if isinstance(run, Run) else open_run(run), ratings.settings
    rows = opened.read("verdicts")
    rows = rows[rows["dimension"] == settings["dimension"]]
    raters = rows.groupby("rater_kind")["rater"].unique()
    people = len(raters.get("human", ()))
    judges = sorted({*raters.get("model", ()), *raters.get("trained", ())})
    protocols = sorted(rows["protocol"].unique())
    if records is None:
        files = sorted((opened.folder / "calibration").glob("*.json"))
        records = [load_calibration(file) for file in files]
    counts = {
        "responders": len({*rows["responder_a"], *rows["responder_b"]}),
        "people": people,
        "verdicts": len(rows),
        "histories": rows["history_id"].nunique(),
        "dialogues": rows["dialogue_id"].nunique(),
        "entered": ratings.n_verdicts,
        "inconsistent": ratings.n_inconsistent,
        "simulated": int(rows["simulated"].sum()),
    }
    how = ""
    if settings["population"] != "none" and settings["interval"] in WORDS["intervals"]:
        clusters = " and ".join(str(name).removesuffix("_id") + "s" for name in settings["cluster"])
        how = WORDS["intervals"][settings["interval"]].format(
            n_resamples=settings["n_resamples"], clusters=clusters
        )
    page = fill_page(
        "methods.txt",
        fit=settings,
        words=WORDS,
        people=people,
        judges=judges,
        protocols=protocols,
        calibration={
            judge: _calibration_of(judge, settings["dimension"], records, opened, protocols)
            for judge in judges
        },
        seekers=seekers_in_words(str(settings["population"]), cards),
        n={name: f"{count:,}" for name, count in counts.items()},
        left_out=[(state, f"{count:,}") for state, count in ratings.left_out.items() if count],
        how=how,
        shown=rows.dropna(subset="order").groupby(["pair_id", "rater"])["order"].nunique(),
        simulated=is_simulated(rows),
        provisional=ratings.table["provisional"].any(),
        commit=opened.manifest.get("commit", "not recorded"),
        versions=versions_in_words(),
    )
    return " ".join(page.split())


def _calibration_of(
    judge: str,
    dimension: str,
    records: Sequence[CalibrationRecord],
    run: Run,
    protocols: Sequence[str],
) -> str:
    own = [record for record in records if (record.judge, record.dimension) == (judge, dimension)]
    if not own:
        return NOT_CALIBRATED
    # votes from a file have no note that says what the judge is
    noted = run.manifest.get("judges", {}).get(judge, {})
    now = noted.get(protocols[0]) if len(protocols) == 1 else None
    return "; ".join(record.describe(bound_to=now) for record in own)


def _as_json(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, indent=1, ensure_ascii=False)}\n".encode()


def _records(table: pd.DataFrame) -> Any:
    return json.loads(table.to_json(orient="records"))


def _refuse(command: str, error: Exception, next_step: str) -> int:
    """Say why a command stops, and how a file may be read."""
    print(f"{command}: {redact_message(str(error))}", file=sys.stderr)
    if isinstance(error, DataError) and error.options:
        scores = command == "heart-audit" and "load_scores(" in str(error)
        words = SCORES if scores else f"{next_step}:\n{as_yaml(error.options)}"
        print(words, file=sys.stderr)
    return BAD_INPUT


def heart_audit(arguments: Sequence[str] | None = None) -> int:
    options = _audit_parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _note
        try:
            audit = _audit(options)
        except (ValueError, OSError, MissingExtraError) as error:
            step = "Check these lines, save them as reading.yaml, add --reading reading.yaml"
            return _refuse("heart-audit", error, step)
    with contextlib.suppress(BrokenPipeError):  # such as by `head`
        print(audit, flush=True)
        if links := addresses():
            print("\nExplained in:")
            for label in audit.findings.query("level != 'sound'")["page"].unique():
                print(f"- {PAGES[label][0]}: {links[label]}", flush=True)
    return AUDIT_EXITS[audit.outcome]


def _note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"heart-audit: note: {redact_message(str(message))}", file=sys.stderr)


def _audit(options: argparse.Namespace) -> Audit:
    # Copies are counted, and left out; what else comes again is a repeat.
    copies = {"repeats": "drop"} if Path(options.votes).is_file() else {}
    reading: Any = {**copies, **reading_of(options)}
    votes = load_verdicts(options.votes, **reading)
    replies = load_replies(options.replies) if options.replies else None
    audit = audit_votes(votes, replies=replies, smallest_gap=options.gap)
    contents: dict[Path, bytes] = {}
    for file, name in ((options.html, "audit.html"), (options.markdown, "audit.md")):
        if file:
            contents[file] = report_audit(audit, name).encode()
    if options.json:
        record = {
            "outcome": audit.outcome,
            "exit_code": AUDIT_EXITS[audit.outcome],
            "simulated": audit.simulated,
            "counts": audit.counts,
            "findings": audit.findings.to_dict("records"),
            "agreement": _records(audit.agreement),
            "leaderboards": {name: _records(board.table) for name, board in audit.boards.items()},
        }
        contents[options.json] = _as_json(record)
    write_together(contents)
    return audit


def _audit_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heart-audit",
        description="The command ``heart-audit VOTES``: what can these votes support?",
        epilog="Its exit code: 0 nothing serious, 1 a conclusion that votes do not bear, 2 bad"
        " input, 3 something they leave open, such as whether a judge reads.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {__version__}")
    add("votes", help="a file of votes, or mtbench or mentalalign")
    add("--replies", help="a file of the replies' texts, for the check of length")
    add("--gap", type=float, default=50.0, help="rating points that should be found (50)")
    add("--html", type=Path, metavar="FILE", help="write one page with figures (needs matplotlib)")
    for kind in ("markdown", "json"):
        add(f"--{kind}", type=Path, metavar="FILE", help=f"write the result as {kind}")
    add_reading(parser)
    return parser


def heart_gate(arguments: Sequence[str] | None = None) -> int:
    options = _gate_parser().parse_args(arguments)
    try:
        reading = reading_of(options)
        sides = read_sides(
            options.baseline, options.candidate, protocol=options.protocol, **reading
        )
        comparison, sides = _decide(sides, options)
        _refuse_people(comparison, sides.note)
        _write_gate(comparison, sides.note, options)
    except (ValueError, OSError, MissingExtraError) as error:
        if options.markdown:  # the summary of a build shows it
            _write_bad_input(options.markdown, redact_message(str(error)))
        return _refuse("heart-gate", error, "The same as a file for --reading")
    code, answer = EXITS[comparison.outcome]
    print(f"{answer}: {comparison.candidate} against {comparison.baseline}")
    print(*(f"  {message}" for message in comparison.table["message"]), sides.note, sep="\n")
    return code


def _write_gate(comparison: Comparison, note: str, options: argparse.Namespace) -> None:
    code, answer = EXITS[comparison.outcome]
    contents = _gate_files(comparison, options.out, note) if options.out else {}
    if options.xlsx:
        sheets = {"gate": comparison.table, "ratings": comparison.ratings}
        contents[options.xlsx] = as_workbook(sheets)
    for file, name in ((options.junit, "gate.xml"), (options.markdown, "gate.md")):
        if file:
            contents[file] = report_text(comparison, name, note).encode()
    if options.json:
        record = {
            "answer": answer.lower(),
            "exit_code": code,
            "note": note,
            "baseline": comparison.baseline,
            "candidate": comparison.candidate,
            "mode": comparison.mode,
            "alpha": comparison.alpha,
            "dimensions": _records(comparison.table),
        }
        contents[options.json] = _as_json(record)
    write_together(contents)


def _write_bad_input(file: Path, message: str) -> None:
    text = f"## The gate could not compare: bad input\n\n{as_markdown(message)}\n"
    with contextlib.suppress(OSError):  # a full disk, which the message says already
        write_together({file: text.encode()})


def _gate_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heart-gate",
        description="The command ``heart-gate BASELINE CANDIDATE``: did a candidate get worse?",
        epilog="Its exit code is the answer: 0 passed, 1 worse (non-inferiority: not shown to be as"
        " good), 2 bad input, 3 inconclusive. Each side is a file of votes or a run, with the"
        " responder after a colon where it is not evident: ``old.csv new.csv``, ``votes.csv:old"
        " votes.csv:new``, ``runs/before:assistant runs/after:assistant``.",
    )
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
    names = {"baseline": sides.baseline, "candidate": sides.candidate}
    if options.anytime:
        return compare_anytime(
            sides.verdicts,
            **names,
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
            **names,
            rule=rule,
            dimensions=options.dimension,
        )
    rng = np.random.default_rng(20260109)
    return sides.compare(rule=rule, dimensions=options.dimension, rng=rng)


def _read_people(file: Path, reading: FileOptions) -> pd.DataFrame:
    votes = read_file("verdicts", file, reading)
    others = sorted(set(votes["rater_kind"]) - {"human"})
    if others:
        raise GateError(
            f"{file.name} holds votes whose rater_kind is {', '.join(others)}: --people takes"
            " people's alone. Keep the rows with rater_kind human."
        )
    return combine_orders(votes)
