"""A private Tor network on 127.0.0.1: three authorities that are the only guards, three exits and three
middle relays.

Nothing public: TestingTorNetwork with its own directory authorities, every address and every exit inside
127.0.0.0/8. Everything is ended by its process id, and tor ends by itself when
the process that owns it is gone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

AUTHORITIES = EXITS = MIDDLES = 3
SOONEST_S, LATEST_S = 14, 84
"""The first consensus after the launch; votes are cast two sevenths earlier, and all relays must be there."""
PORTS = 2 * AUTHORITIES + EXITS + MIDDLES
READY_S = 6.0
_INTERVAL_S = 300
"""Longer than the tests take: descriptors and guards stay as they are."""
_LAUNCH_PER_KEYS = 6
_BARE = ("tor", "--quiet", "--ignore-missing-torrc", "-f", "NONE", "--defaults-torrc", "NONE")
_LIST_FINGERPRINT = ("--ORPort", "1", "--Address", "127.0.0.1", "--list-fingerprint")
_NEEDED_FLAGS = {"Running", "HSDir", "V2Dir"}


def missing() -> str:
    """Why there can be no private network here; empty when there can."""
    absent = [name for name in ("tor", "tor-gencert") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed (apt-get install tor)" if absent else ""


@dataclass
class Node:
    """An authority or an exit."""

    name: str
    home: Path
    or_port: int
    dir_port: int = 0
    fingerprint: str = ""
    v3ident: str = ""
    process: subprocess.Popen[bytes] | None = None

    def make_keys(self) -> None:
        (self.home / "keys").mkdir(parents=True, mode=0o700)
        self.home.chmod(0o700)
        if self.dir_port:
            self._make_authority_keys()
        listed = subprocess.run(
            [*_BARE, "--DataDirectory", self.home, "--Nickname", self.name, *_LIST_FINGERPRINT],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.fingerprint = "".join(listed.split()[1:])

    def _make_authority_keys(self) -> None:
        keys = self.home / "keys"
        certificate = keys / "authority_certificate"
        command = ["tor-gencert", "--create-identity-key", "--passphrase-fd", "0", "-m", "12"]
        command += ["-a", f"127.0.0.1:{self.dir_port}", "-i", keys / "authority_identity_key"]
        command += ["-s", keys / "authority_signing_key", "-c", certificate]
        phrase = f"{secrets.token_hex(16)}\n".encode()
        subprocess.run(command, input=phrase, check=True, capture_output=True)
        lines = certificate.read_text().splitlines()
        self.v3ident = next(line.split()[1] for line in lines if line.startswith("fingerprint "))

    def start(self, lines: list[str]) -> None:
        torrc = self.home / "torrc"
        torrc.write_text("\n".join([*lines, ""]))
        command = ["tor", "--defaults-torrc", "NONE", "-f", torrc]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def forget(self) -> None:
        """Lose all but keys: a consensus without the others would be believed."""
        for each in self.home.iterdir():
            if each.is_dir() and each.name != "keys":
                shutil.rmtree(each)
            elif each.is_file() and each.name != "log":
                each.unlink()

    def restart(self) -> None:
        """Start again as it was."""
        self.start((self.home / "torrc").read_text().splitlines())

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


class TorNetwork:
    """Authorities and exits; clients and services join with `lines`."""

    def __init__(self, home: Path, ports: Iterable[int]) -> None:
        """Relays that will listen at these PORTS ports, which nobody else may take meanwhile."""
        self._home = home
        (home / "geoip").touch()
        (home / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        ports = iter(ports)
        self.authorities = [
            Node(f"auth{number}", home / f"a{number}", next(ports), next(ports))
            for number in range(AUTHORITIES)
        ]
        self.exits = [Node(f"exit{n}", home / f"e{n}", next(ports)) for n in range(EXITS)]
        self.middles = [Node(f"middle{n}", home / f"m{n}", next(ports)) for n in range(MIDDLES)]

    @property
    def nodes(self) -> list[Node]:
        return [*self.authorities, *self.exits, *self.middles]

    def start(self) -> None:
        """Start all relays and wait for a consensus that lists them."""
        began = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Node.make_keys, self.nodes))
        slow = int(_LAUNCH_PER_KEYS * (time.monotonic() - began))  # a busy machine gets more time
        for first_consensus_s in (min(max(slow, SOONEST_S), LATEST_S), LATEST_S):
            self._launch(first_consensus_s)
            if self._await_ready(time.monotonic() + first_consensus_s + READY_S):
                return
            self.stop()
            for node in self.nodes:
                node.forget()
        tails = "\n".join(self._log_tail(node) for node in self.nodes)
        raise TimeoutError(f"the private network is not ready\n{tails}")

    def _launch(self, first_consensus_s: int) -> None:
        offset = (int(time.time()) + first_consensus_s) % _INTERVAL_S
        for node in self.nodes:
            node.start([*self._node_lines(node, offset), *self._role_lines(node, first_consensus_s // 7)])

    def _await_ready(self, deadline: float) -> bool:
        waiting = threading.Event()
        while time.monotonic() < deadline:
            if all(self._is_ready(authority) for authority in self.authorities):
                return True
            waiting.wait(0.1)
        return False

    def stop(self) -> None:
        """End every relay that was started, by its process id."""
        running = [node.process for node in self.nodes if node.process]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def lines(self) -> list[str]:
        """What makes a tor part of this network and no other."""
        authorities = [
            f"DirAuthority {each.name} orport={each.or_port} no-v2 v3ident={each.v3ident} "
            f"127.0.0.1:{each.dir_port} {each.fingerprint}"
            for each in self.authorities
        ]
        empty = self._home / "geoip"
        return [
            "TestingTorNetwork 1",
            "Address 127.0.0.1",
            "ShutdownWaitLength 0",
            "Schedulers Vanilla",
            f"GeoIPFile {empty}",
            f"GeoIPv6File {empty}",
            "PathsNeededToBuildCircuits 0.67",
            "UseMicrodescriptors 0",
            "VanguardsLiteEnabled 0",
            *authorities,
        ]

    def _node_lines(self, node: Node, offset: int) -> Iterator[str]:
        yield from (line for line in self.lines() if not line.startswith(("UseMicro", "Vanguards")))
        yield f"DataDirectory {node.home}"
        yield f"Nickname {node.name}"
        yield f"Log notice file {node.home / 'log'}"
        yield f"__OwningControllerProcess {os.getpid()}"
        yield f"ORPort 127.0.0.1:{node.or_port} IPv4Only"
        yield "SocksPort 0"
        yield "AssumeReachable 1"
        yield "ContactInfo none@localhost"
        yield "OutboundBindAddress 127.0.0.1"
        yield f"ServerDNSResolvConfFile {self._home / 'resolv.conf'}"
        yield "ServerDNSAllowBrokenConfig 1"
        yield "ServerDNSDetectHijacking 0"
        yield "V3AuthNIntervalsValid 2"
        yield f"TestingV3AuthVotingStartOffset {offset}"

    def _role_lines(self, node: Node, delay_s: int) -> list[str]:
        if node in self.middles:
            return ["ExitRelay 0", "ExitPolicy reject *:*"]
        if not node.dir_port:
            return ["ExitRelay 1", "ExitPolicyRejectPrivate 0", "ExitPolicy accept 127.0.0.0/8:*, reject *:*"]
        guards = ",".join(each.fingerprint for each in self.authorities)
        return [
            f"DirPort 127.0.0.1:{node.dir_port}",
            "AuthoritativeDirectory 1",
            "V3AuthoritativeDirectory 1",
            "ExitRelay 0",
            "ExitPolicy reject *:*",
            "TestingDirAuthVoteExit *",
            "TestingDirAuthVoteHSDir *",
            f"TestingDirAuthVoteGuard {guards}",
            "TestingDirAuthVoteGuardIsStrict 1",
            "TestingMinExitFlagThreshold 0",
            f"TestingV3AuthInitialVotingInterval {_INTERVAL_S}",
            f"TestingV3AuthInitialVoteDelay {delay_s}",
            f"TestingV3AuthInitialDistDelay {delay_s}",
            f"V3AuthVotingInterval {_INTERVAL_S}",
            f"V3AuthVoteDelay {delay_s}",
            f"V3AuthDistDelay {delay_s}",
        ]

    def _is_ready(self, authority: Node) -> bool:
        url = f"http://127.0.0.1:{authority.dir_port}/tor/status-vote/current/consensus-microdesc"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=2) as answer:
                text = answer.read().decode()
        except OSError:
            return False
        flags = [set(line.split()[1:]) for line in text.splitlines() if line.startswith("s ")]
        usable = [each for each in flags if each >= _NEEDED_FLAGS]
        return len(usable) >= len(self.nodes) and sum("Exit" in each for each in usable) >= EXITS

    def _log_tail(self, node: Node) -> str:
        log = node.home / "log"
        lines = log.read_text().splitlines()[-5:] if log.exists() else ["no log"]
        return "\n".join(f"{node.name}: {line}" for line in lines)
