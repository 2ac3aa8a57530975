"""The service's pods: how they come, how they go, what they are asked and where they run."""

import pytest

from taugate.service.access.authorization import PATH_RULES
from taugate.service.settings import VARIABLES
from tests.helm.rendered import APP_VERSION, KEYS, Values, at, render


def test_an_update_never_has_fewer_pods_than_wanted() -> None:
    spec = render(KEYS).one("Deployment")["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert spec["replicas"] == 2
    assert render(KEYS, at("replicas", 5)).one("Deployment")["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "/readyz"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
)
def test_probes_ask_what_needs_no_key(probe: str, path: str) -> None:
    asked = render(KEYS).container[probe]
    assert asked["httpGet"] == {"path": path, "port": "http"}
    assert PATH_RULES[path].public
    values = at(f"probes.{probe.removesuffix('Probe')}.periodSeconds", 7)
    assert render(KEYS, values).container[probe]["periodSeconds"] == 7


def test_a_release_has_ten_minutes_to_be_loaded() -> None:
    startup = render(KEYS).container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 600
    assert render(KEYS).one("Deployment")["spec"]["progressDeadlineSeconds"] == 660
    longer = at("probes.startup.failureThreshold", 900)
    assert render(KEYS, longer).one("Deployment")["spec"]["progressDeadlineSeconds"] == 1860


@pytest.mark.parametrize(
    ("values", "pre_stop", "seconds"),
    [
        ({}, None, VARIABLES["drain_seconds"].info.default + VARIABLES["shutdown_seconds"].info.default + 5),
        (at("settings.drain_seconds", 60), None, 85),
        (at("settings.drain_seconds", 2), 3, 30),
        (at("settings.drain_seconds", 0), 5, 30),
        (at("settings.shutdown_seconds", 60), None, 85),
        (at("settings.shutdown_seconds", 0), None, 25),
        (at("rollout.preStopSeconds", 20), 20, 65),
        (at("rollout.preStopSeconds", 0), None, 45),
    ],
)
def test_a_pod_has_time_to_leave(values: Values, pre_stop: int | None, seconds: int) -> None:
    rendered = render(KEYS, values)
    assert rendered.pod["terminationGracePeriodSeconds"] == seconds
    hook = rendered.container.get("lifecycle", {}).get("preStop")
    assert hook == (None if pre_stop is None else {"sleep": {"seconds": pre_stop}})


def annotations(values: Values) -> dict[str, str]:
    found: dict[str, str] = render(KEYS, values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]
    return found


def test_pods_roll_when_what_is_read_at_the_start_changes_and_only_then() -> None:
    before = annotations({})
    assert annotations(at("settings.max_k", 7))["checksum/settings"] != before["checksum/settings"]
    assert annotations(at("redis.url", "redis://a:6379"))["checksum/redis"] != before["checksum/redis"]
    assert annotations(at("service.port", 8080)) == before
    assert annotations(at("redis.maxMemory", "1gb")) == before
    assert annotations({"keys": {"existingSecret": "others"}}) == before


def test_pods_are_spread_by_revision_and_not_where_nobody_wants_it() -> None:
    spread = render(KEYS).pod["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for each in spread:
        assert each["matchLabelKeys"] == ["pod-template-hash"]
        assert each["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "service"
    nowhere = {"topologySpread": {"hostname": None, "zone": None}}
    assert "topologySpreadConstraints" not in render(KEYS, nowhere).pod


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("nodeSelector", {"pool": "search"}, "nodeSelector"),
        ("tolerations", [{"key": "gpu", "operator": "Exists"}], "tolerations"),
        ("affinity", {"nodeAffinity": {}}, "affinity"),
        ("priorityClassName", "high", "priorityClassName"),
        ("runtimeClassName", "nvidia", "runtimeClassName"),
    ],
)
def test_where_pods_run_is_said_only_when_it_is_given(path: str, value: object, field: str) -> None:
    assert field not in render(KEYS).pod
    assert render(KEYS, at(path, value)).pod[field] == value


def test_labels_and_annotations_of_pods() -> None:
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
def test_an_image_by_version_tag_or_digest(values: Values, image: str) -> None:
    assert render(KEYS, {"image": values}).container["image"] == image


def test_names_can_be_chosen() -> None:
    names = {each["metadata"]["name"] for each in render(KEYS, at("fullnameOverride", "search")).objects}
    assert names == {"search", "search-releases"}
    assert "shop-gate" in {each["metadata"]["name"] for each in render(KEYS, at("nameOverride", "gate")).objects}
