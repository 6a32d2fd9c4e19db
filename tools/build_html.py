"""Build the staged book with warnings as errors, and publish the pages if all went well.

``python -m tools.build_html build/stage/sample build/html``
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import nbformat

from heart_utils.report.tables import read_results
from tools.page import make_plain

__all__ = ["BUILT_ON", "build_html"]

BUILT_ON = "@built-on@"
"""Stands in the staged footer for when, and from which commit; `built_on.txt` in the stage says
it."""

UNUSED = {
    "fontawesome": r"fontawesome",  # 1.5 MB, which draws icons that are in a font as well
    # for a search as one types, which the book does without
    "search": r"(?:searchtools|language_data|searchindex)",
}
"""Scripts that the theme loads on every page: the second kind is kept on the page of the search."""

PICTURE = re.compile(r'_images/([^"#?]+)"')


def build_html(stage: Path, html: Path) -> None:
    """Build a staged book; pages that stood there before stay if it fails.

    Parameters
    ----------
    stage : pathlib.Path
        From :func:`tools.stage.stage_book`.
    html : pathlib.Path
        Where the pages shall stand.

    Raises
    ------
    RuntimeError
        If Sphinx warns of anything; its words are in the message.
    """
    # kept between builds: Sphinx reads again only what is newer
    out = stage.parent / f".{stage.name}.out"
    built = out / "_build" / "html"
    staged = {
        path.relative_to(stage).with_suffix("")
        for path in stage.rglob("*")
        if path.suffix in (".md", ".ipynb")
    }
    earlier = {
        page.relative_to(built).with_suffix("")
        for name in ("book", "notebooks")
        for page in built.glob(f"{name}/**/*.html")
    }
    # such as a chapter that has another name now: pages that did not change link to the old one
    if earlier - staged:
        shutil.rmtree(out)
    options = ["--path-output", str(out), "-W", "-n", "--keep-going", "--quiet"]
    # jsonschema imports this to check addresses, which no setting has, and it takes a second.
    start = (
        "import sys; sys.modules['rfc3987_syntax'] = None; from jupyter_book.cli.main import main;"
        " main()"
    )
    command = [sys.executable, "-c", start, "build", str(stage), *options]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
    )
    if done.returncode or not (built / "index.html").is_file():
        shutil.rmtree(out, ignore_errors=True)  # a warning is said only when its page is read
        raise RuntimeError(
            f"{done.stdout}{done.stderr}\nThe book was not built: Sphinx warned (see above). Pages"
            f" in {html} are older."
        )
    html.parent.mkdir(parents=True, exist_ok=True)
    part = html.with_name(f".{html.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    # Maps only serve debugging of the theme, its locales only the build, and every browser reads
    # the smaller font.
    shutil.copytree(
        built, part, ignore=shutil.ignore_patterns("*.map", "locales", "fontawesome.js*", "*.ttf")
    )
    words = (stage / "built_on.txt").read_text(encoding="utf-8")
    linked: set[str] = set()
    for page in part.rglob("*.html"):
        text = page.read_text(encoding="utf-8").replace(BUILT_ON, words)
        for kind, script in UNUSED.items():
            if kind != page.stem:
                text = re.sub(rf'\s*<script[^>]*["/]{script}\.js[^>]*></script>', "", text)
        linked.update(PICTURE.findall(text))
        page.write_text(text, encoding="utf-8")
    # Sphinx keeps pictures of earlier builds.
    for picture in (part / "_images").glob("*"):
        if picture.name not in linked:
            picture.unlink()
    _plain_downloads(part / "_sources" / "notebooks")
    if (functions := stage.parents[1] / "functions").is_dir():  # `make api` built them
        shutil.copytree(functions, part / "functions")
    shutil.rmtree(html, ignore_errors=True)
    os.replace(part, html)


def _plain_downloads(folder: Path) -> None:
    """Let *Download* give notebooks that any editor shows, in place of the book's sources."""
    chapters = sorted(folder.glob("*.ipynb"))
    results = {}
    for chapter in chapters:
        with suppress(ValueError):  # it need not record anything
            results[chapter.stem] = read_results(chapter)
    others = {
        f"{stem}::{name}": value for stem, of in results.items() for name, value in of.items()
    }
    for chapter in chapters:
        written = nbformat.read(chapter, as_version=4)  # type: ignore[no-untyped-call]
        make_plain(written, others | results.get(chapter.stem, {}))
        chapter.write_text(nbformat.writes(written), encoding="utf-8")  # type: ignore[no-untyped-call]


def main(arguments: list[str]) -> int:
    """Build the staging folder named first into the folder named second."""
    stage, html = (Path(argument).resolve() for argument in arguments)
    try:
        build_html(stage, html)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
