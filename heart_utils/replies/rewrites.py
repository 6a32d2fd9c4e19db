"""Calm originals against their rewrites: what else the rewriting changed, and what a contrast is worth beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.ratings.contrasts import TWINS
from heart_utils.ratings.verdicts import won_by_a
from heart_utils.replies.codes import code_reasons
from heart_utils.replies.cues import describe_turns

__all__ = ["LEAVING", "adjust_contrast", "describe_rewrites", "mean_wins", "twin_gaps"]

LEAVING = (
    "i'm done", "i am done", "log off", "logging off", "bye", "goodbye", "leave me", "i'm leaving", "i should go", "i'll go",
    "i will go", "forget it", "never mind", "nevermind", "waste of time", "wasting my time", "not worth", "no point",
    "close this", "closing this", "end this", "ending this", "give up on you", "talk to someone else", "find someone else",
    "pointless", "useless",
)  # fmt: skip
"""Words of a last turn that threatens to break off, chosen for this project and checked on no other data."""

COVARIATES = ("seeker_words", "supporter_words", "n_turns", "explicit_last", "ends_on_leaving")


def describe_rewrites(histories: pd.DataFrame) -> pd.DataFrame:
    """Compare each adversarial history with its calm twin on what else differs.

    Parameters
    ----------
    histories : pandas.DataFrame
        The table of histories; twins are found by ``twin_id``.

    Returns
    -------
    pandas.DataFrame
        One row a pair: ``history_id``, ``twin_id``, ``dialogue_id`` and, rewrite minus original, ``seeker_words`` (mean a
        turn), ``supporter_words``, ``n_turns``, ``explicit_last`` (a feeling named in the last turn) and ``ends_on_leaving``
        (it threatens to break off): 1, 0 or -1; beside them ``leaving``: whether the rewrite does.

    Examples
    --------
    >>> calm = [{"speaker": "seeker", "text": "I lost my job."}]
    >>> upset = [{"speaker": "seeker", "text": "You are useless. I lost my job and I am angry."}]
    >>> histories = pd.DataFrame({"history_id": ["a", "c"], "twin_id": ["c", "a"], "dialogue_id": "d",
    ...     "slice": ["adversarial", "calm_twin"], "turns": [upset, calm]})
    >>> describe_rewrites(histories)[["seeker_words", "n_turns", "explicit_last"]].values.tolist()
    [[7.0, 0.0, 1.0]]
    """
    told = describe_turns(histories).set_index("history_id")
    last = pd.DataFrame({"reason_id": histories["history_id"], "text": [turns[-1]["text"] for turns in histories["turns"]]})
    leaving = code_reasons(last, {"themes": [{"name": "leaving", "words": list(LEAVING)}]}, text="text")
    told["ends_on_leaving"] = leaving.set_index("reason_id")["probability"]
    told["explicit_last"] = told["explicit_last"].astype(float)
    pairs = histories[(histories["slice"] == "adversarial") & histories["twin_id"].isin(told.index)]
    numbers = told[list(COVARIATES)].astype(float)
    apart = numbers.loc[pairs["history_id"]].to_numpy() - numbers.loc[pairs["twin_id"]].to_numpy()
    made = pd.DataFrame(apart, columns=list(COVARIATES), index=pairs.index)
    found = pairs[["history_id", "twin_id", "dialogue_id"]].join(made)
    return found.assign(leaving=told.loc[pairs["history_id"], "ends_on_leaving"].to_numpy() == 1).reset_index(drop=True)


def twin_gaps(verdicts: pd.DataFrame, contrast: Mapping[str, float], *, dimension: str = "overall") -> pd.DataFrame:
    """Give, dialogue by dialogue, how much a gap between authors grows from the calm original to the rewrite.

    In shares of wins, for :func:`adjust_contrast`; the gap in strengths, with its interval, is
    :func:`heart_utils.ratings.contrasts.twin_contrasts`.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        With orders joined.
    contrast : mapping
        Responder -> weight, summing to zero, as :func:`heart_utils.ratings.contrasts.group_contrast` makes it.
    dimension : str
        A line of the rubric.

    Returns
    -------
    pandas.DataFrame
        One row a dialogue that has all the authors in both slices: ``dialogue_id``, ``difference``.

    Examples
    --------
    >>> from heart_utils.ratings.contrasts import TWINS
    >>> verdicts = pd.DataFrame({"dialogue_id": "d", "slice": list(TWINS), "responder_a": "x", "responder_b": "y",
    ...     "verdict": ["a", "tie"], "state": "valid", "dimension": "overall"})
    >>> twin_gaps(verdicts, {"x": 1.0, "y": -1.0}).values.tolist()  # from half and half to all and none
    [['d', 1.0]]
    """
    mine = verdicts[verdicts["dimension"] == dimension]
    gaps = []
    for part in TWINS:
        wins = mean_wins(mine[mine["slice"] == part])
        wide = wins.rename("won").reset_index().pivot_table(index="dialogue_id", columns="responder", values="won")
        weights = pd.Series(contrast, dtype=float)
        gaps.append((wide.reindex(columns=weights.index) * weights).sum(axis="columns", skipna=False))
    return (gaps[0] - gaps[1]).dropna().rename("difference").rename_axis("dialogue_id").reset_index()


def adjust_contrast(
    by_dialogue: pd.DataFrame, rewrites: pd.DataFrame, *, covariates: Sequence[str] = COVARIATES, ci_level: float = 0.95
) -> pd.DataFrame:
    """Ask what would be left of a contrast if the rewriting had not changed one other thing.

    A least-squares line through the dialogues' differences, one covariate at a time (there are too few dialogues for more);
    where it meets a change of zero is what is left. If hardly any pair has a change near zero that is an extrapolation.

    Parameters
    ----------
    by_dialogue : pandas.DataFrame
        From :func:`twin_gaps`.
    rewrites : pandas.DataFrame
        As :func:`describe_rewrites` makes it; two rewrites of one dialogue are averaged.
    covariates : sequence of str
        Columns of it.
    ci_level : float
        Of the t intervals.

    Returns
    -------
    pandas.DataFrame
        A row without a covariate and one for each: ``covariate``, ``difference``, ``ci_low``, ``ci_high``, ``p_value``,
        ``mean_change``, ``n_near_zero`` (pairs with a change on the other side of zero, or none), ``n`` and ``q_value``
        (Benjamini-Hochberg over the covariates: exploratory). ``nan`` where the covariate never varies.

    Examples
    --------
    >>> dialogues = pd.DataFrame({"dialogue_id": list("abcdef"), "difference": [1.0, 2, 3, 4, 5, 6]})
    >>> changes = pd.DataFrame({"dialogue_id": list("abcdef"), "n_turns": [1.0, 2, 3, 4, 5, 6.5]})
    >>> adjust_contrast(dialogues, changes, covariates=["n_turns"])[["covariate", "difference"]].round(1).values.tolist()
    [['none', 3.5], ['n_turns', 0.2]]
    """
    means = by_dialogue.groupby("dialogue_id")["difference"].mean()
    changes = rewrites.groupby("dialogue_id")[list(covariates)].mean().reindex(means.index)
    rows = [_line("none", means.to_numpy(float), None, ci_level)]
    rows += [_line(name, means.to_numpy(float), changes[name].to_numpy(float), ci_level) for name in covariates]
    table = pd.DataFrame(rows)
    tested = table["p_value"].notna() & (table["covariate"] != "none")
    table["q_value"] = np.nan
    table.loc[tested, "q_value"] = stats.false_discovery_control(table.loc[tested, "p_value"])
    return table


def mean_wins(rows: pd.DataFrame) -> pd.Series:
    """Give each responder's mean wins in each dialogue, each opponent weighing the same.

    Parameters
    ----------
    rows : pandas.DataFrame
        Verdicts on one dimension, orders joined; failures are left out.

    Returns
    -------
    pandas.Series
        By ``responder`` and ``dialogue_id``, from 0 to 1.

    Examples
    --------
    >>> rows = pd.DataFrame({"dialogue_id": "d", "responder_a": ["x", "x", "y"], "responder_b": ["y", "z", "z"],
    ...     "verdict": ["a", "tie", "b"], "state": "valid"})
    >>> mean_wins(rows).to_dict()
    {('x', 'd'): 0.75, ('y', 'd'): 0.0, ('z', 'd'): 0.75}
    """
    valid = rows[rows["state"].isin(["valid", "inconsistent"])]
    won = won_by_a(valid)
    sides = [
        pd.DataFrame({"responder": valid[f"responder_{own}"], "other": valid[f"responder_{other}"],
                      "dialogue_id": valid["dialogue_id"], "won": part})
        for own, other, part in (("a", "b", won), ("b", "a", 1.0 - won))
    ]  # fmt: skip
    return pd.concat(sides).groupby(["responder", "dialogue_id", "other"])["won"].mean().groupby(level=[0, 1]).mean()


def _line(name: str, values: np.ndarray, change: np.ndarray | None, ci_level: float) -> Mapping[str, object]:
    from statsmodels.api import OLS

    n = len(values)
    row = {"covariate": name, "difference": np.nan, "ci_low": np.nan, "ci_high": np.nan, "p_value": np.nan,
           "mean_change": np.nan, "n_near_zero": n, "n": n}  # fmt: skip
    design = np.ones((n, 1))
    if change is not None:
        side = np.sign(np.nanmean(change))
        row |= {"mean_change": float(np.nanmean(change)), "n_near_zero": int((change * side <= 0).sum())}
        if np.isnan(change).any() or np.ptp(change) == 0:
            return row
        design = np.column_stack([design, change])
    if n - design.shape[1] < 2:
        return row
    fit = OLS(values, design).fit()
    low, high = fit.conf_int(1.0 - ci_level)[0]
    if fit.bse[0] > 0:
        row["p_value"] = float(fit.pvalues[0])
    return row | {"difference": float(fit.params[0]), "ci_low": float(low), "ci_high": float(high)}
