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

from heart_utils.ratings.verdicts import Array
from heart_utils.replies.codes import CodesError
from heart_utils.tables import need_columns

__all__ = ["StrategyCoder", "train_coder"]


LONGEST = 3
"""Words in a row that make a feature, chosen on ESConv's validation split among 2 and 3."""
PENALTY = 0.15
TOKEN = re.compile(r"\w+(?:'\w+)?|[?!.,]")


@dataclass(frozen=True, eq=False)
class StrategyCoder:
    """A trained coder: two pipelines of scikit-learn, of which the second, for probabilities, goes on from the first."""

    strategies: tuple[str, ...]  # what it tells apart
    _margins: Any
    _scale: Any

    def label(self, texts: pd.Series) -> pd.Series:
        """Give each text the strategy with the largest margin."""
        return pd.Series(self._margins.predict(texts), index=texts.index, dtype="str")

    def probabilities(self, texts: pd.Series) -> pd.DataFrame:
        """Give each text a probability for each strategy; a row sums to 1."""
        chances = self._scale.predict_proba(_margins_of(self._margins, texts)) if len(texts) else None
        return pd.DataFrame(chances, index=texts.index, columns=list(self._scale.classes_), dtype=float)


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
    return StrategyCoder(tuple(map(str, margins.classes_)), _margins=margins, _scale=scale)


def _margins_of(margins: Any, texts: pd.Series) -> Array:
    """Give the distances from the borders, one column for two classes, else one a class."""
    distances = np.asarray(margins.decision_function(texts))
    return distances.reshape(len(distances), -1)


def _tokens(text: str) -> list[str]:
    return ["<start>", *TOKEN.findall(text.lower().replace("’", "'")), "<end>"]
