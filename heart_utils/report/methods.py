"""The paragraph for a paper that says how a run was judged and rated, written from its tables and settings."""

from __future__ import annotations

import os

import pandas as pd

from heart_utils.ratings.ratings import Ratings
from heart_utils.report import WORDS
from heart_utils.report.figures import POPULATION_NAMES
from heart_utils.report.provenance import versions
from heart_utils.runs import Run, open_run

__all__ = ["methods"]

MODELS: dict[str, str] = WORDS["models"]
INTERVALS: dict[str, str] = WORDS["intervals"]
WEIGHTS: dict[str, str] = WORDS["weights"]


def methods(run: Run | str | os.PathLike[str], ratings: Ratings) -> str:
    """Write the paragraph of a paper's methods section on the verdicts of a run and a fit to them.

    Parameters
    ----------
    run : Run, str or path
        An open run, its name or its folder, with the table ``verdicts``.
    ratings : Ratings
        What was fitted to them.

    Returns
    -------
    str
        Sentences of counts and settings, with keys of ``book/references.bib`` in the form ``[@key]`` of Pandoc. What was not
        recorded is not said: who the raters were and how they were found is yours to add.

    Examples
    --------
    >>> import tempfile
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> from heart_utils.runs import open_run
    >>> from heart_utils.sources import load_verdicts
    >>> votes = pd.DataFrame({"history_id": ["c1", "c2", "c3"], "responder_a": "ann", "responder_b": "bot", "rater": "eve",
    ...     "rater_kind": "human", "verdict": ["a", "b", "a"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mine = open_run(folder)
    ...     _ = mine.write("verdicts", load_verdicts(votes))
    ...     said = methods(mine, fit_ratings(mine.read("verdicts"), n_resamples=0))
    >>> said.split(". ")[0]
    '2 responders were compared on 3 histories (3 dialogues) by 1 person, 3 verdicts on the dimension overall'
    """
    opened, fit = run if isinstance(run, Run) else open_run(run), ratings.settings
    rows = opened.read("verdicts")
    rows = rows[rows["dimension"] == fit["dimension"]]
    met = sorted(set(rows["responder_a"]) | set(rows["responder_b"]))
    of_kind = {kind: sorted(set(rows.loc[rows["rater_kind"] == kind, "rater"])) for kind in ("human", "model")}
    people, judges = len(of_kind["human"]), of_kind["model"]
    raters = [f"{people:,} {'person' if people == 1 else 'people'}"] if people else []
    raters += [f"{len(judges)} model judge{'s' if len(judges) > 1 else ''} ({', '.join(judges)})"] if judges else []
    said = [
        f"{len(met)} responders were compared on {rows['history_id'].nunique():,} histories "
        f"({rows['dialogue_id'].nunique():,} dialogues) by {' and '.join(raters)}, {len(rows):,} verdicts on the dimension "
        f"{fit['dimension']}",
        f"Protocols: {', '.join(sorted(set(rows['protocol'])))}; {_orders(rows)}",
        f"{ratings.n_verdicts:,} verdicts entered the fit, {ratings.n_inconsistent:,} of them as half a win to each, since the "
        f"two orders contradicted each other"
        + "".join(f"; {state}, left out: {count:,}" for state, count in ratings.left_out.items() if count),
        f"Ratings are those of {MODELS[fit['method']]}; {WEIGHTS[fit['weights']]}; the mean is 1500, and 400 points are "
        f"odds of ten to one",
    ]
    if fit["population"] != "none" and fit["interval"] in INTERVALS:
        clusters = " and ".join(str(name).removesuffix("_id") + "s" for name in fit["cluster"])
        how = INTERVALS[fit["interval"]].format(n_resamples=fit["n_resamples"], clusters=clusters)
        few = " The interval is provisional: fewer than 30 clusters." if ratings.table["provisional"].any() else ""
        covered = f"{POPULATION_NAMES[fit['population']]}.{few}".rstrip(".")
        said.append(f"Intervals of {fit['ci_level']:.0%} come from {how} and cover {covered}")
    if rows["simulated"].any():
        said.append(f"{int(rows['simulated'].sum()):,} of the verdicts are SIMULATED")
    commit = opened.manifest.get("commit", "not recorded")
    said.append(f"Computed with {', '.join(f'{name} {version}' for name, version in versions().items())} (commit {commit})")
    return ". ".join(said) + "."


def _orders(rows: pd.DataFrame) -> str:
    """Say in which orders pairs were shown, as far as rows tell."""
    shown = rows.dropna(subset="order").groupby(["pair_id", "rater"])["order"].nunique()
    if shown.empty:
        return "the order in which replies were shown is not recorded"
    return f"{(shown == 2).mean():.0%} of pairs were shown to a rater in both orders"
