"""Reports go client -> gateway -> shard, and no other way is open."""

from __future__ import annotations

from itertools import product

import pytest
import yaml
from deploy.manifests import FOLDER, manifests
from deploy.policies import Party, Policy, Port, allowed, from_cilium, from_kubernetes

CLIENTS_ONLY = """          podSelector:
            matchLabels: {penrose-role: client}
"""
KINDS = {"networkpolicy": from_kubernetes, "ciliumnetworkpolicy": from_cilium}


def pod(name: str, namespace: str, **labels: str) -> Party:
    return Party(name, namespace, tuple((key.replace("__", "-"), value) for key, value in labels.items()))


APP = "app.kubernetes.io/name"
PARTIES = [
    pod("client", "penrose-clients", penrose__role="client"),
    pod("other client", "penrose-clients", penrose__role="client"),
    pod("impostor", "penrose-clients"),
    pod("gateway", "penrose-service", penrose__role="gateway"),
    pod("shard", "penrose-service", penrose__role="shard"),
    pod("other shard", "penrose-service", penrose__role="shard"),
    pod("guest", "penrose-service"),
    pod("experiment", "penrose-experiments", penrose__role="experiment"),
    pod("other experiment", "penrose-experiments", penrose__role="experiment"),
    pod("stranger", "default", penrose__role="client"),
    Party("dns", "kube-system", (("k8s-app", "kube-dns"),)),
    Party("operator", "kuberay-system", ((APP, "kuberay-operator"),)),
    Party("prometheus", "monitoring", ((APP, "prometheus"),)),
    Party("api server", address="192.0.2.1", entity="kube-apiserver"),
    Party("internet", address="203.0.113.9", entity="world"),
]
INSIDE = {"penrose-clients", "penrose-service", "penrose-experiments"}
PORTS = [
    *(Port("TCP", number) for number in (22, 53, 80, 443, 6378, 6379, 6380, 6384, 6385, 6443, 8080, 8265)),
    *(Port("TCP", number) for number in (8443, 10001, 10002, 10999, 11000, 65535)),
    *(Port("UDP", number) for number in (53, 123, 6380, 8443)),
]
RAY = {6380, 6384, 10002, 10999}
TCP = {("TCP", port.number) for port in PORTS if port.protocol == "TCP"}
ANY = {tuple(port) for port in PORTS}
DNS = {("TCP", 53), ("UDP", 53)}


def tcp(*numbers: int) -> set[tuple[str, int]]:
    return {("TCP", number) for number in numbers}


EDGES = {
    # what the system is for
    ("client", "gateway"): tcp(8443),
    ("other client", "gateway"): tcp(8443),
    **{("gateway", shard): tcp(*RAY) for shard in ("shard", "other shard")},
    # answers and heartbeats of Ray's own protocol, opened from the shard's side
    **{(shard, "gateway"): tcp(6379, *RAY) for shard in ("shard", "other shard")},
    # the cluster's plumbing
    **{(party.name, "dns"): DNS for party in PARTIES if party.namespace in INSIDE},
    ("operator", "gateway"): tcp(8265),
    ("prometheus", "gateway"): tcp(8443, 8080),
    ("prometheus", "shard"): tcp(8080),
    ("prometheus", "other shard"): tcp(8080),
    ("gateway", "api server"): tcp(6443),
    # experiments, among themselves
    ("experiment", "other experiment"): ANY,
    ("other experiment", "experiment"): ANY,
    **{("operator", name): tcp(8265) for name in ("experiment", "other experiment")},
    **{(name, "api server"): tcp(6443) for name in ("experiment", "other experiment")},
}


def policies(name: str) -> list[Policy]:
    return [KINDS[name](each) for each in manifests(name)]


def edges(rules: list[Policy]) -> dict[tuple[str, str], set[tuple[str, int]]]:
    """Every allowed connection from or to one of the three namespaces."""
    found: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for source, target in product(PARTIES, repeat=2):
        if source is target or not INSIDE & {source.namespace, target.namespace}:
            continue
        ports = {tuple(port) for port in PORTS if allowed(rules, source, target, port)}
        if ports:
            found[source.name, target.name] = ports
    return found


@pytest.mark.parametrize("name", KINDS)
def test_exactly_these_edges_are_open(name: str) -> None:
    assert edges(policies(name)) == EDGES


@pytest.mark.parametrize("name", KINDS)
def test_a_client_reaches_nobody_but_the_gateway_and_is_reached_by_nobody(name: str) -> None:
    found = edges(policies(name))
    assert {target for source, target in found if source == "client"} == {"gateway", "dns"}
    assert not {source for source, target in found if target in ("client", "impostor")}


@pytest.mark.parametrize("name", KINDS)
def test_each_policy_is_needed(name: str) -> None:
    """Without any one of them more (its default deny) or less is open; so no rule is only decoration."""
    rules = policies(name)
    for left_out in rules:
        rest = [each for each in rules if each is not left_out]
        assert edges(rest) != EDGES, left_out.subject


@pytest.mark.parametrize(
    ("old", "new", "edge", "ports"),
    [
        ("port: 8443", "port: 22", ("client", "gateway"), None),
        (
            "          podSelector:\n            matchLabels: {penrose-role: client}\n",
            "",
            ("impostor", "gateway"),
            tcp(8443),
        ),
        ("name: penrose-clients}", "name: default}", ("client", "gateway"), None),
        ("endPort: 10999", "endPort: 65535", ("shard", "gateway"), tcp(6379, *RAY, 11000, 65535)),
    ],
)
def test_the_graph_sees_a_door_that_opens_or_shuts(
    old: str, new: str, edge: tuple[str, str], ports: set[tuple[str, int]] | None
) -> None:
    text = (FOLDER / "networkpolicy.yaml").read_text()
    assert old in text
    changed = text.replace(old, new) if "endPort" in old else text.replace(old, new, 1)
    found = edges([from_kubernetes(each) for each in yaml.safe_load_all(changed)])
    assert found.get(edge) == ports
