"""Win shares of models against people, and the claims ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NotRequired, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from heart_utils.ratings.resampling import check_level, clustered_error, error_ends
from heart_utils.settings import JsonObject, extra, read_yaml
from heart_utils.tables import TABLES, check_table, need_columns

__all__ = [
    "BOTS",
    "CONVERSIONS",
    "ClaimsError",
    "EffectError",
    "FINDINGS",
    "check_claims",
    "count_wins",
    "effect_row",
    "measured_effects",
    "read_quoted",
    "share_between",
    "share_clustered",
]


class EffectError(ValueError):
    """A study gives no win share with an interval."""


class Share(TypedDict):
    """A win share of models over people, with its interval."""

    win_share: float
    ci_low: float
    ci_high: float
    ci_level: float
    n_clusters: int
    cluster: NotRequired[str]  #: What the clusters are, where rows come in some.
    n_model_replies: NotRequired[int]
    n_people_replies: NotRequired[int]


def _share_of_odds(odds: float) -> float:
    return 0.5 if odds == 1.0 else odds * (odds - 1.0 - np.log(odds)) / (odds - 1.0) ** 2


CONVERSIONS: dict[str, Callable[[float], float]] = {
    "share": float,
    "d": lambda d: float(stats.norm.cdf(d / np.sqrt(2.0))),
    "odds_ratio": _share_of_odds,
    "rank_biserial": lambda r: (1.0 + r) / 2.0,
}
"""What a paper prints -> the win share it implies: as it is; normal distributions of one variance;
logistic ones (proportional odds); by definition."""

QUOTED = ("favours", "printed", "measure", "value", "low", "high", "read", "read_on")
"""Columns of ``data/published/effects.csv`` beside those of the table ``effects``."""


SAID: JsonObject = read_yaml(Path(__file__).with_name("evidence.yaml"), JsonObject, ValueError)
ABOUT: dict[str, dict[str, str]] = SAID["effects"]
FINDINGS: dict[str, str] = SAID["findings"]
"""What may be said of a figure -> what it means."""

BOTS = ("pi", "serena", "noni", "character-ai-therapist", "gpt-therapist")
"""Therapy products, whose replies people classed; the other models' were classed by GPT-4o."""


def share_between(models: ArrayLike, people: ArrayLike, *, ci_level: float = 0.95) -> Share:
    """Compare scores of models' and people's replies, each reply with a rater of its own.

    It is the share of all pairs of a model's and a person's score in which the model's is higher, a
    tie half. Interval: Brunner and Munzel (2000),
    https://doi.org/10.1002/(SICI)1521-4036(200001)42:1<17::AID-BIMJ17>3.0.CO;2-U.

    Parameters
    ----------
    models
        One score a reply.
    people
        The same, on the same scale.
    ci_level
        Level of the interval.

    Returns
    -------
    dict
        ``win_share``, ``ci_low``, ``ci_high`` (from 0 to 1), ``ci_level``, ``n_model_replies``,
        ``n_people_replies`` and ``n_clusters`` (all).

    Raises
    ------
    EffectError
        If a side has fewer than two scores, or all comparisons go one way.

    Examples
    --------
    >>> round(share_between([6, 5, 5], [5, 4, 6])["win_share"], 3)  # 5.5 of nine pairs
    0.611
    """
    with extra("stats"):
        from statsmodels.stats.nonparametric import rank_compare_2indep

    models, people = np.asarray(models, dtype=float), np.asarray(people, dtype=float)
    check_level(ci_level)
    if min(len(models), len(people)) < 2:
        raise EffectError(
            f"A share needs two scores a side; there are {len(models)} of models and {len(people)}"
            " of people."
        )
    if (
        models.min() > people.max()
        or people.min() > models.max()
        or np.ptp([*models, *people]) == 0.0
    ):
        raise EffectError(
            "All comparisons went one way or tied, so the scores give no interval. Report the"
            " counts instead."
        )
    comparison = rank_compare_2indep(models, people)
    low, high = comparison.conf_int(alpha=1.0 - ci_level)
    return {
        "win_share": float(comparison.prob1),
        "ci_low": max(float(low), 0.0),
        "ci_high": min(float(high), 1.0),
        "ci_level": ci_level,
        "n_model_replies": len(models),
        "n_people_replies": len(people),
        "n_clusters": len(models) + len(people),
    }


def share_clustered(
    wins: pd.DataFrame,
    *,
    clusters: Sequence[str],
    weight: str | None = None,
    ci_level: float = 0.95,
) -> Share:
    """Average wins that come in clusters, such as messages and the raters who read them.

    The interval is Wilson's, with a t quantile and a variance over clusters (jackknife). Sources:
    Cameron et al. (2011), https://doi.org/10.1198/jbes.2010.07136; MacKinnon et al. (2023),
    https://doi.org/10.1016/j.jeconom.2022.04.001.

    Parameters
    ----------
    wins
        One row a comparison, or a cluster's mean: ``won`` (1 the model, 0 the person, 0.5 a tie).
    clusters
        One or two columns.
    weight
        Column of weights; a row of weight 0 counts for nothing.
    ci_level
        Level of the interval.

    Returns
    -------
    dict
        ``win_share``, ``ci_low``, ``ci_high`` (from 0 to 1), ``ci_level``, ``n_clusters`` (of the
        clustering with fewer) and its name, ``cluster``.

    Raises
    ------
    EffectError
        If there is one cluster, all have the same share between 0 and 1, or a value is absent.

    Examples
    --------
    >>> wins = pd.DataFrame({"post": list("ppqr"), "won": [1.0, 0.0, 1.0, 0.5]})
    >>> share_clustered(wins, clusters=["post"])["win_share"]
    0.625
    """
    columns = ["won", *clusters, *([weight] if weight else [])]
    if absent := int(wins[columns].isna().any(axis=1).sum()):
        raise EffectError(
            f"{absent} of {len(wins)} rows lack {', '.join(columns[:-1])} or {columns[-1]}; drop"
            " them, and say so."
        )
    wins = wins if weight is None else wins[wins[weight] > 0]
    codes = [pd.factorize(wins[name])[0] for name in clusters]
    n_clusters, fewest = min(
        (code.max(initial=-1) + 1, name) for code, name in zip(codes, clusters, strict=True)
    )
    if n_clusters < 2:
        raise EffectError(
            f"There is {n_clusters} {fewest}; an interval needs two or more. Cluster by something"
            " else."
        )
    won = wins["won"].to_numpy(float)
    weights = np.ones(len(wins)) if weight is None else wins[weight].to_numpy(float)
    share = float(np.average(won, weights=weights))
    influence = weights * (won - share) / weights.sum()
    se, even_clusters = clustered_error(influence, weights, *codes)
    if se < 1e-6 and 0.0 < share < 1.0:
        raise EffectError(
            f"Each {fewest} has the same share, so the clusters give no interval. Report the counts"
            " instead."
        )
    low, high = map(float, error_ends(share, se, even_clusters, ci_level, least=0.0, most=1.0))
    return {
        "win_share": share,
        "ci_low": low,
        "ci_high": high,
        "ci_level": ci_level,
        "n_clusters": int(n_clusters),
        "cluster": " and ".join(clusters),
    }


def effect_row(found: Share, **words: Any) -> pd.DataFrame:
    """Make a row of the table ``effects`` of an estimate and what a reader must know of it.

    Parameters
    ----------
    found
        From :func:`share_between` or :func:`share_clustered`.
    **words
        The other columns; what is not given is empty.

    Returns
    -------
    pandas.DataFrame
        One row, as ``check_table`` lets it pass.

    Examples
    --------
    >>> words = {"study": "s", "people": "friends", "models": "m", "raters": "expert"}
    >>> words |= {"label": "hidden", "outcome": "warmth", "cluster": "rater", "source": "x"}
    >>> effect_row(share_between([6, 5, 5], [5, 4, 6]), **words)["evidence"].tolist()
    ['measured']
    """
    row = {
        **dict.fromkeys(TABLES["effects"]),
        "evidence": "measured",
        "simulated": False,
        **found,
        **words,
    }
    return check_table("effects", pd.DataFrame([row]))


def read_quoted(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read what papers print of people's replies against models', and convert it to win shares.

    Rows are marked ``evidence="quoted"``.

    Parameters
    ----------
    path
        A CSV file, such as ``data/published/effects.csv``, with the columns of the table
        ``effects`` that are not computed; ``printed`` (in words), ``favours``, ``read``,
        ``read_on`` (where and when); ``measure`` (of :data:`CONVERSIONS`, or empty) with ``value``,
        ``low``, ``high``.

    Returns
    -------
    pandas.DataFrame
        One row a finding: the table ``effects`` and the file's own columns; without a measure
        ``win_share``, ``ci_low`` and ``ci_high`` (from 0 to 1) are empty.

    Raises
    ------
    EffectError
        If a column is missing, a measure unknown, or without its value.
    TableError
        If a row lacks its source or every count, or a share is outside 0 to 1.

    Examples
    --------
    >>> from heart_utils import find_root
    >>> effects = read_quoted(find_root() / "data" / "published" / "effects.csv")
    >>> float(effects.loc[0, "win_share"])
    0.786
    """
    quoted = pd.read_csv(path)
    computed = ("win_share", "ci_low", "ci_high", "ci_level", "evidence", "simulated")
    need_columns(
        quoted,
        [name for name in (*TABLES["effects"], *QUOTED) if name not in computed],
        EffectError,
    )
    wrong = ~quoted["measure"].isin([*CONVERSIONS, np.nan]) | (
        quoted["measure"].isna() != quoted["value"].isna()
    )
    if wrong.any():
        row = quoted[wrong].iloc[0]
        raise EffectError(
            f"Row {row.name} ({row['study']}): measure is {row['measure']!r} and value"
            f" {row['value']}; expected one of {', '.join(CONVERSIONS)} with its value, or neither."
        )
    for share, printed in {"win_share": "value", "ci_low": "low", "ci_high": "high"}.items():
        known = zip(quoted["measure"], quoted[printed], strict=True)
        quoted[share] = [
            CONVERSIONS[measure](value) if pd.notna(value) else np.nan for measure, value in known
        ]
    quoted = quoted.assign(ci_level=0.95, evidence="quoted", simulated=False)
    # A row without a share must name its source and n as well: it is checked as if it said one
    # half.
    filled = check_table("effects", quoted.fillna({"win_share": 0.5})[list(TABLES["effects"])])
    return filled.assign(win_share=quoted["win_share"], **quoted[list(QUOTED)])


def measured_effects(
    recipients: pd.DataFrame,
    welivita: pd.DataFrame,
    resort: pd.DataFrame,
    therapists: pd.DataFrame,
    *,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Compute the win share of models against each kind of people, in each study.

    Parameters
    ----------
    recipients
        Scores by recipients.
    welivita, resort
        Tallies in which a is a person and b a model.
    therapists
        Classes of replies, as scores.
    ci_level
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        The table ``effects``, of recipients by label, strangers, psychologists and hard moments.

    Raises
    ------
    EffectError
        If a study has one cluster.

    Examples
    --------
    >>> from heart_utils import open_run
    >>> kinds = {"recipients": "scores", "welivita": "tallies", "resort": "tallies"}
    >>> kinds["therapists"] = "scores"
    >>> found = measured_effects(
    ...     **{name: open_run("public").read(kind, name) for name, kind in kinds.items()}
    ... )
    >>> found.loc[found["label"] == "true", "win_share"].round(2).tolist()
    [0.44]
    """
    heard = recipients[recipients["dimension"] == "felt_heard"]
    scores = {
        group: part["score"].to_numpy() for group, part in heard.groupby(["responder", "label"])
    }
    rows = []
    for label, told_model, told_person in [
        ("person", "person", "person"),
        ("ai", "ai", "ai"),
        ("true", "ai", "person"),
    ]:
        share = share_between(
            scores["bing-chat", told_model], scores["person", told_person], ci_level=ci_level
        )
        rows.append(
            effect_row(share, **ABOUT["recipients"], label=label, n_raters=share["n_clusters"])
        )
    for responder, models in {
        "gpt-4": "GPT-4",
        "gpt-4-empathy": "GPT-4 told what empathy is",
    }.items():
        wins = count_wins(welivita, by="batch", responder_a="person", responder_b=responder)
        share = share_clustered(wins, clusters=["cluster"], weight="n", ci_level=ci_level)
        counts = dict.fromkeys(("n_people_replies", "n_model_replies"), wins["n"].sum()) | {
            "n_raters": 2 * share["n_clusters"]
        }
        rows.append(effect_row(share, **ABOUT["strangers"], models=models, **counts))
    for responder, people in {
        "trained": "people trained for the task",
        "commenter": "Reddit commenters",
    }.items():
        wins = count_wins(resort, by="post", dimension="empathy", responder_a=responder)
        share = share_clustered(wins, clusters=["cluster", "rater"], weight="n", ci_level=ci_level)
        rows.append(
            effect_row(
                share, **ABOUT["psychologists"], people=people, n_raters=wins["rater"].nunique()
            )
        )
    valid = therapists[therapists["state"] == "valid"]
    for models, chosen in {"five models": False, "five therapy bots": True}.items():
        writers = valid.loc[
            (valid["responder"] != "therapist") & (valid["responder"].isin(BOTS) == chosen),
            "responder",
        ]
        wins = _therapist_wins(valid, sorted(writers.unique()))
        share = share_clustered(wins, clusters=["dialogue_id", "author_id"], ci_level=ci_level)
        counts = {"n_people_replies": len(wins), "n_model_replies": len(writers)}
        rows.append(effect_row(share, **ABOUT["hard moments"], models=models, **counts))
    return pd.concat(rows, ignore_index=True)


def count_wins(tallies: pd.DataFrame, *, by: str, **chosen: str) -> pd.DataFrame:
    """Turn tallies into wins of b, the model.

    Parameters
    ----------
    tallies
        Table of tallies.
    by
        The cut, such as ``"batch"``.
    **chosen
        Column -> the one word to keep.

    Returns
    -------
    pandas.DataFrame
        Rows kept, with ``n`` comparisons and ``won``, the share that b won, a tie half.

    Raises
    ------
    ValueError
        If no row is left.

    Examples
    --------
    >>> tallies = pd.DataFrame({"by": ["batch"], "n_a": [1], "n_tie": [2], "n_b": [2]})
    >>> count_wins(tallies, by="batch")["won"].tolist()
    [0.6]
    """
    kept = tallies[(tallies[["by", *chosen]] == pd.Series({"by": by, **chosen})).all(axis=1)]
    if kept.empty:
        raise ValueError(f"No row of the tallies has by={by!r} and {chosen}.")
    n = kept[["n_a", "n_tie", "n_b"]].sum(axis=1)
    return kept.assign(n=n, won=(kept["n_b"] + kept["n_tie"] / 2) / n)


def _therapist_wins(scores: pd.DataFrame, responders: list[str]) -> pd.DataFrame:
    models = (
        scores[scores["responder"].isin(responders)]
        .groupby(["dialogue_id", "responder"])["score"]
        .mean()
    )
    people = scores[scores["responder"] == "therapist"]
    right = people["dialogue_id"].map(models.groupby("dialogue_id").mean())
    # With scores of 0 and 1, a win less a loss is a difference of scores.
    return people[["dialogue_id", "author_id"]].assign(won=0.5 + (right - people["score"]) / 2)


HELPERS = {"abs": abs, "len": len, "log10": np.log10, "norm": stats.norm}


class ClaimsError(ValueError):
    """A check of the ledger cannot be computed."""


def check_claims(claims: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Compare each claim's value with what its check computes.

    The checks are run as code, so only load a ledger that you trust.

    Parameters
    ----------
    claims
        One row a figure, all text: ``claim_id``, ``value``, ``finding`` (of :data:`FINDINGS`);
        ``check``, an expression of `tables` and other rows (``claims.H016``), or empty;
        ``tolerance``, by default half of the last digit; ``otherwise``, the finding if it fails.
    tables
        What the checks name.

    Returns
    -------
    pandas.DataFrame
        Claims with ``ours`` and ``holds`` (within the tolerance), missing without a check, and
        ``finding``.

    Raises
    ------
    ClaimsError
        If a check cannot be computed.

    Examples
    --------
    >>> names = ["claim_id", "value", "check", "finding", "tolerance", "otherwise"]
    >>> claims = pd.DataFrame([["x", "18.4", "100 - 82.6", "adds up", "", ""]], columns=names)
    >>> check_claims(claims, {})["finding"].tolist()
    ['arithmetic fails']
    """
    claims = claims.fillna("").reset_index(drop=True)
    printed = pd.to_numeric(claims["value"], errors="coerce")
    values = SimpleNamespace(**dict(zip(claims["claim_id"], printed, strict=True)))
    names = {**tables, **HELPERS, "claims": values, "__builtins__": {}}
    checked = claims["check"] != ""
    ours = claims["check"].map(lambda check: _compute(check, names)).astype(float)
    digits = claims["value"].str.partition(".")[2].str.len()
    reach = pd.to_numeric(claims["tolerance"]).fillna(0.5 * 10.0**-digits)
    holds = (printed - ours).abs() <= reach + 1e-9
    failed = claims["otherwise"].replace("", "arithmetic fails")
    return claims.assign(
        ours=ours,
        holds=holds.astype("boolean").where(checked),
        finding=claims["finding"].where(holds | ~checked, failed),
    )


def _compute(check: str, names: dict[str, Any]) -> float:
    if not check:
        return np.nan
    try:
        value = float(eval(check, dict(names)))  # noqa: S307, the ledger is a file of the project
    except Exception as error:
        raise ClaimsError(f"The check {check!r} cannot be computed: {error!r}.") from error
    if np.isnan(value):
        raise ClaimsError(f"The check {check!r} gives no number; a claim that it names has none.")
    return value
