"""The data sets that the project knows: official place, pinned revision, checksums, licence, citation."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote

from heart_utils.collect.sources.errors import DataError
from heart_utils.runs import find_root

__all__ = ["SOURCES", "Source", "SourceFile", "find_source"]


@dataclass(frozen=True)
class SourceFile:
    """One file of a data set.

    Attributes
    ----------
    name : str
        Its name in a mirror and in the cache, below the folder of its set.
    address : str
        Where the official place has it, below the set's own address.
    kept : str
        What is kept of it: empty for all of it; ``"labels"``, ``"ratings"`` or ``"dialogues"`` for
        a part, as :mod:`heart_utils.collect.sources.fetch` describes.
    sha256 : str
        Checksum of what is kept.
    """

    name: str
    address: str
    kept: str
    sha256: str


@dataclass(frozen=True)
class Source:
    """One data set.

    Attributes
    ----------
    name : str
        What the loaders call it.
    folder : str
        Its folder in a mirror and in the cache.
    title : str
        What it is, in a line.
    licence : str
        One of the names that :func:`heart_utils.runs.strictest_licence` ranks.
    terms : str
        What the licence covers and what it does not.
    citation : str
        Who made it.
    address : str
        The official place at a pinned revision, with a slash at its end.
    automatic : bool
        Whether a loader may fetch it by itself (permissive label sets), or only ``make data``.
    needs : tuple of str
        Other sets without which it cannot be read.
    """

    name: str
    folder: str
    title: str
    licence: str
    terms: str
    citation: str
    address: str
    automatic: bool = False
    needs: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files of the set, from ``data/sources.csv``."""
        return _files().get(self.folder, ())

    def url(self, file: SourceFile) -> str:
        """Give the official address of a file."""
        return self.address + quote(file.address)


_GITHUB = "https://raw.githubusercontent.com/"
_HUGGING_FACE = "https://huggingface.co/datasets/"

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="mtbench",
            folder="mtbench_human",
            title="MT-Bench human judgments: votes of people and of GPT-4 between six models",
            licence="CC-BY-4.0",
            terms="CC BY 4.0; the conversations are dropped on arrival, labels alone are kept",
            citation="Zheng et al. (2023), Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena, arXiv 2306.05685",
            address=_HUGGING_FACE + "lmsys/mt_bench_human_judgments/resolve/f7d2896d2cc5d80f8b55c2bbc722613555233c25/",
            automatic=True,
        ),
        Source(
            name="mentalalign",
            folder="mentalalign70k",
            title="MentalAlign-70k: scores of ten replies to each of 1,000 questions, by clinicians and four models",
            licence="MIT",
            terms="MIT covers the scores; the questions stem from sources with other terms and are never shown or passed on",
            citation="Badawi et al. (2025), When Can We Trust LLMs in Mental Health?, arXiv 2510.19032",
            address=_GITHUB + "abeerbadawi/MentalBench-Align/03cfc4be2b7c181232652af304dc96d9bbcc5f8a/",
            automatic=True,
        ),
        Source(
            name="empathic_comm",
            folder="empathic_comm_judges",
            title="Ratings of 200 supportive conversations by three experts, a crowd and three models",
            licence="MIT",
            terms="MIT for the ratings; conversation texts are dropped on arrival",
            citation="Kumar et al. (2025), When LLMs are Reliable for Judging Empathic Communication, arXiv 2506.10150",
            address=_GITHUB
            + "aakriti1kumar/replication-data-and-code-when-LLMs-reliable-empathic-communication/"
            + "713458108e28897fccf136a6337296b5199cb617/",
            automatic=True,
        ),
        Source(
            name="esconv",
            folder="esconv",
            title="ESConv: 1,300 emotional support dialogues between crowd workers, with strategies and outcomes",
            licence="CC-BY-NC-4.0",
            terms="CC BY-NC 4.0, academic research use only",
            citation="Liu et al. (2021), Towards Emotional Support Dialog Systems, ACL, arXiv 2106.01144",
            address=_HUGGING_FACE + "thu-coai/esconv/resolve/32c54c15e7651cd68dfab18eee39f63ff0cc1e82/",
        ),
        Source(
            name="heart",
            folder="heart",
            title="HEART's 300 histories: 280 rebuilt from ESConv, 20 adversarial rewrites",
            licence="none stated",
            terms="no licence is stated for the rewrites; the other 280 are ESConv's, CC BY-NC 4.0",
            citation="Iyer et al. (2026), HEART: A Unified Benchmark for Assessing Humans and LLMs, arXiv 2601.19922",
            address=_GITHUB + "Hippocratic-AI-Research/HEART/86061fc2154ef2539c16063f1d36d3c677177541/",
            needs=("esconv",),
        ),
        Source(
            name="heartbench",
            folder="heartbench",
            title="HeartBench: 296 Chinese questions with 3,114 rubric items",
            licence="Apache-2.0, research and model evaluation only",
            terms="Apache-2.0, with its authors' word that it is for research and model evaluation only; "
            "no text is shown or passed on",
            citation="Liu et al. (2025), arXiv 2512.21849",
            address=_GITHUB + "inclusionAI/HeartBench/6c79c0809c0c2dfe78dc090dd0685bd6ef69f245/",
        ),
    )
}
"""Name of a data set -> where it comes from and on which terms."""


def find_source(name: str) -> Source:
    """Look a data set up by name.

    Parameters
    ----------
    name : str
        One of :data:`SOURCES`.

    Returns
    -------
    Source
        Where it comes from.

    Raises
    ------
    DataError
        If there is no such set; the message lists those there are.

    Examples
    --------
    >>> find_source("esconv").licence
    'CC-BY-NC-4.0'
    """
    if name not in SOURCES:
        raise DataError(f"There is no data set called {name!r}. The data sets are {', '.join(SOURCES)}.")
    return SOURCES[name]


@cache
def _files() -> dict[str, tuple[SourceFile, ...]]:
    """Read the table of files once."""
    table: dict[str, list[SourceFile]] = {}
    with (find_root() / "data" / "sources.csv").open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            table.setdefault(row["folder"], []).append(SourceFile(row["file"], row["address"], row["kept"], row["sha256"]))
    return {folder: tuple(files) for folder, files in table.items()}
