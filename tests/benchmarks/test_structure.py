"""The check of the structure, which `make lint` runs."""

import subprocess
import sys
from pathlib import Path

from benchmarks.structure.guarantees import guarantees

ROOT = Path(__file__).resolve().parents[2]


def limits(source: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.structure.limits", str(source)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_hidden_circle_of_files_is_found(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "one.py").write_text("def load():\n    from package.two import two\n", encoding="utf-8")
    (package / "two.py").write_text("if TYPE_CHECKING:\n    import package.one\n", encoding="utf-8")
    (package / "three.py").write_text("from package import one, two\n", encoding="utf-8")
    checked = limits(package)
    assert checked.returncode == 1
    assert "files that import each other: 1, the limit is 0" in checked.stdout
    assert "package.three" not in checked.stdout


def test_source_is_within_its_limits() -> None:
    checked = limits(ROOT / "src" / "taugate")
    assert (checked.returncode, checked.stdout) == (0, "")


def test_each_guarantee_can_be_broken_in_one_place() -> None:
    assert len({guarantee.place() for guarantee in guarantees()}) > 1
