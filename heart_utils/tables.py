"""The tables that pass between the steps: what a row is, which columns it has, which words they may hold.

Every table is long, one row per observation, and every table has a column ``simulated``: true in
each row that a program drew from known strengths, false in each row that somebody or some model
really answered. :func:`check_table` is the one door through which a table enters or leaves a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    import pandera.pandas as pa

__all__ = [
    "DIMENSIONS",
    "RATER_KINDS",
    "RESPONDER_KINDS",
    "SLICES",
    "SPEAKERS",
    "STATES",
    "TABLES",
    "VERDICTS",
    "Column",
    "TableError",
    "check_table",
]

SPEAKERS = ("seeker", "supporter")
SLICES = ("standard", "adversarial", "calm_twin")
RESPONDER_KINDS = ("human", "model", "reference", "source", "probe")
RATER_KINDS = ("human", "model")
VERDICTS = ("a", "b", "tie")
STATES = ("valid", "abstained", "refused", "unparsed", "error", "inconsistent")
ORDERS = ("ab", "ba")
ANSWER_FORMATS = ("json", "logprob")
LABELS = ("person", "ai")
LEVELS = ("lower", "middle", "higher")
POPULATIONS = ("benchmark", "dialogues", "dialogues_and_raters", "dialogues_and_writers", "none")
RATED_BY = ("recipient", "stranger", "expert")
TOLD = ("hidden", "person", "ai", "true", "unclear")
"""What raters were told of an author: nothing, that both are a person or an AI, the truth; or it varied, or is not known."""
EVIDENCE = ("measured", "quoted")
DIMENSIONS = (
    "human_alignment",
    "empathic_responsiveness",
    "attunement",
    "resonance",
    "task_following",
    "overall",
)
"""HEART's five dimensions and the overall preference; another rubric brings its own, in snake_case."""


class TableError(ValueError):
    """A table does not hold what its columns promise; ``rows`` are the labels of the rows that do not, where it is rows."""

    def __init__(self, message: str, rows: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.rows = list(rows)


@dataclass(frozen=True)
class Column:
    """What one column of a table holds.

    Attributes
    ----------
    kind : str
        ``"text"``, ``"number"``, ``"count"`` (whole and not negative), ``"truth"`` or ``"list"``.
    nullable : bool
        Whether a row may leave it empty.
    words : tuple of str
        The vocabulary, if the column has one.
    low, high : float or None
        The range of a number, ends included.
    optional : bool
        Whether the whole column may be absent.
    """

    kind: str
    nullable: bool = False
    words: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    optional: bool = False

    def expected(self) -> str:
        """Say in words what a cell must hold."""
        if self.words:
            said = "one of " + ", ".join(self.words)
        elif self.kind in ("number", "count"):
            said = "a whole number" if self.kind == "count" else "a number"
            if self.low is not None and self.high is not None:
                said += f" from {self.low:g} to {self.high:g}"
            elif self.low is not None:
                said += f" of {self.low:g} or more"
        else:
            said = {"text": "text", "truth": "true or false", "list": "a list"}[self.kind]
        return said + (", or nothing" if self.nullable else ", in every row")


TEXT, TEXT_OR_NONE = Column("text"), Column("text", nullable=True)
NUMBER_OR_NONE = Column("number", nullable=True)
NOT_NEGATIVE = Column("number", nullable=True, low=0)
COUNT, COUNT_OR_NONE = Column("count", low=0), Column("count", nullable=True, low=0)
PROBABILITY = Column("number", nullable=True, low=0, high=1)
TRUTH, FLAGS = Column("truth"), Column("list")
FROM_1_TO_5 = Column("number", nullable=True, low=1, high=5, optional=True)


def _each(names: str, column: Column) -> dict[str, Column]:
    return dict.fromkeys(names.split(), column)


COLUMNS: dict[str, Column] = {
    **_each("history_id dialogue_id pair_id comparison_id reply_id reply_a reply_b source licence", TEXT),
    **_each("responder responder_a responder_b rater dimension protocol study population language pay", TEXT),
    **_each("by cluster coder code method people models outcome", TEXT),
    **_each("twin_id emotion problem situation author_id text family model released rationale", TEXT_OR_NONE),
    **_each("group item stratum call_id", TEXT_OR_NONE),
    **_each("ttft_ms total_ms typing_ms cost_usd size price", NOT_NEGATIVE),
    **_each("prompt_tokens completion_tokens dimension_position rank_low rank_high", COUNT_OR_NONE),
    **_each("n_people_replies n_model_replies n_raters", COUNT_OR_NONE),
    **_each("repeat n_shown n_answered n_checks n_checks_passed n_a n_tie n_b n_verdicts n_clusters", COUNT),
    **_each("p_a probability ci_level win_probability tie_share", PROBABILITY),
    **_each("score ci_low ci_high rating_low rating_high", NUMBER_OR_NONE),
    **_each("strength rating", Column("number")),
    **_each("completed penalised provisional simulated", TRUTH),
    **_each("turns flags", FLAGS),
    **_each("empathy_a empathy_b", Column("text", nullable=True, words=LEVELS)),
    "slice": Column("text", words=SLICES),
    "state": Column("text", words=STATES),
    "order": Column("text", nullable=True, words=ORDERS),
    "rater_kind": Column("text", words=RATER_KINDS),
    "responder_kind": Column("text", words=RESPONDER_KINDS),
    "verdict": Column("text", nullable=True, words=VERDICTS),
    "margin": Column("number", nullable=True, low=1, high=5),
    "answer_format": Column("text", nullable=True, words=ANSWER_FORMATS),
    "longer": Column("text", nullable=True, words=("a", "b", "same")),
    "evidence": Column("text", words=EVIDENCE),
    "win_share": Column("number", low=0, high=1),
    # ESConv's own labels, where a source has them.
    "strategies": Column("list", nullable=True, optional=True),
    **_each("distress_before distress_after seeker_empathy seeker_relevance", FROM_1_TO_5),
    # People's studies: seconds on the page, and its place in what the rater did.
    "seconds": Column("number", nullable=True, low=0, optional=True),
    "position": Column("count", nullable=True, low=1, optional=True),
    # Who the rater was told had written the reply.
    "label": Column("text", nullable=True, words=LABELS, optional=True),
}
"""Name of a column -> what it holds in every table that has it, but for those of :data:`DIFFERENT`."""

DIFFERENT: dict[str, dict[str, Column]] = {
    "scores": {"author_id": Column("text", nullable=True, optional=True)},  # where people who write are told apart
    "tallies": {"rater": TEXT_OR_NONE},
    "ratings": _each("slice rater_kind", TEXT) | {"population": Column("text", words=POPULATIONS)},
    "effects": {
        **_each("ci_low ci_high", PROBABILITY),
        "raters": Column("text", words=RATED_BY),
        "label": Column("text", words=TOLD),
        "n_clusters": Column("count", nullable=True, low=2),
        "cluster": TEXT_OR_NONE,
    },
}
"""Table -> the columns that hold something else there."""


def _table(name: str, columns: str) -> dict[str, Column]:
    return {column: (COLUMNS | DIFFERENT.get(name, {}))[column] for column in columns.split()}


TABLES: dict[str, dict[str, Column]] = {
    name: _table(name, columns)
    for name, columns in {
        "histories": (
            "history_id dialogue_id source slice twin_id emotion problem situation turns licence flags simulated "
            "strategies distress_before distress_after seeker_empathy seeker_relevance"
        ),
        "responders": "responder responder_kind family model size released price simulated",
        "replies": (
            "reply_id history_id responder author_id text ttft_ms total_ms prompt_tokens completion_tokens "
            "cost_usd typing_ms flags state call_id simulated"
        ),
        "comparisons": "comparison_id pair_id history_id reply_a reply_b responder_a responder_b order protocol simulated",
        "verdicts": (
            "comparison_id pair_id history_id dialogue_id slice responder_a responder_b rater rater_kind "
            "dimension dimension_position verdict margin p_a state order protocol answer_format repeat group "
            "flags rationale call_id simulated seconds position"
        ),
        "raters": (
            "rater rater_kind study population language pay n_shown n_answered n_checks n_checks_passed completed simulated"
        ),
        "scores": (
            "reply_id history_id dialogue_id responder rater rater_kind dimension item score state protocol group "
            "flags call_id simulated label author_id"
        ),
        "tallies": (
            "study by dimension responder_a responder_b cluster rater stratum longer empathy_a empathy_b n_a "
            "n_tie n_b simulated"
        ),
        "codes": "reply_id coder code probability state simulated",
        "ratings": (
            "dimension slice group rater rater_kind method population responder responder_kind strength ci_low "
            "ci_high ci_level rating rating_low rating_high rank_low rank_high win_probability n_verdicts "
            "n_clusters tie_share penalised provisional simulated"
        ),
        "effects": (
            "study people models raters label outcome win_share ci_low ci_high ci_level n_people_replies "
            "n_model_replies n_raters n_clusters cluster evidence source simulated"
        ),
    }.items()
}
"""Name of a table -> name of a column -> what it holds, in the order of writing."""

KEYS: dict[str, list[str]] = {
    "histories": ["history_id"],
    "responders": ["responder"],
    "replies": ["reply_id"],
    "comparisons": ["comparison_id"],
    "verdicts": ["comparison_id", "rater", "dimension", "repeat", "protocol", "answer_format", "group"],
    "raters": ["rater", "study"],
    "scores": ["reply_id", "rater", "dimension", "item", "protocol", "group", "call_id"],
    "tallies": ["study", "by", "dimension", "responder_a", "responder_b", "cluster", "rater", "stratum", "longer"],
    "codes": ["reply_id", "coder", "code"],
    "ratings": ["dimension", "slice", "group", "rater", "rater_kind", "method", "population", "responder"],
    "effects": ["study", "people", "models", "raters", "label", "outcome"],
}
"""What makes a row of each table different from every other row."""

UNSAID: dict[str, dict[str, Any]] = {
    "responders": {**dict.fromkeys(["family", "model", "size", "released", "price"]), "simulated": False},
}
"""Table -> column -> what it holds where the column is absent: to say who is a person, two columns are enough."""

LOADED = ("histories", "verdicts", "scores", "replies")
"""Tables that ``load_<table>`` completes from a file with some of the columns."""

MAX_ROWS_SHOWN = 3


def check_table(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Check a table against its columns and put them in the order of writing.

    Parameters
    ----------
    name : str
        One of :data:`TABLES`, such as ``"verdicts"``.
    table : pandas.DataFrame
        One row per observation. Columns marked optional may be absent, and of responders all but
        ``responder`` and ``responder_kind``: what is not said is empty, and nobody is simulated.

    Returns
    -------
    pandas.DataFrame
        The same rows, with a fresh index, columns in order and the types of :data:`TABLES`.

    Raises
    ------
    TableError
        If a column is missing or unknown, a value does not fit, an id appears twice, a verdict
        stands beside a failed state, or a responder meets itself. The message names the table,
        the column, the first bad rows, and what was expected.

    Examples
    --------
    >>> check_table("codes", pd.DataFrame({"reply_id": ["r1"], "coder": ["llm"], "code": ["question"],
    ...     "probability": [1.7], "state": ["valid"], "simulated": [False]}))
    Traceback (most recent call last):
    ...
    heart_utils.tables.TableError: codes.probability: expected a number from 0 to 1, or nothing; row 0 has 1.7.
    """
    columns = _columns(name)
    table = table.assign(**{column: value for column, value in UNSAID.get(name, {}).items() if column not in table})
    missing = [column for column, what in columns.items() if column not in table and not what.optional]
    unknown = [str(column) for column in table.columns if column not in columns]
    if missing or unknown:
        parts = [f"missing {', '.join(missing)}"] if missing else []
        parts += [f"unknown {', '.join(unknown)}"] if unknown else []
        hint = f" From a file, `load_{name}` fills in what has one evident value (data/README.md)." if name in LOADED else ""
        raise TableError(f"{name}: {'; '.join(parts)}. A table of {name} has the columns {', '.join(columns)}.{hint}")
    rows = table if table.index.is_unique else table.reset_index(drop=True)  # messages name rows by their labels
    present = [column for column in columns if column in rows]
    typed = pd.DataFrame({column: _typed(name, column, columns[column], rows[column]) for column in present})
    _check_values(name, typed)
    _check_keys(name, typed)
    _check_sense(name, typed)
    typed.attrs = dict(table.attrs)
    return typed.reset_index(drop=True)


def need_columns(table: pd.DataFrame, columns: Sequence[str], error: type[ValueError] = TableError) -> None:
    """Raise `error`, naming the columns that are missing and those that are there."""
    missing = [column for column in columns if column not in table]
    if missing:
        raise error(f"The table has no column {', '.join(missing)}. It has {', '.join(map(str, table.columns))}.")


def empty_table(name: str) -> pd.DataFrame:
    """Make a table with no rows and all columns that are not optional."""
    return _empty(name).copy()


@cache
def _empty(name: str) -> pd.DataFrame:
    return check_table(name, pd.DataFrame({column: [] for column in needed_columns(name)}))


def needed_columns(name: str) -> list[str]:
    """List the columns of a table that are not optional, in the order of writing."""
    return [column for column, what in _columns(name).items() if not what.optional]


def _columns(name: str) -> dict[str, Column]:
    if name not in TABLES:
        raise TableError(f"There is no table called {name!r}. The tables are {', '.join(TABLES)}.")
    return TABLES[name]


def _typed(name: str, column: str, what: Column, values: pd.Series) -> pd.Series:
    """Give a column its type, so that a table means the same after a round trip through a file."""
    if what.kind == "list":
        return _lists(values)
    if what.kind == "text":
        return _texts(name, column, what, values)
    if what.kind == "truth":
        wrong = ~values.isin([True, False])
        _refuse(name, column, what, values, wrong)
        return values.astype(bool)
    numbers = pd.to_numeric(values, errors="coerce")
    _refuse(name, column, what, values, numbers.isna() & values.notna())
    if what.kind == "count":
        _refuse(name, column, what, values, numbers.notna() & (numbers % 1 != 0))
        if what.nullable:
            return numbers.astype("Int64")
        _refuse(name, column, what, values, numbers.isna())
        return numbers.astype("int64")
    return numbers.astype("float64")


def _texts(name: str, column: str, what: Column, values: pd.Series) -> pd.Series:
    """Keep text, and refuse numbers that would silently become text."""
    if not isinstance(values.dtype, pd.StringDtype) and len(values):
        wrong = values.map(lambda cell: not isinstance(cell, str)) & values.notna()
        _refuse(name, column, what, values, wrong)
    return values.astype("str")


def _lists(values: pd.Series) -> pd.Series:
    """Turn arrays that Parquet gives back into plain lists."""
    # An array gives its list twice as fast by itself, and MentalAlign has 350,000 of them.
    cells = [
        cell.tolist()
        if hasattr(cell, "tolist")
        else list(cell)
        if hasattr(cell, "__len__") and not isinstance(cell, str)
        else cell
        for cell in values
    ]
    return pd.Series(cells, index=values.index, dtype=object)


def _check_values(name: str, table: pd.DataFrame) -> None:
    """Run the pandera schema, and say the first fault in words."""
    from pandera.errors import SchemaErrors

    try:
        _schema(name, tuple(table.columns)).validate(table, lazy=True)
    except SchemaErrors as error:
        cases = error.failure_cases
        column = next(c for c in table.columns if c in set(cases["column"]))
        rows = set(cases.loc[cases["column"] == column, "index"].dropna())
        bad = table.index.isin(rows) if rows else True
        _refuse(name, column, TABLES[name][column], table[column], pd.Series(bad, index=table.index))
        raise


def _schema(name: str, present: tuple[str, ...]) -> pa.DataFrameSchema:
    import pandera.pandas as pa

    return pa.DataFrameSchema(
        {column: pa.Column(checks=_checks(TABLES[name][column]), nullable=TABLES[name][column].nullable) for column in present}
    )


def _checks(what: Column) -> list[pa.Check]:
    import pandera.pandas as pa

    checks = []
    if what.words:
        checks.append(pa.Check.isin(what.words))
    if what.low is not None:
        checks.append(pa.Check.ge(what.low))
    if what.high is not None:
        checks.append(pa.Check.le(what.high))
    if what.kind == "list":
        checks.append(pa.Check(lambda cell: isinstance(cell, list), element_wise=True))
    if what.kind == "text" and not what.nullable and not what.words:
        checks.append(pa.Check.ne(""))
    return checks


def _check_keys(name: str, table: pd.DataFrame) -> None:
    """Refuse two rows for one thing."""
    keys = KEYS[name]
    twice = table.duplicated(keys, keep=False)
    if twice.any():
        rows = table.loc[twice, keys].head(MAX_ROWS_SHOWN)
        shown = "; ".join(f"row {row}: {dict(values.dropna())}" for row, values in rows.iterrows())
        raise TableError(
            f"{name}: {int(twice.sum())} rows repeat another row's {', '.join(keys)}; expected each to appear once. {shown}.",
            table.index[twice],
        )


def _check_sense(name: str, table: pd.DataFrame) -> None:
    """Check what no single column can show."""
    if name in ("comparisons", "verdicts"):
        refuse_rows(
            name,
            "responder_b",
            table["responder_a"] == table["responder_b"],
            table["responder_b"],
            "a responder other than responder_a (nobody is compared with itself)",
        )
    if name == "verdicts":
        said = table["verdict"].notna() | table["p_a"].notna()
        refuse_rows(name, "verdict", (table["state"] == "valid") & ~said, table["state"], "a verdict where the state is valid")
        share = table["verdict"].map({"a": 1.0, "b": 0.0}).astype(float)
        against = (share - 0.5) * (table["p_a"].astype(float) - 0.5) < 0
        refuse_rows(name, "p_a", against, table["p_a"], "the chance that a is better, which does not contradict the verdict")
        failed = table["state"].isin(["abstained", "refused", "unparsed", "error"])
        refuse_rows(name, "verdict", failed & said, table["state"], "no verdict where the state is a failure")
    if name == "scores":
        refuse_rows(
            name,
            "score",
            (table["state"] == "valid") & table["score"].isna(),
            table["state"],
            "a score where valid",
        )
    if name == "histories":
        _check_turns(table)
    if name == "effects":
        counts = table[["n_people_replies", "n_model_replies", "n_raters", "n_clusters"]]
        refuse_rows(name, "n_raters", counts.isna().all(axis=1), table["study"], "at least one of the counts")
        bare = (table["evidence"] == "measured") & table[["ci_low", "ci_high", "n_clusters", "cluster"]].isna().any(axis=1)
        refuse_rows(name, "ci_low", bare, table["study"], "an interval and its clusters where measured")
        outside = (table["ci_low"] > table["win_share"]) | (table["ci_high"] < table["win_share"])
        refuse_rows(name, "win_share", outside, table["win_share"], "a share within its interval")


def _check_turns(histories: pd.DataFrame) -> None:
    def fault(turns: list[dict[str, object]]) -> str | None:
        if not turns:
            return "no turn"
        for number, turn in enumerate(turns):
            if not isinstance(turn, dict) or not {"speaker", "text"} <= set(turn):
                return f"turn {number} is not a speaker and a text"
            if turn["speaker"] not in SPEAKERS:
                return f"turn {number} is spoken by {turn['speaker']!r}"
            if not isinstance(turn["text"], str) or not turn["text"].strip():
                return f"turn {number} has no text"
        return None

    faults = pd.Series([fault(turns) for turns in histories["turns"]], index=histories.index, dtype=object)
    where = pd.Series(
        [f"{said} (history {name})" for said, name in zip(faults, histories["history_id"], strict=True)], index=histories.index
    )
    refuse_rows(
        "histories",
        "turns",
        faults.notna(),
        where,
        "one turn or more, each with a speaker (seeker or supporter) and a text",
    )


def _refuse(name: str, column: str, what: Column, values: pd.Series, wrong: pd.Series) -> None:
    refuse_rows(name, column, wrong, values, what.expected())


def refuse_rows(name: str, column: str, wrong: pd.Series, values: pd.Series, expected: str) -> None:
    """Raise if any row is wrong, showing the first of them."""
    if not wrong.any():
        return
    bad = values[wrong]
    shown = ", ".join(f"row {row} has {_shown(value)}" for row, value in bad.head(MAX_ROWS_SHOWN).items())
    more = f" ({len(bad) - MAX_ROWS_SHOWN} more rows)" if len(bad) > MAX_ROWS_SHOWN else ""
    raise TableError(f"{name}.{column}: expected {expected}; {shown}{more}.", bad.index)


def _shown(value: object) -> str:
    if isinstance(value, float) and value != value:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
