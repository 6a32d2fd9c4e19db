"""The pages of a study with people, as data and configuration that Potato reads: no template of its is used."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from heart_utils.runs import visible_text
from heart_utils.sources.replies import MAX_SENTENCES, MAX_WORDS

__all__: list[str] = []

Scheme = dict[str, Any]

SPEAKERS = {"seeker": "Seeker", "supporter": "Supporter"}
LABELS = ["Reply A", "Reply B"]
TIE = "No difference"
STRENGTHS = ["1", "2", "3", "4", "5"]
CHECK = (
    "This page is a check that pages are being read. Please choose this reply, {side}, with strength "
    "{strength}, and write the word read."
)
"""What a check says, in the reply that it asks for."""

DECLINED = "You chose not to take part, and nothing bad follows. Nothing but this answer was kept. You can close this page now."

CLOSED_TAG = "<\u2060"
"""A less-than sign and a word joiner. Potato 2.12 copies items into a script element without escaping them, so that a
reply holding a closing script tag would run in every rater's browser. With a joiner it looks the same and closes nothing."""


def study_item(item_id: str, title: str, turns: Sequence[Mapping[str, str]], replies: Sequence[str] = ()) -> dict[str, Any]:
    """Make one page of a seat: the conversation, and the replies in the order shown."""
    conversation = [{"speaker": SPEAKERS[turn["speaker"]], "text": _inert(turn["text"])} for turn in turns]
    item: dict[str, Any] = {"id": item_id, "title": title, "conversation": conversation}
    return item | ({"replies": [_inert(text) for text in replies]} if replies else {})


def check_item(item_id: str, title: str, check: Mapping[str, Any]) -> dict[str, Any]:
    """Make an attention check: a page that asks openly for a certain answer."""
    asks = CHECK.format(side=check["side"], strength=check["strength"])
    replies = ["Thank you for telling me. How was it?", asks]
    turns = [
        {"speaker": "supporter", "text": "What has been on your mind?"},
        {"speaker": "seeker", "text": str(check["topic"])},
    ]
    return study_item(item_id, title, turns, replies if check["side"] == "B" else replies[::-1])


def rating_pages(texts: Path, settings: Mapping[str, Any]) -> dict[str, list[Scheme]]:
    """Make the pages around a rating study: consent, instructions, practice with feedback, debrief."""
    rating = settings["rating"]
    words = {
        "task": f"You would read {rating['load']} short conversations and say for each which of two replies feels more "
        f"supportive to you, and why.",
        "ties": " If you feel no difference at all, you can say so."
        if rating["ties"]
        else " Please choose one even if they are close.",
        "dimension": f" One more question follows: {rating['dimension']}" if rating["dimension"] else "",
        "checks": "A few pages ask for a certain answer, and say so; they show that pages are read."
        if rating["n_checks"]
        else "",
    }
    pages = {
        "consent": _consent(texts, settings, words),
        "declined": [_display("declined_text", "That is fine", f"<p>{DECLINED}</p>")],
        "instructions": [
            _display("instructions_text", "What you do", _filled(texts / "instructions-rating.html", settings, words))
        ],
    }
    for number, practice in enumerate(yaml.safe_load((texts / "practice.yaml").read_text(encoding="utf-8")), 1):
        name = f"practice_{number}"
        question = _radio(name, "Which reply feels more supportive?", LABELS)
        pages[name] = [_display(f"{name}_text", f"Practice {number}", _practice(practice)), question]
        for answer in ("usual", "not"):
            said = f"<p>{html.escape(practice[f'when_{answer}'])}</p>"
            pages[f"{name}_{answer}"] = [_display(f"{name}_{answer}_text", f"About practice {number}", said)]
    pages["debrief"] = _debrief(texts / "debrief-rating.html", settings, words)
    return pages


def reply_pages(texts: Path, settings: Mapping[str, Any], instructions: str) -> dict[str, list[Scheme]]:
    """Make the pages around a writing study: consent, instructions, debrief."""
    words = {
        "task": "You would read short conversations and write, for each, the next thing that you would say to support the "
        "other person.",
        "instructions": instructions,
    }
    return {
        "consent": _consent(texts, settings, words),
        "declined": [_display("declined_text", "That is fine", f"<p>{DECLINED}</p>")],
        "instructions": [
            _display("instructions_text", "What you do", _filled(texts / "instructions-reply.html", settings, words))
        ],
        "debrief": _debrief(texts / "debrief-reply.html", settings, words),
    }


def study_config(
    kind: str,
    settings: Mapping[str, Any],
    texts: Path,
    pages: Mapping[str, list[Scheme]],
    seats: Mapping[str, Sequence[str]],
    secret: str,
) -> dict[str, Any]:
    """Write Potato's configuration.

    Each seat is a group of its own with one place, so that who comes gets a whole seat, in our order: assignment and
    sides were settled, and checked, before.
    """
    title = "Supportive conversations" if settings["rehearsal"] is False else "Supportive conversations (rehearsal)"
    arrival = (
        {"type": "url_direct", "url_argument": "PROLIFIC_PID"} if settings["arrival"] == "prolific" else {"type": "standard"}
    )
    show: list[Scheme] = [{"key": "conversation", "type": "dialogue", "label": "The conversation so far"}]
    if kind == "rating":
        show.append({"key": "replies", "type": "pairwise", "label": "Two replies", "display_options": {"labels": LABELS}})
    config: dict[str, Any] = {
        "annotation_task_name": title,
        "task_dir": ".",
        "output_annotation_dir": "answers",
        "data_files": ["items.jsonl"],
        "item_properties": {"id_key": "id", "text_key": "title"},
        "user_config": {"allow_all_users": True, "users": []},
        "login": arrival,
        "require_password": False,
        "hide_navbar": True,
        "jumping_to_id_disabled": True,
        "secret_key": secret,
        "session_cookie_samesite": "Lax",
        "phases": _phases(pages, texts),
        "instance_display": {"resizable": False, "fields": show},  # else long conversations are cut at a fixed height
        "annotation_schemes": [
            *_questions(kind, settings),
            _display("stop", "If it is too much", _filled(texts / "stop.html", settings, {})),
        ],
        "layout": {"grid": {"columns": 1}},
        "base_css": "study.css",
        "assignment_strategy": "batch",
        "max_annotations_per_item": 1,
        "max_annotations_per_user": max(len(items) for items in seats.values()),
        "batch_assignment": {
            "auto_assign_annotators": True,
            "groups": [{"name": name, "max_annotators": 1, "instances": list(items)} for name, items in seats.items()],
        },
        "keystroke_logging": {
            "enabled": True,
            "fidelity": "summary",
            "disclose_to_annotators": True,
            "detection": {"enabled": False},
        },
    }
    return config | _completion(settings)


def _completion(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Say who gets the code at the end: who took part, and not who declined on the first page."""
    code = settings["completion_code"]
    if settings["arrival"] != "prolific":
        return {"completion_code": code} if code else {}
    return {"crowdsourcing": {"provider": "prolific", "prolific": {"completion": {"code": code, "screened_out_code": ""}}}}


def _phases(pages: Mapping[str, list[Scheme]], texts: Path) -> dict[str, Any]:
    order = [name for name in pages if name != "debrief"]
    phases: dict[str, Any] = {"order": [*order, "annotation", "debrief"], "annotation": {"type": "annotation"}}
    practice = yaml.safe_load((texts / "practice.yaml").read_text(encoding="utf-8"))
    for name in pages:
        # Potato shows all pages of one type together, so the instructions are of the type of the pages around them.
        kind = {"consent": "consent", "debrief": "poststudy"}.get(name, "prestudy")
        phases[name] = {"type": kind, "file": f"pages/{name}.json"}
        if said := re.fullmatch(r"practice_(\d+)_(usual|not)", name):
            usual = f"Reply {practice[int(said[1]) - 1]['usual']}"
            operator = "equals" if said[2] == "usual" else "not_equals"
            phases[name]["show_when"] = [{"schema": f"practice_{said[1]}", "operator": operator, "value": usual}]
    refusals = [{"schema": name, "operator": "equals", "value": "no"} for name in ("consent_age", "consent_agree")]
    phases["declined"] |= {"show_when": refusals, "logic": "any", "exit_when": {"show_when": refusals, "logic": "any"}}
    return phases


def _questions(kind: str, settings: Mapping[str, Any]) -> list[Scheme]:
    if kind == "reply":
        limits = f"1 to {MAX_SENTENCES} sentences, no more than {MAX_WORDS} words"
        return [_text("reply", f"Write the supporter's next turn: {limits}.", rows=5, required=True)]
    rating = settings["rating"]
    preference: Scheme = {
        "annotation_type": "pairwise",
        "name": "preference",
        "description": "Which reply feels more supportive?",
        "mode": "binary",
        "items_key": "replies",
        "labels": LABELS,
        "sequential_key_binding": False,
        "label_requirement": {"required": True},
    }
    strength = _radio("strength", "How much more? 1 is only just, 5 is very much.", STRENGTHS) | {"horizontal": True}
    if rating["ties"]:
        preference |= {"allow_tie": True, "tie_label": TIE}
        strength["display_logic"] = {"show_when": [{"schema": "preference", "operator": "equals", "value": ["A", "B"]}]}
    questions = [preference, strength]
    if rating["dimension"]:
        labels = [*LABELS, TIE] if rating["ties"] else LABELS
        questions.append(_radio("dimension", rating["dimension"], labels, required=False) | {"horizontal": True})
    return [*questions, _text("reason", "Why? A few words of your own.", rows=3, required=True)]


def _consent(texts: Path, settings: Mapping[str, Any], words: Mapping[str, str]) -> list[Scheme]:
    return [
        _display("consent_text", "Before you decide", _filled(texts / "consent.html", settings, words)),
        _radio("consent_age", "I am 18 or older.", ["yes", "no"]),
        _radio("consent_agree", "I have read this page and want to take part.", ["yes", "no"]),
    ]


def _debrief(file: Path, settings: Mapping[str, Any], words: Mapping[str, str]) -> list[Scheme]:
    said = _display("debrief_text", "Thank you", _filled(file, settings, words))
    return [
        said,
        _text("comments", "Is there anything you would like to tell us? You can leave this empty.", rows=3, required=False),
    ]


def _filled(file: Path, settings: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """Fill the words in braces, as text; what a rehearsal leaves empty is shown as empty."""

    def fill(match: re.Match[str]) -> str:
        value = str({**settings, **words}[match[1]])
        return html.escape(value.strip() or f"[not filled in: {match[1]}]") if match[1] not in words else html.escape(value)

    return re.sub(r"\{(\w+)\}", fill, file.read_text(encoding="utf-8"))


def _practice(practice: Mapping[str, Any]) -> str:
    turns = [
        f'<div class="dialogue-turn" data-speaker="{SPEAKERS[turn["speaker"]]}">'
        f'<span class="dialogue-speaker">{SPEAKERS[turn["speaker"]]}</span>{html.escape(turn["text"])}</div>'
        for turn in practice["turns"]
    ]
    replies = [
        f'<div class="pairwise-cell"><div class="pairwise-label">{label}</div>{html.escape(text)}</div>'
        for label, text in zip(LABELS, practice["replies"], strict=True)
    ]
    return "".join(turns) + '<div class="pairwise-display-content">' + "".join(replies) + "</div>"


def _display(name: str, heading: str, content: str) -> Scheme:
    return {"annotation_type": "pure_display", "name": name, "description": heading, "labels": [content], "allow_html": True}


def _radio(name: str, question: str, labels: list[str], *, required: bool = True) -> Scheme:
    scheme: Scheme = {"annotation_type": "radio", "name": name, "description": question, "labels": labels}
    return scheme | ({"label_requirement": {"required": True}} if required else {})


def _text(name: str, question: str, *, rows: int, required: bool) -> Scheme:
    scheme: Scheme = {"annotation_type": "text", "name": name, "description": question, "textarea": {"on": True, "rows": rows}}
    return scheme | ({"label_requirement": {"required": True}} if required else {})


def _inert(text: str) -> str:
    return visible_text(text).replace("<", CLOSED_TAG)


def to_json(value: object) -> bytes:
    """Write a page or a list as JSON, in the order given."""
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
