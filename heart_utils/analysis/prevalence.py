"""How often a code holds, from a coder that errs and a labelled sample that says how it errs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.analysis.prediction_powered import LEAST_LABELLED, corrected_covariance, labelled_weights
from heart_utils.analysis.strategies import StrategyError

__all__ = ["coder_errors", "corrected_gap"]

COLUMNS = ["code", "gap", "ci_low", "ci_high", "labelled_gap", "labelled_low", "labelled_high", "coder_gap", "coder_low",
           "coder_high", "ci_level", "weight", "n_labelled", "n_dialogues", "n_left_out", "why"]  # fmt: skip


def corrected_gap(
    codes: pd.DataFrame,
    labels: pd.DataFrame,
    *,
    kind: str = "responder_kind",
    between: tuple[str, str] = ("human", "model"),
    cluster: str = "dialogue_id",
    ci_level: float = 0.95,
) -> pd.DataFrame:
    r"""Put a corrected interval on how much more often one kind of author does something than another.

    A coder that learned on people's text errs differently on models', and a gap between the two kinds may
    be the gap between its errors. With y the labelled gap of a dialogue and f the coder's, the estimate is

    .. math:: \overline{y}_n - \lambda (\overline{f}_n - \overline{f}_N)

    over n labelled dialogues of N, with the weight of
    :func:`heart_utils.analysis.prediction_powered.prediction_powered_ratings` [1]_: whatever the coder's
    errors, they cancel; the weight only decides how much is gained.

    Parameters
    ----------
    codes : pandas.DataFrame
        The codes table of one coder, joined with `kind` and `cluster` for each reply. Rows without a
        probability are left out and counted.
    labels : pandas.DataFrame
        Codes by hand: ``reply_id``, ``code`` and ``probability``. The dialogues labelled must be a
        simple random part of all, with all their replies of both kinds.
    kind, between : str, (str, str)
        Column and its two values; the gap is the first minus the second.
    cluster : str
        What was drawn for labelling. Each needs replies of both kinds.
    ci_level : float
        Of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a code that was labelled, those without figures last: ``gap``, ``ci_low``, ``ci_high`` (corrected);
        ``labelled_gap``, ``labelled_low``, ``labelled_high`` (labels alone); ``coder_gap``, ``coder_low``, ``coder_high``
        (the coder taken at its word, over all); ``weight``, ``n_labelled``, ``n_dialogues``, ``n_left_out`` and
        ``why``, in words, where a code has no figures: fewer than five dialogues are labelled with it, or all are.

    Raises
    ------
    StrategyError
        If this is so of every code.

    References
    ----------
    .. [1] Angelopoulos, Duchi and Zrnic (2023), https://arxiv.org/abs/2311.01453

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> codes = pd.DataFrame({"reply_id": range(80), "code": "question", "dialogue_id": np.repeat(range(40), 2),
    ...     "responder_kind": ["human", "model"] * 40, "probability": rng.random(80)})
    >>> by_hand = codes[codes["dialogue_id"] < 20].assign(probability=lambda t: (t["probability"] > 0.5).astype(float))
    >>> found = corrected_gap(codes, by_hand[["reply_id", "code", "probability"]])
    >>> found[["code", "n_labelled", "n_dialogues"]].values.tolist()
    [['question', 20, 40]]
    """
    both = codes.merge(
        labels[["reply_id", "code", "probability"]], on=["reply_id", "code"], how="left", suffixes=("", "_given")
    )
    both = both[both[kind].isin(between) & both["code"].isin(labels["code"].unique())]
    rows = []
    for code, mine in both.groupby("code", sort=True):
        known = mine.dropna(subset=["probability"])
        found, given = (_gaps(known, column, kind, between, cluster) for column in ("probability", "probability_given"))
        found, given = found.dropna(), given.dropna()
        given = given[given.index.isin(found.index)]
        n, n_all = len(given), len(found)
        counts = {
            "code": code,
            "ci_level": ci_level,
            "n_labelled": n,
            "n_dialogues": n_all,
            "n_left_out": len(mine) - len(known),
        }
        if n < LEAST_LABELLED or n == n_all:
            why = f"{n} of {n_all} {cluster} with both kinds are labelled; it takes {LEAST_LABELLED}, and not all."
            rows.append(counts | {"why": why})
            continue
        own, elsewhere = given.to_numpy()[:, None], found.to_numpy()[:, None]
        beside, share, unit = found[given.index].to_numpy()[:, None], n / n_all, np.eye(1)
        apart = beside - share * elsewhere[found.index.isin(given.index)]
        weights = labelled_weights(own, apart, elsewhere, share, unit)
        estimate = float((own[:, 0] - weights * (beside[:, 0] - elsewhere.mean())).mean())
        reach = stats.t.ppf((1 + ci_level) / 2, n - 1)
        half, plain = (
            reach * float(np.sqrt(corrected_covariance(own, apart, elsewhere, part, share, unit).item()))
            for part in (weights, np.zeros(n))
        )
        coder = reach_of_mean(elsewhere, ci_level)
        rows.append(
            {
                **counts, "gap": estimate, "ci_low": estimate - half, "ci_high": estimate + half,
                "labelled_gap": own.mean(), "labelled_low": own.mean() - plain, "labelled_high": own.mean() + plain,
                "coder_gap": elsewhere.mean(), "coder_low": elsewhere.mean() - coder, "coder_high": elsewhere.mean() + coder,
                "weight": weights.mean(), "why": "",
            }
        )  # fmt: skip
    table = pd.DataFrame(rows, columns=COLUMNS)
    if rows and (without := table["why"] != "").all():
        raise StrategyError("; ".join(table["code"] + ": " + table["why"]))
    return table.loc[without.sort_values(kind="stable").index].reset_index(drop=True) if rows else table


def coder_errors(codes: pd.DataFrame, labels: pd.DataFrame, *, kind: str = "responder_kind") -> pd.DataFrame:
    """Count a coder's errors against codes by hand, apart for each kind of author.

    Parameters
    ----------
    codes : pandas.DataFrame
        The codes table of one coder, joined with `kind` for each reply; 0.5 or more counts as coded.
    labels : pandas.DataFrame
        Codes by hand: ``reply_id``, ``code`` and ``probability``.
    kind : str
        Column of the author's kind.

    Returns
    -------
    pandas.DataFrame
        One row a code and kind: ``n``, ``share_given``, ``share_found``, ``missed`` (of those given, not
        found) and ``invented`` (of those not given, found); ``nan`` where there is nothing to count.

    Examples
    --------
    >>> codes = pd.DataFrame({"reply_id": list("rst"), "code": "q", "responder_kind": ["human", "model", "model"],
    ...     "probability": [0.9, 0.9, 0.2]})
    >>> labels = pd.DataFrame({"reply_id": list("rst"), "code": "q", "probability": [1, 0, 1]})
    >>> coder_errors(codes, labels)[["responder_kind", "n", "missed", "invented"]].values.tolist()
    [['human', 1, 0.0, nan], ['model', 2, 1.0, 1.0]]
    """
    both = codes.merge(labels[["reply_id", "code", "probability"]], on=["reply_id", "code"], suffixes=("", "_given")).dropna(
        subset=["probability", "probability_given"]
    )
    both = both.assign(found=both["probability"] >= 0.5, given=both["probability_given"] >= 0.5)
    rows = [
        {
            "code": code, kind: name, "n": len(rows), "share_given": rows["given"].mean(), "share_found": rows["found"].mean(),
            "missed": (~rows.loc[rows["given"], "found"]).mean(), "invented": rows.loc[~rows["given"], "found"].mean(),
        }
        for (code, name), rows in both.groupby(["code", kind], sort=True)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def reach_of_mean(values: np.ndarray, ci_level: float) -> float:
    """Give half the width of the t interval of a mean."""
    n = len(values)
    return float(stats.t.ppf((1 + ci_level) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n))


def _gaps(rows: pd.DataFrame, column: str, kind: str, between: tuple[str, str], cluster: str) -> pd.Series:
    means = rows.pivot_table(index=cluster, columns=kind, values=column, aggfunc="mean").reindex(columns=list(between))
    return means[between[0]] - means[between[1]]
