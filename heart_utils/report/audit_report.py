"""The command ``heart-audit``: read a file of votes, and say what it can support."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from heart_utils import __version__
from heart_utils.extras import MissingExtraError, extra
from heart_utils.identities import redact_message, refuse_identities
from heart_utils.report.audit import HEADLINES, LEVELS, PAGES, Audit, audit_votes
from heart_utils.report.figures import plot_leaderboard
from heart_utils.report.gate_report import as_markdown
from heart_utils.report.html import fill_page
from heart_utils.runs import known_people, write_together
from heart_utils.sources.load import load_replies, load_verdicts
from heart_utils.sources.options import add_reading, as_yaml, reading_of
from heart_utils.tables import DataError

__all__ = ["report_audit"]

USAGE = """The command ``heart-audit VOTES``: what can these votes support?

Its exit code: 0 nothing serious, 1 a conclusion that votes do not bear, 2 bad input, 3 something
they leave open, such as whether a judge reads.
"""
EXITS = {"sound": 0, "unsupported": 1, "undecided": 3}
BAD_INPUT = 2
TITLE = "What these votes can support"
SCORES = """These are scores, and heart-audit reads votes. Make votes of them in Python:
from heart_utils import load_scores, scores_to_verdicts
scores_to_verdicts(load_scores("scores.csv")).to_csv("votes.csv", index=False)"""


def report_audit(audit: Audit, name: str) -> str:
    """Fill one of the templates ``audit.html`` and ``audit.md``.

    Parameters
    ----------
    audit : Audit
        What was found.
    name : {"audit.html", "audit.md"}
        The page, with figures (needs matplotlib), or Markdown.

    Returns
    -------
    str

    Raises
    ------
    heart_utils.identities.IdentityError
        If a name looks like a person's address or id.

    Examples
    --------
    >>> from heart_utils.report.audit import audit_votes
    >>> votes = pd.DataFrame({"dialogue_id": ["d1", "d2"], "verdict": ["a", "b"]})
    >>> votes = votes.assign(responder_a="x", responder_b="y", rater="judge", rater_kind="model")
    >>> report_audit(audit_votes(votes, n_resamples=20), "audit.md").splitlines()[0]
    '## What these votes can support'
    """
    refuse_identities({"the audit": audit.findings}, {}, known=known_people())
    findings = audit.findings
    parts = [
        (heading, findings[findings["level"] == level].to_dict("records"))
        for level, heading in LEVELS.items()
        if findings["level"].eq(level).any()
    ]
    pages = name.endswith(".html")
    return fill_page(
        name,
        title=TITLE,
        headline=HEADLINES[audit.outcome],
        audit=audit,
        parts=parts,
        figures={board: Markup(_figure(audit, board)) for board in audit.boards} if pages else {},
        words={board: _in_words(audit, board) for board in audit.boards},
        md=as_markdown,
        names={label: name for label, (name, _) in PAGES.items()},
        links=addresses(),
    )


def addresses() -> dict[str, str]:
    """Return the address of each page that explains a check; none where the package names none."""
    try:
        told = importlib.metadata.metadata("heart-utils").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        told = []
    found = [url.removeprefix("Repository, ") for url in told if url.startswith("Repository, ")]
    return {
        label: f"{repository}/blob/HEAD/{file}"
        for repository in found[:1]
        for label, (_, file) in PAGES.items()
    }


def _in_words(audit: Audit, board: str) -> str:
    table = audit.boards[board].table
    places = zip(table["responder"], table["rating"], strict=True)
    return f"{board}: " + ", ".join(f"{who} {rating:.0f}" for who, rating in places)


def _figure(audit: Audit, board: str) -> str:
    with extra("plots"):
        import matplotlib.pyplot as plt

    table = audit.boards[board].table
    figure, ax = plt.subplots(figsize=(5.5, 1.4 + 0.35 * len(table)), layout="constrained")
    plot_leaderboard(table, title=board, ax=ax)
    drawn = io.StringIO()
    with plt.rc_context({"svg.hashsalt": "audit"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


def as_record(audit: Audit) -> dict[str, Any]:
    """Lay out an audit for a program to read."""
    boards = {
        name: json.loads(board.table.to_json(orient="records"))
        for name, board in audit.boards.items()
    }
    return {
        "outcome": audit.outcome,
        "exit_code": EXITS[audit.outcome],
        "simulated": audit.simulated,
        "counts": audit.counts,
        "findings": audit.findings.to_dict("records"),
        "agreement": json.loads(audit.agreement.to_json(orient="records")),
        "leaderboards": boards,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit a file as the command line asks, and return the exit code."""
    options = _parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, category, *_, **__: _note(message, category)
        return _run(options)


def _note(message: Warning | str, category: type[Warning]) -> None:
    """Print what was noted on the way, without the place in the code."""
    if issubclass(category, UserWarning):
        print(f"heart-audit: note: {redact_message(str(message))}", file=sys.stderr)


def _run(options: argparse.Namespace) -> int:
    try:
        # Copies are counted, and left out; what else comes again is a repeat.
        copies = {"repeats": "drop"} if Path(options.votes).is_file() else {}
        reading: Any = {**copies, **reading_of(options)}
        votes = load_verdicts(options.votes, **reading)
        replies = load_replies(options.replies) if options.replies else None
        audit = audit_votes(votes, replies=replies, smallest_gap=options.gap)
        written = {options.html: "audit.html", options.markdown: "audit.md"}
        contents = {
            file: report_audit(audit, name).encode() for file, name in written.items() if file
        }
        if options.json:
            text = json.dumps(as_record(audit), indent=1, ensure_ascii=False)
            contents[options.json] = f"{text}\n".encode()
        write_together(contents)
    except (ValueError, OSError, MissingExtraError) as error:
        print(f"heart-audit: {redact_message(str(error))}", file=sys.stderr)
        if isinstance(error, DataError) and error.options:
            print(_next_step(error), file=sys.stderr)
        return BAD_INPUT
    with contextlib.suppress(BrokenPipeError):  # such as by `head`
        print(audit, flush=True)
        if links := addresses():
            pages = dict.fromkeys(audit.findings.query("level != 'sound'")["page"])
            print("\nExplained in:")
            for label in pages:
                print(f"- {PAGES[label][0]}: {links[label]}", flush=True)
    return EXITS[audit.outcome]


def _next_step(error: DataError) -> str:
    """Say how the command may read what it refused."""
    if "load_scores(" in str(error):
        return SCORES
    lines = as_yaml(error.options)
    return f"Check these lines, save them as reading.yaml, add --reading reading.yaml:\n{lines}"


def _parser() -> argparse.ArgumentParser:
    first, rest = USAGE.split("\n", 1)
    parser = argparse.ArgumentParser(prog="heart-audit", description=first, epilog=rest)
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
