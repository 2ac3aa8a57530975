"""The wheel contains exactly taugate; the sdist equals the repository, and its tests pass."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "taugate"
KERNEL = "taugate/retrieval/encoder/kernel.abi3.so"
FOLDERS = [*re.findall(r"^graft (\S+)$", (ROOT / "MANIFEST.in").read_text(encoding="utf-8"), re.MULTILINE)]


def build(kind: str, source: Path, target: Path, **variables: str) -> Path:
    """Build a wheel or an sdist by the backend that pyproject.toml names, with environment variables."""
    program = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    command = [sys.executable, "-c", program, str(target)]
    environment = os.environ | variables
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
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
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file() and path.name not in {".git", ".env"}:
            shutil.copy(path, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


def test_wheel_installs_only_taugate(wheel: Path) -> None:
    metadata = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    assert {PurePosixPath(name).parts[0] for name in names(wheel)} == {"taugate", metadata}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_wheel_has_kernel_for_every_python_from_3_11(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    assert KERNEL in names(wheel)


def test_wheel_of_machine_without_compiler_lacks_only_the_kernel(source: Path, wheel: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "tree", symlinks=True, ignore=shutil.ignore_patterns("build", "*.so"))
    assert names(build("wheel", copy, tmp_path / "wheel", CC="false")) == names(wheel) - {KERNEL}


def package_files(*patterns: str) -> set[str]:
    """Paths of the package's files that match a pattern, as a wheel names them."""
    paths = (path for pattern in patterns for path in PACKAGE.rglob(pattern) if path.parent.name != "__pycache__")
    return {f"taugate/{path.relative_to(PACKAGE).as_posix()}" for path in paths}


def test_wheel_has_every_module(wheel: Path) -> None:
    assert {name for name in names(wheel) if name.endswith(".py")} == package_files("*.py")


def test_wheel_has_data_files(wheel: Path) -> None:
    data = package_files("*.j2", "*.css", "*.json", "*.txt", "*.jsonl", "*.tsv", "*.html", "*.js", "py.typed")
    assert {name.rpartition(".")[2] for name in data} >= {"j2", "css", "json", "jsonl", "tsv", "typed"}
    assert data <= names(wheel)


def test_package_has_no_links() -> None:
    """Windows and some file systems have no symbolic links: Git writes a text file with the path of the target."""
    assert [path for path in (ROOT / "src").rglob("*") if path.is_symlink()] == []


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)  # noqa: S202 (built above; filters came with Python 3.11.4)
    (found,) = folder.iterdir()
    return found


def test_sdist_equals_repository(unpacked: Path) -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("an sdist, or a machine without Git, has no list of the repository's files")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    linked = {name for name in tracked if (ROOT / name).is_symlink()}
    entry_points = {"service", "calibration"}  # links to folders of src/taugate, for readers of the repository
    assert {name for name in tracked - entry_points if not (unpacked / name).exists()} == set(), "see MANIFEST.in"
    files = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    generated = {name for name in files if name.startswith("src/taugate.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    copied = {name for name in files if any(name.startswith(f"{link}/") for link in linked)}
    assert files - generated - copied - tracked == set()


@pytest.mark.slow
def test_sdist_builds_same_wheel(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    assert names(build("wheel", unpacked, tmp_path / "again")) == names(wheel)


@pytest.mark.slow
def test_sdist_passes_sample_tests(unpacked: Path) -> None:
    """A quick sample that reads the package, data files and the chart; CI runs all tests in the repository."""
    chosen = ["tests/policy/test_policy.py", "tests/helm/test_made.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    environment = os.environ | {"PYTHONPATH": str(unpacked / "src")}
    done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_package_checkers_find_nothing(wheel: Path, sdist: Path) -> None:
    twine = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    contents = [sys.executable, "-m", "check_wheel_contents", str(wheel)]
    for command in (twine, contents):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_metadata_describes_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert len(str(metadata["Keywords"]).split(",")) >= 5
    text = str(metadata.get_payload())
    assert text.startswith("# Taugate")
    assert re.findall(r"\]\((?!#|https?:)[^)]*\)", text) == [], "relative links lead nowhere on a package index"
    assert re.findall(r'(?:src|srcset|href)="(?!#|https?:)', text) == []


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (None, "See docs/api.md and [below](#usage), or [PyPI](https://pypi.org). "),
        (
            "https://host/v1",
            "See [docs/api.md](https://host/v1/docs/api.md) and [below](#usage), or [PyPI](https://pypi.org). "
            '![plot](https://host/v1/a.svg)<picture><img src="https://host/v1/b.svg"></picture>',
        ),
    ],
)
def test_long_description_links_are_absolute(source: str | None, shown: str) -> None:
    readme = (
        "See [docs/api.md](docs/api.md) and [below](#usage), or [PyPI](https://pypi.org). ![plot](a.svg)"
        '<picture><img src="b.svg"></picture>'
    )
    long_description = runpy.run_path(str(ROOT / "setup.py"))["long_description"]
    assert long_description(readme, source) == shown
