"""A conjoint: replies rewritten with randomised features, and what their effects are estimated to
be."""

import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from heart_collect.calls.ledger import open_ledger
from heart_collect.judging.design import (
    PADDING,
    PROFILES,
    REWRITES,
    WARMTH,
    pair_replies,
    profile_features,
    rewrite_replies,
)
from heart_collect.judging.judge import JudgeError, plan_questions
from heart_collect.judging.recipe import RecipeError, read_recipe
from heart_collect.people.study import _texts_shown
from heart_utils.judges.position import feature_bias, feature_gaps
from heart_utils.runs import find_root
from heart_utils.sources.load import load_replies

GIVEN = load_replies("sample")
LABELS = ["expert", "person", "ai"]


def words(text):
    return re.sub(r"^- ", "", text, flags=re.MULTILINE).split()


def test_only_shortening_loses_words_and_only_these_are_added():
    bases = GIVEN.set_index("history_id")["text"]
    for row in rewrite_replies(GIVEN, 16, seed=0).to_dict("records"):
        ways, said = row["responder"].split("+"), words(row["text"])
        before, after = (
            (WARMTH.split() if "warmed" in ways else []),
            (PADDING.split() if "padded" in ways else []),
        )
        kept = said[len(before) : len(said) - len(after)]
        assert said == [*before, *kept, *after]
        base = bases[row["history_id"]].split()
        assert kept == (base[: len(kept)] if "shortened" in ways else base)
        assert 0 < len(kept) < len(base) if "shortened" in ways else True
        marked = [line.startswith("- ") for line in row["text"].split("\n")]
        assert sum(marked) == (len(marked) - ("warmed" in ways) if "listed" in ways else 0)


@pytest.mark.parametrize(("n", "kept"), [(2, 1), (3, 2), (4, 2), (5, 3), (7, 4)])
def test_a_shortened_reply_keeps_its_first_half_of_sentences(n, kept):
    sentences = [f"Number {number}." for number in range(n)]
    ways = rewrite_replies(GIVEN.head(1).assign(text=" ".join(sentences)), 16, seed=0).set_index(
        "responder"
    )["text"]
    assert ways["shortened"] == " ".join(sentences[:kept])
    assert ways["plain"] == " ".join(sentences)


def test_all_sixteen_ways_of_a_reply_differ():
    written = rewrite_replies(GIVEN, 16, seed=0)
    assert set(written["responder"]) == set(PROFILES)
    assert not written.duplicated(["history_id", "text"]).any()


def test_each_feature_is_on_in_half_of_a_history_s_replies_and_apart_from_the_others():
    written = rewrite_replies(GIVEN, 4, labels=LABELS, seed=3)
    features = profile_features(written)
    by_history = features[list(REWRITES)].groupby(written["history_id"].to_numpy()).sum()
    assert (by_history == 2).all(axis=None)
    counts = written.groupby("history_id")["label"].value_counts().unstack(fill_value=0)  # noqa: PD010
    assert counts.isin([1, 2]).all(axis=None)
    many = pd.concat([rewrite_replies(GIVEN, 4, labels=LABELS, seed=seed) for seed in range(20)])
    # the two labels exclude each other
    gaps = profile_features(many).corr().to_numpy()[np.triu_indices(6, 1)][:-1]
    assert np.abs(gaps).max() < 0.08  # 2,880 replies: four standard errors


def test_features_say_what_the_texts_show():
    written = rewrite_replies(GIVEN, 4, labels=LABELS, seed=3)
    text, features = written["text"], profile_features(written).set_axis(written.index)
    shown = {
        "padded": text.str.endswith(PADDING),
        "listed": text.str.contains("^- ", flags=re.MULTILINE),
    }
    shown |= {
        "warmed": text.str.startswith(WARMTH),
        "said: an expert": written["label"] == "expert",
    }
    assert features[list(shown)].eq(pd.DataFrame(shown).astype(float)).all(axis=None)
    longer = [
        set(GIVEN.set_index("history_id")["text"][name].split()) for name in written["history_id"]
    ]
    cut = [not before <= set(words(said)) for before, said in zip(longer, text, strict=True)]
    assert features["shortened"].tolist() == cut


def test_what_is_drawn_depends_on_the_seed_and_the_history_alone():
    whole = rewrite_replies(GIVEN, 4, labels=LABELS, seed=3).set_index("reply_id")
    part = rewrite_replies(GIVEN.iloc[::-1].head(9), 4, labels=LABELS, seed=3).set_index("reply_id")
    assert part.equals(whole.loc[part.index])
    other = rewrite_replies(GIVEN, 4, labels=LABELS, seed=4)
    assert set(other["reply_id"]) != set(whole.index)


def test_replies_of_one_sentence_and_several_of_a_history_are_said():
    with pytest.warns(UserWarning, match="1 of 2 replies have one sentence"):
        rewrite_replies(GIVEN.head(2).assign(text=["One. Two.", "One only."]), 2, seed=0)
    with pytest.raises(ValueError, match="several given replies"):
        rewrite_replies(pd.concat([GIVEN, GIVEN]), 2, seed=0)


def study(effects, n_copies, rng):
    """Verdicts in both orders, by a judge that leans to the first side and whose taste is
    `effects`."""
    given = pd.concat(
        [GIVEN.assign(history_id=GIVEN["history_id"] + f"-{copy}") for copy in range(n_copies)]
    )
    replies = rewrite_replies(given, 4, labels=LABELS, seed=1)
    comparisons = pair_replies(replies, rng=rng).assign(dialogue_id=lambda rows: rows["history_id"])
    features = profile_features(replies)
    lead = feature_gaps(comparisons, features).loc[comparisons["pair_id"]].to_numpy() @ np.array(
        effects
    )
    lean = np.where(comparisons["order"] == "ab", 1.0, -1.0)
    won = rng.random(len(lead)) < expit(lead + lean)
    about = {
        "rater": "judge",
        "rater_kind": "model",
        "dimension": "overall",
        "state": "valid",
        "repeat": 0,
    }
    return comparisons.assign(**about, verdict=np.where(won, "a", "b")), comparisons, features


def test_known_effects_are_found():
    effects = [-0.5, 0.0, 0.5, 1.0, 0.5, 0.0]
    verdicts, comparisons, features = study(effects, 12, np.random.default_rng(5))
    found = (
        feature_bias(verdicts, comparisons, features, within_authors=False)
        .set_index("feature")
        .loc[features.columns]
    )
    # A lean of 1 in either order flattens effects a little: the share at an effect e is the mean of
    # two.
    shares = (expit(np.array(effects) + 1.0) + expit(np.array(effects) - 1.0)) / 2.0
    assert expit(found["log_odds"]).to_numpy() == pytest.approx(shares, abs=0.04)
    assert ((found["ci_low"] > 0) | (found["ci_high"] < 0)).tolist() == [
        True,
        False,
        True,
        True,
        True,
        False,
    ]
    swapped = features[[*features.columns[1:], features.columns[0]]].set_axis(
        features.columns, axis=1
    )
    wrong = (
        feature_bias(verdicts, comparisons, swapped, within_authors=False)
        .set_index("feature")
        .loc[features.columns]
    )
    assert expit(wrong["log_odds"]).to_numpy() != pytest.approx(shares, abs=0.04)


def test_people_s_votes_pooled_as_the_page_says_are_each_one_vote():
    verdicts, comparisons, features = study(
        [-0.5, 0.0, 0.5, 1.0, 0.5, 0.0], 2, np.random.default_rng(6)
    )
    twice = pd.concat([verdicts.assign(rater=f"p{number}") for number in range(3)])
    people = twice.assign(rater="people", repeat=pd.factorize(twice["rater"])[0])
    one, three = (
        feature_bias(rows, comparisons, features, within_authors=False)
        for rows in (verdicts, people)
    )
    assert three["n_pairs"].tolist() == (3 * one["n_pairs"]).tolist()
    # the same votes three times over: clusters keep the error from shrinking
    columns = ["log_odds", "se"]
    assert three[columns].to_numpy() == pytest.approx(one[columns].to_numpy(), rel=1e-6)


def test_a_recipe_puts_rewritings_in_the_place_of_given_replies():
    recipe = read_recipe("conjoint")
    histories = recipe.choose_histories()
    replies = recipe.answer(histories, ledger=open_ledger("sqlite://"))
    assert replies.groupby("history_id")["responder"].nunique().eq(4).all()
    assert set(replies["responder"]) <= set(recipe.list_responders()["responder"]) == set(PROFILES)
    comparisons = recipe.pair(replies)
    assert len(comparisons) == len(histories) * len(list(combinations(range(4), 2))) * 2
    asked = plan_questions(histories, replies, comparisons, recipe.judges)
    label = replies.set_index("reply_id")["label"]
    for question in asked:
        pair = comparisons.set_index("comparison_id").loc[
            question.about["comparison_id"], ["reply_a", "reply_b"]
        ]
        shown = label[pair].tolist()
        assert list(question.template.labels) == (
            shown if question.about["order"] == "ab" else shown[::-1]
        )
    with pytest.raises(JudgeError, match="'told' tells who wrote, and some replies have no label"):
        plan_questions(histories, replies.drop(columns="label"), comparisons, recipe.judges)
    with pytest.raises(JudgeError, match="some replies have no label"):
        plan_questions(
            histories,
            replies.assign(label=replies["label"].where(replies.index > 0)),
            comparisons,
            recipe.judges,
        )
    bare = replace(recipe, labels=()).answer(histories, ledger=open_ledger("sqlite://"))
    assert bare["label"].isna().all()
    assert list(profile_features(bare)) == list(REWRITES)


def test_people_read_the_label_above_the_reply_and_nothing_where_there_is_none():
    replies = rewrite_replies(GIVEN.head(1), 2, labels=["ai"], seed=0)
    assert all(text.startswith("Written by an AI:\n") for text in _texts_shown(replies).values())
    bare = rewrite_replies(GIVEN.head(1), 2, seed=0)
    assert list(_texts_shown(bare).values()) == bare["text"].tolist()
    assert _texts_shown(GIVEN) == dict(zip(GIVEN["reply_id"], GIVEN["text"], strict=True))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("rewrites: 4", "rewrites: 3"),
        ("person, ai", "person, robot"),
        ("rewrites: 4", "rewrites: 4\n  given_replies: false"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, was, now):
    file = tmp_path / "mine.yaml"
    file.write_text((find_root() / "params" / "conjoint.yaml").read_text().replace(was, now))
    with pytest.raises(RecipeError, match="rewrites|labels"):
        read_recipe(str(file.with_suffix("")))
