"""The wheel has the whole of taugate, which it reaches through the links of src/taugate, and nothing else."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "taugate"
COPIED = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "constraints.txt", "pyproject.toml", "src", "tests")
ROOMS = sorted(link.resolve().name for link in PACKAGE.iterdir() if link.is_symlink())


def build(kind: str, source: Path, target: Path) -> Path:
    """Build a wheel or an sdist by the backend that pyproject.toml names; nothing is downloaded."""
    program = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    command = [sys.executable, "-c", program, str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = target.iterdir()
    return built


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree: setuptools writes into the one that it builds."""
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*COPIED, *ROOMS):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


def test_it_installs_taugate_and_nothing_beside_it(wheel: Path) -> None:
    metadata = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    assert {PurePosixPath(name).parts[0] for name in names(wheel)} == {"taugate", metadata}


def test_it_has_every_module_of_every_room(wheel: Path) -> None:
    found = os.walk(PACKAGE, followlinks=True)
    modules = {
        f"taugate/{(Path(folder) / name).relative_to(PACKAGE).as_posix()}"
        for folder, _, files in found
        for name in files
        if name.endswith(".py")
    }
    assert {f"taugate/{room}" for room in ROOMS} == {
        name.rpartition("/")[0] for name in modules if name.count("/") == 2
    }
    assert {name for name in names(wheel) if name.endswith(".py")} == modules


def test_it_has_the_files_that_modules_read(wheel: Path) -> None:
    read = {
        f"taugate/{room}/{path.relative_to(ROOT / room).as_posix()}"
        for room in ROOMS
        for pattern in ("*.j2", "*.css", "*.txt")
        for path in (ROOT / room).rglob(pattern)
    }
    assert {name.rpartition(".")[2] for name in read} == {"j2", "css", "txt"}
    assert "taugate/ingestion/dataset/off_topic.txt" in read
    assert read | {"taugate/py.typed"} <= names(wheel)


def test_the_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert not (unpacked / "tests").exists()
    assert names(build("wheel", unpacked, tmp_path / "again")) == names(wheel)
