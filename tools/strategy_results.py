"""Score a coder of strategies on ESConv and correct a gap by it, for chapter 12; ESConv's words stay where they are.

``python -m tools.strategy_results`` writes the three tables of ``data/esconv/`` anew; a test compares them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.naive_bayes import ComplementNB
from sklearn.pipeline import make_pipeline

from heart_utils.agreement.prediction_powered import corrected_gap
from heart_utils.ratings.resampling import estimate_rng
from heart_utils.replies.strategies import score_labels, train_coder
from heart_utils.runs import find_root
from heart_utils.sources.esconv import load_strategy_turns

SEED = 20260109
N_BY_HAND = 60


def strategy_results(turns: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Learn from ESConv's training dialogues without HEART's, and score and correct on its test dialogues."""
    parts = {
        name: turns[(turns["split"] == split) & ~(turns["in_heart"] & (split != "test"))]
        for name, split in {"learn": "train", "calibrate": "valid", "test": "test"}.items()
    }
    coder = train_coder(parts["learn"], parts["calibrate"])
    test = parts["test"].assign(found=coder.label(parts["test"]["text"])).rename(columns={"strategy": "given"})
    scores = score_labels(test[["given", "found", "dialogue_id"]], rng=estimate_rng(SEED, "strategy coder"), n_resamples=1000)
    bayes = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True), ComplementNB())
    by_bayes = bayes.fit(parts["learn"]["text"], parts["learn"]["strategy"]).predict(test["text"])
    plain = {
        "naive_bayes_macro_f1": f1_score(test["given"], by_bayes, average="macro"),
        "majority_share": test["given"].value_counts(normalize=True).iloc[0],
        "n_learned": len(parts["learn"]),
        "n_test": len(test),
    }
    scored = scores.table.rename(columns={"estimate": "value"})[["value", "ci_low", "ci_high"]]
    quantities = pd.concat([scored, pd.DataFrame({"value": plain})])
    confusion = scores.confusion.rename_axis("given").reset_index().melt("given", var_name="found", value_name="turns")
    return {
        "coder": quantities.rename_axis("quantity").reset_index(),
        "confusion": confusion,
        "gaps": _gaps(test, coder.probabilities(test["text"])),
    }


def _gaps(test: pd.DataFrame, chances: pd.DataFrame) -> pd.DataFrame:
    """Tell how much more often each strategy is used in the first half of a dialogue: in truth, and by each estimate."""
    halves = test.assign(reply_id=test["turn_id"], half=np.where(test["position"] < 0.5, "first", "second"))
    of_turn = ["reply_id", "half", "dialogue_id"]
    codes = chances.join(halves[of_turn]).melt(id_vars=of_turn, var_name="code", value_name="probability")
    by_hand = (
        halves[of_turn]
        .join(pd.get_dummies(halves["given"], dtype=float))
        .melt(id_vars=of_turn, var_name="code", value_name="probability")
    )
    drawn = estimate_rng(SEED, "labelled by hand").choice(halves["dialogue_id"].unique(), N_BY_HAND, replace=False)
    gaps = corrected_gap(codes, by_hand[by_hand["dialogue_id"].isin(drawn)], kind="half", between=("first", "second"))
    shares = by_hand.pivot_table(index=["code", "dialogue_id"], columns="half", values="probability")
    gaps = gaps.merge((shares["first"] - shares["second"]).groupby("code").mean().rename("truth").reset_index())
    others = [f"{kind}_{end}" for kind in ("labelled", "coder") for end in ("gap", "low", "high")]
    return gaps[["code", "truth", *others, "gap", "ci_low", "ci_high", "weight", "n_labelled", "n_dialogues"]]


def main() -> None:
    """Write the three tables."""
    for name, table in strategy_results(load_strategy_turns()).items():
        table.to_csv(find_root() / "data" / "esconv" / f"{name}.csv", index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
