"""A coder that learned ESConv's eight strategies from people's own labels, and how well it does.

Linear support vectors on words and word pairs, with a mark for where a turn begins and ends: no
network, no graphics card, seconds. Its label is the class with the largest margin, which serves rare
strategies too; its probabilities are calibrated on turns it did not learn from, and serve shares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heart_utils.ratings.regression import author_columns, fit_logistic
from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, bootstrap_ci, share_ci
from heart_utils.ratings.verdicts import won_by_a
from heart_utils.replies.codes import CodesError
from heart_utils.tables import need_columns

__all__ = [
    "CoderScores",
    "StrategyCoder",
    "associate_coders",
    "profile_codes",
    "score_labels",
    "train_coder",
]

Array = NDArray[np.float64]

LONGEST = 3
"""Words in a row that make a feature, chosen on ESConv's validation split among 2 and 3."""
PENALTY = 0.15
TOKEN = re.compile(r"\w+(?:'\w+)?|[?!.,]")


@dataclass(frozen=True, eq=False)
class StrategyCoder:
    """A trained coder: two pipelines of scikit-learn, of which the second, for probabilities, goes on from the first."""

    strategies: tuple[str, ...]  # what it tells apart
    n_turns: int  # turns that it learned from, and on which its probabilities were calibrated
    n_calibration: int
    _margins: Any
    _scale: Any

    def label(self, texts: pd.Series) -> pd.Series:
        """Give each text the strategy with the largest margin."""
        return pd.Series(self._margins.predict(texts), index=texts.index, dtype="str")

    def probabilities(self, texts: pd.Series) -> pd.DataFrame:
        """Give each text a probability for each strategy; a row sums to 1."""
        chances = self._scale.predict_proba(_margins_of(self._margins, texts)) if len(texts) else None
        return pd.DataFrame(chances, index=texts.index, columns=list(self._scale.classes_), dtype=float)

    def code(self, replies: pd.DataFrame, *, coder: str = "learned-on-esconv") -> pd.DataFrame:
        """Code replies."""
        valid = replies["state"] == "valid"
        chances = self.probabilities(replies.loc[valid, "text"]).clip(0.0, 1.0).reindex(replies.index)
        about = ["reply_id", "state", "simulated"]
        long = replies[about].join(chances).melt(about, var_name="code", value_name="probability")
        return long.assign(coder=coder)[["reply_id", "coder", "code", "probability", "state", "simulated"]]


def train_coder(turns: pd.DataFrame, calibration: pd.DataFrame) -> StrategyCoder:
    """Train a coder on labelled turns.

    Parameters
    ----------
    turns, calibration : pandas.DataFrame
        Columns ``dialogue_id``, ``text`` and ``strategy``: what is learned from, and turns of other
        dialogues on which probabilities are calibrated.

    Returns
    -------
    StrategyCoder

    Raises
    ------
    CodesError
        If the two share a dialogue, a column is missing, or a strategy of one is absent from the other.

    Examples
    --------
    >>> turns = pd.DataFrame({"dialogue_id": ["d", "e"] * 4, "text": ["Why is that?", "Try to rest."] * 4,
    ...     "strategy": ["question", "providing_suggestions"] * 4})
    >>> coder = train_coder(turns, turns.replace({"d": "f", "e": "g"}))
    >>> coder.label(pd.Series(["And why?"])).tolist()
    ['question']
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    for table in (turns, calibration):
        need_columns(table, ["dialogue_id", "text", "strategy"], CodesError)
    shared = set(turns["dialogue_id"]) & set(calibration["dialogue_id"])
    if shared:
        raise CodesError(f"{len(shared)} dialogues, such as {min(shared)!r}, stand on both sides; split by dialogue.")
    apart = set(turns["strategy"]) ^ set(calibration["strategy"])
    if apart:
        raise CodesError(f"Strategies {', '.join(sorted(apart))} stand on one side only; both need all of them.")
    words = TfidfVectorizer(
        tokenizer=_tokens, token_pattern=None, lowercase=False, ngram_range=(1, LONGEST), min_df=2, sublinear_tf=True
    )
    margins = make_pipeline(words, LinearSVC(C=PENALTY, class_weight="balanced", random_state=0))
    margins.fit(turns["text"], turns["strategy"])
    scale = LogisticRegression(C=10.0, max_iter=1_000)
    scale.fit(_margins_of(margins, calibration["text"]), calibration["strategy"])
    return StrategyCoder(tuple(map(str, margins.classes_)), len(turns), len(calibration), _margins=margins, _scale=scale)


@dataclass(frozen=True, eq=False)
class CoderScores:
    """How labels of a coder compare with others taken as right."""

    # rows ``accuracy`` and ``macro_f1``: ``estimate``, ``ci_low``, ``ci_high``, ``ci_level``, ``n_clusters``.
    table: pd.DataFrame
    # one row a strategy: ``n`` (given), ``n_found``, ``precision``, ``recall``, ``f1``, ``ci_low``, ``ci_high`` (of f1).
    by_strategy: pd.DataFrame
    confusion: pd.DataFrame  # counts: a row for each strategy given, a column for each found


def score_labels(
    labels: pd.DataFrame,
    *,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> CoderScores:
    r"""Score one coder's labels against given ones.

    F1 of a strategy is :math:`2tp / (2tp + fp + fn)`; macro-F1 is its mean over the strategies that
    were given at least once, each counting the same however rare.

    Parameters
    ----------
    labels : pandas.DataFrame
        One row a turn: ``given``, ``found`` and ``dialogue_id``, which is resampled.
    n_resamples, ci_level, rng
        Of the bootstrap.

    Returns
    -------
    CoderScores
        In a resample without some strategy, macro-F1 is the mean over the others.

    Raises
    ------
    CodesError
        If there is no row, a label is absent, or a column is missing.

    Examples
    --------
    >>> labels = pd.DataFrame({"given": list("qqs"), "found": list("qss"), "dialogue_id": list("dde")})
    >>> scores = score_labels(labels, rng=np.random.default_rng(1), n_resamples=20)
    >>> scores.table["estimate"].round(3).to_dict()
    {'accuracy': 0.667, 'macro_f1': 0.667}
    """
    from sklearn.metrics import precision_recall_fscore_support

    need_columns(labels, ["given", "found", "dialogue_id"], CodesError)
    if labels.empty or labels[["given", "found"]].isna().to_numpy().any():
        raise CodesError("Each row needs a label given and a label found; there is none, or one is absent.")
    names = sorted(set(labels["given"]) | set(labels["found"]))
    counts = pd.DataFrame({f"{what}:{name}": labels[what] == name for what in ("given", "found") for name in names})
    counts = counts.assign(**{f"both:{name}": counts[f"given:{name}"] & counts[f"found:{name}"] for name in names})
    cells = counts.astype(float).assign(dialogue_id=labels["dialogue_id"])
    how: dict[str, Any] = {"cluster": "dialogue_id", "rng": rng, "n_resamples": n_resamples, "ci_level": ci_level, "least": 0.0}
    how["most"] = 1.0
    columns = ["estimate", "ci_low", "ci_high", "ci_level", "n_clusters"]
    found = {
        "accuracy": bootstrap_ci(cells, lambda sums: _total(sums, "both", names) / _total(sums, "given", names), **how),
        "macro_f1": bootstrap_ci(cells, lambda sums: _macro(sums, names), **how),
    }
    found |= {name: bootstrap_ci(cells, lambda sums, name=name: _f1(sums, name), **how) for name in names}  # type: ignore[misc]
    table = pd.DataFrame([[getattr(one, column) for column in columns] for one in found.values()], columns=columns)
    table.index = pd.Index(found, name="score")
    truth, said = labels["given"], labels["found"]
    precision, recall, _, n = precision_recall_fscore_support(truth, said, labels=names, zero_division=np.nan)
    of_each = table.loc[names, ["estimate", "ci_low", "ci_high"]].rename(columns={"estimate": "f1"}).reset_index(drop=True)
    n_found = [int(said.eq(name).sum()) for name in names]
    counts = pd.DataFrame({"strategy": names, "n": n, "n_found": n_found, "precision": precision, "recall": recall})
    of_each = counts.join(of_each)
    confusion = pd.crosstab(labels["given"], labels["found"]).reindex(index=names, columns=names, fill_value=0)
    return CoderScores(table.loc[["accuracy", "macro_f1"]], of_each, confusion)


def _margins_of(margins: Any, texts: pd.Series) -> Array:
    """Give the distances from the borders, one column for two classes, else one a class."""
    distances = np.asarray(margins.decision_function(texts))
    return distances.reshape(len(distances), -1)


def _tokens(text: str) -> list[str]:
    return ["<start>", *TOKEN.findall(text.lower().replace("’", "'")), "<end>"]


def _total(sums: pd.DataFrame, what: str, names: list[str]) -> pd.Series:
    return sums[[f"{what}:{name}" for name in names]].sum(axis="columns")


def _f1(sums: pd.DataFrame, name: str) -> pd.Series:
    given = sums[f"given:{name}"]
    return (2 * sums[f"both:{name}"] / (given + sums[f"found:{name}"])).where(given > 0)


def _macro(sums: pd.DataFrame, names: list[str]) -> pd.Series:
    return pd.DataFrame({name: _f1(sums, name) for name in names}).mean(axis="columns")


LEAST_CLUSTERS = 10


def profile_codes(
    codes: pd.DataFrame,
    *,
    by: str = "responder",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Give the share of replies in which each code holds, for each author or kind of author.

    Parameters
    ----------
    codes : pandas.DataFrame
        The codes table joined with `by` and ``dialogue_id`` for each reply. A probability counts as that part of a reply.
    by : str
        Whose profile.
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
        n_clusters = known["dialogue_id"].nunique()
        row = {by: name, "coder": coder, "code": code, "share": float(known["probability"].mean()), "n": len(known)}
        row |= {"ci_low": np.nan, "ci_high": np.nan, "ci_level": ci_level, "n_clusters": n_clusters}
        if n_clusters > 1:
            how: dict[str, Any] = {"rng": rng, "n_resamples": n_resamples, "ci_level": ci_level}
            found = share_ci(known["probability"], 1, cluster=known["dialogue_id"], **how)
            row |= {"ci_low": found.ci_low, "ci_high": found.ci_high}
        if set(known["probability"]) in ({0.0}, {1.0}):  # a bootstrap of equal values has no width
            open_end = ((1.0 - ci_level) / 2.0) ** (1.0 / n_clusters)
            row |= {"ci_low": 0.0, "ci_high": 1.0 - open_end} if row["share"] == 0 else {"ci_low": open_end, "ci_high": 1.0}
        rows.append(row | {"n_failed": len(mine) - len(known), "simulated": bool(mine["simulated"].any())})
    return pd.DataFrame(rows)


def associate_coders(
    verdicts: pd.DataFrame,
    codes: pd.DataFrame,
    words: pd.Series,
    *,
    dimension: str = "overall",
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Ask of each code whether the reply that has it is preferred, length and author held equal. Exploratory.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        With ``reply_a`` and ``reply_b``.
    codes : pandas.DataFrame
        Codes of any number of coders, named in ``coder``; one who coded nothing is left out.
    words : pandas.Series
        ``reply_id`` -> words of the reply.
    dimension, ci_level
        A line of the rubric, and the level of the intervals, which are over dialogues.

    Returns
    -------
    pandas.DataFrame
        One row a coder and code: ``log_odds`` of winning, with interval and p value, or ``why_not``. ``q_value`` (Benjamini
        and Hochberg) counts the codes of all coders.

    Raises
    ------
    CodesError
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
    rows = verdicts[(verdicts["dimension"] == dimension) & verdicts["state"].isin(["valid", "inconsistent"])]
    rows = rows.assign(won=won_by_a(rows)).dropna(subset=["won"])
    if rows.empty:
        raise CodesError(f"No verdict on {dimension!r} says which reply was preferred.")
    length = np.log(words.clip(lower=1))
    parts = []
    for coder, mine in codes.dropna(subset=["probability"]).groupby("coder"):
        wide = mine.pivot_table(index="reply_id", columns="code", values="probability", aggfunc="mean")
        found = [{"code": code} | _fit_one(rows, wide[code], length, ci_level) for code in wide]
        parts.append(pd.DataFrame(found).sort_values("p_value").assign(coder=coder))
    if not parts:
        raise CodesError("no reply is coded.")
    table = pd.concat(parts, ignore_index=True).assign(q_value=np.nan)
    tested = table["p_value"].notna()
    table.loc[tested, "q_value"] = stats.false_discovery_control(table.loc[tested, "p_value"])
    return table


def _fit_one(verdicts: pd.DataFrame, code: pd.Series, length: pd.Series, ci_level: float) -> dict[str, object]:
    """Fit one code, the length and the authors; say why where it cannot be."""
    sides = {side: verdicts[f"reply_{side}"].map(code) for side in "ab"}
    coded = sides["a"].notna() & sides["b"].notna()
    rows = verdicts[coded]
    apart = (sides["a"] - sides["b"])[coded].to_numpy()
    n_clusters = rows["dialogue_id"].nunique()
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
    design = np.column_stack([apart, longer, author_columns(rows)])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return said | {"why_not": "the authors, or the length, tell the code already"}
    fitted = fit_logistic(design, rows["won"].to_numpy(float), rows["dialogue_id"], ci_level)
    if fitted is None:
        return said | {"why_not": "it separates winners from losers, so its coefficient has no end"}
    mine = fitted.iloc[0]
    if mine["se"] == 0:
        return said | {"why_not": "nothing varies between dialogues"}
    return said | {"p_value": mine["p"]} | {name: mine[name] for name in ("log_odds", "ci_low", "ci_high")}
