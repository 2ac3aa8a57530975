"""Images and CI install the packages of pyproject.toml and constraints.txt, checked by hash."""

import json
import re
import subprocess
from collections.abc import Callable
from importlib.metadata import version as installed_version
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.requirements import audit, generate
from tests.deploy.locks import DOCKERFILE, FOLDER, PYPROJECT, ROOT, faults, locked, needed, version

FILES = sorted(path.name for path in FOLDER.glob("*.txt"))
# The installed build of PyTorch: the requirements of a build are only known if it is installed.
TORCH = "torch-cpu.txt" if installed_version("torch").endswith("+cpu") else "torch.txt"


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {canonicalize_name(name): pin for name, _, pin in (line.partition("==") for line in lines)}


@pytest.mark.parametrize("name", FILES)
def test_requirements_are_pinned_with_hashes(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    for block in re.split(r"\n(?=[a-z])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip()):
        assert re.match(r"[a-z0-9.-]+==\S+ ", block)
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block
    assert "://" not in text
    assert "index-url" not in text


@pytest.mark.parametrize("name", FILES)
def test_versions_equal_constraints(name: str) -> None:
    pinned = pins()
    versions = {name: version(each).partition("+")[0] for name, each in locked(name).items()}
    stale = {name: (at, pinned[name]) for name, at in versions.items() if pinned.get(name, at) != at}
    assert stale == {}, "run `make requirements`"


def test_stale_lock_is_detected() -> None:
    """The check below, on a lock that is stale on purpose."""
    direct = [Requirement("httpx>=0.28")]
    complete = locked("service.txt") | {name: Requirement(f"{name}==0.28.1") for name in ("httpx", "httpcore")}
    complete |= {"certifi": Requirement("certifi==2026.1.1")}
    missing = {name: each for name, each in complete.items() if name != "httpcore"}
    assert faults(direct, missing)[0] == {"httpcore, of httpx"}
    assert "uvicorn" in faults(direct, complete)[1]
    assert faults([Requirement("uvicorn<0.1")], complete)[0] >= {"uvicorn<0.1, not 0.54.0"}


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        (["service.txt"], generate.SERVICE),
        (["service.txt", "milvus.txt"], generate.MILVUS),
        (["calibration.txt"], generate.CALIBRATION),
        (["calibration.txt", "sentence-transformers.txt", TORCH], generate.TORCH),
        (
            ["service.txt", "calibration.txt", "milvus.txt"],
            {**generate.MILVUS, **generate.CALIBRATION, ".": [*generate.SERVICE["."], *generate.CALIBRATION["."]]},
        ),
        (["mcp.txt"], {generate.CLIENT: ["mcp"]}),
    ],
    ids=["service", "service-milvus", "quickstart", "torch", "calibration", "mcp"],
)
def test_locks_equal_pyproject_dependencies(files: list[str], folders: dict[str, list[str]]) -> None:
    direct = [item for item in map(Requirement, generate.asked(folders)) if needed(item, set())]
    assert faults(direct, locked(*files)) == (set(), set()), "run `make requirements`"


def test_images_have_the_plugins_of_their_locks() -> None:
    """The wheels that the Dockerfile installs are those whose packages generate.py locks."""
    wheels = {
        lines.partition("\n")[0].split()[-1]: {*re.findall(r"/wheel/taugate_(\w+)-\*\.whl", lines)}
        for lines in DOCKERFILE.split("\nFROM ")
    }
    assert wheels["build-service"] == plugins(generate.SERVICE)
    assert wheels["build-calibration"] == plugins(generate.CALIBRATION) - plugins(generate.SERVICE)
    assert wheels["build-calibration-torch"] == plugins(generate.TORCH) - plugins(generate.CALIBRATION)


def plugins(folders: dict[str, list[str]]) -> set[str]:
    return {folder.removeprefix("plugins/") for folder in folders if folder.startswith("plugins/")}


def test_locks_of_inputs_equal_them() -> None:
    for name in ("build", "gpu", "sample"):
        lock = locked(f"{name}.txt")
        lines = (FOLDER / f"{name}.in").read_text(encoding="utf-8").splitlines()
        asked = [Requirement(line) for line in lines if not line.startswith("#")]
        assert {item.name: item.specifier for item in asked}.items() <= {
            name: each.specifier for name, each in lock.items()
        }.items()
    (backend,) = map(Requirement, PYPROJECT["build-system"]["requires"])
    for file in ("build.txt", "sample.txt"):
        assert backend.specifier.contains(version(locked(file)[backend.name]))


def test_private_api_dependencies_are_bounded() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bounded = dict(re.findall(r'^  "([a-z-]+)[^"]*<[^"]*", *# (.*)$', text, re.MULTILINE))
    for name, reason in bounded.items():
        path = next((word for word in reason.split() if "/" in word), "")
        assert (ROOT / path).exists(), f"{name}: {reason}"
    sources = (ROOT / "src" / "taugate").rglob("*.py")
    private = {
        name.split(".")[0]
        for path in sources
        for name in re.findall(r"^ *(?:from|import) ([\w.]+\._\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert private <= {name.replace("-", "_") for name in bounded}


def test_pytorch_builds_have_same_version() -> None:
    assert version(locked("torch.txt")["torch"]) == pins()["torch"]
    assert version(locked("torch-cpu.txt")["torch"]) == pins()["torch"] + "+cpu"


def test_installs_are_checked_by_hash() -> None:
    """What pip installs has a hash each, or is the wheel of taugate that the same Dockerfile has built."""
    script = (FOLDER / "torch.sh").read_text(encoding="utf-8")
    installs = re.findall(r"(?:\$\{PIP\}|/pip|\"\$@\") (?:install|wheel) [^&;\n]*", DOCKERFILE + script)
    assert len(installs) >= 8
    checked = ("--require-hashes", "install --no-deps --no-index /wheel/", "wheel --no-deps --no-build-isolation")
    assert [line for line in installs if not any(part in line for part in checked)] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    quickstart = makefile[makefile.index("$(VENV)/.sample:") : makefile.index("$(VENV)/.import:")]
    assert re.findall(r"(?<=\t).*(?=\n)", quickstart)[:2] == [
        "$(HASHED) install --no-compile --no-deps --require-hashes --requirement $(LOCKED)/calibration.txt "
        "--requirement $(LOCKED)/sample.txt",
        "$(PIP) --no-deps --no-build-isolation --editable . $(call EDITABLE,$(PLUGINS))",
    ]


def test_audit_covers_all_files() -> None:
    assert set(audit.FILES) == set(FILES) - {"torch-cpu.txt"}, "whose PyTorch torch.txt names for an advisory service"


def test_audit_names_images_without_digest(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("deploy.requirements.audit._packages", lambda: 0)
    assert audit.main() == 2
    said = capsys.readouterr().err
    images = {
        service["image"] for service in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    }
    for image in {image for image in images if not image.startswith("taugate/")} | {"python:3.11-slim-bookworm"}:
        assert f"`docker buildx imagetools inspect {image}`" in said
    monkeypatch.setattr("deploy.requirements.audit.unpinned", list)
    assert audit.main() == 0


def test_chart_and_compose_name_the_same_redis() -> None:
    chart = yaml.safe_load((ROOT / "helm" / "taugate" / "values.yaml").read_text(encoding="utf-8"))["redis"]["image"]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["redis"]["image"]
    assert chart.split("@")[0] == compose.split("@")[0]


CLEAN = {"vulns": []}
HIT = {"vulns": [{"id": "PYSEC-2030-1", "fix_versions": ["9.9"], "aliases": [], "description": ""}]}
UNKNOWN = {"skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("pypi", "osv", "status", "said"),
    [
        (CLEAN, None, 0, "1 packages, 0 known vulnerabilities according to the package index"),
        (HIT, None, 1, "uvicorn 0.54.0: PYSEC-2030-1, fixed in 9.9"),
        (UNKNOWN, CLEAN, 0, "no answer from the package index: it has no advisories on 1 of 1 packages"),
        (UNKNOWN, None, 3, "NOT AUDITED"),
        (None, None, 3, "no answer from OSV: no such host"),
    ],
    ids=["clean", "vulnerable", "second service", "an index without advisories", "no network"],
)
def test_unreachable_audit_fails(
    pypi: dict[str, Any] | None, osv: dict[str, Any] | None, status: int, said: str, audited: Callable[..., str]
) -> None:
    assert said in audited({"pypi": pypi, "osv": osv}, status)


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the audit with given output of pip-audit for every service; None: the service is unreachable."""

    def run(answers: dict[str, dict[str, Any] | None], status: int) -> str:
        def pip_audit(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            answer = answers[command[command.index("--vulnerability-service") + 1]]
            if answer is None:
                return subprocess.CompletedProcess(command, 1, "", "Traceback\nno such host\n")
            package = {"name": "uvicorn", "version": "0.54.0"} | answer
            return subprocess.CompletedProcess(command, 0, json.dumps({"dependencies": [package]}), "")

        monkeypatch.setattr("deploy.requirements.audit.subprocess.run", pip_audit)
        monkeypatch.setattr("deploy.requirements.audit.unpinned", list)
        assert audit.main() == status
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run
