"""From verdicts to win matrices, one a cluster: the single pass over the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.tables import STATES

__all__ = ["Entries", "NotComparableError", "RatingsError", "WinMatrices", "count_wins", "read_verdicts"]

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

SHARES = {"a": 1.0, "tie": 0.5, "b": 0.0}
TIE = list(SHARES).index("tie")
VALID, INCONSISTENT = STATES.index("valid"), STATES.index("inconsistent")
DENSE_CELLS = 30_000_000
MAX_SHOWN = 3


class RatingsError(ValueError):
    """Verdicts cannot be turned into ratings."""


class NotComparableError(RatingsError):
    """Comparisons do not link all responders.

    Attributes
    ----------
    groups : list of list of str
        Who can be compared with whom, the largest group first.
    """

    def __init__(self, groups: list[list[str]]) -> None:
        self.groups = sorted(groups, key=lambda group: (-len(group), group))
        apart = ", ".join(name for group in self.groups[1:] for name in group)
        shown = "; ".join(", ".join(group[:MAX_SHOWN]) + (", ..." if len(group) > MAX_SHOWN else "") for group in self.groups)
        super().__init__(
            f"{apart} cannot be rated with the others: no comparison links them (groups: {shown}). "
            f"Drop them, or collect comparisons that do."
        )


@dataclass(frozen=True, eq=False)
class Entries:
    """Verdicts as numbers, one entry a verdict that enters a fit.

    Attributes
    ----------
    responders, clusters : pandas.Index
        Names, sorted; the codes below point into them. Without a cluster all is one cluster.
    a, b, cluster : numpy.ndarray
        Codes of the two responders and of the cluster.
    share : numpy.ndarray
        What a wins of the verdict, from 0 to 1.
    word : numpy.ndarray
        The rater's word as a place in :data:`SHARES` (a, tie, b), or -1.
    inconsistent : numpy.ndarray
        Whether two orders contradicted each other.
    rows : numpy.ndarray
        Position of each entry in the table that came in.
    left_out : pandas.Series
        State -> number of answers that do not enter.
    """

    responders: pd.Index
    clusters: pd.Index
    a: Codes
    b: Codes
    cluster: Codes
    share: Array
    word: Codes
    inconsistent: NDArray[np.bool_]
    rows: Codes
    left_out: pd.Series

    @property
    def tie(self) -> NDArray[np.bool_]:
        """Whether the rater called a tie."""
        return np.asarray((self.word == TIE) & ~self.inconsistent)


@dataclass(frozen=True, eq=False)
class WinMatrices:
    """One win matrix a cluster and level, and their sum under any weights.

    Attributes
    ----------
    flat : numpy.ndarray or scipy.sparse.csr_array
        A row a cluster, a column a level and an ordered pair of responders: what the first won of the second.
    size, n_levels : int
        Number of responders, and of kinds of win that are told apart (such as ties and wins).
    per_pair : float or None
        Verdicts a pair, to which each pair is scaled where pairs weigh the same.
    """

    flat: Any
    size: int
    n_levels: int
    per_pair: float | None

    def sum(self, weights: Array | None = None) -> Array:
        """Sum over clusters, for each row of `weights` (replicates, clusters), or once with weight one.

        Returns
        -------
        numpy.ndarray
            Shape (replicates, levels, responders, responders).
        """
        if weights is None:
            weights = np.ones((1, self.flat.shape[0]))
        wins: Array = np.asarray(weights @ self.flat).reshape(-1, self.n_levels, self.size, self.size)
        if self.per_pair is None:
            return wins
        # Each dialogue says one thing on each pair, so the total counts dialogues and the ratio is their mean.
        total = wins.sum(axis=1, keepdims=True)
        total = np.broadcast_to(total + total.swapaxes(2, 3), wins.shape)
        np.divide(wins * self.per_pair, total, out=wins, where=total > 0)
        return wins


def read_verdicts(verdicts: pd.DataFrame, *, dimension: str, cluster: str | None) -> Entries:
    """Turn the verdicts of one dimension into numbers, and refuse what has no number.

    A verdict gives its winner 1, a tie gives 1/2 to each, an inconsistent pair of orders too; where
    ``p_a`` is given it counts in place of the word. Other states do not enter, and are counted.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        Columns ``responder_a``, ``responder_b`` and ``verdict``, and if present ``dimension``,
        ``state``, ``p_a`` and the column named by `cluster`.
    dimension : str
        Which rows to take, where there is a column ``dimension``.
    cluster : str or None
        Column of what is resampled together.

    Returns
    -------
    Entries
        One entry a verdict that enters.

    Raises
    ------
    RatingsError
        If a column is missing, a word or number unknown, a name absent, someone meets themself, the
        dimension is not there, or nothing enters.

    Examples
    --------
    >>> said = {"verdict": ["a", "tie", None], "state": ["valid", "valid", "error"]}
    >>> votes = pd.DataFrame({"responder_a": "x", "responder_b": "y", **said})
    >>> entries = read_verdicts(votes, dimension="overall", cluster=None)
    >>> entries.share, entries.left_out.to_dict()
    (array([1. , 0.5]), {'error': 1})
    """
    rows = _rows_of(verdicts, dimension, cluster)
    state = word_codes(verdicts, "state", rows, STATES) if "state" in verdicts else np.full(len(rows), VALID)
    enters = (state == VALID) | (state == INCONSISTENT)
    left_out = pd.Series(np.array(STATES, dtype=object)[state[~enters]]).value_counts().rename("left_out")
    if not enters.any():
        said = ", ".join(f"{count} {name}" for name, count in left_out.items()) or "the table has no row"
        raise RatingsError(f"No verdict on {dimension!r} can enter a fit: {said}. `state` says what became of each answer.")
    rows, inconsistent = rows[enters], state[enters] == INCONSISTENT
    word = word_codes(verdicts, "verdict", rows, tuple(SHARES), nullable=True)
    share = _shares(verdicts, rows, np.where(inconsistent, TIE, word))
    responders, (a, b) = name_codes(verdicts, ["responder_a", "responder_b"], rows)
    refuse(a == b, rows, verdicts["responder_a"], "a responder is compared with itself")
    clusters, which = pd.Index(["all"]), np.zeros(len(rows), np.intp)
    if cluster is not None:
        clusters, (which,) = name_codes(verdicts, [cluster], rows)
    return Entries(responders, clusters, a, b, which, share, word, inconsistent, rows, left_out)


def count_wins(
    entries: Entries,
    *,
    weights: str,
    levels: tuple[Codes, int] | None = None,
    cells: tuple[Codes, int] | None = None,
) -> WinMatrices:
    """Sum verdicts into one win matrix a cluster.

    Parameters
    ----------
    entries : Entries
        Verdicts as numbers.
    weights : {"pairs", "verdicts"}
        ``"pairs"``: the verdicts of a cluster on a pair are averaged, then clusters are, and each
        pair weighs the same. ``"verdicts"``: each verdict counts one.
    levels : tuple of numpy.ndarray and int, optional
        Level of each entry, and how many there are; one level if absent.
    cells : tuple of numpy.ndarray and int, optional
        What is summed into one matrix, if finer than the clusters, and how many there are.

    Returns
    -------
    WinMatrices
        Their sums under any weights of clusters or cells.

    Examples
    --------
    >>> votes = pd.DataFrame({"dialogue_id": list("ddde"), "responder_a": "x", "responder_b": "y", "verdict": list("aaab")})
    >>> entries = read_verdicts(votes, dimension="overall", cluster="dialogue_id")
    >>> [float(count_wins(entries, weights=weights).sum()[0, 0, 0, 1]) for weights in ("verdicts", "pairs")]  # of 4
    [3.0, 2.0]
    """
    size = len(entries.responders)
    level, n_levels = levels or (np.zeros(len(entries.rows), np.intp), 1)
    cell, n_cells = cells or (entries.cluster, len(entries.clusters))
    weight, per_pair = entry_weights(entries, weights)
    columns = n_levels * size**2
    place = np.concatenate([(level * size + entries.a) * size + entries.b, (level * size + entries.b) * size + entries.a])
    won = np.concatenate([entries.share * weight, (1.0 - entries.share) * weight])
    cell = np.concatenate([cell, cell])
    if n_cells * columns <= DENSE_CELLS:
        flat: Any = np.bincount(cell * columns + place, weights=won, minlength=n_cells * columns).reshape(n_cells, columns)
    else:
        from scipy.sparse import coo_array

        flat = coo_array((won, (cell, place)), shape=(n_cells, columns)).tocsr()
    return WinMatrices(flat, size, n_levels, per_pair)


def entry_weights(entries: Entries, weights: str) -> tuple[Array, float | None]:
    """Weigh each entry within its cluster and pair; where pairs weigh the same, also tell how many verdicts a pair has."""
    if weights == "verdicts":
        return np.ones(len(entries.rows)), None
    size = len(entries.responders)
    pair, _ = pairs_of(entries)
    weight = 1.0 / _group_sizes(entries.cluster * size**2 + pair, len(entries.clusters) * size**2)
    return weight, len(pair) / int(np.count_nonzero(np.bincount(pair)))


def pairs_of(entries: Entries) -> tuple[Codes, Array]:
    """Give each entry the number of its pair, and the side of its a: 1 for the first of the alphabet, else -1."""
    low, high = np.minimum(entries.a, entries.b), np.maximum(entries.a, entries.b)
    return low * len(entries.responders) + high, np.where(entries.a < entries.b, 1.0, -1.0)


def pair_means(values: Array, weight: Array, pair: Codes) -> tuple[Array, Array]:
    """Give each entry the weighted mean of some values (entries, columns) over its pair, and the pair's weight."""
    total = np.bincount(pair, weights=weight)
    sums = np.stack([np.bincount(pair, weights=weight * column) for column in values.T], axis=1)
    return sums[pair] / total[pair, None], np.asarray(total[pair], dtype=float)


def check_comparable(wins: Array, responders: pd.Index) -> None:
    """Raise :class:`NotComparableError` if comparisons do not link all responders."""
    from scipy.sparse.csgraph import connected_components

    n_groups, group = connected_components(wins + wins.T > 0, directed=False)
    if n_groups > 1:
        raise NotComparableError([[str(name) for name in responders[group == number]] for number in range(n_groups)])


def _rows_of(verdicts: pd.DataFrame, dimension: str, cluster: str | None) -> Codes:
    """Find the rows of a dimension, once the columns are known to be there."""
    needed = ["responder_a", "responder_b", "verdict", *([cluster] if cluster else [])]
    missing = [column for column in needed if column not in verdicts]
    if missing:
        raise RatingsError(f"verdicts lack the column {', '.join(missing)}. They have {', '.join(map(str, verdicts.columns))}.")
    if "dimension" not in verdicts:
        return np.arange(len(verdicts))
    codes, names = pd.factorize(verdicts["dimension"])
    refuse(codes < 0, np.arange(len(verdicts)), verdicts["dimension"], "`dimension` must not be empty")
    found = np.flatnonzero(np.asarray(names) == dimension)
    if len(verdicts) and not len(found):
        raise RatingsError(f"verdicts have no dimension {dimension!r}. They have {', '.join(map(str, names))}.")
    return np.flatnonzero(codes == found[0]) if len(found) else np.arange(0)


def word_codes(
    verdicts: pd.DataFrame, column: str, rows: Codes, vocabulary: tuple[str, ...], *, nullable: bool = False
) -> Codes:
    """Read a column of words as places in a vocabulary, and refuse others; where it may be empty, that is -1."""
    codes, names = pd.factorize(verdicts[column])
    place = np.array([*(vocabulary.index(name) if name in vocabulary else -2 for name in names), -1])
    found = place[codes[rows]]
    refuse(found < (-1 if nullable else 0), rows, verdicts[column], f"`{column}` must be one of {', '.join(vocabulary)}")
    return found


def _shares(verdicts: pd.DataFrame, rows: Codes, word: Codes) -> Array:
    """Give what a wins of each verdict: ``p_a`` where given, else what the word says."""
    share = np.array([*SHARES.values(), np.nan])[word]
    if "p_a" in verdicts:
        p_a = pd.to_numeric(verdicts["p_a"], errors="coerce").to_numpy(float, na_value=np.nan)[rows]
        given = verdicts["p_a"].notna().to_numpy()[rows]
        refuse(given & ~((p_a >= 0) & (p_a <= 1)), rows, verdicts["p_a"], "`p_a` must be from 0 to 1")
        against = given & (word >= 0) & (word != TIE) & ((share - 0.5) * (p_a - 0.5) < 0)
        refuse(against, rows, verdicts["p_a"], "`p_a` is the chance that a is better, and must not contradict the verdict")
        share = np.where(given, p_a, share)
    refuse(np.isnan(share), rows, verdicts["verdict"], "a valid answer must have a verdict or `p_a`")
    return share


def name_codes(verdicts: pd.DataFrame, columns: list[str], rows: Codes) -> tuple[pd.Index, tuple[Codes, ...]]:
    """Give numbers to the names in some columns, in the order of the alphabet."""
    parts = [pd.factorize(verdicts[column]) for column in columns]
    for column, (codes, _) in zip(columns, parts, strict=True):
        refuse(codes[rows] < 0, rows, verdicts[column], f"`{column}` must not be empty")
    for column, (_, names) in zip(columns, parts, strict=True):
        text = [isinstance(name, str) for name in names]
        if any(text) and not all(text):
            word, other = (names[text.index(is_text)] for is_text in (True, False))
            raise RatingsError(
                f"verdicts: `{column}` mixes text and other types, such as {word!r} and {other!r}, so 1 and '1' would differ. "
                f"Make all of them text: verdicts['{column}'] = verdicts['{column}'].astype(str)."
            )
    used = [names.take(np.flatnonzero(np.bincount(codes[rows]))) for codes, names in parts]
    names = pd.Index(np.unique(np.concatenate([np.asarray(part, dtype=object) for part in used])))
    return names, tuple(names.get_indexer(part_names)[codes[rows]] for codes, part_names in parts)


def _group_sizes(keys: Codes, n_keys: int) -> NDArray[np.int64]:
    """Give the number of entries that share each entry's key."""
    if n_keys <= DENSE_CELLS:
        return np.bincount(keys, minlength=n_keys)[keys]
    _, group, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    return sizes[group]


def refuse(wrong: NDArray[np.bool_], rows: Codes, values: pd.Series, rule: str) -> None:
    """Raise if any row is wrong, showing the first of them by the table's own index."""
    if not wrong.any():
        return
    bad = values.iloc[rows[wrong]]
    shown = ", ".join(f"row {row} has {value!r}" for row, value in bad.head(MAX_SHOWN).items())
    raise RatingsError(f"verdicts: {rule}; {shown}{', ...' if len(bad) > MAX_SHOWN else ''} ({len(bad)} in all).")
