"""What an answer says, by hand: each case an answer and its reading. No model is asked."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heart_collect.calls.models import Call
from heart_collect.judging.prompts import PromptTemplate, load_protocol, load_rubric
from heart_collect.judging.readings import Reading, read_hits, read_labels, was_cut

CODES = ("K482", "T905")
UNPARSED = Reading("unparsed")


def form(name="heart", dimensions=("overall",), answer_format="json"):
    protocol = load_protocol(name)
    rubric = load_rubric(protocol.rubric)
    chosen = rubric.select(dimensions).dimensions if dimensions else rubric.dimensions
    return PromptTemplate(
        protocol, chosen, ("A", "B") if answer_format == "logprob" else CODES, answer_format
    )


def read(text, asked=None, **call):
    return (asked or form()).read(Call("c", **{"status": "ok", "text": text, **call}))


def one(text, asked=None, **call):
    (reading,), fault = read(text, asked, **call)
    return reading, fault


def said(winner="T905", **cells):
    return json.dumps({"overall": {"reasoning": "Warm.", "winner": winner, "margin": 2, **cells}})


VALID = Reading("valid", "second", 2.0, None, None, "Warm.")


@pytest.mark.parametrize("status", ["error", "refused"])
def test_a_call_that_failed_has_its_own_state_on_every_dimension(status):
    asked = form(dimensions=("overall", "attunement"))
    assert read(said(), asked, status=status) == ([Reading(status)] * 2, None)
    assert one(said(), status="truncated") == (VALID, None)
    labels = read_labels(Call("c", status, text='{"advice": true}'), ["advice"])
    assert labels == ([Reading(status)], None)


@pytest.mark.parametrize(
    ("winner", "reading"),
    [
        ("K482", ("valid", "first", 2.0)),
        ("T905", ("valid", "second", 2.0)),
        ("tie", ("valid", "tie", None)),
        ("t905", ("valid", "second", 2.0)),
        (" *T905*. ", ("valid", "second", 2.0)),
        ("Reply T905", ("valid", "second", 2.0)),
        ("the response K482", ("valid", "first", 2.0)),
        ("Tie", ("valid", "tie", None)),
        (None, ("abstained", None, None)),
        ("Abstain", ("abstained", None, None)),
        (" n/a ", ("abstained", None, None)),
        ("K482 T905", ("unparsed", None, None)),
        ("K48", ("unparsed", None, None)),
        ("", ("unparsed", None, None)),
        (2, ("unparsed", None, None)),
        (True, ("unparsed", None, None)),
        (["K482"], ("unparsed", None, None)),
        ("none", ("abstained", None, None)),
        ("Cannot judge", ("abstained", None, None)),
        *(
            (words, ("unparsed", None, None))
            for words in ("both bad", "K482 over T905", "first", "A", "draw", "a tie, nearly")
        ),
    ],
)
def test_a_winner_is_one_of_the_words_asked_for(winner, reading):
    found, fault = one(said(winner))
    assert (found.state, found.winner, found.margin, found.rationale) == (*reading, "Warm.")
    shown = repr(winner) if isinstance(winner, str) else repr(type(winner).__name__)
    unreadable = f"the winner on overall is {shown}, expected one of K482, T905, tie"
    assert fault == (unreadable if reading[0] == "unparsed" else None)


@pytest.mark.parametrize(
    ("margin", "read_as"),
    [
        *((n, float(n)) for n in range(1, 6)),
        (0, None), (6, None), (-1, None), (2.0, 2.0), (2.5, None), ("4", 4.0), (" 4 ", 4.0), ("4.0", 4.0), ("4.5", None),
        ("4/5", 4.0), ("4 / 5", 4.0), ("4/6", None), ("40", None), ("6", None), ("0", None), ("four", None), (True, None),
        (False, None), (None, None), (math.nan, None), ([2], None), ({}, None),
    ],
)  # fmt: skip
def test_a_margin_is_a_whole_number_from_one_to_five_and_nothing_else(margin, read_as):
    reading, fault = one(said(margin=margin))
    assert (reading.state, reading.winner, reading.margin, fault) == (
        "valid",
        "second",
        read_as,
        None,
    )


@pytest.mark.parametrize(
    ("cells", "score"),
    [
        ({"score": 4}, 4.0),
        ({"score": "4/5"}, 4.0),
        ({"score": 0}, None),
        ({"score": None}, None),
        ({}, None),
        (3, 3.0),
        ("5", 5.0),
        (6, None),
    ],
)
def test_a_score_of_a_reply_alone_is_a_whole_number_from_one_to_five(cells, score):
    asked = form("likert")
    cells = {"reasoning": "Warm.", **cells} if isinstance(cells, dict) else cells
    reading, fault = one(json.dumps({"overall": cells}), asked)
    why = "Warm." if isinstance(cells, dict) else None
    if score is None:
        shown = cells.get("score", cells) if isinstance(cells, dict) else cells
        assert (reading, fault) == (
            Reading("unparsed", rationale=why), f"the score on overall is {shown!r}, expected one of 1, 2, 3, 4, 5"
        )  # fmt: skip
    else:
        assert (reading, fault) == (Reading("valid", score=score, rationale=why), None)


@pytest.mark.parametrize(
    ("text", "winner", "margin"),
    [
        ("K482+", "first", 1.0),
        ("T905+++++", "second", 5.0),
        ("T905++++++", "second", None),  # six are more than there are
        ("T905", "second", None),
        (" 'T905'++. ", "second", 2.0),
        ("*K482* +++++", "first", 5.0),
    ],
)
def test_plus_signs_say_how_clearly(text, winner, margin):
    asked = form("heart-release", None)
    answer = {"reasoning": " Both. ", **{d.name: text for d in asked.dimensions}}
    readings, fault = read(json.dumps(answer), asked)
    assert readings == [Reading("valid", winner, margin, None, None, "Both.")] * len(
        asked.dimensions
    )
    assert fault is None


@pytest.mark.parametrize("said", ["tie", "K482++ T905+", "neither", "both+", "+++ K482 +++"])
def test_a_forced_choice_that_names_no_winner_is_unparsed_and_a_tie_is_none(said):
    """The released script takes the first name and every plus sign that it finds, for all
    scales."""
    asked = form("heart-release", None)
    names = [dimension.name for dimension in asked.dimensions]
    readings, fault = read(json.dumps(dict.fromkeys(names, said)), asked)
    assert {reading.state for reading in readings} == {"unparsed"}
    assert fault.count("expected one of K482, T905") == len(names)
    assert "T905, tie" not in fault


LEAVES = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["K482", "tie", "overall"])
)
KEYS = st.sampled_from(["overall", "winner", "margin", "verdicts"])


@given(
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_json_gives_one_reading_with_a_winner_only_where_valid(content):
    reading, fault = one(json.dumps(content))
    assert (reading.winner is not None) == (reading.state == "valid")
    assert (fault is not None) == (reading.state == "unparsed")


WRAPPERS = (
    "dimensions",
    "verdicts",
    "scores",
    "answer",
    "result",
    "judgement",
    "judgment",
    "scales",
)
INNER = {"overall": {"reasoning": "Warm.", "winner": "T905", "margin": 2}}


@pytest.mark.parametrize(
    "text",
    [
        said(),
        f"```json\n{said()}\n```",
        # the last counts
        f"First I thought {json.dumps({'overall': {'winner': 'K482'}})}, but: {said()}",
        f"{{not json}} {said()} {{nor this",
        f"{said()} {{}} {{'x': 1}}",
        said().replace("}}", ",},}"),
        said().replace("Warm.", "Warm.\t"),
        *(json.dumps({wrapper: INNER}) for wrapper in WRAPPERS),
        json.dumps({"answer": {"result": INNER}}),
        json.dumps({"Overall ": INNER["overall"]}),
        json.dumps([{"dimension": "overall", **INNER["overall"]}, "and a word"]),
        json.dumps([{"name": "overall", **INNER["overall"]}]),
        json.dumps({"verdicts": [{"dimension": "overall", **INNER["overall"]}]}),
        json.dumps(INNER["overall"]),  # one dimension was asked for, and there is one winner
        json.dumps({"reasoning": "Warm.", "answer": {"overall": {"winner": "T905", "margin": 2}}}),
        said()[:-1],  # cut short behind the dimension
    ],
)  # fmt: skip
def test_an_answer_is_found_in_its_wrapping(text):
    reading, fault = one(text)
    assert (reading._replace(rationale="Warm."), fault) == (VALID, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "T905 is better.",
        "[]",
        "3",
        "null",
        '"overall"',
        '{"other": 1}',
        "{" * 3000,
        "[" * 100_000,
        json.dumps({"outer": INNER}),
        '{"a":' * 3_000,
        "9" * 5_000,
        '{"overall": ' + "9" * 5_000 + "}",
        "\x00",
        '{"overall": ',
    ],
)
def test_what_speaks_of_no_dimension_is_unparsed_and_asked_for_again(text):
    assert one(text) == (UNPARSED, "it holds no JSON object of the form asked for")


OTHER = said("K482", reasoning="Colder.")
THOUGHTS = [
    "<think>Perhaps {}",
    "<thinking>\nPerhaps {}\nBut wait",
    "<THINK>{}",
    "<|channel|>analysis<|message|>Perhaps {}",
    "<|start|>assistant<|channel|>analysis<|message|>{}",
    "[THINK]{}",
    "◁think▷{}",
    "<reasoning>{}",
    "<think>One thing.</think><think>{}",
]


@pytest.mark.parametrize("thought", THOUGHTS)
@pytest.mark.parametrize("status", ["ok", "truncated"])
def test_a_draft_in_a_thought_without_an_end_is_no_verdict(thought, status):
    call = Call("c", status, thought.format(OTHER))
    assert form().read(call) == ([UNPARSED], "it holds no JSON object of the form asked for")
    assert was_cut(call)


@pytest.mark.parametrize(
    ("opened", "ended"),
    [
        ("<think>", "</think>"),
        ("", "</think>\n\n"),  # the prompt's template opened it
        ("<thinking>", "</thinking>"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("[THINK]", "[/THINK]"),
        ("<think>a<think>", "</think>b</think>"),
    ],
)
def test_a_thought_is_no_part_of_the_answer(opened, ended):
    assert one(f"{opened}Perhaps {OTHER}{ended}{said()}")[0] == VALID
    assert one(f"{opened}Perhaps {OTHER}{ended}```json\n{said()}\n```")[0] == VALID
    assert one(f"{opened}Perhaps {OTHER}{ended}I cannot tell.")[0] == UNPARSED
    assert not was_cut(Call("c", "ok", f"{opened}Perhaps {OTHER}{ended}{said()}"))


def test_a_thought_that_an_answer_speaks_of_is_none():
    text = said(reasoning="T905 lets <think> slip, and never </think>.")
    for wrapped in (text, f"```json\n{text}\n```", f"\n {text}\n"):
        assert one(wrapped)[0].state == "valid"


@pytest.mark.parametrize(
    "text",
    [
        "I weigh both. Draft: {}",
        "Draft: {}\nThen again, the first reply",
        "{}\nOn the other hand",
        "```json\n{}\n```\nHowever, the first",
        "First {} {}",
        "{} {}",
    ],
)
def test_a_draft_in_an_answer_that_was_cut_off_is_no_verdict(text):
    call = Call("c", "truncated", text.format(said(), said()))
    assert form().read(call) == ([UNPARSED], "it holds no JSON object of the form asked for")
    assert was_cut(call)


@pytest.mark.parametrize("opening", ["", "```json\n", "<think>Perhaps {}</think>\n"])
def test_what_is_whole_of_json_that_was_cut_off_counts(opening):
    asked = form(dimensions=("overall", "attunement"))
    names = [dimension.name for dimension in asked.dimensions]
    both = json.dumps({name: {"winner": "K482", "margin": 3} for name in names})
    cut = opening.format(OTHER) + both[: both.index(names[1]) + 20]
    readings, _ = read(cut, asked, status="truncated")
    assert readings == [Reading("valid", "first", 3.0), UNPARSED]
    assert one(said(), status="truncated") == (VALID, None)


TWICE_SAID = "given twice, in two ways"


@pytest.mark.parametrize(
    "text",
    [
        '{"overall": {"winner": "K482", "margin": 2}, "overall": {"winner": "T905", "margin": 2}}',
        '{"overall": {"winner": "K482", "winner": "T905", "margin": 2}}',
        '{"overall": {"winner": "K482", "Winner": "T905", "margin": 2}}',
        '{"overall": {"winner": "K482"}, "Overall": {"winner": "T905"}}',
        '{"OVERALL": {"winner": "K482"}, "Overall": {"winner": "T905"}}',
        '[{"dimension": "overall", "winner": "K482"}, {"dimension": "overall", "winner": "T905"}]',
        (
            '{"verdicts": [{"dimension": "overall", "winner": "K482"}, {"name": "overall",'
            ' "winner": "T905"}]}'
        ),
        '{"overall": {"winner": "K482"}, "overall": {"winner": "T905"}, "cut',
        '{"overall": {"winner": "K482",}, "overall": {"winner": "T905"}}',
        '```json\n{"overall": {"winner": "K482"}, "overall": {"winner": "T905"}}\n```',
    ],
)
def test_one_key_with_two_winners_is_no_verdict(text):
    reading, fault = one(text)
    assert reading.state == "unparsed"
    twice = f"the winner on overall is '{TWICE_SAID}', expected one of K482, T905, tie"
    assert fault in (twice, "overall is answered in two ways")


def test_one_key_that_says_the_same_twice_is_one_verdict():
    twice = (
        '{"overall": {"reasoning": "a", "winner": "T905", "margin": 2}, "overall": {"reasoning":'
        ' "b", "winner": "T905"}}'
    )
    assert one(twice)[0][:2] == ("valid", "second")
    assert one('{"overall": {"winner": "T905", "margin": 2, "margin": 4}}')[0][:3] == (
        "valid",
        "second",
        None,
    )


@pytest.mark.parametrize(
    "text",
    [
        "{verdict} Had K482 named the feeling, I would say: {other}",
        "{verdict}\n\nIf the names were swapped: {other}",
        "{verdict}\nAn example of the opposite: {other}",
        "{verdict}\n{other}",
        "{verdict} But had it been warmer, my verdict: {other}",
        "{verdict} Wäre sie wärmer gewesen: {other}",
        "The first reply is short. {verdict} For a longer one: {other}",
        "```json\n{verdict}\n```\nFor comparison:\n```json\n{other}\n```",
        "{broken} For comparison: {other}",  # the verdict cannot be read, the example can
        "{comma} For comparison: {other}",
        "{verdict} And {open}",
    ],
)
def test_an_example_beside_the_verdict_does_not_flip_it(text):
    broken = said(reasoning='She said QUOTE"hi".').replace('\\"', '"')
    comma, cut = said().replace("}}", ",},}"), OTHER[:-4]
    text = text.replace("{verdict}", said()).replace("{other}", OTHER).replace("{broken}", broken)
    reading, fault = one(text.replace("{comma}", comma).replace("{open}", cut))
    assert reading.state == "unparsed"
    assert fault == "overall is answered in two ways" or TWICE_SAID in fault


@pytest.mark.parametrize(
    "text",
    [
        "First I thought {other}, but: {verdict}",
        "Draft: {other}\nFinal verdict: {verdict}",
        "{other}\nOn reflection: {verdict}",
        "Initially {other}. {verdict}",
        "{verdict} {verdict}",
        (
            '{{"overall": {{"reasoning": "...", "winner": "K482 or T905 or tie", "margin": "1 to'
            ' 5"}}}}\n{verdict}'
        ),
    ],
)
def test_a_draft_that_is_called_so_and_a_pattern_that_is_repeated_leave_the_verdict(text):
    assert one(text.format(verdict=said(), other=OTHER)) == (VALID, None)


def test_labels_and_hits_that_are_given_in_two_ways_are_not_read():
    labels = Call("c", "ok", '{"advice": true, "question": true, "advice": false}')
    readings, fault = read_labels(labels, ["advice", "question"])
    assert (readings[0].state, readings[1].score, TWICE_SAID in fault) == ("unparsed", 1.0, True)
    for text in (
        '{"reason": "a", "hits": [1, 0], "hits": [0, 1]}',
        '{"reason": "a", "hits": [1, 0]} or {"reason": "b", "hits": [0, 0]}',
    ):
        readings, fault = read_hits(Call("c", "ok", text), 2)
        assert readings == [UNPARSED] * 2
        assert fault


def test_two_dimensions_are_read_apart_and_what_is_missing_is_named():
    asked = form(dimensions=("overall", "attunement"))
    names = [dimension.name for dimension in asked.dimensions]
    both = {names[0]: {"winner": "K482", "margin": 1}, names[1]: {"winner": "nobody", "margin": 1}}
    readings, fault = read(json.dumps(both), asked)
    assert [reading.state for reading in readings] == ["valid", "unparsed"]
    assert fault == f"the winner on {names[1]} is 'nobody', expected one of K482, T905, tie"
    readings, fault = read(json.dumps({names[1]: {"winner": "K482"}}), asked)
    assert readings == [UNPARSED, Reading("valid", "first")]
    assert fault == f"{names[0]} is missing"
    assert read("{}", asked)[1] == "it holds no JSON object of the form asked for"
    readings, fault = read(json.dumps({"winner": "K482"}), asked)  # of which of the two?
    assert {reading.state for reading in readings} == {"unparsed"}
    cut = json.dumps(
        {names[0]: {"winner": "K482", "margin": 3}, names[1]: {"winner": "T905", "margin": 2}}
    )
    readings, fault = read(cut[: cut.index(names[1]) + len(names[1]) + 8], asked)
    assert (readings, fault) == (
        [Reading("valid", "first", 3.0), UNPARSED],
        f"{names[1]} is missing",
    )
    readings, fault = read(json.dumps({names[0]: "nobody", names[1]: 7}), asked)
    assert fault.split("; ") == [
        f"the winner on {names[0]} is 'nobody', expected one of K482, T905, tie",
        f"the winner on {names[1]} is 'int', expected one of K482, T905, tie",
    ]


def test_a_dimension_that_is_missing_spoils_no_other_where_a_judge_wrote_the_names_its_own_way():
    asked = form(dimensions=("overall", "attunement"))
    names = [dimension.name for dimension in asked.dimensions]
    readings, fault = read(
        json.dumps({f" {names[1].upper()} ": {"winner": "K482", "margin": 2}}), asked
    )
    assert readings == [UNPARSED, Reading("valid", "first", 2.0)]
    assert fault == f"{names[0]} is missing"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("I'm sorry, but I can't help with that.", "refused"),
        ("Unfortunately, I cannot judge these replies.", "refused"),
        ("I will not rate this.", "refused"),
        ("As an AI, I am unable to properly assess this.", "refused"),
        ("I must decline to compare them.", "refused"),
        ("T905 says: I can't help with that.", "unparsed"),
        ("I cannot help with this request.", "refused"),
        ("I can't wait to see it.", "unparsed"),
        ("I'm sorry for the seeker. T905 is warmer.", "unparsed"),
        ("I think both are warm. I cannot judge.", "unparsed"),
    ],
)
def test_a_refusal_in_words_is_a_refusal_and_is_not_asked_again(text, state):
    reading, fault = one(text)
    assert reading == Reading(state)
    assert (fault is None) == (state == "refused")
    assert one(f"{text} {said()}")[0].state == "valid"  # whoever answers after all has answered


@pytest.mark.parametrize(
    ("tokens", "p_first", "winner", "little"),
    [
        ([("A", -0.2231435513), ("B", -1.6094379124)], 0.8, "first", False),  # 0.8 and 0.2
        ([("B", -0.2231435513), ("A", -1.6094379124)], 0.2, "second", False),
        ([("A", -0.6931471806), ("B", -0.6931471806)], 0.5, "tie", False),
        # 0.3 and 0.3 of two ways to write A, 0.2 for B: 0.6 / 0.8
        ([("A", -1.2039728043), (" A", -1.2039728043), ("B", -1.6094379124)], 0.75, "first", False),
        # 0.3 and 0.1: together less than half
        ([("A", -1.2039728043), ("B", -2.302585093), ("The", -0.5108256238)], 0.75, "first", True),
        # B is not listed, so at most as probable as the least listed, 0.1: 0.9 / 1.0
        ([("A", -0.1053605157), ("the", -2.302585093)], 0.9, "first", False),
        ([("▁B.", -0.1053605157), ("Ġ*", -2.302585093)], 0.1, "second", False),
        ([("A", -0.6)], 0.5, "tie", False),  # alone: nothing says that B is less probable
    ],
)
def test_letters_are_weighed_by_their_probabilities(tokens, p_first, winner, little):
    reading, fault = one("A", form(answer_format="logprob"), logprobs=tuple(tokens))
    assert (reading.state, reading.winner, reading.little_mass, fault) == (
        "valid",
        winner,
        little,
        None,
    )
    assert reading.p_first == pytest.approx(p_first, abs=1e-9)


@pytest.mark.parametrize(
    ("told", "score"),
    [
        *((told, 1.0) for told in (True, "true", "True", " yes ", "1", 1)),
        *((told, 0.0) for told in (False, "false", "NO", "0", 0)),
        *((told, None) for told in (None, "perhaps", "", 2, [])),
    ],
)
def test_a_label_holds_or_does_not_and_what_is_neither_is_unparsed(told, score):
    call = Call("c", "ok", text=json.dumps({"advice": told, "question": True}))
    readings, fault = read_labels(call, ["advice", "question"])
    assert readings == [
        UNPARSED if score is None else Reading("valid", score=score),
        Reading("valid", score=1.0),
    ]
    assert fault == (
        f"advice is {json.dumps(told)}; expected true or false" if score is None else None
    )


@pytest.mark.parametrize("tokens", [None, (), (("The", -0.1), ("C", -2.0)), (("AB", -0.1),)])
def test_where_no_letter_is_listed_there_is_no_answer_and_no_use_in_asking_again(tokens):
    assert one("A", form(answer_format="logprob"), logprobs=tokens) == (UNPARSED, None)
