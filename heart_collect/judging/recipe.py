"""A recipe: a run's histories, responders and judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import numpy as np
import pandas as pd
from pydantic import Field

from heart_collect.calls.models import Model, read_models
from heart_collect.judging.design import (
    PROBES,
    PROFILES,
    cross_seekers,
    describe_responders,
    make_pairs,
    named_probes,
)
from heart_collect.judging.prompts import (
    CODEBOOKS,
    REPLY_INSTRUCTIONS,
    SEEKER_INSTRUCTIONS,
    Protocol,
    load_protocol,
    load_rubric,
    prompt_hash,
)
from heart_utils.runs import find_home, find_root
from heart_utils.settings import JsonObject, read_strictly, read_yaml
from heart_utils.sources.defaults import as_options
from heart_utils.sources.heart import load_codebooks, load_question_histories, load_questions
from heart_utils.sources.load import load_histories, load_responders
from heart_utils.tables import SLICES, DataError, check_table, empty_table

if TYPE_CHECKING:
    from heart_collect.calls.engine import Asking
    from heart_collect.calls.ledger import Ledger
    from heart_collect.judging.steps import Judging, Tables

__all__ = ["Recipe", "RecipeError", "read_recipe"]

TWINNED = "calm_twin"
MODELS = ("responders", "judges", "coders", "seekers", "rewriters")
Positive = Annotated[int, Field(ge=1)]


class RecipeError(ValueError):
    """A run's settings do not describe a recipe."""


@dataclass(frozen=True)
class Recipe:
    """What a run's ``collect:`` settings say."""

    run: str  #: The run's name.
    #: As :func:`heart_utils.sources.load.load_histories` takes it; a file, from the project's root.
    histories: str = ""
    #: How that file is to be read: options of :func:`heart_utils.sources.load.load_verdicts`,
    #: beside ``file`` in ``histories``.
    reading: Mapping[str, Any] = field(default_factory=dict)
    twins: bool = False  #: Whether the calm originals of adversarial histories come too.
    #: How many histories of each slice, spread evenly over the set; all of a slice not named.
    slices: Mapping[str, Annotated[int, Field(ge=0)]] = field(default_factory=dict)
    given_replies: bool = True  #: Whether the replies that came with the histories take part.
    #: How many rewritings of each given reply take its place, with randomised features; an even
    #: number, none by default. Or ``adversarial``: histories are rewritten so that the seeker
    #: resists.
    rewrites: Annotated[int, Field(ge=0, le=16, multiple_of=2)] | Literal["adversarial"] = 0
    rewriters: tuple[Model, ...] = ()  #: Who rewrites the histories.
    #: Whom a rewriting may be said to be from, drawn at random.
    labels: tuple[Literal["expert", "person", "ai"], ...] = ()
    responders: tuple[Model, ...] = ()  #: Who answers.
    probes: tuple[str, ...] = ()  #: Names of :data:`heart_collect.judging.design.PROBES`.
    instructions: str = REPLY_INSTRUCTIONS  #: What a model is told before it answers.
    repeats: Positive = 1  #: Replies of a model to a history.
    #: What is judged: one turn, or a whole conversation with a seeker that a model plays.
    unit: Literal["reply", "conversation"] = "reply"
    #: How often both speak, in a conversation that nobody ends before.
    exchanges: Annotated[int, Field(ge=1, le=30)] = 5
    seekers: tuple[Model, ...] = ()  #: Who plays the seeker: two families or more.
    seeker_instructions: str = SEEKER_INSTRUCTIONS  #: What they are told.
    #: Faults of a choice of seekers that are meant: ``one_family`` (or one seeker), ``own_family``
    #: (a responder's).
    allow: tuple[Literal["one_family", "own_family"], ...] = ()
    judges: tuple[Model, ...] = ()  #: The panel.
    #: How they are asked, by the names of ``data/protocols``, and on which dimensions; None means
    #: all.
    protocols: Mapping[str, tuple[str, ...] | None] = field(default_factory=lambda: {"heart": None})
    orders: Literal["both", "random"] = "both"
    pairs: Positive | Literal["all"] = "all"  #: Or how many of each history.
    judge_repeats: Positive = 1  #: How often each judge is asked the same.
    coders: tuple[Model, ...] = ()  #: Who labels what replies do; nobody by default.
    codebooks: tuple[str, ...] = CODEBOOKS  #: Each is a call a reply and coder.
    coded: tuple[str, ...] = ()  #: Responders whose replies are labelled; all by default.
    report_card: bool = False  #: Whether the judges are asked about probes with known answers too.
    #: About how many pairs the judges are asked again.
    asked_again: Annotated[int, Field(ge=0)] = 0
    #: On which dimensions then, in one call and one a call; those of ``heart`` by default.
    together: tuple[str, ...] = ()
    seed: int = 20260109  #: Of what is drawn.
    budget_usd: float | None = None  #: What the run may spend, ever.
    max_concurrency: Positive | None = None  #: Judging calls in flight, all judges together.
    #: A file of recorded calls that the ledger is seeded with, from the project's root.
    recorded: str | None = None
    #: ``heartbench``, or a file like its own, whose rubric judges go through item by item: no
    #: histories, pairs or protocols.
    questions: str | None = None
    #: So many of them, those with the shortest texts: a small model's context is short.
    n_questions: Positive | None = None
    language: Literal["zh", "en"] = "zh"  #: Of what models are told about them.

    @property
    def models(self) -> tuple[Model, ...]:
        """All who are asked."""
        return (*self.responders, *self.seekers, *self.judges, *self.coders, *self.rewriters)

    @property
    def rewritten_replies(self) -> int:
        """How many rewritings replace each given reply."""
        return 0 if isinstance(self.rewrites, str) else self.rewrites

    def protocols_that_ask(self, about: Literal["pair", "reply"]) -> list[Protocol]:
        """Load the protocols about pairs, or replies alone."""
        if self.questions:
            return []
        loaded = map(load_protocol, self.protocols)
        return [one for one in loaded if one.asks == about and self.asked_by(one)]

    def asked_by(self, protocol: Protocol) -> tuple[Model, ...]:
        """Who is asked by a protocol."""
        return self.seekers if protocol.raters == "seekers" else self.judges

    def identity_of(self, judge: str, *, protocol: str = "heart") -> JsonObject:
        """Describe a judge as calibration records know it.

        Parameters
        ----------
        judge : str
            The judge's name.
        protocol : str
            How it is asked.

        Returns
        -------
        dict
            ``model``, ``prompt`` (a hash), ``rubric`` and ``options``.

        Raises
        ------
        RecipeError
            If the recipe has no such judge or protocol.

        Examples
        --------
        >>> sorted(read_recipe("sample").identity_of("SmolLM2-135M-judge"))
        ['model', 'options', 'prompt', 'rubric']
        """
        judges = {model.name: model for model in self.judges}
        if judge not in judges:
            raise RecipeError(
                f"The run {self.run!r} has no judge {judge!r}; there are"
                f" {', '.join(judges) or 'none'}."
            )
        if protocol not in self.protocols:
            raise RecipeError(
                f"The run {self.run!r} does not ask by {protocol!r}; it asks by"
                f" {', '.join(self.protocols)}."
            )
        model, settings = judges[judge], load_protocol(protocol)
        rubric = load_rubric(settings.rubric)
        lines = self.protocols[protocol]
        rubric = rubric if lines is None else rubric.select(lines)
        return {
            "model": model.identity,
            "prompt": prompt_hash(settings, rubric, model.answer_format),
            "rubric": {"name": settings.rubric, "lines": [line.name for line in rubric.dimensions]},
            "options": dict(model.options),
        }

    @property
    def seed_file(self) -> Path | None:
        """Its file of recorded calls, if there."""
        file = find_root() / (self.recorded or "")
        return file if file.is_file() else None

    def open_ledger(self) -> Ledger:
        """Open its run's ledger, with recorded calls."""
        from heart_collect.calls.ledger import open_ledger  # for who asks, and nobody else

        return open_ledger(self.run, seed_file=self.seed_file)

    def choose_histories(self) -> pd.DataFrame:
        """Load and choose its histories, evenly over the set.

        Returns
        -------
        pandas.DataFrame
            The table ``histories``; with ``unit: conversation`` each once a seeker.

        Raises
        ------
        RecipeError
            If a slice has too few histories, or none is left.
        heart_utils.sources.catalogue.DataError
            If the histories cannot be read.

        Examples
        --------
        >>> recipe = Recipe("mine", "sample", slices={"standard": 2, "adversarial": 1})
        >>> recipe.choose_histories()["slice"].tolist()
        ['standard', 'standard', 'adversarial']
        """
        if self.questions:
            histories = load_question_histories(self.questions)
            return histories[histories["history_id"].isin(chosen_questions(self)["question_id"])]
        given = self.histories
        if Path(given).suffix:  # from the root, since chapters run in a folder of their own
            given = str(find_home() / Path(given).expanduser())
        loaded = load_histories(given, twins=self.twins, **as_options(self.reading, self.run))
        histories = pd.concat(_choose_slices(self, loaded))
        if histories.empty:
            raise RecipeError(
                f"slices: {dict(self.slices)} leaves none of the {len(loaded)} histories."
            )
        chosen = check_table("histories", histories.sort_index())
        return cross_seekers(chosen, [seeker.name for seeker in self.seekers])

    def list_responders(self) -> pd.DataFrame:
        """List who answers: given responders, models, probes.

        Returns
        -------
        pandas.DataFrame
            The table ``responders``.

        Examples
        --------
        >>> Recipe("mine", "sample", probes=("echo",)).list_responders()["responder"].tolist()
        ['reference', 'echo']
        """
        tables = [describe_responders([*self.responders, *self.probes])]
        if self.rewritten_replies:
            tables.insert(0, named_probes(PROFILES))
        elif self.given_replies:
            tables.insert(0, load_responders(self.histories))
        return check_table("responders", pd.concat([table for table in tables if len(table)]))

    def pair(self, replies: pd.DataFrame) -> pd.DataFrame:
        """Pair replies to a history, by protocol and order shown.

        Parameters
        ----------
        replies : pandas.DataFrame
            From :meth:`answer`; only ``valid`` ones are paired.

        Returns
        -------
        pandas.DataFrame
            The table ``comparisons``; empty if no protocol compares. Drawn by the seed.

        Raises
        ------
        heart_collect.judging.prompts.ProtocolError
            If a protocol cannot be read.

        Examples
        --------
        >>> two = pd.DataFrame(
        ...     {"reply_id": ["r1", "r2"], "history_id": "h", "responder": ["x", "y"]}
        ... )
        >>> pairs = read_recipe("sample").pair(two.assign(state="valid"))
        >>> pairs[["order", "protocol"]].values.tolist()
        [['ab', 'heart'], ['ba', 'heart'], ['ab', 'heart-release']]
        """
        tables = []
        for protocol in self.protocols_that_ask("pair"):
            orders = self.orders if protocol.orders == "both" else protocol.orders
            rng = np.random.default_rng(self.seed)  # the same pairs under each protocol
            tables.append(
                make_pairs(
                    replies, rng=rng, orders=orders, pairs=self.pairs, protocol=protocol.name
                )
            )
        if not tables:
            return empty_table("comparisons")
        return check_table("comparisons", pd.concat(tables))

    def answer(
        self,
        histories: pd.DataFrame,
        *,
        ledger: Ledger,
        max_concurrency: int | None = 1,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        """Collect the replies: given ones, those of models, and by rule.

        Parameters
        ----------
        histories : pandas.DataFrame
            From :meth:`choose_histories`.
        ledger : Ledger
            Where calls are kept.
        max_concurrency : int, optional
            Calls at once; 1 keeps times to the first word comparable.
        **asking
            As in :func:`heart_collect.judging.respond.collect_replies`.

        Returns
        -------
        pandas.DataFrame
            The table ``replies``.

        Raises
        ------
        heart_collect.judging.design.RespondError
            If a history cannot be answered.

        Examples
        --------
        >>> from heart_collect import open_ledger
        >>> mine = Recipe(
        ...     "mine", "sample", slices={"standard": 1}, given_replies=False, probes=("echo",)
        ... )
        >>> replies = mine.answer(mine.choose_histories(), ledger=open_ledger("sqlite://"))
        >>> replies["responder"].value_counts().to_dict()
        {'echo': 13}
        """
        from heart_collect.judging.steps import first_step  # for who asks, as below

        return first_step(self).made(
            check_table("histories", histories), ledger, max_concurrency=max_concurrency, **asking
        )["replies"]

    def ask(
        self,
        step: str,
        *tables: pd.DataFrame,
        ledger: Ledger,
        max_concurrency: int | None = None,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        """Let models judge, score or label replies.

        Parameters
        ----------
        step : str
            ``"verdicts"``, ``"scores"``, ``"codes"``, ``"probes"`` or ``"again"``.
        *tables : pandas.DataFrame
            Histories, replies, comparisons, in this order, as far as needed.
        ledger : Ledger
            Where calls are kept.
        max_concurrency : int, optional
            Calls at once.
        **asking
            As in :func:`heart_collect.judging.judge.collect_verdicts`.

        Returns
        -------
        pandas.DataFrame
            Verdicts, scores or codes; empty if none are asked for.

        Raises
        ------
        RecipeError
            If there is no such step.
        JudgeError
            If the tables do not fit each other.

        Examples
        --------
        >>> Recipe("mine", "sample").ask("codes", ledger=None).empty
        True
        """
        wanted, given = self._step(step, tables)
        return wanted.run(given, ledger, max_concurrency=max_concurrency, **asking)

    def plan(self, step: str, *tables: pd.DataFrame, ledger: Ledger) -> pd.DataFrame:
        """Count what a step of :meth:`ask` would take, without asking.

        Parameters
        ----------
        step, *tables, ledger
            As in :meth:`ask`.

        Returns
        -------
        pandas.DataFrame
            Calls, tokens and USD by judge, protocol and answer format.

        Raises
        ------
        RecipeError
            If there is no such step.

        Examples
        --------
        >>> from heart_collect import open_ledger
        >>> Recipe("mine", "sample").plan("codes", ledger=open_ledger("sqlite://")).empty
        True
        """
        wanted, given = self._step(step, tables)
        return wanted.plan(given, ledger)

    def _step(self, name: str, tables: Sequence[pd.DataFrame]) -> tuple[Judging, Tables]:
        from heart_collect.judging.steps import Tables, judging_steps

        steps = judging_steps(self)
        if name not in steps:
            raise RecipeError(f"There is no step {name!r}; there are {', '.join(steps)}.")
        return steps[name], Tables.checked(tables if steps[name].is_asked else [])


def read_recipe(run: str) -> Recipe:
    """Read what a run collects, from whom, and how; no model is asked.

    Parameters
    ----------
    run : str
        Its settings are the block ``collect:`` of the project's ``params/<run>.yaml``.

    Returns
    -------
    Recipe
        With the steps ``choose_histories``, ``answer``, ``pair`` and ``ask``, in this order.

    Raises
    ------
    RecipeError
        If a setting is unknown, missing or none of its choices.
    heart_collect.calls.models.ModelError
        If a model's setting is.

    Examples
    --------
    >>> recipe = read_recipe("sample")
    >>> recipe.histories, [judge.name for judge in recipe.judges]
    ('sample', ['SmolLM2-135M-judge'])
    """
    path = find_home() / "params" / f"{run}.yaml"
    block, where = read_yaml(path, JsonObject, RecipeError).get("collect"), f"{path}, collect"
    if not isinstance(block, dict):
        raise RecipeError(
            f"{path} has no block `collect:`, so there is nothing to collect for {run!r}."
        )
    given = {name: value for name, value in block.items() if value is not None}
    if "run" in given:
        raise RecipeError(f"{where}: unknown setting run; a run is named as its file is.")
    if "reading" in given:
        raise RecipeError(
            f"{where}: unknown setting reading; write histories: {{file: ..., columns: ..., words:"
            " ...}."
        )
    if isinstance(about := given.get("histories"), dict):
        reading = {option: value for option, value in about.items() if option != "file"}
        if not isinstance(about.get("file"), str):
            raise RecipeError(
                f"{where}: histories has {', '.join(map(str, about)) or 'nothing'}, expected file:"
                " and a path."
            )
        try:
            as_options(reading, f"{where}, histories")
        except DataError as error:
            raise RecipeError(str(error)) from None
        given |= {"histories": about["file"], "reading": reading}
    models: dict[str, tuple[Model, ...]] = {}
    for name in MODELS:  # by themselves, since no message may repeat a key
        entries = given.pop(name, [])
        if not isinstance(entries, list):
            raise RecipeError(f"{where}: {name} is {type(entries).__name__}, expected a list.")
        models[name] = tuple(read_models(entries))
    settings: Recipe = read_strictly(Recipe, {"run": run, **given}, where, RecipeError)
    recipe = replace(
        settings,
        responders=models["responders"],
        judges=models["judges"],
        coders=models["coders"],
        seekers=models["seekers"],
        rewriters=models["rewriters"],
    )
    shelf = find_root() / "data" / "protocols"
    known = {
        "probes": PROBES,
        "slices": SLICES,
        "protocols": sorted(file.stem for file in shelf.glob("*.yaml")),
    }
    known |= {"codebooks": load_codebooks()} if recipe.coders else {}
    for name, words in known.items():
        strange = [str(word) for word in given.get(name, ()) if word not in words]
        if strange:
            raise RecipeError(
                f"{where}: {name}: unknown {', '.join(strange)}. Known are {', '.join(words)}."
            )
    if recipe.unit == "conversation" and "protocols" not in given:
        recipe = replace(recipe, protocols={"conversation": None})
    absent = [name for name in MODELS[:2] if not models[name]] if recipe.questions else []
    faults = {
        "needs histories: sample, heart, esconv, or a file of your own": not (
            recipe.histories or recipe.questions
        ),
        f"no {' and no '.join(absent)}; name at least one model each": absent,
        "rewrites: given replies are rewritten, and given_replies is false": (
            recipe.rewritten_replies and not recipe.given_replies
        ),
        "rewrites: adversarial needs rewriters: name at least one model that rewrites": (
            recipe.rewrites == "adversarial" and not recipe.rewriters
        ),
        "rewriters: only with rewrites: adversarial": (
            recipe.rewriters and recipe.rewrites != "adversarial"
        ),
        "given_replies: no replies come with a file of histories; say given_replies: false": (
            Path(recipe.histories).suffix and recipe.given_replies
        ),
        **_faults_of_conversations(recipe, given),
    }
    for fault, holds in faults.items():
        if holds:
            raise RecipeError(f"{where}: {fault}.")
    if recipe.questions:
        return replace(recipe, histories=recipe.questions, given_replies=False, protocols={})
    return recipe


def _faults_of_conversations(recipe: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    theirs = [name for name in ("exchanges", "seeker_instructions", "allow") if name in given]
    theirs += ["seekers"] if recipe.seekers else []
    if recipe.unit == "reply":
        protocols = () if recipe.questions else recipe.protocols  # a rubric has items instead
        own = [name for name in protocols if load_protocol(name).raters == "seekers"]
        return {
            f"{', '.join(theirs)}: only with unit: conversation": theirs,
            f"protocols: {', '.join(own)} asks simulated seekers, and there are none; say unit:"
            " conversation": own,
        }
    ours = [name for name in ("rewrites", "coders", "questions") if getattr(recipe, name)]
    units = {name: load_protocol(name).unit for name in recipe.protocols}
    replies = [name for name, unit in units.items() if unit == "reply"]
    models = (*recipe.responders, *recipe.seekers)
    nameless = [model.name for model in models if not model.family]
    twice = sorted({one.name for one in recipe.seekers} & {one.name for one in recipe.responders})
    judging = sorted({one.name for one in recipe.seekers} & {one.name for one in recipe.judges})
    alike = [
        f"{one.name} and {other.name}"
        for one, other in combinations(recipe.seekers, 2)
        if one.identity == other.identity and one.options == other.options
    ]
    families = {model.name: str(model.family).casefold() for model in models}
    contestants = {families[one.name]: one.name for one in recipe.responders}
    own = [
        f"{one.name} is of the family {one.family}, and so is the responder"
        f" {contestants[families[one.name]]}"
        for one in recipe.seekers
        if families[one.name] in contestants
    ]
    several = len({families[one.name] for one in recipe.seekers})
    return {
        "seekers: name at least two models, of two families, that play the seeker": (
            not recipe.seekers
        ),
        "given_replies: a given reply is one turn and no conversation; say given_replies: false": (
            recipe.given_replies
        ),
        f"{', '.join(ours)}: about single replies; leave it out with unit: conversation": ours,
        f"protocols: {', '.join(replies)} asks about replies; with unit: conversation use one that"
        " says so, such as conversation": replies,
        f"family: missing of {', '.join(nameless)}; say who made each responder and each seeker, so"
        " that no seeker plays for its own": nameless,
        f"seekers: {', '.join(twice)} is a responder's name too; name each apart": twice,
        f"seekers: {', '.join(judging)} is a judge's name too; name each apart, or a seeker's own"
        " scores could not be told from a judge's": judging,
        f"seekers: {'; '.join(alike)} are the same model with the same options, and would say the"
        " same": alike,
        f"seekers: {'; '.join(own)}; take another, or say allow: [own_family]": (
            own and "own_family" not in recipe.allow
        ),
        "seekers: all are of one family, so that what is found may be its alone; add one of another"
        " family, or say allow: [one_family], and ratings say that the seeker is fixed": (
            several == 1 and "one_family" not in recipe.allow
        ),
    }


def _choose_slices(recipe: Recipe, loaded: pd.DataFrame) -> list[pd.DataFrame]:
    chosen: dict[str, pd.DataFrame] = {}
    for name in SLICES:
        rows, n = loaded[loaded["slice"] == name], recipe.slices.get(name)
        if n is not None:
            twins = name == TWINNED
            if twins:
                rows = rows[rows["history_id"].isin(chosen["adversarial"]["twin_id"])]
            else:
                rows = rows[rows["turns"].map(lambda turns: turns[-1]["speaker"] == "seeker")]
            hint = " beside the adversarial ones chosen; set twins: true, or ask for fewer"
            if n > len(rows):
                raise RecipeError(
                    f"slices: {n} {name} histories were asked for, and {recipe.histories} has"
                    f" {len(rows)}{hint if twins else ''}."
                )
            rows = rows.iloc[[k if twins else k * len(rows) // n for k in range(n)]]
        chosen[name] = rows
    return list(chosen.values())


def chosen_questions(recipe: Recipe) -> pd.DataFrame:
    """Load a recipe's questions, or those with the shortest texts."""
    questions = load_questions(str(recipe.questions))
    n, n_present = recipe.n_questions, questions["question_id"].nunique()
    if n is None:
        return questions
    if n > n_present:
        raise RecipeError(f"n_questions: {n} were asked for, and there are {n_present}.")
    size = (
        questions.assign(size=questions["content"].str.len())
        .groupby("question_id")
        .agg({"n_turns": "first", "size": "sum"})
    )
    return questions[questions["question_id"].isin(size.sort_values(["n_turns", "size"]).index[:n])]
