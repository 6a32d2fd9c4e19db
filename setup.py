"""Build the wheel with the data that may be passed on; the rest is in pyproject.toml."""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
LINK = re.compile(
    r"(?P<image>!?)\[(?P<words>[^\]]*)\]\((?P<place>(?!https?://|mailto:|#)[^)\s]+)\)"
)
"""A link or a picture of Markdown whose place is a file of this repository."""


class BuildWithData(build_py):
    """Copy ``data/`` beside the modules, where ``find_root`` looks for it outside a checkout."""

    def run(self) -> None:
        """Build the modules, then copy; an editable install reads the checkout's own folder."""
        super().run()
        if not self.editable_mode:
            shutil.copytree(
                ROOT / "data",
                Path(self.build_lib, "heart_utils", "data"),
                ignore=shutil.ignore_patterns("make", "__pycache__"),  # what derives the files
                dirs_exist_ok=True,
            )


def describe(readme: str, repository: str) -> str:
    """Return the README with links to the repository, or words where none is known."""

    def absolute(link: re.Match[str]) -> str:
        if repository:
            kind = "raw" if link["image"] else "blob"
            return f"{link['image']}[{link['words']}]({repository}/{kind}/HEAD/{link['place']})"
        return f"(A figure: {link['words']}.)" if link["image"] else link["words"]

    return LINK.sub(absolute, readme)


settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["heart"]
repository = settings["repository"].rstrip("/").removesuffix(".git")

setup(
    cmdclass={"build_py": BuildWithData},
    long_description=describe((ROOT / "README.md").read_text(encoding="utf-8"), repository),
    long_description_content_type="text/markdown",
    project_urls={"Repository": repository} if repository else {},
)
