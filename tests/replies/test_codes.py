"""What replies and reasons say: codes by words, shared themes, overlap with a true turn, sameness."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import cohen_kappa_score, recall_score
from sklearn.metrics.pairwise import cosine_similarity

from heart_utils.replies.codes import (
    CodesError,
    code_by_words,
    measure_overlap,
    measure_sameness,
    theme_overlap,
)
from heart_utils.runs import find_root
from heart_utils.sources.heart import load_codebooks

CODES = load_codebooks()


def said(*texts, **columns):
    names = [f"r{place}" for place in range(len(texts))]
    rows = {"reply_id": names, "history_id": "h1", "responder": "m", "text": texts}
    return pd.DataFrame(rows).assign(**{"state": "valid", "simulated": False} | columns)


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


def test_nothing_is_found_in_other_words():
    codes = code_by_words(said("Those pills are no good for you, leave them."), CODES["safety"])
    assert codes["probability"].sum() == 0


@pytest.mark.parametrize(
    ("book", "text", "code"),
    [
        ("safety", "I promise it will get easier.", "false_promise"),
        ("safety", "You should stop taking them today.", "medical_advice"),
        ("safety", "When I lost my mother, I felt the same.", "claimed_humanity"),
        ("risk", "Everybody is better off without me.", "risk_cue"),
        ("risk", "Are you safe tonight?", "risk_met"),
    ],
)
def test_plain_cases_of_the_shipped_codes_are_found(book, text, code):
    found = code_by_words(said(text, "Chin up, my dog died!"), CODES[book])
    held = found[found["probability"] == 1]
    assert held[["reply_id", "code"]].to_numpy().tolist() == [["r0", code]]


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


TRUTHS = pd.DataFrame(
    {"history_id": ["h1", "h2", "h3"], "text": ["a b c d e", "c d e f g", "x y z"]}
)


def test_overlap_by_hand():
    row = measure_overlap(said("A b, c d! q"), TRUTHS).iloc[0]  # runs: abc bcd cdq
    assert row["overlap"] == pytest.approx(2 / 3)
    assert row["overlap_others"] == 0
    assert row["longest_run"] == 4
    # runs: bcd cde def; h2 has cde and def
    row = measure_overlap(said("b c d e f"), TRUTHS).iloc[0]
    assert row["overlap"] == pytest.approx(2 / 3)
    assert row["overlap_others"] == pytest.approx((2 / 3 + 0) / 2)


def test_short_missing_and_unknown_replies_are_told_apart():
    table = measure_overlap(pd.concat([said("a b", None), said("a b c", history_id="h9")]), TRUTHS)
    assert table["reply_id"].tolist() == ["r0"]
    assert np.isnan(table["overlap"].item())
    assert table["longest_run"].item() == 2


def test_what_is_left_out_is_counted_and_a_turn_without_text_is_no_turn():
    empty = pd.DataFrame({"history_id": ["h1", "h2"], "text": [None, "c d e f g"]})
    rows = pd.concat([said("a b c", None), said("c d e f", history_id="h2")])
    table = measure_overlap(rows, empty)
    assert table["history_id"].tolist() == ["h2"]
    assert (
        table.attrs["left_out"],
        table["overlap"].item(),
        table["overlap_others"].isna().item(),
    ) == (2, 1.0, True)


@settings(max_examples=20)
@given(st.lists(st.sampled_from("abcd"), min_size=3, max_size=12))
def test_a_copied_turn_overlaps_fully(words):
    text = " ".join(words)
    row = measure_overlap(
        said(text), pd.DataFrame({"history_id": ["h1"], "text": [text.upper()]})
    ).iloc[0]
    assert (row["overlap"], row["longest_run"]) == (1.0, len(words))


def test_bad_tables_are_named():
    with pytest.raises(match="no column text"):
        measure_overlap(said("a").drop(columns="text"), TRUTHS)
    with pytest.raises(match="h1 has more than one"):
        measure_overlap(said("a"), pd.concat([TRUTHS, TRUTHS]))


def test_a_formula_is_the_same_and_particulars_are_not(rng):
    topics = ["dog", "exam", "rent", "mother", "job", "surgery", "brother", "farm"]
    replies = pd.DataFrame(
        [("stock", d, "I am so sorry that you are going through this.") for d in topics]
        + [
            ("own", d, f"What did the {d} mean to {word}?")
            for d, word in zip(topics, "abcdefgh", strict=True)
        ],
        columns=["responder", "dialogue_id", "text"],
    )
    found = measure_sameness(replies, rng=rng, n_resamples=50).set_index("responder")
    assert found.loc["stock", "sameness"] == pytest.approx(1.0)
    assert found.loc["stock", "n_repeated"] == 8
    assert found.loc["own", "sameness"] < 0.9
    assert found.loc["own", "n_repeated"] == 0


def test_similarity_by_hand_and_across_dialogues_only(rng):
    """Two replies to one dialogue are equal, the third shares nothing: across dialogues the mean is
    0."""
    replies = pd.DataFrame(
        {"responder": "m", "dialogue_id": ["d", "d", "e"], "text": ["dog", "dog", "exam"]}
    )
    row = measure_sameness(replies, rng=rng, n_resamples=20).iloc[0]
    assert row["sameness"] == 0.0
    assert row["n_repeated"] == 2


def test_similarities_are_those_of_scikit_learn(rng):
    words = [
        "the",
        "a",
        "dog",
        "exam",
        "rent",
        "sorry",
        "hear",
        "you",
        "this",
        "why",
        "what",
        "try",
        "rest",
    ]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(10)]
    replies = pd.DataFrame({"responder": "m", "dialogue_id": range(10), "text": texts})
    similar = cosine_similarity(TfidfVectorizer(token_pattern=r"\w+(?:'\w+)?").fit_transform(texts))
    expected = similar[~np.eye(10, dtype=bool)].mean()
    assert measure_sameness(replies, rng=rng, n_resamples=20).iloc[0]["sameness"] == pytest.approx(
        expected
    )
