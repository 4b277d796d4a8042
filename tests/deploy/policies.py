"""Network policies as a graph: who may open a connection to whom, and on which port."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deploy.manifests import Manifest

NAMESPACE = "kubernetes.io/metadata.name"
CILIUM_NAMESPACE = "k8s:io.kubernetes.pod.namespace"


@dataclass(frozen=True)
class Party:
    """A pod, or an address outside of the cluster."""

    name: str
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    address: str = ""
    entity: str = ""


class Port(NamedTuple):
    protocol: str
    number: int


class Span(NamedTuple):
    """Ports that a rule allows."""

    protocol: str
    first: int
    last: int

    def has(self, port: Port) -> bool:
        return self.protocol in (port.protocol, "ANY") and self.first <= port.number <= self.last


class Rule(NamedTuple):
    """Parties by namespace and labels, address block or entity; no spans allow every port."""

    peers: tuple[Peer, ...]
    spans: tuple[Span, ...]

    def allows(self, party: Party, port: Port) -> bool:
        open_port = not self.spans or any(span.has(port) for span in self.spans)
        return open_port and any(peer.is_(party) for peer in self.peers)


class Peer(NamedTuple):
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    block: str = ""
    entity: str = ""

    def is_(self, party: Party) -> bool:
        if self.block:
            network = ipaddress.ip_network(self.block)
            return bool(party.address) and ipaddress.ip_address(party.address) in network
        if self.entity:
            return party.entity == self.entity
        return party.namespace == self.namespace and set(self.labels) <= set(party.labels)


class Policy(NamedTuple):
    """Whom it selects; None where it says nothing about a direction."""

    subject: Peer
    ingress: tuple[Rule, ...] | None
    egress: tuple[Rule, ...] | None


def _labels(selector: Mapping[str, Any], without: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
    assert set(selector) <= {"matchLabels"}
    return tuple((k, v) for k, v in selector.get("matchLabels", {}).items() if k not in without)


def from_kubernetes(manifest: Manifest) -> Policy:
    """A networking.k8s.io/v1 NetworkPolicy."""
    home, spec = manifest["metadata"]["namespace"], manifest["spec"]

    def peer(raw: Mapping[str, Any]) -> Peer:
        if "ipBlock" in raw:
            assert set(raw) == {"ipBlock"}
            assert set(raw["ipBlock"]) == {"cidr"}
            return Peer(block=raw["ipBlock"]["cidr"])
        namespace = dict(_labels(raw.get("namespaceSelector", {}))).get(NAMESPACE, "")
        assert namespace or "namespaceSelector" not in raw, "a selector of several namespaces"
        return Peer(namespace or home, _labels(raw.get("podSelector", {})))

    def rules(raw: Iterable[Mapping[str, Any]], side: str) -> tuple[Rule, ...]:
        made = []
        for each in raw:
            assert each.get(side), "a rule without peers allows everybody"
            spans = [
                Span(p["protocol"], p["port"], p.get("endPort", p["port"])) for p in each.get("ports", ())
            ]
            made.append(Rule(tuple(peer(p) for p in each[side]), tuple(spans)))
        return tuple(made)

    types = spec["policyTypes"]
    return Policy(
        Peer(home, _labels(spec["podSelector"])),
        rules(spec.get("ingress", ()), "from") if "Ingress" in types else None,
        rules(spec.get("egress", ()), "to") if "Egress" in types else None,
    )


def from_cilium(manifest: Manifest) -> Policy:
    """A cilium.io/v2 CiliumNetworkPolicy; an empty rule only switches the direction's default to deny."""
    home, spec = manifest["metadata"]["namespace"], manifest["spec"]

    def peer(raw: Mapping[str, Any]) -> Peer:
        namespace = raw.get("matchLabels", {}).get(CILIUM_NAMESPACE, home)
        return Peer(namespace, _labels(raw, without=[CILIUM_NAMESPACE]))

    def rules(raw: Iterable[Mapping[str, Any]], side: str) -> tuple[Rule, ...]:
        made = []
        for each in raw:
            peers = [peer(p) for p in each.get(f"{side}Endpoints", ())]
            peers += [Peer(entity=name) for name in each.get(f"{side}Entities", ())]
            assert peers or not each, "a rule without peers allows everybody"
            ports = [p for group in each.get("toPorts", ()) for p in group["ports"]]
            spans = [Span(p["protocol"], int(p["port"]), p.get("endPort", int(p["port"]))) for p in ports]
            made.append(Rule(tuple(peers), tuple(spans)))
        return tuple(made)

    return Policy(
        Peer(home, _labels(spec["endpointSelector"])),
        rules(spec["ingress"], "from") if spec.get("ingress") else None,
        rules(spec["egress"], "to") if spec.get("egress") else None,
    )


def allowed(policies: Sequence[Policy], source: Party, target: Party, port: Port) -> bool:
    """Whether `source` may open a connection: both ends must let it pass, unselected ends let all pass."""
    out = [p.egress for p in policies if p.egress is not None and p.subject.is_(source)]
    into = [p.ingress for p in policies if p.ingress is not None and p.subject.is_(target)]
    leaves = not out or any(rule.allows(target, port) for rules in out for rule in rules)
    enters = not into or any(rule.allows(source, port) for rules in into for rule in rules)
    return leaves and enters
