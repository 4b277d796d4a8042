"""Ray for the graph: a local one of the right size, or a running cluster that has room for it."""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from typing import TYPE_CHECKING

import ray
from ray.util.placement_group import placement_group, remove_placement_group

from penrose_ray.actors.ray_start import start_local
from penrose_ray.actors.shard_pool import SHARD_RESOURCE
from penrose_ray.errors import ConfigError, PlacementError

if TYPE_CHECKING:
    from penrose_ray.settings import ClientSettings, Settings

_OBJECT_STORE_BYTES = 128 * 2**20
_CONNECT_TIMEOUT_S = 5.0
_ROOM_TIMEOUT_S = 8.0
"""How long what others let go may take to come free; refused within ten seconds."""
_SERVICE_ACTORS = 2
"""Matcher and directory; gateways, a design server, shards and clients come on top."""


def requested_cpus(settings: Settings) -> int:
    """Logical CPUs that the graph asks of Ray: one an actor, shards that the scaler may add included."""
    more = most_shards(settings) - settings.service.shards
    return more + sum(int(each["CPU"]) for each in bundles(settings))


def experiment_cpus(settings: Settings) -> int:
    """Logical CPUs that experiments may have while shards do not need them."""
    return sum(settings.service.experiment_queues.values())


def most_shards(settings: Settings) -> int:
    """Shards that the scaler may start."""
    return max(settings.service.shards, settings.service.most_shards)


def bundles(settings: Settings) -> list[dict[str, float]]:
    """What the graph asks of Ray at its start, one actor after the other."""
    fleets = any(each.kind == "fleet" for each in settings.clients)
    plain = _at_home(settings) + fleets * (1 + settings.service.encryptors)
    clients = [
        {"CPU": 1.0, "GPU": gpus} if (gpus := gpus_of(each, settings)) else {"CPU": 1.0}
        for each in settings.clients
        for _ in range(each.count)
    ]
    return [{"CPU": 1.0, SHARD_RESOURCE: 1.0}] * settings.service.shards + [{"CPU": 1.0}] * plain + clients


def _at_home(settings: Settings) -> int:
    """How many actors belong on the node where the service is started."""
    return settings.service.gateways + _SERVICE_ACTORS + settings.design_server.is_here


def _nodes(settings: Settings, count: int) -> list[dict[str, str]]:
    """Which nodes will do for each of `count` bundles: several gateways must be here, beside the rest."""
    shards, tied = settings.service.shards, _at_home(settings) if settings.service.gateways > 1 else 0
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    return [{}] * shards + [here] * tied + [{}] * (count - shards - tied)


def gpus_of(client: ClientSettings, settings: Settings) -> float:
    """GPUs that one such client takes of a joined cluster; a local Ray leaves them to whoever wants them."""
    return client.gpus if client.kind == "gpu" and settings.service.ray_address else 0.0


def start(settings: Settings) -> None:
    """Start or join Ray, which takes SIGTERM for itself: the caller's handler is put back.

    Raises:
        PlacementError: the cluster cannot be reached or has no room; the message has the numbers.
        ConfigError: clients on other nodes could not reach the gateway.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        _start(settings)
    except SystemExit as error:  # Ray's handler, while it starts
        raise KeyboardInterrupt from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def client_host(settings: Settings) -> str:
    """Where clients find the gateway: an address of this node where it listens on all of them."""
    host = settings.service.host
    if not _is(host, "is_unspecified"):
        return host
    return _here() if settings.service.ray_address else "127.0.0.1"


def _here() -> str:
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def _start(settings: Settings) -> None:
    address = settings.service.ray_address
    if not address:
        for each in settings.experiments:
            _require_gpus(each.name, each.gpus, 0)
        start_local(
            num_cpus=requested_cpus(settings) + experiment_cpus(settings),
            num_gpus=0,
            resources={SHARD_RESOURCE: most_shards(settings)},
            object_store_memory=_OBJECT_STORE_BYTES,
            namespace="penrose",
        )
        return
    _require_reachable(address)
    _join(address)
    try:
        _require_a_way(settings)
        _require_room(settings)
    except BaseException:
        ray.shutdown()
        raise


def _require_a_way(settings: Settings) -> None:
    """Clients send over HTTP, from whatever node they run on; fleets do not."""
    host, here = settings.service.host, _here()
    elsewhere = {each["NodeManagerAddress"] for each in ray.nodes() if each["Alive"]} - {here}  # type: ignore[no-untyped-call]
    sending = any(each.kind != "fleet" for each in settings.clients)
    if sending and elsewhere and (host == "localhost" or _is(host, "is_loopback")):
        raise ConfigError(
            f"service.host is {host}: clients on {', '.join(sorted(elsewhere))} could not reach the gateway.",
            remedy=f"Set service.host to this node's address, {here}, or to 0.0.0.0.",
        )


def _require_room(settings: Settings) -> None:
    """Reserve the graph's place for a moment: totals say nothing of what others hold, and on which node."""
    wanted = bundles(settings)
    total: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    need = {name: sum(each.get(name, 0) for each in wanted) for name in ("CPU", "GPU", SHARD_RESOURCE)}
    need = {name: count for name, count in need.items() if count}
    for experiment in settings.experiments:
        _require_gpus(experiment.name, experiment.gpus, total.get("GPU", 0) - need.get("GPU", 0))
    if all(total.get(name, 0) >= count for name, count in need.items()):
        group = placement_group(wanted, bundle_label_selector=_nodes(settings, len(wanted)))
        try:
            if group.wait(_ROOM_TIMEOUT_S):
                return
        finally:
            remove_placement_group(group)
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    short = {name: count for name, count in need.items() if free.get(name, 0) < count}
    text = ", ".join(
        f"{name} {count:g} ({free.get(name, 0):g} free of {total.get(name, 0):g})"
        for name, count in (short or need).items()
    )
    raise PlacementError(
        f"The actor graph needs {text}{'' if short else ', and they are not free on the same nodes'}.",
        remedy="Add nodes or end what holds them; start nodes for shards with --resources; lower "
        "service.gateways (several must be on this node), service.shards, clients, or the gpus of clients "
        "whose programs run on CPUs.",
    )


def _require_gpus(name: str, gpus: float, there: float) -> None:
    if gpus > there:
        raise PlacementError(
            f"Experiment {name} needs GPU {gpus:g} (there are {max(there, 0):g} besides the clients').",
            remedy="Join a cluster with GPU nodes (service.ray_address), or set its gpus to 0.",
        )


def _join(address: str) -> None:
    try:
        ray.init(address=address, namespace="penrose", log_to_driver=False)
    except ConnectionError as error:
        raise PlacementError(
            f"The Ray cluster at {address} takes no connection from here.",
            remedy="Where its head asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or "
            "RAY_AUTH_TOKEN_PATH; also compare the versions of Ray.",
        ) from error


def _require_reachable(address: str) -> None:
    """Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        raise PlacementError(
            f"No Ray cluster answers at {address}: {error}.",
            remedy="Give the HOST:PORT that ray start printed.",
        ) from error


def _is(host: str, what: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), what))
    except ValueError:  # a name
        return False
