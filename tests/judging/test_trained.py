"""A judge trained on labels: what it learns, what it never sees, what it refuses, and what a saved
one gives away."""

import json
import re
import textwrap

import litellm
import numpy as np
import pandas as pd
import pytest

from heart_collect.judging import trained
from heart_collect.judging.trained import (
    LEAST_REPLIES,
    TrainedJudgeError,
    load_trained_judge,
    train_judge,
)
from heart_utils.agreement.panel import agreement_with_baselines
from heart_utils.runs import find_root

GOOD = "i hear how hard this is and you are not alone with it".split()  # noqa: SIM905
BAD = "just get over it because other people have it much worse".split()  # noqa: SIM905
PLAIN = "today we talk about work home school friends family time and things".split()  # noqa: SIM905


def drawn_replies(n_dialogues=60, seed=1, responders=("x", "y"), shift=0.0):
    """Replies of plain words, with more good or bad words the better or worse they are; `shift`
    favours the first author."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n_dialogues):
        for place, responder in enumerate(responders):
            quality = rng.normal() + (shift if place == 0 else 0.0)
            n_good = rng.binomial(6, 1 / (1 + np.exp(-1.5 * quality)))
            words = [*rng.choice(GOOD, n_good), *rng.choice(BAD, 6 - n_good), *rng.choice(PLAIN, 8)]
            rows.append({"history_id": f"h{number}", "responder": responder, "quality": quality,
                         "text": " ".join(rng.permutation(words))})  # fmt: skip
    replies = pd.DataFrame(rows)
    return replies.assign(reply_id=replies["history_id"] + "--" + replies["responder"])


def scored(replies, raters=("ann",), seed=2):
    rng = np.random.default_rng(seed)
    rows = [
        replies[["reply_id"]].assign(
            score=replies["quality"] + rng.normal(0, 0.3, len(replies)), rater=rater
        )
        for rater in raters
    ]
    return pd.concat(rows, ignore_index=True).assign(
        rater_kind="human", state="valid", dimension="overall"
    )


def voted(replies, seed=3):
    rng = np.random.default_rng(seed)
    a, b = (
        replies[replies["responder"] == name].set_index("history_id")["quality"]
        for name in ("x", "y")
    )
    for_a = rng.random(len(a)) < 1 / (1 + np.exp(-2 * (a - b)))
    return pd.DataFrame({
        "pair_id": a.index + "--x--y", "history_id": a.index, "dialogue_id": a.index, "responder_a": "x", "responder_b": "y",
        "rater": "ann", "rater_kind": "human", "state": "valid", "dimension": "overall", "verdict": np.where(for_a, "a", "b"),
    })  # fmt: skip


def train(replies=None, labels=None, *, leave_out=("dialogue_id",), n_folds=2, **options):
    replies = drawn_replies() if replies is None else replies
    labels = scored(replies) if labels is None else labels
    return train_judge(replies, labels, leave_out=leave_out, n_folds=n_folds, **options)


def new_replies():
    return drawn_replies(seed=9).assign(history_id=lambda rows: "new-" + rows["history_id"])


@pytest.fixture(scope="module")
def judge():
    return train(drawn_replies().assign(licence="CC0-1.0"), n_folds=5)


def test_out_of_fold_scores_follow_the_quality_that_words_show(judge):
    both = judge.predictions.merge(drawn_replies()[["reply_id", "quality"]], on="reply_id")
    assert both["score"].corr(both["quality"], method="spearman") > 0.6


def test_labels_without_a_link_to_words_teach_nothing():
    """A judge that had seen the label of a reply that it scores would do better than zero here."""
    replies = drawn_replies()
    labels = scored(replies).assign(score=np.random.default_rng(5).normal(size=len(replies)))
    predictions = train(replies, labels, n_folds=5).predictions
    rows = predictions.merge(labels[["reply_id", "score"]], on="reply_id")
    # 120 replies: two standard errors are 0.18. Below zero is no knowledge: a fold of high labels
    # leaves low ones to learn from.
    assert rows["score_x"].corr(rows["score_y"]) < 0.18


def test_no_fold_learns_from_a_rater_who_scored_what_it_scores(monkeypatch):
    met = []
    real = trained._left_for_training

    def spy(data, folds, fold, leave_out):
        kept = real(data, folds, fold, leave_out)
        met.append(set(data["rater"][kept]) & set(data["rater"][folds == fold]))
        return kept

    monkeypatch.setattr(trained, "_left_for_training", spy)
    replies = drawn_replies()
    raters = "r" + (replies.index // 6).astype(str)  # six replies, three dialogues each
    train(replies, scored(replies).assign(rater=raters), leave_out=("dialogue_id", "rater"))
    assert met == [set(), set()]


def verdicts_on(replies):
    """Verdicts by a person, and those of a judge trained on them."""
    votes = voted(replies)
    return votes, train(replies, votes, n_folds=4).predictions


def test_verdicts_train_a_judge_that_agrees_more_than_the_authors_names():
    verdicts = verdicts_on(drawn_replies(n_dialogues=200, shift=0.3))
    both = pd.concat(verdicts, ignore_index=True)
    rates = agreement_with_baselines(both, between=("human", "trained"), by=[], n_resamples=100)
    assert rates.set_index("who").loc["author_only", "lead_low"] > 0.0
    assert verdicts[1]["rater_kind"].unique().tolist() == ["trained"]
    assert verdicts[1]["p_a"].between(0, 1).all()


def test_probabilities_of_a_judge_of_verdicts_are_calibrated():
    """By ten bins of equal size the share won is within four standard errors of what was foretold;
    with log-odds three times as large it is not."""
    votes, predictions = verdicts_on(drawn_replies(n_dialogues=400))
    found = predictions.merge(votes[["pair_id", "verdict"]], on="pair_id")
    bins = pd.qcut(found["p_a"], 10)
    won = (found["verdict_y"] == "a").groupby(bins, observed=True).mean()
    foretold = found["p_a"].groupby(bins, observed=True).mean()
    assert np.abs(won - foretold).max() < 4 * np.sqrt(0.25 / 40)


def test_turning_sides_turns_the_answers():
    replies = drawn_replies(n_dialogues=80)
    votes = voted(replies)
    other = votes["verdict"].map({"a": "b", "b": "a"})
    turned = votes.assign(responder_a="y", responder_b="x", verdict=other)
    here, there = (train(replies, rows).predictions["p_a"] for rows in (votes, turned))
    assert here.to_numpy() == pytest.approx(1 - there.to_numpy(), abs=1e-3)


def test_within_an_author_a_judge_no_longer_lives_on_the_author():
    """All of the difference in quality is between authors, whose words differ: within them nothing
    is left to learn."""
    rng = np.random.default_rng(4)
    replies = drawn_replies(n_dialogues=100, shift=3.0)
    of_author = np.where(replies["responder"] == "x", 5.0, 2.0)
    labels = scored(replies).assign(score=of_author + rng.normal(0, 0.3, len(replies)))
    spread = {}
    for within in (None, "responder"):
        rows = train(replies, labels, within=within, n_folds=3).predictions
        means = rows.groupby("responder")["score"].mean()
        spread[within] = means["x"] - means["y"]
        assert means.mean() == pytest.approx(3.5, abs=0.1)
    assert spread[None] > 1.0
    assert abs(spread["responder"]) < 0.1


def test_replies_that_nobody_labelled_are_answered_and_those_without_words_counted():
    replies = drawn_replies(n_dialogues=70)
    labels = scored(replies)
    labels = labels[labels["reply_id"].str.extract(r"h(\d+)")[0].astype(int).to_numpy() < 60]
    replies["text"] = replies["text"].mask(replies.index.isin([3, 7]), None)
    found = train(replies, labels)
    assert len(found.predictions) == 138
    assert found.predictions["score"].notna().all()
    counted = {"n_without_words": 2, "n_left_out": 2, "n_labels": 118}
    assert found.trained_on | counted == found.trained_on


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ('"intercept": ', '"intercept": 0.5, "was": ', "changed after it was saved"),
        ("heart-trained-judge-4", "heart-trained-judge-3", "'heart-trained-judge-3'.*judge-4'"),
    ],
)
def test_a_saved_judge_answers_as_before_and_is_refused_if_it_was_changed(
    judge, tmp_path, was, now, said
):
    path = judge.save(tmp_path / "judge.json")
    again = load_trained_judge(path).score(new_replies())["score"].to_numpy()
    assert again == pytest.approx(judge.score(new_replies())["score"].to_numpy())
    path.write_text(path.read_text().replace(was, now, 1))
    with pytest.raises(TrainedJudgeError, match=said):
        load_trained_judge(path)


def test_a_saved_judge_holds_no_word_of_few_replies_of_one_dialogue_or_of_one_writer(tmp_path):
    replies = drawn_replies(responders=tuple("uvwxyz"))
    by_u = replies["responder"] == "u"
    writers = np.where(by_u, "ann", "writer " + replies.index.astype(str))
    secrets = {
        "zanzibarquist": replies.index < LEAST_REPLIES - 1,
        "xylophonick": replies["history_id"] == "h1",  # six replies
        "fjordwyg": by_u,  # 60 replies to 60 dialogues
    }
    for secret, mine in secrets.items():
        replies.loc[mine, "text"] += f" {secret}"
    replies.loc[20, "text"] += " hapax" * 9
    saved = train(replies.assign(author_id=writers)).save(tmp_path / "judge.json").read_text()
    assert '"hear"' in saved  # which many share
    groups = [secret[at : at + 4] for secret in secrets for at in range(len(secret) - 3)]
    assert [group for group in [*groups, *secrets] if f'"{group}"' in saved] == []
    assert "hapax" not in saved
    assert "h10" not in saved


def test_dialogues_that_it_was_trained_on_are_refused_though_the_history_alone_is_named(judge):
    with pytest.raises(TrainedJudgeError, match="was trained on 60 of these dialogues"):
        judge.score(drawn_replies())
    replies = drawn_replies()
    named = train(replies.assign(dialogue_id="talk-" + replies["history_id"]))
    with pytest.raises(TrainedJudgeError, match="60 of these dialogues, first history_id 'h0'"):
        named.score(replies)


def test_a_script_that_it_never_saw_and_a_reply_without_words_get_no_number(judge):
    strange = ["我知道这对你来说很难", None, "", " ", "...", np.nan]
    new = new_replies().astype({"text": object})
    new.loc[: len(strange) - 1, "text"] = strange
    rows = judge.score(new)
    states = ["abstained"] * len(strange) + ["valid"] * (len(new) - len(strange))
    assert rows["state"].tolist() == states
    assert list(rows["flags"][0]) == ["unfamiliar"]
    assert rows["score"].isna().tolist() == [state == "abstained" for state in states]
    with pytest.raises(TrainedJudgeError, match="another language or script"):
        judge.score(new.assign(text=strange[0]))


def test_features_of_ones_own_know_a_script_that_they_never_saw_and_are_wanted_again(tmp_path):
    def count_good(texts):
        return np.array([[sum(word in GOOD for word in text.split()), 1.0] for text in texts])

    replies = drawn_replies()
    judge = train(replies, features=count_good)
    both = judge.predictions.merge(replies[["reply_id", "quality"]], on="reply_id")
    assert both["score"].corr(both["quality"]) > 0.6
    new = new_replies()
    new.loc[0, "text"] = "Я слышу, как тебе тяжело"
    assert judge.score(new)["state"].tolist() == ["abstained"] + ["valid"] * (len(new) - 1)
    with pytest.raises(TrainedJudgeError, match="another language or script"):
        judge.score(new.assign(text="我知道这对你来说很难"))
    with pytest.raises(TrainedJudgeError, match="give that function as `features`"):
        load_trained_judge(judge.save(tmp_path / "judge.json"))


def test_embeddings_of_a_provider_are_features(monkeypatch):
    """What the page *Train a judge* shows, with the provider's answers replaced by
    litellm's own form of them."""
    asked = []

    def answer(model, input):
        asked.append(len(input))
        counts = [[float(sum(word in GOOD for word in text.split())), 1.0] for text in input]
        rows = [
            {"object": "embedding", "index": place, "embedding": row}
            for place, row in enumerate(counts)
        ]
        return litellm.EmbeddingResponse(model=model, data=rows)

    monkeypatch.setattr(litellm, "embedding", answer)
    page = (find_root() / "book" / "adapt" / "judge.md").read_text(encoding="utf-8")
    start, end = page.index("    def embed(texts):"), page.index("    judge = train_judge(")
    names = {"np": np, "litellm": litellm}
    exec(textwrap.dedent(page[start:end]), names)
    replies = drawn_replies(n_dialogues=300)
    found = train(replies, features=names["embed"])
    assert asked == [500, 100]  # each text once
    assert found.predictions["score"].corr(replies["quality"]) > 0.6


@pytest.mark.parametrize(
    ("of_replies", "of_labels", "options", "message"),
    [
        ({}, {"n": 10}, {}, "10 labels by people.*50 or more"),
        ({}, {"score": 3.0}, {}, "All 120 labels on 'overall' are 3"),
        ({"text": lambda rows: rows["reply_id"]}, {}, {}, "a single word.*column of ids"),
        (
            {"text": lambda rows: [f"dialogue {k} reply {k % 7}" for k in rows.index]},
            {},
            {},
            "without digits the 120 texts are 1 different ones.*column of ids",
        ),
        ({"text": None}, {}, {}, "No reply holds a word"),
        ({"dialogue_id": "one"}, {}, {}, "All labels are of one dialogue"),
        ({}, {"rater_kind": "model"}, {}, "0 labels by people"),
        ({}, {"dimension": "warmth"}, {}, "No label is on the dimension 'overall'.*warmth"),
        ({"reply_id": "h0--x"}, {}, {}, "'h0--x' is there twice"),
        (
            {},
            {},
            {"leave_out": ("dialogue_id", "rater")},
            r"has 0 labels left.*leave_out=\('dialogue_id',\)",
        ),
        ({}, {}, {"n_folds": 1}, "expected 2 or more"),
        ({}, {}, {"leave_out": "rater"}, r"expected \('dialogue_id',\) or"),
        ({}, {}, {"features": "letters"}, "expected 'words' or a function"),
    ],
)
def test_labels_and_texts_that_teach_nothing_are_refused(of_replies, of_labels, options, message):
    replies = drawn_replies()
    labels = scored(replies).head(of_labels.pop("n", len(replies))).assign(**of_labels)
    with pytest.raises(TrainedJudgeError, match=message):
        train(replies.assign(**of_replies), labels, **options)


@pytest.mark.mirror
@pytest.mark.slow
def test_a_judge_of_published_replies_gives_back_no_ones_words(mirror, tmp_path):
    """Counted by other code: each term in the file is in five replies to five messages, and none is
    longer than four letters."""
    rated = pd.read_csv(mirror / "welivita" / "dataset_and_ratings.csv")
    replies = pd.DataFrame(
        {"history_id": rated["dialog_id"], "responder": "person", "text": rated["response_human"]}
    )
    replies = replies.assign(
        reply_id=replies["history_id"] + "--person", rater=rated["annotator_human"]
    )
    labels = replies[["reply_id", "rater"]].assign(
        score=rated["rating_human"], rater_kind="human", state="valid", dimension="overall"
    )
    path = train_judge(replies.assign(licence="none stated"), labels, n_folds=2).save(
        tmp_path / "judge.json"
    )
    content = json.loads(path.read_text())
    holders, using = {}, {}
    for number, text in enumerate(replies["text"]):
        for word in re.findall(r"\w+", text.lower()):
            using.setdefault(word, set()).add(number)
        for word in {f" {word} " for word in text.lower().split()}:
            for start in range(len(word) - 1):
                for length in (2, 3, 4):
                    holders.setdefault(word[start : start + length], set()).add(number)
    kept = content["terms"]["names"]
    assert len(kept) > 500
    assert min(len(holders[term]) for term in kept) >= 5
    assert max(map(len, kept)) <= 4
    words = content["terms"]["words"]
    assert min(len(using[word]) for word in words) >= 5
    assert max(len(word.split()) for word in words) == 1
    assert "hit:" not in path.read_text()  # no id of a message
