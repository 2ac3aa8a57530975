"""The baseline file: it is loaded as saved, and any other file is refused with its name."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.drift.monitor import Baseline, load_baseline
from taugate.errors import InputError
from taugate.release.layout import baseline_path
from tests.drift.weeks import learnt, monitor


def test_saved_baseline_is_loaded_unchanged(tmp_path: Path) -> None:
    path = baseline_path(tmp_path / "new" / "folder", "release")
    baseline = learnt()
    baseline.save(path)
    assert path.name == "baseline-release.json"
    assert load_baseline(path, "release", monitor()) == baseline
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # nothing is left of the staging


def test_baseline_file_is_reproducible(tmp_path: Path) -> None:
    for name in ("one", "two"):
        learnt().save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    learnt(seed=2).save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() != (tmp_path / "two").read_bytes()


def test_failed_write_keeps_old_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "baseline.json"
    before = learnt()
    before.save(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        learnt(seed=2).save(path)
    assert load_baseline(path, "release", monitor()) == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.timeout(60)
def test_concurrent_reader_sees_complete_file(tmp_path: Path) -> None:
    """While one writes two baselines in turn, another reads one of them each time, until it has seen both often."""
    path = tmp_path / "baseline.json"
    both = [learnt(), learnt(seed=2)]
    both[0].save(path)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            for each in both:
                each.save(path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        watched = monitor()
        read = [0, 0]
        while min(read) < 20:
            read[both.index(load_baseline(path, "release", watched))] += 1
    finally:
        done.set()
        writer.join()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("baseline") / "baseline.json"
    learnt().save(path)
    return path.read_bytes()


def refused(path: Path, match: str | None = None) -> None:
    """In one sentence, which names the file once and says what to do, and brings nothing along that moves a cursor."""
    with pytest.raises(InputError, match=match) as error:
        load_baseline(path, "release", monitor())
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert message.count(str(path)) == 1
    assert message.endswith("; make it again with `taugate drift baseline`")
    assert message.isprintable()
    assert len(message) < 500


def test_changed_digit_is_detected(saved: bytes, tmp_path: Path) -> None:
    """Every fifth one, unless the number is the same all the same: two decimals may be one float."""
    path = tmp_path / "baseline.json"
    path.write_bytes(saved)
    watched = monitor()
    complete = load_baseline(path, "release", watched)
    digits = [place for place, byte in enumerate(saved) if chr(byte).isdigit()]
    refusals = 0
    for place in digits[::5]:
        changed = bytearray(saved)
        changed[place] = ord(str((int(chr(changed[place])) + 1) % 10))
        path.write_bytes(changed)
        try:
            assert load_baseline(path, "release", watched) == complete
        except InputError as error:
            assert str(error).startswith(f"{path}: ")
            refusals += 1
    assert refusals > 0.9 * len(digits[::5])


@pytest.mark.parametrize(
    "content",
    [b"queries", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000, b'{"baseline": {}, "sha256": ""}', 0.0, 0.5, 0.99],
    ids=[
        "words",
        "a list",
        "an object",
        "null",
        "no UTF-8",
        "nested",
        "an empty one",
        "nothing",
        "a half",
        "all but 1 %",
    ],
)
def test_other_content_is_refused(saved: bytes, tmp_path: Path, content: bytes | float) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(content if isinstance(content, bytes) else saved[: int(content * len(saved))])
    refused(path, "damaged, or not a baseline")


def missing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("elsewhere"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("change", [missing, folder, link_to_itself, link_to_nothing, pipe, endless])
@pytest.mark.timeout(20)
def test_irregular_file_is_refused(saved: bytes, tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(saved)
    change(path)
    refused(path)


def test_linked_baseline_is_loaded(saved: bytes, tmp_path: Path) -> None:
    """Kubernetes mounts files so."""
    (tmp_path / "elsewhere").write_bytes(saved)
    (tmp_path / "baseline.json").symlink_to(tmp_path / "elsewhere")
    assert load_baseline(tmp_path / "baseline.json", "release", monitor()) == learnt()


def without_signal(content: dict) -> None:
    del content["signals"]["roe"]


def further_signal(content: dict) -> None:
    content["signals"]["more"] = content["signals"]["roe"]


def further_variable(content: dict) -> None:
    for end in ("lower", "upper"):
        content["signals"]["roe"][end].append(0.5)


def upside_down(content: dict) -> None:
    content["signals"]["roe"] = {"lower": [0.5], "upper": [0.25]}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        *(
            (change, "its signals are not those")
            for change in (without_signal, further_signal, further_variable, upside_down)
        ),
        (
            lambda content: content.update(release="20240101-abc"),
            "belongs to release '?20240101-abc'?, not to '?release",
        ),
        (lambda content: content.update(release="\x1b[2J" + "x" * 100_000), "belongs to release|damaged"),
        (lambda content: content.update(days=3), "covers 3 days"),
    ],
)
def test_unfit_sealed_baseline_is_refused(
    saved: bytes, tmp_path: Path, change: Callable[[dict], object], match: str
) -> None:
    """Its digest is that of its content."""
    content = json.loads(saved)["baseline"]
    change(content)
    Baseline.model_validate(content).save(tmp_path / "baseline.json")
    refused(tmp_path / "baseline.json", match)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-0.1", "1.1", "1e999", '"0.5"', "null", "true"])
def test_bound_outside_unit_interval_is_refused(saved: bytes, tmp_path: Path, number: str) -> None:
    path = tmp_path / "baseline.json"
    content = json.loads(saved)
    content["baseline"]["signals"]["roe"]["lower"] = ["HERE"]
    path.write_text(json.dumps(content).replace('"HERE"', number))
    refused(path, "damaged")


def test_other_schema_version_is_refused(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    content = json.loads(saved)
    content["baseline"]["schema_version"] = 2
    path.write_text(json.dumps(content))
    refused(path, "damaged, or not a baseline")
