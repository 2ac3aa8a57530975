"""Evidence in a manifest against a release, checked by every command that promotes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.registry import history
from taugate.registry.catalog import current_id
from taugate.release.layout import MANIFEST
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.release.clones import clone, of_another_encoder

Release = Callable[..., tuple[int, str, str]]


def provisional(manifest: dict) -> None:
    manifest["calibration"] |= {"state": "provisional", "reasons": ["few_queries"], "human": 12}


def unknown_reason(manifest: dict) -> None:
    manifest["calibration"] |= {"state": "provisional", "reasons": ["full_moon"]}


def of_older_times(manifest: dict) -> None:
    del manifest["calibration"]


def chance_warning(manifest: dict) -> None:
    manifest["calibration"]["accuracy"] |= {"lower": 0.009, "chance": 0.01, "queries_needed": 700}


def everything_against(manifest: dict) -> None:
    for change in (provisional, chance_warning, of_another_encoder):
        change(manifest)
    manifest["policy"] |= {"kind": "none", "tau": None}


def refused(release: Release, copy: Path, name: str, *more: str) -> str:
    """The one line of a refusal, after which the same release is current."""
    before = current_id(copy)
    code, out, error = release("promote", name, *more)
    assert (code, out, error.count("\n")) == (4, "", 1)
    assert error.startswith(f"taugate: {name}: ")
    assert current_id(copy) == before
    return error


def forced(copy: Path) -> tuple[str, ...]:
    return history.read(copy).events[-1].forced


def test_provisional_does_not_replace_calibrated(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, provisional)
    message = refused(release, copy, name)
    for part in (f"the current release {first} is calibrated", "12 answerable queries", "label 18 more", "--force"):
        assert part in message
    assert "label 18 more" in refused(release, copy, name, "--new-encoder")
    code, out, error = release("promote", name, "--force")
    assert (code, out) == (0, f"* {name}\n")
    assert error.startswith("promotion: the current release is now provisional")
    assert forced(copy) == ("provisional",)


def test_release_of_old_version_counts_as_calibrated(copy: Path, first: str, release: Release) -> None:
    older = clone(copy / first, 0, of_older_times)
    assert release("promote", older) == (0, f"* {older}\n", "")
    assert f"the current release {older} is calibrated" in refused(release, copy, clone(copy / first, 1, provisional))


def test_provisional_replaces_provisional(copy: Path, first: str, release: Release) -> None:
    names = [clone(copy / first, minute, provisional) for minute in range(2)]
    assert release("promote", names[0], "--force")[0] == 0
    assert release("promote", names[1])[0] == 0
    assert forced(copy) == ()
    assert release("promote", first)[0] == 0
    assert forced(copy) == ()
    assert release("rollback")[:2] == (0, f"* {names[1]}\n"), "it was in force once, and is asked for nothing"


def test_first_release_may_be_provisional(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, provisional)
    (copy / "current").unlink()
    assert release("promote", name)[0] == 0
    assert forced(copy) == ()


@pytest.mark.parametrize("content", [b"", b"[]", b"{"])
def test_provisional_replaces_damaged_current(copy: Path, first: str, release: Release, content: bytes) -> None:
    name = clone(copy / first, 0, provisional)
    (copy / first / MANIFEST).unlink()
    (copy / first / MANIFEST).write_bytes(content)
    assert release("promote", name)[0] == 0


def test_accuracy_at_chance_needs_force(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, chance_warning)
    for part in (
        "as low as 0.009 (lower 95 % limit)",
        "the 0.010 that 5 documents",
        "label about 700 queries",
        "--force",
    ):
        assert part in refused(release, copy, name)
    (copy / "current").unlink()
    assert "chance" not in refused(release, copy, name)
    assert release("promote", name, "--force")[0] == 0
    assert forced(copy) == ("accuracy not above chance",)


def test_overridden_rules_are_recorded(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, everything_against)
    assert release("promote", name)[0] == 2
    assert release("promote", name, "--force")[0] == 2, "another encoder takes a word of its own"
    assert release("promote", name, "--force", "--new-encoder")[0] == 0
    assert forced(copy) == ("policy none", "accuracy not above chance", "provisional", "new encoder")


def test_promotion_rule_does_not_override_provisional(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, provisional)
    message = refused(release, copy, name, "--max-accuracy-drop", "0.5")
    assert "label 18 more" in message


def test_list_marks_provisional_releases(copy: Path, first: str, release: Release) -> None:
    name = clone(copy / first, 0, provisional)
    rows = [row for row in release("list")[1].splitlines() if not row.startswith("   ")]
    assert [(row[:31], "provisional" in row, "calibrated" in row) for row in rows] == [
        (f"* {first}", False, True),
        (f"  {name}", True, False),
    ]
    code, out, error = release("show", name)
    assert (code, out.startswith("{")) == (0, True)
    assert error.startswith(f"{name} is provisional: it has 12 answerable queries, and 30 are the fewest to rely on")
    of_a_later_version = clone(copy / first, 1, unknown_reason)
    said = f"{of_a_later_version} is provisional: see calibration.reasons\n"
    assert release("show", of_a_later_version)[2].startswith(said)
    assert " is calibrated\nCertified   nothing" in release("show")[2]


def test_provisional_results_are_not_certified(copy: Path, first: str) -> None:
    """The same results, and nothing said of them."""
    name = clone(copy / first, 0, provisional)
    asked = [Query("a building permit", 5), Query("a building permit", 1)]
    before, after = (load(copy / each).retriever.search(asked) for each in (first, name))
    assert [answer.calibrated for answer in before] == [True, True]
    assert [answer.calibrated for answer in after] == [False, False]
    assert [each.positions.tolist() for each in after] == [each.positions.tolist() for each in before]
