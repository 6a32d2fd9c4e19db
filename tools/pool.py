"""Pool verdicts of several labs on one leaderboard: ``pack`` a run, ``join`` files.

``python -m tools.pool pack RUN --lab NAME`` writes ``build/pool/NAME.parquet``: the verdicts
without their reasons, with their manifest inside. ``python -m tools.pool join FILE FILE ...``
checks that they may be pooled, writes a run, and shows its leaderboard with labs as clusters.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from heart_collect.calls.ledger import open_ledger
from heart_collect.judging.prompts import ProtocolError, load_protocol, load_rubric, prompt_hash
from heart_utils.identities import refuse_identities
from heart_utils.ratings.ratings import Ratings, fit_ratings
from heart_utils.runs import (
    Run,
    find_root,
    known_people,
    open_run,
    strictest_licence,
    write_atomically,
)
from heart_utils.tables import TableError, check_table

__all__ = ["PoolError", "Pooled"]

FORMAT = 1
MANIFEST = b"heart_verdicts"
ASKED = [
    "history_id",
    "responder_a",
    "responder_b",
    "rater",
    "dimension",
    "order",
    "protocol",
    "answer_format",
    "repeat",
]
ANSWERED = ["verdict", "margin", "p_a", "state"]
#: Common questions of a rater from which on equal answers to all of them are one lab's answers
#: twice.
SAME_AT_LEAST = 10


class PoolError(ValueError):
    """Verdicts cannot be packed, or files of several labs cannot be pooled."""


@dataclass(frozen=True)
class Pooled:
    """Verdicts of several labs in one table; who was rated; and the manifests by lab.

    The column ``group`` names the lab.
    """

    verdicts: pd.DataFrame
    responders: pd.DataFrame
    manifests: dict[str, dict[str, Any]]

    def rate(self, dimension: str = "overall", **options: Any) -> Ratings:
        """Fit the leaderboard with labs as clusters.

        There are few of them, so that intervals are wide and it is provisional.
        """
        both = {"responders": self.responders, "cluster": "group", **options}
        return fit_ratings(self.verdicts, dimension=dimension, **both)


def pack_run(run: Run, lab: str) -> bytes:
    """Pack a run's verdicts and what they rest on into one Parquet file.

    No conversation, reply or reason is in it.
    """
    if not lab.strip():
        raise PoolError(
            "Name the lab that collected the verdicts, such as --lab 'University of X'."
        )
    verdicts = run.read("verdicts")
    responders = run.read("responders").set_index("responder")
    manifest = {
        "format": FORMAT,
        "lab": lab.strip(),
        "run": run.name,
        "licence": run.manifest.get("tables", {}).get("verdicts", {}).get("licence", "none stated"),
        **_asked_how(verdicts),
        "served": _served(run, verdicts),
        "responders": responders.loc[_names(verdicts), "responder_kind"].to_dict(),
        "histories": _histories(run, verdicts),
    }
    packed_rows, manifest_text = (
        verdicts.assign(rationale=None),
        json.dumps(manifest, sort_keys=True, ensure_ascii=False),
    )
    with_ids = (
        ["verdicts"]
        if run.manifest.get("tables", {}).get("verdicts", {}).get("ids") == "kept"
        else []
    )
    refuse_identities(
        {"verdicts": packed_rows},
        {"its manifest": manifest_text},
        known=known_people(run),
        kept=with_ids,
    )
    table = pa.Table.from_pandas(packed_rows, preserve_index=False)
    kept = {
        **(table.schema.metadata or {}),
        MANIFEST: json.dumps(manifest, sort_keys=True).encode(),
    }
    packed = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(kept), packed)
    return packed.getvalue()


def read_pack(file: Path | io.BytesIO) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read a packed file: its verdicts and its manifest."""
    try:
        table = pq.read_table(file)
        manifest = json.loads((table.schema.metadata or {})[MANIFEST])
        return check_table("verdicts", table.to_pandas()), manifest
    except KeyError:
        raise PoolError(
            "it has no manifest; `make pack RUN=... LAB=...` writes a file that has one."
        ) from None
    except (OSError, pa.ArrowException, TableError, ValueError) as error:
        raise PoolError(f"it cannot be read as packed verdicts ({error}).") from None


def join_packs(files: Sequence[Path]) -> Pooled:
    """Join the files of several labs, or say everything that is against it.

    Raters that are people carry their lab's name, since two labs may have a "rater 1" each.
    """
    packs, faults = (
        [],
        [] if len(files) > 1 else ["One file is no pool; name those of two labs or more."],
    )
    for file in files:
        try:
            packs.append((file.name, *read_pack(file)))
        except PoolError as error:
            faults.append(f"{file.name}: {error}")
    for name, _, manifest in packs:
        if manifest.get("format") != FORMAT:
            faults.append(
                f"{name}: its format is {manifest.get('format')}, this version reads {FORMAT}."
            )
        faults += [
            f"{name}: nothing says how {key} was asked."
            for key, prompt in manifest["prompts"].items()
            if prompt is None
        ]
    for one, other in combinations(packs, 2):
        faults += [f"{one[0]} and {other[0]}: {fault}" for fault in _apart(one[1:], other[1:])]
    if faults:
        raise PoolError(
            "These files cannot be pooled:\n" + "\n".join(f"- {fault}" for fault in faults)
        )
    rows = []
    for _, verdicts, manifest in packs:
        lab = manifest["lab"]
        ids = {name: lab + ":" + verdicts[name] for name in ("comparison_id", "pair_id")}
        raters = verdicts["rater"].where(
            verdicts["rater_kind"] == "model", lab + ": " + verdicts["rater"]
        )
        rows.append(verdicts.assign(group=lab, rater=raters, **ids))
    kinds = dict(chain.from_iterable(manifest["responders"].items() for _, _, manifest in packs))
    verdicts = pd.concat(rows, ignore_index=True)
    responders = pd.DataFrame({"responder": list(kinds), "responder_kind": list(kinds.values())})
    responders = responders.assign(simulated=bool(verdicts["simulated"].any()))
    return Pooled(verdicts, responders, {manifest["lab"]: manifest for _, _, manifest in packs})


def _apart(
    one: tuple[pd.DataFrame, dict[str, Any]], other: tuple[pd.DataFrame, dict[str, Any]]
) -> list[str]:
    """List what keeps two files from being pooled."""
    (mine, my_manifest), (theirs, their_manifest) = one, other
    faults = (
        [f"both are of the lab {my_manifest['lab']!r}."]
        if my_manifest["lab"] == their_manifest["lab"]
        else []
    )
    shared = set(mine.query("rater_kind == 'model'")["rater"]) & set(theirs["rater"])
    faults += [
        f"nothing says which model was served as {rater}, a judge of both."
        for rater in sorted(
            shared - (my_manifest["served"].keys() & their_manifest["served"].keys())
        )
    ]
    descriptions = {
        "rubrics": "the rubric of {}",
        "prompts": "what judges are told under {}",
        "served": "the model served as {}",
        "responders": "the kind of {}",
    }
    for entry, words in descriptions.items():
        both = my_manifest[entry].keys() & their_manifest[entry].keys()
        faults += [
            f"{words.format(name)} differs ({my_manifest[entry][name]} and"
            f" {their_manifest[entry][name]})."
            for name in sorted(both)
            if my_manifest[entry][name] != their_manifest[entry][name]
        ]
    only = sorted(set(mine["protocol"]) ^ set(theirs["protocol"]))
    faults += [f"not both judged under the protocol {', '.join(only)}."] if only else []
    both = my_manifest["histories"].keys() & their_manifest["histories"].keys()
    changed = [
        name for name in both if my_manifest["histories"][name] != their_manifest["histories"][name]
    ]
    faults += (
        [f"{len(changed)} histories have the same id and other words, such as {min(changed)!r}."]
        if changed
        else []
    )
    if not set(_names(mine)) & set(_names(theirs)):
        faults.append("they share no responder, so nothing compares their ratings.")
    return faults + _copied(mine, theirs)


def _copied(mine: pd.DataFrame, theirs: pd.DataFrame) -> list[str]:
    """Name judges whose answers are in both files: the same calls, which must count once."""
    with_calls = [
        table.assign(**table[[*ASKED, *ANSWERED]].astype(object).fillna("none").astype(str))
        for table in (mine, theirs)
    ]
    common = with_calls[0].merge(with_calls[1], on=ASKED, suffixes=("", "_theirs"))
    same = pd.concat([common[name] == common[f"{name}_theirs"] for name in ANSWERED], axis=1).all(
        axis=1
    )
    by_rater = same.groupby(common["rater"]).agg(["all", "size"])
    copied = by_rater[by_rater["all"] & by_rater["size"].ge(SAME_AT_LEAST)]
    return [
        f"all {n} answers of {rater} to questions that both asked are identical; one lab's answers"
        " count once."
        for rater, n in copied["size"].items()
    ]


def _asked_how(verdicts: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Compute the checksum of judges' instructions, by protocol and form, and of the rubric.

    None where nothing is known.
    """
    prompts: dict[str, str | None] = {}
    rubrics: dict[str, str] = {}
    forms = verdicts[["protocol", "answer_format"]].astype(object).fillna("json").drop_duplicates()
    for protocol, form in forms.itertuples(index=False):
        try:
            rules = load_protocol(protocol)
        except (ProtocolError, OSError):
            prompts[f"{protocol}/{form}"] = None
            continue
        rubric = load_rubric(rules.rubric)
        prompts[f"{protocol}/{form}"] = prompt_hash(rules, rubric, form)[:12]
        rubrics[protocol] = (
            f"{rules.rubric}, {hashlib.sha256(repr(rubric).encode()).hexdigest()[:12]}"
        )
    return {"prompts": prompts, "rubrics": rubrics}


def _served(run: Run, verdicts: pd.DataFrame) -> dict[str, str]:
    """Name the models that answered under each judge's name, as their providers call them.

    Where the ledger knows.
    """
    calls_of = verdicts.dropna(subset=["call_id"]).groupby("rater")["call_id"].unique()
    if calls_of.empty or not (run.folder / "ledger.sqlite").is_file():
        return {}
    ledger = open_ledger(run)
    try:
        models_of = {
            str(rater): sorted(
                {call.served_model for call in ledger.find(list(ids)).values() if call.served_model}
            )
            for rater, ids in calls_of.items()
        }
    finally:
        ledger.close()
    return {rater: ", ".join(models) for rater, models in models_of.items() if models}


def _histories(run: Run, verdicts: pd.DataFrame) -> dict[str, str]:
    """Compute a checksum of the words of each history that was judged.

    The words themselves stay where they are.
    """
    if not run.has("histories"):
        return {}
    turns_of = run.read("histories").set_index("history_id")["turns"]
    words = {
        name: repr([(turn["speaker"], turn["text"]) for turn in turns_of[name]])
        for name in verdicts["history_id"].unique()
        if name in turns_of
    }
    return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in words.items()}


def _names(verdicts: pd.DataFrame) -> list[str]:
    return sorted({*verdicts["responder_a"], *verdicts["responder_b"]})


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack a run, or join packed files into one; 0, or 2 with all reasons."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.pool", description=(__doc__ or "").splitlines()[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    pack = commands.add_parser("pack")
    pack.add_argument("run")
    pack.add_argument("--lab", required=True)
    join = commands.add_parser("join")
    join.add_argument("files", nargs="+", type=Path)
    join.add_argument("--run", default="pool", help="the run to write (pool)")
    join.add_argument("--dimension", default="overall")
    options = parser.parse_args(arguments)
    try:
        if options.command == "pack":
            file = (
                find_root() / "build" / "pool" / f"{options.lab.strip().replace('/', '-')}.parquet"
            )
            write_atomically(file, pack_run(open_run(options.run, create=False), options.lab))
            print(f"{file}: verdicts and manifest, without any conversation, reply or reason.")
        else:
            _join(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _join(options: argparse.Namespace) -> None:
    pooled = join_packs(options.files)
    ratings = pooled.rate(options.dimension)
    run = open_run(options.run)
    run.write("verdicts", pooled.verdicts)
    licence = strictest_licence([manifest["licence"] for manifest in pooled.manifests.values()])
    about = {
        "source": f"verdicts of {', '.join(pooled.manifests)}",
        "licence": licence,
        "origin": "pooled",
    }
    run.record(tables={"verdicts": about}, pooled=pooled.manifests)
    columns = [
        "responder",
        "responder_kind",
        "rating",
        "rating_low",
        "rating_high",
        "rank_low",
        "rank_high",
        "provisional",
    ]
    rounded = ratings.table.sort_values("rating", ascending=False)[columns].round(0)
    print(
        f"{options.dimension}, {len(pooled.verdicts):,} verdicts of {len(pooled.manifests)} labs,"
        " resampled as clusters:"
    )
    print(rounded.to_string(index=False))
    print(
        f"Provisional: {len(pooled.manifests)} labs are few to speak of other labs. The verdicts"
        f" are in {run.folder}."
    )


if __name__ == "__main__":
    sys.exit(main())
