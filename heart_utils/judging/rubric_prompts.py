"""What models read and answer where one reply is scored by a rubric of items: this project's own words, in two languages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["LANGUAGES"]

LANGUAGES = ("zh", "en")
REASON_PER_ITEM = 60

REPLY_WORDS = {
    "zh": (
        "下面是一段真实的对话，你是其中的“你”，一个真诚陪伴对方的人。"
        "请接着对方的最后一句话，写出你会说的下一句回应。"
        "只写回应本身，不用 Markdown，不写说话人。\n\n{history}"
    ),
    "en": (
        "Below is a real conversation. You are the one called You, sincerely there for the other. Write what you would "
        "say next. Write the reply alone: no Markdown, no speaker's name.\n\n{history}"
    ),
}
JUDGE_WORDS = {
    "zh": (
        "你是一位严格的心理学评审。请根据评分条目，逐条判断待评回应是否命中。\n"
        "对话中“你”的发言只是背景，不是评审对象；只评审“待评回应”。"
        "正分条目完全做到才算命中，负分条目有一点迹象就算命中。\n"
        "先逐条写出理由，再给出命中结果：命中写 1，未命中写 0，确实无法判断写 null。"
        "结果必须恰好 {n} 个，顺序与条目一致。不要计算总分。\n\n"
        "对话：\n{history}\n\n待评回应：\n{reply}\n\n评分条目（共 {n} 条）：\n{items}\n\n"
        '只输出一个 JSON 对象：{{"reason": "逐条理由", "hits": [恰好 {n} 个 1、0 或 null]}}'
    ),
    "en": (
        "You are a strict assessor with training in psychology. Go through the rubric item by item and judge whether the "
        "reply hits each.\nWhat You say in the conversation is context; judge the reply alone. An item with positive "
        "points is hit only if fully met, one with negative points at the least sign.\nGive your reasons item by item "
        "first, then the hits: 1 for a hit, 0 for none, null where it cannot be judged. Exactly {n} of them, in the "
        "order of the items. Add up nothing.\n\nConversation:\n{history}\n\nReply:\n{reply}\n\nItems ({n}):\n{items}\n\n"
        'Answer with one JSON object: {{"reason": "item by item", "hits": [exactly {n} of 1, 0 or null]}}'
    ),
}
AGAIN_WORDS = {
    "zh": "这个回答无法使用：{fault}。请重新给出同样格式的 JSON 对象，hits 恰好 {n} 个。",
    "en": "This answer cannot be used: {fault}. Give the JSON object again in the same form, with exactly {n} hits.",
}
SPEAKERS = {"zh": {"seeker": "对方", "supporter": "你"}, "en": {"seeker": "Other", "supporter": "You"}}


def reply_message(turns: Sequence[Mapping[str, str]], language: str) -> tuple[dict[str, str], ...]:
    """Ask for the next turn, in one message and with no limit of length, as HeartBench does."""
    return ({"role": "user", "content": REPLY_WORDS[language].format(history=_transcript(turns, language))},)


def judge_message(
    turns: Sequence[Mapping[str, str]], reply: str, items: Sequence[tuple[str, float | None, str]], language: str
) -> tuple[dict[str, str], ...]:
    """Ask which items of a rubric a reply hits, reasons first."""
    shown = "\n".join(
        f"{number}. [{ability}][{'' if points is None else f'{points:+g}'}] {wording}"
        for number, (ability, points, wording) in enumerate(items, start=1)
    )
    history = _transcript(turns, language)
    said = JUDGE_WORDS[language].format(n=len(items), history=history, reply=reply, items=shown)
    return ({"role": "user", "content": said},)


def again_message(answer: str, fault: str, n: int, language: str) -> tuple[dict[str, str], ...]:
    """Add an answer that cannot be used, and the request to give it again."""
    again = AGAIN_WORDS[language].format(fault=fault, n=n)
    return {"role": "assistant", "content": answer}, {"role": "user", "content": again}


def read_hits(text: str, n: int) -> tuple[list[int | None], str | None]:
    """Read the last object with hits in an answer: exactly as many as items, each 1, 0 or null."""
    found = _last_object(text)
    if found is None:
        return [], "it holds no JSON object with hits"
    hits = found["hits"]
    if not isinstance(hits, list):
        return [], f"hits is {type(hits).__name__}, expected a list"
    if len(hits) != n:
        return [], f"hits has {len(hits)} entries, expected {n}"
    wrong = [place for place, hit in enumerate(hits, start=1) if not (hit is None or (type(hit) is int and hit in (0, 1)))]
    if wrong:
        return [], f"entry {wrong[0]} of hits is {json.dumps(hits[wrong[0] - 1])[:40]}, expected 1, 0 or null"
    if not isinstance(found.get("reason"), str) or not found["reason"].strip():
        return [], "it gives no reason"
    return hits, None


def _last_object(text: str) -> dict[str, Any] | None:
    """Find the last object in a text that has hits."""
    decoder = json.JSONDecoder(strict=False)
    found, start = None, text.find("{")
    while start >= 0:
        end = start + 1
        try:
            value, end = decoder.raw_decode(text, start)
            found = value if isinstance(value, dict) and "hits" in value else found
        except (ValueError, RecursionError):
            pass
        start = text.find("{", end)
    return found


def hits_schema(n: int, *, exact: bool) -> dict[str, Any]:
    """Describe the answer: the reason first, then the hits."""
    hits: dict[str, Any] = {"type": "array", "items": {"enum": [1, 0, None]}}
    reason: dict[str, Any] = {"type": "string"}
    if exact:
        hits |= {"minItems": n, "maxItems": n}
        reason |= {"minLength": 1, "maxLength": REASON_PER_ITEM * n}
    schema = {
        "type": "object",
        "properties": {"reason": reason, "hits": hits},
        "required": ["reason", "hits"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "hits", "strict": True, "schema": schema}}


def _transcript(turns: Sequence[Mapping[str, str]], language: str) -> str:
    return "\n".join(f"{SPEAKERS[language][turn['speaker']]}：{' '.join(turn['text'].split())}" for turn in turns)
