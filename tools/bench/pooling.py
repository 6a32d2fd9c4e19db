"""How much partial pooling gains with few votes, and how often its intervals hold the truth."""

from __future__ import annotations

from collections.abc import Iterator

from tests.drawn_votes import measure_pooled
from tools.bench import Figure

# dialogues, pairs a dialogue, votes a pair, how strengths lie, and the most that may be left of the
# mean squared error
DESIGNS = (
    (20, 3, 1, "normal", 0.40),
    (20, 10, 1, "normal", 0.70),
    (20, 3, 1, "two groups", 0.40),
    (20, 10, 1, "two groups", 0.70),
    (20, 3, 1, "equal", 0.40),
    (60, 6, 2, "normal", 1.0),
    (300, 10, 3, "normal", 1.02),
)


def run(quick: bool) -> Iterator[Figure]:
    """Yield mean squared errors by the plain fit's, and the coverage of pooled intervals."""
    n_studies = 20 if quick else 400
    for design in DESIGNS:
        yield from measure(design, n_studies, quick)


def measure(
    design: tuple[int, int, int, str, float], n_studies: int, quick: bool = False
) -> Iterator[Figure]:
    """Draw studies of one design."""
    dialogues, pairs, votes, kind, most = design
    pooled = measure_pooled(dialogues, pairs, votes, kind, n_studies)
    where = f"{dialogues} dialogues x {pairs} votes"
    if votes > 1:
        where = f"{dialogues} dialogues x {pairs} pairs x {votes} votes"
    error = pooled.ratio_error
    yield Figure(
        f"squared error by the plain fit's, {where}",
        pooled.ratio,
        "times",
        f"at most {most}",
        bool(pooled.ratio <= most + 2 * error * quick),
        f"+-{error:.3f}, {len(pooled.studies)} studies; strengths {kind}",
    )
    share, error = pooled.share("held")
    yield Figure(
        f"pooled intervals hold the truth, {where}",
        100 * share,
        "%",
        "at least 93 %",
        share >= 0.93 - 2 * error * quick,
        f"+-{100 * error:.1f}; strengths {kind}",
    )
    share, error = pooled.share("leader")  # told by the flag, not promised
    note = f"+-{100 * error:.1f}; strengths {kind}"
    yield Figure(f"the leader's does, {where}", 100 * share, "%", note=note)
