"""The command behind ``make data NAME=...``: terms first, then the files, checked, and what is made of them compared."""

from __future__ import annotations

import os
import sys

from heart_utils.runs import RunError
from heart_utils.sources.catalogue import SOURCES, DataError, Source, find_source
from heart_utils.sources.fetch import cache_folder, fetch_data, find_data
from heart_utils.sources.public import compare_public

USAGE = f"Usage: python -m heart_utils.sources NAME, where NAME is list or one of {', '.join(SOURCES)}."


def main(arguments: list[str]) -> int:
    """Fetch one data set and those it needs, or list them all.

    Parameters
    ----------
    arguments : list of str
        One name.

    Returns
    -------
    int
        0 if all went well, 1 if a set cannot be had or gives something else than ``data/public`` holds, 2 if the
        command was not understood.
    """
    if len(arguments) != 1:
        print(USAGE, file=sys.stderr)
        return 2
    if arguments == ["list"]:
        for source in SOURCES.values():
            print(f"{source.name:14} {source.licence:13} {source.title}")
        return 0
    try:
        source = find_source(arguments[0])
    except DataError as error:
        print(f"{error}\n{USAGE}", file=sys.stderr)
        return 2
    try:
        for name in (*source.needs, source.name):
            _get(find_source(name))
        differences = compare_public(source.name) if source.ships else []
    except (DataError, RunError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: whole files stay in the cache, nothing half-written does.", file=sys.stderr)
        return 130
    if differences:
        print("\n".join(differences), file=sys.stderr)
    elif source.ships:
        print(f"  data/public holds what these files give: {source.derivation}")
    return 1 if differences else 0


def _get(source: Source) -> None:
    mirror = os.environ.get("HEART_DATA_MIRROR")
    if mirror:
        print(f"{source.title}\n  licence: {source.terms}\n  cite: {source.citation}")
        files = find_data(source.name)
        print(f"  {len(files)} files, checked, in the mirror {mirror}")
    else:
        files = fetch_data(source.name)
        print(f"  {len(files)} files, checked, in {cache_folder() / source.folder}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
