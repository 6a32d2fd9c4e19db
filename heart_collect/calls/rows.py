"""What a row of the ledger says of a call: packed, sealed against damage, and read again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from heart_collect.calls.database import calls
from heart_collect.calls.models import Call, Request
from heart_collect.calls.outcomes import is_blank
from heart_utils.extras import extra

with extra("collect"):
    import zstandard

__all__: list[str] = []

LEVEL = 3  #: Of compression; 6 makes the prompts of a study 2 % smaller, and takes twice the time.
ANSWER = [field.name for field in fields(Call) if field.name not in ("call_id", "text", "logprobs")]
SEALED: dict[str, type] = {name: calls.c[name].type.python_type for name in (*ANSWER, "logprobs")}
DAMAGED = "the stored answer is damaged: it is not what was written"


def failed(call: Call) -> bool:
    """Check whether a recorded call is to be asked again.

    Earlier versions kept answers without words as good ones.
    """
    blank = (
        call.status == "ok" and call.logprobs is None and bool(call.text) and is_blank(call.text)
    )
    return call.status == "error" or blank


def pack_call(call: Call) -> dict[str, object]:
    """Build the row of a call, sealed."""
    packed = zstandard.compress(call.text.encode("utf-8", "replace"), LEVEL) if call.text else None
    values: dict[str, object] = {
        "key": call.call_id,
        **{name: getattr(call, name) for name in ANSWER},
        "answer": packed,
    }
    # Half a character, as a token may be, is no UTF-8; both columns hold a mark in its place.
    tokens = json.dumps(call.logprobs, ensure_ascii=False).encode("utf-8", "replace").decode()
    values["logprobs"] = None if call.logprobs is None else tokens
    values["digest"] = seal(call.call_id, packed, values)
    return values


def seal(key: str, answer: bytes | None, values: Mapping[str, Any]) -> str:
    """Hash what a row says of an answer, so that damage is seen."""
    sealed_values = [
        (name, kind(values[name])) for name, kind in SEALED.items() if values.get(name) is not None
    ]
    content = f"{key} {sealed_values!r} ".encode("utf-8", "surrogatepass") + (answer or b"")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def unpack_call(
    key: str,
    answer: bytes | None,
    digest: str | None,
    values: dict[str, Any],
    unpack: zstandard.ZstdDecompressor,
) -> Call:
    """Read a row; ValueError if it is not what was written."""
    if digest is not None and digest != seal(key, answer, values):
        raise ValueError(DAMAGED)
    text = unpack.decompress(answer).decode() if answer else ""
    pairs = values.pop("logprobs")
    return Call(
        key,
        **values,
        text=text,
        logprobs=tuple((token, p) for token, p in json.loads(pairs)) if pairs else None,
    )


def asked_of(request: Request) -> dict[str, str | int | bytes | None]:
    """Build the part of a row that describes the request."""
    model, messages_digest, options = request.digests
    messages = request.messages_json().encode("utf-8", "surrogatepass")
    return {
        "key": request.key,
        "tag": request.tag,
        "model": model,
        "asked": messages_digest,
        "options": options,
        "repeat": request.repeat,
        "messages": zstandard.compress(messages, LEVEL),
    }


def parts_of(requests: Sequence[Request]) -> list[dict[str, str]]:
    """List what the digests of models and options stand for."""
    options = {request.digests[2]: request for request in requests}
    bodies = {
        digest: json.dumps(one.sampling, sort_keys=True, ensure_ascii=False)
        for digest, one in options.items()
    }
    bodies |= {request.digests[0]: request.model.identity for request in requests}
    return [{"digest": digest, "body": body} for digest, body in sorted(bodies.items())]
