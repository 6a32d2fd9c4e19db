"""MT-Bench: votes of people, several a pair, beside GPT-4's verdicts."""

from __future__ import annotations

import logging
import os

import pandas as pd

from heart_utils.sources.catalogue import FAMILIES, load_responders
from heart_utils.sources.errors import DataError
from heart_utils.sources.fetch import find_data
from heart_utils.tables import check_table

__all__ = ["GPT_4"]

GPT_4 = "gpt-4"
"""What the rater is called that the release calls ``gpt4_pair``."""

WINNERS = {"model_a", "model_b", "tie", "tie (inconsistent)"}

_log = logging.getLogger(__name__)


def load_mtbench(*, mirror: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Load every vote: 3,355 by 65 people (2,668 by experts, 687 by authors), 2,400 by GPT-4."""
    files = find_data("mtbench", mirror=mirror)
    people = _verdicts(pd.read_json(files["human.jsonl"], lines=True), "human")
    judge = _verdicts(pd.read_json(files["gpt4_pair.jsonl"], lines=True), "model")
    votes = check_table("verdicts", pd.concat([people, judge], ignore_index=True))
    n_repeated = int((votes["repeat"] > 0).sum())
    _log.info("mtbench: %d vote(s) repeat an earlier one of the same rater on the same pair; kept with repeat 1", n_repeated)
    votes.attrs["notes"] = {
        "votes of people": len(people),
        "people": int(people["rater"].nunique()),
        "pairs of answers that people compared": int(people["pair_id"].nunique()),
        "votes by which one rater answered a pair again": n_repeated,
        "verdicts of GPT-4": len(judge),
        "verdicts of GPT-4 that its two orders contradict": int((judge["state"] == "inconsistent").sum()),
    }
    return votes


def _verdicts(votes: pd.DataFrame, rater_kind: str) -> pd.DataFrame:
    """Turn the release's rows into verdicts."""
    unknown = set(votes["winner"]) - WINNERS
    if unknown:
        raise DataError(f"mtbench: winner holds {sorted(unknown)}, expected {', '.join(sorted(WINNERS))}.")
    turned = votes["model_a"] > votes["model_b"]
    a = votes["model_a"].where(~turned, votes["model_b"])
    b = votes["model_b"].where(~turned, votes["model_a"])
    said = votes["winner"].map({"model_a": "a", "model_b": "b", "tie": "tie"})
    rater = votes["judge"].replace("gpt4_pair", GPT_4)
    dialogue = "mtbench-" + votes["question_id"].astype(str).str.zfill(3)
    group = "turn_" + votes["turn"].astype(str)
    pair = dialogue + "-" + group + "--" + a + "--" + b
    families = load_responders("mtbench").set_index("responder")["family"]
    judge = rater.map(FAMILIES)
    own = (a.map(families) == judge) | (b.map(families) == judge)
    return pd.DataFrame(
        {
            "comparison_id": pair,
            "pair_id": pair,
            "history_id": dialogue + "-" + group,
            "dialogue_id": dialogue,
            "slice": "standard",
            "responder_a": a,
            "responder_b": b,
            "rater": rater,
            "rater_kind": rater_kind,
            "dimension": "overall",
            "dimension_position": None,
            "verdict": said.where(~turned, said.map({"a": "b", "b": "a", "tie": "tie"})),
            "margin": None,
            "p_a": None,
            "state": (votes["winner"] == "tie (inconsistent)").map({True: "inconsistent", False: "valid"}),
            "order": None,
            "protocol": "mtbench",
            "answer_format": None,
            "repeat": votes.assign(pair=pair).groupby(["pair", "judge"]).cumcount(),
            "group": group,
            "flags": [["own_family"] if is_own else [] for is_own in own],
            "rationale": None,
            "call_id": None,
            "simulated": False,
        }
    )
