"""Each wheel contains exactly its package; the sdist of the core equals the repository, and its tests pass."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "taugate_kernel/kernel.abi3.so"
# The folder of each distribution, by its package.
DISTRIBUTIONS = {"taugate": ".", **{f"taugate_{path.name}": f"plugins/{path.name}" for path in ROOT.glob("plugins/*")}}
VERSION = version("taugate")
DATA = ("css", "html", "j2", "js", "json", "jsonl", "tsv", "txt")  # ends of the names of data files
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
def wheels(source: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of core and plug-ins, by package."""
    plugins = {package: folder for package, folder in DISTRIBUTIONS.items() if folder != "."}
    return {"taugate": wheel} | {
        package: build("wheel", source / folder, tmp_path_factory.mktemp("wheel"))
        for package, folder in plugins.items()
    }


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.mark.parametrize("package", DISTRIBUTIONS)
def test_wheel_installs_only_its_package(wheels: dict[str, Path], package: str) -> None:
    wheel = wheels[package]
    metadata = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    assert {PurePosixPath(name).parts[0] for name in names(wheel)} == {package, metadata}
    assert wheel.name.endswith("-py3-none-any.whl") == (package != "taugate_kernel"), "pure Python, or not"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_wheel_has_kernel_for_every_python_from_3_11(wheels: dict[str, Path]) -> None:
    assert "-cp311-abi3-" in wheels["taugate_kernel"].name
    assert KERNEL in names(wheels["taugate_kernel"])


def test_wheel_of_machine_without_compiler_lacks_only_the_kernel(
    source: Path, wheels: dict[str, Path], tmp_path: Path
) -> None:
    ignored = shutil.ignore_patterns("build", "*.so")
    copy = shutil.copytree(source / DISTRIBUTIONS["taugate_kernel"], tmp_path / "tree", ignore=ignored)
    assert names(build("wheel", copy, tmp_path / "wheel", CC="false")) == names(wheels["taugate_kernel"]) - {KERNEL}


def test_plugins_have_the_version_of_the_core() -> None:
    for folder in DISTRIBUTIONS.values():
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        core = [line for line in project["dependencies"] if re.match(r"taugate[\[=]", line)]
        assert project["version"] == VERSION
        assert [line.partition("==")[2] for line in core] == ([VERSION] if folder != "." else [])


def package_files(package: str, *patterns: str) -> set[str]:
    """Paths of a package's files that match a pattern, as a wheel names them."""
    root = ROOT / DISTRIBUTIONS[package] / "src" / package
    paths = (path for pattern in patterns for path in root.rglob(pattern) if path.parent.name != "__pycache__")
    return {f"{package}/{path.relative_to(root).as_posix()}" for path in paths}


@pytest.mark.parametrize("package", DISTRIBUTIONS)
def test_wheel_has_modules_and_data_files(wheels: dict[str, Path], package: str) -> None:
    found = names(wheels[package])
    assert {name for name in found if name.endswith(".py")} == package_files(package, "*.py")
    data = package_files(package, *(f"*.{end}" for end in DATA), "py.typed")
    assert f"{package}/py.typed" in data
    assert data <= found


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


def test_package_checkers_find_nothing(wheels: dict[str, Path], sdist: Path) -> None:
    built = [*map(str, wheels.values())]
    twine = [sys.executable, "-m", "twine", "check", "--strict", *built, str(sdist)]
    contents = [sys.executable, "-m", "check_wheel_contents", *built]
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
