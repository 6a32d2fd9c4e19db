"""Whole conversations: what changes by turn, how they stop, and checks of simulated seekers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import (
    Rng,
    clustered_error,
    error_ends,
    ratio,
    share_ci,
    sums_by,
)
from heart_utils.ratings.verdicts import Array, Codes
from heart_utils.settings import extra
from heart_utils.tables import need_columns

__all__ = [
    "TurnsError",
    "describe_seekers",
    "drift_by_turn",
    "path_by_turn",
    "split_turns",
    "stopping_paths",
]


class TurnsError(ValueError):
    """A table does not hold conversations, turns or values by turn."""


def split_turns(conversations: pd.DataFrame) -> pd.DataFrame:
    """List the turns of conversations, one row a turn, without those of the start.

    Parameters
    ----------
    conversations
        The table of conversations; ``slice`` and ``repeat`` are taken along.

    Returns
    -------
    pandas.DataFrame
        The conversation's columns, ``exchange`` (1 for the supporter's first turn and the seeker's
        answer), ``speaker``, ``text``, and ``reply_id``.

    Raises
    ------
    TurnsError
        If a conversation does not begin with the supporter.

    Examples
    --------
    >>> turns = [{"speaker": "supporter", "text": "Hi."}, {"speaker": "seeker", "text": "Hello."}]
    >>> names = {"conversation_id": "c", "dialogue_id": "d", "responder": "m", "seeker": "s"}
    >>> split_turns(pd.DataFrame([names | {"turns": turns}]))["exchange"].tolist()
    [1, 1]
    """
    names = ["conversation_id", "dialogue_id", "responder", "seeker"]
    need_columns(conversations, [*names, "turns"], TurnsError)
    names += [name for name in ("slice", "repeat") if name in conversations]
    rows = []
    for about, turns in zip(
        conversations[names].to_dict("records"), conversations["turns"], strict=True
    ):
        exchange = 0
        for number, turn in enumerate(turns, 1):
            exchange += turn["speaker"] == "supporter"
            if not exchange:
                raise TurnsError(
                    f"{about['conversation_id']} begins with the seeker; expected the supporter's"
                    " turn after the start."
                )
            turn_id = f"{about['conversation_id']}--t{number:03d}"
            rows.append([*about.values(), exchange, turn["speaker"], turn["text"], turn_id])
    return pd.DataFrame(rows, columns=[*names, "exchange", "speaker", "text", "reply_id"])


def path_by_turn(
    table: pd.DataFrame,
    value: str,
    *,
    by: Sequence[str] = ("responder",),
    step: str = "exchange",
    ends: tuple[float, float] | None = None,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Average a value by exchange over those still talking, with an interval over starts.

    If conversations that go badly stop early, the path rises though none did: read it beside
    :func:`stopping_paths`.

    Parameters
    ----------
    table
        One row a turn, with ``dialogue_id``, the start.
    value
        The column to average; missing values are left out.
    by
        What gets a path of its own.
    step
        Number of the exchange.
    ends
        The least and the most a value can be, such as ``(0, 1)``.
    ci_level
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a path and step: columns of `by`, `step`, ``value``, ``ci_low``, ``ci_high``,
        ``ci_level``, ``n``, ``n_clusters``.

    Raises
    ------
    TurnsError
        If a value lies outside `ends`.

    Examples
    --------
    >>> rows = {"exchange": [1, 2] * 3, "warm": [1, 0, 1, 1, 1, 1], "dialogue_id": list("aabbcc")}
    >>> path_by_turn(pd.DataFrame(rows).assign(responder="m"), "warm")["value"].round(2).tolist()
    [1.0, 0.67]
    """
    need_columns(table, [value, step, "dialogue_id", *by], TurnsError)
    rows = []
    kept = table.dropna(subset=value)
    if ends is not None and not kept[value].between(*ends).all():
        outside = kept.loc[~kept[value].between(*ends), value].iloc[0]
        raise TurnsError(f"{value} is {outside:g}; ends say {ends[0]:g} to {ends[1]:g}.")
    for names, part in kept.groupby([*by, step], sort=True):
        mean = mean_row(part[value], part["dialogue_id"], ci_level, ends=ends)
        rows.append({**dict(zip([*by, step], names, strict=True)), **mean})
    return pd.DataFrame(rows)


def mean_row(
    values: pd.Series,
    cluster: pd.Series,
    ci_level: float,
    *,
    ends: tuple[float, float] | None = None,
    rng: Rng = None,
) -> dict[str, Any]:
    """Average values, with an interval over clusters, as one row of a table.

    With the `ends` of the scale the interval holds where all values are equal too.
    """
    values = values.astype(float)
    n_clusters = cluster.nunique()
    low = high = np.nan
    if ends is not None and n_clusters > 1:
        least, most = ends
        unit = (values - least) / (most - least)
        interval = share_ci(unit, 1.0, cluster=cluster, ci_level=ci_level, rng=rng)
        low, high = (least + (most - least) * end for end in (interval.ci_low, interval.ci_high))
    elif n_clusters > 1 and values.min() < values.max():
        influence = np.asarray((values - values.mean()) / len(values), dtype=float)
        error, even = clustered_error(influence, np.ones(len(values)), pd.factorize(cluster)[0])
        low, high = map(float, error_ends(values.mean(), error, even, ci_level))
    return {
        "value": float(values.mean()),
        "ci_low": low,
        "ci_high": high,
        "ci_level": ci_level,
        "n": len(values),
        "n_clusters": n_clusters,
    }


def drift_by_turn(
    table: pd.DataFrame,
    value: str,
    *,
    by: Sequence[str] = ("responder",),
    step: str = "exchange",
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Estimate how a value changes from one exchange to the next, where conversations may stop.

    The second row of a group is a linear increments model [1]_: a change is regressed on the value
    and on the mean of the conversation so far, so stops may depend on values up to then.

    Parameters
    ----------
    table, value
        As in :func:`path_by_turn`, with ``conversation_id``.
    by
        What gets a change of its own.
    step
        Number of the exchange.
    ci_level
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        Three rows a group. ``of`` says which: the mean change of ``"those still talking"``, the
        mean change a turn of ``"all, had none stopped"``, and the least-squares slope ``"within
        conversations"``. Then ``change``, ``se``, ``ci_low``, ``ci_high``, ``ci_level``,
        ``n_conversations``, ``n_changes`` and ``n_clusters``, starts.

    Raises
    ------
    TurnsError
        If a conversation has an exchange twice, or none has two.

    References
    ----------
    .. [1] Diggle, Farewell and Henderson (2007), https://doi.org/10.1111/j.1467-9876.2007.00590.x;
       Aalen and Gunnes (2010), https://doi.org/10.1093/biostatistics/kxq014

    Examples
    --------
    >>> rows = {"exchange": [1, 2] * 3, "warm": [3, 2, 5, 4, 4, 4], "responder": "m"}
    >>> table = pd.DataFrame(rows).assign(dialogue_id=list("aabbcc"))
    >>> table["conversation_id"] = table["dialogue_id"]
    >>> drift_by_turn(table, "warm")["change"].round(2).tolist()
    [-0.67, -0.67, -0.67]
    """
    need_columns(table, [value, step, "conversation_id", "dialogue_id", *by], TurnsError)
    turns = _add_changes(table, value, [*by, "conversation_id"], step)
    rows = []
    for names, part in turns.groupby(list(by), sort=True):
        changes = part.dropna(subset="change")
        code = pd.factorize(part["dialogue_id"])[0]
        n_clusters = changes["dialogue_id"].nunique()
        about = dict(zip(by, names, strict=True))
        counts = {
            "n_conversations": part["conversation_id"].nunique(),
            "n_changes": len(changes),
            "n_clusters": n_clusters,
        }
        estimates = {
            "those still talking": _mean_change(part, code, n_clusters),
            "all, had none stopped": _none_stopped(part, value, step, code, n_clusters),
            "within conversations": _slope_within(part, value, step, code),
        }
        for of, (change, se, even) in estimates.items():
            if n_clusters < 2 or not se > 1e-9 * part[value].std():
                se = np.nan
            low, high = map(float, error_ends(change, se, even, ci_level))
            known = {"change": change if len(changes) else np.nan, "se": se}
            ends = {"ci_low": low, "ci_high": high, "ci_level": ci_level}
            rows.append({**about, "of": of, **known, **ends, **counts})
    return pd.DataFrame(rows)


Estimate = tuple[float, float, float]  # value, standard error, and starts for the quantile of t


def _add_changes(
    table: pd.DataFrame, value: str, conversation: list[str], step: str
) -> pd.DataFrame:
    turns = table.dropna(subset=value).sort_values([*conversation, step])
    if (twice := turns.duplicated([*conversation, step])).any():
        row = turns.loc[twice, [*conversation, step]].iloc[0].to_dict()
        raise TurnsError(
            f"{row} has more than one {value!r}; expected one a conversation and {step}. Average"
            " them, or keep one speaker or rater."
        )
    turns = turns.astype({value: float, step: float})
    inside = turns.groupby(conversation)
    following = inside[step].shift(-1) == turns[step] + 1
    if not following.any():
        raise TurnsError(
            f"No conversation has {value!r} in two exchanges that follow one another, so nothing"
            " changes from one to the next; expected some that do."
        )
    change = (inside[value].shift(-1) - turns[value]).where(following)
    return turns.assign(change=change, so_far=inside[value].cumsum() / (inside.cumcount() + 1))


def _mean_change(part: pd.DataFrame, code: Codes, n_clusters: int) -> Estimate:
    is_known = part["change"].notna().to_numpy()
    change = part["change"].to_numpy()[is_known]
    mean = float(change.mean()) if len(change) else np.nan
    influence = (change - mean) / max(len(change), 1)
    se, _ = clustered_error(influence, np.ones(len(change)), code[is_known])
    return mean, se, n_clusters


def _none_stopped(
    part: pd.DataFrame, value: str, step: str, code: Codes, n_clusters: int
) -> Estimate:
    first, last = part[step].min(), part[step].max()
    begins = (part[step] == first).to_numpy(dtype=float)
    known = part["change"].notna().to_numpy(dtype=float)
    change = part["change"].fillna(0.0).to_numpy()
    design = np.column_stack([np.ones(len(part)), part[value], part["so_far"]])
    weighted = design * known[:, None]
    n_starts = code.max() + 1
    squares = sums_by(code, weighted[:, :, None] * design[:, None, :], n_starts)
    products = sums_by(code, weighted * change[:, None], n_starts)
    starts = sums_by(code, begins[:, None] * design[:, :2], n_starts)
    # The first row has all starts, each other row lacks one.
    squares, products, starts = (
        np.concatenate([sums.sum(0)[None], sums.sum(0) - sums])
        for sums in (squares, products, starts)
    )
    constant, own, before = np.einsum("nij,nj->in", np.linalg.pinv(squares), products)
    path = [ratio(starts[:, 1], starts[:, 0])]
    for _ in range(int(last - first)):
        path.append(path[-1] + constant + own * path[-1] + before * np.mean(path, axis=0))
    drift = (path[-1] - path[0]) / max(last - first, 1.0)
    se = np.sqrt((n_starts - 1) / n_starts * ((drift[1:] - drift[0]) ** 2).sum())
    return float(drift[0]), float(se), n_clusters


def _slope_within(part: pd.DataFrame, value: str, step: str, code: Codes) -> Estimate:
    inside = part.groupby("conversation_id")
    x = (part[step] - inside[step].transform("mean")).to_numpy()
    y = (part[value] - inside[value].transform("mean")).to_numpy()
    squares = float(x @ x)
    slope = float(x @ y) / squares if squares else np.nan
    return slope, *clustered_error(x * (y - slope * x) / (squares or 1.0), x**2, code)


def stopping_paths(
    ended: pd.DataFrame,
    *,
    how: str = "stop_reason",
    step: str = "n_exchanges",
    by: Sequence[str] = ("responder",),
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    """Count how many conversations have stopped after each exchange, by how they stopped.

    Parameters
    ----------
    ended
        One row a conversation, with ``dialogue_id``, the start.
    how
        How it stopped; missing where it reached the planned length.
    step
        After how many exchanges it stopped.
    by
        What gets paths of its own.
    ci_level
        Level of the intervals.
    rng
        The source of chance.

    Returns
    -------
    pandas.DataFrame
        One row a group, way of stopping and step from 0 on: columns of `by`, `how`, `step`,
        ``share`` stopped so by then, ``ci_low``, ``ci_high``, ``ci_level``, ``n``, ``n_clusters``.

    Examples
    --------
    >>> ended = pd.DataFrame({"stop_reason": ["left", None, "left"], "n_exchanges": [1, 3, 2]})
    >>> paths = stopping_paths(ended.assign(responder="m", dialogue_id=list("abc")))
    >>> paths["share"].round(2).tolist()
    [0.0, 0.33, 0.67, 0.67]
    """
    need_columns(ended, [how, step, "dialogue_id", *by], TurnsError)
    ways = sorted(ended[how].dropna().unique())
    rows = []
    for names, part in ended.groupby(list(by), sort=True):
        about = dict(zip(by, names, strict=True))
        for way in ways:
            for k in range(int(ended[step].max()) + 1):
                stopped = (part[how] == way) & (part[step] <= k)
                share = mean_row(stopped, part["dialogue_id"], ci_level, ends=(0.0, 1.0), rng=rng)
                rows.append({**about, how: way, step: k, "share": share.pop("value"), **share})
    return pd.DataFrame(rows)


TOLD_APART = "told from real turns"
STAYS = "stays adversarial"
LOSES = "probe loses"
AGREES = "agrees with outside raters"
LIMITS: Mapping[str, tuple[float, str]] = {
    TOLD_APART: (0.75, "at most"),
    STAYS: (0.5, "at least"),
    LOSES: (0.5, "at least"),
    AGREES: (0.5, "at least"),
}
"""Check -> its limit and side. The first two are choices of this project, the others chance."""
FOLDS = 5
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
    ci_level: float = 0.95,
) -> dict[str, float]:
    """Measure how well a simple classifier tells a seeker's turns from turns that people wrote.

    Both tables hold ``text`` and ``dialogue_id``. ``value`` is the area under the curve (0.5: not
    told apart) of logistic regression on TF-IDF, cross-fitted over dialogues. Interval: Obuchowski
    (1997), https://doi.org/10.2307/2533958.
    """
    with extra("stats"):
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GroupKFold
        from sklearn.pipeline import make_pipeline, make_union

    for name, rows in (("simulated", simulated), ("real", real)):
        need_columns(rows, ["text", "dialogue_id"], TurnsError)
        if rows["dialogue_id"].nunique() < FOLDS or rows["text"].isna().any():
            raise TurnsError(
                f"{name}: {rows['dialogue_id'].nunique()} dialogues,"
                f" {int(rows['text'].isna().sum())} turns without text; expected {FOLDS} dialogues"
                " or more, and text in all."
            )
    texts = pd.concat([simulated["text"], real["text"]]).astype(str).to_numpy()
    groups = pd.factorize(pd.concat([simulated["dialogue_id"], real["dialogue_id"]]))[0]
    is_model = np.repeat([True, False], [len(simulated), len(real)])
    score, fold = np.empty(len(texts)), np.empty(len(texts), dtype=int)
    for number, (learn, test) in enumerate(
        GroupKFold(FOLDS, shuffle=True, random_state=0).split(texts, groups=groups)
    ):
        words = make_union(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True),
        )
        model = make_pipeline(words, LogisticRegression(max_iter=1_000))
        score[test] = model.fit(texts[learn], is_model[learn]).decision_function(texts[test])
        fold[test] = number
    return _area(score, is_model, fold, groups, ci_level)


def told_by_raters(guesses: pd.DataFrame, *, ci_level: float = 0.95) -> dict[str, float]:
    """Measure how well raters tell a seeker's turns from people's, as `tell_from_real`.

    `guesses`: ``rater``, ``dialogue_id``, ``is_model`` and ``score``, how much the rater takes it
    for a model's. Who gave all turns one score is left out.
    """
    need_columns(guesses, ["rater", "is_model", "score", "dialogue_id"], TurnsError)
    kept = guesses.dropna(subset="score")
    differs = kept.groupby("rater")[["is_model", "score"]].nunique().gt(1).all(axis=1)
    kept = kept[kept["rater"].isin(differs.index[differs])]
    if kept["dialogue_id"].nunique() < 2:
        raise TurnsError(
            f"{kept['dialogue_id'].nunique()} dialogues have turns that a rater of both kinds"
            " scored, not all alike; expected two or more."
        )
    rater, group = (pd.factorize(kept[column])[0] for column in ("rater", "dialogue_id"))
    is_model = kept["is_model"].to_numpy(dtype=bool)
    area = _area(kept["score"].to_numpy(dtype=float), is_model, rater, group, ci_level)
    return area | {"n_left_out": int((~differs).sum())}


def _area(score: Array, is_model: Any, fold: Any, groups: Any, ci_level: float) -> dict[str, float]:
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


def probe_loses(own: pd.DataFrame, probe: str, *, ci_level: float = 0.95) -> dict[str, Any]:
    """Count how often a probe in the supporter's place scores below all others.

    `own` holds one seeker's ``responder``, ``score``, ``dialogue_id`` and ``state``. ``value`` is
    the share of starts at which the probe is below the others' mean, a tie half; starts without a
    valid score (``n_missing``) count for and against.
    """
    need_columns(own, ["responder", "score", "dialogue_id"], TurnsError)
    is_valid = own["state"] == "valid" if "state" in own else own["score"].notna()
    valid = own.assign(score=own["score"].where(is_valid))
    is_probe = valid["responder"] == probe
    sides = [valid[side].groupby("dialogue_id")["score"].mean() for side in (is_probe, ~is_probe)]
    both = pd.concat(sides, axis=1, join="inner", keys=["probe", "real"])
    n_known = both.notna().all(axis=1).sum()
    if n_known < 2:
        raise TurnsError(
            f"{probe} and a real supporter share {n_known} starts; expected two or more."
        )
    won = (both["real"] - both["probe"]).map(np.sign).add(1.0).div(2.0)
    return _share_row(won, both.index.to_series(), ci_level)


def agree_with_outside(
    scores: pd.DataFrame, seeker: str, *, ci_level: float = 0.95
) -> dict[str, Any]:
    """Compare a seeker's own scores with those of outside raters of the same transcripts.

    ``value`` is the share of pairs from one start (``history_id`` or ``dialogue_id``) told apart
    outside in which the seeker prefers the same, a tie half; ``names_alone``, how often responders'
    names do, ordered by outside scores at other starts.
    """
    need_columns(scores, ["reply_id", "responder", "rater", "score", "dialogue_id"], TurnsError)
    valid = scores[scores["state"] == "valid"] if "state" in scores else scores
    start = "history_id" if "history_id" in valid else "dialogue_id"
    keys = [*dict.fromkeys(["reply_id", "responder", start, "dialogue_id"])]
    is_own = valid["rater"] == seeker
    own, outside = (
        valid[rows].groupby(keys)["score"].mean().rename(name)
        for rows, name in ((is_own, "own"), (~is_own, "outside"))
    )
    pairs = _pairs(pd.concat([own, outside], axis=1).dropna().reset_index(), start)
    decided = pairs[pairs["outside"] != 0]
    n_starts = decided.loc[decided["own"] != 0, "dialogue_id"].nunique()
    if n_starts < 2:
        raise TurnsError(
            f"{seeker} and outside raters both tell conversations apart at {n_starts} starts;"
            " expected two or more."
        )
    agreed = (decided["own"] * decided["outside"] + 1.0) / 2.0
    named = decided[decided["names"] != 0]
    interval = mean_row(agreed, decided["dialogue_id"], ci_level, ends=(0.0, 1.0))
    return interval | {"names_alone": float((named["names"] == named["outside"]).mean())}


def _share_row(values: pd.Series, cluster: pd.Series, ci_level: float) -> dict[str, Any]:
    """Average values from 0 to 1; missing ones are 0 at the low end, 1 at the high."""
    row, most = (
        mean_row(values.fillna(filled), cluster, ci_level, ends=(0.0, 1.0)) for filled in (0.0, 1.0)
    )
    bounds = {"value": float(values.mean()), "ci_high": most["ci_high"]}
    return row | bounds | {"n_missing": int(values.isna().sum())}


def _pairs(both: pd.DataFrame, start: str) -> pd.DataFrame:
    by_name = both.groupby("responder")["outside"]
    here = both.groupby(["responder", "dialogue_id"])["outside"]
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
    return pairs[["dialogue_id"]].assign(**leads).fillna({"names": 0.0})


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

    What is not given is not checked.

    Parameters
    ----------
    seeker
        Its name, as in ``rater`` and ``seeker``.
    simulated, real
        As in `tell_from_real`.
    guesses
        As in `told_by_raters`.
    adversarial
        One coder's codes of its turns from adversarial starts: ``conversation_id`` (default:
        ``dialogue_id``), ``exchange``, ``dialogue_id``, ``coder`` and ``probability`` that the turn
        is adversarial, or missing.
    scores
        As in `agree_with_outside`.
    probes
        Responders among the scores that are probes.
    limits
        Check -> limit, and ``"at most"`` or ``"at least"``.
    ci_level
        Level of the intervals.

    Returns
    -------
    pandas.DataFrame
        One row a check: ``seeker``, ``check``, ``of`` (a probe, the exchanges reached, who coded),
        ``value``, ``ci_low``, ``ci_high``, ``ci_level``, ``n``, ``n_clusters``, ``limit``,
        ``outcome`` (``"passed"`` or ``"failed"`` where the whole interval lies on one side of the
        limit, ``"open"``, or ``"not checked"``) and ``note``, what is missing.

    Raises
    ------
    TurnsError
        If adversarial turns are coded by several.
    """
    checks: list[dict[str, Any]] = []

    def add(
        check: str, of: str, missing: str, measure: Callable[..., dict[str, Any]], *given: Any
    ) -> None:
        limit, side = limits[check]
        about = {"seeker": seeker, "check": check, "of": of, "limit": f"{side} {limit:g}"}
        row: dict[str, Any] = about | {"outcome": "not checked", "note": missing}
        checks.append(row)
        if any(one is None for one in given):
            return
        try:
            found = measure(*given, ci_level=ci_level)
        except TurnsError as error:
            row["note"] = str(error)
            return
        row["of"] = found.get("of", of)
        if np.isnan(found["ci_low"]):
            row["note"] = "one start or dialogue has no interval"
            return
        ends = found["ci_low"], found["ci_high"]
        good = [end <= limit if side == "at most" else end >= limit for end in ends]
        row |= {**found, "of": row["of"], "note": ""}
        row["outcome"] = "passed" if all(good) else "open" if any(good) else "failed"
        if row["outcome"] == "passed" and found.get("too_short"):
            row["outcome"], row["note"] = "open", "no conversation went beyond its first exchange"
        if n_missing := found.get("n_missing"):
            row["note"] = f"{n_missing} of {found['n']} are missing, and count at either end"
        if n_out := found.get("n_left_out"):
            row["note"] = f"{n_out} who scored one kind only, or all turns alike, are left out"

    places = "no turns of people at the same places"
    add(TOLD_APART, "classifier", places, tell_from_real, simulated, real)
    add(TOLD_APART, "raters", "no guesses of raters", told_by_raters, guesses)
    coded = adversarial if adversarial is not None and len(adversarial) else None
    coders = [] if coded is None else sorted(set(coded["coder"].dropna()))
    if len(coders) > 1:
        raise TurnsError(f"Codes of {', '.join(coders)} came; expected one coder.")
    add(STAYS, "".join(coders), "no coded turns from adversarial starts", _stayed, coded)
    if scores is None or seeker not in set(scores["rater"]):
        without = "no scores by the seeker itself"
        add(LOSES, "", without, probe_loses, None)
        add(AGREES, "", without, _agreed, None)
        return _as_card(checks)
    is_probe = scores["responder"].isin(list(probes))
    for probe in probes:
        add(LOSES, probe, "", probe_loses, scores[scores["rater"] == seeker], probe)
    if not len(probes):
        add(LOSES, "", "no probe among the supporters", probe_loses, None)
    others = (scores["rater"] != seeker).any()
    real_ones = scores[~is_probe] if others else None
    add(AGREES, "", "no scores by outside raters", _agreed, real_ones, seeker)
    return _as_card(checks)


def _stayed(turns: pd.DataFrame, *, ci_level: float) -> dict[str, Any]:
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
    return row | {"of": f"{reached}, coded by {coder}", "too_short": most < 2}


def _agreed(scores: pd.DataFrame, seeker: str, *, ci_level: float) -> dict[str, Any]:
    found = agree_with_outside(scores, seeker, ci_level=ci_level)
    return found | {"of": f"names alone {found['names_alone']:.2f}"}


def _as_card(checks: list[dict[str, Any]]) -> pd.DataFrame:
    columns = ["seeker", "check", "of", "value", "ci_low", "ci_high", "ci_level", "n", "n_clusters"]
    return pd.DataFrame(checks).reindex(columns=[*columns, "limit", "outcome", "note"])


def describe_seekers(cards: pd.DataFrame) -> pd.DataFrame:
    """Describe in words what each seeker's report card shows.

    *Not to be trusted*: a check failed. *Passed these checks*: all did, and none is missing. *Not
    checked*: nothing was. All else is *not shown to be trustworthy*.

    Parameters
    ----------
    cards
        From one or more seekers.

    Returns
    -------
    pandas.DataFrame
        One row a seeker: ``seeker``, ``finding`` and ``reasons``: what failed, is open, was not
        checked.

    Raises
    ------
    TurnsError
        If a column is missing.

    Examples
    --------
    >>> card = {"seeker": "s", "check": "probe loses", "of": "echo", "outcome": "passed"}
    >>> describe_seekers(pd.DataFrame([card]))[["seeker", "finding"]].values.tolist()
    [['s', 'passed these checks']]
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
    """Write what each card shows."""
    return "; ".join(
        f"{seeker}: {finding}" + (f" ({reasons})" if reasons else "")
        for seeker, finding, reasons in describe_seekers(cards).itertuples(index=False)
    )


def seekers_in_words(population: str, cards: pd.DataFrame | None) -> str:
    """Write what is known of the seekers behind a leaderboard; empty if none."""
    if population not in PLAYED:
        return ""
    if cards is None or cards.empty:
        return f"Seekers not checked: {NO_CARD}"
    return f"Report cards of the simulated seekers: {say_findings(cards)}"


def fault_of_seekers(population: str, cards: pd.DataFrame | None) -> str:
    """Describe what forbids to trust a leaderboard of conversations, if anything."""
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
