"""Report card of a simulated seeker: checks that come before any leaderboard of conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import clustered_error, error_ends, share_ci
from heart_utils.ratings.verdicts import Array
from heart_utils.replies.turns import TurnsError, path_by_turn
from heart_utils.tables import need_columns

__all__ = ["agree_with_outside", "probes_lose", "seeker_card", "tell_from_real"]

LIMITS: Mapping[str, tuple[float, str]] = {
    "told from real turns": (0.75, "at most"),
    "stays adversarial": (0.5, "at least"),
    "probe loses": (0.5, "at least"),
    "agrees with outside raters": (0.5, "at least"),
}
"""Check -> its limit and side. The first two are choices of this project, the others chance."""


def tell_from_real(
    simulated: pd.DataFrame,
    real: pd.DataFrame,
    *,
    cluster: str = "dialogue_id",
    n_folds: int = 5,
    ci_level: float = 0.95,
) -> dict[str, float]:
    """Measure how well a simple classifier tells a seeker's turns from turns that people wrote.

    Parameters
    ----------
    simulated : pandas.DataFrame
        Turns of one simulated seeker: ``text`` and the cluster. Take the first turn after the
        start, for which the person's own turn is known.
    real : pandas.DataFrame
        The turns that people wrote at the same places.
    cluster : str
        Turns of one dialogue are all learnt from, or all tried.
    n_folds : int
        Parts of the dialogues, each tried by a classifier of the others.
    ci_level : float
        Level of the interval.

    Returns
    -------
    dict
        ``value``, the area under the curve (0.5: not told apart; 1: always), ``ci_low``,
        ``ci_high``, ``ci_level``, ``n`` turns, ``n_clusters``.

    Raises
    ------
    TurnsError
        If a side has fewer dialogues than folds, or a turn without text.

    See Also
    --------
    seeker_card : Put all checks beside each other.

    Notes
    -----
    Logistic regression on TF-IDF of words and of letters (scikit-learn). The seeker answers another
    supporter's turn than the person did, which helps the classifier: the area is an upper bound of
    what the seeker's style gives away. A better classifier may tell more. The interval is that of
    the ranks of turns clustered by dialogue (Obuchowski 1997, https://doi.org/10.2307/2533958) and
    takes the classifiers as they are.

    Examples
    --------
    >>> people = pd.DataFrame(
    ...     {"text": ["idk tbh", "i guess so", "ok thx"] * 4, "dialogue_id": range(12)}
    ... )
    >>> model = people.assign(text=["Thank you for listening.", "I truly feel heard."] * 6)
    >>> tell_from_real(model, people)["value"]
    1.0
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline, make_union

    for name, rows in (("simulated", simulated), ("real", real)):
        need_columns(rows, ["text", cluster], TurnsError)
        if rows[cluster].nunique() < n_folds or rows["text"].isna().any():
            raise TurnsError(
                f"{name}: {rows[cluster].nunique()} dialogues, {int(rows['text'].isna().sum())}"
                f" turns without text; expected {n_folds} dialogues or more, and text in all."
            )
    texts = pd.concat([simulated["text"], real["text"]]).astype(str).to_numpy()
    groups = pd.factorize(pd.concat([simulated[cluster], real[cluster]]))[0]
    is_model = np.repeat([True, False], [len(simulated), len(real)])
    score, fold = np.empty(len(texts)), np.empty(len(texts), dtype=int)
    for place, (learn, test) in enumerate(
        GroupKFold(n_folds, shuffle=True, random_state=0).split(texts, groups=groups)
    ):
        words = make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True),
        )
        model = make_pipeline(words, LogisticRegression(max_iter=1_000))
        score[test] = model.fit(texts[learn], is_model[learn]).decision_function(texts[test])
        fold[test] = place
    return _area(score, is_model, fold, groups, ci_level)


def _area(score: Array, is_model: Any, fold: Any, groups: Any, ci_level: float) -> dict[str, float]:
    """Compute the area under the curve within folds, with an error over clusters."""
    same = fold[is_model][:, None] == fold[~is_model][None, :]
    ahead = score[is_model][:, None] - score[~is_model][None, :]
    won = np.where(same, (np.sign(ahead) + 1.0) / 2.0, 0.0)
    area = float(won.sum() / same.sum())
    influence = np.empty(len(score))
    influence[is_model] = (won - area * same).sum(axis=1) / same.sum()
    influence[~is_model] = (won - area * same).sum(axis=0) / same.sum()
    error, even = clustered_error(influence, np.ones(len(score)), groups)
    low, high = error_ends(area, error, even, ci_level, least=0.0, most=1.0)
    found = {"value": area, "ci_low": float(low), "ci_high": float(high), "ci_level": ci_level}
    return found | {"n": len(score), "n_clusters": int(groups.max()) + 1}


def probes_lose(
    scores: pd.DataFrame,
    probes: Sequence[str],
    *,
    cluster: str = "dialogue_id",
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Count how often a probe in the supporter's place scores below the real supporters.

    A probe is empty, echoes the seeker, says one warm line to everything, or gives the replies of
    another history. A seeker that rewards one of these does not react to what is said.

    Parameters
    ----------
    scores : pandas.DataFrame
        Scores of whole conversations on one dimension, with ``rater`` (the seeker, of its own
        conversations), ``responder``, ``score`` and the cluster.
    probes : sequence of str
        The responders that are probes.
    cluster : str
        The start.
    ci_level : float
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a rater and probe: ``rater``, ``probe``, ``value`` (the share of starts at which
        the probe scores below the mean of the real supporters, a tie half), ``ci_low``,
        ``ci_high``, ``ci_level``, ``n`` and ``n_clusters``.

    Raises
    ------
    TurnsError
        If a probe has no score at a start with a real supporter.

    See Also
    --------
    grade_probes : Grade a judge on replies that were spoilt.

    Examples
    --------
    >>> rows = {
    ...     "responder": ["echo", "m"] * 3,
    ...     "score": [1, 3, 2, 3, 1, 2],
    ...     "dialogue_id": list("aabbcc"),
    ... }
    >>> probes_lose(pd.DataFrame(rows).assign(rater="s"), ["echo"])["value"].tolist()
    [1.0]
    """
    need_columns(scores, ["rater", "responder", "score", cluster], TurnsError)
    valid = scores[scores["state"] == "valid"] if "state" in scores else scores
    rows = []
    for rater, own in valid.groupby("rater", sort=True):
        is_probe = own["responder"].isin(list(probes))
        real = own[~is_probe].groupby(cluster)["score"].mean()
        for probe in probes:
            theirs = own[own["responder"] == probe].groupby(cluster)["score"].mean()
            both = pd.concat([theirs, real], axis=1, keys=["probe", "real"]).dropna()
            if len(both) < 2:
                raise TurnsError(
                    f"{probe} and a real supporter share {len(both)} starts with {rater}; expected"
                    " two or more."
                )
            won = (np.sign(both["real"] - both["probe"]) + 1.0) / 2.0
            found = _share(won, both.index.to_series(), ci_level)
            rows.append({"rater": rater, "probe": probe, **found})
    return pd.DataFrame(rows)


def agree_with_outside(
    scores: pd.DataFrame,
    seekers: Sequence[str],
    *,
    cluster: str = "dialogue_id",
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Compare a seeker's own score with that of outside raters of the same transcripts.

    Parameters
    ----------
    scores : pandas.DataFrame
        Scores of whole conversations on one dimension, with ``reply_id`` (of the conversation),
        ``responder``, ``rater``, ``score`` and the cluster.
    seekers : sequence of str
        Raters that scored their own conversations; all others are outside.
    cluster : str
        The start.
    ci_level : float
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a seeker: ``rater``, ``value`` (of pairs of conversations from one start that both
        tell apart, the share in which both prefer the same), ``ci_low``, ``ci_high``, ``ci_level``,
        ``n`` pairs, ``n_clusters``, and ``names_alone``: how often the responders' names, ordered
        by outside scores at other starts, agree with the outside raters.

    Raises
    ------
    TurnsError
        If no pair of conversations was told apart by both.

    See Also
    --------
    agreement_with_baselines : The same question for verdicts on replies.

    Examples
    --------
    >>> own = pd.DataFrame(
    ...     {"reply_id": list("wxyz"), "score": [1, 3, 2, 4], "dialogue_id": list("aabb")}
    ... )
    >>> own = own.assign(responder=list("mnmn"), rater="s")
    >>> scores = pd.concat([own, own.assign(rater="ann", score=[2, 3, 3, 1])])
    >>> agree_with_outside(scores, ["s"])["value"].tolist()
    [0.5]
    """
    need_columns(scores, ["reply_id", "responder", "rater", "score", cluster], TurnsError)
    valid = scores[scores["state"] == "valid"] if "state" in scores else scores
    is_own = valid["rater"].isin(list(seekers))
    keys = ["reply_id", "responder", cluster]
    outside = valid[~is_own].groupby(keys)["score"].mean().rename("outside")
    rows = []
    for rater in seekers:
        own = valid[valid["rater"] == rater].groupby(keys)["score"].mean().rename("own")
        both = pd.concat([own, outside], axis=1).dropna().reset_index()
        pairs = _pairs(both, cluster)
        told = pairs[(pairs["own"] != 0) & (pairs["outside"] != 0)]
        if told[cluster].nunique() < 2:
            raise TurnsError(
                f"{rater} and outside raters both tell conversations apart at"
                f" {told[cluster].nunique()} starts; expected two or more."
            )
        agreed = (told["own"] == told["outside"]).astype(float)
        names = pairs[(pairs["names"] != 0) & (pairs["outside"] != 0)]
        alone = float((names["names"] == names["outside"]).mean()) if len(names) else np.nan
        found = _share(agreed, told[cluster], ci_level)
        rows.append({"rater": rater, **found, "names_alone": alone})
    return pd.DataFrame(rows)


def _pairs(both: pd.DataFrame, cluster: str) -> pd.DataFrame:
    """List pairs of conversations from one start, and who leads by each account."""
    by_name = both.groupby("responder")["outside"]
    here = both.groupby(["responder", cluster])["outside"]
    # What the names say: the mean of the responder over all other starts.
    rest = by_name.transform("sum") - here.transform("sum")
    n_rest = by_name.transform("count") - here.transform("count")
    rows = both.assign(names=rest / n_rest.where(n_rest > 0), place=np.arange(len(both)))
    pairs = rows.merge(rows, on=cluster, suffixes=("", "_other"))
    pairs = pairs[
        (pairs["place"] < pairs["place_other"]) & (pairs["responder"] != pairs["responder_other"])
    ]
    leads = {
        name: np.sign((pairs[name] - pairs[f"{name}_other"]).to_numpy(dtype=float))
        for name in ("own", "outside", "names")
    }
    return pairs[[cluster]].assign(**leads).fillna({"names": 0.0})


def _share(values: pd.Series | Array, cluster: pd.Series, ci_level: float) -> dict[str, float]:
    found = share_ci(values, 1.0, cluster=cluster, ci_level=ci_level)
    ends = {"value": found.estimate, "ci_low": found.ci_low, "ci_high": found.ci_high}
    return {**ends, "ci_level": ci_level, "n": len(values), "n_clusters": cluster.nunique()}


def seeker_card(
    seeker: str,
    *,
    simulated: pd.DataFrame | None = None,
    real: pd.DataFrame | None = None,
    adversarial: pd.DataFrame | None = None,
    scores: pd.DataFrame | None = None,
    probes: Sequence[str] = (),
    limits: Mapping[str, tuple[float, str]] = LIMITS,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Put the checks of one simulated seeker beside each other, each with its limit.

    What is not given is not checked, and the card says so.

    Parameters
    ----------
    seeker : str
        Its name, as in ``rater`` and ``seeker``.
    simulated, real : pandas.DataFrame, optional
        As in :func:`tell_from_real`.
    adversarial : pandas.DataFrame, optional
        Codes of this seeker's turns in conversations from adversarial starts: ``exchange``,
        ``dialogue_id``, ``coder`` and ``probability`` that the turn is adversarial, by one coder.
    scores : pandas.DataFrame, optional
        As in :func:`probes_lose` and :func:`agree_with_outside`.
    probes : sequence of str
        Responders among the scores that are probes.
    limits : mapping
        Check -> limit, and ``"at most"`` or ``"at least"``.
    ci_level : float
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a check: ``seeker``, ``check``, ``of`` (a probe, an exchange, who coded),
        ``value``, ``ci_low``, ``ci_high``, ``ci_level``, ``n``, ``n_clusters``, ``limit`` and
        ``outcome``: ``"passed"`` or ``"failed"`` where the whole interval lies on one side of the
        limit, ``"open"`` where it does not, ``"not checked"``.

    Raises
    ------
    TurnsError
        If the codes of adversarial turns are by several coders.

    See Also
    --------
    tell_from_real : Tell a seeker's turns from people's.
    probes_lose : Count how often a probe scores below real supporters.
    agree_with_outside : Compare a seeker's score with outside raters'.
    describe_judges : The report card of a judge.

    Notes
    -----
    A passed card does not make a seeker a person: nobody has been helped. "Stays adversarial" is
    as good as its coder, whose agreement with people should stand beside it; the last exchange
    decides, over the conversations that got so far.

    Examples
    --------
    >>> rows = {
    ...     "responder": ["echo", "m"] * 9,
    ...     "score": [1, 3] * 9,
    ...     "dialogue_id": sorted([*range(9)] * 2),
    ... }
    >>> card = seeker_card(
    ...     "s", scores=pd.DataFrame(rows).assign(rater="s", reply_id=range(18)), probes=["echo"]
    ... )
    >>> card[["check", "outcome"]].values.tolist()[2]
    ['probe loses', 'passed']
    """
    found: list[dict[str, Any]] = []

    def add(check: str, of: str, row: Mapping[Any, Any] | None) -> None:
        limit, side = limits[check]
        about = {"seeker": seeker, "check": check, "of": of, "limit": f"{side} {limit:g}"}
        if row is None:
            found.append(about | {"outcome": "not checked"})
            return
        kept = ("value", "ci_low", "ci_high", "ci_level", "n", "n_clusters")
        ends = sorted([row["ci_low"], row["ci_high"]], reverse=side == "at most")
        good = [end <= limit if side == "at most" else end >= limit for end in ends]
        outcome = "passed" if all(good) else "open" if any(good) else "failed"
        found.append(about | {name: row[name] for name in kept} | {"outcome": outcome})

    if simulated is not None and real is not None:
        add(
            "told from real turns", "classifier", tell_from_real(simulated, real, ci_level=ci_level)
        )
    else:
        add("told from real turns", "classifier", None)
    if adversarial is not None:
        coders = sorted(set(adversarial["coder"]))
        if len(coders) != 1:
            raise TurnsError(
                f"Codes of {', '.join(coders) or 'no coder'} came; expected one coder."
            )
        path = path_by_turn(adversarial, "probability", by=["coder"], ci_level=ci_level)
        last = dict(path.iloc[-1].items())
        add("stays adversarial", f"exchange {last['exchange']}, coded by {coders[0]}", last)
    else:
        add("stays adversarial", "", None)
    own = None if scores is None else scores[scores["rater"] == seeker]
    if own is not None and len(probes):
        for lost in probes_lose(own, probes, ci_level=ci_level).to_dict("records"):
            add("probe loses", lost["probe"], lost)
    else:
        add("probe loses", "", None)
    if scores is not None and (scores["rater"] != seeker).any():
        real_ones = scores[~scores["responder"].isin(list(probes))]
        [agreed] = agree_with_outside(real_ones, [seeker], ci_level=ci_level).to_dict("records")
        add("agrees with outside raters", f"names alone {agreed['names_alone']:.2f}", agreed)
    else:
        add("agrees with outside raters", "", None)
    columns = ["seeker", "check", "of", "value", "ci_low", "ci_high", "ci_level", "n", "n_clusters"]
    return pd.DataFrame(found).reindex(columns=[*columns, "limit", "outcome"])
