"""A judge trained on people's labels: linear in letters, cross-fitted."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from heart_utils.ratings.verdicts import Array, won_by_a
from heart_utils.runs import read_sealed, strictest_licence, write_sealed
from heart_utils.settings import JsonObject
from heart_utils.tables import check_table, empty_table, need_columns

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import CountVectorizer

__all__ = ["TrainedJudge", "TrainedJudgeError", "load_trained_judge", "train_judge"]

Features = Callable[[Sequence[str]], NDArray[np.float64]]
"""Texts -> one row of numbers a text, such as an embedding; the same text must always give the
same row."""

LEAST_LABELS = 50
LEAST_TRAINING = 30
LEAST_REPLIES = 5
"""A group of letters, or a word, is kept only if so many replies, to so many dialogues and by so
many writers where they are known, hold it, so that no file gives back one person's words."""

MOST_TERMS = 10_000
LENGTHS = (2, 4)
"""Letters of a term, within a word and with its ends."""
KNOWN_SHARE = 0.3
"""A reply of whose words fewer are known is not judged: the judge abstains."""

PENALTIES = (0.1, 1.0, 10.0, 100.0)
INNER_FOLDS = 3
FORMAT = "heart-trained-judge-4"
PROTOCOL = "trained"
UNFAMILIAR = "unfamiliar"
DIGITS = re.compile(r"[0-9]+")

Learner = Callable[
    [NDArray[np.intp], Sequence[NDArray[Any]]], tuple["Terms | None", sparse.csr_matrix]
]
"""Places of the replies to learn from, their dialogues and their writers -> terms, and the
features of all replies."""


class TrainedJudgeError(ValueError):
    """A judge cannot be trained on, or judge, what is given."""


@dataclass(frozen=True, eq=False)
class Terms:
    """Groups of letters with inverse document frequency; known words."""

    names: tuple[str, ...]
    weights: Array = field(repr=False)
    words: tuple[str, ...] = field(repr=False)

    def transform(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return TF-IDF, a row a text, of length one."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(
            analyzer="char_wb", ngram_range=LENGTHS, sublinear_tf=True, vocabulary=self.names
        )
        vectorizer.idf_ = self.weights
        return vectorizer.transform(texts)

    def known_share(self, texts: Sequence[str]) -> Array:
        """Return each text's share of known words, counted with repeats."""
        analyze = _counter("word").build_analyzer()
        known = set(self.words)
        found = (np.array([word in known for word in analyze(text)]) for text in texts)
        return np.array([one.mean() if len(one) else 0.0 for one in found])


@dataclass(frozen=True, eq=False)
class Corpus:
    """How often texts hold each term and word, counted once for all folds."""

    terms: sparse.csc_matrix
    words: sparse.csc_matrix
    names: NDArray[np.object_]
    all_words: NDArray[np.object_]

    @classmethod
    def count(cls, texts: Sequence[str]) -> Corpus:
        letters, words = _counter("char_wb"), _counter("word")
        try:
            counted, known = letters.fit_transform(texts), words.fit_transform(texts)
        except ValueError:  # no text has a word
            raise TrainedJudgeError(
                "No reply holds a word; expected texts in `replies.text`."
            ) from None
        return cls(
            terms=counted.tocsc(),
            words=known.tocsc(),
            names=letters.get_feature_names_out(),
            all_words=words.get_feature_names_out(),
        )

    def learn(
        self, used: NDArray[np.intp], groups: Sequence[NDArray[Any]]
    ) -> tuple[Terms, sparse.csr_matrix]:
        """Choose terms that enough texts share; return all texts' TF-IDF."""
        from sklearn.feature_extraction.text import TfidfTransformer

        shared, words = _shared(self.terms[used], groups), _shared(self.words[used], groups)
        if not len(words):
            raise TrainedJudgeError(
                f"No word is in {LEAST_REPLIES} replies to {LEAST_REPLIES} dialogues (by"
                f" {LEAST_REPLIES} writers, where author_id tells them apart): nothing can be"
                " learnt."
            )
        weigh = TfidfTransformer(sublinear_tf=True).fit(self.terms[used][:, shared])
        terms = Terms(tuple(self.names[shared]), weigh.idf_, tuple(self.all_words[words]))
        return terms, weigh.transform(self.terms[:, shared])


@dataclass(frozen=True, eq=False)
class LinearModel:
    terms: Terms | None  # None where the caller's own features are used
    weights: Array
    intercept: float

    def margins(self, rows: Any) -> Array:
        return np.asarray(rows @ self.weights).ravel() + self.intercept


@dataclass(frozen=True, eq=False)
class TrainedJudge:
    """A judge trained on people's labels, and its answers where it was not trained.

    Attributes
    ----------
    name : str
        The ``rater`` in its rows.
    kind : {"score", "verdict"}
        What it learned from, and gives.
    dimension : str
        A line of the rubric.
    predictions : pandas.DataFrame
        Rows, by models that saw neither the dialogue nor raters left out.
    trained_on : dict
        Numbers of labels, replies, dialogues and raters, options, ``licence`` of the texts.
    """

    name: str
    kind: str
    dimension: str
    predictions: pd.DataFrame
    trained_on: JsonObject
    model: LinearModel = field(repr=False)
    #: digests of the names of dialogues and histories it was trained on
    seen: frozenset[str] = field(repr=False)
    features: Features | None = field(default=None, repr=False)

    def score(self, replies: pd.DataFrame) -> pd.DataFrame:
        """Score replies to dialogues that it was not trained on.

        Parameters
        ----------
        replies : pandas.DataFrame
            With ``dialogue_id`` where it differs from ``history_id``.

        Returns
        -------
        pandas.DataFrame
            Rows of ``scores``; a reply in another script, or with under 30 % known words, is
            ``abstained``.

        Raises
        ------
        TrainedJudgeError
            If trained on verdicts or one of these dialogues, or it knows no reply.
        """
        if self.kind != "score":
            raise TrainedJudgeError(
                f"{self.name!r} was trained on verdicts: use `compare(pairs, replies)`."
            )
        replies = _with_dialogue(replies)
        self._refuse_seen(replies)
        texts = replies["text"].tolist()
        unfamiliar = self._unfamiliar(texts)
        return _score_rows(self, replies, self._margins(texts), unfamiliar)

    def compare(self, pairs: pd.DataFrame, replies: pd.DataFrame) -> pd.DataFrame:
        """Compare pairs of replies to dialogues that it was not trained on.

        Parameters
        ----------
        pairs : pandas.DataFrame
            With ``pair_id``, ``history_id``, ``responder_a`` and ``responder_b``.
        replies : pandas.DataFrame
            The table ``replies``.

        Returns
        -------
        pandas.DataFrame
            Rows of ``verdicts``, with ``p_a``; ``abstained`` as in :meth:`score`.

        Raises
        ------
        TrainedJudgeError
            If trained on scores or one of these dialogues, or a reply is missing.
        """
        if self.kind != "verdict":
            raise TrainedJudgeError(f"{self.name!r} was trained on scores: use `score(replies)`.")
        replies = _with_dialogue(replies)
        pairs = _pairs_of(pairs, replies)
        self._refuse_seen(pairs)
        texts = replies["text"].tolist()
        unfamiliar = self._unfamiliar(texts)
        margins = self._margins(texts)
        a, b = pairs["place_a"].to_numpy(), pairs["place_b"].to_numpy()
        return _verdict_rows(self, pairs, margins[a] - margins[b], unfamiliar[a] | unfamiliar[b])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the judge as JSON, with a digest of its contents.

        Parameters
        ----------
        path : str or path
            A file; its folder is made.
        """
        terms = self.model.terms
        content = {
            "format": FORMAT,
            "name": self.name,
            "kind": self.kind,
            "dimension": self.dimension,
            "trained_on": self.trained_on,
            "seen": sorted(self.seen),
            "intercept": self.model.intercept,
            "weights": self.model.weights.tolist(),
            "terms": terms
            and {
                "names": list(terms.names),
                "weights": terms.weights.tolist(),
                "words": list(terms.words),
            },
        }
        return write_sealed(path, content)

    def _margins(self, texts: Sequence[str]) -> Array:
        terms = self.model.terms
        return self.model.margins(
            _own_features(self.features, texts) if terms is None else terms.transform(texts)
        )

    def _refuse_seen(self, rows: pd.DataFrame) -> None:
        for column in ("dialogue_id", "history_id"):
            trained_on = rows.loc[rows[column].map(_digest_of(column)).isin(self.seen), column]
            if len(trained_on):
                raise TrainedJudgeError(
                    f"{self.name!r} was trained on {trained_on.nunique()} of these dialogues, first"
                    f" {column} {trained_on.iloc[0]!r}: its answers there would repeat its labels."
                    " `predictions` of `train_judge` holds answers by models that did not see"
                    " them."
                )

    def _unfamiliar(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        known_scripts = set(self.trained_on["scripts"])
        unfamiliar = np.array([_script(text) not in known_scripts for text in texts], dtype=bool)
        if self.model.terms is not None:
            unfamiliar |= self.model.terms.known_share(texts) < KNOWN_SHARE
        if len(texts) and unfamiliar.all():
            raise TrainedJudgeError(
                f"{self.name!r} knows fewer than {KNOWN_SHARE:.0%} of the words of each of the"
                f" {len(texts)} replies, or never saw their letters: they are in another language"
                " or script than its labels. Train a judge on labels of such replies."
            )
        return np.asarray(unfamiliar)


def train_judge(
    replies: pd.DataFrame,
    labels: pd.DataFrame,
    *,
    dimension: str = "overall",
    features: str | Features = "words",
    leave_out: Sequence[str] = ("dialogue_id", "rater"),
    within: str | None = None,
    pairs: pd.DataFrame | None = None,
    n_folds: int = 10,
) -> TrainedJudge:
    r"""Train a judge on people's scores or verdicts, and let it answer where it was not trained.

    It is linear in TF-IDF of letters: ridge regression of scores, logistic regression of verdicts
    with a tie as half of each. A fold's model has seen neither its dialogues nor labels of their
    raters.

    Parameters
    ----------
    replies : pandas.DataFrame
        With ``dialogue_id`` where a dialogue has several histories; ``author_id`` tells writers
        apart, five of whom must use a term.
    labels : pandas.DataFrame
        ``scores``, or ``verdicts``, orders combined; people's valid rows on `dimension` count.
    dimension : str
        A line of the rubric.
    features : {"words"} or callable
        By letters, or a function from texts to rows of numbers, such as an embedding.
    leave_out : sequence of {"dialogue_id", "rater"}
        What a fold's model must not have seen.
    within : str, optional
        A column of `replies`, such as ``"responder"``: learn only what differs within its values.
    pairs : pandas.DataFrame, optional
        For verdicts: further pairs to answer.
    n_folds : int
        Parts left out in turn, 2 or more.

    Returns
    -------
    TrainedJudge
        With ``predictions`` for each reply (scores) or pair (verdicts).

    Raises
    ------
    TrainedJudgeError
        If fewer than 50 labels count, all are alike, or a fold has nothing left to learn from.

    Examples
    --------
    >>> kind = ["I hear how hard this is for you", "You should just get over it now"]
    >>> replies = pd.DataFrame({"text": kind * 40, "responder": ["warm", "cold"] * 40})
    >>> replies["history_id"] = np.repeat([f"h{i}" for i in range(40)], 2)
    >>> replies["reply_id"] = replies["history_id"] + replies["responder"]
    >>> labels = replies[["reply_id"]].assign(score=[5.0, 2.0] * 40, rater="ann", state="valid")
    >>> labels = labels.assign(rater_kind="human", dimension="overall")
    >>> judge = train_judge(replies, labels, leave_out=["dialogue_id"])
    >>> judge.predictions.groupby("responder")["score"].mean().round(1).to_dict()
    {'cold': 2.0, 'warm': 5.0}
    """
    _check_options(features, leave_out, n_folds)
    with_dialogue = _with_dialogue(replies)
    replies = _check_texts(with_dialogue, within)
    own_features = None if isinstance(features, str) else features
    kind = "score" if "score" in labels else "verdict"
    data, n_left_out = _read_labels(labels, replies, kind, dimension)
    folds = _assign_folds(data, n_folds)
    texts = replies["text"].tolist()
    learn = _own_learner(own_features, texts) if own_features else Corpus.count(texts).learn
    model, _ = _fit(data, replies, kind, within, learn)
    judge = TrainedJudge(
        name="trained",
        kind=kind,
        dimension=dimension,
        predictions=pd.DataFrame(),
        trained_on={
            **_describe(data, n_left_out, replies),
            "n_without_words": len(with_dialogue) - len(replies),
            "licence": (
                strictest_licence(list(replies["licence"].unique()))
                if "licence" in replies
                else "not stated"
            ),
            "leave_out": list(leave_out),
            "within": within,
            "features": (
                features
                if isinstance(features, str)
                else getattr(features, "__qualname__", "a function")
            ),
        },
        model=model,
        seen=_seen(replies.iloc[_places(data)]),
        features=own_features,
    )
    by_fold = []
    for fold in range(folds.max() + 1):
        kept = _left_for_training(data, folds, fold, leave_out)
        part, rows = _fit(data[kept], replies, kind, within, learn)
        by_fold.append(part.margins(rows))
    margins = np.array(by_fold)
    unfamiliar = judge._unfamiliar(texts)
    fold_of_dialogue = dict(zip(data["dialogue_id"], folds, strict=True))
    if kind == "score":
        answers = _out_of_fold(margins, replies["dialogue_id"], fold_of_dialogue)
        predictions = _score_rows(judge, replies, answers, unfamiliar)
    else:
        votes = labels if pairs is None else pd.concat([labels, pairs], ignore_index=True)
        votes = _pairs_of(votes, replies)
        a, b = votes["place_a"].to_numpy(), votes["place_b"].to_numpy()
        answers = _out_of_fold(
            margins[:, a] - margins[:, b], votes["dialogue_id"], fold_of_dialogue
        )
        predictions = _verdict_rows(judge, votes, answers, unfamiliar[a] | unfamiliar[b])
    return replace(judge, predictions=predictions)


def load_trained_judge(
    path: str | os.PathLike[str], *, features: Features | None = None
) -> TrainedJudge:
    """Read a judge that ``TrainedJudge.save`` wrote.

    Parameters
    ----------
    path : str or path
        The JSON file.
    features : callable, optional
        The function it was trained with, unless on words.

    Returns
    -------
    TrainedJudge
        Without ``predictions``.

    Raises
    ------
    TrainedJudgeError
        If the file is no judge, was changed, or its features are missing.

    Examples
    --------
    >>> load_trained_judge("nowhere.json")
    Traceback (most recent call last):
    heart_collect.judging.trained.TrainedJudgeError: nowhere.json cannot be read ...
    """
    content = read_sealed(path, FORMAT, TrainedJudgeError, "train and save the judge again")
    terms = content["terms"]
    if terms is None and features is None:
        raise TrainedJudgeError(
            f"{path} was trained on {content['trained_on']['features']}; give that function as"
            " `features`."
        )
    model = LinearModel(
        terms=terms
        and Terms(tuple(terms["names"]), np.array(terms["weights"]), tuple(terms["words"])),
        weights=np.array(content["weights"]),
        intercept=float(content["intercept"]),
    )
    return TrainedJudge(
        name=content["name"],
        kind=content["kind"],
        dimension=content["dimension"],
        predictions=pd.DataFrame(),
        trained_on=content["trained_on"],
        model=model,
        seen=frozenset(content["seen"]),
        features=features,
    )


def _check_options(features: object, leave_out: Sequence[str], n_folds: int) -> None:
    if isinstance(features, str) and features != "words":
        raise TrainedJudgeError(
            f"features={features!r}: expected 'words' or a function from texts to rows of numbers."
        )
    if isinstance(leave_out, str) or not {"dialogue_id"} <= set(leave_out) <= {
        "dialogue_id",
        "rater",
    }:
        raise TrainedJudgeError(
            f"leave_out={leave_out!r}: expected ('dialogue_id',) or ('dialogue_id', 'rater')."
        )
    if n_folds < 2:
        raise TrainedJudgeError(f"n_folds={n_folds}: expected 2 or more, or nothing is left out.")


def _with_dialogue(replies: pd.DataFrame) -> pd.DataFrame:
    need_columns(replies, ["reply_id", "history_id", "responder", "text"], TrainedJudgeError)
    texts = replies["text"].astype(object)
    replies = replies.assign(text=texts.where(texts.notna(), "").astype(str)).reset_index(drop=True)
    if "dialogue_id" not in replies:
        replies = replies.assign(dialogue_id=replies["history_id"])
    return replies


def _check_texts(replies: pd.DataFrame, within: str | None) -> pd.DataFrame:
    if within is not None:
        need_columns(replies, [within], TrainedJudgeError)
    twice = replies["reply_id"][replies["reply_id"].duplicated()]
    if len(twice):
        raise TrainedJudgeError(
            f"replies.reply_id: {twice.iloc[0]!r} is there twice; expected each reply once."
        )
    empty = replies["text"].str.strip() == ""
    if "state" in replies:
        empty |= replies["state"] != "valid"
    replies = replies[~empty].reset_index(drop=True)
    if replies.empty:
        raise TrainedJudgeError("No reply holds a word; expected texts in `replies.text`.")
    texts = replies["text"]
    single = texts.str.count(r"\S+").median() < 2
    n_wordings = texts.str.replace(DIGITS, "", regex=True).nunique()
    if single or n_wordings <= texts.nunique() / 10:
        what = (
            f"half of the {len(texts)} texts are a single word or none"
            if single
            else f"without digits the {len(texts)} texts are {n_wordings} different ones"
        )
        raise TrainedJudgeError(
            f"replies.text: {what}, as a column of ids would be; expected the words of replies."
        )
    return replies


def _read_labels(
    labels: pd.DataFrame, replies: pd.DataFrame, kind: str, dimension: str
) -> tuple[pd.DataFrame, int]:
    need_columns(labels, ["rater", "rater_kind", "dimension", "state", kind], TrainedJudgeError)
    on_line = labels[labels["dimension"] == dimension]
    if on_line.empty:
        known = ", ".join(sorted(labels["dimension"].astype(str).unique()))
        raise TrainedJudgeError(
            f"No label is on the dimension {dimension!r}; there are {known or 'none'}."
        )
    counts = on_line["rater_kind"].eq("human") & on_line["state"].isin(["valid", "inconsistent"])
    kept = on_line[counts]
    row_of = pd.Series(replies.index, index=replies["reply_id"])
    if kind == "score":
        need_columns(labels, ["reply_id"], TrainedJudgeError)
        data = pd.DataFrame(
            {"a": kept["reply_id"].map(row_of), "b": -1, "answer": kept["score"].astype(float)}
        )
    else:
        pairs = _pairs_of(kept, replies, one_each=False)
        data = pd.DataFrame(
            {"a": pairs["place_a"], "b": pairs["place_b"], "answer": won_by_a(kept).to_numpy()}
        )
    data["rater"] = kept["rater"].to_numpy()
    data["simulated"] = kept["simulated"].to_numpy() if "simulated" in kept else False
    data = data.dropna(subset=["a", "answer"]).astype({"a": int, "b": int})
    data["dialogue_id"] = replies["dialogue_id"].to_numpy()[data["a"]]
    data = data.reset_index(drop=True)
    if len(data) < LEAST_LABELS:
        raise TrainedJudgeError(
            f"{len(data)} labels by people on {dimension!r} have a reply with words; expected"
            f" {LEAST_LABELS} or more. A judge trained on fewer would be noise."
        )
    if data["answer"].nunique() < 2:
        raise TrainedJudgeError(
            f"All {len(data)} labels on {dimension!r} are {data['answer'].iloc[0]:g}: nothing to"
            " learn."
        )
    return data, len(on_line) - len(data)


def _pairs_of(rows: pd.DataFrame, replies: pd.DataFrame, *, one_each: bool = True) -> pd.DataFrame:
    need_columns(rows, ["pair_id", "history_id", "responder_a", "responder_b"], TrainedJudgeError)
    names = ["history_id", "responder"]
    twice = replies[replies.duplicated(names)]
    if len(twice):
        who = twice.iloc[0]
        raise TrainedJudgeError(
            f"{who['responder']!r} has two replies to {who['history_id']!r}, so a pair does not say"
            " which was compared."
        )
    rows = rows.drop_duplicates("pair_id") if one_each else rows
    rows = rows.reset_index(drop=True)
    row_of = pd.Series(replies.index, index=pd.MultiIndex.from_frame(replies[names]))
    pairs = rows[["pair_id", "history_id", "responder_a", "responder_b"]].copy()
    for side in "ab":
        wanted = pd.MultiIndex.from_frame(rows[["history_id", f"responder_{side}"]])
        pairs[f"place_{side}"] = row_of.reindex(wanted).to_numpy()
        if missing := int(pairs[f"place_{side}"].isna().sum()):
            row = rows[pairs[f"place_{side}"].isna()].iloc[0]
            raise TrainedJudgeError(
                f"{missing} pairs have no words of responder_{side}, first"
                f" {row[f'responder_{side}']!r} on {row['history_id']!r}. Give all replies that"
                " were compared."
            )
    pairs = pairs.astype({"place_a": int, "place_b": int})
    pairs["dialogue_id"] = replies["dialogue_id"].to_numpy()[pairs["place_a"]]
    pairs["slice"] = rows.get("slice", "standard")
    return pairs


def _assign_folds(data: pd.DataFrame, n_folds: int) -> NDArray[np.intp]:
    """Assign dialogues to folds, those of shared raters together if possible."""
    dialogue, _ = pd.factorize(data["dialogue_id"])
    rater, _ = pd.factorize(data["rater"])
    n_dialogues, n_raters = dialogue.max() + 1, rater.max() + 1
    if n_dialogues < 2:
        raise TrainedJudgeError(
            "All labels are of one dialogue, so none can be left out to try the judge on."
        )
    links = sparse.coo_matrix(
        (np.ones(len(data)), (dialogue, n_dialogues + rater)), shape=[n_dialogues + n_raters] * 2
    )
    _, group = sparse.csgraph.connected_components(links, directed=False)
    unit = group[dialogue] if len(np.unique(group[dialogue])) >= n_folds else dialogue
    order = pd.factorize(unit)[0]
    return np.asarray(order % min(n_folds, order.max() + 1), dtype=np.intp)


def _left_for_training(
    data: pd.DataFrame, folds: NDArray[np.intp], fold: int, leave_out: Sequence[str]
) -> NDArray[np.bool_]:
    held = folds == fold
    kept = ~held
    if "rater" in leave_out:
        kept &= ~data["rater"].isin(data.loc[held, "rater"].unique()).to_numpy()
    if kept.sum() < LEAST_TRAINING or data.loc[kept, "answer"].nunique() < 2:
        raise TrainedJudgeError(
            f"Without its dialogues and raters, fold {fold + 1} has {int(kept.sum())} labels left"
            " to be trained on: most raters met most dialogues. leave_out=('dialogue_id',) leaves"
            " out dialogues alone; answers may then know raters' habits."
        )
    return np.asarray(kept)


def _places(data: pd.DataFrame) -> NDArray[np.intp]:
    return np.unique(np.concatenate([data["a"], data["b"][data["b"] >= 0]])).astype(np.intp)


def _fit(
    data: pd.DataFrame,
    replies: pd.DataFrame,
    kind: str,
    within: str | None,
    learn: Learner,
) -> tuple[LinearModel, sparse.csr_matrix]:
    used = _places(data)
    terms, features = learn(
        used, [names.to_numpy()[used] for names in (replies["dialogue_id"], _writers(replies))]
    )
    n_features = features.shape[1]
    rows = features
    if within is not None:
        rows = sparse.hstack([features, _indicators(replies[within])], format="csr")
    first = rows[data["a"]]
    answers, dialogues = data["answer"].to_numpy(), data["dialogue_id"].to_numpy()
    if kind == "verdict":
        weights = _logistic(first - rows[data["b"]], answers, dialogues)
        return LinearModel(terms, weights[:n_features], 0.0), features
    weights = _ridge(first, answers, dialogues)[:n_features]
    # Effects of `within` are not used to predict, so the level is that of the words alone.
    sums = np.asarray(first[:, :n_features] @ weights).ravel()
    return LinearModel(terms, weights, float(answers.mean() - sums.mean())), features


def _writers(replies: pd.DataFrame) -> pd.Series:
    dialogues = "dialogue " + replies["dialogue_id"].astype(str)
    if "author_id" not in replies:
        return dialogues
    return ("author " + replies["author_id"].astype(str)).where(
        replies["author_id"].notna(), dialogues
    )


def _own_learner(features: Features, texts: Sequence[str]) -> Learner:
    rows = sparse.csr_matrix(_own_features(features, texts))

    def learn(
        used: NDArray[np.intp], groups: Sequence[NDArray[Any]]
    ) -> tuple[None, sparse.csr_matrix]:
        return None, rows

    return learn


def _indicators(values: pd.Series) -> sparse.csr_matrix:
    codes, names = pd.factorize(values.astype(str))
    return sparse.csr_matrix(
        (np.full(len(codes), 10.0), (np.arange(len(codes)), codes)), shape=(len(codes), len(names))
    )


def _ridge(rows: sparse.csr_matrix, answers: Array, groups: NDArray[Any]) -> Array:
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV, GroupKFold

    inner = min(INNER_FOLDS, len(np.unique(groups)))
    search = GridSearchCV(
        Ridge(solver="sparse_cg", tol=1e-4),
        {"alpha": list(PENALTIES)},
        scoring="neg_mean_squared_error",
        cv=GroupKFold(inner),
    )
    return np.asarray(search.fit(rows, answers, groups=groups).best_estimator_.coef_)


def _logistic(rows: sparse.csr_matrix, answers: Array, groups: NDArray[Any]) -> Array:
    """Fit wins of a to differences; a tie is a part of each."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold

    def fit(kept: NDArray[Any], penalty: float) -> Array:
        part, share = rows[kept], answers[kept]
        weight = np.concatenate([share, 1.0 - share])
        counts = weight > 0
        model = LogisticRegression(C=1.0 / penalty, fit_intercept=False, max_iter=2000)
        outcome = np.repeat([1, 0], len(share))
        model.fit(
            sparse.vstack([part, part], format="csr")[counts],
            outcome[counts],
            sample_weight=weight[counts],
        )
        return np.asarray(model.coef_[0])

    everything = np.arange(len(answers))
    losses = dict.fromkeys(PENALTIES, 0.0)
    inner = min(INNER_FOLDS, len(np.unique(groups)))
    for kept, held in GroupKFold(inner).split(rows, groups=groups):
        decided = answers[kept]
        if not (decided > 0).any() or not (decided < 1).any():
            continue  # one side always wins in this part, so no penalty can be tried on it
        for penalty in PENALTIES:
            margin = np.asarray(rows[held] @ fit(kept, penalty)).ravel()
            losses[penalty] += float((np.logaddexp(0.0, margin) - answers[held] * margin).sum())
    return fit(everything, min(losses, key=lambda penalty: losses[penalty]))


def _own_features(features: Features | None, texts: Sequence[str]) -> Array:
    if features is None:
        raise TrainedJudgeError(
            "This judge was trained on features of the caller's own; give the function as"
            " `features`."
        )
    rows = np.asarray(features(list(texts)), dtype=float)
    if rows.ndim != 2 or len(rows) != len(texts) or not np.isfinite(rows).all():
        raise TrainedJudgeError(
            f"features gave an array of shape {rows.shape} for {len(texts)} texts; expected finite"
            " rows."
        )
    return rows


def _counter(analyzer: str) -> CountVectorizer:
    from sklearn.feature_extraction.text import CountVectorizer

    if analyzer == "word":
        return CountVectorizer(token_pattern=r"(?u)\b\w+\b")
    return CountVectorizer(analyzer=analyzer, ngram_range=LENGTHS)


def _shared(counts: sparse.csc_matrix, groups: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """Return columns of terms that enough replies of enough groups of each kind hold."""
    present = (counts > 0).astype(np.int64)
    n_replies = np.asarray(present.sum(axis=0)).ravel()
    shared = n_replies >= LEAST_REPLIES
    for names in groups:
        code, different = pd.factorize(names)
        ones = np.ones(len(code), np.int64)
        by_group = sparse.csr_matrix(
            (ones, (code, np.arange(len(code)))), shape=(len(different), len(code))
        )
        shared &= np.asarray(((by_group @ present) > 0).sum(axis=0)).ravel() >= LEAST_REPLIES
    kept = np.flatnonzero(shared)
    return np.sort(kept[np.argsort(-n_replies[kept], kind="stable")][:MOST_TERMS])


def _out_of_fold(
    margins: Array, dialogues: pd.Series, fold_of_dialogue: Mapping[str, int]
) -> Array:
    fold = dialogues.map(fold_of_dialogue)
    answers = margins.mean(axis=0)
    known = np.flatnonzero(fold.notna())
    answers[known] = margins[fold.iloc[known].to_numpy(int), known]
    return np.asarray(answers)


def _score_rows(
    judge: TrainedJudge, replies: pd.DataFrame, answers: Array, unfamiliar: NDArray[np.bool_]
) -> pd.DataFrame:
    rows = pd.DataFrame(
        {
            "reply_id": replies["reply_id"],
            "history_id": replies["history_id"],
            "dialogue_id": replies["dialogue_id"],
            "responder": replies["responder"],
            "score": np.where(unfamiliar, np.nan, answers),
        }
    )
    return _complete("scores", rows, judge, unfamiliar)


def _verdict_rows(
    judge: TrainedJudge, pairs: pd.DataFrame, answers: Array, unfamiliar: NDArray[np.bool_]
) -> pd.DataFrame:
    p_a = 1.0 / (1.0 + np.exp(-answers))
    word = pd.Series(np.select([p_a > 0.5, p_a < 0.5], ["a", "b"], "tie"))
    columns = ["pair_id", "history_id", "dialogue_id", "slice", "responder_a", "responder_b"]
    rows = pairs[columns].reset_index(drop=True)
    rows = rows.assign(
        comparison_id=rows["pair_id"],
        verdict=word.where(~unfamiliar, None),
        p_a=np.where(unfamiliar, np.nan, p_a),
        repeat=0,
    )
    return _complete("verdicts", rows, judge, unfamiliar)


def _complete(
    table: str, rows: pd.DataFrame, judge: TrainedJudge, unfamiliar: NDArray[np.bool_]
) -> pd.DataFrame:
    rows = rows.assign(
        rater=judge.name,
        rater_kind="trained",
        dimension=judge.dimension,
        state=np.where(unfamiliar, "abstained", "valid"),
        protocol=PROTOCOL,
        flags=pd.Series([[UNFAMILIAR] if strange else [] for strange in unfamiliar], dtype=object),
        simulated=bool(judge.trained_on["simulated"]),
    )
    absent = {str(column): None for column in empty_table(table) if column not in rows}
    return check_table(table, rows.assign(**absent))


def _describe(data: pd.DataFrame, n_left_out: int, replies: pd.DataFrame) -> JsonObject:
    labelled = replies.iloc[_places(data)]
    scripts = labelled["text"].map(_script).value_counts()
    return {
        "n_labels": len(data),
        "n_left_out": n_left_out,
        "n_replies": len(labelled),
        "n_dialogues": int(data["dialogue_id"].nunique()),
        "n_raters": int(data["rater"].nunique()),
        "responders": sorted(labelled["responder"].unique()),
        "scripts": sorted(scripts.index[(scripts >= LEAST_REPLIES) & (scripts.index != "")]),
        "simulated": bool(data["simulated"].any()),
    }


def _script(text: str) -> str:
    """Return a text's main script, such as "LATIN"; empty without letters."""
    scripts = [unicodedata.name(sign, "UNKNOWN").split()[0] for sign in text if sign.isalpha()]
    return max(sorted(set(scripts)), key=scripts.count) if scripts else ""


def _digest_of(column: str) -> Callable[[object], str]:
    return lambda name: hashlib.sha256(f"{column} {name}".encode()).hexdigest()[:16]


def _seen(replies: pd.DataFrame) -> frozenset[str]:
    columns = ("dialogue_id", "history_id")
    return frozenset(
        digest for column in columns for digest in replies[column].map(_digest_of(column))
    )
