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

from heart_utils.ratings.resampling import bootstrap_ci
from heart_utils.replies.codes import CodesError
from heart_utils.tables import need_columns

__all__ = [
    "CoderScores",
    "StrategyCoder",
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
