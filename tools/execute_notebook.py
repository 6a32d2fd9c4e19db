"""Run one notebook with papermill, whole or not at all.

``python -m tools.execute_notebook notebooks/X.ipynb build/executed/sample/X.ipynb --parameters
X.yaml`` leaves an executed copy at its place only if every cell ran. Otherwise it says which
notebook, which cell and why, and leaves what stood there before. Where `make` found nothing newer
than the copy but the notebook, and no line of code changed in it, the outputs stand and only the
words are laid anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from heart_utils.report.kept import LOG
from heart_utils.runs import find_root, open_run, write_atomically
from tools import current_commit
from tools.notebooks import NotebookError, read_cells, read_chapter
from tools.plan import stamp_table

__all__ = ["ExecutionError", "execute_notebook", "lay_words"]

TRACEBACK_LINES = 25
INTERRUPTED = 130
"""The status by which a shell tells that a command was stopped from outside."""


class ExecutionError(RuntimeError):
    """A notebook did not run to its end; the message names it, the cell and the cause."""


def execute_notebook(notebook: Path, copy: Path, parameters: dict[str, Any], *, root: Path) -> None:
    """Run a notebook in the folder ``notebooks`` and put the executed copy in its place.

    Parameters
    ----------
    notebook : pathlib.Path
        The source; it is not changed.
    copy : pathlib.Path
        Where the executed copy shall stand.
    parameters : dict
        Name -> value; each must be declared by the notebook.
    root : pathlib.Path
        The project's root, which the kernel finds `heart_utils` in.

    Raises
    ------
    ExecutionError
        If a cell fails, the kernel dies, or a parameter is unknown.
    """
    # jsonschema imports this to check addresses, which no notebook has, and it takes a second here
    # and one in the kernel.
    without = "sys.modules.setdefault('rfc3987_syntax', None)"
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    import papermill
    from papermill.exceptions import PapermillExecutionError
    from papermill.iorw import write_ipynb

    from tools.kernels import AsyncFileKernel

    declared = read_chapter(notebook).parameters
    if unknown := sorted(set(parameters) - set(declared)):
        raise ExecutionError(
            f"{notebook.name} has no parameter {', '.join(unknown)}. It has"
            f" {', '.join(declared) or 'none'}."
        )
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    copy.parent.mkdir(parents=True, exist_ok=True)
    part = copy.with_name(f".{copy.stem}.part.ipynb")
    anew = copy.with_name(f".{copy.stem}.anew")  # which kept simulations it had to run
    anew.unlink(missing_ok=True)
    os.environ[LOG] = str(anew)
    try:
        executed = papermill.execute_notebook(
            notebook,
            None,  # it would write the copy anew before and after each cell
            parameters=parameters,
            cwd=root / "notebooks",
            kernel_name="python3",
            kernel_manager_class=AsyncFileKernel,
            progress_bar=False,
            record_timing=False,
            extra_arguments=[
                "--IPKernelApp.log_level=50",
                f"--IPKernelApp.exec_lines=import sys; {without}",
            ],
        )
        write_ipynb(executed, str(part))
        os.replace(part, copy)
    except PapermillExecutionError as error:
        raise ExecutionError(
            _explain(notebook, error.source, f"{error.ename}: {error.evalue}", error.traceback)
        ) from None
    except (
        RuntimeError
    ) as error:  # nbclient's DeadKernelError and CellTimeoutError are no more than that
        raise ExecutionError(f"{notebook.name} stopped: {type(error).__name__}: {error}") from None
    finally:
        part.unlink(missing_ok=True)
        print(anew.read_text(encoding="utf-8") if anew.is_file() else "", end="")


def lay_words(notebook: Path, copy: Path) -> bool:
    """Copy a notebook's new words into its executed copy, if no line of code changed.

    Outputs are kept.

    Parameters
    ----------
    notebook : pathlib.Path
        The source.
    copy : pathlib.Path
        What papermill made of an earlier state of it, with everything else as it is now.

    Returns
    -------
    bool
        Whether the copy now says what the source says; if not, it was left alone.
    """
    if not copy.is_file():
        return False
    executed = json.loads(copy.read_text(encoding="utf-8"))
    cells = [{**cell, "source": "".join(cell["source"])} for cell in executed["cells"]]
    injected = [cell for cell in cells if "injected-parameters" in cell["metadata"].get("tags", [])]
    ran = [cell for cell in cells if cell["cell_type"] == "code" and cell not in injected]
    now = read_cells(notebook)
    code = [cell for cell in now if cell["cell_type"] == "code"]
    tagged = [cell for cell in code if "parameters" in cell["metadata"].get("tags", [])]
    if (
        [cell["source"] for cell in ran] != [cell["source"] for cell in code]
        or len(tagged) != 1
        or len(injected) != 1
    ):
        return False
    outputs = iter(ran)
    merged: list[dict[str, Any]] = []
    for cell in now:
        if cell["cell_type"] == "code":
            before = next(outputs)
            cell = {**before, "metadata": {**before["metadata"], **cell["metadata"]}}
        merged.append(cell)
        if "parameters" in cell["metadata"].get("tags", []):
            merged += injected
    executed["cells"] = merged
    write_atomically(copy, (json.dumps(executed, indent=1, ensure_ascii=False) + "\n").encode())
    copy.touch()
    return True


def _explain(notebook: Path, source: str, cause: str, traceback: list[str]) -> str:
    """Name the cell by its number in the source, where the injected parameters are not counted."""
    sources = [cell["source"].strip() for cell in read_cells(notebook)]
    number = sources.index(source.strip()) + 1 if source.strip() in sources else 0
    where = (
        f"cell {number} of {len(sources)}" if number else "the cell with the injected parameters"
    )
    first = source.strip().splitlines()[0]
    plain_text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(traceback)).rstrip()
    lines = (
        plain_text.removesuffix(cause).rstrip().splitlines()
    )  # the cause is said once, at the end
    return "\n".join(
        [
            f"{notebook.name}: {where} failed, the one that begins `{first}`",
            *lines[-TRACEBACK_LINES:],
            "",
            cause,
        ]
    )


def _stop(*_: object) -> None:
    # Not KeyboardInterrupt: where one passed through a string given to exec(), Python 3.11 ends by
    # killing itself with the
    # signal, whatever was returned, and make is told nothing of status 130.
    raise SystemExit(INTERRUPTED)


def main(arguments: list[str]) -> int:
    """Run the notebook that is named, and write down what it ran with."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("copy", type=Path)
    parser.add_argument("--parameters", type=Path, help="a YAML file of names and values")
    parser.add_argument(
        "--newer", nargs="*", type=Path, default=None, help="what make found newer than the copy"
    )
    given = parser.parse_args(arguments)
    parameters = (
        yaml.safe_load(given.parameters.read_text(encoding="utf-8")) if given.parameters else {}
    )
    root, notebook = find_root(), given.notebook.resolve()
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, _stop)
    began = time.perf_counter()
    if given.newer == [given.notebook] and lay_words(notebook, given.copy):
        print(f"{notebook.stem}: no code changed, so its outputs stand and its words are new")
        return 0
    try:
        execute_notebook(notebook, given.copy.resolve(), parameters, root=root)
    except (ExecutionError, NotebookError) as error:
        print(f"\n{error}\n", file=sys.stderr)
        return 1
    except SystemExit:
        print(f"{notebook.name} was interrupted; its last executed copy stands.", file=sys.stderr)
        return INTERRUPTED
    if "run" in parameters:
        _record(root, notebook, parameters)
    print(f"{notebook.stem} ran in {time.perf_counter() - began:.1f} s")
    return 0


def _record(root: Path, notebook: Path, parameters: dict[str, Any]) -> None:
    """Write parameters, versions and commit into the run's manifest, and stamp its tables."""
    from heart_utils.report.tables import versions

    run = open_run(parameters["run"])
    run.record(
        parameters={notebook.stem: parameters}, commit=current_commit(root), versions=versions()
    )
    for table in read_chapter(notebook).writes:
        stamp_table(root, run.name, table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
