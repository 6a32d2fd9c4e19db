"""A judge trained on labels: what it learns, what it never sees, what it refuses, and what a saved
one gives away."""

import json
import re
import textwrap

import numpy as np
import pandas as pd
import pytest

from heart_collect.judging.trained import (
    LEAST_REPLIES,
    TrainedJudgeError,
    load_trained_judge,
    train_judge,
)
from heart_utils.agreement.panel import agreement_with_baselines
from heart_utils.runs import find_root

GOOD = ["i", "hear", "how", "hard", "this", "is", "and", "you", "are", "not", "alone", "with", "it"]
BAD = ["just", "get", "over", "it", "because", "other", "people", "have", "it", "much", "worse"]
PLAIN = [
    "today",
    "we",
    "talk",
    "about",
    "work",
    "home",
    "school",
    "friends",
    "family",
    "time",
    "and",
    "things",
]


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


@pytest.fixture(scope="module")
def judge():
    replies = drawn_replies()
    return train_judge(
        replies.assign(licence="CC0-1.0"), scored(replies), leave_out=["dialogue_id"]
    )


def test_out_of_fold_scores_follow_the_quality_that_words_show(judge):
    both = judge.predictions.merge(drawn_replies()[["reply_id", "quality"]], on="reply_id")
    assert both["score"].corr(both["quality"], method="spearman") > 0.6


def test_labels_without_a_link_to_words_teach_nothing():
    """A judge that had seen the label of a reply that it scores would do better than zero here."""
    replies = drawn_replies()
    labels = scored(replies).assign(score=np.random.default_rng(5).normal(size=len(replies)))
    rows = train_judge(replies, labels, leave_out=["dialogue_id"]).predictions.merge(
        labels[["reply_id", "score"]], on="reply_id"
    )
    # 120 replies: two standard errors are 0.18. Below zero is no knowledge: a fold of high labels
    # leaves low ones to learn from.
    assert rows["score_x"].corr(rows["score_y"]) < 0.18


def test_no_fold_learns_from_a_rater_who_scored_what_it_scores(monkeypatch):
    from heart_collect.judging import trained

    met = []
    real = trained._left_for_training

    def spy(data, folds, fold, leave_out):
        kept = real(data, folds, fold, leave_out)
        met.append(set(data["rater"][kept]) & set(data["rater"][folds == fold]))
        return kept

    monkeypatch.setattr(trained, "_left_for_training", spy)
    replies = drawn_replies()
    raters = "r" + (replies.index // 6).astype(str)  # six replies, three dialogues each
    train_judge(replies, scored(replies).assign(rater=raters))
    assert met
    assert not any(met)


def test_raters_who_met_every_dialogue_cannot_be_left_out():
    replies = drawn_replies()
    with pytest.raises(TrainedJudgeError, match=r"has 0 labels left.*leave_out=\('dialogue_id',\)"):
        train_judge(replies, scored(replies, raters=("ann", "ben")))


def test_verdicts_train_a_judge_that_agrees_more_than_the_authors_names():
    replies = drawn_replies(n_dialogues=200, shift=0.3)
    votes = voted(replies)
    judge = train_judge(replies, votes, leave_out=["dialogue_id"], n_folds=4)
    both = pd.concat([votes, judge.predictions], ignore_index=True)
    rates = agreement_with_baselines(
        both, between=("human", "trained"), by=[], n_resamples=100
    ).set_index("who")
    assert rates.loc["author_only", "lead_low"] > 0.0
    assert judge.predictions["rater_kind"].unique().tolist() == ["trained"]
    assert judge.predictions["p_a"].between(0, 1).all()


def test_probabilities_of_a_judge_of_verdicts_are_calibrated():
    """By ten bins of equal size the share won is within four standard errors of what was
    foretold."""
    replies = drawn_replies(n_dialogues=400)
    votes = voted(replies)
    found = train_judge(replies, votes, leave_out=["dialogue_id"]).predictions.merge(
        votes[["pair_id", "verdict"]], on="pair_id"
    )
    bins = pd.qcut(found["p_a"], 10)
    won = (found["verdict_y"] == "a").groupby(bins, observed=True).mean()
    assert np.abs(won - found["p_a"].groupby(bins, observed=True).mean()).max() < 4 * np.sqrt(
        0.25 / 40
    )


def test_turning_sides_turns_the_answers():
    replies = drawn_replies(n_dialogues=80)
    votes = voted(replies)
    turned = votes.assign(
        responder_a="y", responder_b="x", verdict=votes["verdict"].map({"a": "b", "b": "a"})
    )
    here, there = (
        train_judge(replies, rows, leave_out=["dialogue_id"], n_folds=2).predictions["p_a"]
        for rows in (votes, turned)
    )
    assert here.to_numpy() == pytest.approx(1 - there.to_numpy(), abs=1e-3)


def test_within_an_author_a_judge_no_longer_lives_on_the_author():
    """All of the difference in quality is between authors, whose words differ: within them nothing
    is left to learn."""
    rng = np.random.default_rng(4)
    replies = drawn_replies(n_dialogues=100, shift=3.0)
    labels = scored(replies).assign(
        score=np.where(replies["responder"] == "x", 5.0, 2.0) + rng.normal(0, 0.3, len(replies))
    )
    spread = {}
    for within in (None, "responder"):
        rows = train_judge(
            replies, labels, leave_out=["dialogue_id"], within=within, n_folds=3
        ).predictions
        means = rows.groupby("responder")["score"].mean()
        spread[within] = means["x"] - means["y"]
        assert means.mean() == pytest.approx(3.5, abs=0.1)
    assert spread[None] > 1.0
    assert abs(spread["responder"]) < 0.1


def test_replies_that_nobody_labelled_are_answered_too(judge):
    replies = drawn_replies(n_dialogues=70)
    labels = scored(replies)
    labels = labels[labels["reply_id"].str.extract(r"h(\d+)")[0].astype(int).to_numpy() < 60]
    rows = train_judge(replies, labels, leave_out=["dialogue_id"]).predictions
    assert len(rows) == 140
    assert rows["score"].notna().all()


def test_a_saved_judge_answers_as_before(judge, tmp_path):
    new = drawn_replies(seed=9).assign(history_id=lambda rows: "new-" + rows["history_id"])
    again = load_trained_judge(judge.save(tmp_path / "judge.json"))
    assert again.score(new)["score"].to_numpy() == pytest.approx(
        judge.score(new)["score"].to_numpy()
    )


def test_a_saved_judge_whose_weights_were_edited_is_refused(judge, tmp_path):
    path = judge.save(tmp_path / "judge.json")
    content = json.loads(path.read_text())
    content["weights"][0] += 0.001
    path.write_text(json.dumps(content))
    with pytest.raises(TrainedJudgeError, match="changed after it was saved"):
        load_trained_judge(path)


def test_a_judge_of_another_version_is_refused(judge, tmp_path):
    path = judge.save(tmp_path / "judge.json")
    path.write_text(path.read_text().replace("heart-trained-judge-3", "heart-trained-judge-2"))
    with pytest.raises(TrainedJudgeError, match="'heart-trained-judge-2'.*'heart-trained-judge-3'"):
        load_trained_judge(path)


def test_a_saved_judge_holds_no_word_that_few_replies_share(tmp_path):
    replies = drawn_replies()
    secret = "zanzibarquist"
    replies.loc[: LEAST_REPLIES - 2, "text"] += f" {secret}"  # in four replies
    replies.loc[10, "text"] += " hapax" * 9
    path = train_judge(replies, scored(replies), leave_out=["dialogue_id"], n_folds=2).save(
        tmp_path / "judge.json"
    )
    saved = path.read_text()
    assert '"hear"' in saved  # which many share
    for start in range(len(secret) - 3):
        assert f'"{secret[start : start + 4]}"' not in saved
    assert "hapax" not in saved
    assert "h10" not in saved


def test_a_word_that_one_dialogue_repeats_is_not_kept(tmp_path):
    replies = drawn_replies(responders=tuple("uvwxyz"))
    # six replies, one dialogue
    replies.loc[replies["history_id"] == "h0", "text"] += " zanzibarquist"
    path = train_judge(replies, scored(replies), leave_out=["dialogue_id"], n_folds=2).save(
        tmp_path / "judge.json"
    )
    assert '"zanzibarquist"' not in path.read_text()


def test_dialogues_that_it_was_trained_on_are_refused(judge):
    with pytest.raises(TrainedJudgeError, match="was trained on 60 of these dialogues"):
        judge.score(drawn_replies())


def test_a_script_that_it_never_saw_gets_no_number(judge):
    new = drawn_replies(seed=9).assign(history_id=lambda rows: "new-" + rows["history_id"])
    new.loc[0, "text"] = "我知道这对你来说很难"
    row = judge.score(new).iloc[0]
    assert (row["state"], list(row["flags"])) == ("abstained", ["unfamiliar"])
    assert pd.isna(row["score"])
    with pytest.raises(TrainedJudgeError, match="another language or script"):
        judge.score(new.assign(text="我知道这对你来说很难"))


def test_a_reply_without_words_gets_no_number(judge):
    new = drawn_replies(seed=9).assign(history_id=lambda rows: "new-" + rows["history_id"])
    for number, text in enumerate([None, "", " ", "...", np.nan]):
        new["text"] = new["text"].astype(object)
        new.loc[number, "text"] = text
    rows = judge.score(new)
    assert len(rows) == len(new)
    assert rows["state"].head(5).eq("abstained").all()
    assert rows["score"].head(5).isna().all()
    assert rows["state"].tail(100).eq("valid").all()


def test_replies_without_words_are_counted(judge):
    replies = drawn_replies()
    replies["text"] = replies["text"].astype(object)
    replies.loc[[3, 7], "text"] = None
    trained_on = train_judge(
        replies, scored(replies), leave_out=["dialogue_id"], n_folds=2
    ).trained_on
    assert (trained_on["n_without_words"], trained_on["n_left_out"], trained_on["n_labels"]) == (
        2,
        2,
        118,
    )


def test_a_history_that_it_was_trained_on_is_refused_where_its_dialogue_is_not_named():
    replies = drawn_replies()
    named = replies.assign(dialogue_id="talk-" + replies["history_id"])
    trained = train_judge(named, scored(replies), leave_out=["dialogue_id"], n_folds=2)
    with pytest.raises(TrainedJudgeError, match="60 of these dialogues, first history_id 'h0'"):
        trained.score(replies)


def test_a_word_that_one_writer_uses_everywhere_is_not_kept(tmp_path):
    replies = drawn_replies(responders=tuple("uvwxyz"))
    authors = np.where(replies["responder"] == "u", "ann", "writer " + replies.index.astype(str))
    replies = replies.assign(author_id=authors)
    # 60 replies to 60 dialogues
    replies.loc[replies["responder"] == "u", "text"] += " zanzibarquist"
    saved = train_judge(replies, scored(replies), leave_out=["dialogue_id"], n_folds=2).save(
        tmp_path / "judge.json"
    )
    assert '"zanzibarquist"' not in saved.read_text()
    assert '"hear"' in saved.read_text()


def test_an_ordinal_scale_reads_only_the_order_of_scores():
    """Levels 1, 2, 3 or 1, 2, 30: the order of the answers is the same, and each is an expected
    score between the ends."""
    replies = drawn_replies(n_dialogues=200)
    near = pd.cut(replies["quality"], [-9, -0.7, 0.7, 9], labels=[1.0, 2.0, 3.0]).astype(float)
    judges = {}
    for top in (3.0, 30.0):
        labels = scored(replies).assign(score=near.replace(3.0, top))
        judges[top] = train_judge(
            replies, labels, scale="ordinal", leave_out=["dialogue_id"], n_folds=3
        )
        assert judges[top].predictions["score"].between(1.0, top).all()
        assert judges[top].predictions["score"].mean() == pytest.approx(
            labels["score"].mean(), rel=0.05
        )
    assert judges[3.0].model.weights == pytest.approx(judges[30.0].model.weights)
    assert judges[3.0].predictions["score"].corr(replies["quality"], method="spearman") > 0.6


def test_an_ordinal_judge_is_saved_and_read(tmp_path):
    replies = drawn_replies()
    labels = scored(replies).assign(score=lambda rows: rows["score"].round().clip(-2, 2))
    trained = train_judge(replies, labels, scale="ordinal", leave_out=["dialogue_id"], n_folds=2)
    new = drawn_replies(seed=9).assign(history_id=lambda rows: "new-" + rows["history_id"])
    again = load_trained_judge(trained.save(tmp_path / "judge.json"))
    assert again.score(new)["score"].to_numpy() == pytest.approx(
        trained.score(new)["score"].to_numpy()
    )
    with pytest.raises(
        TrainedJudgeError, match="120 different values; an ordinal scale may have 20"
    ):
        train_judge(replies, scored(replies), scale="ordinal", leave_out=["dialogue_id"])


def test_features_know_a_script_that_they_never_saw_too():
    def lengths(texts):
        return np.array(
            [[float(len(text)), sum(word in GOOD for word in text.split())] for text in texts]
        )

    replies = drawn_replies()
    trained = train_judge(replies, scored(replies), leave_out=["dialogue_id"], features=lengths)
    new = drawn_replies(seed=9).assign(history_id=lambda rows: "new-" + rows["history_id"])
    new.loc[0, "text"] = "Я слышу, как тебе тяжело"
    rows = trained.score(new)
    assert rows["state"].tolist() == ["abstained"] + ["valid"] * (len(new) - 1)
    with pytest.raises(TrainedJudgeError, match="another language or script"):
        trained.score(new.assign(text="我知道这对你来说很难"))


def test_embeddings_of_a_provider_are_features(monkeypatch):
    """What the page *Train a judge* shows, with the provider's answers replaced by
    litellm's own form of them."""
    import litellm
    from litellm import EmbeddingResponse

    asked = []

    def answer(model, input):
        asked.append(len(input))
        counts = [[float(sum(word in GOOD for word in text.split())), 1.0] for text in input]
        rows = [
            {"object": "embedding", "index": place, "embedding": row}
            for place, row in enumerate(counts)
        ]
        return EmbeddingResponse(model=model, data=rows)

    monkeypatch.setattr(litellm, "embedding", answer)
    page = (find_root() / "book" / "adapt" / "judge.md").read_text(encoding="utf-8")
    start, end = page.index("    def embed(texts):"), page.index("    judge = train_judge(")
    names = {"np": np, "litellm": litellm}
    exec(textwrap.dedent(page[start:end]), names)
    replies = drawn_replies(n_dialogues=300)
    trained = train_judge(
        replies, scored(replies), leave_out=["dialogue_id"], features=names["embed"]
    )
    assert asked == [500, 100]  # each text once
    assert trained.predictions["score"].corr(replies["quality"]) > 0.6


def test_features_of_ones_own_are_used_and_wanted_again(tmp_path):
    def count_good(texts):
        return np.array([[sum(word in GOOD for word in text.split()), 1.0] for text in texts])

    replies = drawn_replies()
    judge = train_judge(replies, scored(replies), leave_out=["dialogue_id"], features=count_good)
    both = judge.predictions.merge(replies[["reply_id", "quality"]], on="reply_id")
    assert both["score"].corr(both["quality"]) > 0.6
    with pytest.raises(TrainedJudgeError, match="give that function as `features`"):
        load_trained_judge(judge.save(tmp_path / "judge.json"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda replies, labels: (replies, labels.head(10)), "10 labels by people.*50 or more"),
        (
            lambda replies, labels: (replies, labels.assign(score=3.0)),
            "All 120 labels on 'overall' are 3",
        ),
        (
            lambda replies, labels: (replies.assign(text=replies["reply_id"]), labels),
            "a single word.*column of ids",
        ),
        (
            lambda replies, labels: (
                replies.assign(text=[f"dialogue {k} reply {k % 7}" for k in replies.index]),
                labels,
            ),
            "without digits the 120 texts are 1 different ones.*column of ids",
        ),
        (lambda replies, labels: (replies.assign(text=None), labels), "No reply holds a word"),
        (
            lambda replies, labels: (replies.assign(dialogue_id="one"), labels),
            "All labels are of one dialogue",
        ),
        (
            lambda replies, labels: (replies, labels.assign(rater_kind="model")),
            "0 labels by people",
        ),
        (
            lambda replies, labels: (replies, labels.assign(dimension="warmth")),
            "No label is on the dimension 'overall'.*warmth",
        ),
        (
            lambda replies, labels: (pd.concat([replies, replies.head(1)]), labels),
            "'h0--x' is there twice",
        ),
    ],
)
def test_labels_and_texts_that_teach_nothing_are_refused(spoil, message):
    replies = drawn_replies()
    with pytest.raises(TrainedJudgeError, match=message):
        train_judge(*spoil(replies, scored(replies)), leave_out=["dialogue_id"])


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
