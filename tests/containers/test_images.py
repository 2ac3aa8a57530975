"""The service's image: what is in it, as whom it runs, how it ends, and what it writes."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from tests.containers.engine import ROOT, base_image, image, inspected, run, until

VERSION = version("taugate")
BEYOND_THE_BASE = 450_000_000  # bytes


class Container:
    """The service on a release that is mounted read-only, with what it may write to named, and nothing else."""

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
def test_it_answers_with_no_right_to_anything(container: Container) -> None:
    assert container.search().json()["results"]
    status = run("exec", container.id, "cat", "/proc/1/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["10001"] * 4
    assert {int(fields[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}


@pytest.mark.parametrize("container", [HARDENED], indirect=True)
def test_sigterm_reaches_it_and_it_ends_within_five_seconds(container: Container) -> None:
    assert container.search().status_code == 200
    run("kill", "--signal", "TERM", container.id)
    assert run("wait", container.id, timeout=5).stdout.split()[-1] == "0"
    logs = run("logs", container.id)
    assert '"message":"stopped"' in logs.stdout + logs.stderr


@pytest.mark.parametrize("container", [[]], indirect=True)
def test_it_writes_nowhere_but_where_it_says(container: Container) -> None:
    assert container.search().status_code == 200
    changed = [line.split(maxsplit=1)[1] for line in run("diff", container.id).stdout.splitlines()]
    mounted = ("/tmp", "/releases", "/run", "/etc", "/dev", "/proc", "/sys")  # /etc, /run: hosts, resolv.conf
    assert [path for path in changed if not path.startswith(mounted)] == []


@pytest.mark.parametrize("container", [HARDENED], indirect=True)
def test_its_health_check_needs_nothing_but_python(container: Container) -> None:
    config = inspected(image("service"))
    check = (config.get("Healthcheck") or config["Config"]["Healthcheck"])["Test"]
    assert check[0] == "CMD"
    assert '"status":"ready"' in run("exec", container.id, *check[1:]).stdout


def test_without_a_release_it_says_what_to_do_and_exits_with_2() -> None:
    done = run("run", "--rm", image("service"), check=False)
    assert done.returncode == 2
    assert "taugate: /releases: no release is current; run `taugate calibrate DATA" in done.stderr


def test_without_keys_it_refuses_to_answer_the_world(releases: Path) -> None:
    done = run("run", "--rm", "--volume", f"{releases}:/releases:ro", image("service"), check=False)
    assert done.returncode == 2
    assert "TAUGATE_KEYS_FILE" in done.stderr


def test_it_has_no_pytorch_no_pip_and_no_compiler() -> None:
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
def test_it_has_the_client_of_the_engine_that_it_may_be_given(target: str, url: str) -> None:
    kind = "milvus" if url.startswith("http") else "pgvector"
    code = f"from taugate.retrieval.engines.connect import connect; print(connect({kind!r}, [{url!r}]).kind)"
    assert inside(target, code).strip() == kind


def test_the_mcp_server_is_the_client_and_no_service() -> None:
    code = "import importlib.util as u; print([u.find_spec(n) is None for n in {}])"
    names = ["taugate", "numpy", "faiss", "onnxruntime", "pip"]
    assert inside("mcp", code.format(names)).strip() == str([True] * len(names))
    mcp, base = inspected(image("mcp")), inspected(base_image())
    assert mcp["Config"]["User"] == "10001:10001"
    assert mcp["Size"] - base["Size"] <= 100_000_000


def inside(target: str, code: str) -> str:
    return run("run", "--rm", "--entrypoint", "python", image(target), "-c", code).stdout


def test_the_list_of_the_service_comes_out_of_a_build_too() -> None:
    built = json.loads((ROOT / "build" / "sbom" / "service.cdx.json").read_text(encoding="utf-8"))
    assert built == json.loads(inside("service", "print(open('/opt/taugate/sbom.cdx.json').read())"))


def test_it_is_small_and_says_what_it_is() -> None:
    service, base = inspected(image("service")), inspected(base_image())
    assert service["Size"] - base["Size"] <= BEYOND_THE_BASE
    assert service["Config"]["User"] == "10001:10001"
    labels = service["Config"]["Labels"]
    assert {f"org.opencontainers.image.{name}" for name in ("title", "version", "licenses", "revision")} <= set(labels)


@pytest.mark.parametrize("target", ["service", "service-milvus", "calibration", "mcp"])
def test_each_image_has_a_list_of_what_is_installed(target: str) -> None:
    bom = json.loads(inside(target, "print(open('/opt/taugate/sbom.cdx.json').read())"))
    assert bom["bomFormat"] == "CycloneDX"
    named = {(each["name"].lower(), each["version"]) for each in bom["components"]}
    code = "import importlib.metadata as m; print(*(f'{d.name.lower()}={d.version}' for d in m.distributions()))"
    listed = inside(target, code).split()
    assert named == {(name, version) for name, version in (each.split("=") for each in listed)} - {
        ("taugate", VERSION),
        ("taugate-client", VERSION),
    }
