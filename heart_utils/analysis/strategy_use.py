"""Who does what, and what goes with being preferred: profiles of codes, and their association with verdicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heart_utils.analysis.resampling import ENOUGH_CLUSTERS, bootstrap_ci
from heart_utils.analysis.strategies import StrategyError
from heart_utils.analysis.wins import SHARES

__all__ = [
    "adjust_benjamini_hochberg",
    "associate_coders",
    "associate_preference",
    "place_replies",
    "profile_codes",
    "spread_labels",
]

Array = NDArray[np.float64]

LEAST_CLUSTERS = 10


def profile_codes(
    codes: pd.DataFrame,
    *,
    by: str = "responder",
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Give the share of replies in which each code holds, for each author or kind of author.

    Parameters
    ----------
    codes : pandas.DataFrame
        The codes table joined with `by` and `cluster` for each reply. A probability counts as that part of a reply.
    by, cluster : str
        Whose profile; what is resampled together.
    n_resamples, ci_level, rng
        Of the bootstrap.

    Returns
    -------
    pandas.DataFrame
        One row an author, coder and code: `by`, ``coder``, ``code``, ``share``, ``ci_low``, ``ci_high``,
        ``ci_level``, ``n``, ``n_failed`` (replies that the coder did not code), ``n_clusters``, ``simulated``. No
        interval from one cluster; where nobody or everybody does it the open end is exact for that many clusters.
        Where no reply could be coded there is a row without a share, with ``n`` 0.

    Examples
    --------
    >>> codes = pd.DataFrame({"reply_id": list("rst"), "coder": "c", "code": "question", "responder": "m", "simulated": False,
    ...     "probability": [1.0, 0.0, None], "state": ["valid", "valid", "error"], "dialogue_id": list("def")})
    >>> profile_codes(codes, rng=np.random.default_rng(1), n_resamples=20)[["share", "n", "n_failed"]].values.tolist()
    [[0.5, 2.0, 1.0]]
    """
    rows = []
    for (name, coder, code), mine in codes.groupby([by, "coder", "code"], sort=True):
        known = mine.dropna(subset=["probability"])
        if known.empty:
            nothing = dict.fromkeys(("share", "ci_low", "ci_high"), np.nan) | {"ci_level": ci_level, "n": 0, "n_clusters": 0}
            failed = {"n_failed": len(mine), "simulated": bool(mine["simulated"].any())}
            rows.append({by: name, "coder": coder, "code": code} | nothing | failed)
            continue
        cells = pd.DataFrame({"held": known["probability"], "n": 1.0, cluster: known[cluster]})
        n_clusters = known[cluster].nunique()
        row = {by: name, "coder": coder, "code": code, "share": float(known["probability"].mean()), "n": len(known)}
        row |= {"ci_low": np.nan, "ci_high": np.nan, "ci_level": ci_level, "n_clusters": n_clusters}
        if n_clusters > 1:
            found = bootstrap_ci(
                cells,
                lambda sums: sums["held"] / sums["n"],
                cluster=cluster,
                rng=rng,
                n_resamples=n_resamples,
                ci_level=ci_level,
                least=0.0,
                most=1.0,
            )
            row |= {"ci_low": found.ci_low, "ci_high": found.ci_high}
        if set(known["probability"]) in ({0.0}, {1.0}):  # a bootstrap of equal values has no width
            open_end = ((1.0 - ci_level) / 2.0) ** (1.0 / n_clusters)
            row |= {"ci_low": 0.0, "ci_high": 1.0 - open_end} if row["share"] == 0 else {"ci_low": open_end, "ci_high": 1.0}
        rows.append(row | {"n_failed": len(mine) - len(known), "simulated": bool(mine["simulated"].any())})
    return pd.DataFrame(rows)


def spread_labels(labels: pd.DataFrame, codes: Sequence[str], *, label: str = "given") -> pd.DataFrame:
    """Lay labels, one each, out as one row a thing labelled and code.

    Parameters
    ----------
    labels : pandas.DataFrame
        One row a thing labelled; the other columns are kept.
    codes : sequence of str
        All labels that there are.
    label : str
        The column of the label.

    Returns
    -------
    pandas.DataFrame
        In place of `label` the columns ``code`` and ``probability``: 1 where the label is the code, else 0.

    Examples
    --------
    >>> spread_labels(pd.DataFrame({"reply_id": ["r"], "given": ["question"]}), ["advice", "question"]).values.tolist()
    [['r', 'advice', 0.0], ['r', 'question', 1.0]]
    """
    others = labels.drop(columns=label)
    parts = [others.assign(code=code, probability=(labels[label] == code).astype(float)) for code in codes]
    return pd.concat(parts, ignore_index=True)


def place_replies(verdicts: pd.DataFrame, comparisons: pd.DataFrame) -> pd.DataFrame:
    """Say of each verdict which replies were a and b.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        With ``pair_id``; orders may be joined, since a and b do not depend on what was shown first.
    comparisons : pandas.DataFrame
        With ``pair_id``, ``reply_a`` and ``reply_b``.

    Returns
    -------
    pandas.DataFrame
        The verdicts with ``reply_a`` and ``reply_b``.

    Examples
    --------
    >>> verdicts = pd.DataFrame({"pair_id": ["p", "p"], "verdict": ["a", "b"]})
    >>> place_replies(verdicts, pd.DataFrame({"pair_id": ["p"], "reply_a": ["r"], "reply_b": ["s"]}))["reply_b"].tolist()
    ['s', 's']
    """
    pairs = comparisons.drop_duplicates("pair_id").set_index("pair_id")
    return verdicts.assign(**{side: verdicts["pair_id"].map(pairs[side]) for side in ("reply_a", "reply_b")})


def associate_coders(
    verdicts: pd.DataFrame,
    codes: pd.DataFrame,
    words: pd.Series,
    *,
    dimension: str = "overall",
    cluster: str = "dialogue_id",
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Ask of each coder's codes what goes with being preferred, and adjust over all of them at once. Exploratory.

    Parameters
    ----------
    verdicts, words, dimension, cluster, ci_level
        As for :func:`associate_preference`.
    codes : pandas.DataFrame
        Codes of any number of coders, named in ``coder``; one who coded nothing is left out.

    Returns
    -------
    pandas.DataFrame
        The tables of :func:`associate_preference`, one after the other, with ``coder``; ``q_value`` counts all rows.

    Raises
    ------
    StrategyError
        If no reply is coded, or no verdict says which reply was preferred.

    Examples
    --------
    >>> rows = [(f"d{i}", f"r{i}", f"s{i}", "a" if i % 4 else "b") for i in range(40)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "reply_a", "reply_b", "verdict"])
    >>> verdicts = verdicts.assign(dimension="overall", state="valid", responder_a="x", responder_b="y")
    >>> codes = pd.DataFrame({"reply_id": [*verdicts["reply_a"], *verdicts["reply_b"]], "code": "question", "coder": "words"})
    >>> codes["probability"] = [1.0] * 40 + [0.0] * 40
    >>> words = pd.Series(20, index=codes["reply_id"])
    >>> associate_coders(verdicts, codes, words)[["coder", "code", "n_verdicts"]].values.tolist()
    [['words', 'question', 40]]
    """
    parts = [
        associate_preference(verdicts, mine, words, dimension=dimension, cluster=cluster, ci_level=ci_level).assign(coder=name)
        for name, mine in codes.groupby("coder")
        if mine["probability"].notna().any()
    ]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if found.empty:
        raise StrategyError("no reply is coded.")
    tested = found["p_value"].notna()
    found.loc[tested, "q_value"] = adjust_benjamini_hochberg(found.loc[tested, "p_value"].to_numpy())
    return found


def associate_preference(
    verdicts: pd.DataFrame,
    codes: pd.DataFrame,
    words: pd.Series,
    *,
    dimension: str = "overall",
    cluster: str = "dialogue_id",
    ci_level: float = 0.95,
) -> pd.DataFrame:
    r"""Ask of each code whether the reply that has it is preferred, length held equal. Exploratory.

    One code a fit: the probability that a is preferred is
    :math:`\sigma(\beta (x_a - x_b) + \gamma (\log w_a - \log w_b) + \theta_{r(a)} - \theta_{r(b)})`, with x
    the code, w the number of words and :math:`\theta` the authors' strengths, so that a code that only good
    authors use does not borrow their merit. Variances are sums over clusters (sandwich), intervals from t
    with one degree of freedom less than clusters. A coefficient says what goes together in these replies;
    nobody was made to use a strategy.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        With orders joined and the columns ``reply_a`` and ``reply_b`` (from the comparisons). A probability
        counts as that part of a win, ties and other inconsistent pairs as half; failures stay out.
    codes : pandas.DataFrame
        One coder's codes: ``reply_id``, ``code``, ``probability``. Pairs of which a reply is not coded stay out of that fit.
    words : pandas.Series
        ``reply_id`` -> number of words.
    dimension, cluster : str
        A line of the rubric; what is resampled together.
    ci_level : float
        Of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a code: ``log_odds``, ``ci_low``, ``ci_high``, ``p_value``, ``q_value`` (Benjamini-Hochberg over
        all codes that could be fitted), ``n_verdicts``, ``n_apart`` (pairs of which one reply has it more),
        ``n_clusters``, ``provisional`` and ``why_not``: in words, where there is no fit.

    Raises
    ------
    StrategyError
        If no verdict on the dimension is usable.

    Examples
    --------
    >>> rows = [(f"d{i}", f"r{i}", f"s{i}", "a" if i % 4 else "b") for i in range(40)]
    >>> verdicts = pd.DataFrame(rows, columns=["dialogue_id", "reply_a", "reply_b", "verdict"])
    >>> verdicts = verdicts.assign(dimension="overall", state="valid", responder_a="x", responder_b="y")
    >>> codes = pd.DataFrame({"reply_id": [*verdicts["reply_a"], *verdicts["reply_b"]], "code": "question"})
    >>> codes["probability"] = [1.0] * 40 + [0.0] * 40
    >>> words = pd.Series(20, index=codes["reply_id"])
    >>> associate_preference(verdicts, codes, words)[["code", "n_verdicts", "n_apart"]].values.tolist()
    [['question', 40, 40]]
    """
    rows = verdicts[(verdicts["dimension"] == dimension) & verdicts["state"].isin(["valid", "inconsistent"])]
    won = rows["verdict"].map(SHARES)
    won = won.where(rows["state"] == "valid", 0.5)
    if "p_a" in rows:
        won = rows["p_a"].where(rows["p_a"].notna(), won)
    rows = rows.assign(won=won).dropna(subset=["won"])
    if rows.empty:
        raise StrategyError(f"No verdict on {dimension!r} says which reply was preferred.")
    wide = codes.pivot_table(index="reply_id", columns="code", values="probability", aggfunc="mean")
    length = np.log(words.clip(lower=1))
    found = [{"code": code} | _fit_one(rows, wide[code], length, cluster, ci_level) for code in wide]
    table = pd.DataFrame(found)
    fitted = table["p_value"].notna()
    table["q_value"] = np.nan
    table.loc[fitted, "q_value"] = adjust_benjamini_hochberg(table.loc[fitted, "p_value"].to_numpy())
    return table.sort_values("p_value", ignore_index=True)


def adjust_benjamini_hochberg(p_values: Sequence[float] | Array) -> Array:
    r"""Adjust p values so that among those below q the expected share of false ones is at most q [1]_.

    Parameters
    ----------
    p_values : sequence of float
        Of all tests made, also those that found nothing.

    Returns
    -------
    numpy.ndarray
        In the order given: the smallest :math:`p_{(j)} m / j` of itself and all larger.

    References
    ----------
    .. [1] Benjamini and Hochberg (1995), https://doi.org/10.1111/j.2517-6161.1995.tb02031.x

    Examples
    --------
    >>> adjust_benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    return np.asarray(stats.false_discovery_control(p_values, method="bh"), dtype=np.float64)


def _fit_one(verdicts: pd.DataFrame, code: pd.Series, length: pd.Series, cluster: str, ci_level: float) -> dict[str, object]:
    """Fit one code by Newton's method; say why where it cannot be."""
    sides = {side: verdicts[f"reply_{side}"].map(code) for side in "ab"}
    coded = sides["a"].notna() & sides["b"].notna()
    rows = verdicts[coded]
    apart = (sides["a"] - sides["b"])[coded].to_numpy()
    groups = pd.factorize(rows[cluster])[0]
    n_clusters = int(groups.max()) + 1 if len(rows) else 0
    n_apart = int((np.abs(apart) > 1e-9).sum())
    said: dict[str, object] = {
        "log_odds": np.nan, "ci_low": np.nan, "ci_high": np.nan, "ci_level": ci_level, "p_value": np.nan,
        "n_verdicts": len(rows), "n_apart": n_apart, "n_clusters": n_clusters,
        "provisional": n_clusters < ENOUGH_CLUSTERS, "why_not": None,
    }  # fmt: skip
    if n_clusters < LEAST_CLUSTERS or n_apart < LEAST_CLUSTERS:
        return said | {"why_not": f"fewer than {LEAST_CLUSTERS} dialogues, or pairs that differ in it"}
    if (rows["won"] == 0.5).all():
        return said | {"why_not": "every pair is a tie, or contradicted when its order was swapped"}
    longer = (rows["reply_a"].map(length) - rows["reply_b"].map(length)).to_numpy(dtype=float)
    names = sorted(set(rows["responder_a"]) | set(rows["responder_b"]))
    authors = np.stack([(rows["responder_a"] == name).to_numpy(float) - (rows["responder_b"] == name) for name in names[1:]], 1)
    design = np.column_stack([apart, longer, authors])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return said | {"why_not": "the authors, or the length, tell the code already"}
    beta, information, residual = _newton(design, rows["won"].to_numpy(float))
    if beta is None:
        return said | {"why_not": "it separates winners from losers, so its coefficient has no end"}
    scores = np.zeros((n_clusters, design.shape[1]))
    np.add.at(scores, groups, design * residual[:, None])
    inverse = np.linalg.inv(information)
    spread = inverse @ (scores.T @ scores) @ inverse * n_clusters / (n_clusters - 1)
    se = float(np.sqrt(spread[0, 0]))
    if se == 0:
        return said | {"why_not": "nothing varies between dialogues"}
    reach = float(stats.t.ppf((1 + ci_level) / 2, n_clusters - 1)) * se
    p_value = float(2 * stats.t.sf(abs(beta[0]) / se, n_clusters - 1))
    return said | {"log_odds": beta[0], "ci_low": beta[0] - reach, "ci_high": beta[0] + reach, "p_value": p_value}


def _newton(design: Array, won: Array) -> tuple[Array | None, Array, Array]:
    """Maximise the likelihood; None where it has no maximum."""
    beta = np.zeros(design.shape[1])
    for _ in range(50):
        chance = 1.0 / (1.0 + np.exp(-np.clip(design @ beta, -30, 30)))
        information = (design * (chance * (1 - chance))[:, None]).T @ design
        residual = won - chance
        if np.linalg.cond(information) > 1e12:
            return None, information, residual
        step = np.linalg.solve(information, design.T @ residual)
        beta = beta + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-9:
            return (beta if np.abs(beta).max() < 12 else None), information, residual
    return None, information, residual
