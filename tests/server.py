"""A provider on loopback that speaks the OpenAI interface, and fails as it is told to.

In a test: ``with serving(Provider(...)) as provider: provider.address``. As a process of its own,
for benches: ``python tests/server.py --latency 0.2 --fault 429=0.1`` prints its address, and
serves until its standard input is closed.
"""

import argparse
import asyncio
import hashlib
import json
import random
import re
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

FAULTS = (
    "429",
    "500",
    "401",
    "404",
    "400",
    "echo",  # a 400 whose words repeat all that was asked
    "filter",
    "drop",
    "hang",
    "malformed",
    "garbled",
    "empty",
    "silent",
    "text",
    "truncate",
    "429bare",
    "503",
    "late",
    # an error object where an answer should be, with status 200; in a stream after its first piece
    "error",
    "refusal",
    "nousage",
    "tool",
    "other",
    "filter400",
    "403",
    "409",
    "413",
    "422",
    "whole",
    "half",  # a stream that ends in the middle of its answer, with neither a reason nor [DONE]
    "broken",  # an answer that its provider says ended with an error
    "unsaid",  # a stream that never says why it ended, though it ends with [DONE]
    "blank",
    "zero",  # a count of tokens of zero
    "thought",  # a judge that thinks aloud first, of another verdict
    "draft",  # one that never comes out of its thought
    "cutdraft",  # a draft of another verdict that is cut off
    "example",  # a verdict, and what would have been another
    "doubled",  # a key twice, with two winners
    "fence",
    "foreign",  # an answer in another language, with no JSON
    "surrogate",  # half a character
    "huge",  # 2 MB
)
STRAY = ("401", "403", "404")


@dataclass
class Provider:
    """What the server says, how late, and how it fails.

    `answer` is a text or a function of the request's body; `script` holds faults (or None) for the
    first requests in order; `faults` are the probabilities of faults for all others.
    """

    answer: object = "I hear you."
    latency_s: float = 0.0
    piece_s: float = 0.01  # between the pieces of a streamed answer
    # hold answers back until so many requests were in flight at once (or ten seconds went by)
    gather: int = 0
    script: list = field(default_factory=list)
    faults: dict = field(default_factory=dict)
    retry_after: str | None = None  # as the header has it
    served: str | None = None  # the model that answers, if another than was asked
    fingerprint: str | None = None
    error: dict = field(
        default_factory=lambda: {"message": "upstream failed", "type": "server_error"}
    )
    hang_s: float = 30.0
    cuts_hung: bool = False  # or answers late
    seed: int = 1
    keys: tuple = ()  # if any, a request needs one of them
    logprobs: tuple = (("A", -0.2), ("B", -1.8))
    address: str = ""
    requests: list = field(default_factory=list)
    times: list = field(default_factory=list)
    keep: bool = True
    outcomes: Counter = field(default_factory=Counter)
    answered: Counter = field(default_factory=Counter)
    # digests of what was answered after the client had hung up; it is billed
    unheard: set = field(default_factory=set)
    billed_tokens: int = 0
    met: dict = field(default_factory=dict)  # fault -> the digests of what was asked
    files: dict = field(default_factory=dict)
    batches: dict = field(default_factory=dict)
    in_flight: int = 0
    most_in_flight: int = 0
    # room for so many requests, which is full again in so many seconds; told in headers
    bucket: tuple | None = None
    filled: float = 0.0
    filled_at: float = 0.0
    headers: dict = field(default_factory=dict)  # of every answer
    # so many requests go by before the first stray denial: a model that never answered has a wrong
    # key
    calm: int = 0
    out_until: float = 0.0  # of an outage: every connection is cut

    def __post_init__(self):
        self.random = random.Random(self.seed)

    def fault(self):
        assert {*self.script, *self.faults} <= {*FAULTS, None}  # a misspelt fault would be none
        if self.script:
            return self.script.pop(0)
        if self.bucket:
            room, full_s = self.bucket
            at = time.monotonic()
            left = (
                room
                if not self.filled_at
                else min(room, self.filled + (at - self.filled_at) * room / full_s)
            )
            self.filled, self.filled_at = (left - 1 if left >= 1 else left), at
            reset = f"{(room - self.filled) / room * full_s:.3f}s"
            self.headers = {
                "x-ratelimit-remaining-requests": str(int(self.filled)),
                "x-ratelimit-reset-requests": reset,
            }
            if left < 1:
                return "429"
        draw = self.random.random()
        for name, share in self.faults.items():
            draw -= share
            if draw < 0:
                return None if name in STRAY and len(self.times) <= self.calm else name
        return None

    def text(self, body):
        return self.answer(body) if callable(self.answer) else self.answer

    def completion(self, body, text=None, finish="stop"):
        text = self.text(body) if text is None else text
        words = text.split()
        room = body.get("max_tokens") or body.get("max_completion_tokens") or 10_000
        if len(words) > room:
            text, finish = " ".join(words[:room]), "length"
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": finish,
        }
        if body.get("logprobs"):
            top = [
                {"token": token, "logprob": value, "bytes": None} for token, value in self.logprobs
            ]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
            choice["message"]["content"], choice["finish_reason"] = top[0]["token"], "length"
        prompt = sum(len(message["content"].split()) for message in body["messages"])
        tokens = {"prompt_tokens": prompt, "completion_tokens": len(text.split())}
        return {
            "id": "c-1",
            "object": "chat.completion",
            "created": 1,
            "model": self.served or body["model"],
            "system_fingerprint": self.fingerprint,
            "choices": [choice],
            "usage": {**tokens, "total_tokens": sum(tokens.values())},
        }


PROVIDER = web.AppKey("provider", Provider)


def refusal(status, words, headers=None, code=None):
    return web.json_response(
        {"error": {"message": words, "type": "error", "code": code or str(status)}},
        status=status,
        headers=headers,
    )


async def chat(request):
    provider = request.app[PROVIDER]
    provider.times.append(time.monotonic())
    provider.in_flight += 1
    provider.most_in_flight = max(provider.most_in_flight, provider.in_flight)
    try:
        return await reply(provider, request)
    finally:
        provider.in_flight -= 1


async def reply(provider, request):
    body = await request.json()
    if provider.keep:
        provider.requests.append(body)
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    out = time.monotonic() < provider.out_until
    fault = "drop" if out else provider.fault()
    headers = provider.headers
    name = "outage" if out else fault or "ok"
    provider.outcomes[name] += 1
    provider.met.setdefault(name, set()).add(asked(body["messages"]))
    if provider.keys and given not in provider.keys:
        return refusal(401, f"Incorrect API key provided: {given}.")
    if fault == "hang":
        await asyncio.sleep(provider.hang_s)
        if provider.cuts_hung:
            fault = "drop"
    if provider.latency_s:
        await asyncio.sleep(provider.latency_s)
    if provider.gather:
        await gather(provider)
    if fault in ("429", "429bare"):
        headers = (
            None
            if provider.retry_after is None or fault == "429bare"
            else {"Retry-After": provider.retry_after}
        )
        return refusal(429, "Rate limit reached", headers)
    if fault == "filter400":
        return refusal(400, "The prompt was stopped.", code="content_filter")
    if fault == "echo":
        return refusal(
            400, "Invalid input: " + " ".join(message["content"] for message in body["messages"])
        )
    if fault in ("500", "503", "401", "404", "400", "403", "409", "413", "422"):
        words = {
            "500": "internal",
            "503": "overloaded",
            "401": f"Incorrect API key provided: {given}.",
            "404": "no such model",
            "400": "bad request",
        }
        return refusal(int(fault), words.get(fault, "not for you"))
    if fault == "drop":
        if request.transport is not None:  # the client may have hung up first
            request.transport.abort()
        return web.Response()
    if fault == "malformed":
        return web.Response(
            text='{"id": "c-1", "choices": [{"mess', content_type="application/json"
        )
    if fault == "text":
        return web.Response(text="<html>It works!</html>", content_type="text/html")
    if fault == "error":
        return (
            await broken_stream(request, body)
            if body.get("stream")
            else web.json_response({"error": provider.error})
        )
    answer = provider.completion(body)
    if fault != "zero":
        provider.billed_tokens += answer["usage"]["total_tokens"]
    if request.transport is None or request.transport.is_closing():
        provider.unheard.add(asked(body["messages"]))
    if fault == "late":
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Content-Length": "5000"}
        )
        await response.prepare(request)
        await response.write(json.dumps(answer).encode()[:40])
        if request.transport is not None:
            request.transport.abort()
        return response
    if fault not in (
        "empty",
        "tool",
        "truncate",
        "half",
        "broken",
        "blank",
        "cutdraft",
        "silent",
    ):  # those are asked again with intent
        provider.answered[asked(body["messages"])] += 1
    if fault == "filter":
        answer["choices"][0] |= {"finish_reason": "content_filter"}
    if fault in ("empty", "blank"):
        answer["choices"][0]["message"]["content"] = " \n \u200b" if fault == "blank" else ""
    spoil_verdict(answer["choices"][0], fault, body)
    if fault == "broken":
        answer["choices"][0]["finish_reason"] = "error"
    if fault == "zero":
        answer["usage"] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    if fault == "refusal":
        answer["choices"][0]["message"] |= {"content": None, "refusal": "I cannot judge this."}
    if fault == "tool":
        call = {"id": "t-1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        answer["choices"][0] |= {"finish_reason": "tool_calls"}
        answer["choices"][0]["message"] |= {"content": None, "tool_calls": [call]}
    if fault == "nousage":
        del answer["usage"]
    if fault == "other":
        answer["model"] = "something-else"
    if fault == "garbled":  # the provider's JSON is sound, the model's is not
        text = answer["choices"][0]["message"]["content"]
        answer["choices"][0]["message"]["content"] = text[: len(text) // 2]
    if fault == "truncate":
        answer["choices"][0]["finish_reason"] = "length"
    if body.get("stream") and fault != "whole":
        return await stream(request, answer, fault=fault, headers=headers)
    return web.json_response(answer, headers=headers)


def spoil_verdict(choice, fault, body):
    """Say a judge's verdict in a way that is hard to read."""
    said = choice["message"]["content"]
    other = (
        choose_later(body)
        if fault in ("thought", "draft", "cutdraft", "example", "doubled")
        else ""
    )
    ways = {
        "thought": f"<think>Perhaps {other}, but no.</think>\n{said}",
        "draft": f"<think>Perhaps {other}, but",
        "cutdraft": f"Let me weigh both. Perhaps {other}, but",
        "example": f"{said}\nHad the other been warmer: {other}",
        "doubled": f"{said[:-1]}, {other[1:]}" if other.startswith("{") else other,
        "fence": f"Here is my judgement.\n```json\n{said}\n```",
        "foreign": "Die erste Antwort ist wärmer. 第一个回复更好。",
        "surrogate": said.replace("Because.", "Because \ud83d."),
        "huge": said.replace("Because.", "Because. " * 250_000) if said else said,
    }
    choice["message"]["content"] = ways.get(fault, said)
    if fault == "cutdraft":
        choice["finish_reason"] = "length"


def asked(messages):
    """The digest under which a ledger keeps what was asked."""
    said = [{"role": message["role"], "content": message["content"]} for message in messages]
    text = json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def outage(request):
    request.app[PROVIDER].out_until = time.monotonic() + float(request.query["seconds"])
    return web.json_response({})


async def gather(provider):
    given_up = time.monotonic() + 10
    while provider.most_in_flight < provider.gather and time.monotonic() < given_up:
        await asyncio.sleep(0.005)


async def stream(request, answer, fault, headers):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
    await response.prepare(request)
    choice = answer["choices"][0]
    base = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": answer["model"]}
    base["system_fingerprint"] = answer["system_fingerprint"]

    async def send(chunk):
        await response.write(f"data: {json.dumps({**base, **chunk})}\n\n".encode())

    said = next(
        (name for name in ("content", "refusal") if choice["message"].get(name) is not None),
        "tool_calls",
    )
    pieces = re.findall(r"\S+\s*|\s+", choice["message"][said]) if said != "tool_calls" else []
    if fault == "silent":
        pieces = []
    if fault == "half":
        pieces = pieces[: len(pieces) // 2 + 1]
    for piece in pieces:
        await asyncio.sleep(request.app[PROVIDER].piece_s)
        await send({"choices": [{"index": 0, "delta": {said: piece}, "finish_reason": None}]})
    if said == "tool_calls":
        calls = [{"index": 0, **call} for call in choice["message"][said]]
        await send({"choices": [{"index": 0, "delta": {said: calls}, "finish_reason": None}]})
    if fault not in ("silent", "half", "unsaid"):
        await send(
            {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
        )
        if "usage" in answer:
            await send({"choices": [], "usage": answer["usage"]})
    if fault != "half":
        await response.write(b"data: [DONE]\n\n")
    return response


async def broken_stream(request, body):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    base = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    for chunk in (
        {**base, "choices": [{"index": 0, "delta": {"content": "I "}, "finish_reason": None}]},
        {"error": request.app[PROVIDER].error},
    ):
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    return response


async def upload(request):
    provider = request.app[PROVIDER]
    form = await request.post()
    name = f"file-{len(provider.files) + 1}"
    provider.files[name] = form["file"].file.read().decode()
    return web.json_response(file_object(name, provider))


def file_object(name, provider):
    return {
        "id": name,
        "object": "file",
        "bytes": len(provider.files[name]),
        "created_at": 1,
        "filename": f"{name}.jsonl",
        "purpose": "batch",
        "status": "processed",
    }


async def content(request):
    return web.Response(text=request.app[PROVIDER].files[request.match_info["name"]])


async def submit(request):
    provider = request.app[PROVIDER]
    body = await request.json()
    name = f"batch-{len(provider.batches) + 1}"
    provider.batches[name] = {
        "id": name,
        "object": "batch",
        "endpoint": body["endpoint"],
        "input_file_id": body["input_file_id"],
        "completion_window": body["completion_window"],
        "created_at": 1,
        "status": "in_progress",
        "metadata": body.get("metadata"),
    }
    return web.json_response(provider.batches[name])


async def list_batches(request):
    """Newest first, two a page: who looks for one has to turn pages."""
    batches = [*reversed(request.app[PROVIDER].batches.values())]
    assert int(request.query["limit"]) <= 100  # OpenAI's most
    names = [batch["id"] for batch in batches]
    start = names.index(request.query["after"]) + 1 if "after" in request.query else 0
    page = batches[start : start + 2]
    return web.json_response({"object": "list", "data": page, "has_more": start + 2 < len(batches)})


async def retrieve(request):
    provider = request.app[PROVIDER]
    batch = provider.batches.get(request.match_info["name"])
    if batch is None:
        return refusal(404, "no such batch")
    return web.json_response(batch)


def finish_batch(provider, name, *, fail=(), expire=(), refuse=(), stop=()):
    """Answer a batch: lines in `fail` get an error, in `expire` none, in `refuse` a refusal, in
    `stop` the filter's 400."""
    batch = provider.batches[name]
    out, errors = [], []
    for number, line in enumerate(provider.files[batch["input_file_id"]].splitlines()):
        entry = json.loads(line)
        row = {"id": f"r-{number}", "custom_id": entry["custom_id"]}
        if number in expire:
            errors.append(
                {
                    **row,
                    "response": None,
                    "error": {"code": "batch_expired", "message": "not run in time"},
                }
            )
        elif number in fail:
            errors.append(
                {
                    **row,
                    "response": {"status_code": 500, "body": {"error": {"message": "internal"}}},
                    "error": None,
                }
            )
        elif number in stop:
            body = {"error": {"message": "The prompt was stopped.", "code": "content_filter"}}
            errors.append({**row, "response": {"status_code": 400, "body": body}, "error": None})
        else:
            provider.answered[asked(entry["body"]["messages"])] += 1
            body = provider.completion(entry["body"])
            if number in refuse:
                body["choices"][0]["message"] |= {
                    "content": None,
                    "refusal": "I cannot judge this.",
                }
            out.append({**row, "response": {"status_code": 200, "body": body}, "error": None})
    provider.random.shuffle(out)  # a batch comes back in any order
    for kind, rows in (("output", out), ("error", errors)):
        if rows:
            provider.files[f"{name}-{kind}"] = "\n".join(json.dumps(row) for row in rows)
            batch[f"{kind}_file_id"] = f"{name}-{kind}"
    batch["status"] = "expired" if expire else "completed"


async def statistics(request):
    provider = request.app[PROVIDER]
    return web.json_response(
        {
            "outcomes": provider.outcomes,
            "most_in_flight": provider.most_in_flight,
            "processor_s": time.process_time(),
            "answered_twice": sum(n - 1 for n in provider.answered.values() if n > 1),
            "answered": len(provider.answered),
            "unheard": sorted(provider.unheard),
            "billed_tokens": provider.billed_tokens,
            "met": {name: sorted(digests) for name, digests in provider.met.items()},
            "twice": [digest for digest, n in provider.answered.items() if n > 1],
        }
    )


def application(provider):
    app = web.Application(client_max_size=2**28)
    app[PROVIDER] = provider
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/files", upload)
    app.router.add_get("/v1/files/{name}/content", content)
    app.router.add_post("/v1/batches", submit)
    app.router.add_get("/v1/batches", list_batches)
    app.router.add_get("/v1/batches/{name}", retrieve)
    app.router.add_get("/statistics", statistics)
    app.router.add_get("/outage", outage)
    return app


async def start(provider):
    runner = web.AppRunner(application(provider), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    provider.address = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    return runner


@contextmanager
def serving(provider):
    """Serve in a thread until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(provider), loop).result(60)
    try:
        yield provider
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)


def choose_first(body):
    """Answer a question for a judge in JSON: the reply shown first, on each dimension."""
    # a repair comes last
    asked = "\n".join(
        message["content"] for message in body["messages"] if message["role"] == "user"
    )
    shown = re.search(r"^Reply (\w+):$", asked, flags=re.MULTILINE)
    if shown is None:  # the same server may be asked for a reply
        return "It makes sense that this weighs on you."
    winner = shown[1]
    line = {"reasoning": "Because.", "winner": winner, "margin": 3}
    return json.dumps(dict.fromkeys(re.findall(r"^- (\w+): ", asked, flags=re.MULTILINE), line))


def choose_earlier(body, which=min):
    """Answer a question for a judge in JSON: the reply that comes first in the alphabet, whatever
    its place."""
    text = "\n".join(
        message["content"] for message in body["messages"] if message["role"] == "user"
    )
    replies = re.findall(r"^Reply (\w+):\n(?:<<<\n)?(.*)$", text, flags=re.MULTILINE)[:2]
    winner = which(replies, key=lambda reply: reply[1].strip())[0]
    line = {"reasoning": "Because.", "winner": winner, "margin": 3}
    return json.dumps(dict.fromkeys(re.findall(r"^- (\w+): ", text, flags=re.MULTILINE), line))


def take_turn(body):
    """Take a turn in a conversation: its place among the turns that were shown, and who speaks."""
    shown = re.findall(
        r"^(?:Seeker|Supporter): ", body["messages"][-1]["content"], flags=re.MULTILINE
    )
    return f"This is turn {len(shown) + 1}, word {body['model']} says."


def choose_later(body):
    """Answer it the other way round."""
    return choose_earlier(body, which=max)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--fault", action="append", default=[], help="NAME=SHARE")
    parser.add_argument("--hang", type=float, default=30.0)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--retry-after")
    parser.add_argument("--calm", type=int, default=0)
    parser.add_argument(
        "--judge", action="store_true", help="answer judges in JSON, and others in words"
    )
    parser.add_argument("--talk", action="store_true", help="take turns in conversations")
    options = parser.parse_args()
    faults = {name: float(share) for name, share in (entry.split("=") for entry in options.fault)}
    provider = Provider(
        answer=(
            choose_earlier
            if options.judge
            else take_turn
            if options.talk
            else " ".join(["word"] * options.words)
        ),
        latency_s=options.latency,
        faults=faults,
        hang_s=options.hang,
        keep=False,
        cuts_hung=True,
        retry_after=options.retry_after,
        calm=options.calm,
    )

    async def serve():
        await start(provider)
        print(provider.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    asyncio.run(serve())


if __name__ == "__main__":
    main()
