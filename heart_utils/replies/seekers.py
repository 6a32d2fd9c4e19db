"""Report card of a simulated seeker: checks that come before any leaderboard of conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import clustered_error, error_ends
from heart_utils.ratings.verdicts import Array
from heart_utils.replies.turns import TurnsError, mean_row
from heart_utils.tables import need_columns

__all__ = [
    "agree_with_outside",
    "describe_seekers",
    "probes_lose",
    "seeker_card",
    "tell_from_real",
    "told_by_raters",
]

TOLD_APART = "told from real turns"
STAYS = "stays adversarial"
LIMITS: Mapping[str, tuple[float, str]] = {
    TOLD_APART: (0.75, "at most"),
    STAYS: (0.5, "at least"),
    "probe loses": (0.5, "at least"),
    "agrees with outside raters": (0.5, "at least"),
}
"""Check -> its limit and side. The first two are choices of this project, the others chance."""
PLAYED = ("dialogues_these_seekers", "dialogues_and_seekers")
"""Populations of ratings of conversations whose seekers models played."""
NO_CARD = (
    "no report card was made of the seekers that models played, so nothing shows that they react to"
    " what a supporter says; check_seekers makes one"
)


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
    for number, (learn, test) in enumerate(
        GroupKFold(n_folds, shuffle=True, random_state=0).split(texts, groups=groups)
    ):
        words = make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True),
        )
        model = make_pipeline(words, LogisticRegression(max_iter=1_000))
        score[test] = model.fit(texts[learn], is_model[learn]).decision_function(texts[test])
        fold[test] = number
    return _area(score, is_model, fold, groups, ci_level)


def told_by_raters(
    guesses: pd.DataFrame, *, cluster: str = "dialogue_id", ci_level: float = 0.95
) -> dict[str, float]:
    """Measure how well raters tell a seeker's turns from turns that people wrote.

    Parameters
    ----------
    guesses : pandas.DataFrame
        One row a rater and turn: ``rater``, the cluster, ``is_model`` (whether a model wrote it)
        and ``score``, how much the rater takes it for a model's: 1 and 0, or any scale.
    cluster : str
        What was sampled: the dialogues.
    ci_level : float
        Level of the interval.

    Returns
    -------
    dict
        As :func:`tell_from_real`. Each rater's scores are compared with their own only; with 1 and
        0 the area is the mean of the shares told right of models' and of people's turns. A rater
        who gave all turns the same score may not have read them, and is left out: ``n_left_out``.

    Raises
    ------
    TurnsError
        If no rater scored turns of both kinds in more than one way, or there is one dialogue only.

    Examples
    --------
    >>> guesses = pd.DataFrame({"is_model": [True, False] * 4, "score": [1, 0, 1, 0, 1, 1, 1, 0]})
    >>> told_by_raters(guesses.assign(rater="ann", dialogue_id=list("aabbccdd")))["value"]
    0.875
    """
    need_columns(guesses, ["rater", "is_model", "score", cluster], TurnsError)
    kept = guesses.dropna(subset="score")
    differs = kept.groupby("rater")[["is_model", "score"]].nunique().gt(1).all(axis=1)
    kept = kept[kept["rater"].isin(differs.index[differs])]
    if kept[cluster].nunique() < 2:
        raise TurnsError(
            f"{kept[cluster].nunique()} dialogues have turns that a rater of both kinds scored, not"
            " all alike; expected two or more."
        )
    rater, group = (pd.factorize(kept[column])[0] for column in ("rater", cluster))
    is_model = kept["is_model"].to_numpy(dtype=bool)
    area = _area(kept["score"].to_numpy(dtype=float), is_model, rater, group, ci_level)
    return area | {"n_left_out": int((~differs).sum())}


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
    interval = {"value": area, "ci_low": float(low), "ci_high": float(high), "ci_level": ci_level}
    return interval | {"n": len(score), "n_clusters": int(groups.max()) + 1}


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
        ``ci_high``, ``ci_level``, ``n``, ``n_clusters`` and ``n_missing``: of the starts, those
        where a side has scores and none is valid. They count against the seeker in ``ci_low`` and
        for it in ``ci_high``.

    Raises
    ------
    TurnsError
        If a probe has no score at a start with a real supporter.

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
    is_valid = scores["state"] == "valid" if "state" in scores else scores["score"].notna()
    rows = []
    for rater, own in scores.assign(score=scores["score"].where(is_valid)).groupby("rater"):
        is_probe = own["responder"].isin(list(probes))
        real = own[~is_probe].groupby(cluster)["score"].mean()
        for probe in probes:
            theirs = own[own["responder"] == probe].groupby(cluster)["score"].mean()
            both = pd.concat([theirs, real], axis=1, join="inner", keys=["probe", "real"])
            known = both.notna().all(axis=1)
            if known.sum() < 2:
                raise TurnsError(
                    f"{probe} and a real supporter share {known.sum()} starts with {rater};"
                    " expected two or more."
                )
            won = (both["real"] - both["probe"]).map(np.sign).add(1.0).div(2.0)
            interval = _share_row(won, both.index.to_series(), ci_level)
            rows.append({"rater": rater, "probe": probe, **interval})
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
        ``responder``, ``rater``, ``score`` and the cluster; and ``history_id``, the start, where
        several starts are of one dialogue.
    seekers : sequence of str
        Raters that scored their own conversations; all others are outside.
    cluster : str
        The start.
    ci_level : float
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a seeker: ``rater``, ``value`` (of pairs of conversations from one start that the
        outside raters tell apart, the share in which the seeker prefers the same, a tie of its own
        half), ``ci_low``, ``ci_high``, ``ci_level``, ``n`` pairs, ``n_clusters``, and
        ``names_alone``: how often the responders' names, ordered by outside scores at other starts,
        agree with the outside raters, where they say something.

    Raises
    ------
    TurnsError
        If the seeker and outside raters both tell conversations apart at fewer than two starts.

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
    start = "history_id" if "history_id" in valid else cluster
    keys = [*dict.fromkeys(["reply_id", "responder", start, cluster])]
    outside = valid[~is_own].groupby(keys)["score"].mean().rename("outside")
    rows = []
    for rater in seekers:
        own = valid[valid["rater"] == rater].groupby(keys)["score"].mean().rename("own")
        both = pd.concat([own, outside], axis=1).dropna().reset_index()
        pairs = _pairs(both, start, cluster)
        decided = pairs[pairs["outside"] != 0]
        n_starts = decided.loc[decided["own"] != 0, cluster].nunique()
        if n_starts < 2:
            raise TurnsError(
                f"{rater} and outside raters both tell conversations apart at {n_starts} starts;"
                " expected two or more."
            )
        agreed = (decided["own"] * decided["outside"] + 1.0) / 2.0
        names = pairs[(pairs["names"] != 0) & (pairs["outside"] != 0)]
        alone = float((names["names"] == names["outside"]).mean()) if len(names) else np.nan
        interval = mean_row(agreed, decided[cluster], ci_level, ends=(0.0, 1.0))
        rows.append({"rater": rater, **interval, "names_alone": alone})
    return pd.DataFrame(rows)


def _share_row(values: pd.Series, cluster: pd.Series, ci_level: float) -> dict[str, Any]:
    """Average values from 0 to 1; missing ones are 0 for the low end and 1 for the high end."""
    row, most = (
        mean_row(values.fillna(filled), cluster, ci_level, ends=(0.0, 1.0)) for filled in (0.0, 1.0)
    )
    bounds = {"value": float(values.mean()), "ci_high": most["ci_high"]}
    return row | bounds | {"n_missing": int(values.isna().sum())}


def _pairs(both: pd.DataFrame, start: str, cluster: str) -> pd.DataFrame:
    """List pairs of conversations from one start, and who leads by each account."""
    by_name = both.groupby("responder")["outside"]
    here = both.groupby(["responder", cluster])["outside"]
    # What the names say: the mean of the responder over all other starts.
    rest = by_name.transform("sum") - here.transform("sum")
    n_rest = by_name.transform("count") - here.transform("count")
    rows = both.assign(names=rest / n_rest.where(n_rest > 0), place=np.arange(len(both)))
    pairs = rows.merge(rows, on=start, suffixes=("", "_other"))
    pairs = pairs[
        (pairs["place"] < pairs["place_other"]) & (pairs["responder"] != pairs["responder_other"])
    ]
    leads = {
        name: np.sign((pairs[name] - pairs[f"{name}_other"]).to_numpy(dtype=float))
        for name in ("own", "outside", "names")
    }
    return pairs[[cluster]].assign(**leads).fillna({"names": 0.0})


def seeker_card(
    seeker: str,
    *,
    simulated: pd.DataFrame | None = None,
    real: pd.DataFrame | None = None,
    guesses: pd.DataFrame | None = None,
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
    guesses : pandas.DataFrame, optional
        As in :func:`told_by_raters`.
    adversarial : pandas.DataFrame, optional
        Codes of this seeker's turns in conversations from adversarial starts: ``conversation_id``
        (by default each dialogue is one), ``exchange``, ``dialogue_id``, ``coder`` and
        ``probability`` that the turn is adversarial, by one coder; missing where it has no code.
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
        One row a check: ``seeker``, ``check``, ``of`` (a probe, the exchanges reached, who coded),
        ``value``, ``ci_low``, ``ci_high``, ``ci_level``, ``n``, ``n_clusters``, ``limit``,
        ``outcome``: ``"passed"`` or ``"failed"`` where the whole interval lies on one side of the
        limit, ``"open"`` where it does not, ``"not checked"``; and ``note``, what is missing or
        left out.

    Raises
    ------
    TurnsError
        If the codes of adversarial turns are by several coders.

    Notes
    -----
    A passed card does not make a seeker a person: nobody has been helped. "Stays adversarial" is
    as good as its coder, whose agreement with people should be known. Each conversation's own last
    turn decides, so a seeker that gives up and ends early fails; if no conversation went beyond its
    first exchange, nothing passes.

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
    >>> card.set_index("check").loc["probe loses", "outcome"]
    'passed'
    """
    checks: list[dict[str, Any]] = []

    def add(check: str, of: str, row: Mapping[Any, Any] | None, note: str = "") -> None:
        limit, side = limits[check]
        about = {"seeker": seeker, "check": check, "of": of, "limit": f"{side} {limit:g}"}
        if row is None or np.isnan(row["ci_low"]):
            few = "one start or dialogue has no interval" if row is not None else note
            checks.append(about | {"outcome": "not checked", "note": few})
            return
        kept = ("value", "ci_low", "ci_high", "ci_level", "n", "n_clusters")
        ends = sorted([row["ci_low"], row["ci_high"]], reverse=side == "at most")
        good = [end <= limit if side == "at most" else end >= limit for end in ends]
        outcome = "passed" if all(good) else "open" if any(good) else "failed"
        if outcome == "passed" and row.get("too_short"):
            outcome, note = "open", "no conversation went beyond its first exchange"
        if row.get("n_missing"):
            note = f"{row['n_missing']} of {row['n']} are missing, and count at either end"
        if row.get("n_left_out"):
            note = f"{row['n_left_out']} who scored one kind only, or all turns alike, are left out"
        checks.append(
            about | {name: row[name] for name in kept} | {"outcome": outcome, "note": note}
        )

    def attempt(check: str, of: str, measure: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        try:
            for part, row in measure():
                add(check, part, row)
        except TurnsError as error:
            add(check, of, None, str(error))

    if simulated is not None and real is not None:
        attempt(
            TOLD_APART,
            "classifier",
            lambda: [("classifier", tell_from_real(simulated, real, ci_level=ci_level))],
        )
    else:
        add(TOLD_APART, "classifier", None, "no turns of people at the same places")
    if guesses is not None:
        attempt(
            TOLD_APART, "raters", lambda: [("raters", told_by_raters(guesses, ci_level=ci_level))]
        )
    else:
        add(TOLD_APART, "raters", None, "no guesses of raters")
    if adversarial is not None and len(adversarial):
        coders = sorted(set(adversarial["coder"].dropna()))
        if len(coders) > 1:
            raise TurnsError(f"Codes of {', '.join(coders)} came; expected one coder.")
        attempt(STAYS, "".join(coders), partial(_stayed, adversarial, ci_level))
    else:
        add(STAYS, "", None, "no coded turns from adversarial starts")
    own = None if scores is None else scores[scores["rater"] == seeker]
    if own is None or own.empty:
        add("probe loses", "", None, "no scores by the seeker itself")
        add("agrees with outside raters", "", None, "no scores by the seeker itself")
        return _as_card(checks)
    for probe in probes:
        attempt("probe loses", probe, partial(_lost, own, probe, ci_level))
    if not len(probes):
        add("probe loses", "", None, "no probe among the supporters")
    if scores is not None and (scores["rater"] != seeker).any():
        real_ones = scores[~scores["responder"].isin(list(probes))]
        attempt("agrees with outside raters", "", partial(_agreed, real_ones, seeker, ci_level))
    else:
        add("agrees with outside raters", "", None, "no scores by outside raters")
    return _as_card(checks)


def _stayed(turns: pd.DataFrame, ci_level: float) -> list[tuple[str, Any]]:
    """Read each conversation's own last turn, and name the exchanges that they reached."""
    conversation = "conversation_id" if "conversation_id" in turns else "dialogue_id"
    need_columns(turns, [conversation, "exchange", "dialogue_id", "probability"], TurnsError)
    again = turns[turns.duplicated([conversation, "exchange"])]
    if len(again):
        raise TurnsError(
            f"{conversation} {again[conversation].iloc[0]} has several codes of exchange"
            f" {again['exchange'].iloc[0]}; expected one a turn, with conversation_id."
        )
    last = turns.sort_values("exchange").groupby(conversation).tail(1)
    if last["probability"].isna().all():
        raise TurnsError(f"none of {len(last)} conversations has a code of the seeker's last turn")
    least, most = int(last["exchange"].min()), int(last["exchange"].max())
    reached = f"exchange {most}" if least == most else f"exchanges {least} to {most}"
    row = _share_row(last["probability"], last["dialogue_id"], ci_level)
    coder = turns["coder"].dropna().iloc[0]
    return [(f"{reached}, coded by {coder}", row | {"too_short": most < 2})]


def _lost(own: pd.DataFrame, probe: str, ci_level: float) -> list[tuple[str, Any]]:
    lost = probes_lose(own, [probe], ci_level=ci_level)
    return [(probe, row) for row in lost.to_dict("records")]


def _agreed(scores: pd.DataFrame, seeker: str, ci_level: float) -> list[tuple[str, Any]]:
    [row] = agree_with_outside(scores, [seeker], ci_level=ci_level).to_dict("records")
    return [(f"names alone {row['names_alone']:.2f}", row)]


def _as_card(checks: list[dict[str, Any]]) -> pd.DataFrame:
    columns = ["seeker", "check", "of", "value", "ci_low", "ci_high", "ci_level", "n", "n_clusters"]
    return pd.DataFrame(checks).reindex(columns=[*columns, "limit", "outcome", "note"])


def describe_seekers(cards: pd.DataFrame) -> pd.DataFrame:
    """Describe in words what each seeker's report card shows.

    *Not to be trusted*: a check failed. *Passed these checks*: each check passed in all that was
    tried, and none is missing. *Not checked*: nothing was. All else is *not shown to be
    trustworthy*.

    Parameters
    ----------
    cards : pandas.DataFrame
        Of one or more seekers, from :func:`seeker_card`.

    Returns
    -------
    pandas.DataFrame
        One row a seeker: ``seeker``, ``finding`` (those words) and ``reasons``: what failed, is
        open and was not checked.

    Raises
    ------
    TurnsError
        If a column is missing.

    Examples
    --------
    >>> describe_seekers(seeker_card("s"))[["seeker", "finding"]].values.tolist()
    [['s', 'not checked']]
    """
    need_columns(cards, ["seeker", "check", "of", "outcome"], TurnsError)
    rows = []
    for seeker, card in cards.groupby("seeker", sort=True):
        made = card.groupby("check")["outcome"].transform(
            lambda outcomes: (outcomes != "not checked").any()
        )
        counted = card[(card["outcome"] != "not checked") | ~made]  # told one way is enough
        names: dict[str, list[str]] = {}
        for word in ("failed", "open", "not checked"):
            its = counted[counted["outcome"] == word]
            names[word] = [
                f"{check} ({of})" if of and word != "not checked" else check
                for check, of in its[["check", "of"]].itertuples(index=False)
            ]
        reasons = [
            f"{word}: {', '.join(dict.fromkeys(checks))}"
            for word, checks in names.items()
            if checks
        ]
        if names["failed"]:
            finding = "not to be trusted"
        elif not reasons:
            finding = "passed these checks"
        elif len(names["not checked"]) == len(counted):
            finding, reasons = "not checked", []
        else:
            finding = "not shown to be trustworthy"
        rows.append({"seeker": seeker, "finding": finding, "reasons": "; ".join(reasons)})
    return pd.DataFrame(rows, columns=["seeker", "finding", "reasons"])


def say_findings(cards: pd.DataFrame) -> str:
    """Write what each card shows, one after the other."""
    return "; ".join(
        f"{seeker}: {finding}" + (f" ({reasons})" if reasons else "")
        for seeker, finding, reasons in describe_seekers(cards).itertuples(index=False)
    )


def seekers_in_words(population: str, cards: pd.DataFrame | None) -> str:
    """Write what is known of the seekers behind a leaderboard; empty where none was played."""
    if population not in PLAYED:
        return ""
    if cards is None or cards.empty:
        return f"Seekers not checked: {NO_CARD}"
    return f"Report cards of the simulated seekers: {say_findings(cards)}"


def fault_of_seekers(population: str, cards: pd.DataFrame | None) -> str:
    """Describe what forbids to trust a leaderboard of conversations; empty where nothing does."""
    if population not in PLAYED:
        return ""
    if cards is None or cards.empty:
        return NO_CARD
    findings = describe_seekers(cards)
    bad = findings[findings["finding"].isin(["not to be trusted", "not checked"])]
    if bad.empty:
        return ""
    faults = "; ".join(f"{row.seeker} is {row.finding}" for row in bad.itertuples())
    return f"{faults}: the ratings may be of the seeker and not of the supporters"
