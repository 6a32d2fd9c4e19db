"""Published studies as tables, from official files and ``data/sources.yaml``.

There, ``reading`` describes each file.

Each function takes a study with its files and gives its rows; ``derive`` fills in what is evident
and checks. Three of them hold what their description does not say.

- ``therapists``: replies of people and bots were classed by people, those of the five models by
  GPT-4o, and none by both, so the classers' strictness cannot be compared. The models answered
  after transcripts of 0 to 600 messages, people and bots without. ``llama-2-70b`` has no reply in
  173 of 350 rows, which the release counts as not appropriate; here they have the state ``error``
  and no score. A participant number is no person: in each of two forms of five moments, one number
  has six of the eight replies to every moment, in the same place.
- ``welivita``: in each of three arms one rater rated the replies of a batch of ten messages, and
  rated no other: 600 raters. So a comparison runs across raters, and the batch is the cluster of
  messages and of raters alike.
- ``mentalalign``: see :mod:`data.make.mentalalign`; studies of whole conversations:
  :mod:`data.make.conversations`.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data.make.columns import keep_columns, need_score, need_words
from data.make.conversations import CONVERSATIONS
from data.make.download import find_official
from data.make.mentalalign import read_mentalalign
from heart_utils.sources.catalogue import Source, find_source
from heart_utils.sources.defaults import complete
from heart_utils.sources.load import load_responders
from heart_utils.tables import LEVELS, DataError, check_table

__all__ = ["PUBLISHED"]

Files = Mapping[str, Path]

#: What is read of a vote of MT-Bench.
VOTE = ["question_id", "turn", "model_a", "model_b", "judge", "winner"]

_log = logging.getLogger(__name__)


def derive(name: str, **options: Any) -> pd.DataFrame:
    """Derive the table of a published study from its official files."""
    source = find_source(name)
    return check_table(
        source.table,
        complete(source.table, PUBLISHED[name](source, find_official(name), **options)),
    )


def read_mtbench(source: Source, files: Files) -> pd.DataFrame:
    """Every vote: 3,355 by 65 people (2,668 by experts, 687 by authors), 2,400 by GPT-4."""
    facts = source.reading
    kinds = {"human.jsonl": "human", "gpt4_pair.jsonl": "model"}
    votes = pd.concat(
        [
            pd.read_json(files[name], lines=True)[VOTE].assign(kind=kind)
            for name, kind in kinds.items()
        ],
        ignore_index=True,
    )
    need_words(source, "the files", votes, "winner", facts["winners"])
    pair = votes[["model_a", "model_b"]].apply(sorted, axis=1)
    repeat = (
        votes.assign(pair=pair.map(tuple))
        .groupby(["question_id", "turn", "pair", "judge"])
        .cumcount()
    )
    group = "turn_" + votes["turn"].astype(str)
    dialogue = "mtbench-" + votes["question_id"].astype(str).str.zfill(3)
    rater = votes["judge"].replace(facts["judges"])
    families = load_responders(source.name).set_index("responder")["family"]
    own = [
        votes[side].map(families) == rater.map(facts["families"]) for side in ("model_a", "model_b")
    ]
    named = {"model_a": "responder_a", "model_b": "responder_b", "kind": "rater_kind"}
    rows = (
        votes[list(named)]
        .rename(columns=named)
        .assign(
            history_id=dialogue + "-" + group,
            dialogue_id=dialogue,
            rater=rater,
            group=group,
            repeat=repeat,
            protocol=source.name,
        )
    )
    rows["verdict"] = votes["winner"].map(facts["winners"])
    rows["state"] = (votes["winner"] == "tie (inconsistent)").map(
        {True: "inconsistent", False: "valid"}
    )
    rows["flags"] = [["own_family"] if is_own else [] for is_own in own[0] | own[1]]
    n_repeated = int((repeat > 0).sum())
    _log.info(
        "mtbench: %d vote(s) repeat an earlier one of the same rater on the same pair; kept with"
        " repeat 1",
        n_repeated,
    )
    people, judge = rows[rows["rater_kind"] == "human"], rows[rows["rater_kind"] == "model"]
    rows.attrs["notes"] = {
        "votes of people": len(people),
        "people": int(people["rater"].nunique()),
        "pairs of answers that people compared": int(
            (people["history_id"] + pair.astype(str)).nunique()
        ),
        "votes by which one rater answered a pair again": n_repeated,
        "verdicts of GPT-4": len(judge),
        "verdicts of GPT-4 that its two orders contradict": int(
            (judge["state"] == "inconsistent").sum()
        ),
    }
    return rows


def read_empathic_comm(source: Source, files: Files) -> pd.DataFrame:
    """Read 200 conversations rated by three experts, a crowd and three models.

    50 from each of four sets, on 21 dimensions.
    """
    people, models = source.reading["people"], source.reading["models"]
    parts: list[pd.DataFrame] = []
    for group, of in source.reading["sets"].items():
        rated = {
            who: pd.read_csv(files[f"{group}__{who}_ratings.csv"], dtype={of["id"]: str})
            for who in (*people, *models)
        }
        histories = {
            id_: f"{group}-{number:03d}" for number, id_ in enumerate(rated["crowd"][of["id"]], 1)
        }
        for who, table in rated.items():
            file = f"{group}__{who}_ratings.csv"
            table = keep_columns(source.name, file, table, [of["id"], *of["dimensions"]])
            need_words(
                source, file, table, of["id"], histories, "a conversation of the crowd's file"
            )
            for dimension in of["dimensions"]:
                need_score(source, file, table, dimension, of["scale"])
            long = table.melt(of["id"], of["dimensions"], "dimension", "score").assign(
                rater=(people | models)[who]
            )
            flags = [["aggregated"] if who == "crowd" else [] for _ in range(len(long))]
            rows = long.assign(
                history_id=long[of["id"]].map(histories),
                group=group,
                responder=f"{group}-supporter",
            )
            kind = "human" if who in people else "model"
            parts.append(
                rows.drop(columns=of["id"]).assign(rater_kind=kind, protocol="likert", flags=flags)
            )
    scores = pd.concat(parts, ignore_index=True)
    scores.attrs["notes"] = {
        "conversations": int(scores["history_id"].nunique()),
        "scores": len(scores),
    }
    return scores


def read_recipients(source: Source, files: Files) -> pd.DataFrame:
    """Read what 455 people felt about one reply to their trouble.

    A person or an AI wrote it, and it was labelled as either.
    """
    facts = source.reading
    own_file, observed_file = files
    columns_used = ["id", "responseR", "labelR", *facts["trust"], *facts["items"]]
    own = keep_columns(source.name, own_file, pd.read_csv(files[own_file]), columns_used).copy()
    observed = keep_columns(
        source.name, observed_file, pd.read_csv(files[observed_file]), ["OriginalDiscloserID"]
    )
    if set(observed["OriginalDiscloserID"]) - set(own["id"]):
        raise DataError(f"{observed_file}: it names recipients whom {own_file} lacks.")
    for column in ("responseR", "labelR"):
        need_words(source, own_file, own, column, facts[column])
    one, other = facts["trust"]
    own["trust"] = own[one].fillna(own[other])
    items = facts["items"] | {"trust": "trust"}
    for item in items:
        need_score(source, own_file, own, item, facts["scale"])
    names = [
        *observed["OriginalDiscloserID"],
        *own.loc[~own["id"].isin(observed["OriginalDiscloserID"]), "id"],
    ]
    number = own["id"].map({name: f"{position:03d}" for position, name in enumerate(names, 1)})
    about = {
        "rater": "recipient_" + number,
        "history_id": "perceived_empathy-" + number,
        "responder": own["responseR"].map(facts["responseR"]),
        "label": own["labelR"].map(facts["labelR"]),
    }
    rows = (
        pd.DataFrame(about)
        .join(own[list(items)].rename(columns=items))
        .melt(list(about), None, "dimension", "score")
    )
    rows = rows.sort_values(["rater", "dimension"], ignore_index=True)
    return rows.assign(rater_kind="human", protocol="likert")


def read_therapists(source: Source, files: Files) -> pd.DataFrame:
    """Read classes of replies to ten hard moments.

    There are 80 replies of therapists, 350 of each of five models, ten of each of five bots.
    """
    facts = source.reading
    (file,) = files
    columns_used = [*facts["used"], facts["by_people"], facts["by_model"]]
    rows = keep_columns(source.name, file, pd.read_csv(files[file]), columns_used)
    by_people, by_model = rows[facts["by_people"]], rows[facts["by_model"]]
    need_words(source, file, rows, "participant_type", facts["writers"])
    responder = rows["participant_type"].map(facts["writers"])
    answer = by_people.fillna(by_model)
    score = (answer == rows["verification_correct"]).astype(float).where(answer.notna())
    for wrong, what in (
        (answer.notna() & ~answer.isin(["yes", "no"]), "a class that is neither yes nor no"),
        (answer.isna() & rows["model_response"].notna(), "a reply without a class"),
        # The release counts a missing reply as not right.
        ((score == 1) != rows["correct_response"], "a class that contradicts correct_response"),
    ):
        if wrong.any():
            raise DataError(
                f"{file}: row {int(wrong.to_numpy().argmax())} has {what} ({int(wrong.sum())} rows"
                " like it)."
            )
    # What was shown: the moment, and for models a number for the transcript and how many of its
    # messages.
    codes = pd.Series(pd.factorize(rows["transcript_index"])[0], index=rows.index)
    messages = rows["message_number"].fillna(0).astype(int).astype(str)
    history_shown = rows["id"] + "-t" + (codes + 1).astype(str).str.zfill(2) + "-" + messages
    history = rows["id"].where(codes < 0, history_shown)
    reply_number = rows.groupby(["id", "participant_type"]).cumcount() + 1
    people = responder == "therapist"
    # The release numbers its therapists, and gives several of them the same number: who wrote is
    # not known closer than that.
    numbers = pd.Series(pd.factorize(rows["participant_id"].where(people))[0] + 1, index=rows.index)
    author = "participant_" + numbers.astype(str)
    reply = history + "--" + responder
    return pd.DataFrame(
        {
            "reply_id": reply.where(~people, reply + "_" + reply_number.astype(str)),
            "history_id": history,
            "dialogue_id": rows["id"],
            "responder": responder,
            "rater": by_people.notna().map({True: "people", False: "gpt-4o"}.get),
            "rater_kind": by_people.notna().map({True: "human", False: "model"}.get),
            "dimension": "appropriate",
            "score": score,
            "state": answer.notna().map({True: "valid", False: "error"}.get),
            "protocol": "yes_no",
            "group": rows["condition"].str.partition(",")[0].str.replace(" ", "_"),
            "flags": [["own_family"] if name == "gpt-4o" else [] for name in responder],
            "author_id": author.where(people),
        }
    )


def read_welivita(source: Source, files: Files) -> pd.DataFrame:
    """Read which of two replies to one of 2,000 messages a stranger rated higher.

    One is a person's, the other one of two of GPT-4.
    """
    arms, ratings = source.reading["arms"], source.reading["ratings"]
    (file,) = files
    used = [
        f"{what}_{arm}"
        for what in ("annotator", "rating", "response", "empathy_propensity")
        for arm in arms.values()
    ]
    rows = keep_columns(source.name, file, pd.read_csv(files[file]), ["part_no", "emotion", *used])
    for arm in arms.values():
        need_words(source, file, rows, f"rating_{arm}", ratings)
        raters = rows.groupby("part_no")[f"annotator_{arm}"].nunique()
        if (raters > 1).any():
            raise DataError(
                f"{file}: batch {raters.idxmax()} has {raters.max()} raters of the arm {arm};"
                " expected one."
            )
    # The raters' own empathy, in thirds of all raters.
    own = {author: rows[f"empathy_propensity_{arm}"] for author, arm in arms.items()}
    one_each = pd.concat([values.groupby(rows["part_no"]).first() for values in own.values()])
    cuts = [-np.inf, *one_each.quantile([1 / 3, 2 / 3]), np.inf]
    level = {
        author: pd.cut(values, cuts, labels=LEVELS).astype(str) for author, values in own.items()
    }
    words = {
        author: rows[f"response_{arm}"].map(lambda text: len(text.split()))
        for author, arm in arms.items()
    }
    about = {
        "cluster": "batch_" + (rows["part_no"] + 1).astype(str).str.zfill(3),
        "emotion": rows["emotion"],
    }
    parts = []
    for a, b in itertools.combinations(arms, 2):
        longer = (words[a] - words[b]).clip(-1, 1).map({1: "a", 0: "same", -1: "b"})
        answers = {
            "score_a": rows[f"rating_{arms[a]}"],
            "score_b": rows[f"rating_{arms[b]}"],
            "longer": longer,
        }
        answers |= {"empathy_a": level[a], "empathy_b": level[b]}
        parts.append(pd.DataFrame(about | answers).assign(responder_a=a, responder_b=b))
    pairs = pd.concat(parts, ignore_index=True)
    keys = ["responder_a", "responder_b", "cluster"]
    by_batch = _tally(pairs, [*keys, "longer", "empathy_a", "empathy_b"], by="batch")
    by_emotion = _tally(pairs.assign(cluster=pairs["emotion"]), keys, by="emotion")
    return pd.concat([by_batch, by_emotion], ignore_index=True).assign(
        study=source.name, dimension="rating"
    )


def read_resort(source: Source, files: Files) -> pd.DataFrame:
    """Read which reply to a Reddit post a psychologist scored higher: a's or b's.

    One of four psychologists; a is a person's reply, b a model's.
    """
    facts = source.reading
    people, models, scales = facts["people"], facts["models"], facts["scales"]
    (file,) = files
    rows = pd.json_normalize(json.loads(files[file].read_text(encoding="utf-8")))
    reply_keys = ["Reddit ID", "appraisal_dimension_id"]
    used = [
        f"human_eval_annotation_{number}.{what}"
        for number in (1, 2)
        for what in ("annotator", *scales)
    ]
    rows = keep_columns(
        source.name, file, rows, [*reply_keys, "model", "pipeline", "method", *used]
    )
    need_words(source, file, rows, "model", people | models)
    plain = rows["pipeline"].isin(facts["plain"])
    posts = {
        post: f"post_{position:02d}" for position, post in enumerate(rows["Reddit ID"].unique(), 1)
    }
    about = rows[[*reply_keys, "model"]].assign(
        cluster=rows["Reddit ID"].map(posts),
        setup=rows["pipeline"].where(plain, rows["pipeline"] + " " + rows["method"]),
        stratum=plain.map({True: "plain", False: "guided"}),
    )
    parts: list[pd.DataFrame] = []
    for number in (1, 2):
        given = rows[[f"human_eval_annotation_{number}.{what}" for what in ("annotator", *scales)]]
        given.columns = ["annotator", *scales]
        for what, scale in scales.items():
            need_score(source, file, given, what, scale)
        # Higher is better on every dimension.
        given = given.assign(harmfulness=1 - given["harmfulness"]).rename(
            columns=facts["dimensions"]
        )
        parts.append(about.join(given).melt([*about, "annotator"], None, "dimension", "score"))
    scores = pd.concat(parts, ignore_index=True)
    names = {
        name: f"psychologist_{position}"
        for position, name in enumerate(sorted(scores["annotator"].unique()), 1)
    }
    scores["rater"] = scores["annotator"].map(names)
    same = [*reply_keys, "cluster", "rater", "dimension"]
    a = scores.assign(responder_a=scores["model"].map(people)).dropna(subset="responder_a")
    b = scores.assign(responder_b=scores["model"].map(models)).dropna(subset="responder_b")
    pairs = a[[*same, "responder_a", "score"]].merge(
        b[[*same, "responder_b", "setup", "stratum", "score"]], on=same, suffixes=("_a", "_b")
    )
    keys = ["dimension", "responder_a", "responder_b", "cluster"]
    by_post = _tally(pairs, [*keys, "rater", "stratum"], by="post")
    by_setup = _tally(pairs.assign(cluster=pairs["setup"]), keys, by="setup")
    return pd.concat([by_post, by_setup], ignore_index=True).assign(study=source.name)


_SINGLE_REPLIES: dict[str, Callable[..., pd.DataFrame]] = {
    "mtbench": read_mtbench,
    "mentalalign": read_mentalalign,
    "empathic_comm": read_empathic_comm,
    "recipients": read_recipients,
    "therapists": read_therapists,
    "welivita": read_welivita,
    "resort": read_resort,
}

PUBLISHED = _SINGLE_REPLIES | CONVERSATIONS
"""Study -> what reads its official files."""


def _tally(pairs: pd.DataFrame, keys: Sequence[str], *, by: str) -> pd.DataFrame:
    """Count how often either of two replies was rated higher."""
    difference = pairs["score_a"].astype(float) - pairs["score_b"].astype(float)
    counts = pd.DataFrame({"n_a": difference > 0, "n_tie": difference == 0, "n_b": difference < 0})
    return counts.groupby([pairs[key] for key in keys]).sum().reset_index().assign(by=by)
