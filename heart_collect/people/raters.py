"""From people's answers to rows of a run (``python -m heart_collect.people.raters RUN SOURCE``)."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import pandas as pd

from heart_collect.judging.design import digest
from heart_collect.judging.prompts import PROMPTS
from heart_collect.people.arrivals import same_name
from heart_collect.people.assignment import StudyError
from heart_collect.people.exports import (
    PASTED_SHARE,
    check_people,
    load_about,
    read_answers,
    read_potato,
)
from heart_collect.people.withdrawal import forget, withdraw, withdrawn_people
from heart_utils.identities import redact_contacts, redact_message, show_cell
from heart_utils.runs import (
    Run,
    code_people,
    csv_text,
    open_run,
    read_csv_text,
    write_atomically,
)
from heart_utils.settings import JsonObject, read_yaml
from heart_utils.sources.defaults import FileOptions, add_reading, complete, reading_of
from heart_utils.sources.heart import flag_reply
from heart_utils.tables import KEYS, check_table, empty_table

__all__ = ["ImportedStudy", "REDACTIONS", "import_study"]

TIE = "No difference"
#: What is judged -> what a page calls its two sides.
LABELS = {
    unit: [f"{words['name']} {side}" for side in "AB"] for unit, words in PROMPTS["units"].items()
}
#: What a page calls a side -> what a file of answers does.
SIDES = {"A": "left", "B": "right", "tie": "tie", TIE: "tie"} | {
    label: side
    for pair in LABELS.values()
    for label, side in zip(pair, ("left", "right"), strict=True)
}
STATEMENT = ("population", "language", "pay")
WRITTEN = ("reply", "conversation")  #: Kinds of studies in which people are the supporters.
SHARED = "people"  #: The part of comparisons and of responders that all studies of a run share.


@dataclass(frozen=True, eq=False)
class ImportedStudy:
    """Rows of one study, as in :mod:`heart_utils.tables`; what it lacks is empty."""

    raters: pd.DataFrame
    #: People whose answers were left out because they asked for it, as they were named.
    withdrawn: Sequence[str] = field(repr=False)
    verdicts: pd.DataFrame = field(default_factory=partial(empty_table, "verdicts"), repr=False)
    comparisons: pd.DataFrame = field(
        default_factory=partial(empty_table, "comparisons"), repr=False
    )
    replies: pd.DataFrame = field(default_factory=partial(empty_table, "replies"), repr=False)
    #: That people held; each is a row of ``replies`` too.
    conversations: pd.DataFrame = field(
        default_factory=partial(empty_table, "conversations"), repr=False
    )
    responders: pd.DataFrame = field(default_factory=partial(empty_table, "responders"), repr=False)
    #: Under which people agreed that answers be published; what is not stated is not published.
    licence: str = "none stated"
    #: Whether somebody or some program gave the answers to try the pages out.
    rehearsal: bool = False

    def write(self, run: Run) -> None:
        """Write into the run, as a part that only the same source replaces."""
        study = str(self.raters["study"].iloc[0])
        part = f"people-{study}"
        written = {
            "conversations": self.conversations,
            "replies": self.replies,
            "verdicts": self.verdicts,
            "raters": self.raters,
        }
        for name, rows in written.items():
            _refuse_known(run, name, rows, part)
        for name, rows in written.items():
            if len(rows) or run.has(name, part):
                self._write_part(run, name, part, rows, f"the study {study} with people")
        # Several studies show the same comparisons, and all their writers are one responder.
        if len(self.comparisons):
            known = [run.read("comparisons", SHARED)] if run.has("comparisons", SHARED) else []
            comparisons = pd.concat([*known, self.comparisons]).drop_duplicates("comparison_id")
            comparisons = comparisons[
                comparisons["comparison_id"].isin(run.read("verdicts")["comparison_id"])
            ]
            self._write_part(
                run, "comparisons", SHARED, comparisons, "what studies with people showed"
            )
        if len(self.responders):
            theirs = pd.concat([run.read("replies", other) for other in run.parts("replies")])
            who = self.responders.assign(simulated=bool(theirs["simulated"].all()))
            self._write_part(run, "responders", SHARED, who, "who wrote in studies with people")

    def _write_part(self, run: Run, name: str, part: str, rows: pd.DataFrame, source: str) -> None:
        run.write(name, rows, part=part)
        made_up = "rehearsal" if self.rehearsal else "simulated"
        origin = made_up if len(rows) and rows["simulated"].all() else "live"
        run.record(
            tables={f"{name}/{part}": {"source": source, "licence": self.licence, "origin": origin}}
        )


def import_study(
    run: Run,
    source: Path,
    *,
    statement: Mapping[str, str] | None = None,
    redact: str = "contacts",
    withdrawn: Sequence[str] = (),
    simulated: bool = False,
    **reading: Unpack[FileOptions],
) -> ImportedStudy:
    """Read a study's answers as verdicts, replies or conversations; ``write(run)`` keeps them.

    Parameters
    ----------
    run
        Whose histories and replies were shown.
    source
        Folder of a study written here, or a table of answers about the run's replies.
    statement
        ``population``, ``language`` and ``pay`` of the raters; a study folder has its own.
    redact
        What is taken out of free texts: ``"none"``, ``"contacts"`` or ``"all"``.
    withdrawn
        People who asked for deletion, as they were named in the study.
    simulated
        Whether a program answered; in a rehearsal always.
    **reading
        Of a table, as in :func:`~heart_utils.sources.load.load_verdicts`: ``rater``, ``left``,
        ``right`` (ids of replies), ``choice`` (``left``, ``right``, ``tie``), perhaps ``margin``,
        ``reason``, ``dimension``, ``seconds``.

    Returns
    -------
    ImportedStudy
        ``verdicts`` and ``comparisons``, or ``replies``, ``responders`` and ``conversations``; and
        ``raters``. A page answered but for its side is ``abstained``.

    Raises
    ------
    StudyError
        If there is no statement, a comparison was judged twice or unseen, or files are cut short.

    Examples
    --------
    >>> from heart_utils import open_run
    >>> import_study(open_run("sample"), Path("votes.csv"), statement={"population": "students"})
    Traceback (most recent call last):
    heart_collect.people.assignment.StudyError: The rater statement lacks language, pay: ...
    """
    about: JsonObject = load_about(source) if source.is_dir() else {"kind": "file", "settings": {}}
    settings, kind = about["settings"], about["kind"]
    licence, rehearsal = settings.get("licence") or "none stated", settings.get("rehearsal") is True
    simulated = simulated or rehearsal
    about_raters = _statement(statement or settings.get("statement") or {}, rehearsal)
    if kind == "file":
        rows = _match_answers(read_answers(source, reading), run.read("comparisons"))
        raters = rows.groupby("person").size().rename("n_shown").reset_index()
        raters = raters.assign(
            n_answered=raters["n_shown"], n_checks=0, n_checks_passed=0, completed=True
        )
    elif kind == "conversation":
        from heart_collect.people.chats import read_chats  # for who talked, nobody else

        raters, rows = read_chats(source)
    else:
        pages = _match_pages(source)
        raters = _count_pages(pages)
        rows = (
            _rated(source, pages, settings["rating"])
            if kind == "rating"
            else pages[pages["reply"].notna()]
        )
    # Before anything is coded or stored: of people who withdrew not even a code may remain.
    raters, left_out = _without(raters, withdrawn, withdrawn_people(run))
    rows = rows[rows["person"].isin(raters["person"])]
    histories = run.read("histories").set_index("history_id")
    about_them = histories.reindex(columns=["dialogue_id", "slice", "turns", "seeker"])
    rows = rows.join(about_them, on="history_id").reset_index(drop=True)
    if len(lost := rows.loc[rows["turns"].isna(), "history_id"]):
        raise StudyError(
            f"The run has no history {lost.iloc[0]!r} any more; were its histories changed since"
            " the study?"
        )
    if kind not in WRITTEN:
        _refuse_second_answers(rows)
    if changed := int(rows.get("changed_later", pd.Series(dtype=bool)).sum()):
        warnings.warn(
            f"{changed} answers were changed after another page had been answered, by going back or"
            " in a second tab. The last word of each counts, and it is flagged changed_later.",
            stacklevel=2,
        )
    study, prefix = _name(run, source), "writer" if kind in WRITTEN else "rater"
    # Sorted, so that the key file does not show in which order people came.
    codes = code_people(
        sorted(set(raters["person"])), run.folder / "keys" / "people.csv", prefix=prefix
    )
    rows = rows.assign(rater=rows["person"].map(codes), simulated=simulated)
    raters = raters.assign(
        rater=raters["person"].map(codes),
        rater_kind="human",
        study=study,
        simulated=simulated,
        **about_raters,
    )
    if kind in WRITTEN:
        who = pd.DataFrame(
            {"responder": ["human"], "responder_kind": "human", "simulated": simulated}
        )
        written = (
            {"replies": _replies(rows, study, redact)}
            if kind == "reply"
            else _conversations(rows, study, redact)
        )
        tables = {**written, "responders": check_table("responders", who)}
    else:
        tables = {"verdicts": _verdicts(rows, redact)}
        if kind == "rating":
            shown_comparisons = pd.read_parquet(source / "comparisons.parquet")
            tables["comparisons"] = check_table(
                "comparisons",
                shown_comparisons[shown_comparisons["comparison_id"].isin(rows["comparison_id"])],
            )
    raters = check_table("raters", raters.drop(columns="person").sort_values("rater"))
    return ImportedStudy(raters, left_out, licence=licence, rehearsal=rehearsal, **tables)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m heart_collect.people.raters", description="Import what people answered."
    )
    parser.add_argument("run", help="a name under runs/, or a path")
    parser.add_argument("source", help="a folder under runs/<run>/study, or a table such as a .csv")
    parser.add_argument(
        "--redact",
        default="contacts",
        choices=REDACTIONS,
        help="a run takes contacts out in any case",
    )
    parser.add_argument(
        "--withdraw",
        action="append",
        default=[],
        metavar="NAME",
        help="leave out somebody who asked for it, now and in every later import; repeat as needed",
    )
    parser.add_argument(
        "--forget",
        action="append",
        default=[],
        metavar="NAME",
        help="also delete what they wrote from all studies, tables and the ledger of the run",
    )
    parser.add_argument(
        "--statement",
        metavar="FILE",
        help="YAML with population, language and pay, for a table",
    )
    add_reading(parser)
    options = parser.parse_args(arguments)
    try:
        run = open_run(options.run, create=False)
        if options.forget:
            print("\n".join(forget(run, options.forget)))
            return 0
        named = run.folder / "study" / options.source
        source = named if named.is_dir() else Path(options.source).resolve()
        if not source.exists():
            raise StudyError(
                f"There is no {options.source} in {run.folder / 'study'}, and no such file."
            )
        kind = dict[Literal["population", "language", "pay"], str | None]
        statement = read_yaml(options.statement, kind, StudyError) if options.statement else None
        imported = import_study(
            run,
            source,
            statement=statement,
            redact=options.redact,
            withdrawn=options.withdraw,
            **reading_of(options),
        )
        study = str(imported.raters["study"].iloc[0])
        withdraw(run, options.withdraw, [study])
        imported.write(run)
        payments, proposed = write_payments(run, imported)
    except ValueError as error:
        print(f"error: {redact_message(str(error))}", file=sys.stderr)
        return 1
    print(
        f"{len(imported.raters)} people, {len(imported.verdicts)} verdicts, {_summary(imported)};"
        f" {len(imported.withdrawn)} withdrew and are left out. The key file is"
        f" {run.folder / 'keys' / 'people.csv'}: keep it apart, and delete it when it has served."
    )
    counts = proposed["decision"].value_counts()
    print(
        f"Whom to pay is proposed in {payments}, with reasons:"
        f" {', '.join(f'{word} {n}' for word, n in counts.items())}."
    )
    return 0


def write_payments(run: Run, imported: ImportedStudy) -> tuple[Path, pd.DataFrame]:
    """Propose whom to pay, by name, in the run's folder of keys; a person decides.

    Only failed checks, of which people were told, propose rejection.
    """
    keys, study = run.folder / "keys", str(imported.raters["study"].iloc[0])
    codes = [code_people([], keys / "people.csv", prefix=kind) for kind in ("rater", "writer")]
    known = {code: person for kind in codes for person, code in kind.items()}
    table = _propose(imported.raters, imported.verdicts)
    table.insert(0, "person", table["rater"].map(known))
    gone = pd.DataFrame({"person": sorted({*imported.withdrawn, *withdrawn_people(run, study)})})
    gone = gone.assign(decision="approve", reason="withdrew their answers, having worked")
    table = pd.concat([table, gone], ignore_index=True)
    table = table.sort_values(["decision", "person"], ignore_index=True)
    file = keys / f"payments-{study}.csv"
    write_atomically(file, csv_text(table).encode(), private=True)
    return file, table


def _propose(raters: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    # here, since no other command that reads what people gave needs SciPy
    from heart_utils.agreement.raters import ExclusionRule, decide_exclusions, rater_quality
    from heart_utils.ratings.verdicts import AgreementError

    rule = ExclusionRule()
    try:
        decided = decide_exclusions(rater_quality(verdicts, raters), rule).set_index("rater")
        odd = decided.loc[decided["excluded"], "signs"].to_dict()
    except AgreementError:  # nobody has given a verdict: they wrote replies, or stopped before
        odd = {}
    rows = []
    for person in raters.to_dict("records"):
        n_answered, n_shown = int(person["n_answered"]), int(person["n_shown"])
        failed = int(person["n_checks"]) - int(person["n_checks_passed"])
        decision = "review"
        if failed > rule.max_failed_checks:
            decision = "reject"
            reason = f"failed {failed} of {person['n_checks']} attention checks;"
            reason += f" the rule allows {rule.max_failed_checks}"
        elif not person["completed"]:
            reason = f"stopped after {n_answered} pages; pay what the first page promises"
        elif n_answered < n_shown:
            reason = f"answered {n_answered} of {n_shown} pages"
        elif person["rater"] in odd:
            signs = " and ".join(word.replace("_", " ") for word in odd[person["rater"]])
            reason = f"left out of the analysis as {signs}, which is no proof that nobody read"
        else:
            decision, reason = "approve", "finished"
        rows.append((person["rater"], decision, reason, n_answered, n_shown))
    return pd.DataFrame(rows, columns=["rater", "decision", "reason", "n_answered", "n_shown"])


def _summary(imported: ImportedStudy) -> str:
    if imported.conversations.empty:
        return f"{len(imported.replies)} replies"
    reasons = imported.conversations["stop_reason"].value_counts()
    counts = ", ".join(f"{reason} {n}" for reason, n in reasons.items())
    return f"{len(imported.conversations)} conversations ({counts})"


def _name(run: Run, source: Path) -> str:
    """Name a study by its folder, another source by its place too."""
    if source.resolve().parent == (run.folder / "study").resolve():
        return source.name
    # a file may be called as its sender
    stem = redact_message(source.stem).translate(str.maketrans("", "", "[]"))
    return f"{stem}-{digest(os.path.relpath(source.resolve(), run.root))[:8]}"


def _refuse_known(run: Run, name: str, rows: pd.DataFrame, part: str) -> None:
    key = KEYS[name]
    for other in run.parts(name):
        both = (
            rows[key].merge(run.read(name, other)[key].drop_duplicates(), on=key)
            if other != part
            else rows.head(0)
        )
        if len(both):
            raise StudyError(
                f"{len(both)} of {len(rows)} {name} are in the run already, in its part {other!r},"
                f" first {both.iloc[0].dropna().to_dict()}. Each is counted once. If that part is"
                f" an earlier import of the same answers, delete {run.folder}/*/{other}.parquet and"
                " import again."
            )


def _statement(given: Mapping[str, str], rehearsal: bool) -> dict[str, str]:
    """Refuse to go on without knowing who the raters are."""
    statement = {
        name: str(given.get(name) or "").strip() or "rehearsal" * rehearsal for name in STATEMENT
    }
    missing = [name for name, text in statement.items() if not text]
    if missing:
        raise StudyError(
            f"The rater statement lacks {', '.join(missing)}: who they are, what they speak and"
            " were paid. Give it in study.yaml before the study, or in a YAML file by --statement."
        )
    return statement


def _without(
    raters: pd.DataFrame, withdrawn: Sequence[str], listed: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Leave out who asks for it now, and who is on the run's list."""
    names = raters["person"].map(same_name)
    if unknown := {same_name(one) for one in withdrawn} - set(names):
        raise StudyError(
            f"{len(unknown)} of the {len(set(withdrawn))} names to leave out took no part, so"
            " nobody was left out. Look up how they are spelt in the study."
        )
    out = names.isin([same_name(one) for one in (*withdrawn, *listed)])
    if out.all():
        raise StudyError(
            "Nobody who took part is left to import. --forget deletes what an earlier import wrote."
        )
    return raters[~out], raters.loc[out, "person"].tolist()


def _match_pages(folder: Path) -> pd.DataFrame:
    assignment = read_csv_text(
        (folder / "assignment.csv").read_text(encoding="utf-8"), dtype={"check": "Int64"}
    )
    pages = read_potato(folder).merge(assignment, on="item_id", how="left", validate="many_to_one")
    answered = pages[pages["answered"]]
    strange = answered[answered["seat"].isna()]
    if len(strange):
        raise StudyError(
            f"{len(strange)} answers are to pages that were never shown in this study, first"
            f" {strange['item_id'].iloc[0]!r}. Are they from another folder, or was the"
            " assignment changed?"
        )
    seats = answered.groupby("person")["seat"].nunique()
    sitters = answered.groupby("seat")["person"].nunique()
    if (seats > 1).any():
        theirs = answered.loc[answered["person"] == seats.idxmax(), "seat"].unique()
        raise StudyError(
            f"Somebody answered pages of {seats.max()} seats ({', '.join(sorted(theirs))}); each"
            " person was shown those of one."
        )
    if (sitters > 1).any():
        raise StudyError(
            f"{sitters.max()} people answered in {sitters.idxmax()}, which was made for one. Did"
            " one rater come twice, under two names?"
        )
    return pages


def _count_pages(pages: pd.DataFrame) -> pd.DataFrame:
    task, answered = pages["task"], pages["answered"]
    expected = pages.reindex(columns=["check_side", "check_strength"])
    passed = (pages["preference"] == expected["check_side"]) & (
        pd.to_numeric(pages["strength"]) == expected["check_strength"]
    )
    counted = pages[["person"]].assign(
        n_shown=task.notna() & (task != "check"),
        n_answered=answered & (task != "check"),
        n_checks=answered & (task == "check"),
        n_checks_passed=answered & (task == "check") & passed,
    )
    return (
        counted.groupby("person")
        .sum()
        .assign(completed=answered.groupby(pages["person"]).all())
        .reset_index()
    )


def _rated(folder: Path, pages: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    rated = pages[(pages["task"] == "rate") & pages["answered"]].assign(question="overall")
    rated = rated.rename(columns={"strength": "margin", "preference": "choice"})
    if settings["dimension"]:
        second = rated.assign(choice=rated["dimension"], question=settings["dimension_name"])
        rated = pd.concat([rated, second.assign(margin=None, reason=None)], ignore_index=True)
    odd = rated[rated["choice"].notna() & ~rated["choice"].isin(list(SIDES))]
    if len(odd):
        side = show_cell("choice", odd["choice"].iloc[0])
        raise StudyError(
            f"The page {odd['item_id'].iloc[0]!r} has the side {side}, expected A, B or tie."
        )
    turned = rated["order"].map({"ab": "ba", "ba": "ab"})
    rated = rated.assign(
        choice=rated["choice"].map(SIDES),
        order=rated["order"].mask(rated["swapped"], turned),
        dimension=rated["question"],
    )
    protocol = pd.read_parquet(folder / "comparisons.parquet").set_index("comparison_id")[
        "protocol"
    ]
    rated = rated[rated["comparison_id"].isin(protocol.index)]  # others: their writer withdrew
    return rated.assign(where=rated["item_id"]).join(protocol, on="comparison_id")


def _match_answers(answers: pd.DataFrame, comparisons: pd.DataFrame) -> pd.DataFrame:
    check_people(
        {str(where): person for where, person in answers["rater"].drop_duplicates().items()}
    )
    ab, a, b = comparisons["order"] == "ab", comparisons["reply_a"], comparisons["reply_b"]
    # The run's own come first, and no study imported since takes their place.
    by_sides = comparisons.assign(left=a.where(ab, b), right=b.where(ab, a)).drop_duplicates(
        ["left", "right"]
    )
    rows = answers.rename_axis("where").reset_index().rename(columns={"rater": "person"})
    rows = rows.merge(by_sides, on=["left", "right"], how="left", validate="many_to_one")
    lost = rows[rows["comparison_id"].isna()]
    if len(lost):
        first = lost.iloc[0]
        raise StudyError(
            f"{first['where']}: {first['left']!r} on the left of {first['right']!r} was never"
            " shown. Check the reply ids, and which side was which."
        )
    return rows.assign(
        position=rows.groupby("person").cumcount() + 1, pasted_share=0.0, changed_later=False
    )


def _refuse_second_answers(rows: pd.DataFrame) -> None:
    # the same pair with its sides changed is its second order
    key = ["person", "pair_id", "dimension", "order"]
    twice = rows[rows.duplicated(key, keep=False)].sort_values(key, kind="stable")
    if len(twice):
        raise StudyError(
            f"{len(twice)} verdicts are second answers to one comparison, first"
            f" {' and '.join(twice['where'].head(2))}, both by one person. Remove one of each two."
        )


def _verdicts(rows: pd.DataFrame, redact: str) -> pd.DataFrame:
    sided = rows["choice"].isin(["left", "right"])
    first = (rows["choice"] == "left") == (rows["order"] == "ab")
    rationale, flags = _screened(rows["reason"], rows, redact, "reasons")
    rows = rows.assign(
        verdict=rows["choice"].mask(sided, first.map({True: "a", False: "b"})),
        margin=pd.to_numeric(rows["margin"]).where(sided),
        rater_kind="human",
        state=rows["choice"].notna().map({True: "valid", False: "abstained"}),
        rationale=rationale,
        flags=flags,
    )
    columns = [*empty_table("verdicts").columns, "seconds", "position"]
    if (with_seeker := rows["seeker"].notna()).any():
        rows["unit"] = with_seeker.map({True: "conversation", False: "reply"})
        columns += ["unit", "seeker"]
    rows = complete("verdicts", rows)[columns]
    return check_table(
        "verdicts", rows.sort_values(["rater", "position", "dimension"], kind="stable")
    )


def _replies(rows: pd.DataFrame, study: str, redact: str) -> pd.DataFrame:
    # Without its words a reply is none.
    text, flags = _screened(
        rows["reply"].str.strip(), rows, redact.replace("all", "contacts"), "replies"
    )
    before = [sum(turn["speaker"] == "supporter" for turn in turns) for turns in rows["turns"]]
    own_flags = [
        flag_reply(words or "", n_before=n, n_after=0)
        for words, n in zip(text, before, strict=True)
    ]
    names = zip(rows["rater"], rows["history_id"], strict=True)
    replies = pd.DataFrame(
        {
            "reply_id": [f"human-{digest(study, *name)}" for name in names],
            "history_id": rows["history_id"],
            "responder": "human",
            "author_id": rows["rater"],
            "text": text.mask(text == "", None),
            "total_ms": rows["seconds"].astype(float) * 1000,
            "typing_ms": rows["typing_ms"],
            "flags": pd.Series(own_flags, dtype=object) + flags,
            "state": np.where(text == "", "abstained", "valid"),
            "simulated": rows["simulated"],
        }
    )
    return check_table("replies", complete("replies", replies))


def _conversations(rows: pd.DataFrame, study: str, redact: str) -> dict[str, pd.DataFrame]:
    from heart_collect.judging.respond import conversation_replies
    from heart_collect.people.chats import conversation_row

    level = redact.replace("all", "contacts")
    made = []
    for row in rows.to_dict("records"):
        talk = conversation_row(row["talk"], study, row["rater"], simulated=row["simulated"])
        # what the seeker says too: it may repeat what a person told it
        turns = [{**turn, "text": redact_text(turn["text"], level)} for turn in talk["turns"]]
        flags = [*talk["flags"], *["redacted"] * (turns != talk["turns"])]
        flags += [word for turn in turns for word in suspicious_text(turn["text"])]
        made.append(talk | {"turns": turns, "flags": [*dict.fromkeys(flags)]})
    if not made:
        return {}
    conversations = check_table("conversations", pd.DataFrame(made))
    return {"conversations": conversations, "replies": conversation_replies(conversations)}


def _screened(
    texts: pd.Series, rows: pd.DataFrame, redact: str, what: str
) -> tuple[pd.Series, pd.Series]:
    """Redact texts, and flag those pasted, changed, redacted, or to be computed or run."""
    was = [text if isinstance(text, str) else None for text in texts]
    kept = [redact_text(text, redact) for text in was]
    flags = [
        [
            *["pasted"] * (share >= PASTED_SHARE),
            *["changed_later"] * changed,
            *["redacted"] * (now != before),
            *suspicious_text(now),
        ]
        for before, now, share, changed in zip(
            was, kept, rows["pasted_share"], rows["changed_later"], strict=True
        )
    ]
    counts = {word: sum(word in row for row in flags) for word in SUSPICIOUS}
    if findings := [f"{count} {what} with {word}" for word, count in counts.items() if count]:
        warnings.warn(
            f"There are {' and '.join(findings)}. They are kept as text and flagged; nothing in"
            " them runs.",
            stacklevel=4,
        )
    return pd.Series(kept, texts.index, dtype=object), pd.Series(flags, texts.index, dtype=object)


REDACTIONS = ("none", "contacts", "all")

SUSPICIOUS = {
    "formula": re.compile(r"^\s*[=+@\t\r]|^\s*-(?=\s*[\w(=@])"),
    "markup": re.compile(r"<[/!?a-zA-Z]|javascript:", re.IGNORECASE),
}


def redact_text(text: str | None, level: str = "contacts") -> str | None:
    """Take out of a text what could tell who wrote it."""
    if level not in REDACTIONS:
        raise StudyError(f"There is no redaction {level!r}; there are {', '.join(REDACTIONS)}.")
    if text is None or level == "all":
        return None
    return redact_contacts(text) if level == "contacts" else text


def suspicious_text(text: str | None) -> list[str]:
    """Flag a text that a spreadsheet would compute or a page would run."""
    return [word for word, pattern in SUSPICIOUS.items() if pattern.search(text or "")]


if __name__ == "__main__":
    warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
    sys.exit(main())
