"""Learning curves, transfer and savings of trained judges, for *Do judges agree?*.

The texts stay where they are.

``python -m data.make.trained_judges`` writes the four tables of ``data/trained/`` anew; a test
compares them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from heart_collect.judging.trained import train_judge
from heart_utils.agreement.prediction_powered import prediction_powered_ratings
from heart_utils.ratings.ratings import fit_ratings
from heart_utils.ratings.resampling import estimate_rng, interval_of
from heart_utils.ratings.verdicts import Array
from heart_utils.runs import find_root, open_run
from heart_utils.sources.catalogue import SOURCES, find_data

SEED = 20260109
SIZES = (300, 600, 1200, 2400, 4800)
"""Labels to be trained on, of 6,000; four fifths are 4,800. From 150 a judge knows too few words,
and abstains at times."""
N_FOLDS = 5
N_DRAWS = 3
N_RESAMPLES = 300
CI_LEVEL = 0.95
BATCH_LABELS = 30  # ten messages, three replies to each
LEAST_LABELS = 50
LEAST_REPLIES = 15  # of one author, for a correlation within the author
PEOPLE_LABELLED = (20, 40, 80)  # batches of 200
N_SAVING_DRAWS = 10
PERSON = "person"
GPT4 = ("gpt-4", "gpt-4-empathy")


@dataclass(frozen=True, eq=False)
class Rated:
    """Replies with their words, and people's labels of them; ``cluster`` is resampled."""

    replies: pd.DataFrame
    labels: pd.DataFrame

    def part(self, kept: pd.Series) -> Rated:
        """Keep some replies and their labels."""
        replies = self.replies[kept].reset_index(drop=True)
        labels = self.labels[self.labels["reply_id"].isin(replies["reply_id"])].reset_index(
            drop=True
        )
        return Rated(replies, labels)

    def means(self) -> pd.DataFrame:
        """Return a row a reply: ``responder``, ``cluster``, and the mean of its labels."""
        mean = self.labels.groupby("reply_id")["score"].mean()
        return self.replies.assign(score=self.replies["reply_id"].map(mean))


def load_rated() -> dict[str, Rated]:
    """Read the sets that have replies with words and people's labels.

    They are Welivita and Pu's, RESORT's, and the therapists'.
    """
    return {"welivita": _welivita(), "resort": _resort(), "therapists": _therapists()}


def _welivita() -> Rated:
    (path,) = find_data("welivita").values()
    rows = pd.read_csv(path)
    parts = [
        pd.DataFrame(
            {
                "history_id": rows["dialog_id"],
                "dialogue_id": rows["dialog_id"],
                "cluster": rows["part_no"],
                "responder": responder,
                "by_people": responder == PERSON,
                "text": rows[f"response_{arm}"],
                "rater": rows[f"annotator_{arm}"],
                "score": rows[f"rating_{arm}"],
            }
        )
        for responder, arm in SOURCES["welivita"].reading["arms"].items()
    ]
    return _rated("welivita", pd.concat(parts, ignore_index=True))


def _resort() -> Rated:
    (path,) = find_data("resort").values()
    rows = pd.json_normalize(json.loads(path.read_text(encoding="utf-8")))
    people = SOURCES["resort"].reading["people"]
    replies = pd.DataFrame(
        {
            "history_id": rows["Reddit ID"] + " " + rows["appraisal_dimension_id"].astype(str),
            "dialogue_id": rows["Reddit ID"],
            "cluster": rows["Reddit ID"],
            # A model that was guided in another way is another author.
            "responder": rows[["model", "pipeline", "method"]].agg(" ".join, axis=1).str.strip(),
            "by_people": rows["model"].isin(people),
            "text": rows["reappraisal_response"],
            "reply_id": "resort-" + rows.index.astype(str),
        }
    )
    parts = [
        replies.assign(
            rater=rows[f"human_eval_annotation_{number}.annotator"].astype(str),
            score=rows[f"human_eval_annotation_{number}.empathy"].astype(float),
        )
        for number in (1, 2)
    ]
    return _rated("resort", pd.concat(parts, ignore_index=True))


def _therapists() -> Rated:
    path = find_data("therapists")["all_combined.csv"]
    rows = pd.read_csv(path, index_col=0)
    rows = rows[rows["human_classification"].notna() & rows["model_response"].notna()].reset_index(
        drop=True
    )
    by_people = rows["participant_type"] == "human_therapist"
    replies = pd.DataFrame(
        {
            "history_id": rows["id"],
            "dialogue_id": rows["id"],
            "cluster": rows["id"],
            "responder": rows["participant_type"],
            "by_people": by_people,
            "text": rows["model_response"],
            "rater": "people",
            "score": rows["correct_response"].astype(float),
        }
    )
    return _rated("therapists", replies)


def _rated(name: str, rows: pd.DataFrame) -> Rated:
    if "reply_id" not in rows:
        rows = rows.assign(reply_id=f"{name}-" + rows.index.astype(str))
    labels = rows[["reply_id", "rater", "score"]].assign(
        rater_kind="human", state="valid", dimension="overall"
    )
    replies = rows.drop(columns=["rater", "score"]).drop_duplicates("reply_id", ignore_index=True)
    # Ids of platforms stay outside: a cluster is its number.
    replies["cluster"] = pd.factorize(replies["cluster"])[0]
    return Rated(replies.assign(licence=SOURCES[name].licence), labels)


def learning_curve(rated: Rated, sizes: Sequence[int] = SIZES) -> pd.DataFrame:
    """Train on some labels of Welivita and Pu's, and compare with other batches and raters.

    A fifth of the batches is left out in turn; of the others as many as a size asks for are drawn,
    `N_DRAWS` times. A row is a size, a guess and a measure, with an interval over the batches left
    out.
    """
    means = rated.means()
    n_batches = means["cluster"].nunique()
    rows = []
    for size in sizes:
        rng = estimate_rng(SEED, f"trained on {size}")
        # Where all batches that are not left out are used, another draw would be the same.
        n_draws = 1 if size >= SIZES[-1] else N_DRAWS
        drawn: list[dict[str, Array]] = []
        for _ in range(n_draws):
            fold_of = rng.permutation(np.arange(n_batches) % N_FOLDS)
            guesses = means[["reply_id"]].assign(
                words=np.nan, author=np.nan, length=np.nan, words_and_author=np.nan
            )
            for fold in range(N_FOLDS):
                held = means["cluster"].map(dict(enumerate(fold_of == fold)))
                chosen = rng.choice(
                    np.flatnonzero(fold_of != fold), size // BATCH_LABELS, replace=False
                )
                made = _guesses(rated, means["cluster"].isin(chosen), held)
                for name, values in made.items():
                    guesses.loc[held, name] = values
            drawn.append({str(name): guesses[name].to_numpy() for name in guesses.columns[1:]})
        rows += [{"n_labels": size, **row} for row in _measure_guesses(means, drawn, rng)]
    return pd.DataFrame(rows)


def _guesses(rated: Rated, chosen: pd.Series, held: pd.Series) -> dict[str, Array]:
    """Train on the replies chosen, and predict the held-out scores, by each method."""
    learnt, held_out = rated.part(chosen), rated.replies[held]
    means = learnt.means()
    train = partial(
        train_judge,
        learnt.replies,
        learnt.labels,
        n_folds=2,
        leave_out=["dialogue_id"],
    )
    plain, centred = train(), train(within="responder")
    by_author = means.groupby("responder")["score"].mean()
    slope, level = np.polyfit(_log_words(means["text"]), means["score"], deg=1)
    # What the words add within an author, upon the author's mean.
    known = centred.score(learnt.replies.assign(**_renamed(learnt.replies)))
    usual = known.groupby("responder")["score"].mean()
    words = centred.score(held_out)["score"].to_numpy()
    at = held_out["responder"]
    return {
        "words": plain.score(held_out)["score"].to_numpy(),
        "author": at.map(by_author).to_numpy(),
        "length": level + slope * _log_words(held_out["text"]),
        "words_and_author": at.map(by_author).to_numpy() + words - at.map(usual).to_numpy(),
    }


def _renamed(replies: pd.DataFrame) -> dict[str, pd.Series]:
    """Rename dialogues, for a judge that refuses those it was trained on.

    Here only a mean over them is wanted.
    """
    return {
        column: "again-" + replies[column].astype(str) for column in ("history_id", "dialogue_id")
    }


def _log_words(texts: pd.Series) -> Array:
    counts: Array = texts.str.split().map(len).to_numpy(float)
    return np.log1p(counts)


def _measure_guesses(
    means: pd.DataFrame, drawn: list[dict[str, Array]], rng: np.random.Generator
) -> list[dict[str, object]]:
    """Compare predictions with labels, over all batches and in resamples of them.

    Each value is the mean over draws.
    """
    by_batch = means.groupby("cluster").indices
    n_batches = len(by_batch)
    names = list(drawn[0])
    if absent := [
        name for name in names if any(np.isnan(guesses[name]).any() for guesses in drawn)
    ]:
        raise ValueError(
            f"Replies without a guess from {', '.join(absent)}: the judge abstained. Train on more"
            " labels."
        )
    # (replies, draws)
    columns = {name: np.stack([guesses[name] for guesses in drawn], axis=1) for name in names}
    responder = means["responder"].to_numpy()
    # One row a message, one column an author.
    where = means.reset_index().pivot_table("index", "history_id", "responder").astype(int)
    message_batch = means["cluster"].to_numpy()[where[PERSON].to_numpy()]
    messages_of = pd.Series(np.arange(len(where))).groupby(message_batch).indices
    score = means["score"].to_numpy()

    def measure(batches: npt.NDArray[np.int64]) -> dict[tuple[str, str], float]:
        rows = np.concatenate([by_batch[batch] for batch in batches])
        messages = where.iloc[np.concatenate([messages_of[batch] for batch in batches])]
        made = {}
        for name, values in columns.items():
            if name != "author":  # within an author a name guesses nothing
                within = [
                    _rank_correlation(
                        values[rows[responder[rows] == one]], score[rows[responder[rows] == one]]
                    )
                    for one in where.columns
                ]
                made[name, "rho_within_author"] = float(np.mean(within))
            made[name, "rho_overall"] = _rank_correlation(values[rows], score[rows])
            made[name, "right_person_or_gpt4"] = _right(values, score, messages)
        gain = (
            made["words_and_author", "right_person_or_gpt4"]
            - made["author", "right_person_or_gpt4"]
        )
        made["words_and_author_less_author", "right_person_or_gpt4"] = gain
        return made

    measured = measure(np.arange(n_batches))
    again = pd.DataFrame(
        [measure(rng.integers(n_batches, size=n_batches)) for _ in range(N_RESAMPLES)]
    )
    rows = []
    for (guess, what), value in measured.items():
        ends = interval_of(
            value, again[guess, what].to_numpy(), n_batches, CI_LEVEL, least=-1.0, most=1.0
        )
        rows.append(
            {"guess": guess, "measure": what, "value": value, "ci_low": ends[0], "ci_high": ends[1]}
        )
    return rows


def _right(values: Array, score: Array, messages: pd.DataFrame) -> float:
    """Compute how often a prediction names the reply with the higher score.

    Of a person's and GPT-4's replies; equal predictions for both are half right.
    """
    right = []
    for model in GPT4:
        a, b = messages[PERSON].to_numpy(), messages[model].to_numpy()
        truth = np.sign(score[a] - score[b])
        decided = truth != 0
        guess = np.sign(values[a] - values[b])[decided]
        right.append((1.0 + guess * truth[decided, None]) / 2.0)
    return float(np.concatenate(right).mean())


def _rank_correlation(guesses: Array, score: Array) -> float:
    """Compute the mean of Spearman's rho between columns of predictions and scores.

    It is 0 where a prediction is constant.
    """
    ranks = stats.rankdata(guesses, axis=0)
    truth = stats.rankdata(score)
    ranks = ranks - ranks.mean(axis=0)
    truth = truth - truth.mean()
    size = np.sqrt((ranks**2).sum(axis=0) * (truth**2).sum())
    return float(np.divide(truth @ ranks, size, out=np.zeros(len(size)), where=size > 0).mean())


def transfer(sets: Mapping[str, Rated]) -> pd.DataFrame:
    """Train on each part of each set and test on each other, by rho within an author's replies.

    The correlations are averaged over authors. ``length_alone`` is that of the number of words,
    with the sign that it has on these replies.

    On the set that a judge was trained on, answers come from a fold without the dialogue, whoever
    wrote the reply.
    """
    parts = {
        (name, who): rated.part(rated.replies["by_people"] == (who == "people"))
        for name, rated in sets.items()
        for who in ("people", "models")
    }
    by_length = {}
    for key, part in parts.items():
        if part.replies["responder"].value_counts().max() >= LEAST_REPLIES:
            words = part.replies.set_index("reply_id")["text"].map(lambda text: len(text.split()))
            means = part.means()
            guess = means["reply_id"].map(words)
            by_length[key] = _within_authors(means.assign(guess=guess), f"length on {key}")
    rows = []
    for (name, who), part in parts.items():
        if len(part.labels) < LEAST_LABELS:
            continue
        judge = train_judge(
            sets[name].replies,
            part.labels,
            leave_out=["dialogue_id"],
            n_folds=5,
        )
        for (other_name, other_who), other in parts.items():
            if (other_name, other_who) not in by_length:
                continue
            answers = judge.predictions if other_name == name else judge.score(other.replies)
            means = other.means()
            guess = means["reply_id"].map(answers.set_index("reply_id")["score"])
            trained_on, tried_on = f"{name}: {who}", f"{other_name}: {other_who}"
            row = {
                "trained_on": trained_on,
                "tried_on": tried_on,
                "n_labels": len(part.labels),
                "n_replies": len(means),
            }
            row |= _within_authors(means.assign(guess=guess), f"{trained_on} on {tried_on}")
            length = by_length[other_name, other_who]
            rows.append(row | {"length_alone": length["rho_within_author"]})
    return pd.DataFrame(rows)


def _within_authors(rows: pd.DataFrame, name: str) -> dict[str, object]:
    rows = rows.dropna(subset=["guess"])
    counts = rows["responder"].value_counts()
    authors = counts.index[counts >= LEAST_REPLIES]
    rows = rows[rows["responder"].isin(authors)].reset_index(drop=True)
    groups = rows.groupby("cluster").indices
    values = [rows[column].to_numpy() for column in ("guess", "score", "responder")]

    def measure(clusters: Sequence[Hashable] | Array) -> float:
        at = np.concatenate([groups[cluster] for cluster in clusters])
        guess, score, who = (value[at] for value in values)
        return float(
            np.mean(
                [
                    _rank_correlation(guess[who == one][:, None], score[who == one])
                    for one in authors
                ]
            )
        )

    rng = estimate_rng(SEED, name)
    clusters = list(groups)
    again = np.array(
        [measure(rng.choice(np.array(clusters), len(clusters))) for _ in range(N_RESAMPLES)]
    )
    value = measure(clusters)
    low, high = interval_of(value, again, len(clusters), CI_LEVEL, least=-1.0, most=1.0)
    return {
        "rho_within_author": value,
        "ci_low": low,
        "ci_high": high,
        "n_clusters": len(clusters),
        "n_authors": len(authors),
    }


def ceilings(resort: Rated) -> pd.DataFrame:
    r"""Return what the reliability of labels allows, beside what a trained judge reaches.

    With r the correlation of two raters, a reader without noise would correlate :math:`\sqrt r`
    with one label and :math:`\sqrt{2r / (1 + r)}` with the mean of two (Spearman 1904).
    """
    two = resort.labels.groupby("reply_id")["score"].agg(["first", "last"])
    rows = resort.replies.join(two, on="reply_id")
    judge = train_judge(resort.replies, resort.labels, leave_out=["dialogue_id"])
    rows["guess"] = rows["reply_id"].map(judge.predictions.set_index("reply_id")["score"])
    groups = rows.groupby("cluster").indices
    columns = ["first", "last", "guess"]

    def measure(clusters: Sequence[Hashable] | Array, *, within: bool) -> tuple[float, float]:
        some = rows.iloc[np.concatenate([groups[cluster] for cluster in clusters])]
        values = some[columns]
        if within:
            values = values - some.groupby("responder")[columns].transform("mean")
        both = values[["first", "last"]]
        # Which of two raters is called the first is arbitrary.
        turned = pd.concat([both, both[["last", "first"]].set_axis(["first", "last"], axis=1)])
        return float(turned["first"].corr(turned["last"])), float(
            values["guess"].corr(both.mean(axis=1))
        )

    ceiling_rows = []
    for within in (False, True):
        rng = estimate_rng(SEED, f"two raters of RESORT, within authors: {within}")
        clusters = list(groups)
        value = measure(clusters, within=within)
        again = np.array(
            [
                measure(rng.choice(np.array(clusters), len(clusters)), within=within)
                for _ in range(N_RESAMPLES)
            ]
        )
        ends = [
            interval_of(value[k], again[:, k], len(clusters), CI_LEVEL, least=-1.0, most=1.0)
            for k in (0, 1)
        ]
        ceiling_rows.append(
            {
                "data": "resort, empathy",
                "within_author": within,
                "n_replies": len(rows),
                "reliability": value[0],
                "reliability_low": ends[0][0],
                "reliability_high": ends[0][1],
                "judge": value[1],
                "judge_low": ends[1][0],
                "judge_high": ends[1][1],
            }
        )
    table = pd.concat([pd.DataFrame(ceiling_rows), _experts()], ignore_index=True)
    low = table["reliability"].clip(lower=0.0)
    return table.assign(ceiling_one=np.sqrt(low), ceiling_two=np.sqrt(2 * low / (1 + low)))


def _experts() -> pd.DataFrame:
    """Compute the correlation of two of three experts: the median and best dimension.

    There are 21, on the empathic conversations.
    """
    scores = open_run("public").read("scores", "empathic_comm")
    scores = scores[scores["rater"].str.startswith("expert") & (scores["state"] == "valid")]
    by_dimension = {}
    for name, one_dimension in scores.groupby("dimension"):
        wide = one_dimension.pivot_table(index="reply_id", columns="rater", values="score").corr()
        by_dimension[name] = float(
            np.mean([wide[one][other] for one, other in combinations(wide.columns, 2)])
        )
    correlations = pd.Series(by_dimension)
    rows = [("median", correlations.median()), ("highest", correlations.max())]
    about = {"within_author": False, "n_replies": scores["reply_id"].nunique()}
    return pd.DataFrame(
        [{"data": f"empathic_comm, {which} of 21", "reliability": r, **about} for which, r in rows]
    )


def savings(rated: Rated) -> pd.DataFrame:
    """Rate three authors with some labelled batches, with and without a trained judge.

    The batches are Welivita and Pu's.

    The judge answers labelled batches out of fold and all others by the mean over folds. A row is a
    number of labelled batches, with means over draws of them; widths are of 95 % intervals, in
    log-odds. An interval holds if it has the strength by people's verdicts on all 200 batches in
    it.
    """
    means = rated.means()
    people = _as_verdicts(means, "score", "people", "human")
    truth = fit_ratings(people, n_resamples=0).strength
    rows = []
    for n_labelled in PEOPLE_LABELLED:
        rng = estimate_rng(SEED, f"saving at {n_labelled}")
        for _ in range(N_SAVING_DRAWS):
            chosen = rng.choice(means["cluster"].unique(), n_labelled, replace=False)
            labelled = rated.replies["cluster"].isin(chosen)
            ids = rated.replies.loc[labelled, "reply_id"]
            judge = train_judge(
                rated.replies,
                rated.labels[rated.labels["reply_id"].isin(ids)],
                within="responder",
                n_folds=5,
            )
            answers = means.assign(
                guess=means["reply_id"].map(judge.predictions.set_index("reply_id")["score"])
            )
            by_judge = _as_verdicts(answers, "guess", judge.name, "trained")
            votes = pd.concat(
                [people[people["dialogue_id"].isin(chosen)], by_judge], ignore_index=True
            )
            powered = prediction_powered_ratings(votes, judge="trained")
            table = powered.table.set_index("responder")
            at = truth.loc[table.index]
            rows.append(
                {
                    "n_labelled": n_labelled,
                    "rho_squared": powered.rho_squared,
                    "saving": powered.saving,
                    "width": (table["ci_high"] - table["ci_low"]).mean(),
                    "people_width": (table["people_high"] - table["people_low"]).mean(),
                    "holds": at.between(table["ci_low"], table["ci_high"]).mean(),
                    "people_holds": at.between(table["people_low"], table["people_high"]).mean(),
                }
            )
    return (
        pd.DataFrame(rows).groupby("n_labelled").mean().reset_index().assign(n_draws=N_SAVING_DRAWS)
    )


def _as_verdicts(means: pd.DataFrame, column: str, rater: str, kind: str) -> pd.DataFrame:
    """Turn numbers of replies into verdicts on all pairs of replies to a message.

    The dialogue is the batch.
    """
    wide = means.pivot_table(column, ["cluster", "history_id"], "responder").reset_index()
    parts = []
    for a, b in combinations(sorted(means["responder"].unique()), 2):
        given = wide.dropna(subset=[a, b])  # a reply from which a judge abstained is in no pair
        verdict = np.select([given[a] > given[b], given[a] < given[b]], ["a", "b"], "tie")
        parts.append(
            given[["cluster", "history_id"]].assign(responder_a=a, responder_b=b, verdict=verdict)
        )
    rows = pd.concat(parts, ignore_index=True).rename(columns={"cluster": "dialogue_id"})
    rows["pair_id"] = rows["history_id"] + "--" + rows["responder_a"] + "--" + rows["responder_b"]
    return rows.assign(rater=rater, rater_kind=kind, dimension="overall", state="valid")


def make_tables() -> dict[str, Callable[[], pd.DataFrame]]:
    """Name the tables of ``data/trained/`` and what makes each."""
    sets = load_rated()
    return {
        "curve": lambda: learning_curve(sets["welivita"]),
        "transfer": lambda: transfer(sets),
        "ceiling": lambda: ceilings(sets["resort"]),
        "saving": lambda: savings(sets["welivita"]),
    }


def main(names: Sequence[str] = ()) -> None:
    """Write the tables, or those named."""
    folder = find_root() / "data" / "trained"
    folder.mkdir(exist_ok=True)
    for name, make in make_tables().items():
        if not names or name in names:
            make().to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
            print(f"{name}.csv")


if __name__ == "__main__":
    main(sys.argv[1:])
