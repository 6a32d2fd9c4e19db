"""Propose whom to pay: from each person's answers and the rule of exclusion."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from heart_utils.agreement.raters import ExclusionRule, decide_exclusions, rater_quality
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.runs import Run, code_people, csv_text, write_atomically

__all__ = ["propose_payments"]

APPROVE, REVIEW, REJECT = "approve", "review", "reject"


def propose_payments(
    raters: pd.DataFrame, verdicts: pd.DataFrame, rule: ExclusionRule | None = None
) -> pd.DataFrame:
    """Propose for each rater whether a platform should pay, and say why; a person decides.

    Only failed attention checks propose a rejection: they are the one fault that somebody was told
    of beforehand. Haste and odd answers leave verdicts out of an analysis, and an unfinished study
    is paid as its first page promises: both are looked at.

    Parameters
    ----------
    raters : pandas.DataFrame
        The table ``raters`` of a study, such as that of
        :func:`~heart_collect.people.raters.import_study`.
    verdicts : pandas.DataFrame
        The verdicts that they gave; no row where they wrote replies.
    rule : ExclusionRule, optional
        That of the study's protocol; by default the book's.

    Returns
    -------
    pandas.DataFrame
        One row per ``rater``: ``decision`` (``approve``, ``review`` or ``reject``), its ``reason``,
        and how many of the pages shown, ``n_shown``, were answered, ``n_answered``.

    Examples
    --------
    >>> from heart_utils.tables import empty_table
    >>> raters = {
    ...     "rater": ["r1", "r2"],
    ...     "n_shown": 5,
    ...     "n_answered": [5, 2],
    ...     "n_checks": 0,
    ...     "n_checks_passed": 0,
    ... }
    >>> raters = pd.DataFrame(raters | {"completed": [True, False]})
    >>> propose_payments(raters, empty_table("verdicts"))["decision"].tolist()
    ['approve', 'review']
    """
    rule = ExclusionRule() if rule is None else rule
    try:
        decided = decide_exclusions(rater_quality(verdicts, raters), rule).set_index("rater")
        signs, excluded = decided["signs"].to_dict(), decided["excluded"].to_dict()
    except AgreementError:  # nobody has given a verdict: they wrote replies, or stopped before
        signs, excluded = {}, {}
    rows = []
    for person in raters.to_dict("records"):
        rater, n_checks, n_answered = (
            person["rater"],
            int(person["n_checks"]),
            int(person["n_answered"]),
        )
        failed = n_checks - int(person["n_checks_passed"])
        if failed > rule.max_failed_checks:
            allowed = f"the rule allows {rule.max_failed_checks}"
            decision, reason = REJECT, f"failed {failed} of {n_checks} attention checks; {allowed}"
        elif not person["completed"]:
            decision, reason = (
                REVIEW,
                f"stopped after {n_answered} pages; pay what the first page promises",
            )
        elif n_answered < int(person["n_shown"]):
            decision, reason = REVIEW, f"answered {n_answered} of {person['n_shown']} pages"
        elif excluded.get(rater):
            words = " and ".join(word.replace("_", " ") for word in signs[rater])
            decision, reason = (
                REVIEW,
                f"left out of the analysis as {words}, which is no proof that nobody read",
            )
        else:
            decision, reason = APPROVE, "finished"
        rows.append((rater, decision, reason, n_answered, int(person["n_shown"])))
    return pd.DataFrame(rows, columns=["rater", "decision", "reason", "n_answered", "n_shown"])


def write_payments(
    run: Run, raters: pd.DataFrame, verdicts: pd.DataFrame, *, withdrawn: Collection[str] = ()
) -> tuple[Path, pd.DataFrame]:
    """Write the proposal with the names or ids of people into the run's folder of keys.

    Only the owner may read it.
    """
    keys = run.folder / "keys"
    codes = [code_people([], keys / "people.csv", prefix=kind) for kind in ("rater", "writer")]
    known = {code: person for kind in codes for person, code in kind.items()}
    table = propose_payments(raters, verdicts)
    table.insert(0, "person", table["rater"].map(known))
    gone = pd.DataFrame(
        {
            "person": sorted(withdrawn),
            "decision": APPROVE,
            "reason": "withdrew their answers, having worked",
        }
    )
    table = pd.concat([table, gone], ignore_index=True).sort_values(
        ["decision", "person"], ignore_index=True
    )
    file = keys / f"payments-{raters['study'].iloc[0]}.csv"
    write_atomically(file, csv_text(table).encode(), private=True)
    return file, table
