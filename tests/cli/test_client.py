"""`penrose client`: the daemon of a host, what it sends, and switching it off."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pytest
from e2e import fleet
from e2e.http_party import serving
from waiting import PROGRAM_S, program, until

from penrose_ray.actors.issuer import application
from penrose_ray.actors.parties import Party
from penrose_ray.actors.purse import Purse
from penrose_ray.capture.opencl_device import opencl_counters, pick_device, vendor_of
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.envelope import ServiceKey
from penrose_ray.crypto.packing import unpack
from penrose_ray.histogram import Counter
from penrose_ray.release.issuing import Issuer, IssuerKeys
from penrose_ray.release.tokens import DAY_S
from penrose_ray.task import sign, verify
from penrose_ray.wire import RECORD_BYTES, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]

PROGRAM = """
from penrose_ray.actors.programs import stencil
stencil.run(lambda: False, max_steps=400)
"""

LOADED = """
import sys
from penrose_ray.cli.app import main
try:
    main()
except SystemExit as ended:
    print(ended.code, *sorted({name.partition(".")[0] for name in sys.modules}))
"""


CONNECTING = """
import sys
asked = []
talking = {"socket.connect", "socket.getaddrinfo", "socket.sendto"}
sys.addaudithook(lambda event, _: asked.append(event) if event in talking else None)
from penrose_ray.cli.app import main
try:
    main()
except SystemExit as ended:
    print(ended.code, asked, file=sys.stderr)
"""


@pytest.fixture
def home(tmp_path: Path, design_keys: DesignKeys) -> Path:
    """A trace, a task for its counters and an owner's policy."""
    fleet.write_trace(tmp_path / "trace.json.gz", seed=3, rounds=2)
    counters = fleet.counters_of(tmp_path / "trace.json.gz")
    (tmp_path / "kineto.task").write_bytes(fleet.signed_task(design_keys, counters).encode())
    (tmp_path / "policy.toml").write_text(
        "allow_demo = true\nleast_sampling_interval = 1\nleast_contributors = 1\nmax_overhead_percent = 100\n"
    )
    return tmp_path


def arguments(home: Path, gateway: str, *more: object) -> list[object]:
    return [
        "client", "run", home / "kineto.task", "--gateway", gateway, "--policy", home / "policy.toml",
        "--source", "trace", "--trace", home / "trace.json.gz", "--state", home / "state",
        "--gap-s", 0, *more,
    ]  # fmt: skip


class Taker(BaseHTTPRequestHandler):
    """A gateway that keeps what it gets."""

    taken: ClassVar[list[bytes]] = []
    headers_seen: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        self.taken.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.headers_seen.append(dict(self.headers))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def gateway() -> Iterator[str]:
    Taker.taken, Taker.headers_seen = [], []
    with HTTPServer(("127.0.0.1", 0), Taker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_dry_run_prints_exactly_what_would_be_sent_and_sends_nothing(
    call: Call, home: Path, gateway: str, design_keys: DesignKeys
) -> None:
    code, out, err = call(*arguments(home, gateway, "--dry-run"))
    assert code == 0, err
    assert Taker.taken == []
    task = verify((home / "kineto.task").read_bytes())
    shown = [json.loads(line) for line in out.splitlines()]
    assert len(shown) >= 8
    samples = 0
    for each in shown:
        record = bytes.fromhex(each["record"])
        report = decode(record)
        assert len(record) == RECORD_BYTES
        assert each["blob"] == report.blob.hex()
        assert (each["gpu_model"], each["sealed"]) == ("Test GPU", [])
        slots = unpack(design_keys.paillier.decrypt(report.blob, task.profile()), task.profile())
        samples += int(slots.bins.sum())
    assert samples == pytest.approx(8 * fleet.SNIPPET / task.sampling_interval, rel=0.2)


def test_a_dry_run_names_what_only_the_service_reads(
    call: Call, home: Path, gateway: str, design_keys: DesignKeys
) -> None:
    key = ServiceKey(bytes(range(32)))
    task = msgspec.structs.replace(verify((home / "kineto.task").read_bytes()), service_key=key.public)
    (home / "kineto.task").write_bytes(sign(task, design_keys.signing).encode())
    code, out, err = call(*arguments(home, gateway, "--dry-run"))
    assert code == 0, err
    for line in out.splitlines():
        each = json.loads(line)
        report = decode(bytes.fromhex(each["record"]), key)
        assert each["sealed"] == ["gpu_model", "scheme", "signature", "counter_set"]
        assert (each["report_id"], each["signature"]) == (report.report_id.hex(), report.signature.hex())


def test_a_dry_run_asks_nobody_and_costs_no_token(
    home: Path, gateway: str, design_keys: DesignKeys, tmp_path: Path
) -> None:
    """An issuer that would answer hears nothing, in a task that needs it twice: for tokens and for names."""
    keys = IssuerKeys.generate(int(SystemClock().now_s() // DAY_S), 2)
    secret = bytes(range(32))
    fields = {
        "identity": "keyed",
        "identity_key": hashlib.sha256(secret).digest(),
        "tokens_per_day": 4,
        "hostile_clients": 0,
        "issuer_keys": keys.public().encode(),
    }
    signed = fleet.signed_task(design_keys, fleet.counters_of(home / "trace.json.gz"), **fields)
    (home / "kineto.task").write_bytes(signed.encode())
    issuer = Issuer(tmp_path / "issuer.sqlite", keys, tokens_per_day=4, clock=SystemClock())
    with serving(application(issuer, name_key=secret)) as url:
        credential = issuer.enrol("one")
        enrolment = f'issuer_url = "{url}"\ncredential_variable = "CREDENTIAL"\n'
        (home / "enrolment.toml").write_text(enrolment)
        options = arguments(home, gateway, "--enrolment", home / "enrolment.toml", "--dry-run")
        ended = subprocess.run(
            [sys.executable, "-c", CONNECTING, *map(str, options)],
            env={**os.environ, "CREDENTIAL": credential.hex()}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.stderr.splitlines()[-1] == "0 []", ended.stderr
        purse = Purse(verify(signed.encode()), Party("issuer", url, credential), SystemClock())
        purse.fill()
        token = purse.take(keys.first_day)
        purse.close()
    issuer.close()
    shown = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {len(bytes.fromhex(each["token"])) for each in shown} == {len(token)}
    assert {len(each["record"]) for each in shown} == {2 * RECORD_BYTES}
    assert len(shown) == len({each["token"] for each in shown}) == 4, "as many as a day's tokens"
    assert sorted(path.name for path in (home / "state").iterdir()) == ["client.pid", "client.source"]


def test_reports_arrive_and_nothing_in_the_request_tells_clients_apart(
    call: Call, home: Path, gateway: str
) -> None:
    code, _, err = call(*arguments(home, gateway))
    assert code == 0, err
    assert {len(body) for body in Taker.taken} == {RECORD_BYTES}
    assert "0 reports wait in the spool" in err
    names = {name.lower() for seen in Taker.headers_seen for name in seen}
    assert names <= {"host", "accept-encoding", "content-type", "content-length"}


def test_without_a_gateway_reports_wait_on_disk_for_the_next_start(
    call: Call, home: Path, gateway: str
) -> None:
    code, _, err = call(*arguments(home, "http://127.0.0.1:9"))
    assert code == 0, err
    waiting = int(err.split(" reports wait")[0].split()[-1])
    assert waiting >= 8

    code, _, err = call(*arguments(home, gateway))
    assert code == 0, err
    assert len(Taker.taken) >= waiting + 8
    assert "0 reports wait in the spool" in err


def test_a_daemon_that_is_started_again_sends_nothing_more_in_the_batch(
    call: Call, home: Path, gateway: str, design_keys: DesignKeys
) -> None:
    counters = fleet.counters_of(home / "trace.json.gz")
    signed = fleet.signed_task(
        design_keys, counters, reports_per_class=1, cover_rate=0.0, batch_s=fleet.LONG_S
    )
    (home / "kineto.task").write_bytes(signed.encode())
    made = []
    for _ in range(3):
        code, _, err = call(*arguments(home, gateway))
        assert code == 0, err
        made.append(json.loads(err.splitlines()[-1])["reports"])
    assert made == [2, 0, 0]
    assert call(*arguments(home, gateway, "--dry-run"))[1].count("\n") == 2, (
        "a dry run shows them all the same"
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("policy", 14),
        ("no policy", 14),
        ("task", 13),
        ("signer", 13),
        ("no signer", 13),
        ("trace", 20),
        ("open state", 31),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_captured(
    call: Call, home: Path, gateway: str, design_keys: DesignKeys, change: str, code: int
) -> None:
    more: list[object] = []
    if change == "policy":
        (home / "policy.toml").write_text("")
    elif change == "no policy":
        (home / "policy.toml").unlink()
    elif change == "task":
        (home / "kineto.task").write_bytes(b"no task")
    elif change == "signer":
        more = ["--signer", "ab" * 32]
    elif change == "no signer":
        counters = fleet.counters_of(home / "trace.json.gz")
        production = {"demo": False, "tokens_per_day": 4, "hostile_clients": 0, "min_contributors": 50}
        (home / "kineto.task").write_bytes(fleet.signed_task(design_keys, counters, **production).encode())
    elif change == "trace":
        (home / "trace.json.gz").write_bytes(b"no trace")
    elif change == "open state":
        (home / "state").mkdir(mode=0o755)
    ended, _, err = call(*arguments(home, gateway, *more))
    assert ended == code, err
    assert "remedy: " in err
    assert Taker.taken == []


@pytest.fixture
def live(home: Path, gateway: str, design_keys: DesignKeys) -> list[str]:
    """Options of a client that watches OpenCL programs."""
    pytest.importorskip("pyopencl", reason="the client of OpenCL programs needs pyopencl")
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("the preloaded library needs a C compiler")
    options = [*map(str, arguments(home, gateway))]
    options[options.index("trace")] = "opencl"
    place = options.index("--trace")
    del options[place : place + 2]
    counters = opencl_counters(vendor_of(pick_device()))
    (home / "kineto.task").write_bytes(fleet.signed_task(design_keys, counters).encode())
    return options


@contextlib.contextmanager
def running(options: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A daemon that watches by now; killed when it is still there at the end."""
    command = [sys.executable, "-m", "penrose_ray.cli.app", *options]
    with program(command, stderr=subprocess.PIPE) as daemon:
        assert daemon.stderr is not None
        assert "watching opencl" in daemon.stderr.readline()
        yield daemon
        daemon.kill()


def captured(call: Call, home: Path) -> dict[str, str]:
    """The environment of a program that is to be captured."""
    code, out, err = call("client", "env", "--state", home / "state")
    assert code == 0, err
    variables = dict(line.split("=", 1) for line in out.splitlines())
    return {**os.environ, **{name: shlex.split(value)[0] for name, value in variables.items()}}


def wait_for_reports(daemon: subprocess.Popen[str], more_than: int = 0) -> None:
    until(lambda: len(Taker.taken) > more_than or daemon.poll() is not None)


def test_off_stops_the_client_and_leaves_nothing(call: Call, home: Path, live: list[str]) -> None:
    with running(live) as daemon:
        assert call(*live)[0] == 10, "a second client on the same state"
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=captured(call, home), check=True, timeout=PROGRAM_S
        )
        wait_for_reports(daemon)
        code, _, err = call("client", "off", "--state", home / "state")
        assert (code, daemon.wait(timeout=120)) == (0, 0), err
        assert daemon.stderr is not None
        counts = json.loads(daemon.stderr.read().splitlines()[-1])
    assert not (home / "state").exists()
    assert counts["launches"] > 1000
    assert counts["reports"] > 0
    assert call("client", "off", "--state", home / "state")[0] == 0, "twice is once"


def test_client_that_was_killed_is_restarted_while_programs_run(
    call: Call, home: Path, live: list[str]
) -> None:
    """Two programs run on through the client's death, its next life, and its end."""
    endless = PROGRAM.replace("lambda: False, max_steps=400", "lambda: bool(__import__('time').sleep(0.01))")
    with contextlib.ExitStack() as programs:
        with running(live) as daemon:
            environment = captured(call, home)
            started = [
                programs.enter_context(subprocess.Popen([sys.executable, "-c", endless], env=environment))
                for _ in range(2)
            ]
            for each in started:
                programs.callback(each.kill)
            wait_for_reports(daemon)
            daemon.kill()
            daemon.wait()
        before = len(Taker.taken)
        with running(live) as daemon:
            wait_for_reports(daemon, more_than=before + 20)  # more than its first life left to be sent
            code, _, err = call("client", "off", "--state", home / "state")
            assert (code, daemon.wait(timeout=120)) == (0, 0), err
            assert daemon.stderr is not None
            counts = json.loads(daemon.stderr.read().splitlines()[-1])
        assert before > 0
        assert counts["launches"] > 1000
        assert len(Taker.taken) > before
        assert not (home / "state").exists()
        assert [each.poll() for each in started] == [None, None]


def counters(source: str) -> tuple[Counter, ...]:
    return (Counter("duration", "ns", source, "nvidia"),)


@pytest.mark.parametrize(
    ("asked", "more", "said"),
    [
        ("cupti", ("--source", "opencl"), "Give --source cuda or"),
        ("opencl", ("--source", "cuda"), "Give --source opencl or"),
        ("can", (), "--source can --dbc FILE"),
        ("kineto", (), "Give --source trace --trace FILE."),
        ("dcgm", ("--source", "cuda"), "--source trace --trace FILE"),
        ("cupti", (), "--source cuda"),
    ],
)
def test_a_source_that_measures_nothing_of_the_task_is_refused_with_the_one_that_does(
    call: Call,
    home: Path,
    gateway: str,
    design_keys: DesignKeys,
    asked: str,
    more: tuple[str, ...],
    said: str,
) -> None:
    if not more and asked == "cupti" and Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has what the task asks for")
    (home / "kineto.task").write_bytes(fleet.signed_task(design_keys, counters(asked)).encode())
    options = arguments(home, gateway, "--dry-run")
    del options[options.index("--source") : options.index("--state")]
    code, _, err = call(*options, *more)
    assert code == 21, err
    assert said in err


def test_a_recording_needs_no_source(call: Call, home: Path, gateway: str) -> None:
    options = arguments(home, gateway, "--dry-run")
    place = options.index("--source")
    del options[place : place + 2]
    code, out, err = call(*options)
    assert code == 0, err
    assert len(out.splitlines()) >= 8
    code, _, err = call("client", "env", "--state", home / "state")
    assert code == 10
    assert "--source trace needs no variables" in err


def test_what_the_task_asks_for_is_watched_unasked_and_env_follows(home: Path, live: list[str]) -> None:
    del live[live.index("--source") : live.index("--source") + 2]
    state = home / "my state"
    live[live.index("--state") + 1] = str(state)
    penrose = [sys.executable, "-m", "penrose_ray.cli.app"]
    with running(live) as daemon:
        shell = (
            f"""eval "env $({shlex.join(penrose)} client env --state '{state}') """
            f"""{sys.executable} -c {shlex.quote(PROGRAM)}\""""
        )
        for command in (
            [*penrose, "client", "env", "--state", str(state), "--", sys.executable, "-c", PROGRAM],
            ["bash", "-c", shell],
        ):
            before = len(Taker.taken)
            subprocess.run(command, check=True, timeout=PROGRAM_S)
            wait_for_reports(daemon, more_than=before)
            assert len(Taker.taken) > before
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=120) == 0


def test_env_ends_as_its_program_does(call: Call, home: Path) -> None:
    code, _, err = call("client", "env", "--state", home / "state", "--", "no-such-program")
    assert (code, "no-such-program cannot be started" in err) == (10, True)
    command = [sys.executable, "-m", "penrose_ray.cli.app", "client", "env", "--state", str(home / "state")]
    done = subprocess.run([*command, "--", "bash", "-c", "exit 7"], check=False)
    assert done.returncode == 7


def test_receipts_name_every_report_that_left_and_are_private(call: Call, home: Path, gateway: str) -> None:
    receipts = home / "receipts.jsonl"
    code, _, err = call(*arguments(home, gateway, "--receipts", receipts))
    assert code == 0, err
    assert "keep it private" in err
    noted = [json.loads(line)["report"] for line in receipts.read_text().splitlines()]
    assert noted == [decode(each).report_id.hex() for each in Taker.taken]
    assert receipts.stat().st_mode & 0o777 == 0o600
    assert call(*arguments(home, gateway, "--receipts", receipts, "--dry-run"))[0] == 10
    receipts.chmod(0o644)
    assert call(*arguments(home, gateway, "--receipts", receipts))[0] == 31


def test_off_says_what_it_deleted_and_what_it_did_not(call: Call, tmp_path: Path) -> None:
    state = tmp_path / "my state"
    code, _, err = call("client", "off", "--state", state)
    assert (code, err) == (0, f"nothing to switch off: there is no {state}\n")

    state.mkdir(mode=0o700)
    (state / "thesis.txt").write_text("mine")
    code, _, err = call("client", "off", "--state", state)
    assert (code, (state / "thesis.txt").read_text()) == (10, "mine"), err

    (state / "client.pid").touch()
    link = tmp_path / "link"
    link.symlink_to(state)
    code, _, err = call("client", "off", "--state", link)
    assert code == 10
    assert f"--state '{state}'" in err

    code, _, err = call("client", "off", "--state", state)
    assert (code, [each.name for each in state.iterdir()]) == (0, ["thesis.txt"])
    assert "thesis.txt" in err


def test_a_lost_spool_key_costs_no_report(call: Call, home: Path, gateway: str) -> None:
    assert call(*arguments(home, "http://127.0.0.1:9"))[0] == 0
    key = home / "state" / "spool.key"
    key.rename(home / "backup")
    code, _, err = call(*arguments(home, gateway))
    assert code == 43
    assert "reports in" in err
    assert Taker.taken == []
    (home / "backup").rename(key)
    assert call(*arguments(home, gateway))[0] == 0
    assert len(Taker.taken) >= 8


@pytest.mark.parametrize(
    ("address", "more", "said"),
    [
        (None, ("--socks", "127.0.0.1:9050"), "--socks"),
        ("https://localhost:1", ("--socks", "127.0.0.1:9050"), "--socks"),
        ("http://" + 56 * "a" + ".onion", ("--socks", "abc"), "'abc'"),
        ("http://" + 56 * "a" + ".onion", ("--socks", "127.0.0.1:99999"), "'127.0.0.1:99999'"),
        (None, ("--source", "opencl"), "--trace"),
        (None, ("--dbc", "soc.dbc"), "--dbc"),
        (None, ("--bus", "slcan:0"), "--bus"),
        (None, ("--exporter", "http://127.0.0.1:1"), "--exporter"),
    ],
)
def test_an_option_that_would_not_be_used_is_refused(
    call: Call, home: Path, gateway: str, address: str | None, more: tuple[str, str], said: str
) -> None:
    for dry in ((), ("--dry-run",)):
        code, _, err = call(*arguments(home, address or gateway, *more, *dry))
        assert code == 10, err
        assert said in err
    assert Taker.taken == []


def test_plain_http_over_a_network_is_warned_of_once(call: Call, home: Path) -> None:
    for near in ("http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9", "https://10.0.0.7:9"):
        code, _, err = call(*arguments(home, near, "--dry-run"))
        assert (code, "plain http" in err) == (0, False), err
    far = ("http://gateway.example:9", "--gateway", "http://10.0.0.7:9", "--gateway", "http://127.0.0.1:9")
    code, _, err = call(*arguments(home, *far, "--dry-run"))
    assert (code, err.count("plain http to gateway.example, 10.0.0.7:")) == (0, 1), err
    assert "https:// or an onion address" in err


def test_sigterm_ends_a_client_whole(home: Path, gateway: str) -> None:
    options = [sys.executable, "-m", "penrose_ray.cli.app", *map(str, arguments(home, gateway))]
    with program(options, stderr=subprocess.PIPE) as daemon:
        assert daemon.stderr is not None
        daemon.stderr.readline()
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=120) == 0
    assert {len(body) for body in Taker.taken} <= {RECORD_BYTES}


def test_a_daemon_loads_nothing_heavy(home: Path, gateway: str) -> None:
    options = [str(each) for each in arguments(home, gateway)]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *options], capture_output=True, text=True, check=True
    )
    code, *loaded = done.stdout.split()
    assert code == "0", done.stderr
    assert Taker.taken
    heavy = {"ray", "pandas", "pyarrow", "matplotlib", "llvmlite", "pyopencl", "aiohttp", "opendp", "stem"}
    assert {"numpy", "gmpy2"} <= set(loaded)
    assert heavy & set(loaded) == set()
