"""The terms of a study with people, as ``study.yaml`` sets them, fully checked."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from heart_collect.people.arrivals import PLATFORMS
from heart_collect.people.assignment import StudyError
from heart_collect.people.raters import STATEMENT
from heart_utils.settings import JsonObject, Text, read_strictly, read_yaml
from heart_utils.sources.heart import MAX_SENTENCES, MAX_WORDS

__all__ = ["Offer"]

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
LIMITS = f"1 to {MAX_SENTENCES} sentences, no more than {MAX_WORDS} words"
PAIRED = ("rating", "conversation")  #: The kind of a study and the unit of who reads most.


@dataclass(frozen=True)
class _Language:
    code: str
    script: str
    words: str = ""


LANGUAGES = read_yaml(Path(__file__).with_name("languages.yaml"), dict[str, _Language], StudyError)
SCRIPTS = {"CJK": "Han", "HIRAGANA": "kana", "KATAKANA": "kana"}
"""First words of characters' names in Unicode -> a script; that of other scripts is its own
name."""
WITHOUT_BLANKS = ("Han", "kana")
SHARE = 0.1
"""In the sample's conversations 21 % of all words are among the English ones, 14 % in the poorest;
in other languages hardly any. Of a Japanese text, as many signs are kana at the least."""
ENOUGH_WORDS = 20


def _share_of_seats(share: float) -> float:
    if not 0 <= share <= 1:
        raise ValueError(f"spare is {share:g}, expected a share of seats from 0 to 1.")
    return share


Words = Annotated[str, BeforeValidator(lambda given: "" if given is None else given)]
"""A text, which may be left empty."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Slices = Annotated[list[Text], Field(min_length=1)]
Share = Annotated[float, AfterValidator(_share_of_seats)]


@dataclass(frozen=True)
class _Statement:
    population: Words
    language: Words
    pay: Words


@dataclass(frozen=True)
class _Pace:
    rating: Positive
    rating_conversation: Positive
    reply: Positive
    conversation: Positive  # a turn


@dataclass(frozen=True)
class _Cost:
    currency: Text
    pay_per_hour: NotNegative
    fee_share: NotNegative
    seconds_a_page: _Pace
    minutes_around: NotNegative


@dataclass(frozen=True)
class _Overruled:
    minutes: Words
    language: Words


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
    statement: _Statement
    cost: _Cost
    arrival: Literal["name", "link", "prolific", "mturk"]
    completion_code: Words
    stopped_code: Words
    screened_out_code: Words
    overruled: _Overruled
    seed: int
    rating: _Rating
    reply: _Writing
    conversation: _Writing


def read_settings(defaults: Path, file: Path) -> JsonObject:
    """Read the project's default settings, replaced by those of `file`, and check them.

    All faults are reported at once.
    """
    settings: JsonObject = read_yaml(defaults, JsonObject, StudyError)
    faults: list[str] = []
    if file.is_file():
        settings = _merged(settings, read_yaml(file, JsonObject, StudyError), faults)
    return check_settings(settings, file, faults)


def check_settings(
    settings: Mapping[str, Any], where: object, faults: Sequence[str] = ()
) -> JsonObject:
    """Return normalised settings, or refuse them with all their faults.

    A date becomes text, for example.
    """
    faults = (
        [*faults, *unfinished(settings)] if settings.get("rehearsal") is not True else list(faults)
    )
    codes = [str(settings.get(name) or "").strip().casefold() for name in CODES]
    if len({*filter(None, codes)}) < len([*filter(None, codes)]):
        faults.append(
            f"Two of {', '.join(CODES)} are the same, so who declines or stops would be paid as who"
            " finished. Give each its own."
        )
    return asdict(read_strictly(_Settings, dict(settings), where, StudyError, faults=faults))


def unfinished(settings: Mapping[str, Any]) -> list[str]:
    """List what is missing before these settings can be used with real people.

    What they could not be told, or paid for.
    """
    faults = []
    statement = settings.get("statement")
    statement = statement if isinstance(statement, Mapping) else {}
    missing = [name for name in ASKED_OF_PUBLIC if not str(settings.get(name) or "").strip()]
    missing += [
        f"statement: {name}" for name in STATEMENT if not str(statement.get(name) or "").strip()
    ]
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
        platform, _ = PLATFORMS[arrival]
        whence = "from the study's page on Prolific" if arrival == "prolific" else "chosen by you"
        faults.append(
            f"With arrival: {arrival} it needs {' and '.join(codes)}, {whence}: completion_code"
            " proves that somebody finished, stopped_code that they left earlier, and"
            f" screened_out_code that they declined. Without them nobody can be paid on {platform}."
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
        """Describe the reward and its hourly rate; empty where nothing is paid."""
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
    """Compute the minutes and reward of a study from the pages of each seat.

    The reward is for the minutes that people are told.
    """
    cost = settings["cost"]
    pace = cost["seconds_a_page"]["rating_conversation" if (kind, unit) == PAIRED else kind]
    reckoned = max(n_pages) * pace / 60 + cost["minutes_around"]
    minutes = settings["minutes"] or math.ceil(round(reckoned, 6))
    reward = math.ceil(round(100 * cost["pay_per_hour"] * minutes / 60, 6)) / 100
    return Offer(reckoned, minutes, reward, cost["currency"])


def short_time(offer: Offer, settings: Mapping[str, Any]) -> list[str]:
    """Refuse to tell people less time than the study takes, unless somebody gave a reason."""
    if offer.minutes >= round(offer.reckoned, 6) or settings["overruled"]["minutes"].strip():
        return []
    return [
        f"minutes is {offer.minutes:g}, and the study takes {offer.reckoned:.0f} minutes a person"
        " by its `cost:` (seconds_a_page, minutes_around). People would work longer than they"
        " agreed to, at a lower wage than they were told. Leave minutes empty to tell the reckoned"
        " time, put under `cost:` what a pilot took, or say under `overruled: minutes:` why it is"
        " right."
    ]


def wrong_language(
    conversations: Iterable[str], pages: Iterable[str], settings: Mapping[str, Any]
) -> list[str]:
    """List pages or conversations that are not in the language of the settings.

    As far as scripts and common words show.
    """
    if settings["overruled"]["language"].strip():
        return []
    stated = settings["language"].strip()
    known = _find_language(stated)
    texts = {
        "conversations": " ".join(conversations),
        "pages (consent, checks and the others)": " ".join(pages),
    }
    faults = {name: _unlike(known, text) for name, text in texts.items()}
    scripts = [script for text in texts.values() if (script := guess_script(text))]
    wrong = [f"the {name} seem to {fault}" for name, fault in faults.items() if fault]
    if not wrong and len(set(scripts)) > 1:
        wrong = [f"the conversations are in {scripts[0]} script, the pages in {scripts[1]}"]
    if not wrong:
        return []
    return [
        f"language is {stated}, and {' and '.join(wrong)} (by script and common words). Raters"
        " would see which pages are checks. Put translated pages into `study-texts/` in the run's"
        " folder, under the names that they have in data/study, and set `language:`; or say why"
        " this is wrong under `overruled: language:`."
    ]


def _find_language(stated: str) -> str:
    """Return the listed name of a language, for a name or a code such as en or en-GB.

    The name is empty where the language is not listed.
    """
    words = re.findall(r"[^\W\d_]+", stated.casefold())
    names = {name.casefold(): name for name in LANGUAGES}
    codes = {language.code: name for name, language in LANGUAGES.items()}
    return next(
        (names[word] for word in words if word in names), codes.get(words[0], "") if words else ""
    )


def _unlike(known: str, text: str) -> str:
    """Return what a text seems to be if not in the known language, else an empty text."""
    script = guess_script(text)
    if script is None:
        return ""
    if not known:
        return "be in English" if guess_language(text) == "English" else ""
    if script != LANGUAGES[known].script:
        return f"be in {script} script"
    guess = guess_language(text)
    if guess not in ("", known):
        return f"be in {guess}"
    return f"not be in {known}" if known == "English" and not guess else ""


def guess_script(text: str) -> str | None:
    """Guess the script of most of a text; None where it is too short."""
    counts = Counter[str]()
    for word in re.findall(r"[^\W\d_]+", text):
        signs = word if _script(word[0]) in WITHOUT_BLANKS else word[:1]
        counts.update(map(_script, signs))
    if counts.total() < ENOUGH_WORDS:
        return None
    if counts["kana"] >= SHARE * counts.total():
        return "kana"
    return counts.most_common(1)[0][0]


def _script(sign: str) -> str:
    name = re.split("[ -]", unicodedata.name(sign, "UNKNOWN"))[0]
    return SCRIPTS.get(name, name.capitalize())


def guess_language(text: str) -> str:
    """Guess the Latin-script language of a text by common words; empty if unclear."""
    words = Counter(re.findall(r"[^\W\d_]+", text.casefold()))
    n_common = {
        name: sum(words[word] for word in language.words.split())
        for name, language in LANGUAGES.items()
    }
    best, second = sorted(n_common, key=lambda name: n_common[name], reverse=True)[:2]
    return (
        best
        if n_common[best] >= SHARE * words.total() and n_common[best] > 1.5 * n_common[second]
        else ""
    )


def _merged(
    settings: JsonObject, given: Mapping[str, Any], faults: list[str], at: str = ""
) -> JsonObject:
    """Merge the given settings into the defaults, and record unknown names."""
    unknown = [f"{at}{name}" for name in given if name not in settings]
    if unknown:
        faults.append(f"{', '.join(unknown)} is no setting. There are {', '.join(settings)}.")
    merged = dict(settings)
    for name, value in given.items():
        if isinstance(settings.get(name), dict) and isinstance(value, dict):
            merged[name] = _merged(settings[name], value, faults, f"{at}{name}: ")
        elif name in settings:
            merged[name] = value
    return merged
