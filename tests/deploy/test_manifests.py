"""Kubernetes manifests: schemas, and what they promise one another."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from deploy.manifests import ROOT, manifests, validator
from jsonschema import ValidationError

from penrose_ray.actors.shard_pool import SHARD_RESOURCE
from penrose_ray.settings import load_settings

if TYPE_CHECKING:
    from deploy.manifests import Manifest

ALL = manifests()
CUSTOM = ("RayCluster", "RayJob", "CiliumNetworkPolicy")


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata'].get('namespace', '')}/{manifest['metadata']['name']}"


def one(kind: str, name: str) -> Manifest:
    (found,) = [each for each in ALL if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pods() -> list[tuple[str, dict[str, Any]]]:
    """Every pod template, by a name."""
    cluster = one("RayCluster", "penrose")["spec"]
    job = one("RayJob", "coverage")["spec"]["rayClusterSpec"]
    return [
        *[("service head", cluster["headGroupSpec"]["template"])],
        *[("shard", each["template"]) for each in cluster["workerGroupSpecs"]],
        *[("experiment head", job["headGroupSpec"]["template"])],
        *[("cells", each["template"]) for each in job["workerGroupSpecs"]],
        *[("client", one("DaemonSet", "client")["spec"]["template"])],
    ]


@pytest.mark.parametrize("manifest", ALL, ids=name_of)
def test_a_manifest_keeps_to_its_schema(manifest: Manifest) -> None:
    if manifest["kind"] in CUSTOM:
        validator(manifest["kind"]).validate(manifest)
    else:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("kind", CUSTOM)
def test_the_schemas_refuse_what_is_misspelt(kind: str) -> None:
    manifest = json.loads(json.dumps(next(each for each in ALL if each["kind"] == kind)))
    manifest["spec"]["entrypiont"] = "x"
    with pytest.raises(ValidationError, match="entrypiont"):
        validator(kind).validate(manifest)


def test_the_schema_of_a_cluster_reaches_into_its_pods() -> None:
    manifest = json.loads(json.dumps(one("RayCluster", "penrose")))
    (group,) = manifest["spec"]["workerGroupSpecs"]
    group["template"]["spec"]["containers"][0]["imagePullPolcy"] = "Always"
    with pytest.raises(ValidationError, match="imagePullPolcy"):
        validator("RayCluster").validate(manifest)


@pytest.mark.parametrize(("name", "template"), pods(), ids=[name for name, _ in pods()])
def test_no_container_has_rights_that_it_does_not_need(name: str, template: dict[str, Any]) -> None:
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"], name
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
    for container in spec["containers"]:
        assert {"cpu", "memory"} <= set(container["resources"]["limits"])


def test_the_shards_ask_for_what_the_scaler_asks_of_ray() -> None:
    (group,) = one("RayCluster", "penrose")["spec"]["workerGroupSpecs"]
    start = group["rayStartParams"]
    assert json.loads(json.loads(start["resources"])) == {SHARD_RESOURCE: int(start["num-cpus"])}
    settings, _ = load_settings(ROOT / "configs" / "fleet.toml")
    assert group["minReplicas"] == settings.service.shards
    assert group["maxReplicas"] == settings.service.most_shards


def test_ports_of_ray_are_fixed_alike_on_head_and_shards() -> None:
    spec = one("RayCluster", "penrose")["spec"]
    head, shard = spec["headGroupSpec"]["rayStartParams"], spec["workerGroupSpecs"][0]["rayStartParams"]
    fixed = {name: value for name, value in shard.items() if "port" in name}
    assert len(fixed) == 8
    assert fixed.items() <= head.items()


def test_budgets_and_service_select_pods_that_exist() -> None:
    labels = {name: template["metadata"]["labels"] for name, template in pods()}
    for name, pod in (("shard", "shard"), ("gateway", "service head")):
        wanted = one("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= labels[pod].items()
    service = one("Service", "gateway")["spec"]
    assert service["selector"].items() <= labels["service head"].items()
    assert service["ports"][0]["port"] == load_settings(ROOT / "configs" / "fleet.toml")[0].service.port
    selector = one("DaemonSet", "client")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels["client"].items()


def test_the_service_job_sets_paths_that_its_pods_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    job = one("RayJob", "service")["spec"]
    for key, value in yaml.safe_load(job["runtimeEnvYAML"])["env_vars"].items():
        monkeypatch.setenv(key, value)
    settings, _ = load_settings(ROOT / "configs" / "fleet.toml")
    service, server = settings.service, settings.design_server
    paths = [service.state_dir, service.metrics_token_file, server.releases_dir, server.task_file]
    head = one("RayCluster", "penrose")["spec"]["headGroupSpec"]["template"]["spec"]
    assert not settings.design_server.is_here, "the private key is in no cluster"
    mounts = [each["mountPath"] for each in head["containers"][0]["volumeMounts"]]
    for path in [*paths, settings.policy_file]:
        assert any(path.is_relative_to(mount) for mount in mounts), path
    assert job["clusterSelector"]["ray.io/cluster"] == one("RayCluster", "penrose")["metadata"]["name"]
    (installs,) = (each["command"] for each in head["initContainers"])
    assert installs[-1] == str(service.metrics_token_file)
    assert shlex.split(job["entrypoint"])[:2] == ["penrose", "up"]


def test_the_client_s_arguments_are_options_of_the_command(call: Any) -> None:  # noqa: ANN401 - a fixture
    (container,) = one("DaemonSet", "client")["spec"]["template"]["spec"]["containers"]
    _, shown, _ = call("client", "run", "--help")
    for argument in container["args"]:
        if argument.startswith("--"):
            assert argument.partition("=")[0] in shown
