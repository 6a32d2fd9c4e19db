"""What a judge can be trusted with: spoilt replies, distinct dimensions, and its own family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from heart_utils.judges import Record, words_of_record
from heart_utils.judges.position import BiasError, interval_and_p
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    check_clusters,
    draw_weights,
    error_ends,
    holm,
    ratio,
    standard_error,
    sums_by,
)
from heart_utils.ratings.verdicts import Array, combine_orders, won_by_a

__all__ = [
    "Halo",
    "NOT_DISTINCT",
    "OUTCOMES",
    "describe_judges",
    "grade_probes",
    "measure_halo",
    "self_preference",
]

OUTCOMES = {
    "worse": ("prefers the spoilt one", "not recognised", "recognised"),
    "not_better": ("rewards it", "not shown to reward it", "marks it down"),
    "even": ("rewards it", "no effect shown", "marks it down"),
}
"""What is known of the probe -> words where it won beyond chance, neither did, or it lost."""

BASE = "reference"
"""Who wrote the replies that probes are made from."""


def grade_probes(
    verdicts: pd.DataFrame, expected: Mapping[str, str], *, alpha: float = 0.05
) -> pd.DataFrame:
    """Grade each judge on each probe: how often it prefers the reply before it was spoilt.

    A judge that contradicts itself is right by half.

    Parameters
    ----------
    verdicts
        Each compares a reply by ``reference`` with a probe made from it.
    expected
        Probe -> ``"worse"``, ``"not_better"`` or ``"even"``, by construction.
    alpha
        For Holm's procedure.

    Returns
    -------
    pandas.DataFrame
        One row a judge and probe: ``right`` (share of dialogues), Wilson's ``ci_low`` and
        ``ci_high``, ``ci_level``, ``p`` (two-sided sign test over dialogues), ``p_holm`` (over a
        judge's probes), ``contradicted`` (share of pairs), ``n`` dialogues, ``n_failed`` pairs,
        ``n_places`` (2: the unspoilt reply came first and second), ``provisional``, ``outcome``
        (:data:`OUTCOMES`), ``detectable``: the smallest true ``right`` found with power 0.8.

    Raises
    ------
    BiasError
        If a verdict is on another pair, or a word of `expected` is unknown.

    Examples
    --------
    >>> verdicts = pd.DataFrame({"dialogue_id": range(8), "pair_id": range(8), "repeat": 0})
    >>> verdicts = verdicts.assign(order="ab", verdict="b", state="valid", rater="judge")
    >>> verdicts = verdicts.assign(responder_a="echo", responder_b="reference", dimension="overall")
    >>> grade_probes(verdicts, {"echo": "worse"})[["right", "p"]].values.tolist()
    [[1.0, 0.0078125]]
    """
    strange = sorted(set(expected.values()) - set(OUTCOMES))
    if strange:
        raise BiasError(
            f"A probe is expected to be {', '.join(strange)}; the words are {', '.join(OUTCOMES)}."
        )
    joined = combine_orders(verdicts)
    is_a = joined["responder_a"] == BASE
    probe = joined["responder_b"].where(is_a, joined["responder_a"])
    wrong = ~((is_a | (joined["responder_b"] == BASE)) & probe.isin(list(expected)))
    if wrong.any():
        row = joined[wrong].iloc[0]
        raise BiasError(
            f"{int(wrong.sum())} pairs are not a probe of {', '.join(expected)} beside {BASE!r},"
            f" first {row['responder_a']!r} and {row['responder_b']!r}."
        )
    share = 0.5 + np.sign(won_by_a(joined) - 0.5) / 2.0
    joined = joined.assign(probe=probe, share=share.where(is_a, 1.0 - share))
    places = _places(verdicts)
    rows = []
    for rater, theirs in joined.groupby("rater", sort=True):
        for name, known in expected.items():
            graded = _grade(theirs[theirs["probe"] == name], 1.0 - alpha)
            graded["n_places"] = int(places.get((rater, name), 0))
            rows.append({"rater": rater, "probe": name, "expected": known} | graded)
    table = pd.DataFrame(rows)
    table["p_holm"] = holm(table["p"], [table["rater"]])
    beyond = (table["right"] - 0.5).where(table["p_holm"] <= alpha, 0.0)
    words = [
        OUTCOMES[known][1 + int(np.sign(side))]
        for known, side in zip(table["expected"], beyond, strict=True)
    ]
    return table.assign(outcome=np.where(table["n"] > 0, words, "no valid answer"))


def describe_judges(grades: pd.DataFrame, *, records: Sequence[Record] = ()) -> pd.DataFrame:
    """Describe in words what each judge's grades show.

    *Not to be trusted*: it prefers a spoilt reply, rewards something that adds nothing, contradicts
    itself in half of the pairs, or recognises fewer than half of the spoilt replies. *Passed these
    probes*: it recognises all (at least one) in both places, and rewards none.

    Parameters
    ----------
    grades
        From :func:`grade_probes`.
    records
        From :func:`~heart_collect.judging.calibration.calibrate_judge`.

    Returns
    -------
    pandas.DataFrame
        One row a judge: ``rater``, ``finding`` (those words), ``reasons``, ``told``, ``of``,
        ``contradicted``, ``calibration``.

    Examples
    --------
    >>> card = {"rater": "judge", "probe": "echo", "expected": "worse", "outcome": "recognised"}
    >>> describe_judges(pd.DataFrame([card | {"n": 8, "contradicted": 0.0}]))["finding"].tolist()
    ['passed these probes']
    """
    rows = []
    for rater, card in grades.groupby("rater", sort=True):
        answered = card[card["n"] > 0]
        spoilt = answered[answered["expected"] == "worse"]
        n_recognised = int((spoilt["outcome"] == "recognised").sum())
        wrong = list(answered.loc[answered["outcome"] == "prefers the spoilt one", "probe"])
        paid = list(answered.loc[answered["outcome"] == "rewards it", "probe"])
        contradicted = float(answered["contradicted"].mean()) if len(answered) else np.nan
        recognises = f"recognises {n_recognised} of {len(spoilt)} spoilt replies"
        faults = {
            f"prefers {', '.join(wrong)}": bool(wrong),
            f"rewards {', '.join(paid)}": bool(paid),
            f"contradicts itself in {100 * contradicted:.0f} % of pairs": contradicted >= 0.5,
            recognises: 2 * n_recognised < len(spoilt),
        }
        reasons = [fault for fault, holds in faults.items() if holds]
        if not len(answered):
            finding, reasons = "no valid answer", []
        elif reasons:
            finding = "not to be trusted"
        elif "n_places" in spoilt and (spoilt["n_places"] < 2).any():
            finding = "not shown to be trustworthy"
            reasons = ["the unspoilt reply was not shown both first and second"]
        elif 0 < n_recognised == len(spoilt) and len(answered) == len(card):
            finding = "passed these probes"
        else:
            finding, reasons = "not shown to be trustworthy", [recognises]
        rows.append(
            {
                "rater": rater,
                "finding": finding,
                "reasons": "; ".join(reasons),
                "told": n_recognised,
                "of": len(spoilt),
                "contradicted": contradicted,
                "calibration": words_of_record(records, str(rater)),
            }
        )
    return pd.DataFrame(rows)


def _places(verdicts: pd.DataFrame) -> pd.Series:
    known = verdicts[verdicts["order"].isin(["ab", "ba"]) & (verdicts["state"] == "valid")]
    is_a = known["responder_a"] == BASE
    probe = known["responder_b"].where(is_a, known["responder_a"])
    return (is_a == (known["order"] == "ab")).groupby([known["rater"], probe]).nunique()


def smallest_right(n: int, alpha: float) -> float:
    """Compute the share that a sign test over n dialogues finds with power 0.8."""
    least = stats.binom.isf(alpha / 2.0, n, 0.5) + 1.0
    if not n or least > n:
        return float("nan")
    # the power is that of a beta distribution's tail: binom.sf(least - 1, n, right)
    return float(stats.beta.ppf(0.8, least, n - least + 1.0))


def _grade(pairs: pd.DataFrame, ci_level: float) -> dict[str, object]:
    judged = pairs[pairs["state"].isin(["valid", "inconsistent"])]
    per = judged.groupby("dialogue_id")["share"].mean()
    n = len(per)
    failed = len(pairs) - len(judged)
    row: dict[str, object] = {"n": n, "n_failed": failed, "provisional": n < ENOUGH_CLUSTERS}
    if not n:
        names = ("right", "ci_low", "ci_high", "p", "contradicted", "detectable")
        return row | dict.fromkeys(names, np.nan)
    right = float(per.mean())
    se = per.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    low, high = map(float, error_ends(right, se, n, ci_level, least=0.0, most=1.0))
    above, below = int((per > 0.5).sum()), int((per < 0.5).sum())
    unanswered = pairs["dialogue_id"].nunique() - n
    met = above + below + unanswered
    # What failed may have gone the other way; never so far that it turns what was found.
    p = float(stats.binomtest(max(above, below, (met + 1) // 2), met).pvalue) if met else 1.0
    return row | {
        "right": right,
        "ci_low": low,
        "ci_high": high,
        "ci_level": ci_level,
        "p": p,
        "contradicted": float(judged["state"].eq("inconsistent").mean()),
        "detectable": smallest_right(n, 1.0 - ci_level),
    }


NOT_DISTINCT = "not shown to be distinct"
AXES = ["responder", "rater", "dimension"]
EDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Halo:
    """How far dimensions are told apart."""

    #: a row a dimension and ``kinds`` of two raters: ``convergent``, ``discriminant``,
    #: ``difference`` with its interval, ``p``, ``p_holm`` (over the dimensions), ``label``
    dimensions: pd.DataFrame
    #: a row two raters and dimension: ``holds`` if ``convergent`` exceeds ``same_rater``
    second: pd.DataFrame
    #: a row a rater: ``first_share`` (of the first eigenvalue) with ``ci_low`` and ``ci_high``
    raters: pd.DataFrame
    n_histories: int  #: used, those with a score missing, and what was resampled
    n_left_out: int
    n_clusters: int
    provisional: bool


def measure_halo(
    scores: pd.DataFrame, *, rng: Rng = None, n_resamples: int = 1000, ci_level: float = 0.95
) -> Halo:
    """Compare agreement on a dimension with agreement across dimensions (multitrait-multimethod).

    A rater is left out where it does not vary. Source: Campbell and Fiske (1959),
    https://doi.org/10.1037/h0046016

    Parameters
    ----------
    scores, rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Halo
        Tables ``dimensions`` (two raters' mean correlations on one dimension, ``convergent``, and
        on two, ``discriminant``), ``second`` and ``raters``.

    Raises
    ------
    BiasError
        If raters, dimensions or responders are fewer than two, a score is given twice, or no
        history is complete.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from heart_utils.simulate.study import DEFAULT_PANELS, simulate_study
    >>> rng, asked = np.random.default_rng(1), {"dimensions": ("warmth", "safety"), "pairs": "all"}
    >>> asked["panels"] = [replace(panel, scores=True) for panel in DEFAULT_PANELS]
    >>> scores = simulate_study(rng=rng, strengths=3, n_dialogues=20, **asked).scores
    >>> halo = measure_halo(scores.assign(rater=scores["rater_kind"]), rng=rng, n_resamples=50)
    >>> halo.dimensions["kinds"].unique().tolist()
    ['human with model']
    """
    responders, raters, dimensions = (sorted(scores[axis].unique()) for axis in AXES)
    if min(len(responders), len(raters), len(dimensions)) < 2:
        raise BiasError(
            f"{len(responders)} responders, {len(raters)} raters and {len(dimensions)} dimensions:"
            " two of each are needed to tell agreement on a dimension from agreement across"
            " dimensions."
        )
    whole = _complete(scores, pd.MultiIndex.from_product([responders, raters, dimensions]))
    clusters = whole.index.get_level_values("dialogue_id")
    size, n_clusters = (len(raters), len(dimensions)), clusters.nunique()
    block = np.ascontiguousarray(whole, dtype=float).reshape(len(whole), len(responders), -1)
    table = _correlate(block, clusters, rng, n_resamples).reshape(-1, *size, *size)
    kinds = scores.drop_duplicates("rater").set_index("rater")["rater_kind"]
    meetings: dict[str, list[tuple[int, int]]] = {}
    for one, other in combinations(range(len(raters)), 2):
        names = sorted([kinds[raters[one]], kinds[raters[other]]])
        meetings.setdefault(" with ".join(names), []).append((one, other))
    first, second = [], []
    for name, pairs in meetings.items():
        distinct = _distinct(table, pairs, dimensions, n_clusters, ci_level)
        first.append(distinct.assign(kinds=name))
        second.append(_second(table[0], pairs, raters, dimensions).assign(kinds=name))
    shares = [_first_share(table[:, number, :, number]) for number in range(len(raters))]
    ends = [interval_and_p(share, n_clusters, ci_level, least=0.0, most=1.0) for share in shares]
    of_raters = pd.DataFrame(ends).assign(first_share=[share[0] for share in shares], rater=raters)
    return Halo(
        dimensions=pd.concat(first, ignore_index=True),
        second=pd.concat(second, ignore_index=True),
        raters=of_raters.drop(columns="p"),
        n_histories=len(whole),
        n_left_out=scores["history_id"].nunique() - len(whole),
        n_clusters=n_clusters,
        provisional=n_clusters < ENOUGH_CLUSTERS,
    )


def _complete(scores: pd.DataFrame, columns: pd.MultiIndex) -> pd.DataFrame:
    valid = scores.assign(score=scores["score"].where(scores["state"] == "valid"))
    if valid.duplicated(["history_id", *AXES]).any():
        raise BiasError(
            "A rater scored one reply twice on one dimension; choose one protocol and one group"
            " before."
        )
    wide = valid.set_index(["history_id", "dialogue_id", *AXES])["score"].unstack(AXES)  # noqa: PD010
    whole = wide.reindex(columns=columns).dropna()
    if whole.empty:
        raise BiasError(
            f"None of {len(wide)} histories has a valid score of every rater, responder and"
            " dimension."
        )
    return whole


def _correlate(block: Array, clusters: pd.Index, rng: Rng, n_resamples: int) -> Array:
    n, n_responders, size = block.shape
    centred = block - block.mean(axis=1, keepdims=True)
    codes, names = pd.factorize(clusters)
    check_clusters(len(names), "dialogue_id")
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    products = sums_by(
        codes, np.einsum("nak,nal->nkl", centred, centred).reshape(n, -1), len(names)
    )
    sums = sums_by(codes, centred.reshape(n, -1), len(names))
    count = weights @ np.bincount(codes, minlength=len(names))
    means = (weights @ sums).reshape(-1, n_responders, size)
    cross = (weights @ products).reshape(-1, size, size) - np.einsum(
        "bak,bal->bkl", means, means
    ) / count[:, None, None]
    spread = np.sqrt(np.maximum(np.einsum("bkk->bk", cross), 0.0))
    spread = np.where(spread > EDGE * np.sqrt(count)[:, None], spread, np.nan)
    return np.asarray(cross / spread[:, :, None] / spread[:, None, :])


def _distinct(
    table: Array,
    pairs: list[tuple[int, int]],
    dimensions: list[str],
    n_clusters: int,
    ci_level: float,
) -> pd.DataFrame:
    # (resamples, pairs, dimensions, dimensions)
    across_raters = np.stack([table[:, one, :, other] for one, other in pairs], axis=1)
    both = (across_raters + across_raters.swapaxes(2, 3)) / 2.0
    diagonal = np.eye(len(dimensions), dtype=bool)
    convergent = _nanmean(both[:, :, diagonal], (1,))
    discriminant = _nanmean(np.where(diagonal, np.nan, both), (1, 3))
    difference = convergent - discriminant
    tests = pd.DataFrame([interval_and_p(values, n_clusters, ci_level) for values in difference.T])
    tests = tests.assign(
        dimension=dimensions,
        convergent=convergent[0],
        discriminant=discriminant[0],
        difference=difference[0],
    )
    known, tests["p_holm"] = tests["p"].notna(), holm(tests["p"])
    distinct = (tests["p_holm"] <= 1.0 - ci_level) & (tests["ci_low"] > 0)
    return tests.assign(
        label=np.select([~known, distinct], ["no variation to compare", ""], NOT_DISTINCT)
    )


def _second(
    table: Array, pairs: list[tuple[int, int]], raters: list[str], dimensions: list[str]
) -> pd.DataFrame:
    rows = []
    for (one, other), (number, dimension) in product(pairs, enumerate(dimensions)):
        own = np.stack([table[rater, number, rater] for rater in (one, other)])
        within = float(_nanmean(np.delete(own, number, axis=1), (0, 1)))
        convergent = table[one, number, other, number]
        rows.append((raters[one], raters[other], dimension, convergent, within))
    columns = ["one", "other", "dimension", "convergent", "same_rater"]
    comparisons = pd.DataFrame(rows, columns=columns)
    return comparisons.assign(holds=comparisons["convergent"] > comparisons["same_rater"])


def _nanmean(values: Array, axes: tuple[int, ...]) -> Array:
    return ratio(np.nansum(values, axis=axes), (~np.isnan(values)).sum(axis=axes))


def _first_share(table: Array) -> Array:
    share = np.full(len(table), np.nan)
    whole = ~np.isnan(table).any(axis=(1, 2))
    if whole.any():
        share[whole] = np.linalg.eigvalsh(table[whole])[:, -1] / table.shape[1]
    return share


OWN = "own_family"
LOWEST, HIGHEST = 1.0, 5.0


def family_ties(scores: pd.DataFrame, responders: pd.DataFrame) -> pd.DataFrame:
    """Sort responders by their relation to each judge."""
    judged = scores[scores["rater_kind"] == "model"]
    marked = judged[judged["flags"].map(lambda flags: OWN in flags).astype(bool)]
    own = {str(rater): set(rows) for rater, rows in marked.groupby("rater")["responder"]}
    models = set(responders.loc[responders["responder_kind"] == "model", "responder"]) & set(
        judged["responder"]
    )
    neutral = sorted(models - set().union(*own.values()))
    if not own:
        n_judges = judged["rater"].nunique()
        raise BiasError(
            f"No score of {n_judges} model judges has the flag {OWN}: name families of responders"
            " and of judges."
        )
    if not neutral:
        raise BiasError(
            "Every model among the responders shares a family with a judge; one that does not is"
            " needed."
        )
    judges = sorted(judged["rater"].unique())
    rows = []
    for rater, theirs in sorted(own.items()):
        others = [k for k in judges if not own.get(k, set()) & theirs and k != rater]
        rows.append((rater, sorted(theirs), neutral, others))
    return pd.DataFrame(rows, columns=["rater", "own", "neutral", "others"])


def self_preference(
    scores: pd.DataFrame,
    responders: pd.DataFrame,
    *,
    rng: Rng = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Estimate self-preference of each judge and dimension, and its divergence from people.

    The judge's mean of its own family's replies less that of neutral models', minus the same
    difference of other families' judges, or of people. Source: Spiliopoulou et al. (2025),
    https://arxiv.org/abs/2508.06709

    Parameters
    ----------
    scores, responders
        The flag ``own_family`` marks a judge's own.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a judge, dimension, ``against`` (``"judges"`` or ``"people"``) and ``scale``
        (``"score"``, or ``"logit"`` of the place between 1 and 5): ``estimate``, ``se``,
        ``ci_low``, ``ci_high``, ``p``, ``p_holm`` (over judges and dimensions), ``own_judge`` and
        ``own_others`` (the differences), ``ceiling`` (share at the top), ``n_replies``,
        ``n_left_out``, ``n_clusters``, ``provisional``, ``why`` there is no interval.

    Raises
    ------
    BiasError
        If no judge has own replies, or no model is neutral.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from heart_utils.simulate.study import DEFAULT_PANELS, simulate_study
    >>> panels = [replace(panel, scores=True) for panel in DEFAULT_PANELS]
    >>> rng = np.random.default_rng(1)
    >>> study = simulate_study(rng=rng, strengths=4, n_dialogues=40, pairs="all", panels=panels)
    >>> own = study.scores["rater_kind"].eq("model") & study.scores["responder"].eq("model_02")
    >>> flags = own.map({True: ["own_family"], False: []})
    >>> scores = study.scores.assign(rater=study.scores["rater_kind"], flags=flags)
    >>> self_preference(scores, study.responders, n_resamples=50)["against"].tolist()
    ['people', 'people']
    """
    ties = family_ties(scores, responders)
    people = sorted(scores.loc[scores["rater_kind"] == "human", "rater"].unique())
    clusters = np.unique(scores["dialogue_id"].to_numpy(str))
    check_clusters(len(clusters), "dialogue_id")
    weights = np.vstack([np.ones(len(clusters)), draw_weights(len(clusters), n_resamples, rng)])
    rows = []
    for dimension, of_dimension in scores.groupby("dimension", sort=True):
        sheet = of_dimension.assign(
            score=of_dimension["score"].where(of_dimension["state"] == "valid")
        )
        by_reply = sheet.set_index(["reply_id", "dialogue_id", "responder", "rater"])["score"]
        wide = by_reply.unstack("rater").reset_index()  # noqa: PD010
        codes = np.searchsorted(clusters, wide["dialogue_id"].to_numpy(str))
        for judge, theirs, neutral, rivals in ties.itertuples(index=False):
            own = wide["responder"].isin(theirs).to_numpy()
            compared = own | wide["responder"].isin(neutral).to_numpy()
            for against, others in (("judges", rivals), ("people", people)):
                if not others:
                    continue
                values = wide[[judge, *others]].to_numpy(float, na_value=np.nan)
                complete = compared & ~np.isnan(values).any(axis=1)
                known = values[complete]
                about = {
                    "rater": judge,
                    "dimension": dimension,
                    "against": against,
                    "ceiling": float((known[:, 0] == HIGHEST).mean()) if len(known) else np.nan,
                    "n_replies": len(known),
                    "n_left_out": int((compared & ~complete).sum()),
                }
                contrasts = _contrast(known, own[complete], codes[complete], weights, ci_level)
                rows += [about | row for row in contrasts]
    table = pd.DataFrame(rows)
    table["provisional"] = table["n_clusters"] < ENOUGH_CLUSTERS
    return table.assign(p_holm=holm(table["p"], [table["against"], table["scale"]]))


def _contrast(
    values: Array, own: NDArray[np.bool_], codes: NDArray[np.intp], weights: Array, ci_level: float
) -> Iterator[dict[str, object]]:
    n_clusters, means = len(np.unique(codes)), []
    for side in (own, ~own):
        columns = [
            np.bincount(codes[side], column, weights.shape[1])
            for column in (*values[side].T, np.ones(side.sum()))
        ]
        sums = weights @ np.column_stack(columns)
        means.append(ratio(sums[:, :-1], sums[:, -1:]))
    for scale in ("score", "logit"):
        with np.errstate(invalid="ignore"):
            if scale == "logit":
                means = [special.logit((mean - LOWEST) / (HIGHEST - LOWEST)) for mean in means]
            apart = means[0] - means[1]
            judge, others = apart[:, 0], apart[:, 1:].mean(axis=1)
            gap = np.where(np.isfinite(judge - others), judge - others, np.nan)
        se = float(standard_error(gap[1:, None], n_clusters)[0])
        why = "" if se > 0 else "the scores do not vary"
        if np.isnan(gap[0]):
            why, se = "a mean lies at the end of the scale, or a side has no reply", np.nan
        ends = dict.fromkeys(("ci_low", "ci_high", "p"), np.nan)
        if not why:
            ends = interval_and_p(gap, n_clusters, ci_level)
        row = {"scale": scale, "estimate": gap[0], "own_judge": judge[0], "own_others": others[0]}
        yield {**row, "why": why, **ends, "se": se, "n_clusters": n_clusters}
