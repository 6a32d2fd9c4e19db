"""The door to data: a set that the project knows, by name, or a user's own file, by path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Unpack

import pandas as pd

from heart_utils.runs import PUBLIC, open_run, read_parquet
from heart_utils.sources.catalogue import SOURCES
from heart_utils.sources.defaults import read_sample
from heart_utils.sources.files import describe_file, read_file
from heart_utils.sources.formats import COMPRESSED, SUFFIXES, is_table, suffix_of
from heart_utils.sources.heart import load_esconv, load_heart, published_replies
from heart_utils.sources.options import FileOptions
from heart_utils.sources.pairs import scores_to_verdicts
from heart_utils.tables import DataError, check_table

__all__ = [
    "describe_votes",
    "load_conversations",
    "load_histories",
    "load_replies",
    "load_scores",
    "load_verdicts",
]

Given = str | os.PathLike[str] | pd.DataFrame


def load_histories(
    name_or_path: Given, *, twins: bool = False, **reading: Unpack[FileOptions]
) -> pd.DataFrame:
    """Load histories: dialogues that stop where a supporter must answer.

    Parameters
    ----------
    name_or_path
        ``"sample"`` (36 histories drafted for this project), ``"heart"`` (HEART's 280 standard and
        20 adversarial ones), ``"esconv"`` (1,300 whole dialogues), or a file or DataFrame of one's
        own.
    twins
        With ``"heart"``, add each adversarial history's calm original (slice ``calm_twin``).
    **reading
        How a file of one's own is read, as in :func:`load_verdicts`.

    Returns
    -------
    pandas.DataFrame
        A table of histories, one row a history: ``history_id``, ``dialogue_id`` (histories cut from
        one dialogue share it), ``source``, ``slice`` (``standard``, ``adversarial``,
        ``calm_twin``), ``twin_id``, ``emotion``, ``problem``, ``situation``, ``turns`` (a list of
        dicts, ``role`` and ``text``), ``licence``, ``flags``, ``simulated``.

    Raises
    ------
    DataError
        If a file does not hold histories, or a name is not known.
    DataUnavailableError
        If a data set is not on this machine; the message names the command that fetches it.

    Notes
    -----
    HEART cut its histories from ESConv (Liu et al. 2021,
    https://aclanthology.org/2021.acl-long.269).

    Examples
    --------
    >>> histories = load_histories("sample")
    >>> histories["slice"].value_counts().to_dict()
    {'standard': 24, 'adversarial': 12}
    >>> histories["dialogue_id"].nunique() < len(histories)
    True
    """
    name = _name(name_or_path, ("sample", "heart", "esconv"), "histories", reading)
    if twins and name not in ("heart", "sample"):
        raise DataError(
            f"twins=True adds HEART's calm originals; {_called(name_or_path)} has none."
        )
    if name == "sample":
        return read_sample("histories")
    if name is not None:
        return load_heart(twins=twins) if name == "heart" else load_esconv()
    return read_file("histories", name_or_path, reading)


def load_replies(
    name_or_path: Given, *, twins: bool = False, **reading: Unpack[FileOptions]
) -> pd.DataFrame:
    """Load replies: what was written for histories.

    Parameters
    ----------
    name_or_path
        ``"sample"``, ``"heart"`` or ``"esconv"`` (what came with those histories), or a file or
        DataFrame.
    twins, **reading
        As in :func:`load_histories`.

    Returns
    -------
    pandas.DataFrame
        A table of replies.

    Raises
    ------
    DataError
        As in :func:`load_histories`.

    Examples
    --------
    >>> mine = pd.DataFrame({"Chat": ["h1"], "Author": ["ann"], "Text": ["That sounds hard."]})
    >>> load_replies(mine, columns={"Chat": "history_id", "Author": "responder"})[
    ...     "reply_id"
    ... ].tolist()
    ['h1--ann']
    """
    name = _name(name_or_path, ("sample", "heart", "esconv"), "replies", reading)
    return (
        read_file("replies", name_or_path, reading)
        if name is None
        else published_replies(name, twins=twins)
    )


def load_conversations(name_or_path: Given, **reading: Unpack[FileOptions]) -> pd.DataFrame:
    """Load whole conversations of one's own: from a start on, a responder and a seeker in turn.

    Parameters
    ----------
    name_or_path
        A file or DataFrame with ``history_id`` (the start), ``responder``, ``seeker`` (who played
        the seeker, or a person's code) and ``turns`` (after the start, each with ``speaker`` and
        ``text``).
    **reading
        As in :func:`load_verdicts`.

    Returns
    -------
    pandas.DataFrame
        A table of conversations; ``n_exchanges`` is counted where the file does not say it.

    Raises
    ------
    DataError
        If a turn has no speaker or text, the file says another number of exchanges than its turns
        hold (a conversation that was exported in half), or a column is missing.

    Examples
    --------
    >>> turns = [
    ...     {"speaker": "supporter", "text": "What happened?"},
    ...     {"speaker": "seeker", "text": "She left."},
    ... ]
    >>> mine = pd.DataFrame(
    ...     {"history_id": ["h"], "responder": "ann", "seeker": "s1", "turns": [turns]}
    ... )
    >>> load_conversations(mine)[["conversation_id", "n_exchanges", "state"]].values.tolist()
    [['h--s1--ann', 1, 'valid']]
    """
    _name(name_or_path, (), "conversations", reading)
    return read_file("conversations", name_or_path, reading)


def load_scores(
    name_or_path: Given, *, as_published: bool = False, **reading: Unpack[FileOptions]
) -> pd.DataFrame:
    """Load scores: numbers that raters gave to one reply alone.

    Scores of published studies are cut from their official files and checked; your own come from a
    file with any column names. A score keeps the study's scale, so compare scores within a study
    and dimension only.

    Parameters
    ----------
    name_or_path
        ``"mentalalign"``, ``"empathic_comm"``, ``"recipients"``, ``"therapists"``,
        ``"can_ai_relate"``; of whole conversations ``"sage"``, ``"ieval"``, ``"mibot"``; or a file
        or DataFrame.
    as_published
        With ``"mentalalign"``, zeros and sixes are scores, as in its tables; by default they do not
        count as valid.
    **reading
        How a file of one's own is read, as in :func:`load_verdicts`.

    Returns
    -------
    pandas.DataFrame
        A table of scores, one row a reply, rater and dimension: ``reply_id``, ``history_id``,
        ``dialogue_id``, ``responder``, ``rater``, ``rater_kind``, ``dimension``, ``score``,
        ``state`` (``valid`` or why not), ``simulated`` and more. ``attrs["notes"]`` has what was
        counted on the way, for MentalAlign by rater.

    Raises
    ------
    DataError
        If a file does not hold scores; the message names file, row and column.

    Examples
    --------
    >>> mine = pd.DataFrame(
    ...     {
    ...         "history_id": ["h"],
    ...         "responder": "m",
    ...         "rater": "ann",
    ...         "dimension": "empathy",
    ...         "score": 4,
    ...     }
    ... )
    >>> scores = load_scores(mine, always={"rater_kind": "human"})
    >>> scores[["rater", "score", "state"]].values.tolist()
    [['ann', 4.0, 'valid']]
    """
    name = _name(name_or_path, _studies("scores"), "scores", reading)
    if as_published and name != "mentalalign":
        raise DataError(
            f"as_published=True is about mentalalign's tables; {_called(name_or_path)} has none."
        )
    folder = "as_published" if as_published else "scores"
    return read_file("scores", name_or_path, reading) if name is None else _published(name, folder)


def load_responders(name: str) -> pd.DataFrame:
    """Load who wrote the replies of a data set."""
    if name == "sample":
        return read_sample("responders")
    source = SOURCES.get(name)
    if source is None or not source.responders:
        known = ", ".join(name for name, source in SOURCES.items() if source.responders)
        raise DataError(f"No responders are known for {name!r}. They are for {known} and sample.")
    return check_table("responders", pd.DataFrame(source.responders))


def load_verdicts(
    name_or_path: Given,
    *,
    dimension: str | None = None,
    raters: str | None = None,
    **reading: Unpack[FileOptions],
) -> pd.DataFrame:
    """Load verdicts: which of two replies raters preferred.

    Two published sets have a name; your own votes come from a file or table in almost any form.
    Nothing is guessed in silence: a column or word that is not clear is an error, which shows what
    the file holds and proposes the call that reads it.

    Parameters
    ----------
    name_or_path : str, path or pandas.DataFrame
        ``"mtbench"`` (votes of people and of GPT-4), ``"mentalalign"`` (pairs made from its scores
        by :func:`scores_to_verdicts`), or one's own table: a DataFrame, Arrow, ``.csv``, ``.tsv``,
        ``.xlsx``, ``.parquet``, ``.json``, ``.jsonl`` or ``.eval`` (of inspect_ai), packed as
        ``.gz`` or ``.zst`` too.
    dimension : str, optional
        Keep one line of the rubric.
    raters : {"human", "model"}, optional
        Keep one kind of raters.
    **reading
        How a file or DataFrame of one's own is read; see the notes for each option.

    Returns
    -------
    pandas.DataFrame
        A table of verdicts, one row an answer: ``pair_id``, ``history_id``, ``dialogue_id``,
        ``responder_a`` and ``responder_b`` (a first in the alphabet), ``rater``, ``rater_kind``,
        ``dimension``, ``verdict`` (``a``, ``b``, ``tie`` or missing), ``state`` (``valid`` or why
        not), ``order``, ``repeat``, ``simulated`` and more. ``attrs["notes"]`` has what was counted
        on the way, about the whole set.

    Raises
    ------
    DataError
        If there is no such dimension or kind of raters, or a file does not hold verdicts; the
        message lists all its faults.

    Notes
    -----
    The options of `reading`, most of them unnecessary for a file whose headers are the table's own:

    ``tool``
        The tool that wrote the file, such as ``"Label Studio"`` or ``"Potato"``: its conventions
        hold where the other options say nothing. A wrong name lists the known ones.
    ``columns``
        Header -> a column of the table, or ``None`` to leave it out. Headers that are the table's
        own but for case, blanks and hyphens need no mention.
    ``words``
        The file's word for an answer -> ``"a"``, ``"b"``, ``"tie"``, or a failure, such as
        ``"abstained"``, whatever its case; ``""`` is an empty cell, and a column's name -> such a
        mapping is about that column, as ``{"order": {"0": "ab", "1": "ba"}}`` (``ab``: the reply of
        ``responder_a`` was shown first).
    ``always``
        What a column that the file lacks holds in every row.
    ``rater_columns``
        Where a row is a pair, the headers that are raters' names; blank cells are taken as not
        asked, and counted in ``attrs["notes"]``, unless ``words`` says what ``""`` is.
    ``sep``, ``encoding``
        By default the one of ``, ; |`` and tab that cuts the header into most parts, and UTF-8, or
        UTF-16 where the file begins so.
    ``only``
        Header -> the value or values of the rows that count. The others are counted by value in
        ``attrs["notes"]``. Rows that are marked as not to count (rejected, ignored, previews) are
        refused until it chooses.
    ``others``
        ``"drop"`` leaves columns out that are not named.
    ``made_of``, ``split``
        A column -> others that make it, as ``"{question_id}-{turn}"`` or ``"row-{row}"``; a header
        -> a pattern whose named parts are columns.
    ``explode``
        Lists of which each entry is a row.
    ``dimension_columns``, ``pair_columns``, ``shown``
        Headers, or a pattern, of answers with a column each; a table (path, DataFrame or list) of
        what they were about.
    ``winner_columns``, ``winner_loser``, ``counts``
        Headers that are marked -> ``"a"``, ``"b"`` or ``"tie"``; two headers of names; headers of
        how often who won.
    ``soft``
        The numbers of ``p_a`` that mean ``a`` and ``b`` for sure.
    ``repeats``
        ``"number"``: what comes again is a repeat. ``"drop"``: rows that are the same in every cell
        are copies and count once; what else comes again is a repeat.
    ``header``
        The names of the columns of a file without a header.
    ``keep_ids``
        By default ids of raters and writers that look like a person's (an address, a full name, an
        id of Prolific or Mechanical Turk, or any below a header such as ``WorkerId``) become codes,
        the same ones for as long as the key file ``keys/people.csv`` is there, and addresses are
        taken out of texts; ``False`` codes every person, whatever the id looks like, and ``True``
        leaves all as it is.

    Examples
    --------
    >>> mine = pd.DataFrame(
    ...     {
    ...         "Chat": ["c1"],
    ...         "Links": ["bot"],
    ...         "Rechts": ["ann"],
    ...         "Urteil": ["rechts"],
    ...         "Rater": ["eve"],
    ...     }
    ... )
    >>> columns = {"Chat": "history_id", "Links": "responder_a", "Rechts": "responder_b"}
    >>> rows = load_verdicts(
    ...     mine,
    ...     columns=columns | {"Urteil": "verdict"},
    ...     words={"links": "a", "rechts": "b"},
    ...     always={"rater_kind": "human"},
    ... )
    >>> rows[["responder_a", "responder_b", "verdict"]].values.tolist()  # sorted by name
    [['ann', 'bot', 'a']]
    """
    name = _name(name_or_path, ("mtbench", "mentalalign"), "verdicts", reading)
    if name is None:
        table = read_file("verdicts", name_or_path, reading)
    else:
        table = _published(name, "verdicts" if name == "mtbench" else "scores")
    kept = _select(table, _called(name_or_path), dimension=dimension, rater_kind=raters)
    return scores_to_verdicts(kept) if name == "mentalalign" else kept


def describe_votes(path: Given, **reading: Unpack[FileOptions]) -> None:
    """Print what a file of votes seems to hold and the call that may read it, without loading it.

    Parameters
    ----------
    path : str, path or table
        As :func:`load_verdicts` takes it.
    **reading
        What is known already, as in :func:`load_verdicts`.

    Raises
    ------
    DataError
        If the file cannot be read at all.

    Examples
    --------
    >>> describe_votes(
    ...     pd.DataFrame({"winner": ["x", "y"], "loser": ["y", "x"]})
    ... )  # doctest: +ELLIPSIS
    2 rows, 2 columns: winner ..., loser ...
    What may be meant (it looks like winners and losers), to be checked before it is
    believed:
    load_verdicts(
        rows,
        winner_loser=('winner', 'loser'),
        ...
    """
    print(describe_file("verdicts", path, reading))


def _studies(table: str) -> tuple[str, ...]:
    return tuple(name for name, source in SOURCES.items() if source.table == table)


def _published(name: str, folder: str) -> pd.DataFrame:
    file = open_run(PUBLIC).folder / folder / f"{name}.parquet"
    if not file.is_file():
        raise DataError(
            f"{file} is not there. It is part of the repository: `git checkout data/public` brings"
            " it back."
        )
    return check_table("scores" if folder == "as_published" else folder, read_parquet(file))


def _called(name_or_path: Given) -> str:
    return "the DataFrame" if is_table(name_or_path) else os.fspath(name_or_path)  # type: ignore[arg-type]


def _name(
    name_or_path: Given, known: tuple[str, ...], table: str, reading: FileOptions
) -> str | None:
    """Check whether the argument is a known name, or a path or a table."""
    if strange := sorted(set(reading) - set(FileOptions.__annotations__)):
        options = ", ".join(FileOptions.__annotations__)
        raise TypeError(
            f"load_{table} has no option {', '.join(strange)}; of files it has {options}."
        )
    if is_table(name_or_path):
        return None
    if not isinstance(name_or_path, str | os.PathLike):
        what = f"load_{table} was given a {type(name_or_path).__name__}"
        raise DataError(
            f"{what}; expected the name of a set ({', '.join(known)}), a path or a DataFrame."
        )
    given = os.fspath(name_or_path)
    if given in known:
        if file_options := [option for option, value in reading.items() if value]:
            raise DataError(
                f"{', '.join(file_options)} is about a file of your own; {given} is a set that is"
                " known."
            )
        return given
    if suffix_of(Path(given)) not in SUFFIXES:
        fault = f"{given!r} is neither a set with {table} ({', '.join(known)})"
        raise DataError(
            f"{fault} nor a path that ends in {', '.join(SUFFIXES)}, or in one of these and"
            f" {' or '.join(COMPRESSED)}."
        )
    return None


def _select(table: pd.DataFrame, source: str, **chosen: str | None) -> pd.DataFrame:
    for column, word in chosen.items():
        if word is not None and word not in (present := set(table[column])):
            raise DataError(
                f"{source} has no {column} {word!r}. It has {', '.join(sorted(present))}."
            )
        table = table if word is None else table[table[column] == word]
    return table.reset_index(drop=True)
