"""A full disk under commands that write releases: a one-line error, and nothing has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry import history
from taugate.registry.catalog import current_id, release_ids
from taugate.registry.promotion import promote
from taugate.registry.prune import prune
from taugate.release.verify import verify
from tests.calibration.commands import arguments
from tests.faults.disks import fill, small_disk
from tests.service.conftest import Two

PAGE = os.sysconf("SC_PAGE_SIZE")


def kilobytes(folder: Path) -> int:
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return sum(-(-size // PAGE) for size in sizes) * PAGE >> 10


def refused(command: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """Return the last line of a command that failed to write."""
    capfd.readouterr()
    assert cli.main(command) in {1, 2}
    said = capfd.readouterr().err
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith("taugate: ")
    return last


@pytest.mark.slow
def test_calibration_on_full_disk(
    releases: Path, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The disk is full in the encoder, the index, the manifest, or just before the history and the pointer."""
    total = kilobytes(releases)
    for number, free in enumerate((total // 10, total // 2, total - 8, total + 4)):
        with small_disk(tmp_path / f"disk{number}", 2 * total + 4 * 1024) as disk:
            own = shutil.copytree(releases, disk / "releases")
            fill(disk, leave=free << 10)
            before = sorted(path.name for path in own.iterdir() if path.name != ".lock")
            command = arguments(sample, own, encoder, "--seed", str(number + 1))
            capfd.readouterr()
            code = cli.main(command)
            said = capfd.readouterr().err
            assert "Traceback" not in said
            if code:
                assert said.splitlines()[-1].startswith("taugate: ")
                assert "No space left" in said
            left = sorted(path.name for path in own.iterdir() if path.name not in {".lock", *release_ids(own)})
            assert left == sorted({*before} - {*release_ids(own)})
            for name in release_ids(own):
                verify(own / name)
            assert current_id(own) == current_id(releases) or not code
            (disk / ".ballast").unlink()
            assert cli.main(arguments(sample, own, encoder, "--seed", "9")) == 0


def test_promotion_on_full_disk(two: Two, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The disk has no space for the pointer after the line of the history, then none for that line either."""
    with small_disk(tmp_path / "disk", 2 * kilobytes(two.folder) + 64) as disk:
        own = shutil.copytree(two.folder, disk / "releases")
        ballast = fill(disk)
        for _ in range(2):
            for command in (["promote", two.new], ["shadow", two.new]):
                said = refused(["release", *command, "--releases", str(own)], capfd)
                assert "No space left" in said or "full" in said
            assert current_id(own) == two.old
            assert not (own / "shadow").exists()
            assert not list(own.glob(".*.new"))
            past = own / "history.jsonl"
            lines = past.read_bytes()
            past.write_bytes(lines.ljust(-(-len(lines) // PAGE) * PAGE, b"\n"))
        ballast.unlink()
        promote(own, two.new)
        assert history.read(own).unreadable == []
        assert history.read(own).events[-1].release == two.new
        promote(own, two.old)
        past.unlink()  # so that no rollback needs the other release
        fill(disk)
        assert [each.name for each in prune(own, 0) if each.kept is None] == [two.new]


def test_promotion_beyond_size_limit(two: Two) -> None:
    """A limit of the file size stands for a full disk, so that no mount is needed."""
    command = ["prlimit", "--fsize=16", sys.executable, "-m", "taugate", "release", "promote", two.new]
    done = subprocess.run(
        [*command, "--releases", str(two.folder)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 1
    assert done.stderr.startswith("taugate: ")
    assert len(done.stderr.splitlines()) == 1
    assert "nothing was changed" in done.stderr
    assert current_id(two.folder) == two.old
    promote(two.folder, two.new)
    assert history.read(two.folder).events[-1].release == two.new
