"""Report cards of a run's simulated seekers: who scores what, and what a leaderboard says of it."""

import json
import re

import pandas as pd
import pytest
from conversation_case import collected_once, shown, speak

from heart_collect.judging.design import PROBES
from heart_utils import (
    check_seekers,
    code_by_words,
    combine_orders,
    fit_ratings,
    load_histories,
    load_replies,
    methods,
    write_leaderboard,
)
from heart_utils.replies.conversations import (
    TurnsError,
    describe_seekers,
    split_turns,
    tell_from_real,
)
from heart_utils.report.leaderboard import leaderboard_html
from heart_utils.runs import open_run
from heart_utils.sources import heart
from heart_utils.sources.heart import load_codebooks, next_seeker_turns

STUDY = {
    "slices": {"standard": 6, "adversarial": 4},
    "exchanges": 1,
    "probes": ["silence", "echo", "other-history"],
    "protocols": {
        "conversation": ["overall"],
        "conversation-likert": ["overall"],
        "conversation-seeker": ["overall"],
    },
    "pairs": 1,
}


def react(*, liked="word m"):
    """Talk as in the other studies; who scores a conversation likes what holds some words."""

    def answer(body):
        prompt = body["messages"][-1]["content"]
        names = re.findall(r"^- (\w+): ", prompt, flags=re.MULTILINE)
        if not names or "Conversation " in prompt:
            return speak(body)
        real = re.search(r"word [mn] says", prompt) is not None
        score = 5 if liked in prompt else 3 if real else 1
        return json.dumps(dict.fromkeys(names, {"reasoning": "So.", "score": score}))

    return answer


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Collect the study once, for all tests of it."""
    folder = tmp_path_factory.mktemp("study")
    with collected_once(folder, changes=STUDY, answer=react()) as (provider, said):
        yield open_run(folder / "runs" / "mine"), provider.requests, said


@pytest.fixture(scope="module")
def run(study):
    return study[0]


@pytest.fixture(scope="module")
def cards(run):
    return check_seekers(run)


def test_a_seeker_scores_its_own_conversations_and_nobody_elses(study):
    run, requests, _ = study
    scores = run.read("scores")
    own = scores[scores["protocol"] == "conversation-seeker"]
    assert len(own) == 2 * 10 * 5
    assert (own["rater"] == own["seeker"]).all()
    outside = scores[scores["protocol"] == "conversation-likert"]
    assert set(outside["rater"]) == {"j"}
    asked = [body for body in requests if "You were the seeker" in str(body["messages"])]
    assert {body["model"] for body in asked} == {"s", "t"}
    for body in asked:
        turns = " ".join(said for _, said in shown(body))
        words = set(re.findall(r"This is turn \d+, word (\w+) says", turns))
        assert words <= {"m", "n", body["model"]}


def test_the_card_of_a_run_says_what_was_checked_and_what_is_missing(study, cards):
    of_s = cards[cards["seeker"] == "s"].set_index(["check", "of"])
    probes = of_s.loc["probe loses"]
    assert probes["outcome"].to_dict() == dict.fromkeys(STUDY["probes"], "passed")
    assert probes["value"].tolist() == [1.0] * 3
    agreed = of_s.loc["agrees with outside raters"].iloc[0]
    assert [agreed["value"], agreed["n"]] == [1.0, 10]  # one pair a start, never across twins
    told = of_s.loc[("told from real turns", "classifier")]
    assert told["outcome"] == "not checked"
    assert "no start is the beginning of a dialogue of ESConv" in told["note"]
    # it says "This is turn 5, word s says." whatever was said before
    [fails] = of_s.loc["stays adversarial"].to_dict("records")
    assert fails["value"] == 0.0
    assert fails["limit"] == "at least 0.125"  # half of the one start in four that words find
    found = describe_seekers(cards).set_index("seeker")["finding"]
    assert set(found) <= {"not to be trusted", "not shown to be trustworthy"}
    printed = r"Report cards of the seekers: s: not .*; t: not .*check_seekers\('mine'\)"
    assert re.search(printed, study[2])


def test_a_seeker_that_likes_silence_fails_by_it(run, tmp_path):
    spoilt = open_run(tmp_path / "spoilt")
    scores = run.read("scores")
    liked = (scores["rater"] == "s") & (scores["responder"] == "silence")
    scores["score"] = scores["score"].mask(liked, 5.0)
    for table in ("conversations", "histories", "responders"):
        spoilt.write(table, run.read(table))
    spoilt.write("scores", scores)
    cards = check_seekers(spoilt).set_index(["seeker", "check", "of"])
    assert cards.loc[("s", "probe loses", "silence"), "outcome"] == "failed"
    assert cards.loc[("s", "probe loses", "echo"), "outcome"] == "passed"
    card = describe_seekers(cards.reset_index()).iloc[0]
    assert card["finding"] == "not to be trusted"
    assert card["reasons"].startswith("failed: probe loses (silence)")


def test_a_leaderboard_of_conversations_without_a_card_says_so_loudly(
    run, cards, no_drawings, tmp_path
):
    verdicts = combine_orders(run.read("verdicts"))
    ratings = fit_ratings(verdicts, dimension="overall", n_resamples=50)
    with pytest.warns(UserWarning, match="no report card was made of the seekers"):
        write_leaderboard(ratings, tmp_path / "without")
    for ending in ("html", "tex"):
        page = (tmp_path / "without" / f"leaderboard.{ending}").read_text()
        assert "Seekers not checked: no report card" in page
    good = cards.assign(outcome="passed")
    page = leaderboard_html(ratings.table, cards=good)
    assert "s: passed these checks; t: passed these checks" in page
    with pytest.warns(UserWarning, match="s is not to be trusted; t is not to be trusted: the rat"):
        write_leaderboard(ratings, tmp_path / "bad", cards=cards.assign(outcome="failed"))
    assert "Seekers not checked" in methods(run, ratings)
    assert "s: passed these checks" in methods(run, ratings, cards=good)


def test_ratings_of_replies_need_no_card(no_drawings, tmp_path, recwarn):
    duel = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "a"]})
    write_leaderboard(fit_ratings(duel, n_resamples=0), tmp_path)
    assert not [one for one in recwarn if "seeker" in str(one.message)]
    assert "eekers" not in (tmp_path / "leaderboard.html").read_text()


def test_what_people_said_next_comes_from_esconv_where_a_start_is_its_beginning(run, monkeypatch):
    starts = run.read("histories").query("slice == 'standard'")
    texts = starts["turns"].iloc[0]
    more = [{"speaker": "supporter", "text": "And then?"}, {"speaker": "seeker", "text": "No."}]
    whole = heart.Dialogue("esconv-test-0000", (*texts, *more), (), {})
    short = heart.Dialogue("esconv-test-0001", (*texts, more[0]), (), {})
    monkeypatch.setattr(heart, "read_dialogues", lambda: {"test": [whole, short]})
    known = starts.head(4).assign(
        dialogue_id=["esconv-test-0000", "esconv-test-0000", "esconv-test-0001", "other"],
        turns=[texts, texts[:-1] + [{"speaker": "seeker", "text": "Rewritten."}], texts, texts],
    )
    [found] = next_seeker_turns(known).to_dict("records")
    start = known["history_id"].iloc[0]
    assert found == {"history_id": start, "dialogue_id": "esconv-test-0000", "text": "No."}


def test_turns_of_people_codes_and_guesses_of_ones_own_are_taken(run):
    talks = run.read("conversations")
    real = talks.drop_duplicates("start_id")[["start_id", "dialogue_id"]]
    real = real.assign(text=[f"No idea, honestly, {k}." for k in range(len(real))])
    turns = split_turns(talks)
    codes = turns[["reply_id"]].assign(coder="ann", probability=1.0)
    guesses = turns.loc[turns["speaker"] == "seeker", ["dialogue_id", "seeker"]]
    half = [k % 2 == 0 for k in range(len(guesses))]
    guesses = guesses.assign(rater="ann", score=1, is_model=half)
    cards = check_seekers(run, real=real, codes=codes, guesses=guesses)
    of_s = cards[cards["seeker"] == "s"].set_index(["check", "of"])["outcome"]
    assert of_s["told from real turns", "classifier"] in ("failed", "open")  # it names its turn
    assert of_s["told from real turns", "raters"] != "failed"  # one who says the same of all
    assert of_s["stays adversarial", "exchange 1, coded by ann"] in ("passed", "open")
    two = pd.concat([codes, codes.assign(coder="bob")])
    with pytest.raises(TurnsError, match="ann, bob"):
        check_seekers(run, codes=two)
    with pytest.raises(TurnsError, match="text"):
        check_seekers(run, real=real.drop(columns="text"))


def test_another_history_answers_somebody_else_each_time():
    turns = [{"speaker": "seeker", "text": "I lost my keys."}]
    one = PROBES["other-history"](turns)
    more = [*turns, {"speaker": "supporter", "text": one}, {"speaker": "seeker", "text": "What?"}]
    assert one == PROBES["other-history"](turns)
    assert one != PROBES["other-history"](more)


@pytest.mark.mirror
def test_the_sense_of_scale_on_the_page_is_what_the_data_give(mirror):
    """People's earlier turns and supporters' replies against people's next turns, and the words of
    the codebook in real turns."""
    starts = load_histories("heart")
    real = next_seeker_turns(starts)
    assert (starts["slice"] == "standard").sum() == 280
    standard = starts[starts["slice"] == "standard"]
    assert standard["history_id"].isin(real["history_id"]).sum() == 279
    earlier = tell_from_real(standard.assign(text=standard["turns"].map(last_of_seeker)), real)
    replies = load_replies("heart").merge(starts[["history_id", "dialogue_id"]])
    ends = ("value", "ci_low", "ci_high")
    assert [round(earlier[end], 2) for end in ends] == [0.56, 0.51, 0.60]
    assert round(tell_from_real(replies, real)["value"], 2) == 0.93

    def pushing(texts):
        table = pd.DataFrame({"reply_id": range(len(texts)), "text": list(texts)})
        [code] = [code for code in load_codebooks()["seeker"] if code.name == "pushes_back"]
        return code_by_words(table.assign(state="valid", simulated=False), [code])["probability"]

    ends_of = {
        name: table.loc[table["slice"] == "adversarial", "turns"].map(last_of_seeker)
        for name, table in (("heart", starts), ("sample", load_histories("sample")))
    }
    assert (pushing(ends_of["heart"]).sum(), len(ends_of["heart"])) == (18, 20)
    assert (pushing(ends_of["sample"]).sum(), len(ends_of["sample"])) == (4, 12)
    turns = [turn for talk in load_histories("esconv")["turns"] for turn in talk]
    seekers = [turn["text"] for turn in turns if turn["speaker"] == "seeker"]
    assert round(100 * pushing(seekers).mean(), 1) == 0.8


def last_of_seeker(turns):
    return next(turn["text"] for turn in reversed(turns) if turn["speaker"] == "seeker")
