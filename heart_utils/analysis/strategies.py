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

from heart_utils.analysis.resampling import bootstrap_ci

__all__ = [
    "CoderScores",
    "StrategyCoder",
    "StrategyError",
    "label_by_bayes",
    "score_labels",
    "several_in_a_row",
    "train_coder",
]

Array = NDArray[np.float64]

LONGEST = 3
"""Words in a row that make a feature, chosen on ESConv's validation split among 2 and 3."""
PENALTY = 0.15
TOKEN = re.compile(r"\w+(?:'\w+)?|[?!.,]")


class StrategyError(ValueError):
    """Turns or labels cannot be used as they stand."""


@dataclass(frozen=True, eq=False)
class StrategyCoder:
    """A trained coder.

    Attributes
    ----------
    strategies : tuple of str
        What it tells apart.
    n_turns, n_calibration : int
        Turns that it learned from, and on which its probabilities were calibrated.
    """

    strategies: tuple[str, ...]
    n_turns: int
    n_calibration: int
    _words: Any
    _margins: Any
    _scale: Any

    def label(self, texts: pd.Series) -> pd.Series:
        """Give each text the strategy with the largest margin.

        Parameters
        ----------
        texts : pandas.Series
            One turn a row.

        Returns
        -------
        pandas.Series
            One of ``strategies`` each, with the index of `texts`.
        """
        return pd.Series(self._margins.predict(self._words.transform(texts)), index=texts.index, dtype="str")

    def probabilities(self, texts: pd.Series) -> pd.DataFrame:
        """Give each text a probability for each strategy; a row sums to 1.

        Parameters
        ----------
        texts : pandas.Series
            One turn a row.

        Returns
        -------
        pandas.DataFrame
            The index of `texts`, a column a strategy.
        """
        if texts.empty:
            return pd.DataFrame(index=texts.index, columns=list(self._scale.classes_), dtype=float)
        chances = self._scale.predict_proba(_margins_of(self._margins, self._words.transform(texts)))
        return pd.DataFrame(chances, index=texts.index, columns=list(self._scale.classes_))

    def code(self, replies: pd.DataFrame, *, coder: str = "learned-on-esconv") -> pd.DataFrame:
        """Code replies.

        Parameters
        ----------
        replies : pandas.DataFrame
            The table of replies. A reply has one strategy here, as a turn of ESConv has; longer replies
            do several things at once, which this coder cannot say.
        coder : str
            Its name in the table.

        Returns
        -------
        pandas.DataFrame
            The table of codes: a row a reply and strategy. A reply that failed keeps its state and has no probability.
        """
        valid = replies["state"] == "valid"
        chances = self.probabilities(replies.loc[valid, "text"]).reindex(replies.index)
        long = chances.assign(reply_id=replies["reply_id"], state=replies["state"], simulated=replies["simulated"]).melt(
            id_vars=["reply_id", "state", "simulated"], var_name="code", value_name="probability"
        )
        long["probability"] = long["probability"].clip(0.0, 1.0)
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
    StrategyError
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
    from sklearn.svm import LinearSVC

    for table in (turns, calibration):
        _need(table, ["dialogue_id", "text", "strategy"])
    shared = set(turns["dialogue_id"]) & set(calibration["dialogue_id"])
    if shared:
        raise StrategyError(f"{len(shared)} dialogues, such as {min(shared)!r}, stand on both sides; split by dialogue.")
    apart = set(turns["strategy"]) ^ set(calibration["strategy"])
    if apart:
        raise StrategyError(f"Strategies {', '.join(sorted(apart))} stand on one side only; both need all of them.")
    words = TfidfVectorizer(
        tokenizer=_tokens, token_pattern=None, lowercase=False, ngram_range=(1, LONGEST), min_df=2, sublinear_tf=True
    )
    margins = LinearSVC(C=PENALTY, class_weight="balanced", random_state=0)
    margins.fit(words.fit_transform(turns["text"]), turns["strategy"])
    scale = LogisticRegression(C=10.0, max_iter=1_000)
    scale.fit(_margins_of(margins, words.transform(calibration["text"])), calibration["strategy"])
    return StrategyCoder(
        tuple(map(str, margins.classes_)), len(turns), len(calibration), _words=words, _margins=margins, _scale=scale
    )


@dataclass(frozen=True, eq=False)
class CoderScores:
    """How labels of a coder compare with others taken as right.

    Attributes
    ----------
    table : pandas.DataFrame
        Rows ``accuracy`` and ``macro_f1``: ``estimate``, ``ci_low``, ``ci_high``, ``ci_level``, ``n_clusters``.
    by_strategy : pandas.DataFrame
        One row a strategy: ``n`` (given), ``n_found``, ``precision``, ``recall``, ``f1``, ``ci_low``, ``ci_high`` (of f1).
    confusion : pandas.DataFrame
        Counts: a row for each strategy given, a column for each found.
    """

    table: pd.DataFrame
    by_strategy: pd.DataFrame
    confusion: pd.DataFrame


def score_labels(
    labels: pd.DataFrame,
    *,
    cluster: str = "dialogue_id",
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
        One row a turn: ``given``, ``found`` and the column `cluster`.
    cluster : str
        What is resampled together.
    n_resamples, ci_level, rng
        Of the bootstrap.

    Returns
    -------
    CoderScores
        In a resample without some strategy, macro-F1 is the mean over the others.

    Raises
    ------
    StrategyError
        If there is no row, a label is absent, or a column is missing.

    Examples
    --------
    >>> labels = pd.DataFrame({"given": list("qqs"), "found": list("qss"), "dialogue_id": list("dde")})
    >>> scores = score_labels(labels, rng=np.random.default_rng(1), n_resamples=20)
    >>> scores.table["estimate"].round(3).to_dict()
    {'accuracy': 0.667, 'macro_f1': 0.667}
    """
    _need(labels, ["given", "found", cluster])
    if labels.empty or labels[["given", "found"]].isna().to_numpy().any():
        raise StrategyError("Each row needs a label given and a label found; there is none, or one is absent.")
    names = sorted(set(labels["given"]) | set(labels["found"]))
    counts = pd.DataFrame({f"{what}:{name}": labels[what] == name for what in ("given", "found") for name in names})
    counts = counts.assign(**{f"both:{name}": counts[f"given:{name}"] & counts[f"found:{name}"] for name in names})
    cells = counts.astype(float).assign(**{cluster: labels[cluster]})
    how: dict[str, Any] = {"cluster": cluster, "rng": rng, "n_resamples": n_resamples, "ci_level": ci_level, "least": 0.0}
    how["most"] = 1.0
    rows = {
        "accuracy": bootstrap_ci(cells, lambda sums: _total(sums, "both", names) / _total(sums, "given", names), **how),
        "macro_f1": bootstrap_ci(cells, lambda sums: _macro(sums, names), **how),
    }
    table = pd.DataFrame(
        [
            {name: getattr(row, name) for name in ("estimate", "ci_low", "ci_high", "ci_level", "n_clusters")}
            for row in rows.values()
        ],
        index=pd.Index(rows, name="score"),
    )
    by_strategy = []
    for name in names:
        one = bootstrap_ci(cells, lambda sums, name=name: _f1(sums, name), **how)  # type: ignore[misc]
        given, found, both = (float(cells[f"{what}:{name}"].sum()) for what in ("given", "found", "both"))
        by_strategy.append(
            {
                "strategy": name,
                "n": int(given),
                "n_found": int(found),
                "precision": both / found if found else float("nan"),
                "recall": both / given if given else float("nan"),
                "f1": one.estimate,
                "ci_low": one.ci_low,
                "ci_high": one.ci_high,
            }
        )
    confusion = pd.crosstab(labels["given"], labels["found"]).reindex(index=names, columns=names, fill_value=0)
    return CoderScores(table, pd.DataFrame(by_strategy), confusion)


def label_by_bayes(turns: pd.DataFrame, texts: pd.Series) -> pd.Series:
    """Give each text a strategy by complement naive Bayes on words and word pairs: the simple coder to be beaten.

    Parameters
    ----------
    turns : pandas.DataFrame
        Columns ``text`` and ``strategy``; what it learns from.
    texts : pandas.Series
        One turn a row.

    Returns
    -------
    pandas.Series
        A strategy for each text, with its index.

    Examples
    --------
    >>> turns = pd.DataFrame({"text": ["how was it", "how are you", "try to rest", "try a walk"], "strategy": list("qqss")})
    >>> label_by_bayes(turns, pd.Series(["how is he", "try again"])).tolist()
    ['q', 's']
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.naive_bayes import ComplementNB
    from sklearn.pipeline import make_pipeline

    _need(turns, ["text", "strategy"])
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    coder = make_pipeline(words, ComplementNB()).fit(turns["text"], turns["strategy"])
    return pd.Series(coder.predict(texts), index=texts.index)


def several_in_a_row(turns: pd.DataFrame) -> pd.Series:
    """Say of each turn, joined from messages sent in a row, whether its messages carry more than one strategy.

    Parameters
    ----------
    turns : pandas.DataFrame
        One row a message, in order: ``turn_id`` (its last part counts the messages of both speakers), ``dialogue_id`` and
        ``strategy``.

    Returns
    -------
    pandas.Series
        One value a joined turn, in order. A jump in the count begins a new one: the seeker spoke.

    Examples
    --------
    >>> messages = pd.DataFrame({"turn_id": ["d-1", "d-2", "d-4"], "dialogue_id": "d", "strategy": ["q", "s", "s"]})
    >>> several_in_a_row(messages).tolist()
    [True, False]
    """
    _need(turns, ["turn_id", "dialogue_id", "strategy"])
    jumps = turns["turn_id"].str.rpartition("-")[2].astype(int).diff().ne(1)
    begins = jumps | turns["dialogue_id"].ne(turns["dialogue_id"].shift())
    return turns.groupby(begins.cumsum())["strategy"].agg("nunique").gt(1)


def _margins_of(margins: Any, features: Any) -> Array:
    """Give the distances from the borders, one column for two classes, else one a class."""
    distances = np.asarray(margins.decision_function(features))
    return distances.reshape(len(distances), -1)


def _tokens(text: str) -> list[str]:
    return ["<start>", *TOKEN.findall(text.lower().replace("’", "'")), "<end>"]


def _need(table: pd.DataFrame, columns: list[str]) -> None:
    missing = [column for column in columns if column not in table]
    if missing:
        raise StrategyError(f"The table has no column {', '.join(missing)}. It has {', '.join(map(str, table.columns))}.")


def _total(sums: pd.DataFrame, what: str, names: list[str]) -> pd.Series:
    return sums[[f"{what}:{name}" for name in names]].sum(axis="columns")


def _f1(sums: pd.DataFrame, name: str) -> pd.Series:
    given = sums[f"given:{name}"]
    return (2 * sums[f"both:{name}"] / (given + sums[f"found:{name}"])).where(given > 0)


def _macro(sums: pd.DataFrame, names: list[str]) -> pd.Series:
    return pd.DataFrame({name: _f1(sums, name) for name in names}).mean(axis="columns")
