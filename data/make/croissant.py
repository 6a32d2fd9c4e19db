"""Describe the project's own data in Croissant 1.0, the metadata format of MLCommons.

``python -m data.make.croissant`` writes ``data/sample/croissant.json`` and
``data/heart/croissant.json`` from the files themselves: their columns, their checksums. A file that
changes without its description fails a test.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from heart_utils.runs import checksum, find_root, write_atomically
from tools.settings import read_settings

__all__ = ["CroissantError", "describe_folder"]

CONFORMS = "http://mlcommons.org/croissant/1.0"
FORMATS = {".csv": "text/csv", ".jsonl": "application/jsonlines"}
KINDS = {"integer": "sc:Integer", "floating": "sc:Float", "boolean": "sc:Boolean"}
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


class CroissantError(ValueError):
    """A folder and its description do not fit."""


def describe_folder(folder: Path, *, url: str = "") -> dict[str, Any]:
    """Describe a folder of tables from its ``croissant.yaml`` and its files.

    Parameters
    ----------
    folder : pathlib.Path
        It holds ``croissant.yaml``: name, description, licence, day of publication, how to cite,
        and a sentence for each file and each column.
    url : str
        The address of the project's repository, if it is known.

    Returns
    -------
    dict
        JSON-LD. Addresses of files are relative to the folder.

    Raises
    ------
    CroissantError
        If a column has no sentence, or a sentence no column.
    """
    description = yaml.safe_load((folder / "croissant.yaml").read_text(encoding="utf-8"))
    described: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS,
        "name": description["name"],
        "description": " ".join(description["description"].split()),
        "license": description["licence"],
        # The property is required and no address is known: the file that stands beside this one is
        # named.
        "url": url or "README.md",
        "version": str(description["version"]),
        "datePublished": str(description["published"]),
        "creator": {"@type": "sc:Organization", "name": description["creator"]},
        "citeAs": " ".join(description["cite"].split()),
        "inLanguage": "en",
        "isLiveDataset": False,
    }
    described |= {
        f"rai:{name}": " ".join(text.split()) for name, text in description.get("rai", {}).items()
    }
    described["distribution"] = [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "description": " ".join(entry["about"].split()),
            "contentUrl": name,
            "contentSize": f"{(folder / name).stat().st_size} B",
            "encodingFormat": FORMATS[Path(name).suffix],
            "sha256": checksum(folder / name),
        }
        for name, entry in description["files"].items()
    ]
    described["recordSet"] = [
        _record_set(folder / name, entry)
        for name, entry in description["files"].items()
        if "columns" in entry
    ]
    return described


def _record_set(file: Path, entry: dict[str, Any]) -> dict[str, Any]:
    rows = (
        pd.read_csv(file)
        if file.suffix == ".csv"
        else pd.DataFrame(map(json.loads, file.open(encoding="utf-8")))
    )
    about = entry["columns"]
    if strangers := sorted(set(rows.columns).symmetric_difference(about)):
        raise CroissantError(
            f"{file.with_name('croissant.yaml')}: {', '.join(strangers)} stands only in {file.name}"
            " or only in its description. Describe each column once."
        )
    key = entry.get("key")
    return {
        "@type": "cr:RecordSet",
        "@id": file.stem,
        "name": file.stem,
        "description": " ".join(entry["about"].split()),
        **({"key": {"@id": f"{file.stem}/{key}"}} if key else {}),
        "field": [_field(file, column, rows[column], about[column]) for column in rows.columns],
    }


def _field(file: Path, column: str, values: pd.Series, about: str) -> dict[str, Any]:
    name = f"{file.stem}/{column}"
    source = {"fileObject": {"@id": file.name}, "extract": {"column": column}}
    field = {"@type": "cr:Field", "@id": name, "name": name, "description": about}
    first = next((value for value in values if isinstance(value, list) and value), None)
    if isinstance(first, list) and isinstance(first[0], dict):
        parts = [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{part}",
                "name": f"{name}/{part}",
                "dataType": "sc:Text",
                "source": {**source, "transform": {"jsonPath": part}},
            }
            for part in first[0]
        ]
        return {**field, "repeated": True, "subField": parts}
    repeated = {"repeated": True} if values.map(lambda value: isinstance(value, list)).any() else {}
    kind = (
        KINDS.get(pd.api.types.infer_dtype(values.dropna(), skipna=True), "sc:Text")
        if values.notna().any()
        else "sc:Text"
    )
    return {**field, "dataType": kind, **repeated, "source": source}


def main() -> int:
    """Write the descriptions of the project's own folders."""
    root = find_root()
    address = read_settings(root).repository
    for source in sorted((root / "data").glob("*/croissant.yaml")):
        text = (
            json.dumps(describe_folder(source.parent, url=address), indent=1, ensure_ascii=False)
            + "\n"
        )
        changed = write_atomically(source.with_suffix(".json"), text.encode())
        print(
            f"{source.with_suffix('.json').relative_to(root)} "
            f" {'written' if changed else 'as it was'}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
