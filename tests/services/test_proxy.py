"""The configuration of the server in front of a study: what it bounds, before a study and alone."""

import re
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest
from chat_case import (  # noqa: F401  (the first three are fixtures)
    FORM,
    LINKS,
    StandIn,
    Talker,
    chat_template,
    folder,
    run,
    sent,
    serving_chats,
)

from heart_utils.runs import find_root

pytestmark = pytest.mark.services


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def proxied(address, place):
    """Start nginx as the file says, but for HTTPS, and on ports that are free."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not shutil.which(program):
        pytest.skip("needs nginx: Debian has it as nginx-light")
    port = free_port()
    text = (find_root() / "data" / "study" / "nginx.conf").read_text()
    text = re.sub(r"\n *ssl_certificate.*", "", text)
    for was, now in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port}"),
        ("http://127.0.0.1:8000", address),
        ("10s", "3s"),
    ):
        assert was in text
        text = text.replace(was, now)
    place.mkdir()
    (place / "nginx.conf").write_text(text)
    server = subprocess.Popen([program, "-p", str(place), "-c", "nginx.conf"])
    try:
        for _ in range(100):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def test_a_study_behind_the_proxy_is_whole_and_bounded(folder, tmp_path):  # noqa: F811
    seeker = StandIn()
    with serving_chats(folder, seeker) as inner, proxied(inner, tmp_path / "proxy") as address:
        LINKS[address] = LINKS[inner]
        ann = Talker(address)
        ann.session.headers["Origin"] = address
        ann.begin("Ann")
        ann.say("Once.")
        assert ann.turns[-1][0] == "Seeker"
        headers = ann.session.get(address).headers
        assert headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert sent(address, "POST", "/", b"x" * 1_100_000, FORM)[0] == 413
        for origin in ("http://evil.example", "null", f"{address}0"):
            assert sent(address, "POST", "/", b"do=stop", {**FORM, "Origin": origin})[0] == 403
        assert sent(address, "GET", "/", b"", {"Cookie": "place=" + "x" * 40_000})[0] == 400
        host, port = address.removeprefix("http://").split(":")
        halves = []
        body = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\ndo="
        for part in [b"GET / HTTP/1.1\r\nHost: x\r\n", body] * 120:
            halves.append(socket.create_connection((host, int(port)), timeout=30))
            halves[-1].sendall(part)
        start = time.monotonic()
        ann.say("Twice.")
        assert time.monotonic() - start < 3
        for one in halves:
            with suppress(ConnectionResetError):
                while one.recv(4096):
                    pass
    assert b"127.0.0.1" not in b"".join(
        file.read_bytes() for file in (tmp_path / "proxy").rglob("*.log")
    )
