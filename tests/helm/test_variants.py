"""Every ci/*-values.yaml is linted strictly and rendered to objects that Kubernetes accepts."""

import subprocess
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from taugate.service.access.authorization import check_access
from taugate.service.settings import Settings
from tests.helm.custom_resources import check_custom, is_custom
from tests.helm.rendered import CHART, VARIANTS, VERSIONS, Rendered, check, render

variant = pytest.mark.parametrize("name", VARIANTS)


def test_variants_exist() -> None:
    assert {"default", "minimal", "object-storage", "gpu", "recalibrate", "redis", "trusted", "all"} <= set(VARIANTS)


@variant
@pytest.mark.parametrize("version", VERSIONS)
def test_lint_finds_nothing(name: str, version: str) -> None:
    report = helm_python.lint(CHART, VARIANTS[name], strict=True, kube_version=f"v{version}.0")
    assert report["errors"] == []
    assert [item["error"] for item in report["messages"]] == ["icon is recommended"]


@variant
def test_objects_are_valid_for_kubernetes_versions(name: str) -> None:
    rendered = render(VARIANTS[name])
    assert len(rendered.objects) >= 5
    for obj in rendered.objects:
        (check_custom if is_custom(obj) else check)(obj)


@variant
def test_names_are_unique_short_and_labelled(name: str) -> None:
    rendered = render(VARIANTS[name])
    names = [(obj["kind"], obj["metadata"]["name"]) for obj in rendered.objects]
    assert len(names) == len(set(names))
    for obj in rendered.objects:
        assert obj["metadata"]["namespace"] == "team"
        labels = obj["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "shop"
        assert labels["app.kubernetes.io/part-of"] == "taugate"
        assert len(obj["metadata"]["name"]) <= (52 if obj["kind"] == "CronJob" else 63)


def pods(rendered: Rendered) -> list[dict[str, Any]]:
    """The specs of all pods, whatever makes them."""
    templates = [item["spec"]["template"] for kind in ("Deployment", "Job") for item in rendered.of(kind)]
    templates += [item["spec"]["jobTemplate"]["spec"]["template"] for item in rendered.of("CronJob")]
    return [template["spec"] for template in templates] + [item["spec"] for item in rendered.of("Pod")]


@variant
def test_pods_are_restricted(name: str) -> None:
    for pod in pods(render(VARIANTS[name])):
        assert pod["automountServiceAccountToken"] is False
        # A Service's own variables are called as the service's settings are: TAUGATE_PORT.
        assert pod["enableServiceLinks"] is False
        assert [item["name"] for item in pod.get("imagePullSecrets", [])] == VARIANTS[name].get("imagePullSecrets", [])
        assert pod["securityContext"]["runAsNonRoot"] is True
        own = {"runAsUser", "runAsGroup", "fsGroup"} & pod["securityContext"].keys()
        assert (own == set()) == (name == "openshift")
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["resources"]["requests"]["cpu"]
            assert "ephemeral-storage" in container["resources"]["requests"] or container["name"] in {"agent", "wait"}


@variant
def test_mounted_volumes_equal_defined(name: str) -> None:
    for pod in pods(render(VARIANTS[name])):
        containers = [*pod.get("initContainers", []), *pod["containers"]]
        mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod.get("volumes", [])}


@variant
def test_service_accepts_rendered_variables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render(VARIANTS[name])
    for variable, value in rendered.environment.items():
        if variable.startswith("TAUGATE_"):
            monkeypatch.setenv(variable, value)
    settings = Settings()
    assert str(settings.releases.location) in {"/releases", "s3://bucket/team"}
    if settings.access.keys_file is None:
        check_access(settings)


@variant
def test_selectors_match_their_pods(name: str) -> None:
    rendered = render(VARIANTS[name])
    labels = rendered.of("Deployment")[0]["spec"]["template"]["metadata"]["labels"]
    for deployment in rendered.of("Deployment"):
        own = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= own.items()
        services = [
            item
            for item in rendered.of("Service")
            if item["spec"]["selector"].items() <= own.items() and not item["metadata"]["name"].endswith("-pods")
        ]
        assert [service["metadata"]["name"] for service in services] == [deployment["metadata"]["name"]]
    for kind in ("Job", "Pod"):
        for item in rendered.of(kind):
            others = item["spec"].get("template", item)["metadata"]["labels"]
            assert others["app.kubernetes.io/component"] != labels["app.kubernetes.io/component"]


@variant
def test_objects_are_those_of_any_revision(name: str) -> None:
    assert render(VARIANTS[name], revision=1).texts == render(VARIANTS[name], revision=9).texts


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    rules = render(VARIANTS["all"]).of("PrometheusRule")
    assert len(rules) == 2
    for rule in rules:
        path = tmp_path / f"{rule['metadata']['name']}.yml"
        path.write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
        done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
