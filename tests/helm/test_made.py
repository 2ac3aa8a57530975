"""Committed chart files equal those of the models, and the models accept only described values."""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import helm_python
import pytest
import yaml

from helm.values.__main__ import generated
from helm.values.chart import ChartValues
from helm.values.moved import MOVED
from helm.values.write import leaves
from tests.helm.rendered import CHART, KEYS, ROOT, at, render

# Kubernetes' own objects, which are handed on: rendered objects are checked, with what is in these.
HANDED_ON = {
    "affinity", "behavior", "containerSecurityContext", "env", "extraEgress", "extraEnvFrom", "extraVolumeMounts",
    "extraVolumes", "global", "httpRoute", "ingressFrom", "initContainers", "liveness", "pod", "podSecurityContext",
    "podSpec", "readiness", "resources", "sidecars", "spec", "startup",
}  # fmt: skip


def test_committed_chart_files_are_current() -> None:
    for path, content in generated().items():
        assert path.read_text(encoding="utf-8") == content, f"make chart: {path.name} is not up to date"


def test_chart_version_equals_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["apiVersion"], chart["name"], chart["appVersion"]) == ("v2", project["name"], project["version"])


def test_chart_defaults_equal_models() -> None:
    with helm_python.Chart.load(CHART) as chart:
        defaults = chart.merge_values({})
    for path, default, _ in leaves(ChartValues()):
        found: Any = defaults
        for name in path.split("."):
            found = (found or {}).get(name)  # Helm leaves out what is null
        assert found == default, path


def test_values_have_descriptions() -> None:
    texts = {path: text for path, _, text in leaves(ChartValues())}
    assert [path for path, text in texts.items() if len(text) < 6] == []
    for path in ("settings", "releases.url", "resources.requests", "metrics.serviceMonitor.enabled"):
        assert path in texts


def objects(schema: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each part of the schema that is of objects, by the name of the value."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield name, schema
        for key, inner in schema.items():
            if key in {"properties", "$defs"}:
                for each, part in inner.items():
                    yield from objects(part, each)
            else:
                yield from objects(inner, name)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part, name)


def test_schema_is_strict() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    found = list(objects(schema))
    assert len(found) > 30
    open_ones = {name for name, part in found if part.get("additionalProperties") is True}
    assert open_ones >= HANDED_ON
    assert open_ones - HANDED_ON <= {group for path in MOVED for group in path.split(".")[:-1]}, "refused by a template"
    assert [name for name, part in found if "additionalProperties" not in part] == []


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        ("replica", 3, "'replica' not allowed"),
        ("listen", None, "missing property 'listen'"),
        ("service.port", None, "missing property 'port'"),
        ("settings.maxK", 5, "'maxK' not allowed"),
        ("settings.max_k", 0, "minimum: got 0, want 1"),
        ("settings.max_batch", 5000, "maximum: got 5,000, want 1,024"),
        ("settings.drift_average_run_length", 1, "want 1"),
        ("settings.workers", "2,threads=3", "does not match pattern"),
        ("settings.log_level", "loud", "'debug', 'info', 'warning', 'error'"),
        ("replicas", "two", "/replicas': got string"),
        ("releases.url", "bucket/team", "does not match pattern"),
        ("redis.url", "http://redis", "does not match pattern"),
        ("redis.passwordSecret", "a/b/c", "does not match pattern"),
        ("resources.limits", {"memory": "1 GB"}, "/resources/limits/memory"),
        ("keys.entries", [{"name": "shop", "sha256": "x", "scopes": []}], "minItems"),
        ("keys.entries", [{"name": "shop"}], "missing properties 'sha256', 'scopes'"),
        ("ingress.hosts", [{"host": "example.org"}], "missing property 'paths'"),
        ("image.digest", "latest", "does not match pattern"),
        ("recalibration.promotion", "off", "got string, want object"),
        ("metrics.prometheusRule.runbooksUrl", "wiki.example.com/runbooks", "does not match pattern"),
        ("metrics.prometheusRule.runbooksUrl", "javascript:alert(1)", "does not match pattern"),
        ("metrics.prometheusRule.runbooksUrl", "https://wiki.example.com/two words", "does not match pattern"),
        ("metrics.prometheusRule.runbooksUrl", "https://wiki.example.com/{{ x }}", "does not match pattern"),
        ("metrics.prometheusRule.runbooksUrl", "", "does not match pattern"),
    ],
)
def test_invalid_value_is_refused_by_name(path: str, given: object, said: str) -> None:
    with pytest.raises(helm_python.HelmValuesError) as refused:
        render(KEYS, at(path, given))
    assert said in str(refused.value)
    assert path.split(".", maxsplit=1)[0] in str(refused.value)


# One of each kind: in a group that stays, that is gone, or that is now a single value; the schema lets all of them in.
WENT = [
    "redis.affinity",
    "recalibration.workVolume.size",
    "tests.key.key",
    "mcp.image.tag",
    "keys.file",
    "runtimeClassName",
]


@pytest.mark.parametrize("path", WENT)
def test_value_that_went_is_refused_with_its_successor(path: str) -> None:
    with pytest.raises(helm_python.HelmError) as refused:
        render(KEYS, at(path, "some"))
    assert f"taugate: {path} is no longer a value: {MOVED[path]}" in str(refused.value)


def test_template_files_are_short() -> None:
    for path in (CHART / "templates").rglob("*"):
        if path.is_file():
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 120, path.name
