"""Agreement: speed beside evalica and a loop, coverage of intervals, a judge's saving."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.agreement.agreement import gwet_ac, krippendorff_alpha, pairwise_agreement
from heart_utils.agreement.panel import ENOUGH_VOTES, effective_judges, estimate_ceiling
from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.ratings.resampling import draw_weights
from heart_utils.simulate.coverage import check_saving, label_some
from heart_utils.simulate.study import Panel, Study, simulate_study
from tools.bench import Figure, seconds

Array = NDArray[np.float64]

PEOPLE_AND_JUDGES = (
    Panel("human", 45, 12, ties=0.3),
    Panel("model", 3, 3, discrimination=0.8, ties=0.1),
)
SIX = {"v": 1.0, "w": 0.6, "x": 0.2, "y": -0.2, "z": -0.6, "human": -1.0}
N_RESAMPLES = 1_000
LOW, HIGH = 93.0, 97.0


def run(quick: bool) -> Iterator[Figure]:
    """Yield the figures; all raters are simulated but those of MT-Bench, in the last ones."""
    yield from _speed(quick)
    n = 60 if quick else 500
    yield from _coverage_of_agreement(n)
    yield from _coverage_of_ceiling(n)
    yield from _coverage_of_judges(n)
    yield from _coverage_of_powered(n)
    if os.environ.get("HEART_DATA_MIRROR"):
        yield from _saving_on_mtbench(60 if quick else 500)


def all_measures(verdicts: pd.DataFrame) -> None:
    """Compute what the target of speed names, each with 1,000 clustered resamples."""
    pairwise_agreement(verdicts, n_resamples=N_RESAMPLES)
    for coefficient in (krippendorff_alpha, gwet_ac):
        coefficient(verdicts, n_resamples=N_RESAMPLES)


def _speed(quick: bool) -> Iterator[Figure]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        ours, peak = pool.apply(_measure)
    size = "42,000 verdicts, 15 raters a pair, 280 dialogues"
    yield Figure(
        f"{size}: agreement, author-only baseline, kappa, alpha, AC1",
        ours,
        "s",
        "within 3 s",
        ours <= 3,
    )
    yield Figure(
        "peak memory of the process, the table of verdicts and imports included",
        peak,
        "MB",
        "under 500 MB",
        peak < 500,
    )
    verdicts = _study().verdicts
    theirs = _evalica_seconds(verdicts)
    yield Figure("evalica.alpha_bootstrap, 1,000 resamples of units, alpha alone", theirs, "s")
    alone = seconds(lambda: krippendorff_alpha(verdicts, n_resamples=N_RESAMPLES))
    yield Figure("our alpha alone, 1,000 resamples of dialogues", alone, "s")
    loop = _loop_seconds(verdicts, 3 if quick else 20)
    yield Figure(
        "a plain loop: resample dialogues, concatenate, count agreement again",
        loop,
        "s",
        note="scaled to 1,000",
    )


def _study() -> Study:
    return simulate_study(
        rng=np.random.default_rng(20260109), n_dialogues=280, pairs=10, panels=PEOPLE_AND_JUDGES
    )


def _measure() -> tuple[float, float]:
    import resource

    verdicts = _study().verdicts
    return (
        seconds(lambda: all_measures(verdicts)),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _evalica_seconds(verdicts: pd.DataFrame) -> float:
    import evalica

    code = verdicts["verdict"].map({"a": 0.0, "tie": 1.0, "b": 2.0})
    number = verdicts.groupby("pair_id").cumcount()
    sheet = verdicts.assign(code=code, place=number).pivot_table(
        index="place", columns="pair_id", values="code"
    )
    start = time.perf_counter()
    evalica.alpha_bootstrap(sheet, n_resamples=N_RESAMPLES, random_state=1)
    return time.perf_counter() - start


def _loop_seconds(verdicts: pd.DataFrame, n_resamples: int) -> float:
    parts = [rows for _, rows in verdicts.groupby("dialogue_id")]
    start = time.perf_counter()
    for weights in draw_weights(len(parts), n_resamples, np.random.default_rng(1)):
        drawn = [
            part.assign(pair_id=part["pair_id"] + f"/{copy}")
            for part, n in zip(parts, weights.astype(int), strict=True)
            for copy in range(n)
        ]
        rows = pd.concat(drawn)
        counts = pd.crosstab([rows["pair_id"], rows["rater_kind"]], rows["verdict"])
        people, judges = (
            counts.xs(kind, level="rater_kind").to_numpy() for kind in ("human", "model")
        )
        (people * judges).sum() / (people.sum(axis=1) * judges.sum(axis=1)).sum()
    return (time.perf_counter() - start) * N_RESAMPLES / n_resamples


def _held(name: str, held: Array, note: str = "", *, at_most: float = HIGH) -> Figure:
    """Report the coverage of intervals, from their share in each study.

    The Monte Carlo error stands beside it.
    """
    share, n = 100 * float(np.mean(held)), len(held)
    # The error of a share of .95 where all intervals of few studies hold and none would be seen.
    error = 100 * max(float(np.std(held)), 0.0 if n >= 500 else np.sqrt(0.95 * 0.05)) / np.sqrt(n)
    # Two standard errors of the simulation itself are not held against the interval.
    met = LOW - 2 * error <= share <= at_most + 2 * error
    return Figure(
        name,
        share,
        "%",
        f"{LOW:g} to {at_most:g} %",
        met,
        f"{n} studies, Monte Carlo error {error:.1f}{note}",
    )


def _coverage_of_agreement(n: int) -> Iterator[Figure]:
    """Compare intervals with what the same measures are on average over many such studies."""

    def draw(seed: int) -> pd.DataFrame:
        panels = (Panel("human", 45, 4, ties=0.2), Panel("model", 1, 1, ties=0.1))
        return simulate_study(
            rng=np.random.default_rng(seed), strengths=SIX, n_dialogues=60, pairs=8, panels=panels
        ).verdicts

    measures: dict[str, list[tuple[float, float, float]]] = {
        "agreement": [],
        "advantage": [],
        "kappa": [],
        "kappa_within": [],
    }
    alphas = []
    for seed in range(n):
        verdicts = draw(seed)
        row = pairwise_agreement(
            verdicts, by=[], ties="exclude", n_resamples=400, rng=np.random.default_rng(seed)
        ).table.iloc[0]
        for name, estimates in measures.items():
            estimates.append((row[name], row[f"{name}_low"], row[f"{name}_high"]))
        alpha = krippendorff_alpha(
            verdicts[verdicts["rater_kind"] == "human"],
            n_resamples=400,
            rng=np.random.default_rng(seed),
        )
        alphas.append((alpha.value, alpha.ci_low, alpha.ci_high))
    for name, estimates in {**measures, "alpha": alphas}.items():
        value, low, high = np.array(estimates).T
        yield _held(
            f"60 dialogues of 8 pairs, 4 people and a judge: {name}",
            (low <= value.mean()) & (value.mean() <= high),
        )


def _votes(share: Array, n_votes: int, per_dialogue: int, rng: np.random.Generator) -> pd.DataFrame:
    pair = np.repeat(np.arange(len(share)), n_votes)
    return pd.DataFrame(
        {
            "pair_id": pair,
            "dialogue_id": pair // per_dialogue,
            "rater": np.tile(np.arange(n_votes), len(share)),
            "rater_kind": "human",
            "verdict": (
                np.where(rng.random((len(share), n_votes)) < share[:, None], "a", "b").ravel()
            ),
        }
    )


def _coverage_of_ceiling(n: int) -> Iterator[Figure]:
    """Draw pairs whose log-odds have a part of their dialogue and one of their own."""
    sizes = {3: 2.0, 5: 1.5, 15: 1.5}
    normal = np.random.default_rng(0).normal(size=2_000_000)
    for n_votes, spread in sizes.items():
        truth = np.maximum(expit(spread * normal), expit(-spread * normal)).mean()
        held, errors = [], []
        for seed in range(n):
            rng = np.random.default_rng(seed)
            lean = spread * (
                np.sqrt(0.3) * np.repeat(rng.normal(size=100), 10)
                + np.sqrt(0.7) * rng.normal(size=1000)
            )
            ceiling = estimate_ceiling(
                _votes(expit(lean), n_votes, 10, rng), n_resamples=400, rng=rng
            ).iloc[0]
            held.append(ceiling["ci_low"] <= truth <= ceiling["ci_high"])
            errors.append(ceiling["estimate"] - truth)
        name = f"ceiling {truth:.3f} from {n_votes} votes a pair, 100 dialogues of 10 pairs"
        # Three votes a pair give the bounds' interval, which holds whatever the pairs are like.
        note = f"; mean error {np.mean(errors):+.4f}"
        yield _held(name, np.array(held), note, at_most=100.0 if n_votes < ENOUGH_VOTES else HIGH)


def _coverage_of_judges(n: int) -> Iterator[Figure]:
    """Simulate three judges with correlated errors, and three people.

    Each conversation has four replies.
    """
    for rho, n_dialogues in ((0.2, 100), (0.6, 100), (0.6, 40)):
        truth, held = 3 / (1 + 2 * rho), []
        for seed in range(n):
            rng = np.random.default_rng(seed)
            size = 4 * n_dialogues
            quality = np.repeat(rng.normal(size=n_dialogues), 4) * 0.6 + rng.normal(size=size) * 0.8
            shared = np.sqrt(rho) * (
                np.repeat(rng.normal(size=n_dialogues), 4) * 0.6 + rng.normal(size=size) * 0.8
            )
            own = np.sqrt(1 - rho)
            scores = {f"p{k}": quality + rng.normal(size=size) for k in range(3)}
            scores |= {f"m{k}": quality + shared + own * rng.normal(size=size) for k in range(3)}
            table = pd.concat(
                [
                    pd.DataFrame({"rater": name, "score": values, "reply_id": range(size)})
                    for name, values in scores.items()
                ]
            )
            table = table.assign(
                dialogue_id=table["reply_id"] // 4,
                rater_kind=np.where(table["rater"].str[0] == "m", "model", "human"),
            )
            row = effective_judges(table, n_resamples=400, rng=rng).iloc[0]
            held.append(row["n_eff_low"] <= truth <= row["n_eff_high"])
        yield _held(f"{truth:.2f} effective of 3 judges, {n_dialogues} dialogues", np.array(held))


def _coverage_of_powered(n: int) -> Iterator[Figure]:
    """Label n of 80 dialogues at random; strengths against those of dialogues without end."""
    panels = (Panel("human", 45, 2, ties=0.2), Panel("model", 1, 1, discrimination=1.5))
    for n_labelled in (10, 20, 40):
        held: dict[str, list[float]] = {"powered": [], "people": []}
        savings, estimates = [], []
        for seed in range(n):
            rng = np.random.default_rng(seed)
            study = simulate_study(
                rng=rng, strengths=SIX, n_dialogues=80, pairs="all", panels=panels
            )
            truth = study.truth.query("rater_kind == 'human'").set_index("responder")["marginal"]
            ratings = prediction_powered_ratings(label_some(study.verdicts, n_labelled, rng))
            rows = ratings.table.set_index("responder").join(truth.rename("truth"))
            held["powered"].append(rows["truth"].between(rows["ci_low"], rows["ci_high"]).mean())
            held["people"].append(
                rows["truth"].between(rows["people_low"], rows["people_high"]).mean()
            )
            savings.append(ratings.saving)
            estimates.append(
                rows[["strength", "people_strength"]]
                .sub(rows["truth"], axis=0)
                .pow(2)
                .sum()
                .to_numpy()
            )
        errors = np.array(estimates)
        gained = 100 * (1 - errors[:, 0].sum() / errors[:, 1].sum())
        spread = 100 * (errors[:, 0] / errors[:, 1].mean()).std() / np.sqrt(n)
        for name, outcome in held.items():
            yield _held(
                f"{name} intervals, {n_labelled} of 80 dialogues labelled, six responders",
                np.array(outcome),
            )
        note = f"estimated {100 * np.mean(savings):.0f} %, Monte Carlo error {spread:.1f}"
        yield Figure(
            f"squared error that the judge saves, {n_labelled} of 80 labelled",
            gained,
            "%",
            note=note,
        )


def _saving_on_mtbench(n: int) -> Iterator[Figure]:
    """Label some questions, and compare strengths with people's on other questions.

    Neither party's fit has seen these.
    """
    from heart_utils.sources.load import load_verdicts

    votes = load_verdicts("mtbench")
    votes = votes[votes["repeat"] == 0]
    sizes = (10, 20, 40)
    rng = np.random.default_rng(20260109)
    for size in sizes:
        draws = [prediction_powered_ratings(label_some(votes, size, rng)) for _ in range(n)]
        means = pd.DataFrame(
            [(made.saving, made.most_saving, made.weight) for made in draws]
        ).mean()
        name = f"MT-Bench, {size} of 80 questions labelled: estimated saving"
        yield Figure(
            name,
            100 * float(means[0]),
            "%",
            note=f"bound {100 * means[1]:.0f} %, weight {means[2]:.2f}",
        )
    for row in check_saving(votes, n_labelled=sizes, n_draws=n, rng=rng).to_dict("records"):
        name = (
            f"MT-Bench, {row['n_labelled']} of {row['n_pool']} labelled: saving against people on"
            " 20 others"
        )
        error, said_of_itself, bound = (
            100 * row[column] for column in ("saved_se", "estimated", "at_most")
        )
        note = (
            f"Monte Carlo error {error:.1f}; estimated {said_of_itself:.0f} %, bound {bound:.0f} %"
        )
        yield Figure(name, 100 * row["saved"], "%", note=note)
