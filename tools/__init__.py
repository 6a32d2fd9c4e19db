"""Programs of the project's upkeep, not installed with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["current_commit"]


def current_commit(root: Path) -> str:
    """Return the project's commit, with ``+changes`` if files differ from it."""
    try:
        outputs = [
            subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "--untracked-files=no"],
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return outputs[0] + ("+changes" if outputs[1] else "")
