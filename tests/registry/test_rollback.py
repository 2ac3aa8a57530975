"""Rollback returns to releases that were current before, one further back each time."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry import promotion
from taugate.registry.catalog import current_id
from taugate.registry.history import record
from taugate.registry.promotion import promote, rollback, rollback_targets
from taugate.release.layout import CURRENT, HISTORY, MANIFEST
from tests.release.clones import clone, of_another_encoder, without_a_cut

Release = Callable[..., tuple[int, str, str]]


def promote_all(copy: Path, names: list[str]) -> None:
    for name in names:
        promote(copy, name)


def test_repeated_rollback_goes_further_back(copy: Path, first: str, three: list[str], release: Release) -> None:
    a, b, c = three
    promote_all(copy, three)
    for expected in (b, a, first):
        code, out, error = release("rollback")
        assert (code, out) == (0, f"* {expected}\n")
        assert "SIGHUP, or POST /admin/reload" in error, "what happens next"
        assert current_id(copy) == expected
    code, out, error = release("rollback")
    assert (code, out) == (2, "")
    assert error == (f"taugate: {copy}: {first} has no earlier release to roll back to; promote one ({c}, {b}, {a})\n")


def test_promotion_after_rollback_extends_stack(copy: Path, first: str, three: list[str]) -> None:
    a, b, c = three
    promote_all(copy, [a, b])
    assert rollback(copy) == a
    promote(copy, c)
    assert rollback_targets(copy) == [a, first]
    promote(copy, a)
    assert rollback_targets(copy) == [c, first], "once each, the latest place first"
    assert [rollback(copy), rollback(copy), rollback(copy)] == [c, a, first]


def test_rollback_to_named_release_skips_others(copy: Path, first: str, three: list[str], release: Release) -> None:
    a, b, c = three
    promote_all(copy, three)
    assert release("rollback", a)[:2] == (0, f"* {a}\n")
    assert rollback_targets(copy) == [first]
    code, _, error = release("rollback", c)
    assert code == 2
    assert f"{c} was never current before {a}; earlier releases: {first}; promote one ({c}, {b}, {first})" in error


@pytest.mark.parametrize("name", ["nonsense", "../../etc", "20200101T000000Z-000000000000", ""])
def test_rollback_to_unknown_release_is_refused(copy: Path, first: str, release: Release, name: str) -> None:
    assert release("rollback", name)[0] == 2
    assert current_id(copy) == first


def test_rollback_needs_no_options(copy: Path, first: str) -> None:
    """What was in force once was meant: a rollback is for bad days."""
    odd = clone(copy / first, 0, lambda manifest: (of_another_encoder(manifest), without_a_cut(manifest)))
    promote(copy, odd, force=True, new_encoder=True)
    promote(copy, first, new_encoder=True)
    assert rollback(copy) == odd


def test_rollback_to_damaged_release_is_refused(copy: Path, first: str, three: list[str], release: Release) -> None:
    promote_all(copy, three[:2])
    (copy / three[0] / MANIFEST).write_bytes(b"{")
    code, _, error = release("rollback")
    assert code == 2
    assert MANIFEST in error
    assert current_id(copy) == three[1]
    assert release("rollback", first)[0] == 0


def test_rollback_skips_removed_releases(copy: Path, first: str, three: list[str]) -> None:
    promote_all(copy, three)
    for gone in three[1:]:  # also the current one, which is the worst of days
        shutil.rmtree(copy / gone)
    assert rollback(copy) == three[0]
    assert rollback(copy) == first


def test_rollback_follows_parents_without_history(copy: Path, first: str) -> None:
    second = clone(copy / first, 0, parent=first)
    third = clone(copy / first, 1, parent=second)
    (copy / HISTORY).unlink()
    (copy / CURRENT).write_text(third + "\n", encoding="ascii")
    assert rollback_targets(copy) == [second, first]
    assert rollback(copy) == second
    assert rollback_targets(copy) == [first], "from the history, then on by the parents"
    assert rollback(copy) == first


def test_circular_parents_are_handled(copy: Path, first: str) -> None:
    second = clone(copy / first, 0, parent="20300101T000100Z-" + first[-12:])
    third = clone(copy / first, 1, parent=second)
    assert third == "20300101T000100Z-" + first[-12:]
    (copy / HISTORY).unlink()
    (copy / CURRENT).write_text(third + "\n", encoding="ascii")
    assert rollback_targets(copy) == [second]


def test_rollback_needs_current_release(copy: Path, first: str, release: Release) -> None:
    (copy / CURRENT).unlink()
    code, _, error = release("rollback")
    assert code == 2
    assert error == f"taugate: {copy}: no release is current; promote one ({first})\n"


def test_interrupted_promotion_is_not_rollback_target(copy: Path, first: str, three: list[str]) -> None:
    a, b, c = three
    promote(copy, a)
    record(copy, "promote", b, a)  # and killed before the pointer moved
    assert rollback_targets(copy) == [first]
    promote(copy, c)
    assert rollback_targets(copy) == [a, first]
    record(copy, "rollback", a, c)
    assert rollback_targets(copy) == [a, first]


def test_manually_set_release_is_rollback_target(copy: Path, first: str, three: list[str]) -> None:
    a, b, _ = three
    (copy / CURRENT).write_text(a + "\n", encoding="ascii")
    promote(copy, b)
    assert rollback(copy) == a


def test_concurrent_rollback_is_refused(
    copy: Path, first: str, three: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who decided on what another has left by then is told so."""
    promote_all(copy, three)
    verify = promotion.verify_with_collection  # type: ignore[attr-defined]  # patched where it is used

    def slow(folder: Path, trusted: None) -> object:
        with monkeypatch.context() as patched:
            patched.setattr(promotion, "verify_with_collection", verify)
            rollback(copy)
        return verify(folder, trusted)

    monkeypatch.setattr(promotion, "verify_with_collection", slow)
    with pytest.raises(ReleaseError, match="in the meantime"):
        rollback(copy)
    assert current_id(copy) == three[1]
