"""Images contain the clients of all engines that compose and the chart can configure for them."""

import re
import tomllib

import helm_python
import pytest
import yaml
from packaging.requirements import Requirement

from tests.deploy.locks import DOCKERFILE, FOLDER, ROOT, faults, locked, needed
from tests.helm.rendered import KEYS, at, render

SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
FOR_MILVUS = yaml.safe_load((ROOT / "deploy" / "compose" / "milvus.yml").read_text(encoding="utf-8"))["services"]
SERVING = ["service", "service-gpu", "service-milvus"]
KINDS = {"http": "milvus", "https": "milvus", "postgres": "pgvector", "postgresql": "pgvector"}  # by scheme of a URL


def stages() -> dict[str, tuple[str, str]]:
    """Stages of the Dockerfile by name: what each starts from, and its lines."""
    found = re.findall(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    return {name: (base, lines) for base, name, lines in found}


def installed(stage: str) -> set[str]:
    """Files of requirements that the environment of a stage is installed from, those of earlier stages included."""
    if stage not in stages():
        return set()
    base, lines = stages()[stage]
    before = [base, *re.findall(r"COPY --from=(\S+) /opt/taugate ", lines)]
    script = (FOLDER / "torch.sh").read_text(encoding="utf-8") if "sh torch.sh" in lines else ""
    files = re.findall(r'(?:\$\{PIP\}|"\$@") install .*--requirement "?(?:\$folder/)?([\w-]+\.txt)', lines + script)
    return set(files).union(*map(installed, before))


def clients(target: str) -> set[str]:
    """Kinds of engines whose client an image has, with all that it needs."""
    plugin = tomllib.loads((ROOT / "plugins" / "engines" / "pyproject.toml").read_text(encoding="utf-8"))
    lock, extras = locked(*installed(target)), plugin["project"]["optional-dependencies"]
    asked = {kind: [item for item in map(Requirement, extras[kind]) if needed(item, set())] for kind in KINDS.values()}
    return {kind for kind, direct in asked.items() if not faults(direct, lock)[0]}


def test_images_install_expected_requirements() -> None:
    assert {name for name, (base, _) in stages().items() if base == "serving"} == set(SERVING)
    assert installed("service") == {"service.txt"}
    calibration = {"service.txt", "calibration.txt", "milvus.txt", "sample.txt"}
    assert installed("calibration") == calibration
    with_torch = {"torch-cpu.txt", "torch.txt", "sentence-transformers.txt"}
    assert installed("calibration-torch") == calibration | with_torch
    assert clients("mcp") == set()


def test_compose_images_have_engine_client() -> None:
    given = [value for value in SERVICES.values() if "TAUGATE_ENGINE_URL" in value.get("environment", {})]
    assert [item["build"]["target"] for item in given] == ["service", "calibration"]
    for service in given:
        (scheme,) = re.findall(r":-(\w+)://", service["environment"]["TAUGATE_ENGINE_URL"])
        assert KINDS[scheme] in clients(service["build"]["target"])


def test_milvus_override_changes_image_only() -> None:
    target = FOR_MILVUS["service"]["build"]["target"]
    assert "milvus" in clients(target)
    image = SERVICES["service"]["image"].replace("/service:", f"/{target}:")
    assert FOR_MILVUS["service"] == {"image": image, "build": {"target": target}}
    assert set(FOR_MILVUS) == {"service"}


def test_calibration_image_supports_all_engines() -> None:
    assert clients("calibration") == set(KINDS.values())


@pytest.mark.parametrize("scheme", KINDS)
@pytest.mark.parametrize("repository", ["taugate", "registry.example.org/taugate"])
@pytest.mark.parametrize("target", SERVING)
def test_chart_requires_image_with_client(target: str, repository: str, scheme: str) -> None:
    values = (KEYS, at("engine.url", f"{scheme}://engine"), at("image.repository", f"{repository}/{target}"))
    if KINDS[scheme] in clients(target):
        assert render(*values).environment["TAUGATE_ENGINE_URL"] == f"{scheme}://engine"
        return
    assert scheme.startswith("http"), "the chart cannot do without the client of PostgreSQL in any image"
    with pytest.raises(helm_python.HelmRenderError, match="build the target service-milvus"):
        render(*values)
