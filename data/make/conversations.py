"""Studies of whole conversations as tables: rows where the licence allows it.

Else counts, shares and coefficients.

Each reader names the columns that it keeps, never those that it drops: two of the official files
hold addresses and passwords. What is known of a set and is not in its files:

- ``kokorochat``: clients are trained counsellors who play a part; a session lasts some 70 minutes,
  so who answers slowly also says less. ``lat_med`` is the median of the seconds from a client's
  last message to the counsellor's next.
- ``mindeval``: a 0 in three criteria means "not applicable" as far as one can tell, and is left out
  of means.
- ``sage``: a file of 4 MiB or more is not stored, so models under two of the three simulators are
  not all there; the one model that its files call ``gpt-4o-0808`` and ``gpt-4o-0806`` is taken for
  one.
- ``mibot``: one arm. A gain after the session holds regression to the mean and the wish to please.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse, stats
from scipy.sparse.linalg import lsqr

from data.make.columns import keep_columns, need_score, need_words
from data.make.cuts import plain_form, read_words
from heart_utils.agreement.agreement import icc
from heart_utils.agreement.generalizability import variance_components
from heart_utils.evidence import share_clustered
from heart_utils.ratings.resampling import bootstrap_ci, two_way_error
from heart_utils.sources.catalogue import Source
from heart_utils.tables import DataError

__all__ = ["CONVERSATIONS"]

Files = Mapping[str, Path]

CI_LEVEL = 0.95  #: Of every interval in a table of estimates.
#: The mean of those of MindEval's criteria that an expert took for applicable.
ALL = "ten criteria"
FELT = "rank correlation with the seeker"
SEED = 20260109
DIGITS = 6  #: Of shipped numbers, so that another machine's last bits change nothing.


def _read_used(source: Source, files: Files) -> tuple[str, pd.DataFrame]:
    """Read the used columns of a set's one file, in the form that `make data` keeps.

    Also return the name of the file.
    """
    (file,) = files
    kept = keep_columns(
        source.name, file, read_words(files[file].read_bytes()), source.reading["used"]
    )
    return file, pd.read_csv(io.BytesIO(plain_form(source.reading, kept)))


def read_kokorochat(source: Source, files: Files) -> pd.DataFrame:
    """Relate the score of 6,589 sessions to how long the client waited; no session is passed on."""
    facts = source.reading
    file, rows = _read_used(source, files)
    need_score(source, file, rows, "score", facts["scale"])
    score = (rows["score"] - rows["score"].mean()) / rows["score"].std()
    wait = np.log2(rows["lat_med"])
    client, counsellor = (pd.factorize(rows[name])[0] for name in ("client_id", "counselor_id"))
    counts: dict[str, Any] = {
        "n": len(rows),
        "n_clusters": int(counsellor.max()) + 1,
        "cluster": "counsellor and client",
    }
    estimates = []
    for _, part in sorted(
        rows.groupby(pd.qcut(rows["lat_med"], 5), observed=True), key=lambda pair: pair[0].left
    ):
        stratum = f"{part['lat_med'].min():g} to {part['lat_med'].max():g} s"
        estimates.append(
            _row("score", "mean by wait", stratum, value=part["score"].mean(), n=len(part))
        )
    for outcome, column in facts["outcomes"].items():
        rank = float(stats.spearmanr(rows[column], rows["lat_med"])[0])
        estimates.append(
            _row(outcome, "rank correlation", "counsellor's wait", value=rank, **counts)
        )
    rank = float(stats.spearmanr(rows["score"], rows["clat_med"])[0])
    estimates.append(_row("score", "rank correlation", "client's own wait", value=rank, **counts))
    counts_of_both, own = (
        np.log2(rows[[count, "chars_c"]].to_numpy(float)) for count in ("n", "nc")
    )
    ways: dict[str, tuple[list[np.ndarray], list[np.ndarray]]] = {
        "all sessions": ([], []),
        "same client": ([client], []),
        "same client and counsellor": ([client, counsellor], []),
        "and messages of both, characters": ([client, counsellor], list(counts_of_both.T)),
        "and the counsellor's messages, characters": ([client, counsellor], list(own.T)),
    }
    for stratum, (same, held) in ways.items():
        slope, error = _slope(score.to_numpy(), wait.to_numpy(), held, same, (client, counsellor))
        ends = _ends(slope, error, counts["n_clusters"] - 1)
        estimates.append(_row("score", "SD per doubling of the wait", stratum, **ends, **counts))
    estimates.append(
        _row("score", "SD in points", "all sessions", value=rows["score"].std(), **counts)
    )
    for stratum, codes in {"client": client, "counsellor": counsellor}.items():
        rest = rows["score"] - rows["score"].groupby(codes).transform("mean")
        n_groups = int(codes.max()) + 1
        explained = 1 - (rest**2).sum() / (len(rows) - n_groups) / rows["score"].var()
        estimates.append(_row("score", "variance explained", stratum, value=explained, **counts))
    return _estimates(source, estimates)


def read_duo(source: Source, files: Files) -> pd.DataFrame:
    """Relate what 95 seekers scored to what three onlookers did; no score is passed on."""
    facts = source.reading
    file, rows = _read_used(source, files)
    need_words(source, file, rows, "language", facts["languages"])
    estimates = []
    for outcome, scale in facts["scales"].items():
        onlookers = [f"onlooker{number}_{scale}" for number in (1, 2, 3)]
        seen = rows.dropna(subset=onlookers)
        for column in (f"seeker_{scale}", *onlookers):
            need_score(source, file, seen, column, facts["scale"])
        for language, part in seen.groupby("language"):
            stratum, n = facts["languages"][language], len(part)
            x = stats.rankdata(part[f"seeker_{scale}"])
            y = stats.rankdata(part[onlookers].mean(axis=1).round(DIGITS))
            sums = pd.DataFrame({"n": 1.0, "x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y})
            found = bootstrap_ci(
                sums,
                _correlation,
                cluster=part["participant"].set_axis(sums.index),
                rng=np.random.default_rng(SEED),
                ci_level=CI_LEVEL,
                least=-1.0,
                most=1.0,
            )
            numbers = {"value": found.estimate, "se": found.se}
            numbers |= {"ci_low": found.ci_low, "ci_high": found.ci_high}
            counts = {"n": n, "n_clusters": found.n_clusters, "cluster": "participant"}
            estimates.append(_row(outcome, FELT, stratum, **numbers, **counts))
            between = 3 * part[onlookers].mean(axis=1).var()
            reliable = 1 - part[onlookers].var(axis=1).mean() / between
            estimates.append(_row(outcome, "ICC(1,3)", stratum, value=reliable, n=n))
    return _estimates(source, estimates)


def _correlation(sums: pd.DataFrame) -> pd.Series:
    """Compute a correlation from sums of products."""
    mean_x, mean_y = sums["x"] / sums["n"], sums["y"] / sums["n"]
    shared = sums["xy"] / sums["n"] - mean_x * mean_y
    variances = (sums["xx"] / sums["n"] - mean_x**2) * (sums["yy"] / sums["n"] - mean_y**2)
    return shared / np.sqrt(variances.where(variances > 0))


def read_mindeval(source: Source, files: Files) -> pd.DataFrame:
    """Compute how far four experts agree on 60 whole conversations of three models.

    No single score is passed on.
    """
    facts = source.reading
    file, rows = _read_used(source, files)
    need_words(source, file, rows, "model", facts["models"])
    need_score(source, file, rows, "score", facts["scale"])
    rows = rows.assign(model=rows["model"].map(facts["models"]))
    answered = rows[rows["score"] > 0]
    keys = ["conversation", "model", "profile"]
    wide = answered.pivot_table(index=keys, columns="expert", values="score").round(DIGITS)
    estimates = []
    for model, part in answered.groupby("model"):
        by_profile = part.groupby("profile")["score"].mean()
        ends = _ends(
            part["score"].mean(),
            float(by_profile.std() / np.sqrt(len(by_profile))),
            len(by_profile) - 1,
        )
        counts = {"n": len(part), "n_clusters": len(by_profile), "cluster": "profile"}
        estimates.append(_row(ALL, "mean of 6", str(model), **ends, **counts))
    zeros = int((rows["score"] == 0).sum())
    estimates.append(_row(ALL, "not applicable", "all", value=zeros, n=len(rows)))
    estimates += _experts_agree(wide.reset_index(), [str(expert) for expert in wide.columns])
    by_expert = wide.reset_index().melt(keys, var_name="rater", value_name="score")
    by_expert = by_expert.rename(columns={"conversation": "reply_id", "profile": "dialogue_id"})
    for quantity, kind in (("ICC(2,1)", "A,1"), ("ICC(3,1)", "C,1"), ("ICC(3,4)", "C,k")):
        found = icc(by_expert, kind=kind)
        ends = {"value": found.value, "ci_low": found.ci_low, "ci_high": found.ci_high}
        counts = {"ci_level": found.ci_level, "n": len(wide), "n_clusters": found.n_clusters}
        estimates.append(_row(ALL, quantity, "all", **ends, **counts, cluster="profile"))
    for criterion, part in rows.groupby("criterion"):
        one = part.pivot_table(index="conversation", columns="expert", values="score")
        ranks = one.where(one > 0).corr("spearman").to_numpy()[np.triu_indices(one.shape[1], 1)]
        estimates.append(
            _row(
                str(criterion).replace("_", " "),
                "rank correlation",
                "mean of six",
                value=ranks.mean(),
                n=len(one),
            )
        )
    cells = wide.reset_index().melt(keys, var_name="rater", value_name="score")
    cells = cells.rename(columns={"model": "responder", "profile": "dialogue_id"})
    cells = cells.groupby(["responder", "dialogue_id", "rater"])["score"].mean().reset_index()
    counts = {"n": len(cells), "n_clusters": cells["dialogue_id"].nunique(), "cluster": "profile"}
    for component, variance in variance_components(cells).table["estimate"].items():
        estimates.append(_row(ALL, "variance", str(component), value=variance, **counts))
    return _estimates(source, estimates)


def read_relationship_seeking(source: Source, files: Files) -> pd.DataFrame:
    """Average four weeks with a warm or a cold model by dose and week, and compare them."""
    facts = source.reading
    file, rows = _read_used(source, files)
    need_words(source, file, rows, "multiplier", facts["doses"])
    rows = rows[rows["study_id"] == "longitudinal"]
    estimates = []
    for outcome in facts["outcomes"]:
        need_score(source, file, rows.dropna(subset=outcome), outcome, facts["scale"])
        for dose in facts["doses"]:
            for week, part in rows[rows["multiplier"] == dose].groupby("week"):
                ends = _ends(part[outcome].mean(), float(part[outcome].sem()), len(part) - 1)
                counts = {
                    "n": len(part),
                    "n_clusters": part["ppt_id"].nunique(),
                    "cluster": "participant",
                }
                estimates.append(
                    _row(
                        outcome,
                        f"mean in week {str(week)[1:]}",
                        f"dose {dose:+g}",
                        **ends,
                        **counts,
                    )
                )
        for week, part in rows.groupby("week"):
            warm, cold = (
                part.loc[part["multiplier"] * sign > 0, outcome].dropna() for sign in (1, -1)
            )
            test = stats.ttest_ind(warm, cold, equal_var=False)
            interval, difference = (
                test.confidence_interval(CI_LEVEL),
                float(warm.mean() - cold.mean()),
            )
            ends = {
                "value": difference,
                "se": difference / test.statistic,
                "ci_low": interval.low,
                "ci_high": interval.high,
            }
            counts = dict.fromkeys(("n", "n_clusters"), len(warm) + len(cold)) | {
                "cluster": "participant"
            }
            estimates.append(
                _row(outcome, "warm less cold", f"week {str(week)[1:]}", **ends, **counts)
            )
    return _estimates(source, estimates)


def read_sage(source: Source, files: Files) -> pd.DataFrame:
    """Read the emotion of a simulated seeker before and after each reply.

    There are 1,900 conversations.
    """
    facts = source.reading
    file, rows = _read_used(source, files)
    need_words(source, file, rows, "model", facts["models"])
    need_words(source, file, rows, "simulator", facts["simulators"])
    need_score(source, file, rows, "final_emotion", facts["scale"])
    about = {
        "history_id": "scenario_" + rows["scenario"].str.removeprefix("s"),
        "responder": rows["model"].map(facts["models"]),
        "rater": rows["simulator"].map(facts["simulators"]),
    }
    steps = rows[[]].assign(**about, score=rows["path"].str.split()).explode("score")
    number = steps.groupby(level=0).cumcount()
    steps = steps.assign(item=number.astype(str).str.zfill(2), score=steps["score"].astype(float))
    last = steps.groupby(level=0)["score"].last()
    n_wrong = int((last != rows["final_emotion"]).sum())
    if n_wrong:
        raise DataError(f"{source.name}/{file}: {n_wrong} paths do not end at final_emotion.")
    reply = steps["history_id"] + "--" + steps["responder"] + "--" + steps["rater"]
    return steps.assign(reply_id=reply, rater_kind="model", dimension="emotion", protocol="by_turn")


def read_ieval(source: Source, files: Files) -> pd.DataFrame:
    """Read what 240 people report of four chatbots, in good and bad situations."""
    facts = source.reading
    file, rows = _read_used(source, files)
    need_words(source, file, rows, "bot", facts["bots"])
    for column, scale in facts["scales"].items():
        need_score(source, file, rows, column, scale)
    seeker = rows["worker"].map("seeker_{:03d}".format)
    about = {
        "history_id": seeker + "-" + rows["valence"],
        "dialogue_id": seeker,
        "responder": rows["bot"].str.lower(),
    }
    ratings = rows[list(facts["scales"])].rename(columns=facts["dimensions"])
    wide = ratings.assign(**about, rater=seeker, group=rows["valence"])
    kept = [*about, "rater", "group"]
    return wide.melt(kept, None, "dimension", "score").assign(
        rater_kind="human", protocol="own_conversation"
    )


def read_mibot(source: Source, files: Files) -> pd.DataFrame:
    """Read what 106 smokers reported before a session with a counselling model, and after.

    The later reports are from directly after it and from a week later.
    """
    facts = source.reading
    file, rows = _read_used(source, files)
    smoker = pd.Series(
        [f"smoker_{row_number:03d}" for row_number in range(1, len(rows) + 1)], index=rows.index
    )
    parts = []
    for group, prefix in facts["times"].items():
        for column, dimension in facts["rulers"].items():
            need_score(source, file, rows, prefix + column, facts["ruler"])
            answers = {
                "score": rows[prefix + column],
                "dimension": dimension,
                "item": None,
                "group": group,
            }
            parts.append(pd.DataFrame(answers | {"rater": smoker}))
    for number in range(1, facts["n_items"] + 1):
        need_score(source, file, rows, f"CAREQ{number}", facts["care"])
        answers = {
            "score": rows[f"CAREQ{number}"],
            "dimension": "care",
            "item": f"{number:02d}",
            "group": "after",
        }
        parts.append(pd.DataFrame(answers | {"rater": smoker}))
    scores = pd.concat(parts, ignore_index=True)
    no_answer = (scores["dimension"] == "care") & (scores["score"] == 0)  # the item does not apply
    state = no_answer.map({True: "abstained", False: "valid"})
    scores = scores.assign(score=scores["score"].where(~no_answer), state=state)
    return scores.assign(
        history_id=scores["rater"], responder="mibot", rater_kind="human", protocol="session"
    )


def read_can_ai_relate(source: Source, files: Files) -> pd.DataFrame:
    """Read what two clinicians gave 50 replies, each to another post, on six scales."""
    facts = source.reading
    file, rows = _read_used(source, files)
    need_words(source, file, rows, "author", facts["authors"])
    need_words(source, file, rows, "scale", facts["dimensions"])
    post = rows["item"].map("post_{:02d}".format)
    return pd.DataFrame(
        {
            "history_id": post,
            "responder": rows["author"].map(facts["authors"]),
            "rater": rows["expert"].str.replace("expert", "clinician_"),
            "rater_kind": "human",
            "dimension": rows["scale"].map(facts["dimensions"]),
            "score": rows["score"],
            "state": rows["score"].notna().map({True: "valid", False: "abstained"}),
            "protocol": "likert",
        }
    )


def read_reflections(source: Source, files: Files) -> pd.DataFrame:
    """Count how often a reader found only the model's reflection coherent, or the therapist's."""
    facts = source.reading
    file, rows = _read_used(source, files)
    need_words(source, file, rows, "reflection_source", facts["authors"])
    need_words(source, file, rows, "coherent_and_context_consistent", facts["answers"])
    numbers = {
        name: f"context_{number:02d}"
        for number, name in enumerate(sorted(rows["annomi_dialogue_id"].unique()), 1)
    }
    about = pd.DataFrame(
        {
            "cluster": rows["annomi_dialogue_id"].map(numbers),
            "rater": rows["annotator"],
            "stratum": rows["annotator"].str.partition(" ")[0].map(facts["readers"]),
            "author": rows["reflection_source"].map(facts["authors"]),
            "score": rows["coherent_and_context_consistent"].map(facts["answers"]),
        }
    )
    therapist = about["author"] == "therapist"
    same = ["cluster", "rater", "stratum"]
    pairs = about[therapist].merge(about[~therapist], on=same, suffixes=("_a", "_b"))
    won = np.sign(pairs["score_b"] - pairs["score_a"])
    counts = pairs.assign(n_a=won < 0, n_tie=won == 0, n_b=won > 0)
    counts = counts.rename(columns={"author_a": "responder_a", "author_b": "responder_b"})
    keys = ["responder_a", "responder_b", "cluster", "stratum"]
    tallies = counts.groupby(keys)[["n_a", "n_tie", "n_b"]].sum().reset_index()
    return tallies.assign(study=source.name, by="context", dimension="coherent")


CONVERSATIONS: dict[str, Callable[..., pd.DataFrame]] = {
    "duo": read_duo,
    "kokorochat": read_kokorochat,
    "mindeval": read_mindeval,
    "relationship_seeking": read_relationship_seeking,
    "sage": read_sage,
    "ieval": read_ieval,
    "mibot": read_mibot,
    "can_ai_relate": read_can_ai_relate,
    "reflections": read_reflections,
}
"""Study -> what reads its files."""


def _row(outcome: str, quantity: str, stratum: str, **numbers: Any) -> dict[str, Any]:
    return {"outcome": outcome, "quantity": quantity, "stratum": stratum, **numbers}


def _estimates(source: Source, estimates: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(estimates).assign(study=source.name)
    numbers = ["value", "se", "ci_low", "ci_high"]
    table = table.reindex(
        columns=[*table.columns, *(name for name in numbers if name not in table)]
    )
    table[numbers] = table[numbers].astype(float).round(DIGITS)
    return table.assign(
        ci_level=np.where(table["ci_low"].notna(), CI_LEVEL, np.nan), simulated=False
    )


def _ends(value: float, error: float, degrees: float) -> dict[str, float]:
    reach = stats.t.ppf((1 + CI_LEVEL) / 2, degrees) * error
    return {"value": value, "se": error, "ci_low": value - reach, "ci_high": value + reach}


def _slope(
    y: np.ndarray,
    x: np.ndarray,
    held: list[np.ndarray],
    same: list[np.ndarray],
    clusters: tuple[np.ndarray, np.ndarray],
) -> tuple[float, float]:
    """Fit y on x within groups, other columns held, with two-way cluster-robust errors."""
    n = len(y)
    one_hot = [sparse.csr_matrix((np.ones(n), (np.arange(n), codes))) for codes in same]
    design = sparse.hstack(
        [sparse.csr_matrix(np.ones((n, 1))), *one_hot, *(column[:, None] for column in held)],
        format="csr",
    )

    def rest(column: np.ndarray) -> np.ndarray:
        coefficients = lsqr(design, column, atol=1e-12, btol=1e-12, iter_lim=5_000)[0]
        return np.asarray(column - design @ coefficients)

    x_rest, y_rest = rest(x), rest(y)
    slope = float(x_rest @ y_rest / (x_rest @ x_rest))
    influence = x_rest * (y_rest - slope * x_rest) / (x_rest @ x_rest)
    return slope, two_way_error(influence, *clusters)


def _experts_agree(wide: pd.DataFrame, experts: list[str]) -> list[dict[str, Any]]:
    """Compare conversations of two models with one profile, as two experts see them.

    What the models' names alone would say stands beside them.
    """
    pairs = []
    for profile, part in wide.groupby("profile"):
        for one, other in combinations(part.index, 2):
            if part.loc[one, "model"] != part.loc[other, "model"]:
                lead = np.sign(
                    (part.loc[one, experts] - part.loc[other, experts]).astype(float).round(DIGITS)
                )
                pairs.append(
                    {
                        "profile": profile,
                        "one": part.loc[one, "model"],
                        "other": part.loc[other, "model"],
                        **lead,
                    }
                )
    table = pd.DataFrame(pairs)
    rows = []
    for first, second in combinations(experts, 2):
        rows.append(
            table.assign(seen=table[first] * table[second], stratum=f"{first} and {second}")
        )
    both = pd.concat(rows, ignore_index=True)
    untied = both[both["seen"] != 0].assign(won=lambda pair: 1.0 * (pair["seen"] > 0))
    estimates = []
    for stratum, part in [("all", untied), *untied.groupby("stratum")]:
        estimates.append(_share("two experts agree", stratum, part))
    names = []
    for expert in experts:  # the order of the models by what the other three gave
        means = (
            wide.groupby("model")[[other for other in experts if other != expert]]
            .mean()
            .mean(axis=1)
        )
        direction = np.sign(table["one"].map(means) - table["other"].map(means))
        names.append(table.assign(seen=table[expert] * direction))
    alone = pd.concat(names, ignore_index=True)
    alone = alone[alone["seen"] != 0].assign(won=lambda pair: 1.0 * (pair["seen"] > 0))
    estimates.append(_share("an expert agrees with the models' names alone", "all", alone))
    estimates.append(
        _row(
            ALL,
            "a tie for one of two experts",
            "all",
            value=float((both["seen"] == 0).mean()),
            n=len(both),
        )
    )
    ranks = wide[experts].corr("spearman")
    for first, second in combinations(experts, 2):
        rank = float(ranks[first][second])
        estimates.append(
            _row(ALL, "rank correlation", f"{first} and {second}", value=rank, n=len(wide))
        )
    return estimates


def _share(quantity: str, stratum: str, rows: pd.DataFrame) -> dict[str, Any]:
    share = share_clustered(rows, clusters=["profile"], ci_level=CI_LEVEL)
    ends = {"value": share["win_share"], "ci_low": share["ci_low"], "ci_high": share["ci_high"]}
    counts = {"n": len(rows), "n_clusters": share["n_clusters"], "cluster": share["cluster"]}
    return _row(ALL, quantity, stratum, **ends, **counts)
