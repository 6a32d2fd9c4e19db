"""Methods tried in studies of known strengths: coverage, the gate's errors, what a judge saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import optimize
from scipy.special import expit

from heart_utils.agreement.prediction_powered import PoweredRatings, prediction_powered_ratings
from heart_utils.gate import GateError, GateRule, compare_anytime, compare_responders
from heart_utils.ratings.bradley_terry import (
    BradleyTerry,
    covariance,
    draw_strengths,
    fit_strengths,
)
from heart_utils.ratings.ratings import POINTS, check_interval, fit_ratings, spread_of
from heart_utils.ratings.resampling import error_ends, interval_ends
from heart_utils.ratings.verdicts import BOTH, AgreementError, Array, Codes, Entries
from heart_utils.simulate.study import (
    Design,
    Panel,
    critical_value,
    expected_share,
    normal_nodes,
    simulate_study,
)

__all__ = [
    "PATIENT_RULE",
    "NULLS",
    "check_coverage",
    "check_saving",
    "compare_designs",
    "simulate_coverage",
    "simulate_designs",
    "simulate_gate",
    "simulate_power",
]

Pairs = tuple[Codes, Codes]

STRENGTH_SD = 0.6
NODES, WEIGHTS = normal_nodes(31)


def simulate_coverage(
    design: Design,
    *,
    rng: np.random.Generator,
    n_resamples: int = 400,
    ci_level: float = 0.95,
    n_studies: int = 200,
) -> pd.DataFrame:
    r"""Draw studies of one design and count how often each kind of interval holds the truth.

    The truth is what a fit to averaged win probabilities tends to, with these raters or with raters
    like these.

    Parameters
    ----------
    design
        A design without ties.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.
    n_studies
        Two or more.

    Returns
    -------
    pandas.DataFrame
        One row a kind of ``interval``, ``population`` and ``quantity`` (``"strength"`` or
        ``"difference"``): ``coverage``, ``mc_error`` (Monte Carlo), ``width``, ``promised``,
        ``n_studies``, ``simulated``.

    Raises
    ------
    ValueError
        If the design has ties or one study only is asked for.

    Examples
    --------
    >>> from heart_utils.simulate.study import Design
    >>> design = Design(n_dialogues=40, n_responders=4, pairs=6, votes=3, n_raters=25)
    >>> rng = np.random.default_rng(1)
    >>> found = simulate_coverage(design, rng=rng, n_studies=6, n_resamples=20)
    >>> found.groupby("interval")["coverage"].mean().idxmin()
    'released formula'
    """
    if design.tie_share:
        raise ValueError(
            f"tie_share is {design.tie_share}, but these studies are drawn without ties. Set it"
            " to 0."
        )
    if n_studies < 2:
        raise ValueError(f"n_studies is {n_studies}; the Monte Carlo error needs two or more.")
    rows = [row for _ in range(n_studies) for row in _one_study(design, rng, n_resamples, ci_level)]
    keys = ["interval", "population", "quantity"]
    groups = pd.DataFrame(rows, columns=[*keys, "holds", "width"]).groupby(keys, sort=False)
    coverage = groups.agg(
        coverage=("holds", "mean"), mc_error=("holds", "sem"), width=("width", "mean")
    ).reset_index()
    return coverage.assign(promised=ci_level, n_studies=n_studies, simulated=True)


def _one_study(
    design: Design, rng: np.random.Generator, n_resamples: int, ci_level: float
) -> list[tuple[str, str, str, float, float]]:
    size, n_dialogues, fewest = (
        design.n_responders,
        design.n_dialogues,
        min(design.n_dialogues, design.n_raters),
    )
    pairs = np.triu_indices(size, k=1)
    theta = rng.normal(0.0, STRENGTH_SD, size)
    tastes = rng.normal(0.0, design.rater_sd, (design.n_raters, size))
    entries = draw_study(design, rng, theta, tastes, pairs)
    varying = design.rater_sd > 0
    # Two truths: what the fit tends to with more dialogues for these raters (`here`), and with
    # other raters too (`anywhere`). An interval is only judged by the truth of its own population.
    here = limiting_strengths(theta + tastes if varying else theta[None], design.dialogue_sd, pairs)
    anywhere = (
        limiting_strengths(theta[None], np.hypot(design.dialogue_sd, design.rater_sd), pairs)
        if varying
        else here
    )
    model = BradleyTerry.fit(entries, "pairs")
    fixed = replace(model, entries=replace(entries, rater=None))  # raters are these
    each = np.eye(size)
    # every strength, then every difference
    contrasts = np.vstack([each, each[pairs[0]] - each[pairs[1]]])

    def by_draws(draws: Array, n_clusters: int) -> tuple[Array, Array]:
        return interval_ends(contrasts @ model.theta, draws @ contrasts.T, n_clusters, ci_level)

    def by_error(robust: Array, n_clusters: int) -> tuple[Array, Array]:
        variance = np.einsum("ki,ij,kj->k", contrasts, robust, contrasts)
        return error_ends(
            contrasts @ model.theta, np.sqrt(np.maximum(variance, 0.0)), n_clusters, ci_level
        )

    of_dialogues = by_draws(draw_strengths(fixed, n_resamples, rng), n_dialogues)
    weighted = draw_strengths(model, n_resamples // 2, rng)
    # Verdicts drawn one by one, as if they were independent: the interval that is too narrow.
    wins = model.counts[0, 0]
    cells = rng.multinomial(
        len(entries.rows), (wins / wins.sum()).ravel(), size=n_resamples
    ).reshape(-1, size, size)
    single = fit_strengths(cells.astype(float), np.zeros(size, bool), model.theta)
    reach = 1.96 / np.sqrt(entries.n_verdicts())
    both, released = "dialogues_and_raters", (model.theta - reach, model.theta + reach)
    intervals = [  # what is for nobody is compared with the truth for dialogues
        ("dialogues", "dialogues", of_dialogues, here),
        ("dialogues, for other raters", both, of_dialogues, anywhere),
        ("dialogues, sandwich", "dialogues", by_error(covariance(fixed), n_dialogues), here),
        ("dialogues and raters", both, by_error(covariance(model), fewest), anywhere),
        ("dialogues and raters, product weights", both, by_draws(weighted, fewest), anywhere),
        ("verdicts", "none", by_draws(single, len(entries.rows)), here),
        ("released formula", "none", released, here),
    ]
    rows = []
    for interval, population, (low, high), truth in intervals:
        true = (contrasts @ truth)[: len(low)]
        for quantity, at in {"strength": slice(size), "difference": slice(size, len(low))}.items():
            if len(low[at]):
                holds = (low[at] <= true[at]) & (true[at] <= high[at])
                rows.append(
                    (interval, population, quantity, holds.mean(), (high[at] - low[at]).mean())
                )
    return rows


def draw_study(
    design: Design, rng: np.random.Generator, theta: Array, tastes: Array, pairs: Pairs
) -> Entries:
    size, n_dialogues, votes = design.n_responders, design.n_dialogues, design.votes
    pair = np.tile(np.arange(len(pairs[0])), (n_dialogues, 1))
    if design.pairs < pair.shape[1]:
        pair = np.argsort(rng.random(pair.shape), axis=1)[:, : design.pairs]
    dialogue = np.repeat(np.arange(n_dialogues), pair.shape[1] * votes)
    if votes == 1:
        rater = rng.integers(0, design.n_raters, pair.size)
    else:
        luck = rng.random((pair.size, design.n_raters))
        rater = np.argsort(luck, axis=1)[:, :votes].ravel()
    strengths = theta + rng.normal(0.0, design.dialogue_sd, (n_dialogues, size))
    a, b = (side[np.repeat(pair.ravel(), votes)] for side in pairs)
    gap = strengths[dialogue, a] - strengths[dialogue, b] + tastes[rater, a] - tastes[rater, b]
    share, tie = expected_share(gap, design.ties)
    luck = rng.random(len(gap))
    word = np.where(luck < share - tie / 2.0, 0, np.where(luck < share + tie / 2.0, 1, 2))
    nobody = np.zeros(len(a), bool)
    names, rows = pd.Index([f"r{k}" for k in range(size)]), np.arange(len(a))
    clusters, raters, left_out = (
        pd.RangeIndex(n_dialogues),
        pd.RangeIndex(design.n_raters),
        pd.Series(dtype=int),
    )
    return Entries(
        names,
        clusters,
        a,
        b,
        dialogue,
        1.0 - word / 2.0,
        word,
        nobody,
        rows,
        left_out,
        rater,
        raters,
    )


def limiting_strengths(strengths: Array, spread: float, pairs: Pairs, nu: float = 0.0) -> Array:
    """Compute the limiting strengths of averaged win probabilities, raters as rows."""
    gap = strengths[..., pairs[0]] - strengths[..., pairs[1]]
    share = (expected_share(gap[..., None] + np.sqrt(2.0) * spread * NODES, nu)[0] @ WEIGHTS).mean(
        axis=0
    )
    size = strengths.shape[1]
    wins = np.zeros((1, size, size))
    wins[0, pairs[0], pairs[1]], wins[0, pairs[1], pairs[0]] = share, 1.0 - share
    return np.asarray(fit_strengths(wins, np.zeros(size, bool))[0])


def place_strengths(
    strengths_at: Callable[[float], Array],
    fitted_gap: float,
    spread: float,
    pairs: Pairs,
    nu: float = 0.0,
) -> Array:
    """Find strengths with which an endless fit has a given first gap."""

    def missed(distance: float) -> float:
        fitted = limiting_strengths(strengths_at(distance)[None], spread, pairs, nu)
        return float(fitted[0] - fitted[1]) - fitted_gap

    return strengths_at(
        float(optimize.brentq(missed, 0.0, 4.0 * fitted_gap * (1.0 + spread)))
        if fitted_gap
        else 0.0
    )


OTHERS = 0.6  # the other responders lie from minus this to this, in a dialogue's log-odds


def simulate_power(
    design: Design,
    gap: float,
    *,
    rng: np.random.Generator,
    n_studies: int = 200,
    n_resamples: int = 500,
    ci_level: float = 0.95,
    n_contrasts: int | None = None,
) -> pd.DataFrame:
    """Simulate studies with a known gap, and record where the leaderboard finds it.

    The interval of the difference, over dialogues, and over raters if 20 or more differ, must leave
    out zero on the right side.

    Parameters
    ----------
    design
        Ties follow Davidson's model.
    gap
        On the scale of the fit, above zero.
    rng
        The source of chance.
    n_studies
        How many are drawn.
    n_resamples, ci_level
        As in :func:`heart_utils.ratings.ratings.fit_ratings`.
    n_contrasts
        As in :func:`heart_utils.simulate.study.minimum_gap`.

    Returns
    -------
    pandas.DataFrame
        One row a study: ``estimate``, ``se``, ``found``, ``n_effective``, ``simulated``.

    Raises
    ------
    ValueError
        If the gap is not above zero.

    Examples
    --------
    >>> from heart_utils.simulate.study import Design
    >>> design = Design(n_dialogues=60, n_responders=4, pairs=6, votes=3, n_raters=40)
    >>> bool(simulate_power(design, 1.5, rng=np.random.default_rng(1), n_studies=5)["found"].all())
    True
    """
    if not gap > 0:
        raise ValueError(f"gap is {gap}; expected a gap above zero.")
    n_others, pairs = design.n_responders - 2, np.triu_indices(design.n_responders, k=1)
    others = np.linspace(-OTHERS, OTHERS, n_others) if n_others > 1 else np.zeros(n_others)
    spread = float(np.hypot(design.dialogue_sd, design.rater_sd))
    theta = place_strengths(
        lambda apart: np.array([apart / 2.0, -apart / 2.0, *others]),
        gap,
        spread,
        pairs,
        design.ties,
    )
    clusters = ("dialogue_id", "rater") if design.raters_vary else ("dialogue_id",)
    rows = []
    for _ in range(n_studies):
        tastes = rng.normal(0.0, design.rater_sd, (design.n_raters, design.n_responders))
        entries = draw_study(design, rng, theta, tastes, pairs)
        model = BradleyTerry.fit(
            entries if design.raters_vary else replace(entries, rater=None), "pairs"
        )
        gaps, _ = spread_of(
            model, clusters, check_interval(None, clusters), n_resamples, ci_level, rng
        )
        estimate, se = gaps.strength[0] - gaps.strength[1], gaps.errors()[1][0, 1]
        if n_contrasts is None:
            reach = gaps.margins_of_error()[0, 1]
        else:
            df = gaps.n_effective - 1.0
            reach = se * critical_value(
                design.n_responders, df, ci_level=ci_level, n_contrasts=n_contrasts
            )
        rows.append(
            {
                "estimate": estimate,
                "se": se,
                "found": estimate > reach,
                "n_effective": gaps.n_effective,
            }
        )
    return pd.DataFrame(rows).assign(simulated=True)


def label_some(
    verdicts: pd.DataFrame, n: int, rng: np.random.Generator, *, among: ArrayLike | None = None
) -> pd.DataFrame:
    """Keep people's verdicts on n random dialogues, and all judges' of `among`."""
    dialogues = np.asarray(
        sorted(verdicts["dialogue_id"].unique()) if among is None else among, dtype=object
    )
    if n > len(dialogues):
        raise AgreementError(f"{n} of {len(dialogues)} dialogues cannot be labelled.")
    chosen = rng.choice(dialogues, n, replace=False)
    rows = verdicts[verdicts["dialogue_id"].isin(dialogues)]
    return rows[rows["dialogue_id"].isin(chosen) | (rows["rater_kind"] == "model")]


def check_saving(
    verdicts: pd.DataFrame,
    *,
    n_labelled: Sequence[int],
    rng: np.random.Generator,
    n_held_out: int = 20,
    n_draws: int = 50,
) -> pd.DataFrame:
    """Measure what a judge saves, against people's verdicts on unseen dialogues.

    It is by how much the mean squared distance to theirs falls with the judge, over the mean
    variance of people alone.

    Parameters
    ----------
    verdicts
        Verdicts of people and judges on all dialogues, orders joined.
    n_labelled
        Numbers of dialogues that people label, one row each.
    rng
        The source of chance.
    n_held_out
        Dialogues that are set aside.
    n_draws
        How often both are drawn.

    Returns
    -------
    pandas.DataFrame
        One row a size: ``n_pool`` (dialogues not set aside), ``saved``, ``saved_se``; means of
        ``estimated`` (by the method itself), ``at_most``, ``rho_squared`` and ``weight``.

    Raises
    ------
    AgreementError
        If too few dialogues are left to label that many and leave one unlabelled.

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> votes = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=3, n_dialogues=60, pairs="all"
    ... ).verdicts
    >>> saving = check_saving(votes, n_labelled=[10], rng=np.random.default_rng(1), n_draws=3)
    >>> saving["n_pool"].tolist()
    [40]
    """
    dialogues = np.array(sorted(verdicts["dialogue_id"].unique()), dtype=object)
    n_pool = len(dialogues) - n_held_out
    if max(n_labelled) >= n_pool:
        raise AgreementError(
            f"Of {len(dialogues)} dialogues {n_held_out} are set aside: {n_pool} are left, too few"
            f" to label {max(n_labelled)} and leave one to the judge. Label fewer."
        )
    people = verdicts[verdicts["rater_kind"] == "human"]
    rows = []
    for _ in range(n_draws):
        order = rng.permutation(dialogues)
        target = fit_ratings(
            people[people["dialogue_id"].isin(order[:n_held_out])], n_resamples=0
        ).strength
        for n in n_labelled:
            powered_ratings = prediction_powered_ratings(
                label_some(verdicts, n, rng, among=order[n_held_out:])
            )
            table = powered_ratings.table.set_index("responder")
            alone, powered = (
                ((table[name] - target) ** 2).sum() for name in ("people_strength", "strength")
            )
            rows.append(
                {
                    "n_labelled": n,
                    "gain": float(alone - powered),
                    "variance": powered_ratings.people_variance,
                    "estimated": powered_ratings.saving,
                    "at_most": powered_ratings.most_saving,
                    "rho_squared": powered_ratings.rho_squared,
                    "weight": powered_ratings.weight,
                }
            )
    drawn = pd.DataFrame(rows).groupby("n_labelled")
    mean = drawn.mean()
    saved, error = mean["gain"] / mean["variance"], drawn["gain"].sem() / mean["variance"]
    estimates = mean[["estimated", "at_most", "rho_squared", "weight"]]
    return (
        pd.DataFrame({"n_pool": n_pool, "saved": saved, "saved_se": error})
        .join(estimates)
        .reset_index()
    )


def check_coverage(
    strengths: Mapping[str, float],
    *,
    n_labelled: Sequence[int],
    rng: np.random.Generator,
    n_dialogues: int = 80,
    n_studies: int = 50,
    ci_level: float = 0.95,
    panels: Sequence[Panel] = (
        Panel("human", 45, 2, ties=0.2),
        Panel("model", 1, 1, discrimination=1.5),
    ),
) -> pd.DataFrame:
    """Count how often intervals hold the truth, with a judge and by people alone.

    Parameters
    ----------
    strengths
        As in :func:`heart_utils.simulate.study.simulate_study`.
    n_labelled
        Numbers of dialogues that people label, one row each.
    rng
        The source of chance.
    n_dialogues, n_studies
        Dialogues of a study, and studies.
    ci_level
        Of the intervals.
    panels
        People, and one judge.

    Returns
    -------
    pandas.DataFrame
        One row a size: ``n_labelled``; the share of responders whose interval holds the truth,
        ``powered mean`` and ``powered sem`` over studies, and from people alone.

    Examples
    --------
    >>> strengths = {"human": 0.5, "x": 0.0, "y": -0.5}
    >>> check_coverage(
    ...     strengths, n_labelled=[20], rng=np.random.default_rng(1), n_studies=2
    ... ).columns.tolist()
    ['n_labelled', 'powered mean', 'powered sem', 'people mean', 'people sem']
    """
    pool = simulate_study(
        rng=rng,
        strengths=strengths,
        n_dialogues=n_dialogues * n_studies,
        pairs="all",
        panels=panels,
    )
    truth = pool.truth.query("rater_kind == 'human'").set_index("responder")["marginal"]
    study_of = pd.factorize(pool.verdicts["dialogue_id"])[0] // n_dialogues
    held = []
    for (_, rows), n in product(pool.verdicts.groupby(study_of), n_labelled):
        made = prediction_powered_ratings(label_some(rows, n, rng), ci_level=ci_level).table
        at = made["responder"].map(truth)
        inside = [
            at.between(made[f"{who}_low"], made[f"{who}_high"]).mean() for who in ("ci", "people")
        ]
        held.append({"n_labelled": n, "powered": inside[0], "people": inside[1]})
    summary = pd.DataFrame(held).groupby("n_labelled").agg(["mean", "sem"])
    return summary.set_axis([" ".join(name) for name in summary.columns], axis=1).reset_index()


NULLS = ("regenerated", "re-asked")
SIDES = ("baseline", "candidate", "opponent 1", "opponent 2", "opponent 3")
BASELINE, CANDIDATE = 0, 1
# assumed, in log-odds; POSITION is the pull of the first side
HISTORY_SD = REPLY_SD = POSITION = 0.5
OPPONENTS = np.array([-0.6, 0.0, 0.6])

PATIENT_RULE = GateRule(max_inconsistent=1.0, max_detectable=np.inf, n_resamples=500)
"""Passes small studies too, and judges as the simulation has them, who lean to the first side."""


def simulate_gate(
    *,
    null: str = "regenerated",
    drop: float = 0.0,
    rule: GateRule | None = PATIENT_RULE,
    n_studies: int = 1000,
    n_runs: int = 1,
    n_dimensions: int = 1,
    n_dialogues: int = 36,
    direct: bool = False,
    rng: np.random.Generator,
) -> pd.DataFrame:
    r"""Send simulated studies through the gate and note what it says.

    A judge, in both orders, prefers i, shown first, to j with log-odds :math:`q_i - q_j + 0.5`;
    :math:`q = \theta + w + e` is strength, a history's effect (the same for candidate and
    baseline) and a reply's luck; w and e have an SD of 0.5.

    Parameters
    ----------
    null
        Whether an equal candidate's replies are ``"regenerated"``, or ``"re-asked"`` (judged anew).
    drop
        Rating points by which it truly lies below.
    rule
        As in :func:`heart_utils.gate.compare_responders`; None asks ``compare_anytime``.
    n_studies, n_runs
        Studies, and candidates that are tested in turn in each.
    n_dimensions, n_dialogues
        Dimensions that are tested at once, and dialogues of a study.
    direct
        Whether baseline and candidate meet.
    rng
        The source of chance.

    Returns
    -------
    pandas.DataFrame
        A row a study and run: ``passed``; of the first dimension ``drop``, ``se``, ``outcome``,
        ``n_dialogues``.

    Raises
    ------
    GateError
        If `null` is not known.

    Examples
    --------
    >>> runs = simulate_gate(drop=400, n_studies=3, n_dialogues=12, rng=np.random.default_rng(1))
    >>> runs["passed"].tolist()  # 400 points are odds of 10 to 1: found each time
    [False, False, False]
    """
    if null not in NULLS:
        raise GateError(f"null={null!r} is not known; expected one of {', '.join(NULLS)}.")
    theta, shape = gate_strengths(drop, direct), (n_dialogues, len(SIDES))
    fixed = [pair for pair in combinations(range(len(SIDES)), 2) if CANDIDATE not in pair]
    moving = [(CANDIDATE, k) for k in range(2, len(SIDES))] + [(BASELINE, CANDIDATE)] * direct
    rows = []
    for study in range(n_studies):
        stable = rng.normal(0, HISTORY_SD, shape)
        turned = rng.normal(0, REPLY_SD, shape)
        stable[:, CANDIDATE] = stable[:, BASELINE]
        once = _verdicts(theta + stable + turned, fixed, n_dimensions, rng)
        for run in range(n_runs):
            turned[:, CANDIDATE] = (
                turned[:, BASELINE] if null == "re-asked" else rng.normal(0, REPLY_SD, n_dialogues)
            )
            again = _verdicts(theta + stable + turned, moving, n_dimensions, rng)
            verdicts = pd.concat([once, again], ignore_index=True)
            baseline, candidate = SIDES[BASELINE], SIDES[CANDIDATE]
            if rule is None:
                comparison = compare_anytime(
                    verdicts, baseline=baseline, candidate=candidate, n_releases=n_runs
                )
            else:
                comparison = compare_responders(
                    verdicts, baseline=baseline, candidate=candidate, rule=rule, rng=rng
                )
            first = comparison.table.reindex(columns=["drop", "se", "outcome", "n_dialogues"]).iloc[
                0
            ]
            rows.append({"study": study, "run": run, "passed": comparison.passed, **first})
    mode = "anytime" if rule is None else rule.mode
    return pd.DataFrame(rows).assign(null=null, mode=mode, true_drop=drop, simulated=True)


def gate_strengths(drop: float, direct: bool) -> Array:
    one, other = np.triu_indices(len(SIDES), k=1)
    meet = (one != BASELINE) | (other != CANDIDATE) | direct
    spread = float(np.hypot(HISTORY_SD, REPLY_SD))
    return place_strengths(
        lambda gap: np.array([0.0, -gap, *OPPONENTS]),
        drop / POINTS,
        spread,
        (one[meet], other[meet]),
    )


def _verdicts(
    quality: Array, pairs: list[tuple[int, int]], n_dimensions: int, rng: np.random.Generator
) -> pd.DataFrame:
    one, other = np.array(pairs).T
    gap = quality[:, one] - quality[:, other]
    shape = (n_dimensions, *gap.shape)
    first, second = (rng.random(shape) < expit(gap + lean) for lean in (POSITION, -POSITION))
    dimension, dialogue, pair = (index.ravel() for index in np.indices(shape))
    same, verdict = (first == second).ravel(), np.where(first.ravel(), "a", "b").astype(object)
    verdict[~same] = None
    ids = np.array([f"d{number}" for number in range(len(quality))], dtype=object)
    lines = np.array([f"dimension {k + 1}" for k in range(n_dimensions)], dtype=object)
    sides = np.array(SIDES, dtype=object)
    return pd.DataFrame(
        {
            "history_id": ids[dialogue],
            "dialogue_id": ids[dialogue],
            "dimension": lines[dimension],
            "responder_a": sides[one[pair]],
            "responder_b": sides[other[pair]],
            "rater": "judge 1",
            "verdict": verdict,
            "state": np.where(same, "valid", "inconsistent"),
            "order": BOTH,
        }
    )


# of all votes, what a design asks for; and of these, what the first of two waves does
SHARE, FIRST = 0.5, 0.75
CELL = ["dialogue_id", "responder_a", "responder_b"]
# chance, in the second wave, of a pair of a dialogue that nobody was asked about in the first:
# never below
LEAST = 0.2


def ask_for_votes(
    verdicts: pd.DataFrame, n_votes: float, *, first: float = 1.0, rng: np.random.Generator
) -> pd.DataFrame:
    """Keep about so many of people's votes, over all dialogues and pairs, and all of the judges'.

    After a share `first` a second wave asks where differences are open. ``stands_for`` is one over
    the chance of having been asked, over the votes there; with two waves their mean.
    """
    people, judges = (
        verdicts[(verdicts["rater_kind"] == "human") == human] for human in (True, False)
    )
    # any vote on a cell is as likely as any other to be the first
    people = people.iloc[rng.permutation(len(people))]
    by_cell = people.groupby(CELL, sort=False)
    cells = by_cell.size().rename("most").reset_index()
    cell, vote_number, most = (
        by_cell.ngroup().to_numpy(),
        by_cell.cumcount().to_numpy(),
        cells["most"].to_numpy(float),
    )

    def ask(expected: Array) -> Array:
        return np.asarray(np.floor(expected) + (rng.random(len(expected)) < expected % 1.0))

    def rows(votes: Array, counts: Array) -> pd.DataFrame:
        sampled = vote_number < votes[cell]
        return pd.concat(
            [
                people[sampled].assign(stands_for=(counts / np.maximum(votes, 1.0))[cell[sampled]]),
                judges,
            ]
        )

    even = np.ones(len(cells))
    expected = _spread(even, first * n_votes, 0.0 * even, most)
    chance, votes = np.minimum(expected, 1.0), ask(expected)
    if first == 1.0:
        return rows(votes, 1.0 / chance)
    so_far = prediction_powered_ratings(rows(votes, 1.0 / chance), stands_for="stands_for")
    worth, early = _worth_of_pairs(so_far), votes > 0
    places = (worth.index.get_indexer(pd.Index(cells[side])) for side in CELL[1:])
    expected = _spread(
        worth.to_numpy()[tuple(places)], n_votes, np.where(early, votes, LEAST), most
    )
    before, after = chance.mean(), _spread(even, n_votes, 0.0 * even, most).clip(max=1.0).mean()
    # best where chances are even
    second = (after - before) / (1.0 - before) / after if before < 1.0 else 1.0
    counts = np.where(early, (1.0 - second) / chance + second, second / np.minimum(expected, 1.0))
    return rows(ask(expected), counts)


def _spread(worth: Array, n: float, low: Array, most: Array) -> Array:
    """Share out n expected votes by worth, within bounds."""
    n, worth = (
        float(np.clip(n, low.sum(), most.sum())),
        worth + 1e-6 * max(float(worth.max()), 1e-6),
    )
    top = float((most / worth).max()) + 1.0
    scale = optimize.brentq(
        lambda scale: float(np.clip(scale * worth, low, most).sum()) - n, 0.0, top
    )
    return np.asarray(np.clip(scale * worth, low, most))


def _worth_of_pairs(estimate: PoweredRatings) -> pd.DataFrame:
    ranks = estimate.ranks()
    low, high, theta = (
        ranks["rank_low"].to_numpy(),
        ranks["rank_high"].to_numpy(),
        estimate.table["strength"].to_numpy(),
    )
    chance = expit(theta[:, None] - theta)
    information = chance * (1.0 - chance) * (1.0 - np.eye(len(theta)))
    moves = np.linalg.pinv(np.diag(information.sum(axis=1)) - information)
    one, other = np.nonzero(np.triu((low[:, None] <= high) & (low <= high[:, None]), 1))
    gaps = moves[one] - moves[other]
    worth = np.sqrt(((gaps[:, :, None] - gaps[:, None, :]) ** 2).sum(axis=0))
    return pd.DataFrame(worth, ranks["responder"], ranks["responder"])


def compare_designs(
    verdicts: pd.DataFrame,
    *,
    sizes: Sequence[int] = (),
    truth: pd.Series | None = None,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Ask for half of people's votes in several ways, and compare what each tells of ranks.

    Parameters
    ----------
    verdicts
        Verdicts of people and a judge.
    sizes
        For further designs: all votes on so many random dialogues.
    truth
        Strengths by responder, if known.
    rng
        The source of chance.

    Returns
    -------
    pandas.DataFrame
        One row a design, from people alone and with the judge: ``votes`` (share asked for),
        ``apart`` (pairs told apart), ``range`` (mean ranks in it), ``width``, ``saving``,
        ``most_saving``; if the truth is known, ``covered`` (share), ``false`` (whether a range is
        wrong), ``error`` (sum of squares).

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> votes = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=3, n_dialogues=60, pairs="all"
    ... ).verdicts
    >>> compare_designs(votes, rng=np.random.default_rng(1))["design"].unique().tolist()
    ['all votes', 'half of the dialogues', 'every dialogue', 'every dialogue, two waves']
    """
    people = verdicts["rater_kind"] == "human"
    dialogues, n_votes = verdicts.loc[people, "dialogue_id"].nunique(), int(people.sum())
    asked = SHARE * n_votes
    designs = {
        "all votes": verdicts,
        "half of the dialogues": label_some(verdicts, round(SHARE * dialogues), rng),
        "every dialogue": ask_for_votes(verdicts, asked, rng=rng),
        "every dialogue, two waves": ask_for_votes(verdicts, asked, first=FIRST, rng=rng),
        **{f"{n} dialogues": label_some(verdicts, n, rng) for n in sizes},
    }
    rows = []
    for design, sampled in designs.items():
        stands_for = "stands_for" if "stands_for" in sampled else None
        # nothing is left to the judge, or it is not asked
        weight = 0.0 if sampled is verdicts else None
        estimate = prediction_powered_ratings(
            sampled, rater="rater", stands_for=stands_for, weight=weight
        )
        row = {"design": design, "votes": (sampled["rater_kind"] == "human").sum() / n_votes}
        rows += [row | {"judge": judge} | _known(estimate, judge, truth) for judge in (False, True)]
    return pd.DataFrame(rows)


def _known(estimate: PoweredRatings, judge: bool, truth: pd.Series | None) -> dict[str, float]:
    ranks, table = estimate.ranks(judge=judge), estimate.table
    low, high = (table[f"{'ci' if judge else 'people'}_{end}"] for end in ("low", "high"))
    row = {
        "apart": float((ranks["rank_low"] - 1).sum()),
        "range": float((ranks["rank_high"] - ranks["rank_low"] + 1).mean()),
        "width": float((high - low).mean()),
        "saving": estimate.saving,
        "most_saving": estimate.most_saving,
    }
    if truth is None:
        return row
    true = table["responder"].map(truth).to_numpy()
    ahead = (true > true[:, None] + 1e-9).sum(axis=1)
    behind = (true < true[:, None] - 1e-9).sum(axis=1)
    wrong = (ranks["rank_low"] > 1 + ahead) | (ranks["rank_high"] < len(true) - behind)
    error = ((table["strength" if judge else "people_strength"] - true) ** 2).sum()
    return row | {
        "covered": float(((low <= true) & (true <= high)).mean()),
        "false": float(wrong.any()),
        "error": float(error),
    }


def simulate_designs(
    strengths: Mapping[str, float],
    *,
    n_studies: int,
    rng: np.random.Generator,
    sizes: Sequence[int] = (),
    people: Panel,
    judge: Panel,
    **design: Any,
) -> pd.DataFrame:
    """Compare designs in studies with known truth.

    Parameters
    ----------
    strengths
        Responder -> strength.
    n_studies
        How many studies are drawn.
    rng, sizes
        As in :func:`compare_designs`.
    people, judge
        Who judges; all votes of the people are the full design.
    **design
        Options of :func:`heart_utils.simulate.study.simulate_study`.

    Returns
    -------
    pandas.DataFrame
        As :func:`compare_designs` gives, with ``study``.

    Examples
    --------
    >>> from heart_utils.simulate.study import Panel
    >>> how = {"n_dialogues": 40, "people": Panel("human", 30, 2), "judge": Panel("model", 1, 1)}
    >>> simulate_designs(
    ...     {"x": 0.5, "y": 0.0, "z": -0.5}, n_studies=2, rng=np.random.default_rng(1), **how
    ... )["study"].nunique()
    2
    """
    rows = []
    for study in range(n_studies):
        drawn = simulate_study(
            rng=rng, strengths=strengths, panels=(people, judge), **{"pairs": "all"} | design
        )
        truth = drawn.truth.query("rater_kind == 'human'").set_index("responder")["marginal"]
        rows.append(
            compare_designs(drawn.verdicts, sizes=sizes, truth=truth, rng=rng).assign(study=study)
        )
    return pd.concat(rows, ignore_index=True)
