"""From what people answered to rows of the run: ``python -m heart_utils.people.raters RUN SOURCE``."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from heart_utils.judging.design import digest
from heart_utils.people.exports import PotatoAnswers, check_people, read_csv, read_label_studio, read_potato
from heart_utils.runs import Run, csv_text, open_run, read_csv_text, write_atomically
from heart_utils.settings import read_yaml
from heart_utils.sources.files import complete
from heart_utils.sources.heart import flag_reply
from heart_utils.tables import KEYS, check_table, empty_table

__all__ = ["ImportedStudy", "PrivacyError", "REDACTIONS", "StudyImportError", "add_people", "import_ratings"]

TIE = "No difference"
QUESTIONS = ("preference", "strength", "reason", "dimension")
MATCHED = [
    *("person", "comparison_id", "pair_id", "dimension", "verdict", "margin"),
    *("order", "reason", "seconds", "position", "pasted_share", "where"),
]
STATEMENT = ("population", "language", "pay")
PASTED_SHARE = 0.5
SHARED = "people"  #: The part of comparisons and of responders that all studies of a run share.


class StudyImportError(ValueError):
    """Answers do not fit the study they are said to come from."""


@dataclass(frozen=True, eq=False)
class ImportedStudy:
    """Rows for the run, as in :mod:`heart_utils.tables`; those that the kind of study does not fill are empty.

    ``n_withdrawn`` people's answers were left out because they asked for it. ``licence`` is under which people agreed that
    their answers be published; what is not stated is not published. To a ``rehearsal`` somebody or some program gave the
    answers, to try the pages out.
    """

    raters: pd.DataFrame
    n_withdrawn: int
    verdicts: pd.DataFrame = field(default_factory=lambda: empty_table("verdicts"), repr=False)
    comparisons: pd.DataFrame = field(default_factory=lambda: empty_table("comparisons"), repr=False)
    replies: pd.DataFrame = field(default_factory=lambda: empty_table("replies"), repr=False)
    responders: pd.DataFrame = field(default_factory=lambda: empty_table("responders"), repr=False)
    licence: str = "none stated"
    rehearsal: bool = False

    def write(self, run: Run) -> None:
        """Write the answers into the run, as a part of their own, which only the same study or file replaces."""
        study = str(self.raters["study"].iloc[0])
        part = f"people-{study}"
        written = {name: getattr(self, name) for name in ("replies", "verdicts", "raters")}
        for name, rows in written.items():
            _refuse_known(run, name, rows, part)
        for name, rows in written.items():
            if len(rows) or run.has(name, part):
                self._write_part(run, name, part, rows, f"the study {study} with people")
        # Several studies show the same comparisons, and all their writers are one responder.
        if len(self.comparisons):
            known = [run.read("comparisons", SHARED)] if run.has("comparisons", SHARED) else []
            shown = pd.concat([*known, self.comparisons]).drop_duplicates("comparison_id")
            shown = shown[shown["comparison_id"].isin(run.read("verdicts")["comparison_id"])]
            self._write_part(run, "comparisons", SHARED, shown, "what studies with people showed")
        if len(self.responders):
            theirs = pd.concat([run.read("replies", other) for other in run.parts("replies")])
            who = self.responders.assign(simulated=bool(theirs["simulated"].all()))
            self._write_part(run, "responders", SHARED, who, "who wrote in studies with people")

    def _write_part(self, run: Run, name: str, part: str, rows: pd.DataFrame, source: str) -> None:
        run.write(name, rows, part=part)
        made_up = "rehearsal" if self.rehearsal else "simulated"
        origin = made_up if len(rows) and rows["simulated"].all() else "live"
        run.record(tables={f"{name}/{part}": {"source": source, "licence": self.licence, "origin": origin}})


def import_ratings(
    run: Run,
    source: Path,
    *,
    statement: Mapping[str, str] | None = None,
    redact: str = "contacts",
    withdrawn: Sequence[str] = (),
    simulated: bool = False,
) -> ImportedStudy:
    r"""Turn the answers of a rating study into verdicts.

    Parameters
    ----------
    run : Run
        Whose histories and replies were shown.
    source : pathlib.Path
        The folder of a study written here; or a ``.json`` of Label Studio or a ``.csv``, whose replies must be the run's.
    statement : mapping, optional
        The rater statement, ``population``, ``language`` and ``pay``; a study folder brings its own.
    redact : str
        What is taken out of reasons: ``"none"``, ``"contacts"`` or ``"all"``.
    withdrawn : sequence of str
        People who asked that their answers be deleted, as they were named in the study.
    simulated : bool
        Whether a program answered. The answers to a rehearsal are simulated whatever is said here.

    Returns
    -------
    ImportedStudy
        Nothing is written yet. A page that was answered but for its side has the state ``abstained``; a page never answered
        has no row, and is counted in ``raters``. Reasons with a formula or markup are text, flagged, and warned of.

    Raises
    ------
    StudyImportError, heart_utils.people.exports.ExportError
        If there is no rater statement, a comparison was never shown to the one who judged it or was judged twice, or the
        export is cut short or has one person under two spellings.

    Examples
    --------
    >>> from heart_utils import open_run
    >>> import_ratings(open_run("sample"), Path("votes.csv"), statement={"population": "students", "language": "English"})
    Traceback (most recent call last):
    heart_utils.people.raters.StudyImportError: The rater statement lacks pay: ...
    """
    licence, rehearsal = "none stated", False
    if source.is_dir():
        settings = _study(source, "rating")["settings"]
        said = _statement(settings["statement"] if statement is None else statement, settings["rehearsal"])
        licence, rehearsal = settings["licence"] or licence, settings["rehearsal"] is True
        simulated = simulated or rehearsal
        judged, raters = _match_potato(source, read_potato(source), settings["rating"])
        comparisons = check_table("comparisons", pd.read_parquet(source / "comparisons.parquet"))
    else:
        said = _statement(statement or {}, False)
        rows = read_label_studio(source) if source.suffix == ".json" else read_csv(source)
        judged = _match_table(rows, run.read("comparisons"), source.name)
        raters = judged.groupby("person").size().rename("n_shown").reset_index()
        raters = raters.assign(n_answered=raters["n_shown"], n_checks=0, n_checks_passed=0, completed=True)
        comparisons = run.read("comparisons")
    judged, raters, n_withdrawn = _without(judged, raters, withdrawn)
    twice = judged.duplicated(["person", "pair_id", "dimension"], keep=False)
    if twice.any():
        first = judged[twice].sort_values(["person", "pair_id", "dimension"], kind="stable").head(2)
        both = f"first {' and '.join(first['where'])}, both by {first['person'].iloc[0]!r}"
        raise StudyImportError(
            f"{int(twice.sum())} verdicts are second answers to one comparison, {both}. Remove one of each two."
        )
    codes = code_people(sorted(set(raters["person"])), run.folder / "keys" / "people.csv")
    study = _name(run, source)
    verdicts = _verdicts(run, judged, comparisons, codes, redact, simulated)
    kept = comparisons[comparisons["comparison_id"].isin(verdicts["comparison_id"]) & source.is_dir()]
    people, kept = _raters_table(raters, codes, study, said, simulated), check_table("comparisons", kept)
    return ImportedStudy(people, n_withdrawn, verdicts, kept, licence=licence, rehearsal=rehearsal)


def import_replies(
    run: Run,
    source: Path,
    *,
    statement: Mapping[str, str] | None = None,
    redact: str = "contacts",
    withdrawn: Sequence[str] = (),
) -> ImportedStudy:
    """Turn the answers of a writing study into replies by people."""
    settings = _study(source, "reply")["settings"]
    said = _statement(settings["statement"] if statement is None else statement, settings["rehearsal"])
    simulated = settings["rehearsal"] is True
    found = read_potato(source)
    shown = _match_pages(source, found)
    raters = _people_of(found, shown)
    answers = found.answers[found.answers["question"] == "reply"]
    written = answers.merge(shown, on=["person", "item_id"]).merge(found.pages, on=["person", "item_id"])
    written, raters, n_withdrawn = _without(written, raters, withdrawn)
    codes, study = code_people(set(raters["person"]), run.folder / "keys" / "people.csv", prefix="writer"), _name(run, source)
    turns = run.read("histories").set_index("history_id")["turns"]
    unknown = sorted(set(written["history_id"]) - set(turns.index))
    if unknown:
        raise StudyImportError(f"The run has no history {unknown[0]} ({len(unknown)} such); were its histories changed since?")
    rows = [_reply(row, study, codes, turns[row["history_id"]], redact, simulated) for row in written.to_dict("records")]
    replies = check_table("replies", complete("replies", pd.DataFrame(rows))) if rows else empty_table("replies")
    _warn_of(replies["flags"], "replies")
    who = pd.DataFrame({"responder": ["human"], "responder_kind": "human", "simulated": simulated})
    people, about = _raters_table(raters, codes, study, said, simulated), check_table("responders", who)
    licence = settings["licence"] or "none stated"
    return ImportedStudy(people, n_withdrawn, replies=replies, responders=about, licence=licence, rehearsal=simulated)


def add_people(run: Run, replies: pd.DataFrame, histories: pd.DataFrame) -> pd.DataFrame:
    """Add what people wrote in studies of a run to the replies that its recipe brings together.

    Parameters
    ----------
    run : Run
        Whose imported replies take part: all of them, each study being a part of the table ``replies``.
    replies : pandas.DataFrame
        As :func:`heart_utils.judging.recipe.recipe_replies` gives them.
    histories : pandas.DataFrame
        Those of the run's recipe.

    Returns
    -------
    pandas.DataFrame
        The table of replies, people's last: what ``run.read("replies")`` gives once `replies` are written.

    Raises
    ------
    StudyImportError
        If people answered a history that the recipe does not choose any more.

    Examples
    --------
    >>> import tempfile
    >>> from heart_utils import Run
    >>> from heart_utils.tables import empty_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(add_people(Run("mine", Path(folder), Path(folder)), empty_table("replies"), empty_table("histories")))
    0
    """
    tables = {part: run.read("replies", part) for part in run.parts("replies")}
    for part, rows in tables.items():
        lost = rows.loc[~rows["history_id"].isin(histories["history_id"]), "history_id"].unique()
        if len(lost):
            raise StudyImportError(
                f"In {part} people answered {len(lost)} histories that the run {run.name!r} does not choose (any more), first "
                f"{lost[0]!r}. Choose them again under `collect:`, or move {run.folder / 'replies' / part}.parquet away."
            )
    return check_table("replies", pd.concat([replies, *tables.values()], ignore_index=True)) if tables else replies


def main(arguments: Sequence[str] | None = None) -> int:
    """Import a study into its run; say in a sentence what went wrong, if anything did."""
    parser = argparse.ArgumentParser(prog="python -m heart_utils.people.raters", description="Import what people answered.")
    parser.add_argument("run", help="a name under runs/, or a path")
    parser.add_argument("source", help="a folder under runs/<run>/study, a Label Studio .json, or a .csv")
    parser.add_argument("--redact", default="contacts", choices=REDACTIONS)
    parser.add_argument(
        "--withdraw", action="append", default=[], metavar="NAME", help="leave out somebody who asked for it; repeat as needed"
    )
    parser.add_argument("--statement", metavar="FILE", help="YAML with population, language and pay, for a .json or .csv")
    options = parser.parse_args(arguments)
    try:
        run = open_run(options.run, create=False)
        named = run.folder / "study" / options.source
        source = named if named.is_dir() else Path(options.source).resolve()
        if not source.exists():
            raise StudyImportError(f"There is no {options.source} in {run.folder / 'study'}, and no such file.")
        kind = dict[Literal["population", "language", "pay"], str | None]
        statement = read_yaml(options.statement, kind, StudyImportError) if options.statement else None
        about = source / "study.json"
        writing = about.is_file() and json.loads(about.read_text())["kind"] == "reply"
        bring = import_replies if writing else import_ratings
        imported = bring(run, source, statement=statement, redact=options.redact, withdrawn=options.withdraw)
        imported.write(run)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        f"{len(imported.raters)} people, {len(imported.verdicts)} verdicts, {len(imported.replies)} replies; "
        f"{imported.n_withdrawn} withdrew. The key file is {run.folder / 'keys' / 'people.csv'}: keep it apart, and "
        f"delete it when it has served."
    )
    return 0


def _name(run: Run, source: Path) -> str:
    """Name a study by its folder, and whatever else by its place too: two files may have one name."""
    if source.resolve().parent == (run.folder / "study").resolve():
        return source.name
    return f"{source.stem}-{digest(os.path.relpath(source.resolve(), run.root))[:8]}"


def _refuse_known(run: Run, name: str, rows: pd.DataFrame, part: str) -> None:
    """Refuse rows that another part has: a table that holds them twice could not be read any more."""
    key = KEYS[name]
    for other in run.parts(name):
        both = rows[key].merge(run.read(name, other)[key].drop_duplicates(), on=key) if other != part else rows.head(0)
        if len(both):
            raise StudyImportError(
                f"{len(both)} of {len(rows)} {name} are in the run already, in its part {other!r}, first "
                f"{both.iloc[0].dropna().to_dict()}. Each is counted once. If that part is an earlier import of the same "
                f"answers, delete {run.folder}/*/{other}.parquet and import again."
            )


def _study(folder: Path, kind: str) -> dict[str, Any]:
    file = folder / "study.json"
    if not file.is_file():
        raise StudyImportError(
            f"{folder} has no study.json: it is no study written here. Give a folder under runs/<run>/study."
        )
    study: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if study["kind"] != kind:
        raise StudyImportError(f"{folder} is a study of the kind {study['kind']}, expected {kind}.")
    return study


def _statement(given: Mapping[str, str], rehearsal: object) -> dict[str, str]:
    """Ask who the raters are: verdicts of nobody in particular cannot be interpreted."""
    said = {name: str(given.get(name) or "").strip() for name in STATEMENT}
    if rehearsal is True:
        return {name: text or "rehearsal" for name, text in said.items()}
    missing = [name for name, text in said.items() if not text]
    if missing:
        raise StudyImportError(
            f"The rater statement lacks {', '.join(missing)}: who they are, what they speak and were paid. Give it in "
            f"study.yaml before the study, or in a YAML file by --statement."
        )
    return said


def _without(rows: pd.DataFrame, raters: pd.DataFrame, withdrawn: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    unknown = sorted(set(withdrawn) - set(raters["person"]))
    if unknown:
        raise StudyImportError(
            f"Nobody called {unknown[0]!r} took part, so nothing was left out. Look up the names in the study."
        )
    out = raters["person"].isin(set(withdrawn))
    if out.all():
        raise StudyImportError("Nobody who took part is left to import.")
    return rows[~rows["person"].isin(set(withdrawn))], raters[~out], int(out.sum())


def _match_pages(folder: Path, found: PotatoAnswers) -> pd.DataFrame:
    r"""Join each answered page with the assignment."""
    assignment = read_csv_text((folder / "assignment.csv").read_text(encoding="utf-8"), dtype={"check": "Int64"})
    pages = found.pages.merge(assignment, on="item_id", how="left", validate="many_to_one")
    strange = pages[pages["seat"].isna()]
    if len(strange):
        first = strange.iloc[0]
        raise StudyImportError(
            f"{len(strange)} answers are to pages that were never shown in this study, first {first['item_id']!r} by "
            f"{first['person']!r}. Are they from another folder, or was the assignment changed?"
        )
    seats = pages.groupby("person")["seat"].nunique()
    if (seats > 1).any():
        raise StudyImportError(f"{seats.idxmax()!r} answered pages of {seats.max()} seats; each person was shown those of one.")
    sitters = pages.groupby("seat")["person"].nunique()
    if (sitters > 1).any():
        said = "Did one rater come twice, under two names?"
        raise StudyImportError(f"{sitters.max()} people answered in {sitters.idxmax()}, which was made for one. {said}")
    return pages[["person", "item_id", *[column for column in assignment.columns if column != "item_id"]]]


def _match_potato(folder: Path, found: PotatoAnswers, asked: Mapping[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    r"""Read a rating study's answers in terms of a and b, and its attention checks."""
    shown = _match_pages(folder, found)
    twice = found.answers.duplicated(["person", "item_id", "question"])
    if twice.any():
        first = found.answers[twice].iloc[0]
        page = f"the question {first['question']} of the page {first['item_id']!r}"
        raise StudyImportError(f"{first['person']!r} gave two answers to {page}; the export is damaged.")
    given = found.answers.pivot_table(index=["person", "item_id"], columns="question", values="value", aggfunc="first")
    given = given.reindex(columns=list(QUESTIONS))
    pages = shown.merge(found.pages, on=["person", "item_id"]).join(given, on=["person", "item_id"])
    rated = pages[pages["task"] == "rate"].assign(dimension_name="overall")
    if asked["dimension"]:
        second = rated.assign(preference=rated["dimension"].str.removeprefix("Reply "), dimension_name=asked["dimension_name"])
        rated = pd.concat([rated, second.assign(strength=None, reason=None)], ignore_index=True)
    side = rated["preference"].replace(TIE, "tie")
    odd = side.notna() & ~side.isin(["A", "B", "tie"])
    if odd.any():
        first = rated.loc[odd, "item_id"].iloc[0]
        raise StudyImportError(f"The page {first!r} has the side {side[odd].iloc[0]!r}, expected A, B or tie.")
    left_is_a = (rated["order"] == "ab") ^ rated["swapped"].astype(bool)
    chosen = (left_is_a == (side == "A")).map({True: "a", False: "b"})
    verdict = side.where(side.isna() | (side == "tie"), chosen)
    matched = rated.assign(
        verdict=verdict,
        margin=pd.to_numeric(rated["strength"], errors="coerce").where(verdict.isin(["a", "b"])),
        order=left_is_a.map({True: "ab", False: "ba"}),
        dimension=rated["dimension_name"],
        where=rated["item_id"],
    )
    return matched[MATCHED], _with_checks(_people_of(found, shown), pages, folder)


def _match_table(rows: pd.DataFrame, comparisons: pd.DataFrame, name: str) -> pd.DataFrame:
    """Find the comparison that each row of a table of sides is about."""
    check_people({f"{name}, as {person!r}": person for person in rows["person"].unique()})
    by_sides: dict[tuple[str, str], dict[Any, Any]] = {}
    for row in comparisons.to_dict("records"):
        left, right = (row["reply_a"], row["reply_b"]) if row["order"] == "ab" else (row["reply_b"], row["reply_a"])
        by_sides.setdefault((left, right), row)  # the run's own come first, and no study imported since takes their place
    found = []
    for row in rows.to_dict("records"):
        shown = by_sides.get((row["left"], row["right"]))
        if shown is None:
            said = f"{row['left']!r} on the left of {row['right']!r} was never shown"
            raise StudyImportError(f"{row['where']}: {said}. Check the reply ids, and which side was which.")
        left, right = shown["order"]
        sides: dict[object, str] = {"left": left, "right": right, "tie": "tie"}
        verdict = sides.get(row["choice"])
        about = {name: shown[name] for name in ("comparison_id", "pair_id", "order")} | {"verdict": verdict}
        found.append(row | about | {"margin": row["margin"] if verdict in ("a", "b") else None})
    table = pd.DataFrame(found)
    return table.assign(position=table.groupby("person").cumcount() + 1, pasted_share=0.0)


def _people_of(found: PotatoAnswers, shown: pd.DataFrame) -> pd.DataFrame:
    """Count what each person was shown and answered, checks apart."""
    answered = shown[shown["task"] != "check"].groupby("person").size()
    raters = found.people.assign(n_answered=found.people["person"].map(answered).fillna(0).astype(int))
    return raters.assign(n_checks=0, n_checks_passed=0)


def _with_checks(raters: pd.DataFrame, pages: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Count the attention checks that each person answered, and passed: the side and the strength that the page asked for."""
    checks = pages[pages["task"] == "check"]
    strength = pd.to_numeric(checks["strength"], errors="coerce")
    passed = (checks["preference"] == checks["check_side"]) & (strength == checks["check_strength"])
    raters["n_checks"] = raters["person"].map(checks.groupby("person").size()).fillna(0).astype(int)
    raters["n_checks_passed"] = raters["person"].map(passed.groupby(checks["person"]).sum()).fillna(0).astype(int)
    assignment = pd.read_csv(folder / "assignment.csv")
    per_seat = (assignment["task"] == "check").groupby(assignment["seat"]).sum()
    seat = pages.drop_duplicates("person").set_index("person")["seat"]
    return raters.assign(n_shown=raters["n_shown"] - raters["person"].map(seat.map(per_seat)).fillna(0).astype(int))


def _verdicts(
    run: Run, judged: pd.DataFrame, comparisons: pd.DataFrame, codes: Mapping[str, str], redact: str, simulated: bool
) -> pd.DataFrame:
    about = comparisons.set_index("comparison_id")[["history_id", "responder_a", "responder_b", "protocol"]]
    histories = run.read("histories").set_index("history_id")[["dialogue_id", "slice"]]
    table = judged.join(about, on="comparison_id").join(histories, on="history_id")
    lost = table[table["dialogue_id"].isna()]
    if len(lost):
        first = lost["history_id"].iloc[0]
        raise StudyImportError(f"The run has no history {first!r} any more; were its histories changed since the study?")
    reasons = [reason if isinstance(reason, str) else None for reason in table["reason"]]
    kept = [redact_text(reason, redact) for reason in reasons]
    flags = [
        [*(["pasted"] if pasted >= PASTED_SHARE else []), *(["redacted"] if now != was else []), *suspicious_text(now)]
        for was, now, pasted in zip(reasons, kept, table["pasted_share"], strict=True)
    ]
    rows = table.assign(
        rater=table["person"].map(codes),
        rater_kind="human",
        state=table["verdict"].notna().map({True: "valid", False: "abstained"}),
        flags=pd.Series(flags, index=table.index, dtype=object),
        rationale=pd.Series(kept, index=table.index, dtype=object),
        simulated=simulated,
    )
    columns = [*empty_table("verdicts").columns, "seconds", "position"]
    rows = complete("verdicts", rows)[columns].sort_values(["rater", "position", "dimension"], kind="stable")
    _warn_of(rows["flags"], "reasons")
    return check_table("verdicts", rows.astype({"verdict": object, "margin": float, "seconds": float}))


def _reply(
    row: Mapping[Any, Any], study: str, codes: Mapping[str, str], turns: list[dict[str, str]], redact: str, simulated: bool
) -> dict[str, Any]:
    writer = codes[row["person"]]
    was = str(row["value"]).strip()
    text = redact_text(was, redact if redact != "all" else "contacts")  # without its words a reply is none
    flags = flag_reply(text or "", n_before=sum(turn["speaker"] == "supporter" for turn in turns), n_after=0)
    flags += ["pasted"] if row["pasted_share"] >= PASTED_SHARE else []
    flags += [*(["redacted"] if text != was else []), *suspicious_text(text)]
    reply_id = f"human-{digest(study, writer, row['history_id'])}"
    return {
        "reply_id": reply_id,
        "history_id": row["history_id"],
        "responder": "human",
        "author_id": writer,
        "text": text or None,
        "total_ms": row["seconds"] * 1000 if row["seconds"] else None,
        "typing_ms": row["typing_ms"],
        "flags": flags,
        "state": "valid" if text else "abstained",
        "simulated": simulated,
    }


def _warn_of(flags: pd.Series, what: str) -> None:
    counts = {word: int(flags.map(lambda words, word=word: word in words).sum()) for word in ("formula", "markup")}
    said = [f"{count} {what} with {word}" for word, count in counts.items() if count]
    if said:
        warnings.warn(f"There are {' and '.join(said)}. They are kept as text and flagged; nothing in them runs.", stacklevel=3)


def _raters_table(
    raters: pd.DataFrame, codes: Mapping[str, str], study: str, statement: Mapping[str, str], simulated: bool
) -> pd.DataFrame:
    table = raters.assign(rater=raters["person"].map(codes), rater_kind="human", study=study, simulated=simulated, **statement)
    return check_table("raters", table.drop(columns="person").sort_values("rater"))


REDACTIONS = ("none", "contacts", "all")

CONTACTS = (
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "[email]"),
    (re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE), "[link]"),
    (re.compile(r"(?<!\w)@\w{2,}"), "[handle]"),
    (re.compile(r"(?<!\w)\+?\d(?:[\s().-]{0,2}\d){6,}(?!\w)"), "[number]"),
    (re.compile(r"\b[0-9a-f]{24}\b"), "[id]"),
)
"""Mail and web addresses, names on platforms, telephone and other long numbers, and Prolific's ids, in this order."""

FORMULA = re.compile(r"^\s*[=+@\t\r]|^\s*-(?=\s*[\w(=@])")
MARKUP = re.compile(r"<[/!?a-zA-Z]|javascript:", re.IGNORECASE)


class PrivacyError(ValueError):
    """A key file cannot be used."""


def code_people(people: Iterable[str], key_file: Path, *, prefix: str = "rater") -> dict[str, str]:
    """Give each person a random code, the same one each time as long as the key file is there.

    The key file is the only link between codes and people. Delete it, and the raw answers with it, and nobody can
    tell whose verdicts are whose; who is imported again then gets a new code.
    """
    known = _read_keys(key_file)
    taken = set(known["code"])
    codes = {person: code for code, person in zip(known["code"], known["person"], strict=True) if code.startswith(f"{prefix}-")}
    fresh = []
    for person in people:
        while person not in codes:
            code = f"{prefix}-{secrets.token_hex(4)}"
            if code not in taken:
                codes[person] = code
                taken.add(code)
                fresh.append((code, person))
    if fresh:
        both = pd.concat([known, pd.DataFrame(fresh, columns=["code", "person"])], ignore_index=True)
        # By code, since the order of arrival would tell who is who to whoever watched.
        write_atomically(key_file, csv_text(both.sort_values("code")).encode(), private=True)
    return codes


def redact_text(text: str | None, level: str = "contacts") -> str | None:
    """Take out of a free text what could tell who wrote it."""
    if level not in REDACTIONS:
        raise PrivacyError(f"There is no redaction {level!r}; there are {', '.join(REDACTIONS)}.")
    if text is None or level == "all":
        return None
    if level == "contacts":
        for pattern, word in CONTACTS:
            text = pattern.sub(word, text)
    return text


def suspicious_text(text: str | None) -> list[str]:
    """Flag a free text that a spreadsheet would compute or a page would run.

    It is kept as it is: tables hold text, and whatever shows it must show it as text.
    """
    if not text:
        return []
    return [*(["formula"] if FORMULA.search(text) else []), *(["markup"] if MARKUP.search(text) else [])]


def _read_keys(key_file: Path) -> pd.DataFrame:
    if not key_file.is_file():
        return pd.DataFrame({"code": [], "person": []}, dtype=str)
    try:
        keys = read_csv_text(key_file.read_text(encoding="utf-8"), dtype=str, keep_default_na=False)
    except (ValueError, UnicodeDecodeError) as error:
        said = "Restore it, or delete it to give everyone a new code."
        raise PrivacyError(f"The key file {key_file} cannot be read ({error}). {said}") from None
    if list(keys.columns) != ["code", "person"]:
        raise PrivacyError(f"The key file {key_file} has the columns {list(keys.columns)}, expected code and person.")
    twice = (
        keys["code"].duplicated()
        | pd.DataFrame({"kind": keys["code"].str.split("-").str[0], "person": keys["person"]}).duplicated()
    )
    if twice.any():
        first = keys.loc[twice, "code"].iloc[0]
        raise PrivacyError(f"The key file {key_file} gives {first} or its person twice; each code belongs to one person.")
    return keys


if __name__ == "__main__":
    warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
    sys.exit(main())
