"""Report card of a simulated seeker: a good one passes, and each way of being spoilt fails its check."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.replies.conversations import (
    LIMITS,
    TurnsError,
    agree_with_outside,
    describe_seekers,
    probe_loses,
    seeker_card,
    tell_from_real,
    told_by_raters,
)

WORDS = [
    "work",
    "mum",
    "exam",
    "tired",
    "alone",
    "sleep",
    "rent",
    "boss",
    "friend",
    "train",
    "call",
    "night",
    "week",
    "money",
    "test",
]
PROBES = ["empty", "echo", "warm_line", "other_history"]


def said(rng, n, *, opening=""):
    texts = [opening + " ".join(rng.choice(WORDS, 9)) for _ in range(n)]
    return pd.DataFrame({"text": texts, "dialogue_id": [f"d{k}" for k in range(n)]})


def scored(rng, *, n_starts=40, reacts=True, outside=0.8):
    """Three supporters and four probes at each start; outside raters see what the seeker felt, or not."""
    rows = []
    for start in range(n_starts):
        for place, responder in enumerate(["m", "n", "o", *PROBES]):
            quality = (3 + place / 2 if place < 3 else 1.0) + rng.normal(scale=0.5)
            own = quality if reacts else 3 + rng.normal()
            names = {"reply_id": f"{start}-{responder}", "dialogue_id": start}
            names["responder"] = responder
            rows.append({**names, "rater": "s", "score": own})
            seen = outside * quality + rng.normal(scale=0.5)
            rows.append({**names, "rater": "ann", "score": seen})
    return pd.DataFrame(rows)


def coded(rng, *, fades):
    rows = [
        {"dialogue_id": start, "exchange": k, "coder": "judge", "probability": float(stays)}
        for start in range(20)
        for k in range(1, 6)
        for stays in [rng.random() < (1.1 - 0.2 * k if fades else 0.9)]
    ]
    return pd.DataFrame(rows)


def guessed(rng, n, *, lead=0.0):
    """Two raters who score turns of both kinds, higher by `lead` if a model wrote them."""
    rows = [
        {"rater": rater, "dialogue_id": k, "is_model": bool(k % 2)}
        for rater in ("ann", "bob")
        for k in range(n)
    ]
    table = pd.DataFrame(rows)
    return table.assign(score=rng.normal(size=len(table)) + lead * table["is_model"])


def card(**spoilt):
    rng = np.random.default_rng(1)
    good = {
        "simulated": said(rng, 60),
        "real": said(rng, 60),
        "guesses": guessed(rng, 60),
        "adversarial": coded(rng, fades=False),
        "scores": scored(rng),
        "probes": PROBES,
    }
    return seeker_card("s", **(good | spoilt))


def outcomes(table):
    return table.groupby("check")["outcome"].agg(set).to_dict()


def test_a_seeker_like_the_real_ones_passes_all_checks():
    good = card(guesses=None)  # told apart one way is enough
    assert outcomes(card())["told from real turns"] == {"passed"}
    assert outcomes(good) == dict.fromkeys(LIMITS, {"passed"}) | {
        "told from real turns": {"passed", "not checked"}
    }
    assert describe_seekers(good).to_numpy().tolist() == [["s", "passed these checks", ""]]
    stays = good["check"] == "stays adversarial"
    less = describe_seekers(good.assign(outcome=good["outcome"].mask(stays, "not checked")))
    missing = ["s", "not shown to be trustworthy", "not checked: stays adversarial"]
    assert less.to_numpy().tolist() == [missing]


@pytest.mark.parametrize(
    ("check", "spoilt"),
    [
        (
            "told from real turns",
            {"simulated": said(np.random.default_rng(2), 60, opening="Thank you so much. ")},
        ),
        ("told from real turns", {"guesses": guessed(np.random.default_rng(2), 60, lead=3.0)}),
        ("stays adversarial", {"adversarial": coded(np.random.default_rng(3), fades=True)}),
        ("probe loses", {"scores": scored(np.random.default_rng(4), reacts=False)}),
        ("agrees with outside raters", {"scores": scored(np.random.default_rng(5), outside=-0.8)}),
    ],
)
def test_a_spoilt_seeker_fails_its_check_and_no_other(check, spoilt):
    made = card(**spoilt)
    finding, found = describe_seekers(made).iloc[0], outcomes(made)
    its = found.pop(check)
    assert its & {"failed", "open"}
    assert "failed" not in set().union(*found.values())
    if check != "probe loses":  # a seeker that scores by chance is not proven wrong
        assert "failed" in its
    assert (finding["finding"] == "not to be trusted") == ("failed" in its)
    assert check in finding["reasons"]


def stays(turns):
    found = seeker_card("s", adversarial=turns).set_index("check").loc["stays adversarial"]
    return found[["outcome", "of", "note"]].tolist()


def talks(lengths, adversarial):
    """Conversations of so many exchanges, adversarial up to each one's exchange."""
    rows = [
        {"conversation_id": k, "dialogue_id": k, "exchange": j, "probability": float(j <= until)}
        for k, (length, until) in enumerate(zip(lengths, adversarial, strict=True))
        for j in range(1, length + 1)
    ]
    return pd.DataFrame(rows).assign(coder="ann")


def test_a_seeker_that_gives_up_and_ends_early_does_not_stay_adversarial():
    """28 of 40 turn friendly and end at exchange 4; of those that reach exchange 10, all stay."""
    turns = talks([4] * 28 + [10] * 12, [1] * 28 + [10] * 12)
    assert stays(turns) == ["failed", "exchanges 4 to 10, coded by ann", ""]
    assert stays(turns.sample(frac=1.0, random_state=1))[0] == "failed"
    assert stays(talks([4] * 28 + [10] * 12, [4] * 28 + [10] * 12))[0] == "passed"


def test_conversations_of_one_exchange_pass_nothing_and_of_two_name_them():
    short = "no conversation went beyond its first exchange"
    assert stays(talks([1] * 30, [1] * 30)) == ["open", "exchange 1, coded by ann", short]
    assert stays(talks([1] * 30, [0] * 30)) == ["failed", "exchange 1, coded by ann", ""]
    assert stays(talks([2] * 30, [2] * 30)) == ["passed", "exchange 2, coded by ann", ""]
    assert stays(talks([2], [2]))[0] == "not checked"


def test_last_turns_without_a_code_do_not_pass():
    turns = talks([3] * 40, [3] * 40)
    is_last = turns["exchange"] == 3
    some, none = turns.copy(), turns.copy()
    some.loc[is_last & (turns["dialogue_id"] < 15), "probability"] = np.nan
    outcome, _, note = stays(some)
    assert (outcome, note.split(",")[0]) == ("open", "15 of 40 are missing")
    none.loc[is_last, "probability"] = np.nan
    assert stays(none)[0] == "not checked"
    twice = turns.drop(columns="conversation_id").assign(dialogue_id=turns["dialogue_id"] // 2)
    assert "expected one a turn, with conversation_id" in stays(twice)[2]


def test_raters_who_score_all_turns_alike_show_nothing():
    lazy = guessed(np.random.default_rng(1), 60).assign(score=1)
    with pytest.raises(TurnsError, match="not all alike"):
        told_by_raters(lazy)
    awake = guessed(np.random.default_rng(1), 60, lead=3.0).query("rater == 'ann'")
    with_lazy = pd.concat([awake, *(lazy.assign(rater=name) for name in "xyz")])
    assert told_by_raters(with_lazy)["value"] == told_by_raters(awake)["value"]
    told = seeker_card("s", guesses=with_lazy).set_index("of").loc["raters"]
    assert told["outcome"] == "failed"
    assert told["note"].startswith("3 who scored")


def test_a_probe_whose_scores_are_missing_is_not_shown_to_lose():
    """Of 40 starts the seeker gives the echo a valid score at 12, and there it loses."""
    scores = scored(np.random.default_rng(4)).assign(state="valid")
    unread = (scores["responder"] == "echo") & (scores["rater"] == "s")
    scores.loc[unread & (scores["dialogue_id"] >= 12), "state"] = "unparsed"
    table = seeker_card("s", scores=scores, probes=PROBES)
    lost = table[table["check"] == "probe loses"].set_index("of")
    assert lost["outcome"].to_dict() == dict.fromkeys(PROBES, "passed") | {"echo": "open"}
    assert lost.loc["echo", "note"].startswith("28 of 40 are missing")


def test_ties_of_a_seeker_that_scores_nearly_all_alike_are_half_an_agreement():
    """It tells conversations apart at 6 of 40 starts, and there as the outside raters do."""
    scores = scored(np.random.default_rng(5))
    same = (scores["rater"] == "s") & (scores["dialogue_id"] >= 6)
    scores["score"] = scores["score"].mask(same, 3.0)
    real = scores[~scores["responder"].isin(PROBES)]
    assert agree_with_outside(real, "s")["value"] < 0.6  # where it tells them apart, 0.8


def test_raters_are_compared_with_themselves_and_by_hand():
    """Bob scores all turns lower than Ann; each puts 3 of 4 pairs in the right order."""
    rows = {"rater": list("aaaabbbb"), "is_model": [True, True, False, False] * 2}
    scores = [9, 6, 7, 5, 4, 1, 2, 0]
    guesses = pd.DataFrame(rows).assign(score=scores, dialogue_id=range(8))
    assert told_by_raters(guesses)["value"] == 0.75
    with pytest.raises(TurnsError, match="0 dialogues have turns"):
        told_by_raters(guesses[guesses["is_model"]])


def test_a_share_right_of_guesses_is_the_mean_of_both_kinds():
    rng = np.random.default_rng(12)
    guesses = guessed(rng, 200, lead=1.0).query("rater == 'ann'")
    guesses = guesses.assign(score=(guesses["score"] > 0.5).astype(int))
    right = (guesses["score"] == guesses["is_model"]).groupby(guesses["is_model"]).mean()
    assert told_by_raters(guesses)["value"] == pytest.approx(right.mean())


def test_pairs_are_of_one_start_even_where_two_starts_share_a_dialogue():
    own = pd.DataFrame(
        {
            "reply_id": list("abcdefgh"),
            "responder": list("mnmnmnmn"),
            "history_id": ["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"],
            "dialogue_id": [1, 1, 1, 1, 2, 2, 3, 3],
            "score": [2, 1, 5, 4, 2, 1, 2, 1],
        }
    ).assign(rater="s")
    scores = pd.concat([own, own.assign(rater="ann")])
    assert agree_with_outside(scores, "s")["n"] == 4


def test_what_is_not_given_is_not_checked():
    table = seeker_card("s")
    assert table["outcome"].tolist() == ["not checked"] * 5
    assert table["value"].isna().all()


def test_turns_of_one_source_are_told_apart_as_a_coin_would():
    rng = np.random.default_rng(6)
    found = tell_from_real(said(rng, 200), said(rng, 200))
    assert found["ci_low"] < 0.5 < found["ci_high"]


def share_covered(draw, n_studies):
    rows = [draw() for _ in range(n_studies)]
    return np.mean([row["ci_low"] <= 0.5 <= row["ci_high"] for row in rows])


@pytest.mark.slow
def test_intervals_of_the_area_of_a_classifier_cover_one_half_where_nothing_differs():
    rng = np.random.default_rng(7)
    assert share_covered(lambda: tell_from_real(said(rng, 40), said(rng, 40)), 40) >= 0.85


def test_intervals_of_the_area_of_raters_cover_one_half_where_nothing_differs():
    rng = np.random.default_rng(7)
    assert share_covered(lambda: told_by_raters(guessed(rng, 40)), 100) >= 0.9
    assert share_covered(lambda: told_by_raters(guessed(rng, 40, lead=1.0)), 20) < 0.2


def test_turns_of_one_dialogue_are_not_learnt_from_when_it_is_tried():
    """Each dialogue has words of its own: by rows they would give the source away."""
    rng = np.random.default_rng(8)
    sides = [said(rng, 30), said(rng, 30)]
    twice = []
    for side in sides:
        side["text"] = ["".join(rng.choice(list("abcdefghijkl"), 8)) for _ in range(30)]
        twice.append(pd.concat([side, side], ignore_index=True))
    found = tell_from_real(*twice)
    assert found["value"] < 0.75
    with pytest.raises(TurnsError, match="5 dialogues or more"):
        tell_from_real(sides[0].head(3), sides[1])


def test_shares_by_hand():
    rows = {"responder": ["echo", "m"] * 4, "score": [1, 3, 3, 3, 4, 2, 1, 2]}
    scores = pd.DataFrame(rows).assign(rater="s", dialogue_id=sorted([*range(4)] * 2))
    assert probe_loses(scores, "echo")["value"] == 2.5 / 4  # a tie is half
    with pytest.raises(TurnsError, match="empty and a real supporter share 0 starts"):
        probe_loses(scores, "empty")


def test_names_alone_leave_out_the_start_itself():
    own = pd.DataFrame(
        {"reply_id": list("abcdef"), "responder": list("mnmnmn"), "dialogue_id": [1, 1, 2, 2, 3, 3]}
    )
    outside = own.assign(rater="ann", score=[3, 1, 3, 1, 1, 3])
    scores = pd.concat([own.assign(rater="s", score=[3, 1, 3, 1, 1, 3]), outside])
    row = agree_with_outside(scores, "s")
    assert row["value"] == 1.0
    # At starts 1 and 2 the other two even out and the names say nothing; at start 3 they are wrong.
    assert row["names_alone"] == 0.0


def test_codes_of_two_coders_are_not_pooled():
    two = pd.concat([coded(np.random.default_rng(9), fades=False)] * 2)
    two["coder"] = ["judge", "ann"] * (len(two) // 2)
    with pytest.raises(TurnsError, match="ann, judge"):
        seeker_card("s", adversarial=two)
