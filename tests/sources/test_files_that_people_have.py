"""The files that people have: each is read by the call that its own refusal proposes, once the user
has added what only they know, or refused with what to say."""

import argparse
import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from source_builders import added, holds, proposed, refused, write

from heart_utils.judges.position import position_bias
from heart_utils.sources.defaults import add_reading, reading_of
from heart_utils.sources.formats import unpack_log
from heart_utils.sources.load import describe_votes, load_scores, load_verdicts
from heart_utils.tables import DataError

LOGS = Path(__file__).with_name("inspect_ai")
HUMAN = {"rater_kind": "human"}
BATTLES = [
    {"question_id": question, "model_a": a, "model_b": b, "winner": word, "judge": who, "turn": 1}
    for question, a, b, word, who in (
        (81, "x", "y", "model_a", "ann"),
        (82, "y", "x", "model_a", "ann"),
        (82, "x", "y", "tie", "ben"),
    )
]
SHOWN = [(f"q{n}", *("alpha", "beta")[:: 1 if n % 2 else -1]) for n in (1, 2, 3, 4)]
WON = "alpha alpha tie alpha"


def battles(*words, **names):
    """Four battles that alpha won but for the third, in the words of a tool."""
    heads = [names.get(name, name) for name in ("question_id", "model_a", "model_b", "winner")]
    rows = zip(SHOWN, words, strict=True)
    return [
        dict(zip(heads, (*shown, word), strict=True)) | {names.get("judge", "judge"): "ann"}
        for shown, word in rows
    ]


def asked_twice(head, *codes, judge="gpt-j"):
    """Both orders of two pairs, by a judge that always takes the reply shown first."""
    return pd.DataFrame(
        [
            {"q": f"q{number}", "model_a": "mine", "model_b": "gold", head: code, "judge": judge}
            | {"winner": "model_a" if place % 2 == 0 else "model_b"}
            for number in (1, 2)
            for place, code in enumerate(codes)
        ]
    )


FIRST = "mine gold mine gold"
KAGGLE = "id,model_a,model_b,winner_model_a,winner_model_b,winner_tie\n0,x,y,1,0,0\n1,{},0\n2,x,y,0,0,1\n"
POTATO = "user,instance_id,pick:::A,pick:::B,pick:::tie\nu0,d0,1,,\nu1,d0,,1,\nu0,d1,,,1\n"
POTATO_SHOWN = pd.DataFrame({"instance_id": ["d0", "d1"], "responder_a": "x", "responder_b": "y"})
FORM = (
    "Timestamp,Email Address,Conversation 1 [Better?],Conversation 2 [Better?],Comments\n"
    "2026/01/01,p0@example.org,Reply 1,,\n2026/01/01,p1@example.org,No difference,Reply 2,ok\n"
)
QUALTRICS = (
    "StartDate,EndDate,Status,Finished,ResponseId,Q1,Q2\n"
    "Start Date,End Date,Response Type,Finished,Response ID,Which is better?,Which is better?\n"
    + ",".join('"{""ImportId"": ""q""}"' for _ in range(7))
    + "\n2026-01-01,2026-01-01,IP Address,True,R_0,Reply A,Both equal\n"
    + "2026-01-01,2026-01-01,IP Address,True,R_1,Reply B,Reply B\n"
)
TWO_HEADERS = (
    "StartDate,EndDate,Finished,ResponseId,Q1,Q2\n"
    "Start Date,End Date,Finished,Response ID,Which?,Which?\n"
    "2024-01-01,2024-01-01,True,R_1,Reply A,Reply B\n2024-01-01,2024-01-01,True,R_2,Reply A,Equal\n"
)
TURK = "HITId,WorkerId,AssignmentStatus,Input.dialogue,Input.left,Input.right,Answer.choice,Approve,Reject\n"
TURKS = "H0,A1XPLANT2ED,Approved,d0,x,y,left\nH1,A2X,Rejected,d1,x,y,right\n"
LIMESURVEY = (
    '"id. Antwort-ID";"submitdate. Datum";"startlanguage. Sprache";"Q1. Welche?";"Q2. Welche?"\n'
    '"1";"2026-01-01";"de";"Antwort A";"gleich gut"\n"2";"2026-01-02";"de";"Antwort B";""\n'
)


def shown(*columns):
    """What a form showed: x first in the first column, y first in the second."""
    pairs = zip(columns, ("xy", "yx"), strict=True)
    return {
        "shown": [
            {"column": name, "history_id": f"c-{name}", "responder_a": a, "responder_b": b}
            for name, (a, b) in pairs
        ]
    }


def annotation(side, cancelled=False):
    """What Label Studio writes of one annotator."""
    result = [
        {"type": "pairwise", "value": {"selected": side}},
        {"type": "rating", "value": {"rating": 3}},
    ]
    who = {"email": f"{side}@example.org"}
    return {"completed_by": who, "was_cancelled": cancelled, "result": result}


LABEL_STUDIO = [
    {"id": 0, "data": {"model1": "x", "model2": "y"}, "annotations": [annotation("left"), annotation("right", True)]},
    {"id": 1, "data": {"model1": "y", "model2": "x"}, "annotations": [annotation("left")]},
]  # fmt: skip


def task(text, *accept, answer="accept", options=("x", "y")):
    """What Prodigy writes of one choice."""
    about = {"_task_hash": 1, "_annotator_id": "r0", "answer": answer}
    return about | {"text": text, "options": [{"id": one} for one in options], "accept": accept}


PRODIGY = [task("c0", "x"), task("c1", "y", answer="ignore"), task("c2", "y")]
ALPACA = pd.DataFrame(
    {
        "instruction": ["i0", "i1", "i2"],
        "generator_1": ["zeta", "ref", "zeta"],
        "generator_2": ["alpha", "zeta", "alpha"],
        "preference": [1.25, 2.0, None],
        "annotator": "alpaca_eval_gpt4",
    }
)
GAMES = [
    {"question_id": f"q{n}", "model": "mine", "judge": "j", "games": [{"score": "A>B"}] * 2}
    for n in range(8)
]
ARGILLA = [
    {
        "id": history,
        "fields": {"prompt": "p"},
        "metadata": {"model_a": first, "model_b": second},
        "responses": [
            {"user_id": user, "values": {"preference": {"value": word}}, "status": status}
            for user, status in (("u1", "submitted"), ("u2", "discarded"))
        ],
    }
    for (history, first, second), word in zip(
        SHOWN, ["response_a", "response_b", "tie", "response_b"], strict=True
    )
]
DOCCANO = [
    {"id": place, "text": "t", "label": [word], "model_a": first, "model_b": second}
    for place, ((_, first, second), word) in enumerate(
        zip(SHOWN, ["A", "B", "tie", "B"], strict=True)
    )
]
SHORT_LABEL_STUDIO = [
    {"id": place, "prompt": history, "model1": first, "model2": second}
    | {"comparison": word, "annotator": 1}
    for place, ((history, first, second), word) in enumerate(
        zip(SHOWN, ["left", "right", "left", "right"], strict=True)
    )
]
FAST_CHAT = [
    {"question_id": 1, "model_1": "x", "model_2": "y", "g1_winner": "model_1", "turn": 1}
    | {"g2_winner": "model_2", "judge": ["gpt-4", "pair-v2"]}
]
PAGE = {"item": "d1", "subject": "s1", "left_model": "x", "right_model": "y", "response": 0}
LONG_OTREE = (
    "participant.code,participant._is_bot,subsession.round_number,player.model_left,"
    "player.model_right,player.choice\np1,0,1,x,y,left\np1,0,2,y,x,right\np3,1,1,x,y,left\n"
)
EACH = "question_id,model_a,model_b,judge,empathy,clarity\nq1,alpha,beta,ann,model_a,model_b\nq2,beta,alpha,ann,model_b,tie\n"
BY_RATER = pd.DataFrame(
    {"item": ["1"], "model_a": "x", "model_b": "y", "annotator1": "model_a", "annotator2": "tie"}
)
KEPT = pd.DataFrame(BATTLES).drop(columns="turn")
GERMAN = {"question_id": "Gespräch", "model_a": "links", "model_b": "rechts", "winner": "Urteil"}
SPREADSHEET = pd.DataFrame(
    battles("links", "rechts", "beide gut", "rechts", **GERMAN, judge="rater")
)
LOG = {
    "version": 2,
    "status": "success",
    "eval": {"model": "m", "task": "t", "scorers": [{"name": "match"}]},
    "samples": [
        {"id": number, "epoch": 1, "scores": {"match": {"value": mark}}}
        for number, mark in enumerate("CI")
    ],
}
PLACES = "question_id,{},judge,winner\n1,x,y,ann,left\n2,x,y,ann,right\n"
STATUSES = "task_id,task_status,model_1,model_2,preference\nt1,completed,x,y,Response 1\nt2,rejected,x,y,Response 2\n"
RATERS = {"rater": "{column}", "rater_kind": "human"}


def sides(first, second, *words):
    """Two rows in which x was better, the sides changed in the second."""
    rows = {"item": ["1", "2"], "judge": "r", first: ["x", "y"], second: ["y", "x"]}
    return pd.DataFrame(rows | {"choice": words})


def case(content, name="votes.csv", said="", more=None, load=load_verdicts, **expected):
    return content, name, said, more or {}, load, expected


READ = {
    "Chatbot Arena": case(
        BATTLES,
        "battles.json",
        "Confirm that those who judged are of the kind 'human'|Read so, 3 rows give 3 answers",
        won="x y tie",
        history_id=["81", "82", "82"],
    ),
    "participants": case(
        "Dialog,model_a,model_b,winner,participant\nd1,x,y,model_a,q1\nd2,x,y,model_b,q2\n",
        said="are of the kind 'human'",
        won="x y",
        rater_kind=["human"] * 2,
    ),
    "two bad replies": case(
        [*BATTLES, {**BATTLES[0], "winner": "tie (bothbad)", "judge": "cem"}],
        "",
        "that 'tie (bothbad)' is a tie, and not 'abstained'",
        won="x y tie tie",
    ),
    "turns of one question": case(
        [BATTLES[0], {**BATTLES[0], "turn": 2, "winner": "model_b"}],
        "",
        won="x y",
        history_id=["81-1", "81-2"],
        dialogue_id=["81", "81"],
    ),
    "Kaggle's winners": case(KAGGLE.format("y,x,1,0"), won="x y tie"),
    "Potato": case(
        POTATO,
        said="shown says of each of the 2 values of instance_id who wrote",
        more={"shown": POTATO_SHOWN},
        won="x y tie",
    ),
    "Google Forms": case(
        FORM,
        said="it looks like Google Forms|2 rows were read and 3 answers kept: 1 blank cells",
        more=shown("Conversation 1 [Better?]", "Conversation 2 [Better?]"),
        won="x tie x",
    ),
    "Qualtrics": case(
        QUALTRICS,
        said="it looks like Qualtrics|2 rows of headers by Qualtrics",
        more=shown("Q1", "Q2"),
        won="x y tie x",
        rater=["R_0", "R_1"] * 2,
    ),
    "Qualtrics' preview": case(
        QUALTRICS.replace("IP Address,True,R_1", "Survey Preview,True,R_1"),
        said="1 of 2 rows may not count: |, first in row 3|1 left out by",
        more=shown("Q1", "Q2"),
        won="x tie",
    ),
    "Qualtrics' unfinished": case(
        QUALTRICS.replace("IP Address,True,R_1", "IP Address,False,R_1"),
        said="1 of 2 rows may not count: |, first in row 3|1 left out by",
        more=shown("Q1", "Q2"),
        won="x tie",
    ),
    "Qualtrics without import ids": case(
        TWO_HEADERS,
        said="rows of headers by Qualtrics",
        more=shown("Q1", "Q2"),
        won="x x x tie",
    ),
    "rejected work": case(TURK + TURKS, said="1 left out by AssignmentStatus 'Rejected'", won="x"),
    "rejected work on request": case(
        TURK + TURKS, more={"only": {"AssignmentStatus": ["Approved", "Rejected"]}}, won="x y"
    ),
    "a reason to reject": case(
        "HITId,WorkerId,AssignmentStatus,Input.model_a,Input.model_b,Answer.choice,Approve,Reject\n"
        "H1,A1XPLANT2ED,Submitted,alpha,beta,left,x,\nH2,A1XPLANT2ED,Submitted,beta,alpha,right,,wrong\n",
        said="1 of 2 rows may not count: Reject is 'wrong', first in row 1. only={'Reject': ''}",
        won="alpha",
    ),
    "a status of any header": case(
        STATUSES, said="1 of 2 rows may not count: task_status is 'rejected'", won="x"
    ),
    "Label Studio": case(
        LABEL_STUDIO, "a.json", "left out by annotations.was_cancelled 'True'", won="x y"
    ),
    "Label Studio's short JSON": case(SHORT_LABEL_STUDIO, "a.json", won=" ".join(["alpha"] * 4)),
    "Prodigy": case(PRODIGY, "a.jsonl", "1 left out by answer 'ignore'", won="x y"),
    "Prodigy with sides as names": case(
        [task("q1", "A", options="AB")],
        "a.jsonl",
        "A and B are names of who wrote the replies, and not of sides or places",
        won="A",
    ),
    "Argilla": case(
        ARGILLA[:2], "a.jsonl", "only={'responses.status': 'submitted'}", won="alpha alpha"
    ),
    "doccano": case(DOCCANO, "a.jsonl", won=WON),
    "AlpacaEval": case(
        ALPACA,
        "",
        "preference is 1 where output_1 is better",
        won="zeta zeta error",
        p_a=[0.25, 0.0],  # alpha is a, and zeta was better by 0.75
    ),
    "Arena-Hard": case(
        GAMES[:2], "a.jsonl", more={"always": {"responder_a": "base"}}, won="base base"
    ),
    "FastChat": case(
        FAST_CHAT, "pairs.json", won="x y", order=["ab", "ba"], rater=["gpt-4", "gpt-4"]
    ),
    "evalscope": case(
        "question_id,model_1,model_2,win_1,win_2\nq,x,y,model_1,model_2\n",
        won="x y",
        order=["ab", "ba"],
    ),
    "oTree": case(LONG_OTREE, said="looks like oTree", won="x x"),
    "LimeSurvey": case(
        LIMESURVEY,
        said="looks like LimeSurvey|'id. Antwort-ID': 'rater'|submitdate|1 blank cells",
        more=shown("Q1. Welche?", "Q2. Welche?"),
        won="x y tie",
    ),
    "jsPsych": case(
        [PAGE, PAGE | {"subject": "s2", "response": 1}],
        "jspsych.json",
        "you add to words what '0' means",
        more={"words": {"0": "a", "1": "b"}},
        won="x y",
        history_id=["d1", "d1"],
    ),
    "tallies": case("player1,player2,win1,win2\nx,y,3,1\n", won="x x x y"),
    "tallies of R": case(
        "home.team,away.team,home.wins,away.wins\nalpha,beta,2,1\n", won="alpha alpha beta"
    ),
    "tallies of models": case(
        "question_id,model_1,model_2,win_1,win_2\nq,x,y,1,2\n", won="x y y", order=[None] * 3
    ),
    "winners and losers": case(
        "winner,loser\nx,y\ny,x\nx,y\n",
        said="each row is a conversation of its own",
        won="x y x",
        order=[None] * 3,
    ),
    "winners, losers and draws": case(
        "winner,loser,draw\nx,y,False\nx,y,True\n", said="'draw': 'verdict:tie'", won="x tie"
    ),
    "winning models": case("winning_model,losing_model,judge,prompt_id\ny,x,ann,1\n", won="y"),
    "columns of one name": case(
        "id,model,model,judge,winner\n1,x,y,ann,x\n2,x,y,ann,y\n", won="x y"
    ),
    "places as words": case(
        PLACES.format("model_a,model_b"),
        said="the reply called left was shown first in every row, and is that of model_a",
        won="x y",
        order=["ab", "ab"],
    ),
    "places as headers": case(
        PLACES.format("model_left,model_right"),
        said="and is that of model_left",
        won="x y",
        order=["ab", "ab"],
    ),
    "numbers as steps": case(
        battles(1, 7, 4, 6),
        "",
        more={"columns": {"winner": "p_a"}, "words": {"p_a": {"1": 1, "7": 0}}},
        won=WON,
    ),
    "a winner by name": case(battles("alpha", "alpha", "tie", "alpha"), "a.json", won=WON),
    "ids as floats": case(
        pd.DataFrame(BATTLES).assign(question_id=[1.0, 2.0, 3.0]),
        "",
        won="x y tie",
        history_id=["1", "2", "3"],
    ),
    "categories": case(pd.DataFrame(BATTLES).astype({"model_a": "category"}), "", won="x y tie"),
    "categories in Parquet": case(
        pd.DataFrame(BATTLES).astype({"winner": "category"}), "a.parquet", won="x y tie"
    ),
    "a header of people": case(
        "question_id,model_a,model_b,winner,Person\n1,x,y,a,Anna Müller\n2,x,y,b,Bernd Maier\n",
        said="'Person': 'rater'",
        won="x y",
    ),
    "answers by dimension": case(
        EACH,
        said="Nothing here says what is verdict|  empathy: 'model_a', 'model_b'",
        more={
            "columns": {"empathy": "verdict", "clarity": "verdict"},
            "always": {"dimension": "{column}"},
            "words": {"model_a": "a", "model_b": "b"},
        },
        won="alpha alpha beta tie",
        dimension=["empathy", "empathy", "clarity", "clarity"],
    ),
    "answers by rater": case(
        BY_RATER,
        "",
        "  annotator1: 'model_a'\n  annotator2: 'tie'",
        more={
            "always": RATERS,
            "columns": {"annotator1": "verdict", "annotator2": "verdict"},
            "words": {"model_a": "a"},
        },
        rater=["annotator1", "annotator2"],
    ),
    "half of the orders": case(
        asked_twice("swapped", 0, 1, None, None),
        "",
        more={"repeats": "number"},
        order=["ba", "ab", None, None],
    ),
    "orders under another header": case(
        asked_twice("variant", "u", "v"),
        "",
        "Read so, it still says: verdicts: 4 rows repeat another row's|a column that says which"
        " reply was shown first is the order",
        more={"columns": {"variant": "order"}, "words": {"order": {"u": "ab", "v": "ba"}}},
        won=FIRST,
        order=["ba", "ab"] * 2,
    ),
    "copies": case(
        pd.concat([asked_twice("swapped", 0, 1)] * 2, ignore_index=True),
        "",
        "a copy goes out (repeats='drop')|4 copies of another row",
        more={"repeats": "drop"},
        won=FIRST,
    ),
    "scores again": case(
        "question_id,model,score,tstamp\nq,m,0,1\nq,m,1,2\n",
        said="keep one score, or the mean; replies that were written anew need a reply_id",
        more={"always": {"reply_id": "{question_id}-{model}-{tstamp}"}},
        load=load_scores,
        reply_id=["q-m-1", "q-m-2"],
    ),
    "scores by dimension": case(
        "prompt,model,warmth,wit\np,x,1,3\nq,y,2,4\n",
        said="Nothing here says what is score|  warmth: '1', '2'\n  wit: '3', '4'|always={'dimension': '{column}'}",
        more={
            "columns": {"warmth": "score", "wit": "score"},
            "always": {"dimension": "{column}"},
        },
        load=load_scores,
        dimension=["warmth"] * 2 + ["wit"] * 2,
    ),
    "scores by rater": case(
        "Antwort;Modell;Ärztin 1;Arzt 2\na0;m;1;5,5\na1;m;8;8\n",
        said="if for each rater, 'rater'",
        more={
            "always": RATERS | {"dimension": "overall"},
            "columns": {"Ärztin 1": "score", "Arzt 2": "score"},
        },
        load=load_scores,
        score=[1.0, 8.0, 5.5, 8.0],
    ),
    "correct and incorrect": case(json.dumps(LOG), "log.json", load=load_scores, score=[1.0, 0.0]),
    "scores of inspect_ai": case(
        (LOGS / "scored.eval").read_bytes(),
        "scored.eval",
        "it looks like inspect_ai",
        load=load_scores,
        reply_id=["chat-1--mockllm/model--1"] * 2,
        score=[4.0, 3.0],
        dimension=["warmth", "clarity"],
    ),
}
READ |= {
    f"sides {first}": case(
        sides(first, second, *words),
        "",
        "was shown first in every row",
        order=["ab", "ba"],
        verdict=["a", "a"],
    )
    for first, second, *words in (
        ("model_left", "model_right", "left", "right"),
        ("first", "second", "first", "second"),
        ("Input.left", "Input.right", "left", "right"),
    )
}
READ |= {
    f"words {words[0]}": case(battles(*words, words[1]), "a.json", won=WON)
    for words in (
        ("Response A", "Response B", "Tie"),
        ("Left", "Right", "Both equal"),
        ("A>>B", "B>A", "A=B"),
        ("[[A>B]]", "[[B>>A]]", "[[A=B]]"),
        ("[[A]]", "[[B]]", "[[C]]"),
        ("model_1", "model_2", "tie"),
        ("Assistant A", "Assistant B", "both good"),
        ("Chatbot A is better", "Chatbot B is better", "They are equally good"),
        ("A is slightly better", "The response B is much better", "About the same"),
        ("Option 1", "Option 2", "both bad"),
    )
}
READ |= {
    f"order {head} {first!r}": case(
        asked_twice(head, first, second),
        "",
        "" if head == "order" else f"{head} says which reply was shown first",
        won=FIRST,
        order=["ba", "ab"] * 2,
        repeat=[0] * 4,
    )
    for head, first, second in (
        ("swapped", 0, 1),
        ("swapped", "0", "1"),
        ("flipped", False, True),
        ("order_swapped", "no", "yes"),
        ("is_reversed", "false", "true"),
        ("shown_first", "model_a", "model_b"),
        ("shown_first", "mine", "gold"),
        ("presented_first", "A", "B"),
        ("first", 1, 2),
        ("position", 1, 2),
        ("left", "mine", "gold"),
        ("meta.swapped", 0, 1),
        ("order", "AB", "BA"),
    )
}
READ |= {
    f"order {head} that may mean either": case(
        asked_twice(head, 0, 1),
        "",
        "verdicts.order: row 0 says '0' (4 such rows), expected 'ab'",
        more={"words": {"order": {0: "ab", 1: "ba"}}},
        won=FIRST,
        order=["ba", "ab"] * 2,
    )
    for head in ("shown_first", "position")
}
READ |= {
    f"pandas {orient}": case(
        pd.DataFrame(BATTLES).to_json(orient=orient), "votes.json", won="x y tie"
    )
    for orient in ("split", "index", "columns", "records")
}
READ |= {
    f"other words {number}": case(text, won="x y")
    for number, text in enumerate(
        (
            "frage_id;modell_a;modell_b;bewerter;gewinner\n1;x;y;ann;modell_a\n2;x;y;ann;modell_b\n",
            "Dialog,links,rechts,Besser,Wer\n1,x,y,Links,ann\n2,x,y,Rechts,ann\n",
            "id,a.model,b.model,vote.winner,vote.voter\n1,x,y,a,ann\n2,x,y,b,ann\n",
            "white,black,result\nx,y,1-0\nx,y,0-1\n",
            "test_id,baseline,candidate,grader,winner\n1,x,y,g,baseline\n2,x,y,g,candidate\n",
            "prompt_id,model_a,model_b,judge,prob_a\n1,x,y,gpt-4o,0.9\n2,x,y,gpt-4o,0.1\n",
            "sep=;\nquestion_id;model_a;model_b;judge;winner\n1;x;y;ann;A++\n2;x;y;ann;B+\n",
        )
    )
}
READ |= {
    f"spreadsheet {encoding}": case(
        SPREADSHEET.to_csv(index=False, sep=mark).encode(encoding), won=WON
    )
    for encoding, mark in (("cp1252", ";"), ("utf-8-sig", ","), ("utf-16", "\t"))
}
READ |= {
    f"kept {head}": case(KEPT.assign(**{head: cells}), said=said, won="x y tie")
    for head, cells, said in (
        ("confidence", [3, 1, 5], "columns={'confidence': 'margin'} keeps it)"),
        ("How sure", [0, 50, 100], "columns={'How sure': 'margin'} keeps it)"),
        ("Stärke", ["klar", "knapp", "klar"], "columns={'Stärke': 'margin'} keeps it)"),
        ("comment", ["warmer", "", "shorter"], "columns={'comment': 'rationale'} keeps it)"),
        ("WorkTimeInSeconds", [31, 12, 40], "columns={'WorkTimeInSeconds': 'seconds'}"),
    )
}


@pytest.mark.parametrize("name", READ)
def test_a_file_is_read_by_the_call_that_its_refusal_proposes(tmp_path, name):
    content, file, said, more, load, expected = READ[name]
    given = write(tmp_path, file, content)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        message = refused(load, given)
        table = load(given, **added(proposed(message), more))
    message += "".join(str(warning.message) for warning in told)
    assert [words for words in said.split("|") if words not in message] == []
    holds(table, expected)
    assert not [who for who in ("@example.org", "A1XPLANT2ED") if who in message + str(table)]


PLAIN = {"history_id": "c1", "responder_a": "zeta", "responder_b": "alpha", "rater": "j"}
PLAIN |= {"rater_kind": "model", "verdict": "b"}
DOTS = r"still has '\.\.\.'"
ASKED = {
    "two winners": (KAGGLE.format("y,x,1,0").replace("1,0,0\n2", "1,0,1\n2"), "votes.csv", {}, "row 1 .* winner_model_a and winner_tie .1 such"),
    "no mark": (KAGGLE.format("y,x,2,0"), "votes.csv", {}, "row 1 has '2' in winner_model_a, expected 1 or 0"),
    "nobody": (KAGGLE.format("y,x,0,0"), "votes.csv", {}, "verdict: row 1 is empty .1 in all.. Say why"),
    "shown of one": (POTATO, "votes.csv", {"shown": POTATO_SHOWN.head(1)}, "shown says nothing of instance_id d1 .1 answers."),
    "shown twice": (POTATO, "votes.csv", {"shown": pd.concat([POTATO_SHOWN] * 2)}, "shown has two rows about"),
    "no row left": (TURK + TURKS, "votes.csv", {"only": {"AssignmentStatus": "Accepted"}}, "no row: AssignmentStatus has 'Approved', 'Rejected'"),
    "two accepted": ([*PRODIGY, task("c3", "x", "y")], "a.jsonl", {}, "verdict: row 3 says"),
    "past the scale": (ALPACA.assign(preference=[1.0, 2.01, 1.5]), "", {}, r"p_a: .* from 1 to 2, .*row 1 has 2\.01"),
    "another scale": (ALPACA.assign(preference=[0.1, 0.9, 0.5]), "", {}, "row 0 has 0.1.*Say which number means a for sure"),
    "an empty id": (pd.DataFrame(BATTLES).assign(question_id=[1.0, 2.0, np.nan]), "", {}, "history_id: expected text, in every row; row 2 has nothing"),
    "who was shown": (TWO_HEADERS, "votes.csv", {}, f"shown {DOTS}"),
    "the baseline": (GAMES, "a.jsonl", {}, f"always {DOTS}"),
    "numbers from 1": (battles(1, 2, 0, 2), "", {}, "row 0 says '1'"),
    "numbers from 0": (battles(0, 1, 0, 1), "", {}, "row 0 says '0'"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ASKED)
def test_what_a_proposed_call_does_not_say_is_refused_again(tmp_path, name):
    content, file, more, said = ASKED[name]
    given = write(tmp_path, file, content)
    with pytest.raises(DataError, match=said):
        load_verdicts(given, **added(proposed(refused(load_verdicts, given)), more))


HEADS = {"question_id": "history_id", "model_a": "responder_a", "model_b": "responder_b"}
ARENA = {
    "columns": HEADS | {"winner": "verdict", "judge": "rater", "*": None},
    "words": {"model_a": "a", "model_b": "b"},
    "always": HUMAN,
}
ORDERS = added(ARENA, {"columns": {"q": "history_id"}})
ORDERS["columns"].pop("question_id")
COUNTS = {"columns": {"win1": "count:a", "win2": "count:b"}}
ARROWS = {"columns": HEADS | {"winner": "verdict", "judge": "rater", "*": None}, "always": HUMAN}
BY_NAME = pd.DataFrame([{**battle, "winner": "y"} for battle in BATTLES])
SPACED = pd.DataFrame(BATTLES).assign(model_a=["x", "y", " X"])
ROW = "question_id,model_a,model_b,judge,winner\n1,x,y,ann,model_a\n"
NESTED = {
    "results": [
        {"q": "d1", "pair": ["x", "y"], "votes": [{"by": "u1", "pick": "x"}, {"by": "u2", "pick": "y"}]},
        {"q": "d2", "pair": ["y", "x"], "votes": [{"by": "u1", "pick": "x"}]},
    ]
}  # fmt: skip
OPENED = {"q": "history_id", "pair.0": "responder_a", "pair.1": "responder_b"}
OPENED |= {"votes.by": "rater", "votes.pick": "verdict"}
WORSE = "question_id,model_a,model_b,judge,{}\n1,x,y,ann,{}\n2,x,y,ann,{}\n"
REFUSED = {
    "a word for two bad": ([*BATTLES, {**BATTLES[0], "winner": "tie (bothbad)", "judge": "cem"}], "", ARENA, r"row 3 says 'tie \(bothbad\)' .1 in all."),
    "rows again": ([BATTLES[0]] * 2, "", ARENA, "2 rows repeat another row's .*repeats='number'"),
    "a third by name": (BY_NAME.assign(model_a=["x", "y", "z"], winner=["y", "y", "x"]), "", ARROWS, "row 2 names 'x' .*responder_a .z. nor responder_b .y."),
    "names in capitals": (SPACED, "", ARENA, "row 0 has 'x' and row 2 has ' X', .*blanks"),
    "dates as verdicts": (pd.DataFrame(BATTLES).assign(winner="2026-01-01"), "", ARENA, "row 0 says a date|row 0 says '2026-01-01'"),
    "cells that are not there": (TURK + TURKS.removesuffix(",right\n") + "\n", "votes.csv", {}, "line 3 of votes.csv has fewer cells than the header"),
    "a chance of two": ([{**PLAIN, "p_a": 1.99}], "", {}, r"from 0 to 1, .*row 0 has 1\.99 .*scale"),
    "a chance against": ([{**PLAIN, "p_a": 0.99}], "", {}, "row 0 has 0.99 and says 'b' .1 such rows."),
    "repeats in other words": (BATTLES, "", {"repeats": "ignore"}, "repeats is 'ignore', expected 'refuse' or 'number' or 'drop'"),
    "columns in a tuple": (BATTLES, "", {"columns": ("win1",)}, "columns is a tuple, expected a mapping"),
    "two columns of one name": (BATTLES, "", added(ARENA, {"columns": {"turn": "history_id"}}), "several columns are history_id.*always="),
    "a third": ("question_id,model_a,model_b,model_c,judge,winner\n1,x,y,z,ann,model_a\n", "votes.csv", {}, "model_c names no third, as its header seems to say"),
    "a title": (f"Export of today\n{ROW}", "votes.csv", {}, "a title or a comment stands above the header"),
    "an empty header": (f"Export,,,,\n{ROW}", "votes.csv", {}, "4 of 5 cells of its first line are empty"),
    "no mark of UTF-16": (ROW.encode("utf-16-le"), "votes.csv", {}, "may be UTF-16 without its mark"),
    "no header": ("c1,x,y,ann,a\nc2,x,y,ann,b\nc3,y,x,ann,tie\n", "votes.csv", {}, r"seems to be no header: its first line .*names=\['column_1'"),
    "answers below a question": (json.dumps(NESTED), "a.json", {}, "Nothing here says what is responder_a, responder_b"),
    "ranks": ("conv,annotator,model,rank\nc1,u1,x,1\nc1,u1,y,2\n", "votes.csv", {}, "or ranks it, which is a score with a minus.*load_scores"),
    "an unknown tool": (GAMES, "a.jsonl", {"tool": "arenahard2"}, "tool is 'arenahard2'; known are .*Arena-Hard"),
    "cells of people": ([{"who": "ann@example.org", "PROLIFIC_PID": "pid7", "said": "a word"}], "", {}, "(?s)^(?!.*pid7)(?!.*ann@).*who: e-mail addresses"),
    "spellings of a history": ([PLAIN, {**PLAIN, "history_id": "c1 "}], "", {}, "history_id: row 0 has 'c1' and row 1 has 'c1 '"),
    "capitals of a history": ([PLAIN, {**PLAIN, "history_id": "C1"}], "", {}, "history_id: row 0 has 'c1' and row 1 has 'C1'"),
}  # fmt: skip
REFUSED |= {
    f"count {wrong!r}": (f"player1,player2,win1,win2\nx,y,3,{wrong}\n", "votes.csv", COUNTS, "row 0 has .* in win2, expected a whole number of 0 or more")
    for wrong in ("-1", "1.5", "many", "")
}  # fmt: skip
REFUSED |= {
    f"order in {head}": (asked_twice(head, 1, 2), "", ORDERS, f"{head} may say which reply was shown first")
    for head in ("swapped", "shown_first", "position")
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_in_a_sentence(tmp_path, name):
    content, file, options, said = REFUSED[name]
    with pytest.raises(DataError, match=said):
        load_verdicts(write(tmp_path, file, content), **options)


SURE = {"columns": {"How sure": "margin"}, "words": {"margin": {"very": 5, "little": 1}}}
TURNED = {**PLAIN, "responder_a": "alpha", "responder_b": "zeta", "verdict": "a"}
COMPLETIONS = [
    {
        "id": 1,
        "completions": [
            {"model": "x", "annotations": {"help": 5, "truth": 4}},
            {"model": "y", "annotations": {}},
        ],
    }
]
OF_COMPLETIONS = {"id": "history_id", "completions.model": "responder"}
OF_COMPLETIONS |= {f"completions.annotations.{name}": "score" for name in ("help", "truth")}
SO = {
    "rows again": case([BATTLES[0]] * 2, "", more={**ARENA, "repeats": "number"}, repeat=[0, 1]),
    "a winner by name": case(BY_NAME, "", more=ARROWS, won="y y y"),
    "a side that is a name too": case(
        BY_NAME.assign(model_a="a", model_b="b", winner="b"), "", more=ARROWS, verdict=["b"] * 3
    ),
    "a name mended": case(
        SPACED, "", more=added(ARENA, {"words": {"responder_a": {"x": "x"}}}), won="x y tie"
    ),
    "a history mended": case(
        [PLAIN, {**PLAIN, "history_id": "C1"}],
        "",
        more={"words": {"history_id": {"C1": "c1"}}, "repeats": "number"},
        history_id=["c1", "c1"],
    ),
    "sides changed are a second order, but of one rater alone": case(
        [PLAIN, TURNED, {**TURNED, "rater": "r2"}],
        "",
        won="alpha alpha alpha",
        order=["ba", "ab", None],
        comparison_id=["c1--alpha--zeta--ba", "c1--alpha--zeta--ab", "c1--alpha--zeta"],
    ),
    "sides changed in a pair with a name": case(
        pd.DataFrame([PLAIN, TURNED]).assign(pair_id="p"),
        "",
        responder_a=["zeta"] * 2,
        verdict=["b", "b"],
        order=["ab", "ba"],
    ),
    "orders that the file says are not added to": case(
        [{**PLAIN, "order": "ab"}, {**TURNED, "order": None}], "", order=["ba", None]
    ),
    "repeats that the file numbers are no copies": case(
        [{**PLAIN, "repeat": 0}, {**TURNED, "repeat": 1}],
        "",
        more={"repeats": "drop"},
        won="alpha alpha",
        repeat=[0, 1],
    ),
    "an order left out": case(
        asked_twice("swapped", 1),
        "",
        more=added(ORDERS, {"columns": {"swapped": None}}),
        order=[None, None],
    ),
    "a confidence": case(
        KEPT.assign(confidence=[3, 1, 5]),
        "",
        more=added(ARENA, {"columns": {"confidence": "margin"}}),
        margin=[3, 1, 5],
    ),
    "a confidence in words": case(
        KEPT.assign(**{"How sure": ["very", "little", "very"]}),
        "",
        more=added(added(ARENA, SURE), {"columns": ARENA["columns"] | SURE["columns"]}),
        margin=[5, 1, 5],
    ),
    "answers below a question": case(
        json.dumps(NESTED),
        "a.json",
        more={"columns": OPENED, "always": HUMAN},
        won="x y x",
        history_id=["d1", "d1", "d2"],
    ),
    "a tool by its name": case(
        GAMES,
        "a.jsonl",
        more={"tool": "arena-hard", "words": {"A>B": "a"}, "always": {"responder_a": "base"}},
        won=" ".join(["base"] * 8),
    ),
    "rows without a header, with names": case(
        pd.DataFrame(
            [["c1", "x", "y", "a"], ["c3", "y", "x", "tie"]],
            columns=["history_id", "responder_a", "responder_b", "verdict"],
        ),
        "",
        more={"always": {"rater": "ann", **HUMAN}},
        won="x tie",
    ),
    "completions": case(
        COMPLETIONS,
        "",
        more={
            "columns": OF_COMPLETIONS,
            "always": {"rater": "gpt-4", "rater_kind": "model", "dimension": "{column}"},
        },
        load=load_scores,
        responder=["x", "x"],
        dimension=["completions.annotations.help", "completions.annotations.truth"],
        score=[5.0, 4.0],
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", SO)
def test_a_file_is_read_as_its_options_say(tmp_path, name):
    content, file, _, options, load, expected = SO[name]
    holds(load(write(tmp_path, file, content), **options), expected)


@pytest.mark.parametrize("head", ["worse", "Which reply is worse?", "loser", "rejected", "peor"])
@pytest.mark.parametrize("cells", [("A", "B"), ("x", "y")])
def test_a_column_that_names_who_lost_is_not_taken_for_the_winner(tmp_path, head, cells):
    message = refused(load_verdicts, write(tmp_path, "votes.csv", WORSE.format(head, *cells)))
    assert "Nothing here says what is verdict" in message
    assert f"  {head}: '{cells[0]}', '{cells[1]}'" in message
    assert "verdict" not in proposed(message)["columns"].values()


def test_of_two_columns_of_winners_none_is_chosen(tmp_path):
    text = "question_id,model_a,model_b,judge,winner,winner\n1,x,y,ann,model_a,model_b\n"
    message = refused(load_verdicts, write(tmp_path, "votes.csv", text))
    assert "Nothing here says what is verdict" in message
    assert "verdict" not in proposed(message)["columns"].values()


def test_scores_are_proposed_as_scores_and_the_call_runs(tmp_path):
    file = write(tmp_path, "scores.csv", "item,coder,code\ni0,c1,0\ni1,c1,1\ni0,c2,1\n")
    message = refused(load_verdicts, file)
    assert "load_scores(" in message
    assert "load_verdicts(" not in message.partition("What may be meant")[2]
    holds(load_scores(file, **proposed(message)), {"history_id": ["i0", "i1", "i0"]})
    assert proposed(refused(load_scores, file)) == proposed(message)


def test_a_command_line_says_what_the_words_of_an_order_mean():
    parser = argparse.ArgumentParser()
    add_reading(parser)
    given = ["--columns", "swapped=order", "--words", "order:0=ab", "order:1=ba", "model_a=a"]
    options = reading_of(parser.parse_args(given))
    assert options["words"] == {"order": {"0": "ab", "1": "ba"}, "model_a": "a"}


def test_a_file_is_described_without_being_loaded(tmp_path, capsys):
    describe_votes(write(tmp_path, "votes.csv", KAGGLE.format("y,x,1,0")))
    said = capsys.readouterr().out
    assert said.startswith("3 rows, 6 columns: id (numbers), model_a (single words)")
    assert "load_verdicts(" in said
    assert "it looks like Chatbot Arena on Kaggle" in said


def test_a_judge_that_takes_the_first_in_both_games_of_arena_hard_has_a_share_of_one(tmp_path):
    read = partial(load_verdicts, write(tmp_path, "arena.jsonl", GAMES))
    message = refused(read.func, *read.args)
    assert "order is 'ab' again" in message
    how = added(proposed(message), {"always": {"responder_a": "base"}})
    again = {"columns": {"model": "responder_a", "games.1.score": "verdict"}}
    again["always"] = {"responder_b": "base"}
    other = proposed(refused(read.func, *read.args, **again))
    assert list(other["columns"].values()).count("verdict") == 1
    assert other["always"] == {"responder_b": "base", "rater_kind": "model", "order": "ab"}
    both = pd.concat([read(**how), read(**added(other, {"words": how["words"]}))])
    assert set(zip(both["order"], both["verdict"], strict=True)) == {("ab", "a"), ("ba", "b")}
    bias = position_bias(both, rng=np.random.default_rng(1), n_resamples=20)
    assert bias.set_index("measure").loc["first_share", ["n", "value"]].tolist() == [16, 1.0]


def test_a_log_of_inspect_ai_with_pairs_is_read_by_the_proposed_call(tmp_path):
    content = (LOGS / "pairwise.eval").read_bytes()
    log = unpack_log(content, LOGS)
    message = refused(load_verdicts, LOGS / "pairwise.eval")
    assert "it looks like inspect_ai" in message
    table = load_verdicts(LOGS / "pairwise.eval", **proposed(message))
    told = {
        "rater": "preference",
        "rater_kind": "model",
        "responder_a": "alpha",
        "responder_b": "beta",
    }
    assert table[list(told)].drop_duplicates().to_dict("records") == [told]
    assert table.groupby("history_id")["repeat"].max().to_dict() == dict.fromkeys(
        (f"chat-{number}" for number in (1, 2, 3, 4)), 2
    )
    first = table[table["repeat"] == 1].set_index("history_id")
    answers = {
        sample["id"]: sample["scores"]["preference"]["value"].lower()
        for sample in log["samples"][:4]
        if sample["scores"]
    }
    assert first["verdict"].dropna().to_dict() == answers
    assert first.loc["chat-4", "state"] == "error"
    as_json = write(tmp_path, "pairwise.json", json.dumps(log))
    pd.testing.assert_frame_equal(load_verdicts(as_json, **proposed(message)), table)
    stopped = json.dumps(log | {"status": "cancelled", "samples": log["samples"][:5]})
    with pytest.warns(UserWarning, match="3 samples .* status is 'cancelled'"):
        load_verdicts(write(tmp_path, "log.json", stopped), **proposed(message))
    with pytest.raises(DataError, match="cannot be read as a log of inspect_ai .*cut short"):
        load_verdicts(write(tmp_path, "cut.eval", content[:9000]))


@pytest.mark.mirror
def test_mt_bench_by_its_own_published_files_agrees_as_its_paper_prints(mirror):
    """Zheng et al.

    2023, table 5; the released files hold more pairs of votes than the table counts (first turn:
    1,343).
    """
    files = [mirror / "mtbench_human" / name for name in ("human.jsonl", "gpt4_pair.jsonl")]
    how = [proposed(refused(load_verdicts, file)) for file in files]
    people, judge = (
        load_verdicts(file, **options) for file, options in zip(files, how, strict=True)
    )
    assert (len(people), len(judge)) == (3355, 2400)
    both = people.merge(judge, on="pair_id", suffixes=("", "_judge"))
    both["turn"] = both["history_id"].str[-1]
    both["same"] = both["verdict"] == both["verdict_judge"]
    decided = both[(both["verdict"] != "tie") & (both["verdict_judge"] != "tie")]
    assert both.groupby("turn")["same"].mean().tolist() == pytest.approx([0.66, 0.66], abs=0.01)
    assert decided.groupby("turn")["same"].mean().tolist() == pytest.approx([0.85, 0.85], abs=0.01)
