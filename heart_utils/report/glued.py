"""The numbers and sentences that an executed notebook glued, read back."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["read_glued"]

PREFIX = "application/papermill.record/"


def read_glued(notebook: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what an executed notebook glued, to lay the runs of a grid side by side.

    Parameters
    ----------
    notebook : path
        An executed copy, as papermill writes it.

    Returns
    -------
    dict
        Name -> value, in the order of the notebook: numbers and text as they were; what has no
        literal, such as a figure, is left out. A name glued twice has its last value.

    Raises
    ------
    ValueError
        If the file is no notebook, or nothing in it was glued.

    Examples
    --------
    >>> import json
    >>> from heart_utils.report.glued import PREFIX
    >>> import tempfile
    >>> glued = {"data": {PREFIX + "text/plain": "0.25"}, "metadata": {"scrapbook": {"name": "gap"}}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     copy = Path(folder) / "copy.ipynb"
    ...     _ = copy.write_text(json.dumps({"cells": [{"cell_type": "code", "outputs": [glued]}]}))
    ...     read_glued(copy)
    {'gap': 0.25}
    """
    file = Path(notebook)
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a notebook ({type(error).__name__}: {error}).") from None
    outputs = [output for cell in cells for output in cell.get("outputs", []) if "scrapbook" in output.get("metadata", {})]
    if not outputs:
        raise ValueError(f"{file} glued nothing. Is it the executed copy? A chapter under notebooks/ has no outputs.")
    found = {}
    for output in outputs:
        said = output["data"].get(f"{PREFIX}text/plain", "")
        try:
            found[output["metadata"]["scrapbook"]["name"]] = ast.literal_eval("".join(said))
        except (SyntaxError, ValueError):
            continue
    return found
