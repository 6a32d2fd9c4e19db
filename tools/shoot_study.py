"""Take the screenshots of the study pages that *The raters* shows: ``python -m tools.shoot_study``.

A rehearsal of both studies is written from the sample's histories and replies, started on this
machine, visited with a browser, and deleted. Pictures go to ``book/images/study``, small enough to
be committed, with a checksum of the files that the pages are made from: a test compares it, and
fails when the pictures have aged.
"""

from __future__ import annotations

import hashlib
import io
import json
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from heart_collect.judging.design import PROBES
from heart_collect.people.arrivals import Door
from heart_collect.people.study import load_settings, start_study, stop_study, write_study
from heart_utils.runs import Run, find_root, write_atomically
from tools.study_visitor import BrowserMissing, Visitor, browser, potato_program

WIDTH = 900
PHONE = 360
COLOURS = 64
FILL_IN = {
    "support_line": "(the support line that you fill in)",
    "researcher": "(who runs the study)",
    "review_board": "(approval number)",
    "withdraw_contact": "(address)",
    "withdraw_until": "(date)",
    "retention": "(What is kept, where, and for how long.)",
    "pay": "(What you are paid, also if you stop half-way.)",
}


def main() -> int:
    """Take them all; say what is missing if they cannot be taken."""
    root = find_root()
    pictures = root / "book" / "images" / "study"
    if potato_program() is None:
        print("error: Potato is not installed; `make study` installs it.", file=sys.stderr)
        return 1
    try:
        with tempfile.TemporaryDirectory() as folder, browser() as chromium:
            run = _rehearsal(Path(folder) / "pictures", root)
            for kind in ("rating", "reply"):
                settings = load_settings(run) | FILL_IN
                settings["rating"] |= {"raters_per_pair": 2, "load": 5, "n_checks": 1}
                settings["reply"] |= {"writers_per_history": 1, "n_writers": 2}
                study = write_study(run, kind, settings=settings)
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", 0))
                    port = probe.getsockname()[1]
                server = start_study(study, port=port)
                try:
                    address = f"http://127.0.0.1:{port}"
                    about = json.loads((study / "study.json").read_text(encoding="utf-8"))
                    link = Door(about["secret"], "name", {}).link()
                    visitor = Visitor(chromium, address, width=WIDTH, height=700)
                    if kind == "rating":
                        _rating(visitor, link, pictures)
                        _on_a_phone(
                            Visitor(chromium, address, width=PHONE, height=740), link, pictures
                        )
                    else:
                        _reply(visitor, link, pictures)
                finally:
                    stop_study(server)
    except BrowserMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    write_atomically(pictures / "pages.sha256", f"{checksum_of_pages(root)}\n".encode())
    for file in sorted(pictures.glob("*.png")):
        print(f"{file.relative_to(root)}: {file.stat().st_size / 1000:.0f} kB")
    return 0


def checksum_of_pages(root: Path) -> str:
    """Compute one checksum of the texts and styles from which the pages in pictures are made.

    Those of conversations are in no picture.
    """
    files = sorted(
        file
        for file in (root / "data" / "study").iterdir()
        if file.suffix in (".css", ".html", ".jinja", ".yaml")
        and not file.stem.startswith("chat")
        and not file.stem.endswith("-conversation")
    )
    return hashlib.sha256(
        b"".join(file.name.encode() + file.read_bytes() for file in files)
    ).hexdigest()


def _rehearsal(folder: Path, root: Path) -> Run:
    """Write a run from ten sample histories, with the reference reply and a probe to each."""
    run = Run(folder.name, folder, root)
    histories = pd.read_json(root / "data" / "sample" / "histories.jsonl", lines=True).head(10)
    replies = pd.read_json(root / "data" / "sample" / "replies.jsonl", lines=True)
    replies = replies[replies["history_id"].isin(histories["history_id"])]
    turns = dict(zip(histories["history_id"], histories["turns"], strict=True))
    comfort = [PROBES["generic-comfort"](turns[history]) for history in replies["history_id"]]
    probe = replies.assign(
        reply_id="probe-" + replies["history_id"], responder="generic-comfort", text=comfort
    )
    run.write("histories", histories)
    run.write("replies", pd.concat([replies, probe], ignore_index=True))
    return run


def _rating(visitor: Visitor, link: str, pictures: Path) -> None:
    visitor.arrive(link, "picture")
    _shoot(visitor.page, pictures / "rating-consent.png")
    visitor.consent()
    _shoot(visitor.page, pictures / "rating-instructions.png")
    visitor.next("#practice_1_text")
    _shoot(visitor.page, pictures / "rating-practice.png")
    visitor.page.check('[name="practice_1"][value="Reply A"]')
    visitor.next("#practice_1_usual_text")
    _shoot(visitor.page, pictures / "rating-feedback.png")
    visitor.next("#practice_2_text")
    visitor.page.check('[name="practice_2"][value="Reply B"]')
    visitor.next("#practice_2_usual_text")
    visitor.next(".pairwise-tile")
    kinds_shot: set[str] = set()
    while kinds_shot < {"comparison", "check"}:
        kind = "check" if ".check-" in visitor.item() else "comparison"
        if kind not in kinds_shot:
            visitor.page.wait_for_selector(".pairwise-content")
            _shoot(visitor.page, pictures / f"rating-{kind}.png")
            kinds_shot.add(kind)
        visitor.rate("A", 3, "It stays with what was said.")
    while visitor.page.query_selector(".pairwise-tile"):
        visitor.rate("A", 3, "It stays with what was said.")
    _shoot(visitor.page, pictures / "rating-debrief.png")


def _on_a_phone(visitor: Visitor, link: str, pictures: Path) -> None:
    visitor.arrive(link, "phone")
    _shoot(visitor.page, pictures / "phone-consent.png")
    visitor.consent()
    visitor.practise()
    while ".check-" in visitor.item():
        visitor.rate("A", 3, "It stays with what was said.")
    visitor.page.wait_for_selector(".pairwise-content")
    _shoot(visitor.page, pictures / "phone-comparison.png")
    while visitor.page.query_selector(".pairwise-tile"):
        visitor.rate("A", 3, "It stays with what was said.")
    _shoot(visitor.page, pictures / "phone-debrief.png")


def _reply(visitor: Visitor, link: str, pictures: Path) -> None:
    visitor.arrive(link, "picture")
    visitor.consent()
    _shoot(visitor.page, pictures / "reply-instructions.png")
    visitor.next('textarea[schema="reply"]')
    _shoot(visitor.page, pictures / "reply-page.png")


def _shoot(page: Any, file: Path) -> None:
    """Keep a whole page, in few colours."""
    page.wait_for_load_state("load")
    page.wait_for_timeout(400)  # fonts and the page's own scripts
    page.evaluate("window.scrollTo(0, 0)")
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(COLOURS).save(file, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
