"""requires-python and the classifiers are true: every pin allows the supported versions, and machines test them."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from deploy.requirements.pythons import MINORS, supported_pythons
from tests.deploy.locks import FOLDER, PYPROJECT, ROOT
from tests.deploy.test_requirements import pins
from tests.machines.__main__ import MACHINES
from tests.machines.pip_settings import environment, options


def test_pins_allow_supported_pythons() -> None:
    """As far as packages are installed; `make requirements` asks the package index about all of them."""
    pinned, checked, refused = pins(), 0, {}
    for distribution in distributions():
        name = canonicalize_name(distribution.name)
        if pinned.get(name) != distribution.version.partition("+")[0]:
            continue
        checked += 1
        admitted = SpecifierSet(*distribution.metadata.get_all("Requires-Python", []))
        if excluded := [python for python in supported_pythons() if python not in admitted]:
            refused[f"{name}=={pinned[name]}"] = excluded
    assert refused == {}
    assert checked > 150


def test_supported_pythons_exclude_broken_patch() -> None:
    pythons = supported_pythons()
    assert pythons[0] == "3.11.0"
    assert "3.14.0" in pythons
    assert "3.14.1" not in pythons


def test_classifiers_equal_tested_pythons() -> None:
    """Which of them passed is known after a run, and not here."""
    assert [machine.python for machine in MACHINES] == MINORS
    client = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [line for line in PYPROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert {line.rpartition(" ")[2] for line in pythons} <= set(MINORS)
    assert [line for line in client["classifiers"] if "Python :: 3." in line] == pythons


def check(python: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """What the Makefile runs before it creates a virtual environment."""
    environment = os.environ | ({"PATH": path} if path else {})
    command = ["/bin/sh", str(FOLDER / "python.sh"), python]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def stand_in(folder: Path, version: tuple[int, int, int], *, ensurepip: bool = True) -> Path:
    """A Python that calls itself another version, and may lack ensurepip as Debian's does without python3-venv."""
    lines = ["import platform, sys", f"sys.version_info = {version}"]
    lines.append(f"platform.python_version = lambda: '{'.'.join(map(str, version))}'")
    if not ensurepip:
        lines.append("sys.modules['ensurepip'] = None")
    (folder / "as_another.py").write_text("\n".join([*lines, "exec(sys.argv[1])"]))
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} {folder}/as_another.py "$2"\n')
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 13), (3, 14, 0), (3, 14, 2)])
def test_supported_python_passes_silently(version: tuple[int, int, int], tmp_path: Path) -> None:
    done = check(str(stand_in(tmp_path, version)))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("version", [(3, 9, 2), (3, 10, 13), (3, 14, 1)])
def test_unsupported_python_is_named(version: tuple[int, int, int], tmp_path: Path) -> None:
    done = check(str(stand_in(tmp_path, version)))
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert f"Python {'.'.join(map(str, version))}" in sentence
    assert "needs 3.11 or newer" in sentence


def test_missing_venv_names_package(tmp_path: Path) -> None:
    done = check(str(stand_in(tmp_path, (3, 13, 5), ensurepip=False)))
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert "apt-get install python3-venv" in sentence
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "python3-venv" in readme


def test_missing_python_names_package(tmp_path: Path) -> None:
    done = check("python3", path=str(tmp_path))
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert "apt-get install python3 python3-venv" in sentence


def test_unusable_python_creates_nothing(tmp_path: Path) -> None:
    python = stand_in(tmp_path, (3, 13, 5), ensurepip=False)
    command = ["make", "quickstart", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "python3-venv" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "venv").exists()


TORCH = next(pin for name, pin in pins().items() if name == "torch")


def installed_with(pip: str, tmp_path: Path) -> tuple[list[str], str]:
    """The commands that torch.sh gives to pip, and what it writes to stderr.

    Args:
        pip: The script that stands in.
    """
    log = tmp_path / "log"
    (tmp_path / "pip").write_text(f'#!/bin/sh\necho "$@" >>{log}\n{pip}\n')
    (tmp_path / "pip").chmod(0o755)
    command = ["sh", str(FOLDER / "torch.sh"), str(tmp_path / "pip"), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Path(line.split()[-1]).name for line in log.read_text().splitlines()], done.stderr


NO_CPU_BUILD = f"""case $* in
*torch-cpu.txt) echo "ERROR: No matching distribution found for torch=={TORCH}+cpu" >&2; exit 1;;
esac"""


def test_missing_cpu_build_warns_of_size(tmp_path: Path) -> None:
    commands, said = installed_with(NO_CPU_BUILD, tmp_path)
    assert commands == ["freeze", "torch-cpu.txt", "torch.txt", "sentence-transformers.txt"]
    for words in ("2.7 GB to download and 4.6 GB on disk", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "Ctrl-C"):
        assert words in said
    assert "ERROR" not in said


def test_cpu_build_is_preferred(tmp_path: Path) -> None:
    commands, said = installed_with("", tmp_path)
    assert (commands, said) == (["freeze", "torch-cpu.txt", "sentence-transformers.txt"], "")


def test_failed_download_shows_pip_message(tmp_path: Path) -> None:
    broken = NO_CPU_BUILD.replace("No matching distribution found", "hashes do not match")
    _, said = installed_with(broken, tmp_path)
    assert "hashes do not match" in said


@pytest.mark.parametrize("line", [f"torch=={TORCH}", f"torch=={TORCH}+cpu", f"torch @ file:///w/torch-{TORCH}+cpu.whl"])
def test_matching_pytorch_is_kept(line: str, tmp_path: Path) -> None:
    commands, _ = installed_with(f'case $* in *freeze) echo "{line}";; esac', tmp_path)
    assert commands == ["freeze", "sentence-transformers.txt"]


@pytest.mark.parametrize("line", ["torch==1.0.0", f"torchvision=={TORCH}"])
def test_another_pytorch_is_replaced(line: str, tmp_path: Path) -> None:
    commands, _ = installed_with(f'case $* in *freeze) echo "{line}";; esac', tmp_path)
    assert commands == ["freeze", "torch-cpu.txt", "sentence-transformers.txt"]


def test_containers_use_pip_settings(tmp_path: Path) -> None:
    (tmp_path / "packages" / "simple").mkdir(parents=True)
    (tmp_path / "ca.pem").write_text("")
    listed = f"""global.cert='{tmp_path}/old.pem'
install.extra-index-url='file://{tmp_path}/packages/simple https://index.example/simple'
:env:.cert='{tmp_path}/ca.pem'
"""
    settings = environment(listed)
    assert settings["PIP_CERT"] == f"{tmp_path}/ca.pem", "a variable of this process comes before a file"
    assert set(options(settings)) == {
        f"--env=PIP_EXTRA_INDEX_URL=file://{tmp_path}/packages/simple https://index.example/simple",
        "--env=PIP_CERT=/pip/PIP_CERT",
        f"--volume={tmp_path}/ca.pem:/pip/PIP_CERT:ro",
        f"--volume={tmp_path}/packages:{tmp_path}/packages:ro",
    }
