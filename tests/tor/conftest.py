"""One private Tor network, one onion service and one client's tor for all tests of a module.

Modules come in any order: none of it lives on beside the load of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ports import held_ports
from tor.collection import Collection
from tor.network import PORTS, TorNetwork, missing

from penrose_ray.transport.tor.client import OwnTor
from penrose_ray.transport.tor.service import OnionService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorNetwork]:
    if reason := missing():
        pytest.skip(reason)
    with held_ports(PORTS) as ports:
        network = TorNetwork(tmp_path_factory.mktemp("net"), ports)
        try:
            network.start()
            yield network
        finally:
            network.stop()


@pytest.fixture(scope="module")
def gateway_port() -> Iterator[int]:
    """Where each test's gateway listens."""
    with held_ports(1) as ports:
        yield ports[0]


@pytest.fixture(scope="module")
def onion(
    network: TorNetwork, gateway_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OnionService]:
    home = tmp_path_factory.mktemp("as")
    with OnionService(home, lines=network.lines(), start_timeout_s=300) as service:
        service.start(gateway_port)
        yield service


@pytest.fixture(scope="module")
def own_tor(network: TorNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTor]:
    home = tmp_path_factory.mktemp("cl")
    with OwnTor(home, lines=network.lines(), start_timeout_s=300, forget_gap_s=0.0) as tor:
        tor.start()
        yield tor


@pytest.fixture
def collection(
    tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys, gateway_port: int
) -> Iterator[Collection]:
    collection = Collection(tmp_path, make_task, design_keys, gateway_port)
    yield collection
    collection.close()
