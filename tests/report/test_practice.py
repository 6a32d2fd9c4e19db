"""Conversations to read and to practise on, as pages."""

import itertools
import json
from html import unescape

import numpy as np
import pandas as pd
import pytest
from builders import histories, verdicts

from heart_utils.report.conversation import WRITTEN_BY, practise_comparisons, read_conversation
from heart_utils.tables import TABLES

ATTACK = "<script>alert('x')</script><img src=x onerror=alert(1)>"
KINDS = {"hand": "human", "engine": "model", "draft": "reference"}


def run_of(n=6, **texts):
    """Make the tables of a small run: three responders, all pairs, one judge in both orders."""
    places = [{"history_id": f"h{k}", "dialogue_id": f"d{k}"} for k in range(n)]
    told = pd.concat([histories(**place, problem=f"trouble {k}") for k, place in enumerate(places)])
    words = {"hand": "I am here.", "engine": "As a model.", "draft": "Drafted."} | texts
    rows = [(f"h{k}-{who}", f"h{k}", who, text) for k in range(n) for who, text in words.items()]
    replies = pd.DataFrame(rows, columns=["reply_id", "history_id", "responder", "text"])
    pairs = [(k, *pair) for k in range(n) for pair in itertools.combinations(sorted(words), 2)]
    said = verdicts(
        [(f"d{k}", one, other, "a", "judge") for k, one, other in pairs], rater_kind="model"
    )
    said = said.assign(history_id=[f"h{k}" for k, _, _ in pairs])
    both = pd.concat([said, said.assign(order="ba", verdict="b")], ignore_index=True)
    sides = {f"reply_{side}": said["history_id"] + "-" + said[f"responder_{side}"] for side in "ab"}
    responders = pd.DataFrame([{"responder": who, "responder_kind": KINDS[who]} for who in words])
    return [told, replies.assign(state="valid"), said.assign(**sides), both, responders]


NAMES = ("histories", "replies", "comparisons", "verdicts", "responders")


def page(tables, licences=("CC0-1.0",), **options):
    made = practise_comparisons(
        dict(zip(NAMES, tables, strict=True)),
        licences=licences,
        who_wrote="a test",
        rng=np.random.default_rng(1),
        **options,
    )
    return made._repr_html_()


def test_markup_and_marks_in_a_reply_a_problem_or_a_caution_are_shown_as_text():
    tables = run_of(hand=f"{ATTACK}Fine \u202eyrros")
    tables[0]["problem"] = ATTACK
    html = page(tables, cautions={"judge": ATTACK})
    assert html.count("<script>") == 1  # the page's own
    assert "<img" not in html
    assert "&lt;script&gt;alert" in html
    assert "Fine [U+202E]yrros" in html


def test_a_conversation_whose_trouble_nobody_named_is_not_about_nan():
    tables = run_of()
    tables[0]["problem"] = None
    assert "conversations are about: a trouble that nobody has named." in page(tables)


@pytest.mark.parametrize(
    "licences", [["CC0-1.0", "CC-BY-NC-4.0"], ["none stated"], ["a licence that nobody knows"]]
)
def test_where_the_manifest_does_not_allow_words_there_is_a_sentence_and_no_word(licences):
    html = page(run_of(), licences)
    assert html.startswith("<p>There is no practice here: words under")
    assert "I am here." not in html


def test_a_history_under_a_stricter_licence_than_the_manifest_says_is_left_out():
    tables = run_of()
    tables[0].loc[tables[0]["history_id"] == "h0", "licence"] = "CC-BY-NC-4.0"
    html = page(tables)
    assert "trouble 0" not in html
    assert "trouble 1" in html


def test_every_dialogue_is_shown_once_and_pairs_of_responders_take_turns():
    html = page(run_of(6))
    assert html.count("<article") == 6
    written = [part.split(">")[0] for part in html.split("<article ")[1:]]
    assert [sum(f"{who} (" in one for one in written) for who in KINDS] == [4, 4, 4]


def test_the_kind_of_each_writer_is_said_and_no_draft_passes_for_a_person():
    html = unescape(page(run_of()))
    assert (
        "draft (this project, drafted with a language model's help: not a person's own reply)"
        in html
    )
    assert "hand (a person)" in html
    assert "draft (a person" not in html


def test_every_kind_of_responder_has_words():
    assert set(WRITTEN_BY) == set(TABLES["responders"]["responder_kind"].words)


def test_verdicts_are_told_in_terms_of_the_sides_of_the_page():
    """The judge takes the reply shown first, so a when a is first and b when b is: inconsistent on
    either side."""
    html = page(run_of())
    for side in "AB":
        assert f"Reply {side} with Reply {side} shown first" in html
    assert html.count("both orders joined: inconsistent") == 6
    assert "Reply A with Reply B shown first" not in html


def test_a_reply_named_on_one_side_is_the_one_that_the_verdict_means():
    tables = run_of()
    tables[3]["verdict"] = "a"  # always the first in spelling: draft before engine before hand
    html = page(tables)
    for article in html.split("<article ")[1:]:
        left = article.split('data-a="')[1].split(" (")[0]
        right = article.split('data-b="')[1].split(" (")[0]
        assert f"both orders joined: Reply {'A' if left < right else 'B'}" in article
        assert (
            article.index(
                "<strong>Reply A</strong><p"
                f' dir="auto">{tables[1].set_index("responder")["text"][left].iloc[0]}'
            )
            > 0
        )


def test_failures_are_told_by_their_state():
    tables = run_of(1)
    tables[3] = tables[3].assign(state="refused", verdict=None)
    assert "refused with Reply" in page(tables)


def test_simulated_verdicts_say_so():
    tables = run_of()
    tables[3]["simulated"] = True
    assert page(tables).count('<span class="simulated">SIMULATED</span>') == 6


def test_a_run_without_words_says_so():
    tables = run_of()
    tables[1]["text"] = None
    assert "no conversation of this run has two valid replies" in page(tables)


def test_people_who_judged_a_pair_are_counted_in_terms_of_the_sides_of_the_page():
    tables = run_of(1, draft=None)
    tables[1] = tables[1].dropna(subset="text")
    asked = tables[3].query("order == 'ab' and responder_a == 'engine'")
    people = [
        asked.assign(rater=f"p{k}", rater_kind="human", verdict=vote)
        for k, vote in enumerate(["a", "a", "tie", "b", "a"])
    ]
    simulated = people[0].assign(rater="drawn", simulated=True, verdict="b")
    tables[3] = pd.concat([tables[3], *people, simulated]).fillna({"simulated": False})
    article = page(tables).split("<article ")[1]
    counts = json.loads(unescape(article.split('data-people="')[1].split('"')[0]))
    first, second = "ab" if 'data-a="engine' in article else "ba"
    assert counts == {first: 3, "tie": 1, second: 1}
    assert "People (6), overall" in article
    assert ", 1 neither" in article


def test_two_probes_are_never_compared():
    tables = run_of(4)
    tables[4]["responder_kind"] = ["probe", "model", "probe"]
    kinds = dict(zip(tables[4]["responder"], tables[4]["responder_kind"], strict=True))
    for article in page(tables).split("<article ")[1:]:
        sides = [article.split(f'data-{side}="')[1].split(" (")[0] for side in "ab"]
        assert "model" in [kinds[side] for side in sides]


def test_what_two_replies_differ_in_is_told_and_that_nobody_judged_them():
    tables = run_of(2)
    tables[3] = tables[3].head(0)
    html = page(tables, differs={"hand": "next to the draft, <nothing> more."})
    assert "next to the draft, &lt;nothing&gt; more." in html
    assert html.count("Nobody has rated this pair, no person and no judge.") == 2
    assert html.count('data-people="{}"') == 2


def test_markup_and_marks_in_a_turn_a_reply_or_a_label_are_shown_as_text():
    turns = [{"speaker": "seeker", "text": f"{ATTACK}a \u202eb\u202c\x00"}]
    replies = {f"{ATTACK}\u2067model": f"{ATTACK}c\u2066"}
    history = histories(turns=[turns]).iloc[0]
    html = read_conversation(history, replies, who_wrote=ATTACK)._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;") == 4
    for shown in ("a [U+202E]b[U+202C][U+0000]", "[U+2067]model", "c[U+2066]"):
        assert shown in html


def test_words_that_may_not_be_published_are_refused_by_name():
    history = histories(licence="CC-BY-NC-4.0").iloc[0]
    with pytest.raises(
        ValueError, match=r"words of h1 are under 'CC-BY-NC-4\.0' and may not be shown"
    ):
        read_conversation(history, who_wrote="someone")
