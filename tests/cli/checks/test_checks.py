"""Every status of every check of `penrose doctor`, on machines that are made of files."""

from __future__ import annotations

import ast
import shutil
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penrose_ray.capture.events import Capabilities
from penrose_ray.cli import checks
from penrose_ray.cli.checks import coverage, gpu, host, service
from penrose_ray.cli.checks.coverage import Fleet, Sampling
from penrose_ray.cli.checks.machine import (
    Finding,
    Machine,
    Status,
    clock_error_s,
    first_line,
    free_bytes,
    package_version,
    version_tuple,
)
from penrose_ray.clock import ManualClock
from penrose_ray.settings import Settings, TlsSettings, TransportSettings, load_settings

ROOT = Path(__file__).parents[3]
MB = 2**20
GB = 2**30
PARAMS = "proc/driver/nvidia/params"
VERSION = "proc/driver/nvidia/version"
DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 6\n"
CGROUP_2 = {"proc/self/cgroup": "0::/a/b\n"}
CGROUP_1 = {"proc/self/cgroup": "4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n"}
WORKS = Capabilities(available=True, per_kernel_counters=True)
LACKING = Capabilities(available=False, per_kernel_counters=False, reasons=("not here",))

Files = dict[str, str]
Check = Callable[[Machine], Finding]


def machine(root: Path, files: Files | None = None, **changed: Any) -> Machine:  # noqa: ANN401 - its fields
    """A machine with these files and nothing else."""
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    made = Machine(
        root=root,
        environment={},
        home=root / "home",
        clock=ManualClock(),
        cores=16,
        first_line=lambda _: "",
        package_version=lambda _: "",
        free_bytes=lambda _: 0,
        listening_problem=lambda _host, _port: "",
        clock_error_s=lambda: 0.0,
        survey=dict,
        native=lambda: None,
    )
    return replace(made, **changed)


def raising(error: OSError) -> Callable[[], float]:
    def ask() -> float:
        raise error

    return ask


def meminfo(free: int, total: int = 64 * 10**9) -> Files:
    return {"proc/meminfo": f"MemTotal: {total // 1024} kB\nMemAvailable: {free // 1024} kB\n"}


def prints(**lines: str) -> Callable[..., str]:
    return lambda command: lines.get(command[0], "")


def has(**versions: str) -> Callable[[str], str]:
    return lambda name: versions.get(name, "")


def need(check: Callable[[Machine, int], Finding]) -> Check:
    return lambda made: check(made, 100 * MB)


def cpus(made: Machine) -> Finding:
    return host.cpu_limit(made, 2)


def room(made: Machine) -> Finding:
    return host.disk(made, Path("/var/lib/penrose"), 100 * MB)


def tor_needed(made: Machine) -> Finding:
    return host.tor(made, needed=True)


def tor_optional(made: Machine) -> Finding:
    return host.tor(made, needed=False)


def alone(made: Machine) -> Finding:
    return service.ray_token(made, cluster=False)


def cluster(made: Machine) -> Finding:
    return service.ray_token(made, cluster=True)


OK, WARN, FAIL = Status.OK, Status.WARN, Status.FAIL
TOKEN = {"RAY_AUTH_MODE": "token"}
CASES: list[tuple[str, Status, str, Check, Files, dict[str, Any]]] = [
    ("kernel", OK, "6.1.0-18", host.kernel, {"proc/sys/kernel/osrelease": "6.1.0-18-amd64\n"}, {}),
    ("kernel", OK, "5.4", host.kernel, {"proc/sys/kernel/osrelease": "5.4.0\n"}, {}),
    ("kernel", FAIL, "Update the kernel", host.kernel, {"proc/sys/kernel/osrelease": "5.3.18-a\n"}, {}),
    ("kernel", WARN, "unknown", host.kernel, {}, {}),
    ("memory", OK, "1,000 MB free", need(host.memory), meminfo(1000 * MB), {}),
    ("memory", WARN, "room", need(host.memory), meminfo(200 * MB), {}),
    ("memory", FAIL, "add memory", need(host.memory), meminfo(50 * MB), {}),
    ("memory", WARN, "unknown", need(host.memory), {}, {}),
    ("memory-limit", OK, "none", need(host.memory_limit), CGROUP_2, {}),
    (
        "memory-limit", FAIL, "MemoryMax=", need(host.memory_limit),
        {**CGROUP_2, "sys/fs/cgroup/a/memory.max": f"{50 * MB}\n", "sys/fs/cgroup/a/b/memory.max": "max\n"},
        {},
    ),
    (
        "memory-limit", OK, "allows 500 MB", need(host.memory_limit),
        {**CGROUP_1, "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{500 * MB}\n",
         "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, {},
    ),
    ("cpu-limit", OK, "16 CPUs", cpus, CGROUP_2, {}),
    ("cpu-limit", WARN, "CPUQuota=", cpus, {**CGROUP_2, "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n"}, {}),
    ("cpu-limit", OK, "allows 4 CPUs", cpus, {**CGROUP_2, "sys/fs/cgroup/a/b/cpu.max": "400000 100000"}, {}),
    (
        "cpu-limit", FAIL, "allows 0.05 CPUs", cpus,
        {**CGROUP_1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
         "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
         "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "5000",
         "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000"},
        {},
    ),
    ("perf-rate", OK, "100000", host.perf_rate, {"proc/sys/kernel/perf_event_max_sample_rate": "100000"}, {}),
    ("perf-rate", WARN, "sysctl -w kernel.perf_event_max_sample_rate=100000", host.perf_rate,
     {"proc/sys/kernel/perf_event_max_sample_rate": "25000"}, {}),
    ("perf-rate", OK, "no perf events", host.perf_rate, {}, {}),
    ("clock", OK, "within 0.250 s", host.clock, {}, {"clock_error_s": lambda: 0.25}),
    ("clock", WARN, "timedatectl set-ntp true", host.clock, {}, {"clock_error_s": lambda: None}),
    ("clock", WARN, "may be 90 s off", host.clock, {}, {"clock_error_s": lambda: 90.0}),
    ("clock", WARN, "does not tell", host.clock, {}, {"clock_error_s": raising(OSError(1, "Operation"))}),
    ("clock", FAIL, "never set", host.clock, {}, {"clock": ManualClock(1000.0)}),
    ("disk", OK, "1,000 MB free", room, {}, {"free_bytes": lambda _: 1000 * MB}),
    ("disk", WARN, "before intake stops", room, {}, {"free_bytes": lambda _: 150 * MB}),
    ("disk", FAIL, "another folder", room, {}, {"free_bytes": lambda _: 50 * MB}),
    ("tor", OK, "tor 0.4.8.10", tor_needed, {},
     {"first_line": prints(tor="Tor version 0.4.8.10."), "package_version": has(stem="1.8.2")}),
    ("tor", WARN, "Update tor", tor_needed, {},
     {"first_line": prints(tor="Tor version 0.3.5.8."), "package_version": has(stem="1.8.2")}),
    ("tor", WARN, "apt-get install tor", tor_optional, {}, {"package_version": has(stem="1.8.2")}),
    ("tor", FAIL, "apt-get install tor", tor_needed, {}, {"package_version": has(stem="1.8.2")}),
    ("tor", FAIL, "penrose-ray[tor]", tor_needed, {}, {"first_line": prints(tor="Tor version 0.4.8.10.")}),
    ("driver", OK, "550.54.14", gpu.driver,
     {VERSION: DRIVER.format("550.54.14"), "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.14": ""}, {}),
    ("driver", FAIL, "Reboot", gpu.driver,
     {VERSION: DRIVER.format("550.54.14"), "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.90.07": ""}, {}),
    ("driver", FAIL, "needs 515.43.04", gpu.driver, {VERSION: DRIVER.format("515.43.03")}, {}),
    ("driver", WARN, "no NVIDIA driver", gpu.driver, {}, {}),
    ("gpu-counters", OK, "nothing to permit", gpu.counter_permission, {}, {}),
    ("gpu-counters", OK, "every user", gpu.counter_permission, {PARAMS: "RmProfilingAdminOnly: 0\n"}, {}),
    ("gpu-counters", OK, "this process is one", gpu.counter_permission,
     {PARAMS: "RmProfilingAdminOnly: 1\n", "proc/self/status": "CapEff:\t000001ffffffffff\n"}, {}),
    ("gpu-counters", WARN, "options nvidia NVreg_RestrictProfilingToAdminUsers=0", gpu.counter_permission,
     {PARAMS: "A: 1\nRmProfilingAdminOnly: 1\n", "proc/self/status": "CapEff:\t00000000a80425fb\n"}, {}),
    ("sources", OK, "opencl works; cupti: not here", gpu.sources, {},
     {"survey": lambda: {"opencl": WORKS, "cupti": LACKING}}),
    ("sources", OK, "opencl, cupti work", gpu.sources, {},
     {"survey": lambda: {"opencl": WORKS, "cupti": WORKS}}),
    ("sources", FAIL, "docs/capture.md", gpu.sources, {},
     {"survey": lambda: {"opencl": LACKING, "nvml": WORKS}}),
    ("compiler", OK, "clang version 16", gpu.compiler, {}, {"first_line": prints(clang="clang version 16")}),
    ("compiler", WARN, "apt-get install gcc", gpu.compiler, {}, {}),
    ("native-kernel", OK, "in use", gpu.native_kernel, {}, {}),
    ("native-kernel", WARN, "penrose-ray[native]", gpu.native_kernel, {},
     {"native": lambda: "llvmlite is not installed: pip"}),
    ("native-kernel", WARN, "gmpy2 encrypts instead", gpu.native_kernel, {},
     {"native": lambda: "this CPU lacks avx512ifma"}),
    ("size", OK, "16 cores, 64 GB, 25 Gbit/s", service.size,
     {**meminfo(GB, 64_000_000_512), "sys/class/net/eth0/speed": "25000\n", "sys/class/net/lo/speed": "9"},
     {}),
    ("size", WARN, "penrose plan", service.size, meminfo(GB), {"cores": 8}),
    ("size", WARN, "1 Gbit/s", service.size,
     {**meminfo(GB, 64_000_000_512), "sys/class/net/eth0/speed": "1000\n"}, {}),
    ("ray", OK, "Ray 2.60.0", service.ray, {}, {"package_version": has(ray="2.60.0")}),
    ("ray", FAIL, "2.50 is needed", service.ray, {}, {"package_version": has(ray="2.9.3")}),
    ("ray", FAIL, "not installed", service.ray, {}, {}),
    ("ray-token", OK, "this machine only", alone, {}, {}),
    ("ray-token", WARN, "RAY_AUTH_MODE=token", cluster, {}, {}),
    ("ray-token", OK, "asks for a token", cluster, {}, {"environment": {**TOKEN, "RAY_AUTH_TOKEN": "x"}}),
    ("ray-token", FAIL, "ray get-auth-token --generate", cluster, {}, {"environment": TOKEN}),
    ("ray-token", FAIL, "chmod 600", cluster, {"home/.ray/auth_token": "x"}, {"environment": TOKEN}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status", "part", "check", "files", "changed"), CASES,
    ids=[f"{name}-{status}-{number}" for number, (name, status, *_) in enumerate(CASES)],
)  # fmt: skip
def test_a_check_of_a_made_up_machine(
    tmp_path: Path, name: str, status: Status, part: str, check: Check, files: Files, changed: dict[str, Any]
) -> None:
    found = check(machine(tmp_path, files, **changed))
    assert (found.name, found.status) == (name, status)
    assert part in f"{found.detail} {found.remedy}"
    assert bool(found.remedy) == (status is not OK), "a remedy where something is to be done"


def fleet_settings(tmp_path: Path, **server: object) -> Settings:
    settings, _ = load_settings(ROOT / "configs" / "fleet.toml")
    key = tmp_path / "design.key"
    return settings.model_copy(
        update={
            "design_server": settings.design_server.model_copy(
                update={"task_file": None, "key_file": key, **server}
            )
        }
    )


def tls(tmp_path: Path) -> TlsSettings:
    return TlsSettings(
        port=9443, certificate=tmp_path / "c", key=tmp_path / "tls.key", clients=tmp_path / "a"
    )


def by_name(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {each.name: each for each in findings}


def test_ports_are_free_taken_chosen_by_the_kernel_or_the_services_own(tmp_path: Path) -> None:
    settings = fleet_settings(tmp_path)
    both = settings.model_copy(update={"transport": TransportSettings(tls=tls(tmp_path))})
    taken = machine(tmp_path, listening_problem=lambda _, port: "in use" if port == 9443 else "")
    found = by_name(service.ports(taken, both, running=False))
    assert (found["port"].status, found["tls-port"].status) == (OK, FAIL)
    assert "ss -ltnp" in found["tls-port"].remedy
    assert all(each.status is OK for each in service.ports(taken, both, running=True))
    any_port = settings.model_copy(update={"service": settings.service.model_copy(update={"port": 0})})
    (chosen,) = service.ports(taken, any_port, running=False)
    assert chosen.status is OK


def test_a_real_port_that_is_taken_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "in use" in Machine().listening_problem("127.0.0.1", port)
    assert Machine().listening_problem("127.0.0.1", 0) == ""


def test_key_files_must_be_there_and_private(tmp_path: Path) -> None:
    settings = fleet_settings(tmp_path)
    key = settings.design_server.key_file

    def status_of(settings: Settings) -> Finding:
        return by_name(service.secrets(machine(tmp_path), settings))["key"]

    assert status_of(settings).status is FAIL
    assert "penrose keys new" in status_of(settings).remedy
    assert status_of(fleet_settings(tmp_path, create_key=True)).status is WARN
    key.touch(mode=0o600)
    assert status_of(settings).status is OK
    key.chmod(0o640)
    assert (status_of(settings).status, status_of(settings).remedy) == (FAIL, f"chmod 600 {key}")
    token = tmp_path / "metrics.token"
    own = settings.service.model_copy(update={"metrics_token_file": token})
    watched = settings.model_copy(update={"service": own})
    assert "metrics-token" not in by_name(service.secrets(machine(tmp_path), watched)), "it will be made"
    token.touch(mode=0o644)
    assert by_name(service.secrets(machine(tmp_path), watched))["metrics-token"].status is FAIL
    both = settings.model_copy(update={"transport": TransportSettings(tls=tls(tmp_path))})
    found = by_name(service.secrets(machine(tmp_path), both))
    assert (found["tls-key"].status, found["tls-key"].remedy) == (
        FAIL,
        "Correct the path, or restore the file.",
    )


def test_a_service_without_design_server_needs_the_signed_task_and_no_key(tmp_path: Path) -> None:
    settings = fleet_settings(tmp_path, key_file=None, task_file=tmp_path / "fleet.task")
    found = by_name(service.secrets(machine(tmp_path), settings))
    assert (found["key"].status, found["task"].status) == (OK, FAIL)
    assert "design server" in found["task"].remedy
    (tmp_path / "fleet.task").touch()
    assert by_name(service.secrets(machine(tmp_path), settings))["task"].status is OK


def test_a_clients_state_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert service.private("state", tmp_path).remedy == f"chmod 700 {tmp_path}"
    tmp_path.chmod(0o700)
    assert service.private("state", tmp_path).status is OK


def test_what_opens_the_keys_must_be_in_the_environment(tmp_path: Path) -> None:
    settings = fleet_settings(tmp_path, passphrase_variable="PASS", hsm_token="t")  # noqa: S106 - names
    (tmp_path / "design.key").touch(mode=0o600)
    laptop, _ = load_settings(ROOT / "configs" / "laptop.toml")
    client = laptop.clients[0].model_copy(update={"credential_variable": "CREDENTIAL"})
    settings = settings.model_copy(update={"clients": (client,)})
    without = by_name(service.secrets(machine(tmp_path), settings))
    names = ("passphrase", "credential", "hsm")
    assert {without[name].status for name in names} == {FAIL}
    assert "export PASS" in without["passphrase"].remedy
    given = dict.fromkeys(("PASS", "CREDENTIAL", "PENROSE_HSM_MODULE", "PENROSE_HSM_PIN"), "x")
    found = by_name(service.secrets(machine(tmp_path, environment=given), settings))
    assert {found[name].status for name in names} == {OK}


def test_journals_are_whole_damaged_in_use_or_not_there(tmp_path: Path) -> None:
    assert service.journals(tmp_path / "none", running=False).status is OK
    path = tmp_path / "shard#0 %41?.sqlite"  # SQLite opens it by an URI
    shutil.copy(ROOT / "tests" / "aggregate" / "journals" / "v1.journal", path)
    assert service.journals(tmp_path, running=False).status is OK
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    found = service.journals(tmp_path, running=False)
    assert found.status is FAIL
    assert found.remedy == f"python -m penrose_ray.aggregate.salvage {path}"
    assert service.journals(tmp_path, running=True).status is OK


def test_a_file_that_is_no_database_is_damage(tmp_path: Path) -> None:
    (tmp_path / "classes.sqlite").write_bytes(b"no database at all" * 100)
    assert service.journals(tmp_path, running=False).status is FAIL


FLEET = Fleet(gpus=100_000, apps=1_000, launches_per_s=2_000.0, load=0.1)
FINE = Sampling(interval=10_000, sampler="jitter", offset_reset_s=600, snippet_launches=10_000,
                batch_s=86_400, groups=1)  # fmt: skip


def tried(finding: Finding, sampling: Sampling) -> Sampling:
    """The sampling with what a remedy says to set."""
    words = finding.remedy.replace(",", "").rstrip(".").split()
    changes = {
        words[place - 1].removeprefix("task."): int(words[place + 1])
        for place, word in enumerate(words)
        if word == "="
    }
    names = {"sampling_interval": "interval", "offset_reset_s": "offset_reset_s"}
    return replace(sampling, **{names[key]: value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("sampling", "fleet", "status"),
    [
        (FINE, FLEET, OK),
        (FINE, replace(FLEET, gpus=20_000), WARN),
        (FINE, replace(FLEET, gpus=1_000), FAIL),
        (replace(FINE, sampler="paper", interval=1_000, offset_reset_s=1_800),
         replace(FLEET, gpus=500_000), WARN),
        (replace(FINE, sampler="paper", interval=10_000), FLEET, FAIL),
    ],
)  # fmt: skip
def test_coverage_that_is_too_low_names_an_s_and_o_that_are_enough(
    sampling: Sampling, fleet: Fleet, status: Status
) -> None:
    found = coverage.coverage(sampling, fleet, least_interval=10)
    assert found.status is status
    if status is not OK:
        better = tried(found, sampling)
        assert coverage.coverage(better, fleet, least_interval=10).status is OK
        assert better.offset_reset_s == sampling.offset_reset_s or 300 <= better.offset_reset_s <= 1_800


def test_o_is_tuned_before_s() -> None:
    sampling = replace(FINE, sampler="paper", interval=1_000, offset_reset_s=1_800)
    found = coverage.coverage(sampling, replace(FLEET, gpus=500_000), least_interval=10)
    assert found.remedy == "Set task.offset_reset_s = 938."


def test_where_the_policy_allows_no_smaller_s_more_gpus_are_asked_for() -> None:
    found = coverage.coverage(FINE, replace(FLEET, gpus=1_000), least_interval=10_000)
    assert "The policy's least S = 10,000 is not enough: it takes 27 times as many GPUs" in found.remedy


def test_the_share_is_that_of_the_closed_form() -> None:
    found = coverage.coverage(FINE, replace(FLEET, gpus=20_000), least_interval=10)
    launches = 20 * 2_000 * 0.1 * 86_400 / 10_000
    assert found.detail.startswith(f"{1 - (1 - 1 / 10_000) ** launches:.1%} ")


def test_every_status_that_a_check_can_give_is_tested() -> None:
    folder = Path(checks.__file__).parent
    given = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                status = {"fine": OK, "warning": WARN, "failure": FAIL}.get(node.func.id)
                if status and isinstance(first, ast.Constant):
                    given.add((first.value, status))
    elsewhere = {
        ("key", OK),
        ("key", WARN),
        ("key", FAIL),
        ("task", OK),
        ("task", FAIL),
        ("journals", OK),
        ("journals", FAIL),
        ("coverage", OK),
    }
    assert given - {(name, status) for name, status, *_ in CASES} == elsewhere


def test_this_machine_answers() -> None:
    here = Machine()
    assert host.kernel(here).status is OK
    assert host.memory(here, MB).status is OK
    assert here.first_line(("python3", "--version")).startswith("Python 3") or shutil.which("python3") is None
    assert first_line(("no-such-program",)) == ""
    assert package_version("ray")
    assert package_version("no-such-package") == ""
    assert free_bytes(Path("/no/such/folder")) > 0
    try:
        error = clock_error_s()
    except OSError:
        pytest.skip("this kernel does not tell how right its clock is")
    assert error is None or error >= 0


@pytest.mark.parametrize(
    ("text", "version"),
    [("5.10.0-21-amd64", (5, 10, 0)), ("0.4.8.10", (0, 4, 8, 10)), ("6.1", (6, 1)), ("", ()), ("x", ())],
)
def test_versions_are_compared_as_numbers(text: str, version: tuple[int, ...]) -> None:
    assert version_tuple(text) == version
