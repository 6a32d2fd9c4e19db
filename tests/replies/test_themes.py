import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.metrics import cohen_kappa_score, recall_score

from heart_utils.replies.codes import CodesError, code_by_words, theme_overlap
from heart_utils.runs import find_root

BOOK = {
    "themes": [
        {"name": "warmth", "words": ["warm*", "kind"]},
        {"name": "advice", "words": ["next step", "it's a plan"]},
    ]
}


def code(reasons, book):
    texts = reasons.rename(columns={"reason_id": "reply_id", "rationale": "text"}).assign(
        state="valid", simulated=True
    )
    found = code_by_words(texts, [SimpleNamespace(**theme) for theme in book["themes"]])
    return found.rename(columns={"reply_id": "reason_id"})


def named(text):
    codes = code(pd.DataFrame({"reason_id": ["r"], "rationale": [text]}), BOOK)
    return set(codes.loc[codes["probability"] == 1.0, "code"])


@pytest.mark.parametrize(
    ("text", "themes"),
    [
        ("So WARMLY put", {"warmth"}),
        ("unkind of it", set()),
        ("kindness", set()),
        ("The next, step by step.", {"advice"}),
        ("the next big step", set()),
        ("It's a plan", {"advice"}),
        ("not warm, no next step", {"warmth", "advice"}),
    ],
)
def test_words_are_found_whole_or_by_their_beginning(text, themes):
    assert named(text) == themes


def test_silence_is_not_the_absence_of_a_theme():
    codes = code(
        pd.DataFrame({"reason_id": ["r", "s", "t"], "rationale": [None, "  ", "warm"]}), BOOK
    )
    assert codes.loc[codes["state"] == "abstained", "reason_id"].tolist() == ["r", "s"] * 2
    assert codes.loc[codes["state"] == "abstained", "probability"].isna().all()


@pytest.fixture(scope="module")
def shipped():
    root = find_root()
    lines = (root / "data" / "sample" / "reasons.jsonl").read_text(encoding="utf-8").splitlines()
    book = yaml.safe_load((root / "data" / "rubrics" / "reasons.yaml").read_text(encoding="utf-8"))
    reasons = pd.DataFrame([json.loads(line) for line in lines]).assign(
        rater_kind=lambda rows: rows["part"]
    )
    names = [theme["name"] for theme in book["themes"]]
    given = [
        (row.reason_id, name, float(name in row.codes))
        for row in reasons.itertuples()
        for name in names
    ]
    return reasons, book, pd.DataFrame(given, columns=["reason_id", "code", "probability"])


def test_the_shipped_reasons_say_what_they_are(shipped):
    reasons, book, _ = shipped
    assert len(reasons) == 120
    assert reasons["simulated"].all()
    assert set(reasons["drafted_by"]) == set(reasons["coded_by"]) == {"language model"}
    assert reasons["part"].value_counts().to_dict() == {"human": 60, "model": 60}
    assert {code for codes in reasons["codes"] for code in codes} == {
        theme["name"] for theme in book["themes"]
    }
    assert not reasons["rationale"].duplicated().any()


def test_every_word_of_the_shipped_codebook_is_in_its_theme_once(shipped):
    _, book, _ = shipped
    for theme in book["themes"]:
        assert theme["dimension"] in {
            "human_alignment",
            "empathic_responsiveness",
            "attunement",
            "resonance",
            "task_following",
        }
        assert len(theme["words"]) == len(set(theme["words"]))
        assert all(re.fullmatch(r"[\w' é-]+\*?( [\w'-]+\*?)*", word) for word in theme["words"])


def test_the_lexicon_fits_the_reasons_it_was_written_on_and_half_misses_those_held_back(shipped):
    """A consistency check, not validity: both sides were drafted with a language model."""
    reasons, book, given = shipped
    found = code(reasons, book)
    kappa, recall = {}, {}
    for split, rows in reasons.groupby("split"):
        both = (
            found[found["reason_id"].isin(rows["reason_id"])]
            .merge(given, on=["reason_id", "code"])
            .dropna()
        )
        said, meant = both["probability_x"] >= 0.5, both["probability_y"] >= 0.5
        kappa[split], recall[split] = (
            round(cohen_kappa_score(said, meant), 2),
            round(recall_score(meant, said), 2),
        )
    assert kappa == {"held_back": 0.61, "open": 0.91}
    assert recall == {"held_back": 0.48, "open": 0.92}


def draw_reasons(rng, *, n=40, n_themes=5, shared=0.0):
    """Reasons of both parties for n pairs; with `shared` the judge names the person's themes
    (simulated)."""
    themes = [f"t{k}" for k in range(n_themes)]
    reasons, codes = [], []
    for pair in range(n):
        by_person = rng.random(n_themes) < 0.4
        by_judge = np.where(rng.random(n_themes) < shared, by_person, rng.random(n_themes) < 0.4)
        for kind, said in (("human", by_person), ("model", by_judge)):
            name = f"{kind}{pair}"
            reasons.append((name, f"p{pair}", f"d{pair // 2}", kind, rng.choice(["a", "b"])))
            codes += [
                (name, theme, float(there)) for theme, there in zip(themes, said, strict=True)
            ]
    reasons = pd.DataFrame(
        reasons, columns=["reason_id", "pair_id", "dialogue_id", "rater_kind", "verdict"]
    )
    return reasons, pd.DataFrame(codes, columns=["reason_id", "code", "probability"])


def test_overlap_is_what_going_through_all_pairs_of_reasons_gives(rng):
    reasons, codes = draw_reasons(rng)
    sets = codes[codes["probability"] == 1.0].groupby("reason_id")["code"].agg(set).to_dict()
    rows = [row for row in reasons.to_dict("records") if row["reason_id"] in sets]
    people, judges = (
        [row for row in rows if row["rater_kind"] == kind] for kind in ("human", "model")
    )
    met = [
        (p, m)
        for p, m in itertools.product(people, judges)
        if p["pair_id"] == m["pair_id"] and p["verdict"] == m["verdict"]
    ]
    apart = [(p, m) for p, _ in met for _, m in met if p["dialogue_id"] != m["dialogue_id"]]

    def mean_dice(pairs):
        return np.mean(
            [
                2
                * len(sets[p["reason_id"]] & sets[m["reason_id"]])
                / (len(sets[p["reason_id"]]) + len(sets[m["reason_id"]]))
                for p, m in pairs
            ]
        )

    dice = theme_overlap(reasons, codes, n_resamples=0).iloc[0]
    assert dice["n_reason_pairs"] == len(met)
    assert dice["overlap"] == pytest.approx(mean_dice(met))
    assert dice["permuted"] == pytest.approx(mean_dice(apart))
    assert dice["corrected"] == pytest.approx(
        (mean_dice(met) - mean_dice(apart)) / (1 - mean_dice(apart))
    )


def test_reasons_without_a_common_cause_overlap_as_shuffled_ones_do(rng):
    excess = theme_overlap(*draw_reasons(rng, n=300)).iloc[0]
    assert excess["overlap"] > 0.35  # themes that many name overlap whatever the pair
    assert excess["excess_low"] < 0 < excess["excess_high"]


def test_reasons_with_a_common_cause_overlap_more(rng):
    assert theme_overlap(*draw_reasons(rng, n=300, shared=0.7))["excess_low"].item() > 0.2


def test_a_reason_that_names_nothing_is_left_out_and_counted(rng):
    reasons, codes = draw_reasons(rng, n=10)
    codes.loc[codes["reason_id"] == "human3", "probability"] = 0.0
    empty = codes.groupby("reason_id")["probability"].max().eq(0).sum()
    assert theme_overlap(reasons, codes, n_resamples=0)["n_empty"].item() == empty >= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda reasons: reasons.drop(columns="verdict"), "no column verdict"),
        (lambda reasons: reasons[reasons["rater_kind"] == "human"], "and 0 by models name a theme"),
        (
            lambda reasons: reasons.assign(pair_id=reasons["reason_id"]),
            "share no pair on which they agree",
        ),
    ],
)
def test_reasons_that_cannot_be_compared_are_refused(rng, change, message):
    reasons, codes = draw_reasons(rng, n=10)
    with pytest.raises(CodesError, match=message):
        theme_overlap(change(reasons), codes)
