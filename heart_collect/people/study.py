"""A study with people: its terms, its folder, its start (``heart-study RUN KIND``)."""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import math
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import requests
import yaml
from pydantic import BeforeValidator, Field

from heart_collect.calls.models import NotAllowedError
from heart_collect.judging.design import pair_replies
from heart_collect.judging.prompts import AUTHORS, PROMPTS, REPLY_INSTRUCTIONS
from heart_collect.judging.recipe import Recipe, read_recipe
from heart_collect.people import arrivals
from heart_collect.people.arrivals import PLATFORMS, Door, load_template
from heart_collect.people.assignment import (
    StudyError,
    assign_conversations,
    assign_raters,
    assign_writers,
    check_balance,
    choose_pairs,
)
from heart_collect.people.exports import LIMITS, hold_answers, load_about, restore_answers
from heart_collect.people.raters import LABELS, STATEMENT, TIE
from heart_utils import __version__
from heart_utils.runs import (
    Run,
    csv_text,
    find_root,
    open_run,
    visible_text,
    write_together,
)
from heart_utils.settings import JsonObject, MissingExtraError, Text, read_strictly, read_yaml

__all__ = ["ASKED_OF_PUBLIC", "KINDS"]

KINDS = ("rating", "reply", "conversation")
ASKED_OF_PUBLIC = (
    "support_line",
    "researcher",
    "review_board",
    "withdraw_contact",
    "withdraw_until",
    "retention",
    "pay",
)
CODES = ("completion_code", "stopped_code", "screened_out_code")
PAIRED = ("rating", "conversation")  #: The kind of a study and the unit of who reads most.
AT_THE_DOOR = ("arrive.html.jinja", "study.css", "chat.css")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SERVER_SECONDS = 60.0
STOP_SECONDS = 30.0
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A service manager, or a terminal that is closed, means what Ctrl-C means."""
SPEAKERS = {"seeker": "Seeker", "supporter": "Supporter"}
OF_UNIT = ("checks.yaml", "practice.yaml", "instructions-rating.html", "debrief-rating.html")
"""Texts that say what is rated: of whole conversations there is one more of each, named so."""
Filler: TypeAlias = Callable[[str, Mapping[str, str]], str]
"""From the name of a text, and words for its braces, to the text."""
CLOSED_TAG = "<\u2060"
"""A less-than sign and a word joiner: Potato 2.12 copies items into a script element without
escaping them, and so no tag in a reply closes it."""


Words = Annotated[str, BeforeValidator(lambda given: "" if given is None else given)]
"""A text, which may be left empty."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Slices = Annotated[list[Text], Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Pages = Literal["rating", "rating_conversation", "reply", "conversation"]


@dataclass(frozen=True)
class _Cost:
    currency: Text
    pay_per_hour: NotNegative
    fee_share: NotNegative
    seconds_a_page: dict[Pages, Positive]  # of a conversation, a turn
    minutes_around: NotNegative


@dataclass(frozen=True)
class _Rating:
    slices: Slices
    pairs_per_history: Literal["all"] | Count
    raters_per_pair: Count
    load: Count
    n_checks: Annotated[int, Field(ge=0)]
    spare: Share
    ties: bool
    dimension: Words
    dimension_name: Words


@dataclass(frozen=True)
class _Writing:
    slices: Slices
    writers_per_history: Count
    n_writers: Count
    spare: Share


@dataclass(frozen=True)
class _Settings:
    rehearsal: bool
    language: Text
    minutes: Positive | None
    support_line: Words
    researcher: Words
    review_board: Words
    withdraw_contact: Words
    withdraw_until: Words
    retention: Words
    licence: Words
    pay: Words
    statement: dict[Literal["population", "language", "pay"], Words]
    cost: _Cost
    arrival: Literal["name", "link", "prolific", "mturk"]
    completion_code: Words
    stopped_code: Words
    screened_out_code: Words
    seed: int
    rating: _Rating
    reply: _Writing
    conversation: _Writing


def load_settings(run: Run) -> JsonObject:
    """Read a study's settings: the run's over the project's defaults."""
    file = run.folder / "study.yaml"
    defaults = read_yaml(run.root / "data" / "study" / "settings.yaml", JsonObject, StudyError)
    given = read_yaml(file, JsonObject, StudyError) if file.is_file() else {}
    return check_settings(_merged(defaults, given), file)


def _merged(settings: JsonObject, given: JsonObject) -> JsonObject:
    merged = settings | given
    for name, value in settings.items():
        if isinstance(value, dict) and isinstance(merged[name], dict):
            merged[name] = _merged(value, merged[name])
    return merged


def check_settings(settings: Mapping[str, Any], where: object) -> JsonObject:
    """Return normalised settings, or refuse them with all faults."""
    faults = unfinished(settings) if settings.get("rehearsal") is not True else []
    codes = [code for name in CODES if (code := str(settings.get(name) or "").strip().casefold())]
    if len(set(codes)) < len(codes):
        faults.append(
            f"Two of {', '.join(CODES)} are the same, so who declines or stops would be paid as who"
            " finished. Give each its own."
        )
    return asdict(read_strictly(_Settings, dict(settings), where, StudyError, faults=faults))


def unfinished(settings: Mapping[str, Any]) -> list[str]:
    """List what real people could not be told, or paid for."""
    faults = []
    given = settings.get("statement")
    statement = given if isinstance(given, dict) else {}
    asked = {name: settings.get(name) for name in ASKED_OF_PUBLIC}
    asked |= {f"statement: {name}": statement.get(name) for name in STATEMENT}
    missing = [name for name, text in asked.items() if not str(text or "").strip()]
    if missing:
        first = (
            "Without a support line nobody in distress would know where to turn. "
            if "support_line" in missing
            else ""
        )
        faults.append(f"A study with real people needs {', '.join(missing)}. {first}Fill them in.")
    codes = [name for name in CODES if not str(settings.get(name) or "").strip()]
    arrival = settings.get("arrival")
    if codes and arrival in PLATFORMS:
        faults.append(
            f"With arrival: {arrival} it needs {' and '.join(codes)}: completion_code proves to"
            f" {PLATFORMS[arrival][0]} that somebody finished, stopped_code that they left earlier,"
            " and screened_out_code that they declined. Without them nobody can be paid."
        )
    return faults


@dataclass(frozen=True)
class Offer:
    """What people are told that a study takes and brings, and what it should take."""

    reckoned: float  #: Minutes of who has most pages, by ``cost:`` in the settings.
    minutes: float  #: What the first page says.
    reward: float  #: For each person, in the currency of the settings, to the hundredth above.
    currency: str

    @property
    def wage(self) -> str:
        """The reward and its hourly rate; empty where nothing is paid."""
        if not self.reward:
            return ""
        hourly = self.reward / self.minutes * 60
        return (
            f"You get {self.reward:.2f} {self.currency} for it, which is {hourly:.2f}"
            f" {self.currency} an hour."
        )


def make_offer(
    n_pages: Iterable[int], settings: Mapping[str, Any], kind: str, unit: str = "reply"
) -> Offer:
    cost = settings["cost"]
    pace = cost["seconds_a_page"]["rating_conversation" if (kind, unit) == PAIRED else kind]
    reckoned = max(n_pages) * pace / 60 + cost["minutes_around"]
    minutes = settings["minutes"] or math.ceil(round(reckoned, 6))
    reward = math.ceil(round(100 * cost["pay_per_hour"] * minutes / 60, 6)) / 100
    return Offer(reckoned, minutes, reward, cost["currency"])


def _short_time(offer: Offer) -> list[str]:
    """Refuse to tell people less time than it takes."""
    if offer.minutes >= round(offer.reckoned, 6):
        return []
    return [
        f"minutes is {offer.minutes:g}, and the study takes {offer.reckoned:.0f} minutes a person"
        " by its `cost:`. People would work longer than they agreed to, at a lower wage than they"
        " were told. Leave minutes empty to tell the reckoned time, or put under `cost:` what a"
        " pilot took."
    ]


def _untranslated(
    kind: str, settings: Mapping[str, Any], texts: Sequence[Path], unit: str
) -> list[str]:
    if settings["language"].strip().casefold().startswith("en"):
        return []
    names = ["consent.html", f"instructions-{kind}.html", f"debrief-{kind}.html", "stop.html"]
    names += {"conversation": ["chat.html.jinja"], "rating": list(OF_UNIT[:2])}.get(kind, [])
    files = [_text_file(texts, name, unit) for name in names]
    english = ", ".join(file.name for file in files if file.parent == texts[-1])
    if not english:
        return []
    return [
        f"language is {settings['language']}, and there is no translation of {english}: raters"
        " would see which pages are checks. Put translated pages into `study-texts/` in the run's"
        " folder, under the names that they have in data/study, or set `language: English`."
    ]


def write_study(
    run: Run,
    kind: str,
    *,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    top_up: bool = False,
) -> Path:
    """Write a complete study into ``runs/<run>/study/<name>``: a Potato project.

    For ``conversation`` it has our own pages: Potato keeps a live chat in memory.
    """
    own = run.folder / "study.yaml"
    settings = load_settings(run) if settings is None else check_settings(settings, own)
    texts = [run.folder / "study-texts", run.root / "data" / "study"]
    folder = run.folder / "study" / (name or kind)
    _check_free(folder)
    histories = run.read("histories")
    unit = unit_of(histories)
    _check_unit(run, kind, unit)
    answerable = histories["turns"].map(lambda turns: turns[-1]["speaker"] == "seeker").astype(bool)
    histories = histories[histories["slice"].isin(settings[kind]["slices"]) & answerable]
    if histories.empty:
        slices = ", ".join(settings[kind]["slices"])
        raise StudyError(
            f"The run {run.name!r} has no history of {slices} that ends with the seeker."
        )
    turns = dict(zip(histories["history_id"], histories["turns"], strict=True))
    rng = np.random.default_rng(int(settings["seed"]))
    extra, texts_of_pair = dict[str, bytes](), dict[str, tuple[str, str]]()
    checks: JsonObject = {}
    if kind == "rating":
        replies = run.read("replies")
        assignment, comparisons = _rating_assignment(
            run, replies[replies["history_id"].isin(turns)], settings, rng, top_up
        )
        checks = read_yaml(_text_file(texts, "checks.yaml", unit), JsonObject, StudyError)
        assignment = _with_checks(assignment, checks["checks"])
        texts_of = _texts_shown(replies)
        pairs = (
            comparisons[["pair_id", "reply_a", "reply_b"]]
            .drop_duplicates("pair_id")
            .itertuples(index=False)
        )
        texts_of_pair = {pair: (texts_of[a], texts_of[b]) for pair, a, b in pairs}
        extra["comparisons.parquet"] = comparisons.to_parquet(index=False)
    else:
        rules = settings[kind]
        draw = partial(
            assign_writers if kind == "reply" else assign_conversations,
            histories,
            writers_per_history=rules["writers_per_history"],
            n_writers=rules["n_writers"],
            rng=rng,
        )
        assignment = _with_spares(draw(), draw, rules["spare"]).assign(task="write")
    recipe = read_recipe(run.name) if kind == "conversation" else None
    turns_each = 1 if recipe is None else recipe.exchanges
    offer = make_offer(assignment.groupby("seat").size() * turns_each, settings, kind, unit)
    items = _items(assignment, turns, texts_of_pair, checks, unit)
    assignment = assignment.assign(item_id=[str(item["id"]) for item in items])
    seats = {str(seat): ids.tolist() for seat, ids in assignment.groupby("seat")["item_id"]}
    if faults := _short_time(offer) + _untranslated(kind, settings, texts, unit):
        raise StudyError(f"{own}: {' '.join(faults)}")
    secret = secrets.token_hex(32)
    about = {"run": run.name, "kind": kind, "unit": unit, "settings": settings, "secret": secret}
    filled = _filler(settings, texts, offer, unit)
    door = Door(secret, settings["arrival"], {})
    if settings["arrival"] == "link":
        links = pd.DataFrame({"person": [*seats], "link": [door.link(seat) for seat in seats]})
        extra["links.csv"] = csv_text(links).encode()
    files = {
        "assignment.csv": csv_text(assignment).encode(),
        "pages/stop.html": filled("stop.html", {}).encode(),
        **{name: _text_file(texts, name).read_bytes() for name in AT_THE_DOOR},
    }
    if recipe is not None:
        from heart_collect.people.chats import STARTED, chat_settings  # for who talks, nobody else

        about |= chat_settings(recipe)
        starts = histories.set_index("history_id", drop=False)[[*STARTED]].to_dict("index")
        items = [
            {"id": item["id"], "seat": seat, "start": starts[history]}
            for item, seat, history in zip(
                items, assignment["seat"], assignment["history_id"], strict=True
            )
        ]
        n_most = int(assignment.groupby("seat").size().max())
        files |= _chat_files(recipe, texts, filled, n_most)
    else:
        pages, config = study_pages(kind, settings, texts, seats, filled, unit)
        extra |= {
            **{
                f"server/{name}": _text_file(texts[-1:], name).read_bytes()
                for name in ("sitecustomize.py", "guard.py")
            },
            "server/arrivals.py": Path(arrivals.__file__).read_bytes(),
            "config.yaml": yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode(),
            **{f"pages/{page}.json": _json(schemes) for page, schemes in pages.items()},
        }
    lines = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
    files |= {"study.json": _json(about), "items.jsonl": lines.encode(), **extra}
    part = folder.with_name(f".{folder.name}.part")
    try:  # config.yaml holds the key that signs sessions; answers will come beside it
        write_together({part / file: content for file, content in files.items()}, private=True)
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _filler(settings: Mapping[str, Any], texts: Sequence[Path], offer: Offer, unit: str) -> Filler:
    def filled(name: str, words: Mapping[str, str]) -> str:
        all_words = {**words, "minutes": f"{offer.minutes:g}", "wage": offer.wage}

        def fill(match: re.Match[str]) -> str:
            word = match[1]
            text = (
                all_words[word]
                if word in all_words
                else str(settings[word]).strip() or f"[not filled in: {word}]"
            )
            return html.escape(text)

        return re.sub(r"\{(\w+)\}", fill, _text_file(texts, name, unit).read_text(encoding="utf-8"))

    return filled


def _chat_files(
    recipe: Recipe, texts: Sequence[Path], filled: Filler, n_conversations: int
) -> dict[str, bytes]:
    makers = " and ".join(sorted({str(seeker.family) for seeker in recipe.seekers}))
    page_texts = load_template("chat.html.jinja", *texts).module
    words = {
        "task": " ".join(
            page_texts.task(n_conversations, recipe.exchanges, makers).unescape().split()
        ),
        "recorded": " ".join(page_texts.recorded().unescape().split()),
        "instructions": recipe.instructions,
        "exchanges": str(recipe.exchanges),
    }
    names = ("consent.html", "instructions-conversation.html", "debrief-conversation.html")
    pages = {
        f"pages/{name.replace('-conversation', '')}": filled(name, words).encode() for name in names
    }
    copied = ("chat.html.jinja", "chat.js")
    return pages | {name: _text_file(texts, name).read_bytes() for name in copied}


def study_pages(
    kind: str,
    settings: Mapping[str, Any],
    texts: Sequence[Path],
    seats: Mapping[str, Sequence[str]],
    filled: Filler,
    unit: str,
) -> tuple[dict[str, list[JsonObject]], JsonObject]:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(loader=FileSystemLoader(texts), undefined=StrictUndefined)
    pages.filters["escape"] = html.escape
    practice_file = _text_file(texts, "practice.yaml", unit)
    practice = read_yaml(practice_file, list[JsonObject], StudyError) if kind == "rating" else []
    platform, parameter = PLATFORMS.get(settings["arrival"], ("", ""))
    text = pages.get_template("potato.yaml.jinja").render(
        kind=kind,
        settings=settings,
        seats=seats,
        secret=secrets.token_hex(32),
        filled=filled,
        practice=practice,
        instructions=REPLY_INSTRUCTIONS,
        limits=LIMITS,
        speakers=SPEAKERS,
        labels=LABELS[unit],
        tie=TIE,
        unit=unit,
        before=PROMPTS["units"][unit]["before"],
        platform=platform,
        parameter=parameter,
    )
    # by the parser in C, which takes a tenth of the time
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    made = yaml.load(text, loader)
    return made["pages"], made["config"]


def start_study(
    folder: Path, *, host: str = "127.0.0.1", port: int = 8000
) -> subprocess.Popen[bytes]:
    _check_start(folder, host)
    program = _find_potato()
    _check_port(host, port)
    restore_answers(folder)
    folder.chmod(0o700)
    log = folder / "server.log"
    log.touch(0o600)
    server, why = None, f"did not answer on port {port} in {SERVER_SECONDS:.0f} s"
    try:
        with log.open("ab") as out, _held_back() as let_go:
            server = subprocess.Popen(
                [str(program), "start", "config.yaml", "-p", str(port), "--host", host],
                cwd=folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                # Potato writes answers under people's names, and a key that opens its pages for
                # administrators
                umask=0o077,
                start_new_session=True,  # so that it can be ended with whatever it started
                preexec_fn=let_go,
                # Else Potato keeps the pages it makes beside its own code, by title, and two
                # studies overwrite each other's.
                env={
                    **os.environ,
                    "PYTHONPATH": str(folder / "server"),  # what makes a logout hold
                    "POTATO_GENERATED_TEMPLATES_DIR": str(folder / "made"),
                },
            )
        deadline = time.monotonic() + SERVER_SECONDS
        while time.monotonic() < deadline:
            if server.poll() is not None:
                why = f"stopped at once (exit {server.returncode})"
                break
            if _answers(host, port):
                return server
            time.sleep(0.2)
        words = log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
        raise StudyError("\n".join([f"Potato {why}. Its last words in {log}:", *words]))
    except BaseException:
        if server is not None:
            stop_study(server)
        raise


def _check_start(folder: Path, host: str) -> None:
    settings = load_about(folder)["settings"]
    is_public, rehearsal = host not in LOOPBACK, settings["rehearsal"] is True
    if (is_public or not rehearsal) and (faults := unfinished(settings)):
        raise StudyError(f"{folder.parents[1] / 'study.yaml'}: {' '.join(faults)}")
    if is_public and rehearsal:
        raise StudyError(
            "This study is a rehearsal, so it starts on this machine only. Set rehearsal: false in"
            " study.yaml and write it again."
        )


@contextlib.contextmanager
def _held_back() -> Iterator[Callable[[], object]]:
    """Delay signals to stop until the block ends; what it yields ends that for a child."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        yield partial(signal.pthread_sigmask, signal.SIG_SETMASK, before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(*_: object) -> None:
    """Stop as Ctrl-C does, once: `make` passes on a terminal's signals."""
    for word in ENDS:
        signal.signal(word, signal.SIG_IGN)
    raise KeyboardInterrupt


def stop_study(server: subprocess.Popen[bytes]) -> None:
    """End Potato and its children, after half a minute by force."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # whoever of them is still there
    server.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="heart-study", description="Write and start a study.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("run", help="a name under runs/, or a path")
    parser.add_argument(
        "kind",
        choices=KINDS,
        help="rating: people judge replies or conversations; reply: people write replies;"
        " conversation: people talk with the run's simulated seekers",
    )
    parser.add_argument("--name", help="the folder under runs/<run>/study (default: the kind)")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--host", default="127.0.0.1", help="another address than loopback is a public start"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with a study that holds answers"
    )
    parser.add_argument(
        "--top-up", action="store_true", help="rating: ask only for verdicts that are still missing"
    )
    parser.add_argument(
        "--write-only", action="store_true", help="write the folder and do not start it"
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="USD",
        help="conversation: what the run's ledger may spend, ever (default: the run's budget_usd)",
    )
    parser.add_argument(
        "--yes", action="store_true", help="conversation: make paid calls without asking first"
    )
    options = parser.parse_args(arguments)
    try:
        run = open_run(options.run)
        folder = run.folder / "study" / (options.name or options.kind)
        if not options.resume:
            write_study(run, options.kind, name=options.name, top_up=options.top_up)
        print(_describe(folder))
        if options.kind == "conversation":
            return _serve_conversations(run, folder, options)
        return 0 if options.write_only else _serve(folder, options.host, options.port)
    except (ValueError, MissingExtraError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except NotAllowedError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped. All answers are kept; RESUME=1 goes on.", file=sys.stderr)
        return 0


def _serve(folder: Path, host: str, port: int) -> int:
    for word in ENDS:
        signal.signal(word, _end)
    with hold_answers(folder):
        server = start_study(folder, host=host, port=port)
        try:
            _say_where(folder, host, port)
            return server.wait()
        finally:
            stop_study(server)


def _serve_conversations(run: Run, folder: Path, options: argparse.Namespace) -> int:
    from heart_collect.calls.commands import settle_hosts, settle_money
    from heart_collect.calls.ledger import open_ledger
    from heart_collect.people.chats import (
        Chats,
        ask_seeker,
        describe_turns,
        plan_turns,
        refuse_other_seekers,
        serve_chats,
    )

    recipe = read_recipe(run.name)
    chats = Chats(folder, recipe.seekers)
    refuse_other_seekers(recipe, chats.about, folder)
    with contextlib.closing(open_ledger(run, seed_file=recipe.seed_file)) as ledger:
        plan = plan_turns(chats, recipe, ledger)
        print(describe_turns(plan))
        if options.write_only:
            return 0
        _check_start(folder, options.host)
        settle_hosts(recipe.seekers, command="study")
        budgets = (recipe.budget_usd, options.budget)
        budget = settle_money(recipe.seekers, plan, budgets, options.yes)
        _check_port(options.host, options.port)
        folder.chmod(0o700)
        with hold_answers(folder):
            serve_chats(
                Chats(folder, recipe.seekers),  # as it is now that nobody else serves it
                partial(ask_seeker, ledger=ledger, budget_usd=budget),
                host=options.host,
                port=options.port,
                ready=partial(_say_where, folder, options.host, options.port),
                budget_usd=budget,
            )
    return 0


def _say_where(folder: Path, host: str, port: int) -> None:
    about = load_about(folder)
    door = Door(about["secret"], about["settings"]["arrival"], {})
    address = f"http://{host}:{port}"
    ids = {"PROLIFIC_PID": "{{%PROLIFIC_PID%}}", "workerId": "${workerId}"}
    ways = {
        "name": f"Open {address}{door.link()} ; who has the link can take part.",
        "link": f"Open {address} by the links in {folder / 'links.csv'}, one a person.",
    }
    by_platform = (
        f"Open {address}{door.link()}{ids.get(door.parameter, '')} ; that is the link to give to"
        f" {door.platform}, with your server's name in it."
    )
    way = ways.get(about["settings"]["arrival"], by_platform)
    print(f"{way} Ctrl-C stops the server and keeps all answers.", flush=True)


def _describe(folder: Path) -> str:
    about = load_about(folder)
    rules = about["settings"]["cost"]
    pages = pd.read_csv(folder / "assignment.csv").groupby("seat")
    n_pages, n_spare = pages.size(), int(pages["spare"].first().sum())
    turns_each = int(about.get("exchanges", 1))
    offer = make_offer(n_pages * turns_each, about["settings"], about["kind"], about["unit"])
    each = offer.reward * (1 + rules["fee_share"])
    n_needed = len(n_pages) - n_spare
    spare, most, reckoned = "", "", ""
    if n_spare:
        spare = f" and {n_spare} spare seats"
        most = f", and {len(n_pages) * each:,.2f} if all {n_spare} spare seats are taken too"
    if offer.minutes != math.ceil(offer.reckoned):
        reckoned = f" ({offer.reckoned:.0f} by the reckoning of `cost:`)"
    return (
        f"{folder}: {n_needed} people{spare}, {n_pages.sum()} pages between them,"
        f" {len(_begun(folder))} have begun.\n{offer.minutes:g} minutes a person{reckoned},"
        f" {n_needed * offer.minutes / 60:,.1f} hours: {n_needed * each:,.2f}"
        f" {rules['currency']}{most}, at {rules['pay_per_hour']:g} an hour and a fee of"
        f" {100 * rules['fee_share']:g} % (`cost:` in the settings).\nThe first page says: about"
        f" {offer.minutes:g} minutes. {offer.wage}"
    )


def unit_of(histories: pd.DataFrame) -> str:
    """Return what is answered or judged: a reply, or a whole conversation."""
    with_seeker = "seeker" in histories and histories["seeker"].notna().any()
    return "conversation" if with_seeker else "reply"


def _check_unit(run: Run, kind: str, unit: str) -> None:
    if kind == "reply" and unit == "conversation":
        raise StudyError(
            f"The run {run.name!r} is of conversations (`unit: conversation`), and one reply"
            " cannot be compared with a whole conversation. KIND=conversation asks people to hold"
            " some."
        )
    if kind == "conversation" and unit == "reply":
        raise StudyError(
            f"The run {run.name!r} has no seeker to talk with. Name some in its settings (`unit:"
            " conversation` and `seekers:`), and `make collect` it."
        )


def _text_file(texts: Sequence[Path], name: str, unit: str = "reply") -> Path:
    """Find a text in the run's folder, else in the project's."""
    if unit != "reply" and name in OF_UNIT:
        name = f"-{unit}.".join(name.split("."))
    return next((folder / name for folder in texts if (folder / name).is_file()), texts[-1] / name)


def _check_free(folder: Path) -> None:
    """Refuse to write over answers, or a folder not written here."""
    if begun := _begun(folder):
        raise StudyError(
            f"{folder} already holds answers of {len(begun)} people, and is never overwritten. Go"
            " on by --resume (RESUME=1) or write another by --name."
        )
    if folder.exists() and not (folder / "study.json").is_file():
        raise StudyError(
            f"{folder} exists and was not written here (it has no study.json). Give the study"
            " another --name."
        )


def _begun(folder: Path) -> set[Path]:
    answers = folder / "answers"
    return {*answers.glob("*/user_state.json"), *answers.glob("*.json")}


def _rating_assignment(
    run: Run,
    replies: pd.DataFrame,
    settings: Mapping[str, Any],
    rng: np.random.Generator,
    top_up: bool,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    rules = settings["rating"]
    share = partial(
        assign_raters, load=int(rules["load"]), n_checks=int(rules["n_checks"]), rng=rng
    )
    comparisons = pair_replies(replies, rng=rng, orders="both", protocol="people")
    if rules["pairs_per_history"] != "all":
        comparisons = choose_pairs(
            comparisons, pairs_per_history=int(rules["pairs_per_history"]), rng=rng
        )
    votes: int | dict[str, int] = int(rules["raters_per_pair"])
    if top_up:
        votes = _missing_votes(run, comparisons, int(rules["raters_per_pair"]))
    assignment = share(comparisons, raters_per_pair=votes)
    balance = check_balance(assignment)
    if not balance["holds"].all():
        fails = balance[~balance["holds"]].to_string(index=False)
        raise StudyError(
            f"The assignment is not balanced, so the study is not written:\n{fails}\nSome history"
            " has many more pairs to rate than the others; try a smaller `rating: load:` in"
            f" {run.folder / 'study.yaml'}."
        )
    few = max(
        1, -(-assignment["seat"].nunique() * int(rules["load"]) // comparisons["pair_id"].nunique())
    )
    return (
        _with_spares(assignment, partial(share, comparisons, raters_per_pair=few), rules["spare"]),
        comparisons,
    )


def _with_spares(
    assignment: pd.DataFrame, draw: Callable[[], pd.DataFrame], share: float
) -> pd.DataFrame:
    """Add seats of a second draw, used when the others are taken."""
    n_seats = assignment["seat"].nunique()
    n_spare = math.ceil(n_seats * share)
    if not n_spare:
        return assignment.assign(spare=False)
    spare = draw()
    names = {
        seat: f"seat-{n_seats + number:03d}"
        for number, seat in enumerate(sorted(spare["seat"].unique())[:n_spare], 1)
    }
    spare = spare[spare["seat"].isin(names)].assign(
        seat=lambda rows: rows["seat"].map(names), spare=True
    )
    return pd.concat([assignment.assign(spare=False), spare], ignore_index=True)


def _missing_votes(run: Run, comparisons: pd.DataFrame, wanted: int) -> dict[str, int]:
    verdicts = run.read("verdicts")
    people = verdicts.query("rater_kind == 'human' and dimension == 'overall' and state == 'valid'")
    have = people["pair_id"].value_counts()
    votes = {
        pair: max(0, wanted - int(have.get(pair, 0))) for pair in comparisons["pair_id"].unique()
    }
    if not any(votes.values()):
        raise StudyError(
            f"Each of the {len(votes)} pairs has its {wanted} verdicts; there is nothing to top up."
        )
    return votes


def _with_checks(assignment: pd.DataFrame, checks: list[JsonObject]) -> pd.DataFrame:
    """Choose what each check asks for; neighbours begin at different ones."""
    number = assignment["check"].fillna(0).astype(int) + assignment["seat"].str.removeprefix(
        "seat-"
    ).astype(int)
    expected = (
        pd.DataFrame(checks)
        .astype({"strength": "Int64"})
        .add_prefix("check_")
        .iloc[number % len(checks)]
    )
    return assignment.join(expected.set_axis(assignment.index).where(assignment["task"] == "check"))


def _items(
    assignment: pd.DataFrame,
    turns: Mapping[str, Any],
    replies: Mapping[str, tuple[str, str]],
    checks: Mapping[str, str],
    unit: str,
) -> list[dict[str, object]]:
    """Build all seats' pages; how a conversation went on is a list."""

    def as_shown(text: str) -> str | list[str]:
        return _inert(text) if unit == "reply" else [_inert(turn) for turn in text.split("\n")]

    length, items = assignment.groupby("seat").size(), []
    for row in assignment.to_dict("records"):
        shown_texts: Sequence[str] = ()
        about = row.get("comparison_id", row["history_id"])
        if row["task"] == "check":
            about = f"check-{row['check']}"
            asks = checks["asks"].format(side=row["check_side"], strength=row["check_strength"])
            shown_texts = (checks["other_reply"].strip(), asks.strip())[
                :: 1 if row["check_side"] == "B" else -1
            ]
            check_turns = [("supporter", checks["opening"]), ("seeker", row["check_topic"])]
            talk = [{"speaker": speaker, "text": str(text)} for speaker, text in check_turns]
        else:
            talk = turns[row["history_id"]]
            if row["task"] == "rate":
                shown_texts = replies[row["pair_id"]][:: 1 if row["order"] == "ab" else -1]
        item: dict[str, object] = {
            "id": f"{row['seat']}.{row['position']:03d}.{about}",
            "title": f"{row['position']} of {length[row['seat']]}",
            "conversation": [
                {"speaker": SPEAKERS[turn["speaker"]], "text": _inert(turn["text"])}
                for turn in talk
            ],
        }
        if shown_texts:
            item["replies"] = [as_shown(text) for text in shown_texts]
        items.append(item)
    return items


def _texts_shown(replies: pd.DataFrame) -> dict[str, str]:
    """Return replies' words by id, under the label shown with."""
    rows = replies.reindex(columns=["reply_id", "text", "label"]).itertuples(index=False)
    return {
        name: f"Written by {AUTHORS[label]}:\n{text}" if label in AUTHORS else text
        for name, text, label in rows
    }


def _inert(text: str) -> str:
    return visible_text(text).replace("<", CLOSED_TAG)


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def _find_potato() -> Path:
    program = Path(os.environ.get("HEART_POTATO") or find_root() / ".venv-study" / "bin" / "potato")
    if not program.is_file():
        raise StudyError(
            f"Potato is not installed (looked for {program}). `make study` installs it, from"
            " requirements/study.txt. Outside a checkout, install `potato-annotation` in an"
            " environment of its own, and name its program in HEART_POTATO."
        )
    return program


def _check_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StudyError(
                f"Port {port} on {host} cannot be used ({error.strerror}). Stop what uses it, or"
                f" take another: PORT={port + 1}."
            ) from None


def _answers(host: str, port: int) -> bool:
    at = "127.0.0.1" if host == "0.0.0.0" else host
    with contextlib.suppress(requests.RequestException):
        requests.get(f"http://{at}:{port}/", timeout=5)
        return True  # it answers, if only that a name is missing
    return False


if __name__ == "__main__":
    sys.exit(main())
