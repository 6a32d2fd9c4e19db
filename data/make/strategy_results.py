"""Score a coder of strategies on ESConv and correct a gap by it.

For *What replies do*; ESConv's words stay where they are.

``python -m data.make.strategy_results`` writes the three tables of ``data/esconv/`` anew; a test
compares them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.naive_bayes import ComplementNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from heart_utils.agreement.prediction_powered import LEAST_LABELLED, labelled_weights
from heart_utils.ratings.resampling import bootstrap_ci, check_level, estimate_rng
from heart_utils.ratings.verdicts import AgreementError
from heart_utils.runs import find_root
from heart_utils.sources.catalogue import find_data

SEED = 20260109
N_BY_HAND = 60

LONGEST = 3
"""Words in a row that make a feature, chosen on ESConv's validation split among 2 and 3."""
PENALTY = 0.15
TOKEN = re.compile(r"\w+(?:'\w+)?|[?!.,]")


@dataclass(frozen=True, eq=False)
class StrategyCoder:
    """A trained coder of two scikit-learn pipelines, the second for probabilities.

    The second continues from the first.
    """

    _margins: Any
    _scale: Any

    def label(self, texts: pd.Series) -> pd.Series:
        """Assign each text the strategy with the largest margin."""
        return pd.Series(self._margins.predict(texts), index=texts.index, dtype="str")

    def probabilities(self, texts: pd.Series) -> pd.DataFrame:
        """Predict for each text the probability of each strategy.

        A row sums to 1.
        """
        chances = (
            self._scale.predict_proba(_margins_of(self._margins, texts)) if len(texts) else None
        )
        return pd.DataFrame(
            chances, index=texts.index, columns=list(self._scale.classes_), dtype=float
        )


def train_coder(turns: pd.DataFrame, calibration: pd.DataFrame) -> StrategyCoder:
    """Train a coder on labelled turns, calibrated on turns of other dialogues.

    The columns are ``dialogue_id``, ``text`` and ``strategy``.

    Linear support vectors on words and word pairs, with a mark for where a turn begins and ends.
    Its label is the class with the largest margin, which serves rare strategies too; its
    probabilities serve shares.
    """
    shared = set(turns["dialogue_id"]) & set(calibration["dialogue_id"])
    if shared:
        raise ValueError(
            f"{len(shared)} dialogues, such as {min(shared)!r}, stand on both sides; split by"
            " dialogue."
        )
    apart = set(turns["strategy"]) ^ set(calibration["strategy"])
    if apart:
        raise ValueError(
            f"Strategies {', '.join(sorted(apart))} stand on one side only; both need all of them."
        )
    words = TfidfVectorizer(
        tokenizer=_tokens,
        token_pattern=None,
        lowercase=False,
        ngram_range=(1, LONGEST),
        min_df=2,
        sublinear_tf=True,
    )
    margins = make_pipeline(words, LinearSVC(C=PENALTY, class_weight="balanced", random_state=0))
    margins.fit(turns["text"], turns["strategy"])
    scale = LogisticRegression(C=10.0, tol=1e-8, max_iter=1_000)
    scale.fit(_margins_of(margins, calibration["text"]), calibration["strategy"])
    return StrategyCoder(margins, scale)


def _margins_of(margins: Any, texts: pd.Series) -> np.ndarray:
    """Compute distances from the borders, one column for two classes, else one a class."""
    distances = np.asarray(margins.decision_function(texts))
    return distances.reshape(len(distances), -1)


def _tokens(text: str) -> list[str]:
    return ["<start>", *TOKEN.findall(text.lower().replace("’", "'")), "<end>"]


def load_strategy_turns() -> pd.DataFrame:
    """Load every supporter turn of ESConv with its strategy.

    Turns are not merged: a supporter who sends two messages in a row named a strategy for each. The
    label is the writer's own choice, out of eight, one a message; nobody coded the turns a second
    time.

    A row has ``turn_id``, ``dialogue_id``, ``split`` (ESConv's own: by dialogue), ``position`` (0
    to 1, in the dialogue), ``text``, ``strategy`` (in snake_case), and ``in_heart``: whether HEART
    took a history from the dialogue, or rewrote it.
    """
    heart = [
        pd.read_csv(find_root() / "data" / "heart" / f"heart_{name}_index.csv")
        for name in ("regular", "adversarial")
    ]
    held_out = {
        (split, row)
        for table in heart
        for split, row in zip(table["esconv_split"], table["esconv_row"], strict=True)
    }
    files = find_data("esconv")
    rows = []
    for split in ("train", "valid", "test"):
        for row, line in enumerate(files[f"{split}.json"].read_text(encoding="utf-8").splitlines()):
            dialogue_id, turns = f"esconv-{split}-{row:04d}", json.loads(line)["dialog"]
            rows += [
                (
                    f"{dialogue_id}-{number:03d}",
                    dialogue_id,
                    split,
                    number / max(len(turns) - 1, 1),
                    turn["text"].strip(),
                    re.sub("[- ]", "_", turn["strategy"].lower()),
                    (split, row) in held_out,
                )
                for number, turn in enumerate(turns)
                if turn["speaker"] == "sys"
            ]
    return pd.DataFrame(
        rows,
        columns=["turn_id", "dialogue_id", "split", "position", "text", "strategy", "in_heart"],
    )


def strategy_results(turns: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Train on ESConv's training dialogues without HEART's, and score on test dialogues."""
    parts = {
        name: turns[(turns["split"] == split) & ~(turns["in_heart"] & (split != "test"))]
        for name, split in {"learn": "train", "calibrate": "valid", "test": "test"}.items()
    }
    coder = train_coder(parts["learn"], parts["calibrate"])
    test = (
        parts["test"]
        .assign(found=coder.label(parts["test"]["text"]))
        .rename(columns={"strategy": "given"})
    )
    scored = score_labels(test, rng=estimate_rng(SEED, "strategy coder"))
    bayes = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), ComplementNB()
    )
    by_bayes = bayes.fit(parts["learn"]["text"], parts["learn"]["strategy"]).predict(test["text"])
    plain = {
        "naive_bayes_macro_f1": f1_score(test["given"], by_bayes, average="macro"),
        "majority_share": test["given"].value_counts(normalize=True).iloc[0],
        "n_learned": len(parts["learn"]),
        "n_test": len(test),
    }
    quantities = pd.concat([scored, pd.DataFrame({"value": plain})])
    confusion = pd.crosstab(test["given"], test["found"])
    confusion = confusion.reset_index().melt("given", var_name="found", value_name="turns")
    return {
        "coder": quantities.rename_axis("quantity").reset_index(),
        "confusion": confusion,
        "gaps": _gaps(test, coder.probabilities(test["text"])),
    }


def score_labels(
    labels: pd.DataFrame, *, rng: np.random.Generator, n_resamples: int = 1000
) -> pd.DataFrame:
    """Compute accuracy and macro-F1 of labels, with intervals over dialogues."""
    names = sorted(set(labels["given"]) | set(labels["found"]))
    one_hot = {
        what: pd.DataFrame({name: labels[what] == name for name in names})
        for what in ("given", "found")
    }
    one_hot["both"] = one_hot["given"] & one_hot["found"]
    cells = pd.concat(one_hot, axis=1).astype(float)
    cells.columns = cells.columns.map(":".join)

    def sums_of(sums: pd.DataFrame, what: str) -> pd.DataFrame:
        return sums[[f"{what}:{name}" for name in names]].set_axis(names, axis=1)

    def accuracy(sums: pd.DataFrame) -> pd.Series:
        return sums_of(sums, "both").sum(axis=1) / sums_of(sums, "given").sum(axis=1)

    def macro_f1(sums: pd.DataFrame) -> pd.Series:
        given, predicted, both = (sums_of(sums, what) for what in ("given", "found", "both"))
        return (2 * both / (given + predicted)).where(given > 0).mean(axis=1)

    options: dict[str, Any] = {
        "cluster": labels["dialogue_id"],
        "rng": rng,
        "n_resamples": n_resamples,
        "least": 0.0,
        "most": 1.0,
    }
    made = {
        "accuracy": bootstrap_ci(cells, accuracy, **options),
        "macro_f1": bootstrap_ci(cells, macro_f1, **options),
    }
    rows = {
        name: (predicted.estimate, predicted.ci_low, predicted.ci_high)
        for name, predicted in made.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "ci_low", "ci_high"])


def _gaps(test: pd.DataFrame, chances: pd.DataFrame) -> pd.DataFrame:
    """Compute how much more often each strategy occurs in the first half of a dialogue.

    The rows hold the truth and each estimate.
    """
    halves = test.assign(
        reply_id=test["turn_id"], half=np.where(test["position"] < 0.5, "first", "second")
    )
    of_turn = ["reply_id", "half", "dialogue_id"]
    codes = chances.join(halves[of_turn]).melt(
        id_vars=of_turn, var_name="code", value_name="probability"
    )
    by_hand = (
        halves[of_turn]
        .join(pd.get_dummies(halves["given"], dtype=float))
        .melt(id_vars=of_turn, var_name="code", value_name="probability")
    )
    drawn = estimate_rng(SEED, "labelled by hand").choice(
        halves["dialogue_id"].unique(), N_BY_HAND, replace=False
    )
    gaps = corrected_gap(
        codes, by_hand[by_hand["dialogue_id"].isin(drawn)], kind="half", between=("first", "second")
    )
    shares = by_hand.pivot_table(
        index=["code", "dialogue_id"], columns="half", values="probability"
    )
    gaps = gaps.merge(
        (shares["first"] - shares["second"]).groupby("code").mean().rename("truth").reset_index()
    )
    others = [f"{kind}_{end}" for kind in ("labelled", "coder") for end in ("gap", "low", "high")]
    return gaps[
        [
            "code",
            "truth",
            *others,
            "gap",
            "ci_low",
            "ci_high",
            "weight",
            "n_labelled",
            "n_dialogues",
        ]
    ]


COLUMNS = [
    "code",
    "gap",
    "ci_low",
    "ci_high",
    "labelled_gap",
    "labelled_low",
    "labelled_high",
    "coder_gap",
    "coder_low",
    # fmt: skip
    "coder_high",
    "ci_level",
    "weight",
    "n_labelled",
    "n_dialogues",
    "n_left_out",
    "why",
]


def corrected_gap(
    codes: pd.DataFrame,
    labels: pd.DataFrame,
    *,
    kind: str = "responder_kind",
    between: tuple[str, str] = ("human", "model"),
    ci_level: float = 0.95,
) -> pd.DataFrame:
    r"""Estimate with a correction how much more often one author does something.

    One kind of author is compared with another, with an interval.

    A coder that learned on people's text errs differently on models', and a gap between the two
    kinds may be the gap between its errors. With y the labelled gap of a dialogue and f the
    coder's, the estimate is

    .. math:: \overline{y}_n - \lambda (\overline{f}_n - \overline{f}_N)

    over n labelled dialogues of N, with the weight of
    :func:`heart_utils.agreement.prediction_powered.prediction_powered_ratings` [1]_: whatever the
    coder's errors, they cancel; the weight only decides how much is gained.

    `codes` is the codes table of one coder, joined with the column `kind` and ``dialogue_id``; rows
    without a probability are left out and counted. `labels` are codes by hand, of a simple random
    part of the dialogues with all their replies. A row a code: corrected (``gap``), by labels alone
    (``labelled_gap``), by the coder at its word (``coder_gap``); ``why`` says in words where a code
    has no figures: fewer than five dialogues are labelled with it, or all are.

    References
    ----------
    .. [1] Angelopoulos, Duchi and Zrnic (2023), https://arxiv.org/abs/2311.01453
    """
    both = codes.merge(
        labels[["reply_id", "code", "probability"]],
        on=["reply_id", "code"],
        how="left",
        suffixes=("", "_given"),
    )
    check_level(ci_level)
    both = both[both[kind].isin(between) & both["code"].isin(labels["code"].unique())]
    if both.empty:
        raise AgreementError(
            f"No label is of a code and of a reply by {' or '.join(between)}; it takes"
            f" {LEAST_LABELLED} dialogues."
        )
    rows = []
    for code, mine in both.groupby("code", sort=True):
        known = mine.dropna(subset=["probability"])
        by_prediction, given = (
            _half_gaps(known, column, kind, between)
            for column in ("probability", "probability_given")
        )
        by_prediction, given = by_prediction.dropna(), given.dropna()
        given = given[given.index.isin(by_prediction.index)]
        n, n_all = len(given), len(by_prediction)
        counts = {
            "code": code,
            "ci_level": ci_level,
            "n_labelled": n,
            "n_dialogues": n_all,
            "n_left_out": len(mine) - len(known),
        }
        if n < LEAST_LABELLED or n == n_all:
            why = (
                f"{n} of {n_all} dialogues with both kinds are labelled; it takes {LEAST_LABELLED},"
                " and not all."
            )
            rows.append(counts | {"why": why})
            continue
        own, elsewhere = given.to_numpy()[:, None], by_prediction.to_numpy()[:, None]
        beside, share, unit = by_prediction[given.index].to_numpy()[:, None], n / n_all, np.eye(1)
        apart = beside - share * elsewhere[by_prediction.index.isin(given.index)]
        weights = labelled_weights(own, apart[None], elsewhere[None], share, unit)[0]
        estimate = float((own[:, 0] - weights * (beside[:, 0] - elsewhere.mean())).mean())
        reach = stats.t.ppf((1 + ci_level) / 2, n - 1)
        half, plain = (
            reach * corrected_error(own[:, 0], apart[:, 0], elsewhere[:, 0], part, share)
            for part in (weights, np.zeros(n))
        )
        coder = reach_of_mean(elsewhere, ci_level)
        rows.append(
            {
                **counts,
                "gap": estimate,
                "ci_low": estimate - half,
                "ci_high": estimate + half,
                "labelled_gap": own.mean(),
                "labelled_low": own.mean() - plain,
                "labelled_high": own.mean() + plain,
                "coder_gap": elsewhere.mean(),
                "coder_low": elsewhere.mean() - coder,
                "coder_high": elsewhere.mean() + coder,
                "weight": weights.mean(),
                "why": "",
            }
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    if (without := table["why"] != "").all():
        raise AgreementError("; ".join(table["code"] + ": " + table["why"]))
    return table.loc[without.sort_values(kind="stable").index].reset_index(drop=True)


def corrected_error(
    own: np.ndarray, apart: np.ndarray, elsewhere: np.ndarray, weights: np.ndarray, share: float
) -> float:
    """Compute the standard error of a corrected mean.

    The variance is Var(own - weight apart) / n + weight² (N - n) Var(elsewhere) / N².
    """
    labelled = (own - weights * apart).var(ddof=1) / len(own)
    rest = weights.mean() ** 2 * (1.0 - share) / len(elsewhere) * elsewhere.var(ddof=1)
    return float(np.sqrt(labelled + rest))


def reach_of_mean(values: np.ndarray, ci_level: float) -> float:
    """Compute the margin of error of a mean, by the t distribution."""
    n = len(values)
    return float(stats.t.ppf((1 + ci_level) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n))


def _half_gaps(rows: pd.DataFrame, column: str, kind: str, between: tuple[str, str]) -> pd.Series:
    means = rows.pivot_table(
        index="dialogue_id", columns=kind, values=column, aggfunc="mean"
    ).reindex(columns=list(between))
    return means[between[0]] - means[between[1]]


def main() -> None:
    """Write the three tables."""
    for name, table in strategy_results(load_strategy_turns()).items():
        table.to_csv(
            find_root() / "data" / "esconv" / f"{name}.csv", index=False, float_format="%.6g"
        )


if __name__ == "__main__":
    main()
