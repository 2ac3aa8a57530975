"""What the chart makes of values: the objects, by kind and name, as a cluster would be given them."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "taugate"
# The oldest that Chart.yaml lets in, and the newest that there are schemas of.
VERSIONS = ("1.30", "1.37")
APP_VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
KEYS = {"keys": {"existingSecret": "taugate-keys"}}

helm_python.disable_logging()  # it says of each file that it was found behind a symbolic link

Values = dict[str, Any]


class Rendered:
    """The objects of an installation named `shop` in the namespace `team`, and its notes."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = {path.removeprefix("taugate/templates/"): text for path, text in texts.items() if text.strip()}
        self.notes = self.texts.pop("NOTES.txt")

    @functools.cached_property
    def objects(self) -> list[dict[str, Any]]:
        return [item for text in self.texts.values() for item in yaml.safe_load_all(text) if item]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [obj for obj in self.objects if obj["kind"] == kind]

    def one(self, kind: str, suffix: str = "") -> dict[str, Any]:
        """The object of that kind whose name ends so, after the name of the installation."""
        (found,) = [item for item in self.of(kind) if item["metadata"]["name"] == f"shop-taugate{suffix}"]
        return found

    @property
    def job(self) -> dict[str, Any]:
        """The one Job, whose name ends with a digest."""
        (job,) = self.of("Job")
        return job

    @property
    def pod(self) -> dict[str, Any]:
        """The service's pod."""
        spec: dict[str, Any] = self.one("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        (container,) = [item for item in self.pod["containers"] if item["name"] == "taugate"]
        return container

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the service that are no secrets."""
        return {**self.one("ConfigMap")["data"], **plain(self.container)}


def plain(container: dict[str, Any]) -> dict[str, str]:
    """Variables of a container that are given as they are."""
    return {variable["name"]: variable["value"] for variable in container.get("env", []) if "value" in variable}


def secrets(container: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Variables of a container that come from Secrets: name and entry."""
    found = {
        variable["name"]: variable.get("valueFrom", {}).get("secretKeyRef") for variable in container.get("env", [])
    }
    return {name: (source["name"], source["key"]) for name, source in found.items() if source}


def merged(*parts: Values) -> Values:
    """Values on top of values, as several files of them are."""
    result: Values = {}
    for part in parts:
        for name, each in part.items():
            below = result.get(name)
            result[name] = merged(below, each) if isinstance(below, dict) and isinstance(each, dict) else each
    return result


def at(path: str, value: object) -> Values:
    """One value by its path, as --set has it."""
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@functools.cache
def _chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def render(*parts: Values, revision: int = 1) -> Rendered:
    """Objects made of the chart's defaults and what is given."""
    texts = _chart().render(merged(*parts), name="shop", namespace="team", revision=revision)
    return Rendered(texts)


def variants() -> Iterator[tuple[str, Values]]:
    """What is in ci/, by name; that of the GPU on top of values-gpu.yaml."""
    for path in sorted((CHART / "ci").glob("*-values.yaml")):
        name = path.name.removesuffix("-values.yaml")
        below = yaml.safe_load((CHART / "values-gpu.yaml").read_text(encoding="utf-8")) if name == "gpu" else {}
        yield name, merged(below, yaml.safe_load(path.read_text(encoding="utf-8")))


VARIANTS = dict(variants())


def check(resource: dict[str, Any]) -> None:
    """Against the schemas of Kubernetes; nothing that they do not know may be in it."""
    for version in VERSIONS:
        _check(json.dumps(resource, sort_keys=True), version)


@functools.cache
def _check(resource: str, version: str) -> None:
    kubernetes_validate.validate(json.loads(resource), version, strict=True)
