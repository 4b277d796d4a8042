from __future__ import annotations

import hashlib
import hmac
import io
import logging

import pytest

from penrose_ray.capture.scrub import Scrubber, ScrubbingFormatter, salted


def test_salted_name_is_a_keyed_hash() -> None:
    salt = bytes(range(32))
    expected = hmac.new(salt, b"gemm_kernel", hashlib.sha256).hexdigest()[:24]
    assert salted("gemm_kernel", salt) == expected
    assert salted("gemm_kernel", salt) != salted("gemm_kernel", bytes(32))


def test_short_salt_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes or more"):
        salted("gemm", b"pepper")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("cannot reach 10.1.2.3:9400 at noon", "cannot reach <address> at noon"),
        ("bound to fe80::1ff:fe23:4567:890a%eth0", "bound to <address>"),
        ("wrote /home/ann/secret-project/model.pt twice", "wrote <path> twice"),
        (r"wrote C:\Users\ann\model.pt twice", "wrote <path> twice"),
        ("mail ann.smith@example.org now", "mail <mail> now"),
        ("buffer at 0x7f93318b0ec0 is full", "buffer at <pointer> is full"),
        ("GET https://ann.example.org:8443/tasks/7 failed", "GET <address> failed"),
        ("via abcdefghijklmnop234567.onion:80", "via <address>"),
        ("GPU-5a000000-0000-0000-0000-000000000000 is lost", "<device> is lost"),
        ("jit(train)/jit(main)/dot_general[axes=1]/add", "jit(train)/jit(main)/dot_general[axes=1]/add"),
        ("gpu-box-17_4711.pt.trace.json", "<name>_4711.pt.trace.json"),
        ("the root of all of it", "the root of all of it"),
        ("host gpu-box-17, user ann", "host <name>, user <name>"),
        ("annual planning of the gpu-box", "annual planning of the gpu-box"),
        ("1.5 GB/s, version 2.1.0, 50 % of a/b", "1.5 GB/s, version 2.1.0, 50 % of a/b"),
        ("at::native::add<4, float>(int, float*)", "at::native::add<4, float>(int, float*)"),
    ],
)
def test_text_loses_who_and_where_and_nothing_else(text: str, clean: str) -> None:
    assert Scrubber(["gpu-box-17", "ann", "root"])(text) == clean


def test_log_records_are_scrubbed() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ScrubbingFormatter(Scrubber(["ann"])))
    logger = logging.getLogger("penrose test of scrubbing")
    logger.addHandler(handler)
    logger.propagate = False
    logger.warning("%s lost %d launches at %s", "ann", 3, "/var/lib/x")
    try:
        open("/home/ann/model.pt")  # noqa: SIM115, PTH123 - it is not there
    except OSError:
        logger.exception("it failed")
    logger.removeHandler(handler)
    first, *traceback = stream.getvalue().splitlines()
    assert first == f"WARNING {logger.name}: <name> lost 3 launches at <path>"
    assert "Traceback (most recent call last):" in traceback
    assert not any("ann" in line or __file__ in line for line in traceback)


def test_this_machine_knows_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node7.cluster.example")
    monkeypatch.setenv("LOGNAME", "beatrice")
    scrub = Scrubber.of_this_machine()
    assert scrub("node7 and node7.cluster.example for beatrice") == "<name> and <name> for <name>"
