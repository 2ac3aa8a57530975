"""The service's pods: rollout, shutdown, probes and scheduling."""

import pytest

from taugate.service.http.operation import ENDPOINTS
from tests.helm.rendered import APP_VERSION, KEYS, VARIANTS, Values, at, render


def test_update_keeps_all_replicas() -> None:
    spec = render(KEYS).one("Deployment")["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert spec["replicas"] == 2
    assert render(KEYS, at("replicas", 5)).one("Deployment")["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/readyz"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
)
def test_probes_need_no_key(probe: str, path: str) -> None:
    asked = render(KEYS).container[probe]
    assert asked["httpGet"] == {"path": path, "port": "http"}
    assert ENDPOINTS[path.removeprefix("/")].public
    values = at(f"probes.{probe.removesuffix('Probe')}.periodSeconds", 7)
    assert render(KEYS, values).container[probe]["periodSeconds"] == 7


def test_given_fields_replace_those_of_probe_and_context() -> None:
    probe = render(KEYS, at("probes.liveness", {"failureThreshold": 6, "terminationGracePeriodSeconds": 10}))
    fields = {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6, "terminationGracePeriodSeconds": 10}
    assert probe.container["livenessProbe"].items() >= fields.items()
    writable = render(KEYS, at("containerSecurityContext", {"readOnlyRootFilesystem": False})).container
    assert writable["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": False,
    }
    context = render(KEYS, at("podSecurityContext", {"fsGroup": None, "supplementalGroups": [7]})).pod[
        "securityContext"
    ]
    assert context["supplementalGroups"] == [7]
    assert "fsGroup" not in context
    assert "fsGroupChangePolicy" not in context


@pytest.mark.parametrize(("values", "room"), [({}, "256Mi"), (VARIANTS["object-storage"], "4Gi")])
def test_service_reserves_room_for_its_copies(values: Values, room: str) -> None:
    assert render(KEYS, values).container["resources"]["requests"]["ephemeral-storage"] == room
    given = at("resources.requests", {"ephemeral-storage": "9Gi"})
    assert render(KEYS, values, given).container["resources"]["requests"]["ephemeral-storage"] == "9Gi"


@pytest.mark.parametrize("component", ["redis", "mcp"])
def test_nodes_of_redis_and_agents_are_chosen(component: str) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    chosen = {"nodeSelector": {"pool": "a"}, "tolerations": [{"operator": "Exists"}], "affinity": affinity}
    pod = render(VARIANTS["minio"], {component: {"pod": chosen}}).one("Deployment", f"-{component}")["spec"][
        "template"
    ]["spec"]
    assert (pod["nodeSelector"]["pool"], pod["affinity"]) == ("a", affinity)
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_startup_allows_ten_minutes() -> None:
    startup = render(KEYS).container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 600
    assert render(KEYS).one("Deployment")["spec"]["progressDeadlineSeconds"] == 660
    longer = at("probes.startup.failureThreshold", 900)
    assert render(KEYS, longer).one("Deployment")["spec"]["progressDeadlineSeconds"] == 1860


@pytest.mark.parametrize(
    ("values", "pre_stop", "seconds"),
    [
        ({}, None, 20 + 20 + 5),
        (at("settings.drain_seconds", 60), None, 85),
        (at("settings.drain_seconds", 2), 3, 30),
        (at("settings.drain_seconds", 0), 5, 30),
        (at("settings.shutdown_seconds", 60), None, 85),
        (at("settings.drain_seconds", "2,shutdown_seconds=60"), 3, 70),
        (at("settings.drain_seconds", "shutdown_seconds=60"), None, 85),
        (at("settings.shutdown_seconds", 0), None, 25),
        (at("rollout.preStopSeconds", 20), 20, 65),
        (at("rollout.preStopSeconds", 0), None, 45),
    ],
)
def test_grace_period_covers_shutdown(values: Values, pre_stop: int | None, seconds: int) -> None:
    rendered = render(KEYS, values)
    assert rendered.pod["terminationGracePeriodSeconds"] == seconds
    hook = rendered.container.get("lifecycle", {}).get("preStop")
    assert hook == (None if pre_stop is None else {"sleep": {"seconds": pre_stop}})


def annotations(values: Values) -> dict[str, str]:
    found: dict[str, str] = render(KEYS, values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]
    return found


def test_pods_roll_if_startup_values_change() -> None:
    before = annotations({})
    assert annotations(at("settings.max_k", 7))["checksum/settings"] != before["checksum/settings"]
    assert annotations(at("redis.url", "redis://a:6379"))["checksum/redis"] != before["checksum/redis"]
    assert annotations(at("service.port", 8080)) == before
    assert annotations(at("redis.maxMemory", "1gb")) == before
    assert annotations({"keys": {"existingSecret": "others"}}) == before


def test_platform_fields_reach_service_and_calibration() -> None:
    volume, mount = {"name": "ca", "configMap": {"name": "ca"}}, {"name": "ca", "mountPath": "/etc/ssl/private"}
    rendered = render(
        VARIANTS["recalibrate"],
        {
            "commonLabels": {"team": "search"},
            "extraVolumes": [volume],
            "extraVolumeMounts": [mount],
            "extraEnvFrom": [{"secretRef": {"name": "cloud"}}],
            "env": {"TOKEN": {"valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}}},
            "initContainers": [{"name": "wait", "image": "wait"}],
            "sidecars": [{"name": "proxy", "image": "proxy"}],
        },
    )
    assert all(item["metadata"]["labels"]["team"] == "search" for item in rendered.objects)
    assert [one["name"] for one in rendered.pod["initContainers"]] == ["wait"]
    service, proxy = rendered.pod["containers"]
    assert proxy["name"] == "proxy"
    assert {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}} in service["env"]
    job = rendered.job["spec"]["template"]["spec"]
    for pod, container in ((rendered.pod, service), (job, job["containers"][0])):
        assert volume in pod["volumes"]
        assert mount in container["volumeMounts"]
        assert {"secretRef": {"name": "cloud"}} in container["envFrom"]


def test_cluster_may_assign_the_user() -> None:
    none = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
    own = at("redis", {"enabled": True, "passwordSecret": "redis"})
    rendered = render(VARIANTS["recalibrate"], own, {"podSecurityContext": none})
    pods = [item["spec"].get("template", item)["spec"] for kind in ("Deployment", "Job") for item in rendered.of(kind)]
    assert len(pods) == 3
    for pod in pods:
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & pod["securityContext"].keys()
        assert pod["securityContext"]["runAsNonRoot"] is True


def test_pods_are_spread_by_revision() -> None:
    spread = render(KEYS).pod["topologySpreadConstraints"]
    assert [item["topologyKey"] for item in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for item in spread:
        assert item["matchLabelKeys"] == ["pod-template-hash"]
        assert item["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "service"
    nowhere = {"topologySpread": None}
    assert "topologySpreadConstraints" not in render(KEYS, nowhere).pod


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("nodeSelector", {"pool": "search"}, "nodeSelector"),
        ("tolerations", [{"key": "gpu", "operator": "Exists"}], "tolerations"),
        ("affinity", {"nodeAffinity": {}}, "affinity"),
        ("podSpec.priorityClassName", "high", "priorityClassName"),
        ("podSpec.runtimeClassName", "nvidia", "runtimeClassName"),
    ],
)
def test_scheduling_fields_are_optional(path: str, value: object, field: str) -> None:
    assert field not in render(KEYS).pod
    assert render(KEYS, at(path, value)).pod[field] == value


def test_pods_have_labels_and_annotations() -> None:
    values = {"podLabels": {"team": "search"}, "podAnnotations": {"example.org/team": "search"}}
    metadata = render(KEYS, values).one("Deployment")["spec"]["template"]["metadata"]
    assert metadata["labels"]["team"] == metadata["annotations"]["example.org/team"] == "search"


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, f"taugate/service:{APP_VERSION}"),
        ({"repository": "example.org/taugate", "tag": "2"}, "example.org/taugate:2"),
        ({"tag": "2", "digest": "sha256:" + "a" * 64}, "taugate/service@sha256:" + "a" * 64),
    ],
)
def test_image_by_version_tag_or_digest(values: Values, image: str) -> None:
    assert render(KEYS, {"image": values}).container["image"] == image


def test_names_can_be_chosen() -> None:
    names = {obj["metadata"]["name"] for obj in render(KEYS, at("fullnameOverride", "search")).objects}
    assert names == {"search", "search-releases"}
    assert "shop-gate" in {obj["metadata"]["name"] for obj in render(KEYS, at("nameOverride", "gate")).objects}
