"""How alike one author's replies to different people are, and how like their own seeker each speaks."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.ratings.resampling import draw_weights, interval_of

__all__ = ["FUNCTION_WORDS", "OverlapError", "match_styles", "measure_overlap", "measure_sameness"]

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class OverlapError(ValueError):
    """Replies and turns cannot be compared as given."""


def measure_overlap(
    replies: pd.DataFrame, truths: pd.DataFrame, *, others: pd.DataFrame | None = None, n: int = 3
) -> pd.DataFrame:
    """Compare each reply with the turn that really came next, and with turns that did not.

    A reply's overlap with a turn is the share of its runs of `n` words that stand in the turn too.
    Some overlap comes from the topic alone, and the topic is the history's: turns of other
    dialogues understate what a model that never saw the data would share. Later turns of the
    same dialogue (`others`) are the fairer yardstick, and long runs the clearer sign.

    Parameters
    ----------
    replies : pandas.DataFrame
        With columns ``reply_id``, ``history_id``, ``responder`` and ``text``. Rows without text
        or without a true next turn are left out, and counted in ``attrs["left_out"]`` of what comes back.
    truths : pandas.DataFrame
        With columns ``history_id`` and ``text``, one row per history; a turn without text is none.
    others : pandas.DataFrame, optional
        With columns ``history_id`` and ``text``: turns to compare a history's replies with, in
        place of the true next turns of all other histories.
    n : int
        Words in a run.

    Returns
    -------
    pandas.DataFrame
        One row per reply compared: ``overlap`` with the true turn, ``overlap_others`` (mean) and
        ``overlap_others_max``, ``n_others``, and ``longest_run``, the most words in a row that
        reply and true turn share. Overlaps of replies of fewer than `n` words are missing.

    Raises
    ------
    OverlapError
        If a column is missing, a history has two true turns, or `n` is below one.

    Examples
    --------
    >>> truths = pd.DataFrame({"history_id": ["h1", "h2"], "text": ["That must be very hard for you.", "Have you slept?"]})
    >>> replies = pd.DataFrame({"reply_id": ["r"], "history_id": ["h1"], "responder": ["m"], "text": ["It must be very hard."]})
    >>> measure_overlap(replies, truths)[["overlap", "overlap_others", "longest_run"]].round(3).to_dict("records")
    [{'overlap': 0.667, 'overlap_others': 0.0, 'longest_run': 4}]
    """
    _check(replies, truths, others, n)
    truths = truths[truths["text"].notna()]
    truth = dict(zip(truths["history_id"], map(_words, truths["text"]), strict=True))
    runs = {history: _runs(words, n) for history, words in truth.items()}
    elsewhere = None if others is None else _runs_by_history(others, n)
    rows = []
    compared = replies[replies["text"].notna() & replies["history_id"].isin(truth)]
    for row in compared.itertuples():
        words = _words(str(row.text))
        mine = _runs(words, n)
        if elsewhere is None:
            turns = [its for history, its in runs.items() if history != row.history_id]
        else:
            turns = elsewhere.get(str(row.history_id), [])
        shares = [len(mine & turn) / len(mine) for turn in turns] if mine else []
        rows.append(
            {
                "reply_id": row.reply_id,
                "history_id": row.history_id,
                "responder": row.responder,
                "overlap": len(mine & runs[str(row.history_id)]) / len(mine) if mine else np.nan,
                "overlap_others": float(np.mean(shares)) if shares else np.nan,
                "overlap_others_max": max(shares, default=np.nan),
                "n_others": len(turns),
                "longest_run": _longest_run(words, truth[str(row.history_id)]),
            }
        )
    columns = [
        "reply_id",
        "history_id",
        "responder",
        "overlap",
        "overlap_others",
        "overlap_others_max",
        "n_others",
        "longest_run",
    ]
    table = pd.DataFrame(rows, columns=columns)
    table.attrs["left_out"] = len(replies) - len(compared)
    return table


def _check(replies: pd.DataFrame, truths: pd.DataFrame, others: pd.DataFrame | None, n: int) -> None:
    needs = [("replies", replies, ["reply_id", "history_id", "responder", "text"]), ("truths", truths, ["history_id", "text"])]
    for name, table, columns in [*needs, *([] if others is None else [("others", others, ["history_id", "text"])])]:
        missing = [column for column in columns if column not in table]
        if missing:
            raise OverlapError(f"{name} lacks {', '.join(missing)}; it needs {', '.join(columns)}.")
    twice = truths.loc[truths["history_id"].duplicated(), "history_id"]
    if len(twice):
        raise OverlapError(f"truths: {twice.iloc[0]} has more than one true next turn; expected one row per history.")
    if n < 1:
        raise OverlapError(f"n is {n}; a run has at least one word.")


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def _runs(words: list[str], n: int) -> set[tuple[str, ...]]:
    return set(zip(*(words[start:] for start in range(n)), strict=False))


def _runs_by_history(turns: pd.DataFrame, n: int) -> dict[str, list[set[tuple[str, ...]]]]:
    runs: dict[str, list[set[tuple[str, ...]]]] = {}
    for history, text in turns[["history_id", "text"]].dropna().itertuples(index=False):
        runs.setdefault(str(history), []).append(_runs(_words(text), n))
    return runs


def _longest_run(mine: list[str], theirs: list[str]) -> int:
    """Count the words of the longest run that stands in both."""
    longest, before = 0, [0] * (len(theirs) + 1)
    for word in mine:
        row = [0, *(before[i] + 1 if word == other else 0 for i, other in enumerate(theirs))]
        longest = max(longest, *row)
        before = row
    return longest


Array = NDArray[np.float64]

FUNCTION_WORDS: dict[str, str] = {
    "personal_pronouns": "i me my mine myself you your yours yourself we us our ours he him his she her hers they them "
    "their i'm you're we're he's she's they're i've you've we've i'd you'd i'll you'll we'll",
    "impersonal_pronouns": "it its it's that that's this these those what which something anything nothing everything one",
    "articles": "a an the",
    "conjunctions": "and but or so because if when while though although as than whether until since nor yet",
    "prepositions": "of in to for with on at by from about into over after through before between without against under during "
    "around up down off out",
    "auxiliaries": "am is are was were be been being have has had do does did will would can could should may might must shall",
    "adverbs": "just very really too still also even only so now then here there always never often maybe quite almost again",
    "negations": "no not never none nothing cannot can't don't doesn't didn't won't wouldn't isn't aren't wasn't weren't "
    "couldn't shouldn't haven't hasn't",
    "quantifiers": "all some any many much more most few less lot lots every each both several enough",
}
"""Nine closed classes of English words, listed for this project; one word may stand in two."""

TOKEN = re.compile(r"\w+(?:'\w+)?")
TINY = 1e-4
"""As published: keeps a class that neither uses from dividing by zero, and gives it a match of 1."""


def measure_sameness(
    replies: pd.DataFrame,
    *,
    by: str = "responder",
    cluster: str = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Compare each author's replies with that author's replies to other dialogues.

    Similarity is the cosine of word counts weighted by rarity (TF-IDF over all replies of the table).
    Two replies to one dialogue share its topic, so only pairs across dialogues count. Beside it stands
    the similarity to other authors' replies across dialogues: what anybody's replies share.

    Parameters
    ----------
    replies : pandas.DataFrame
        Valid replies with ``text``, `by` and `cluster`.
    by, cluster : str
        Whose replies; what is resampled together.
    n_resamples, ci_level, rng
        Of the bootstrap: dialogues are drawn, and a pair counts the product of its two dialogues' counts.

    Returns
    -------
    pandas.DataFrame
        One row an author, the most alike first: ``sameness``, ``ci_low``, ``ci_high``, ``ci_level``, ``to_others``, ``n``,
        ``n_clusters``, ``n_repeated`` (replies whose very words the author gave elsewhere). ``nan`` with one dialogue.

    Examples
    --------
    >>> replies = pd.DataFrame({"responder": list("xxyy"), "dialogue_id": list("dede"),
    ...     "text": ["I am here for you", "I am here for you", "your dog", "that exam"]})
    >>> found = measure_sameness(replies, rng=np.random.default_rng(1), n_resamples=20)
    >>> found[["responder", "sameness", "n_repeated"]].round(3).values.tolist()
    [['x', 1.0, 2], ['y', 0.0, 0]]
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    features = TfidfVectorizer(token_pattern=TOKEN.pattern).fit_transform(replies["text"])
    codes, names = pd.factorize(replies[cluster])
    weights = np.vstack([np.ones(len(names)), draw_weights(len(names), n_resamples, rng)])
    rows = []
    for name, mine in replies.reset_index(drop=True).groupby(by, sort=True):
        own = np.asarray((features[mine.index] @ features[mine.index].T).todense())
        where = codes[mine.index]
        across = where[:, None] != where[None, :]
        rest = np.setdiff1d(np.arange(len(replies)), mine.index)
        n_clusters = len(np.unique(where))
        row = {by: name, "sameness": np.nan, "ci_low": np.nan, "ci_high": np.nan, "ci_level": ci_level, "to_others": np.nan}
        if across.any():
            drawn = weights[:, where]
            pairs = np.einsum("ri,ij,rj->r", drawn, across.astype(float), drawn, optimize=True)
            found = np.einsum("ri,ij,rj->r", drawn, own * across, drawn, optimize=True) / np.where(pairs > 0, pairs, np.nan)
            low, high = interval_of(float(found[0]), found[1:], n_clusters, ci_level, least=0.0, most=1.0)
            row |= {"sameness": float(found[0]), "ci_low": low, "ci_high": high}
        if len(rest):
            other = np.asarray((features[mine.index] @ features[rest].T).todense())
            apart = where[:, None] != codes[rest][None, :]
            row["to_others"] = float(other[apart].mean()) if apart.any() else np.nan
        repeated = int(mine["text"].duplicated(keep=False).sum())
        rows.append(row | {"n": len(mine), "n_clusters": n_clusters, "n_repeated": repeated})
    return pd.DataFrame(rows).sort_values("sameness", ascending=False, ignore_index=True)


def match_styles(histories: pd.DataFrame, replies: pd.DataFrame, *, rng: np.random.Generator) -> pd.DataFrame:
    r"""Measure language style matching of each reply with the seeker it answers.

    For each class of function words, with p its share of words, the match is
    :math:`1 - |p_1 - p_2| / (p_1 + p_2 + 0.0001)`; the measure is the mean over classes [1]_. Any two
    English texts match a good deal, so beside it stands the match with the seeker of another dialogue
    drawn by chance; the excess is what speaks of this conversation. Short texts match less, for want of words.

    Parameters
    ----------
    histories, replies : pandas.DataFrame
        The tables of these names; replies that are not valid are left out.
    rng : numpy.random.Generator
        Draws the other dialogue.

    Returns
    -------
    pandas.DataFrame
        One row a valid reply: ``reply_id``, ``history_id``, ``dialogue_id``, ``responder``, ``words``, ``match``,
        ``match_by_chance``, ``excess``. ``nan`` where the seeker says nothing, or no other dialogue is there.

    References
    ----------
    .. [1] Gonzales, Hancock and Pennebaker (2010), https://doi.org/10.1177/0093650209351468. The classes
       there are those of a dictionary that is sold; ours are other lists, so levels cannot be compared.

    Examples
    --------
    >>> turns = [{"speaker": "seeker", "text": "the dog and the cat"}]
    >>> histories = pd.DataFrame({"history_id": ["h"], "dialogue_id": ["d"], "turns": [turns]})
    >>> replies = pd.DataFrame({"reply_id": ["r"], "history_id": ["h"], "responder": "m", "state": "valid",
    ...     "text": ["the dog and the cat"]})
    >>> match_styles(histories, replies, rng=np.random.default_rng(1))["match"].tolist()
    [1.0]
    """
    said = pd.Series(
        [" ".join(turn["text"] for turn in turns if turn["speaker"] == "seeker") for turns in histories["turns"]],
        index=histories["history_id"],
    )
    dialogues = histories.set_index("history_id")["dialogue_id"]
    shares = {name: _shares(text) for name, text in said.items()}
    others = {name: said.index[(dialogues != dialogues[name]).to_numpy() & (said != "").to_numpy()] for name in said.index}
    rows = []
    for reply in replies[replies["state"] == "valid"].to_dict("records"):
        own, pool = _shares(str(reply["text"])), others[reply["history_id"]]
        by_chance = float("nan")
        if len(pool):
            by_chance = _match(own, shares[pool[int(rng.integers(len(pool)))]])
        match = _match(own, shares[reply["history_id"]]) if said[reply["history_id"]] else float("nan")
        rows.append((reply["reply_id"], reply["history_id"], dialogues[reply["history_id"]], reply["responder"],
                     len(str(reply["text"]).split()), match, by_chance, match - by_chance))  # fmt: skip
    columns = ["reply_id", "history_id", "dialogue_id", "responder", "words", "match", "match_by_chance", "excess"]
    return pd.DataFrame(rows, columns=columns)


_CLASSES = {name: frozenset(words.split()) for name, words in FUNCTION_WORDS.items()}


def _shares(text: str) -> Array:
    tokens = TOKEN.findall(text.lower().replace("’", "'"))
    return np.array([sum(token in words for token in tokens) / max(len(tokens), 1) for words in _CLASSES.values()])


def _match(one: Array, other: Array) -> float:
    return float((1.0 - np.abs(one - other) / (one + other + TINY)).mean())
