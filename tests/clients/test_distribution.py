"""The client's wheel: small, complete, with one dependency, and without imports of Taugate or other frameworks."""

import ast
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath

import pytest

from taugate_client import Gate
from taugate_client.errors import InvalidConfiguration
from tests.deploy.test_package import build, names

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "clients" / "python"
SOURCES = CLIENT / "src"
FRAMEWORKS = {
    "taugate_client": set(),
    "langchain_taugate": {"langchain_core", "pydantic"},
    "llama_index": {"llama_index", "llama_index_instrumentation"},
    "haystack_integrations": {"haystack"},
    "taugate_mcp": {"mcp", "mcp_types", "pydantic", "starlette", "uvicorn"},
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree") / "python"
    shutil.copytree(CLIENT, tree, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    return build("wheel", tree, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_wheel_is_small_and_complete(wheel: Path) -> None:
    assert wheel.stat().st_size < 60_000
    modules = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py")}
    typed = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("py.typed")}
    assert len(typed) == 5
    found = {name for name in names(wheel) if ".dist-info/" not in name}
    assert found == modules | typed
    assert {PurePosixPath(name).parts[0] for name in found} == set(FRAMEWORKS)


def test_wheel_has_no_namespace_init_files(wheel: Path) -> None:
    """An __init__.py in llama_index or haystack_integrations would hide every other distribution's modules."""
    shared = {"llama_index", "llama_index/retrievers", "haystack_integrations", "haystack_integrations/components"}
    assert not {f"{folder}/__init__.py" for folder in shared} & names(wheel)


def test_wheel_requires_only_httpx2(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist", [])
    assert [each for each in required if "extra ==" not in each] == ["httpx2<3,>=2.9"]
    assert set(metadata.get_all("Provides-Extra", [])) == {"langchain", "llamaindex", "haystack", "mcp"}
    for extra in ("langchain", "llamaindex", "haystack", "mcp"):
        assert len([each for each in required if f'extra == "{extra}"' in each]) == 1


def test_wheel_has_mcp_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        assert "taugate-mcp = taugate_mcp.command:main\n" in archive.read(name).decode()


def test_version_equals_service_version(metadata: Message) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert metadata["Version"] == tomllib.load(file)["project"]["version"]


def test_package_checkers_find_nothing(wheel: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", FRAMEWORKS)
def test_package_imports_own_framework_only(package: str) -> None:
    imported = set()
    for path in (SOURCES / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                imported.add(str(node.module).partition(".")[0])
    others = imported - sys.stdlib_module_names - {package, "taugate_client"}
    # `Gate` imports taugate if it is installed; the wheel works without it (below).
    assert others <= FRAMEWORKS[package] | ({"httpx2", "taugate"} if package == "taugate_client" else set())


def test_wheel_works_without_other_packages(wheel: Path, tmp_path: Path) -> None:
    """The wheel on a path of its own, with httpx2 and what that requires: neither numpy nor pydantic is imported."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        "import sys, taugate_client; assert taugate_client.__file__.startswith(sys.argv[1]); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert not loaded & {"faiss", "numpy", "onnxruntime", "pydantic", "taugate", "torch"}
    assert {"httpx2", "taugate_client"} <= loaded


HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def test_gate_without_its_package_names_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "taugate.errors", None)
    with pytest.raises(InvalidConfiguration, match=r"run `pip install \.` in a clone of its repository"):
        Gate("gates")


def test_page_on_gate_begins_with_its_installation() -> None:
    text = (HOW_TO / "calibrate-a-retriever.md").read_text(encoding="utf-8")
    first = text.partition("```sh\n")[2].partition("```")[0]
    assert "pip install '.[calibration" in first
    assert "pip install ./clients/python\n" in first
    assert text.index("pip install ./clients/python") < text.index("from taugate_client import Gate")
