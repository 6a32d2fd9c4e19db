"""How many dialogues and raters a reliable score needs: generalizability theory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.ratings.verdicts import AgreementError, Array, won_by_a
from heart_utils.tables import need_columns

__all__ = [
    "Components",
    "check_reliability",
    "cheapest_design",
    "score_differences",
    "variance_components",
    "win_scores",
]

FACETS = ("dialogue_id", "rater")  # crossed with responders, unless others are named
MOST_DIALOGUES = 10_000
LEAST_RANDOM = 3  # seekers or raters that can speak of others like them


@dataclass(frozen=True)
class Components:
    """Where the variance of scores comes from."""

    #: one row a component: ``estimate``, ``variance`` (0 where that is negative, as ``clipped``
    #: says), ``share`` of all variance
    table: pd.DataFrame
    n_dialogues: int  #: what entered
    n_raters: int
    n_left_out: int  #: dialogues left out, since a rater gave some responder no valid score
    #: levels of each facet, and the mean square of each effect with its degrees of freedom
    sizes: Mapping[str, int]
    squares: Mapping[tuple[str, ...], tuple[float, int]]

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> pd.DataFrame:
        """Draw variances that this study leaves possible, one row a draw.

        Source: Hannig, Iyer and Patterson (2006), https://doi.org/10.1198/016214505000000736
        """
        pooled = {effect: _pool(effect) for effect in self.squares}
        free = {pooled[effect]: df for effect, (_, df) in self.squares.items()}
        scale = {pool: df / rng.chisquare(df, n_draws) for pool, df in free.items()}
        drawn = {
            effect: (square * scale[pooled[effect]], df)
            for effect, (square, df) in self.squares.items()
        }
        return pd.DataFrame(_estimates(drawn, self.sizes)).clip(lower=0.0)

    def reliability(
        self,
        n_dialogues: int,
        n_raters: int = 1,
        *,
        same_raters: bool = True,
        absolute: bool = False,
    ) -> float:
        """Predict the reliability of mean scores; `absolute` asks for Φ instead of Eρ²."""
        if self.n_raters == 1 and (n_raters > 1 or not same_raters):
            raise AgreementError(
                "One rater does not show how raters differ; expected n_raters=1 and"
                " same_raters=True."
            )
        return float(
            _reliability(self.table["variance"], n_dialogues, n_raters, same_raters, absolute)
        )


def variance_components(scores: pd.DataFrame, *, facets: Sequence[str] = FACETS) -> Components:
    """Estimate variance components of scores: responders, dialogues, seekers, raters (G-study).

    Facets are crossed and random. Source: Brennan (2001), https://doi.org/10.1007/978-1-4757-3456-0

    Parameters
    ----------
    scores
        One dimension, one row a reply and rater, with ``responder``, ``dialogue_id``, ``rater`` and
        ``score``. A dialogue with a missing score is left out.
    facets
        Of ``"dialogue_id"``, ``"seeker"``, ``"rater"`` and ``"repeat"`` (of a conversation, which
        all raters read); what is not named is averaged.

    Returns
    -------
    Components
        ``table`` has one row a component: ``estimate``, ``variance`` (0 where the estimate is
        negative, then ``clipped``) and ``share``. Its method ``reliability`` predicts designs.

    Raises
    ------
    AgreementError
        If there are several dimensions, or fewer than two responders or complete dialogues.

    Examples
    --------
    >>> rows = {"responder": list("xyz") * 2, "dialogue_id": list("dddeee"), "rater": "ann"}
    >>> components = variance_components(pd.DataFrame(rows | {"score": [1, 3, 5, 2, 3, 4]}))
    >>> components.table["estimate"].round(3).to_dict()
    {'responder': 2.0, 'dialogue': -0.167, 'rest': 0.5}
    """
    cells, names, left_out = _cells(scores, facets)
    squares, sizes = _without_lone(cells, names)
    estimate = pd.Series(_estimates(squares, sizes))
    variance = estimate.clip(lower=0.0)
    table = pd.DataFrame(
        {"estimate": estimate, "variance": variance, "share": variance / variance.sum()}
    )
    return Components(
        table.assign(clipped=estimate < 0),
        n_dialogues=sizes["dialogue"],
        n_raters=sizes.get("rater", 1),
        n_left_out=left_out,
        sizes=sizes,
        squares=squares,
    )


def win_scores(verdicts: pd.DataFrame, *, panels: int = 1) -> pd.DataFrame:
    """Turn votes into the share that a responder won in a dialogue, a tie half.

    Parameters
    ----------
    verdicts
        Verdicts on one dimension.
    panels
        Number of raters among whom the votes on a dialogue are dealt.

    Returns
    -------
    pandas.DataFrame
        ``dialogue_id``, ``seeker`` (of conversations), ``responder``, ``rater`` (``"panel 1"``),
        ``score`` and ``n_votes``.

    Examples
    --------
    >>> votes = pd.DataFrame({"rater": ["ann", "bob"], "verdict": ["a", "tie"], "dialogue_id": "d"})
    >>> votes = votes.assign(pair_id="p", responder_a="x", responder_b="y", dimension="overall")
    >>> win_scores(votes.assign(state="valid"))["score"].tolist()
    [0.75, 0.25]
    """
    need_columns(
        verdicts,
        ["dialogue_id", "pair_id", "responder_a", "responder_b", "rater", "dimension"],
        AgreementError,
    )
    rows = (
        verdicts.assign(score=won_by_a(verdicts))
        .dropna(subset="score")
        .sort_values(["dialogue_id", "pair_id", "rater"])
    )
    played = ["seeker"] if "seeker" in rows and rows["seeker"].notna().all() else []
    seat = rows.groupby(["dialogue_id", *played]).cumcount() % panels + 1
    rows = rows.assign(rater="panel " + seat.astype(str))
    sides = [
        rows.assign(responder=rows["responder_a"]),
        rows.assign(responder=rows["responder_b"], score=1 - rows["score"]),
    ]
    by = ["dialogue_id", *played, "responder", "rater", "dimension"]
    return pd.concat(sides).groupby(by)["score"].agg(score="mean", n_votes="size").reset_index()


def cheapest_design(
    components: Components,
    *,
    reliability: float,
    cost_dialogue: float = 1.0,
    cost_rating: float = 1.0,
    most_raters: int | None = None,
    same_raters: bool = True,
) -> pd.DataFrame:
    """List designs that reach a wanted reliability (Eρ²), the cheapest first.

    Parameters
    ----------
    components
        From :func:`variance_components`.
    reliability
        What is wanted, from 0 to 1.
    cost_dialogue
        Cost of a dialogue with all its replies.
    cost_rating
        Cost of one rater for one dialogue, in the same currency.
    most_raters
        The most raters to try; by default those in the data.
    same_raters
        Whether these raters score (at most as many), or others like them.

    Returns
    -------
    pandas.DataFrame
        One row a number of raters: ``n_raters``, ``n_dialogues`` (fewest), ``cost``,
        ``reliability``.

    Raises
    ------
    AgreementError
        If no design of up to 10,000 dialogues is enough.

    Examples
    --------
    >>> rows = {"responder": list("xyz") * 2, "dialogue_id": list("dddeee"), "rater": "ann"}
    >>> components = variance_components(pd.DataFrame(rows | {"score": [1, 3, 5, 2, 3, 4]}))
    >>> cheapest_design(components, reliability=0.95)[["n_raters", "n_dialogues"]].values.tolist()
    [[1, 5]]
    """
    most = min(most_raters or components.n_raters, components.n_raters if same_raters else 10**6)
    rows, n = [], np.arange(2, MOST_DIALOGUES + 1)
    for n_raters in range(1, most + 1):
        enough = np.flatnonzero(
            _reliability(components.table["variance"], n, n_raters, same_raters) >= reliability
        )
        if len(enough):
            n_dialogues = int(n[enough[0]])
            reached = components.reliability(n_dialogues, n_raters, same_raters=same_raters)
            cost = n_dialogues * (cost_dialogue + n_raters * cost_rating)
            rows.append((n_raters, n_dialogues, cost, reached))
    if not rows:
        raise AgreementError(
            f"No design of up to {MOST_DIALOGUES:,} dialogues and {most} raters is enough."
        )
    return pd.DataFrame(
        rows, columns=["n_raters", "n_dialogues", "cost", "reliability"]
    ).sort_values("cost")


def score_differences(
    scores: pd.DataFrame,
    *,
    facets: Sequence[str] = FACETS,
    fixed: Collection[str] = (),
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Compare mean scores pair by pair, with an interval over dialogues, seekers and raters.

    Parameters
    ----------
    scores, facets
        As in :func:`variance_components`; all responders meet the same dialogues.
    fixed
        Of ``"seeker"`` and ``"rater"``, those for which the interval covers these alone.
    ci_level
        Level of each interval by itself.

    Returns
    -------
    pandas.DataFrame
        One row a pair: ``responder_a``, ``responder_b``, ``difference`` (a less b),
        ``standard_error``, ``df``, ``ci_low``, ``ci_high``, ``ci_level``, ``population``,
        ``n_clusters`` and ``n_left_out`` (dialogues).

    Raises
    ------
    AgreementError
        As :func:`variance_components`; or with fewer than three seekers or raters not fixed.

    Examples
    --------
    >>> rows = {"responder": list("xyz") * 2, "dialogue_id": list("dddeee"), "rater": "ann"}
    >>> scores = pd.DataFrame(rows | {"score": [1, 3, 5, 2, 3, 4]})
    >>> score_differences(scores, fixed=["rater"])["difference"].tolist()
    [-1.5, -3.0, -1.5]
    """
    cells, names, left_out = _cells(scores, facets)
    held = {*fixed, "repeat"}
    kept = [name for name in names[1:] if name not in held]
    axes = tuple(axis for axis, name in enumerate(names) if name in held)
    means = cells.mean(axis=axes)
    for name, n in zip(kept, means.shape[1:], strict=True):
        if n < LEAST_RANDOM and name != "dialogue":
            raise AgreementError(
                f"{n} {name}(s) cannot show how others like them would differ; expected"
                f" {LEAST_RANDOM} or more, or fixed=[{name!r}]."
            )
    responders = sorted(scores["responder"].unique())
    population = " and ".join(f"{name}s" for name in kept) + " like these"
    if fixed_here := [name for name in names if name in fixed]:
        population += ", these " + " and ".join(f"{name}s" for name in fixed_here)
    rows = []
    for one, other in combinations(range(len(responders)), 2):
        gaps = means[one] - means[other]
        mean_squares = _mean_squares(gaps, kept)
        squares = {effect: square for effect, (square, _) in mean_squares.items()}
        free = {effect: n for effect, (_, n) in mean_squares.items()}
        error, df = error_of(squares, free, gaps.size)
        half_width = float(stats.t.isf((1.0 - ci_level) / 2.0, df)) * error
        middle = float(gaps.mean())
        pair = responders[one], responders[other]
        rows.append((*pair, middle, error, df, middle - half_width, middle + half_width))
    columns = ["responder_a", "responder_b", "difference", "standard_error", "df", "ci_low"]
    return pd.DataFrame(rows, columns=[*columns, "ci_high"]).assign(
        ci_level=ci_level,
        population=population,
        n_clusters=cells.shape[1],
        n_left_out=left_out,
    )


def check_reliability(
    scores: pd.DataFrame,
    n_dialogues: int,
    *,
    raters: str = "all",
    n_halves: int = 200,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Predict reliability from a random half of the dialogues, and measure it in the other.

    Parameters
    ----------
    scores
        As in :func:`variance_components`.
    n_dialogues
        Dialogues of a study; a half must hold two studies.
    raters
        Whether ``"all"`` score both studies, or ``"another"`` the second.
    n_halves
        How often dialogues are cut in halves.
    rng
        The source of chance.

    Returns
    -------
    pandas.DataFrame
        One row a cut: ``predicted``; in the other half, between studies, ``intraclass`` and
        ``correlation`` (Pearson, mean); ``components``, predicted by that half.

    Examples
    --------
    >>> names = ["responder", "dialogue_id", "rater"]
    >>> cells = pd.MultiIndex.from_product([range(9), range(80), ["ann"]], names=names)
    >>> scores = pd.DataFrame({"score": np.arange(9).repeat(80)}, cells).reset_index()
    >>> found = check_reliability(scores, 10, n_halves=2, rng=np.random.default_rng(1))
    >>> found["predicted"].tolist()  # no noise
    [1.0, 1.0]
    """
    cells, names, _ = _cells(scores)
    size, n_raters = (len(cells), -1, n_dialogues), cells.shape[2]
    n_sets = cells.shape[1] // 2 // n_dialogues
    if n_sets < 2 or raters not in ("all", "another") or raters == "another" and n_raters < 2:
        raise AgreementError(
            f"Half of {cells.shape[1]} dialogues with {n_raters} raters does not hold two studies"
            f" of {n_dialogues} with raters={raters!r} ('all' or 'another')."
        )
    if raters == "all":
        cells = cells.mean(axis=2, keepdims=True)
    conditions = (n_dialogues, 1, raters != "another")
    study = np.tile(np.arange(n_sets), cells.shape[2])
    rater = np.repeat(np.arange(cells.shape[2]), n_sets)
    rows = []
    for _ in range(n_halves):
        first, second = np.array_split(cells[:, rng.permutation(cells.shape[1])], 2, axis=1)
        predicted, known = (
            _reliability(_estimates(*_without_lone(half, names)), *conditions)
            for half in (first, second)
        )
        means = np.moveaxis(second[:, : n_sets * n_dialogues], 2, 1).reshape(size).mean(axis=2)
        other = (study[:, None] != study) & ((rater[:, None] == rater) == conditions[2])
        covariance = np.cov(means.T)
        spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        alike = covariance[other & (spread > 0)] / spread[other & (spread > 0)]
        rows.append(
            (predicted, covariance[other].mean() / np.diag(covariance).mean(), alike.mean(), known)
        )
    return pd.DataFrame(rows, columns=["predicted", "intraclass", "correlation", "components"])


def _cells(
    scores: pd.DataFrame, facets: Sequence[str] = FACETS
) -> tuple[Array, tuple[str, ...], int]:
    """Arrange scores as responders by dialogues by facets; count incomplete dialogues."""
    if "dialogue_id" not in facets or not set(facets) <= {*FACETS, "seeker", "repeat"}:
        raise AgreementError(
            f"facets is {list(facets)}; expected 'dialogue_id' and any of 'seeker', 'rater' and"
            " 'repeat'."
        )
    others = ["responder", *(facet for facet in ("seeker", "repeat", "rater") if facet in facets)]
    need_columns(scores, [*others, "dialogue_id", "score"], AgreementError)
    if len(dimensions := set(scores.get("dimension", ()))) > 1:
        raise AgreementError(f"Choose one dimension of {', '.join(sorted(dimensions))}.")
    valid = scores[scores["state"] == "valid"] if "state" in scores else scores
    wide = valid.pivot_table(index="dialogue_id", columns=others, values="score", dropna=False)
    complete = wide.dropna()
    sizes = tuple(len(wide.columns.unique(level)) for level in others)
    if sizes[0] < 2 or len(complete) < 2:
        raise AgreementError(
            "Expected two responders or more in two dialogues or more that all raters scored in"
            f" full; got {sizes[0]} in {len(complete)} of {scores['dialogue_id'].nunique()}."
        )
    cells = complete.to_numpy(dtype=float).reshape(len(complete), *sizes)
    names = ("responder", "dialogue", *others[1:])
    return np.moveaxis(cells, 0, 1), names, scores["dialogue_id"].nunique() - len(complete)


def _mean_squares(cells: Array, names: Sequence[str]) -> dict[tuple[str, ...], tuple[float, int]]:
    parts: dict[tuple[str, ...], Array] = {(): cells}
    for axis, name in enumerate(names):  # split each part into its mean over the axis and the rest
        means = {effect: part.mean(axis=axis, keepdims=True) for effect, part in parts.items()}
        parts = means | {(*effect, name): part - means[effect] for effect, part in parts.items()}
    size = dict(zip(names, cells.shape, strict=True))
    squares = {
        effect: (
            float((part**2).sum()) * cells.size / part.size,
            prod(size[name] - 1 for name in effect),
        )
        for effect, part in parts.items()
        if effect
    }
    mean_squares = {}
    for effect, (total, free) in squares.items():
        if "repeat" in effect:
            alike = [square for other, square in squares.items() if _pool(other) == _pool(effect)]
            total, free = sum(one for one, _ in alike), sum(one for _, one in alike)
        mean_squares[effect] = total / free, free
    return mean_squares


def _without_lone(
    cells: Array, names: Sequence[str]
) -> tuple[dict[tuple[str, ...], tuple[float, int]], dict[str, int]]:
    sizes = {
        name: n
        for name, n in zip(names, cells.shape, strict=True)
        if n > 1 or name in ("responder", "dialogue")
    }
    return _mean_squares(cells.reshape(tuple(sizes.values())), tuple(sizes)), sizes


def _pool(effect: tuple[str, ...]) -> tuple[str, ...]:
    """Pool repeats, which lie within their cells."""
    if "repeat" not in effect:
        return effect
    return ("repeat", "rater") if "rater" in effect else ("repeat",)


def _estimates(
    squares: Mapping[tuple[str, ...], tuple[Any, int]], sizes: Mapping[str, int]
) -> dict[str, Any]:
    widest = tuple(sizes)
    effects = [effect for effect in squares if "repeat" not in effect]
    effects += [tuple(name for name in widest if name != "rater")] if "repeat" in sizes else []
    components = {}
    for effect in sorted(dict.fromkeys([*effects, widest]), key=len):
        wider = [
            (-1) ** (len(one) - len(effect)) * square
            for one, (square, _) in squares.items()
            if set(effect) <= set(one)
        ]
        name = "rest" if effect == widest else "repeat" if "repeat" in effect else ":".join(effect)
        components[name] = sum(wider) / prod(n for other, n in sizes.items() if other not in effect)
    return components


def error_of(
    squares: Mapping[tuple[str, ...], float], free: Mapping[tuple[str, ...], int], cells: int
) -> tuple[float, float]:
    """Estimate the standard error of a mean over crossed random facets, and its degrees of freedom.

    `squares` holds mean squares by effect, `free` their degrees of freedom, `cells` how many the
    mean is over (Satterthwaite).
    """
    signed = {effect: -((-1.0) ** len(effect)) * square for effect, square in squares.items()}
    if not min(free.values()):
        return float(np.sqrt(sum(signed.values()) / cells)), float("nan")
    parts: list[dict[tuple[str, ...], float]] = [signed]
    parts += [{effect: square} for effect, square in squares.items() if len(effect) == 1]
    # Never less than over one facet alone, which chance can make the sum.
    used = max(parts, key=lambda one: sum(one.values()))
    total = sum(used.values())
    spread = sum(part**2 / free[effect] for effect, part in used.items())
    return float(np.sqrt(total / cells)), total**2 / spread if spread else float("inf")


def _reliability(
    variance: Mapping[str, float] | pd.Series,
    n_dialogues: Any,
    n_raters: int,
    same_raters: bool,
    absolute: bool = False,
) -> Any:
    part = {name: max(one, 0.0) for name, one in dict(variance).items()}
    taste = part.get("responder:rater", 0.0) / n_raters
    error = part.get("responder:dialogue", 0.0) / n_dialogues + part["rest"] / (
        n_dialogues * n_raters
    )
    if absolute:
        error += part["dialogue"] / n_dialogues + part.get("dialogue:rater", 0.0) / (
            n_dialogues * n_raters
        )
        error += 0.0 if same_raters else part["rater"] / n_raters
    true = part["responder"] + taste * same_raters
    return true / (true + error + taste * (not same_raters)) if true else 0.0 * error
