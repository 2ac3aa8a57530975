"""Every value has an effect: another value changes the rendered objects."""

import functools
import json
from typing import Any

import helm_python
import pytest

from helm.values.chart import ChartValues
from helm.values.write import leaves
from tests.helm.rendered import CHART, KEYS, VARIANTS, Values, at, merged, render

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
CLAIM = at("recalibration.data.existingClaim", "labelled-data")

# Values among which there is one for each leaf that it makes a difference to; the quick ones first.
SETTINGS: list[Values] = [
    merged(KEYS, at("tests.key", "search-key"), at("queryLog.enabled", True)),
    merged(KEYS, at("recalibration.job.enabled", True), CLAIM, at("settings.reload_seconds", 60)),
    merged(
        at("settings.allow_unauthenticated", True),
        at("autoscaling.enabled", True),
        at("redis.existingSecret", "redis"),
        at("releases.volume.accessMode", "ReadWriteOnce"),
    ),
    VARIANTS["redis"],
    VARIANTS["engine"],
    merged(KEYS, at("redis", {"enabled": True, "passwordSecret": "redis"})),
    merged(VARIANTS["object-storage"], at("recalibration.job.enabled", True)),
    VARIANTS["all"],
    merged(KEYS, at("mcp", {"enabled": True, "keySecret": "agents-key"})),
]

# What no rule below finds: texts of a form of their own, lists, and Kubernetes' own objects.
OTHER: dict[str, object] = {
    "recalibration.promotion.maxAccuracyDrop": 0.05,
    "recalibration.promotion.maxKeptIncrease": "auto",
    "keys.entries": [{"name": "shop", "sha256": "0" * 64, "scopes": ["search"]}],
    "redis.url": "redis://other:6379",
    "engine.url": "postgresql://other/taugate",
    "encoderEndpoint.url": "https://other.example/v1",
    "rerankEndpoint.url": "https://other.example",
    "redis.maxMemory": "64mb",
    "recalibration.cronJob.schedule": "0 4 * * 1",
    "metrics.prometheusRule.runbooksUrl": "https://other/runbooks",
    "metrics.dashboards.playgroundUrl": "https://other/playground",
    "ingress.hosts": [{"host": "other.example.org", "paths": [{"path": "/search"}]}],
    "ingress.tls": [{"secretName": "other", "hosts": ["other.example.org"]}],
    "networkPolicy.ingressFrom": [{"podSelector": {"matchLabels": {"app": "other"}}}],
    "networkPolicy.extraEgress": [{"ports": [{"port": 8443}]}],
    "resources.requests": {"memory": "3Gi"},
    "resources.limits": {"memory": "3Gi"},
    "redis.resources": {"limits": {"memory": "3Gi"}},
    "mcp.ingressFrom": [{"podSelector": {"matchLabels": {"app": "other"}}}],
    "mcp.resources": {"limits": {"memory": "3Gi"}},
    "recalibration.resources": {"limits": {"memory": "3Gi"}},
    "autoscaling.targetQueueDepth": 32,
    "probes": {"startup": {"periodSeconds": 7}},
    "httpRoute": {"parentRefs": [{"name": "public"}]},
    "recalibration.prune": {"schedule": "0 5 * * 6"},
    "redis.pod": {"nodeSelector": {"pool": "other"}},
    "mcp.pod": {"nodeSelector": {"pool": "other"}},
    "recalibration.pod": {"nodeSelector": {"pool": "other"}},
    "recalibration.cronJob.spec": {"suspend": True},
    "podSpec": {"priorityClassName": "other"},
    "settings": {"max_k": 7},
    "topologySpread": "DoNotSchedule",
    "podSecurityContext": {"runAsUser": 7},
    "extraEnvFrom": [{"secretRef": {"name": "other"}}],
    "extraVolumes": [{"name": "other", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "other", "mountPath": "/other"}],
    "initContainers": [{"name": "other", "image": "other"}],
    "sidecars": [{"name": "other", "image": "other"}],
    "tolerations": [{"key": "other", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
}
# Texts by the end of their names, the first that fits.
BY_NAME = {
    "ize": "7Gi",
    ".digest": "sha256:" + "a" * 64,
    ".url": "s3://bucket/other",
    ".endpoint": "https://other",
    "": "other",
}
# Each setting is followed into the service's environment by test_settings; `global` is of charts around this one.
ELSEWHERE = {"global"}
LEAVES = [
    (path, default)
    for path, default, _ in leaves(ChartValues())
    if not path.startswith("settings.") and path not in ELSEWHERE
]


def schema_of(path: str) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA
    for name in path.split("."):
        found = found["properties"][name]
        while "$ref" in found:
            found = SCHEMA["$defs"][found["$ref"].rpartition("/")[2]]
    return found


def others(path: str, default: Any) -> list[Any]:
    """Values that the schema lets through, of which one at least is not what a setting above has."""
    schema = schema_of(path)
    if path in OTHER or "enum" in schema:
        return [OTHER[path]] if path in OTHER else [item for item in schema["enum"] if item is not None]
    kinds = schema.get("type", "string")
    more = default + 9 if isinstance(default, int) else 9
    by_kind = {"boolean": [True, False], "integer": [more], "array": [["other"]], "object": [{"other": "other"}]}
    for kind, values in by_kind.items():
        if kind in kinds:
            return values
    return [text for end, text in BY_NAME.items() if path.endswith(end)][:1]


@functools.cache
def before(number: int) -> dict[str, str]:
    return render(SETTINGS[number]).texts


def differs(number: int, path: str, value: Any) -> bool:
    """Return whether another value changes the objects; false if it conflicts with other values."""
    try:
        return before(number) != render(SETTINGS[number], at(path, value)).texts
    except helm_python.HelmRenderError as refused:
        assert "taugate: " in str(refused)
        return False


@pytest.mark.parametrize(("path", "default"), LEAVES, ids=[path for path, _ in LEAVES])
@pytest.mark.slow
def test_value_changes_rendered_chart(path: str, default: Any) -> None:
    assert any(differs(number, path, value) for number in _likely_first(path) for value in others(path, default))


def _likely_first(path: str) -> list[int]:
    """Numbers of all settings, those first that have a value of the same group: most switch its objects on."""
    group = path.partition(".")[0]
    return sorted(range(len(SETTINGS)), key=lambda number: group not in SETTINGS[number])
