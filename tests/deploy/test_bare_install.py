"""The wheel of the core, without extras and plug-ins: commands work, or name what they need.

The environment is new. It has the packages that the wheel requires, linked from those of this interpreter: what pip
would install with constraints.txt, in a second and without a package index.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from taugate.registry.catalog import find
from tests.compatibility.write import DATA, FOLDER
from tests.deploy.test_package import source, wheel  # noqa: F401 (fixtures)
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

RELEASES = FOLDER / "releases" / "schema-2-baseline"


def required(distribution_name: str, extras: frozenset[str] = frozenset()) -> Iterator[Distribution]:
    """What a distribution requires, with what that requires."""
    for line in distribution(distribution_name).requires or []:
        requirement = Requirement(line)
        environments = [{"extra": extra} for extra in (extras or {""})]
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
            yield distribution(requirement.name)
            yield from required(requirement.name, frozenset(requirement.extras))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """The interpreter of the new environment."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    interpreter = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "--disable-pip-version-check"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, env=clean)
    (packages,) = folder.glob("lib/python*/site-packages")
    for value in {value.name: value for value in required("taugate")}.values():
        for name in {path.parts[0] for path in value.files or [] if path.parts[0] not in {"..", "__pycache__"}}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(value.locate_file(name))))
    return interpreter


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def taugate(python: Path, tmp_path: Path) -> Run:
    """The command of the new environment, in an empty folder, with nothing of this one's environment."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        command = [str(python.with_name("taugate")), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    return shutil.copytree(RELEASES, tmp_path / "releases")


def test_environment_has_no_extras(python: Path) -> None:
    modules = ["torch", "sentence_transformers", "scipy", "sklearn", "jinja2", "onnx", "cryptography", "s3fs"]
    program = f"from importlib.util import find_spec; print([name for name in {modules} if find_spec(name)])"
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    where = [python, "-I", "-c", "import taugate; print(taugate.__file__)"]
    done = subprocess.run(where, capture_output=True, text=True, check=True)
    assert str(python.parent.parent) in done.stdout, "it is the wheel that is tried, not this tree"


COMMANDS = [
    *((), ("quickstart",), ("calibrate",), ("serve",), ("settings",), ("key", "new"), ("drift", "replay")),
    *(("drift", "baseline"), ("release",), ("completion",)),
    *(("release", action) for action in ("list", "show", "verify", "diff", "history", "promote")),
    *(("release", action) for action in ("rollback", "shadow", "prune", "erase", "sign", "push", "pull")),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_works_without_extras(command: tuple[str, ...], taugate: Run) -> None:
    done = taugate(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.lower().startswith("usage: taugate")


def test_commands_work_without_extras(taugate: Run, releases: Path) -> None:
    name = find(releases).name
    where = ("--releases", str(releases))
    document = json.loads((DATA / "corpus.jsonl").read_text().splitlines()[0])["_id"]
    assert taugate("--version").stdout.startswith("taugate ")
    assert taugate("settings").returncode == 0
    assert taugate("key", "new", "--name", "app", "--scopes", "search").returncode == 0
    for action in ("list", "show", "verify", "history", "prune"):
        assert taugate("release", action, *where).returncode == 0, action
    erased = taugate("release", "erase", name, document, *where)
    assert erased.returncode == 0, erased.stderr
    other = erased.stdout.strip()
    for action in (("diff", other), ("shadow", other), ("shadow", "--none"), ("promote", other), ("rollback",)):
        done = taugate("release", *action, *where)
        assert done.returncode == 0, (action, done.stderr)


def test_service_runs_without_extras_and_plugins(python: Path, releases: Path) -> None:
    class Bare(ServiceProcess):
        interpreter = str(python)

    with Bare(releases, PYTHONPATH="").ready() as service:
        reply = service.http.post("/search", json={"query": "Who built the old bridge of Riga?"})
        assert reply.status_code == 200
        assert reply.json()["considered"] > 0
        home = service.http.get("/", headers={"Accept": "text/html"})
        assert "pip install plugins/playground" in home.text


@pytest.mark.parametrize(("command", "plugin"), [("import", "import"), ("judge", "label")])
def test_missing_plugin_is_named(command: str, plugin: str, taugate: Run) -> None:
    done = taugate(command, "--help")
    assert done.returncode == 2
    assert f"the plug-in taugate-{plugin} (in a clone: pip install plugins/{plugin})" in done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["calibrate", "DATA", "--releases", "new"], "calibration"),
        (["quickstart", "--no-serve"], "calibration,sample"),
        (["release", "promote", "ID", "--if", "accuracy not lower", "--releases", "RELEASES"], "calibration"),
        (["release", "push", "--to", "s3://bucket/prefix", "--releases", "RELEASES"], "storage"),
        (["release", "pull", "--from", "s3://bucket/prefix", "--releases", "RELEASES"], "storage"),
        (["release", "sign", "--key", "KEY", "ID", "--releases", "RELEASES"], "signing"),
        (["serve", "--releases", "s3://bucket/prefix"], "storage"),
        (["calibrate", "s3://bucket/data", "--releases", "new"], "calibration"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else value,
)
def test_missing_extra_is_named(command: list[str], extra: str, taugate: Run, releases: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    log = shutil.copy(FOLDER / "query-log-hashes.jsonl", tmp_path)
    places = {"DATA": DATA, "RELEASES": releases, "LOG": log, "ID": find(releases).name, "KEY": tmp_path / "key.pem"}
    before = sorted(tmp_path.rglob("*"))
    done = taugate(*(str(places.get(word, word)) for word in command))
    assert done.returncode in {1, 2}
    lines = [line for line in done.stderr.splitlines() if line.startswith("taugate: ")]
    assert len(lines) == 1, done.stderr
    assert f"pip install 'taugate[{extra}]'" in lines[0]
    written = [path for path in sorted(tmp_path.rglob("*")) if path not in before and "cache" not in str(path)]
    assert written == [], "nothing is left half written"
