"""The image of the service: its contents, user, end and files."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from tests.containers.engine import ROOT, base_image, image, inspected, run, until

VERSION = version("taugate")
BEYOND_THE_BASE = 330_000_000  # bytes


class Container:
    """The service with a read-only release and only the writable folders of its documentation."""

    def __init__(self, releases: Path, *options: str) -> None:
        arguments = ["run", "--detach", "--publish", "127.0.0.1::8000", "--volume", f"{releases}:/releases:ro"]
        self.id = run(*arguments, "--tmpfs", "/tmp", *options, image("service")).stdout.split()[-1]
        self.url = f"http://{run('port', self.id, '8000').stdout.split()[0]}"

    def ready(self) -> None:
        until(lambda: httpx.get(f"{self.url}/readyz").status_code == 200)

    def search(self) -> httpx.Response:
        return httpx.post(f"{self.url}/search", json={"query": "hidden defects", "threshold": -1})


@pytest.fixture
def container(request: pytest.FixtureRequest, releases: Path) -> Iterator[Container]:
    started = Container(releases, "--env", "TAUGATE_ALLOW_ANYONE=true", *request.param)
    try:
        started.ready()
        yield started
    finally:
        run("rm", "--force", started.id)


HARDENED = ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"]


@pytest.mark.parametrize("container", [HARDENED], indirect=True)
def test_service_runs_without_privileges(container: Container) -> None:
    assert container.search().json()["results"]
    status = run("exec", container.id, "cat", "/proc/1/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["10001"] * 4
    assert {int(fields[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}


@pytest.mark.parametrize("container", [HARDENED], indirect=True)
def test_sigterm_ends_container_quickly(container: Container) -> None:
    assert container.search().status_code == 200
    run("kill", "--signal", "TERM", container.id)
    assert run("wait", container.id, timeout=5).stdout.split()[-1] == "0"
    logs = run("logs", container.id)
    assert '"message":"stopped"' in logs.stdout + logs.stderr


@pytest.mark.parametrize("container", [[]], indirect=True)
def test_container_writes_only_to_volumes(container: Container) -> None:
    assert container.search().status_code == 200
    changed = [line.split(maxsplit=1)[1] for line in run("diff", container.id).stdout.splitlines()]
    mounted = ("/tmp", "/releases", "/run", "/etc", "/dev", "/proc", "/sys")  # /etc, /run: hosts, resolv.conf
    assert [path for path in changed if not path.startswith(mounted)] == []


@pytest.mark.parametrize("container", [HARDENED], indirect=True)
def test_health_check_needs_only_python(container: Container) -> None:
    config = inspected(image("service"))
    check = (config.get("Healthcheck") or config["Config"]["Healthcheck"])["Test"]
    assert check[0] == "CMD"
    assert '"status":"ready"' in run("exec", container.id, *check[1:]).stdout


def test_missing_release_exits_with_remedy() -> None:
    done = run("run", "--rm", image("service"), check=False)
    assert done.returncode == 2
    assert "taugate: /releases: no release is current; run `taugate calibrate DATA" in done.stderr


def test_missing_keys_refuse_public_address(releases: Path) -> None:
    done = run("run", "--rm", "--volume", f"{releases}:/releases:ro", image("service"), check=False)
    assert done.returncode == 2
    assert "TAUGATE_KEYS_FILE" in done.stderr


def test_image_lacks_pytorch_pip_and_compiler() -> None:
    code = "import importlib.util as u, shutil; print([u.find_spec(n) for n in {}], shutil.which('cc'))"
    entry = ["run", "--rm", "--entrypoint", "python", image("service"), "-c"]
    assert run(*entry, code.format(["torch", "transformers", "pip"])).stdout.strip() == "[None, None, None] None"


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("service", "postgresql://engine"),
        ("calibration", "postgresql://engine"),
        ("calibration", "http://engine:19530"),
        ("service-milvus", "postgresql://engine"),
        ("service-milvus", "http://engine:19530"),
    ],
)
def test_image_has_engine_client(target: str, url: str) -> None:
    kind = "milvus" if url.startswith("http") else "pgvector"
    code = f"from taugate.retrieval.engines.engine import connect; print(connect({kind!r}, [{url!r}]).kind)"
    assert inside(target, code).strip() == kind


def test_mcp_image_contains_only_client() -> None:
    code = "import importlib.util as u; print([u.find_spec(n) is None for n in {}])"
    names = ["taugate", "numpy", "faiss", "onnxruntime", "pip"]
    assert inside("mcp", code.format(names)).strip() == str([True] * len(names))
    mcp, base = inspected(image("mcp")), inspected(base_image())
    assert mcp["Config"]["User"] == "10001:10001"
    assert mcp["Size"] - base["Size"] <= 100_000_000


def inside(target: str, code: str) -> str:
    return run("run", "--rm", "--entrypoint", "python", image(target), "-c", code).stdout


def test_build_exports_sbom_of_service() -> None:
    built = json.loads((ROOT / "build" / "sbom" / "service.cdx.json").read_text(encoding="utf-8"))
    assert built == json.loads(inside("service", "print(open('/opt/taugate/sbom.cdx.json').read())"))


def test_image_is_small_and_labelled() -> None:
    service, base = inspected(image("service")), inspected(base_image())
    assert service["Size"] - base["Size"] <= BEYOND_THE_BASE
    assert service["Config"]["User"] == "10001:10001"
    labels = service["Config"]["Labels"]
    assert {f"org.opencontainers.image.{name}" for name in ("title", "version", "licenses", "revision")} <= set(labels)


@pytest.mark.parametrize("target", ["service", "service-milvus", "calibration", "mcp"])
def test_image_sbom_matches_installed_packages(target: str) -> None:
    bom = json.loads(inside(target, "print(open('/opt/taugate/sbom.cdx.json').read())"))
    assert bom["bomFormat"] == "CycloneDX"
    named = {(each["name"].lower(), each["version"]) for each in bom["components"]}
    code = "import importlib.metadata as m; print(*(f'{d.name.lower()}={d.version}' for d in m.distributions()))"
    listed = inside(target, code).split()
    assert named == {(name, version) for name, version in (each.split("=") for each in listed)} - {
        ("taugate", VERSION),
        ("taugate-client", VERSION),
    }
