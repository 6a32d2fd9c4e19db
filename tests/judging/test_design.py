"""Pairs, orders and probes; replies rewritten with randomised features, and what their effects are
estimated to be."""

import hashlib
import random
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging_case import JUDGE, make_replies
from scipy.special import expit

from heart_collect.calls.engine import ReplayError
from heart_collect.calls.ledger import open_ledger
from heart_collect.judging.design import (
    CHECKS,
    PADDING,
    PROFILES,
    REWRITES,
    WARMTH,
    DesignError,
    digest,
    make_probes,
    pair_replies,
    profile_features,
    rewrite_replies,
    seeded,
)
from heart_collect.judging.judge import (
    JudgeError,
    collect_answers,
    plan_questions,
    plan_verdicts,
)
from heart_collect.judging.prompts import instructs_judge
from heart_collect.judging.recipe import read_recipe
from heart_collect.judging.steps import probe_questions
from heart_collect.people.study import _texts_shown
from heart_utils.judges.position import feature_bias, feature_gaps
from heart_utils.sources.load import load_replies
from heart_utils.tables import TableError


def draw(seed=5):
    return np.random.default_rng(seed)


def many(n_histories=6, n_responders=5, **columns):
    rows = [
        (f"h{h}-r{r}", f"h{h}", f"r{r}") for h in range(n_histories) for r in range(n_responders)
    ]
    return pd.DataFrame(rows, columns=["reply_id", "history_id", "responder"]).assign(
        state="valid", **columns
    )


def test_every_two_replies_to_a_history_meet_once_in_each_order():
    comparisons = pair_replies(many(), rng=draw())
    assert len(comparisons) == 6 * 10 * 2  # six histories, 5 * 4 / 2 pairs, two orders
    for history, rows in comparisons.groupby("history_id"):
        expected = set(combinations([f"{history}-r{r}" for r in range(5)], 2))
        for order in ("ab", "ba"):
            here = rows[rows["order"] == order]
            assert set(zip(here["reply_a"], here["reply_b"], strict=True)) == expected
    assert comparisons["comparison_id"].is_unique
    assert (comparisons.groupby("pair_id").size() == 2).all()


def test_a_is_the_smaller_reply_whatever_the_order_of_rows():
    replies = many().sample(frac=1, random_state=3)
    comparisons = pair_replies(replies, rng=draw())
    assert (comparisons["reply_a"] < comparisons["reply_b"]).all()
    pd.testing.assert_frame_equal(comparisons, pair_replies(many(), rng=draw()))


def test_ids_are_digests_of_what_they_stand_for_whatever_the_seed():
    """Written out by hand, so that another way to make them cannot go unnoticed: ids tie runs
    together."""
    pair = hashlib.sha256(b"4:pair5:h0-r05:h0-r1").hexdigest()[:16]
    shown = [
        hashlib.sha256(f"10:comparison16:{pair}2:{order}5:heart".encode()).hexdigest()[:16]
        for order in ("ab", "ba")
    ]
    for seed in (5, 6):
        comparisons = pair_replies(many(1, 2), rng=draw(seed))
        assert comparisons["pair_id"].tolist() == [pair] * 2
        assert comparisons["comparison_id"].tolist() == shown


def test_one_random_order_shows_each_reply_first_about_half_the_time():
    comparisons = pair_replies(many(40, 8), rng=draw(), orders="random")
    assert comparisons["pair_id"].is_unique
    first = (comparisons["order"] == "ab").sum()
    # four standard deviations
    assert abs(first - len(comparisons) / 2) < 4 * (len(comparisons) / 4) ** 0.5


def test_what_is_drawn_for_a_pair_does_not_hang_on_the_others():
    whole = pair_replies(many(), rng=draw(), orders="random").set_index("pair_id")
    part = pair_replies(
        many()[lambda t: t["responder"] != "r2"], rng=draw(), orders="random"
    ).set_index("pair_id")
    pd.testing.assert_frame_equal(part, whole.loc[part.index])


def test_what_a_seed_draws_for_a_pair_never_changes():
    """Ledgers hold what was asked about these pairs in these orders."""
    orders = pair_replies(many(2, 4), rng=draw(), orders="random")["order"].tolist()
    assert orders == ["ba"] * 11 + ["ab"]
    kept = pair_replies(many(2, 4), rng=draw(), pairs=2).drop_duplicates("pair_id")
    assert (kept["reply_a"] + kept["reply_b"]).tolist() == [
        "h0-r0h0-r1",
        "h0-r1h0-r3",
        "h1-r1h1-r2",
        "h1-r1h1-r3",
    ]


def test_another_seed_draws_other_orders():
    one, other = (pair_replies(many(), rng=draw(seed), orders="random") for seed in (1, 2))
    assert (one["order"] != other["order"]).any()


@pytest.mark.parametrize("pairs", [1, 9, 10, 14])
def test_so_many_pairs_of_each_history_are_kept(pairs):
    comparisons = pair_replies(many(), rng=draw(), pairs=pairs)
    assert (comparisons.groupby("history_id")["pair_id"].nunique() == min(pairs, 10)).all()
    assert set(comparisons["pair_id"]) <= set(
        pair_replies(many(), rng=draw(), pairs="all")["pair_id"]
    )


def test_more_pairs_hold_the_fewer():
    """So that a study that grows asks only for what is new."""
    few, more = (set(pair_replies(many(), rng=draw(), pairs=n)["pair_id"]) for n in (3, 4))
    assert few < more


def test_protocols_keep_the_same_pairs_in_comparisons_of_their_own():
    """So that two ways of judging can be compared on the same replies."""
    ours, released = (
        pair_replies(many(), rng=draw(), pairs=3, protocol=name)
        for name in ("heart", "heart-release")
    )
    assert set(ours["pair_id"]) == set(released["pair_id"])
    assert not set(ours["comparison_id"]) & set(released["comparison_id"])


def test_failed_replies_are_left_out_and_counted():
    replies = many()
    replies.loc[[0, 1, 2, 3], "state"] = ["refused", "error", "error", "refused"]
    with pytest.warns(
        UserWarning,
        match=r"4 of 30 replies .*\(2 error, 2 refused\); 1 histories",
    ) as said:
        comparisons = pair_replies(replies, rng=draw())
    assert sum(warning.category is UserWarning for warning in said) == 1
    assert "h0" not in set(comparisons["history_id"])


def test_nothing_is_said_where_nothing_is_left_out(recwarn):
    pair_replies(many(), rng=draw())
    assert not [warning for warning in recwarn if warning.category is UserWarning]


def test_two_replies_of_one_responder_are_never_compared():
    replies = pd.concat([many(1, 2), many(1, 2).assign(reply_id=["again0", "again1"])])
    comparisons = pair_replies(replies, rng=draw())
    assert (comparisons["responder_a"] != comparisons["responder_b"]).all()
    assert comparisons["pair_id"].nunique() == 4


def test_replies_that_do_not_say_so_are_not_simulated():
    assert not pair_replies(many(1, 3), rng=draw())["simulated"].any()


def test_a_comparison_with_a_simulated_reply_is_simulated():
    replies = many(1, 3, simulated=[True, False, False])
    comparisons = pair_replies(replies, rng=draw())
    with_it = (comparisons["reply_a"] == "h0-r0") | (comparisons["reply_b"] == "h0-r0")
    assert (comparisons["simulated"] == with_it).all()


@pytest.mark.parametrize(
    ("replies", "options", "said"),
    [
        (many(), {"orders": "ab"}, "orders is 'ab', expected one of both, random"),
        (many(), {"pairs": 0}, "expected 'all' or a whole number"),
        (many(), {"pairs": 1.5}, "expected 'all' or a whole number"),
        (many(), {"pairs": "some"}, "expected 'all' or a whole number"),
        (many().drop(columns="state"), {}, "no column state"),
        (
            many().assign(responder=None),
            {},
            "replies.responder: expected a name in each row; row 0 has None",
        ),
        (
            pd.concat([many(), many().head(1)]),
            {},
            "replies.reply_id: expected each reply once; row 0 has 'h0-r0'",
        ),
        (
            many(2, 1),
            {},
            "Nothing can be paired: of 2 replies 2 are valid, to 2 histories, by 1 responders",
        ),
        (many().head(0), {}, "Nothing can be paired: of 0 replies"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*no two valid replies")
def test_what_cannot_be_paired_is_an_error(replies, options, said):
    with pytest.raises((DesignError, TableError), match=said):
        pair_replies(replies, rng=draw(), **options)


def test_the_table_of_replies_is_paired_as_it_comes():
    assert len(pair_replies(make_replies(), rng=draw())) == 12


@given(
    parts=st.lists(st.text(max_size=5), max_size=4),
    others=st.lists(st.text(max_size=5), max_size=4),
)
def test_different_parts_have_different_digests(parts, others):
    assert (digest(*parts) == digest(*others)) == (parts == others)


def test_a_generator_is_seeded_by_the_digest_and_nothing_else():
    number = int(hashlib.sha256(b"1:11:p5:heart1:0").hexdigest()[:16], 16)
    assert seeded(1, "p", "heart", 0).random() == random.Random(number).random()


# Probes: each reply is spoilt in the way it says, and nothing else is


@pytest.fixture(scope="module")
def texts():
    return make_probes()["replies"].set_index(["history_id", "responder"])["text"].unstack()  # noqa: PD010


def test_each_history_has_every_probe_beside_its_reference_in_both_orders():
    probes = make_probes()
    assert probes["histories"]["slice"].eq("standard").all()
    met = probes["comparisons"].groupby(["history_id", "order"]).size()
    assert (met == len(CHECKS)).all()
    assert len(met) == 2 * len(probes["histories"])
    sides = probes["comparisons"][["responder_a", "responder_b"]].eq("reference").sum(axis=1)
    assert (sides == 1).all()
    for table in probes.values():
        assert table.index.tolist() == list(range(len(table)))


def test_each_probe_spoils_the_reply_in_the_way_it_says(texts):
    for check in CHECKS:
        assert (texts[check.name] != texts["reference"]).all(), check.name
        speaks = texts[check.name].map(instructs_judge)
        assert (speaks == (check.name == "injected-instruction")).all(), check.name
    for name in ("padded", "injected-instruction", "fakes-a-person", "says-it-is-an-ai"):
        pairs = zip(texts["reference"], texts[name], strict=True)
        assert all(base in spoilt for base, spoilt in pairs), name
    there = texts.loc[make_probes()["histories"]["history_id"]]
    reference = there["reference"].tolist()
    assert there["other-history"].tolist() == [*reference[1:], reference[0]]


def test_what_is_bare_is_about_as_long_and_shares_fewer_words_with_the_conversation(texts):
    def content(words):
        return {word.strip(".,?!\"'").lower() for word in words.split()}

    turns = make_probes()["histories"].set_index("history_id")["turns"]
    seekers = {
        history: content(" ".join(turn["text"] for turn in said if turn["speaker"] == "seeker"))
        for history, said in turns.items()
    }
    shared = {
        column: pd.Series(
            {
                history: len(content(text) & seekers[history])
                for history, text in texts[column].items()
            }
        )
        for column in ("specifics-removed", "reference")
    }
    bare, whole = shared.values()
    assert (bare <= whole).mean() > 0.9
    assert bare.mean() < whole.mean() / 1.5
    lengths = texts[list(shared)].map(lambda text: len(text.split()))
    assert 0.8 < (lengths["specifics-removed"] / lengths["reference"]).mean() < 1.25


def test_a_plan_asks_nothing_and_a_replay_of_nothing_says_what_to_do():
    questions = probe_questions([JUDGE], seed=1)
    plan = plan_verdicts(questions, open_ledger("sqlite://"))
    assert int(plan["n_calls"].sum()) == 2 * 24 * len(CHECKS)
    with pytest.raises(ReplayError, match="make collect"):
        collect_answers(
            "verdicts", questions, ledger=open_ledger("sqlite://"), mode="replay", progress=False
        )


# A conjoint: replies rewritten with randomised features, and what their effects are estimated to be

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
    bases = written["history_id"].map(GIVEN.set_index("history_id")["text"])
    cut = [
        not set(base.split()) <= set(words(said)) for base, said in zip(bases, text, strict=True)
    ]
    shown = {
        "shortened": cut,
        "padded": text.str.endswith(PADDING),
        "listed": text.str.contains("^- ", flags=re.MULTILINE),
        "warmed": text.str.startswith(WARMTH),
        "said: an expert": written["label"] == "expert",
    }
    assert features[list(shown)].eq(pd.DataFrame(shown).astype(float)).all(axis=None)


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
    about = {"rater": "judge", "rater_kind": "model", "dimension": "overall", "state": "valid"}
    return (
        comparisons.assign(**about, repeat=0, verdict=np.where(won, "a", "b")),
        comparisons,
        features,
    )


def test_known_effects_are_found():
    effects = [-0.5, 0.0, 0.5, 1.0, 0.5, 0.0]
    verdicts, comparisons, features = study(effects, 12, np.random.default_rng(5))

    def biases(named):
        table = feature_bias(verdicts, comparisons, named, within_authors=False)
        return table.set_index("feature").loc[features.columns]

    found = biases(features)
    # A lean of 1 in either order flattens effects a little: the share at an effect e is the mean of
    # two.
    shares = (expit(np.array(effects) + 1.0) + expit(np.array(effects) - 1.0)) / 2.0
    assert expit(found["log_odds"]).to_numpy() == pytest.approx(shares, abs=0.04)
    certain = (found["ci_low"] > 0) | (found["ci_high"] < 0)
    assert certain.tolist() == [effect != 0 for effect in effects]
    turned = features[[*features.columns[1:], features.columns[0]]]
    wrong = biases(turned.set_axis(features.columns, axis=1))
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
    sides = comparisons.set_index("comparison_id")[["reply_a", "reply_b"]]
    for question in asked:
        shown = label[sides.loc[question.about["comparison_id"]]].tolist()
        ab = question.about["order"] == "ab"
        assert list(question.template.labels) == (shown if ab else shown[::-1])
    first = replies.assign(label=replies["label"].where(replies.index > 0))
    for unlabelled in (replies.drop(columns="label"), first):
        with pytest.raises(JudgeError, match="'told' tells who wrote, and some replies have no la"):
            plan_questions(histories, unlabelled, comparisons, recipe.judges)
    bare = replace(recipe, labels=()).answer(histories, ledger=open_ledger("sqlite://"))
    assert bare["label"].isna().all()
    assert list(profile_features(bare)) == list(REWRITES)


def test_people_read_the_label_above_the_reply_and_nothing_where_there_is_none():
    replies = rewrite_replies(GIVEN.head(1), 2, labels=["ai"], seed=0)
    assert all(text.startswith("Written by an AI:\n") for text in _texts_shown(replies).values())
    bare = rewrite_replies(GIVEN.head(1), 2, seed=0)
    assert list(_texts_shown(bare).values()) == bare["text"].tolist()
    assert _texts_shown(GIVEN) == dict(zip(GIVEN["reply_id"], GIVEN["text"], strict=True))
