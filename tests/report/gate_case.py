"""Small simulated runs on disk, for the tests of the gate."""

import numpy as np
import pandas as pd

from heart_utils.runs import open_run
from heart_utils.tables import TABLES

DIMENSIONS = ("attunement", "overall")


def complete(name, table):
    """Fill the columns that a test does not care about."""
    filled = table.copy()
    for column, what in TABLES[name].items():
        if column not in filled and not what.optional:
            filled[column] = (
                [[] for _ in range(len(filled))]
                if what.kind == "list"
                else False
                if what.kind == "truth"
                else None
            )
    return filled


def write_run(
    folder, theta, *, seed=1, n=24, protocol="heart", words="", opponents_say="", judge="judge"
):
    """Write a small simulated run: histories, responders, replies, and verdicts in both orders."""
    rng = np.random.default_rng(seed)
    run = open_run(folder)
    ids = [f"h{i}" for i in range(n)]
    turns = [[{"speaker": "seeker", "text": f"Number {i}.{words}"}] for i in range(n)]
    fixed = {"source": "test", "slice": "standard", "licence": "CC0-1.0", "simulated": True}
    histories = pd.DataFrame(
        {"history_id": ids, "dialogue_id": [f"d{i}" for i in range(n)], "turns": turns, **fixed}
    )
    run.write("histories", complete("histories", histories))
    names = list(theta)
    responders = pd.DataFrame({"responder": names, "responder_kind": "model", "simulated": True})
    run.write("responders", complete("responders", responders))
    replies = pd.DataFrame(
        [(h, r) for h in ids for r in names], columns=["history_id", "responder"]
    )
    replies["reply_id"] = replies["history_id"] + ":" + replies["responder"]
    replies["text"] = (
        "reply by "
        + replies["responder"]
        + np.where(replies["responder"].isin(["x", "y"]), opponents_say, "")
    )
    run.write("replies", complete("replies", replies.assign(state="valid", simulated=True)))
    rows = []
    for number, h in enumerate(ids):
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                for order, lean in (("ab", 0.3), ("ba", -0.3)):
                    for dimension in DIMENSIONS:
                        wins = rng.random() < 1 / (1 + np.exp(theta[other] - theta[one] - lean))
                        pair = f"{h}:{one}:{other}"
                        rows.append(
                            (
                                f"{pair}:{order}",
                                pair,
                                h,
                                f"d{number}",
                                one,
                                other,
                                dimension,
                                order,
                                "a" if wins else "b",
                            )
                        )
    columns = [
        "comparison_id",
        "pair_id",
        "history_id",
        "dialogue_id",
        "responder_a",
        "responder_b",
        "dimension",
        "order",
    ]
    verdicts = pd.DataFrame(rows, columns=[*columns, "verdict"]).assign(
        slice="standard",
        rater=judge,
        rater_kind="model",
        state="valid",
        protocol=protocol,
        repeat=0,
        simulated=True,
    )
    run.write("verdicts", complete("verdicts", verdicts))
    return run


THETA = {"old": 0.0, "x": 1.4, "y": -1.4}
