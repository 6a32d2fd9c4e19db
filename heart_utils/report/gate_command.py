"""The command ``heart-gate BASELINE CANDIDATE``: did a candidate get worse? Its exit code is the answer.

Each side is a file of votes or a run, with the responder after a colon where it is not evident: ``old.csv new.csv``,
``votes.csv:old votes.csv:new``, ``runs/before:assistant runs/after:assistant``. Exit codes: 0 passed, 1 worse (non-inferiority:
not shown to be as good), 2 bad input, 3 inconclusive.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heart_utils.gate import MODES, Comparison, compare_anytime, compare_responders
from heart_utils.report.gate_report import junit_xml, markdown_summary, read_sides, write_reports
from heart_utils.runs import write_atomically

__all__: list[str] = []

PASSED, WORSE, BAD_INPUT, INCONCLUSIVE = range(4)
ANSWERS = ("PASSED", "WORSE", "BAD INPUT", "INCONCLUSIVE")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two responders as the command line says, report in the terminal, and give the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        sides = read_sides(asked.baseline, asked.candidate, protocol=asked.protocol)
        found = _compare(sides.verdicts, {"baseline": sides.baseline, "candidate": sides.candidate}, asked)
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
    first, rest = (__doc__ or "").split("\n", 1)
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


def _compare(verdicts: Any, names: dict[str, Any], asked: argparse.Namespace) -> Comparison:
    both = {"max_inconsistent": asked.max_inconsistent, "dimensions": asked.dimension, **names}
    releases = asked.releases or (8 if asked.anytime else 1)
    if asked.anytime:
        return compare_anytime(verdicts, margin=asked.margin, alpha=asked.alpha, n_releases=releases, **both)
    fixed = {"mode": asked.mode, "max_drop": asked.max_drop, "max_detectable": asked.max_detectable}
    return compare_responders(verdicts, alpha=asked.alpha / releases, rng=np.random.default_rng(20260109), **fixed, **both)


def _json(found: Comparison, code: int, note: str) -> str:
    said: dict[str, Any] = {"answer": ANSWERS[code].lower(), "exit_code": code}
    said |= {name: getattr(found, name) for name in ("baseline", "candidate", "mode", "alpha")} | {"note": note}
    rows = json.loads(found.table.to_json(orient="records"))
    return json.dumps({**said, "dimensions": rows}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
