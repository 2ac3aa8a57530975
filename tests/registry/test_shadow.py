"""The shadow: a pointer to a release that is tried beside the current one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.errors import ReleaseError
from taugate.registry import history
from taugate.registry.catalog import current_id, shadow_id
from taugate.release.layout import MANIFEST, SHADOW
from tests.release.clones import clone, of_another_encoder

Release = Callable[..., tuple[int, str, str]]


def test_shadow_pointer_is_set_and_removed(copy: Path, first: str, three: list[str], release: Release) -> None:
    assert shadow_id(copy) is None
    for name in three[:2]:
        assert release("shadow", name) == (0, f"~ {name}\n", "")
        assert shadow_id(copy) == name
    marked = [line[:31] for line in release("list")[1].splitlines() if not line.startswith("    ")]
    assert marked == [f"* {first}", f"  {three[0]}", f"~ {three[1]}", f"  {three[2]}"]
    for _ in range(2):
        assert release("shadow", "--none") == (0, "", "")
        assert shadow_id(copy) is None
        assert not (copy / SHADOW).exists()
    events = [(event.action, event.release, event.previous) for event in history.read(copy).events[1:]]
    assert events == [("shadow", three[0], None), ("shadow", three[1], three[0]), ("shadow", None, three[1])]
    assert current_id(copy) == first


def test_shadow_may_have_other_encoder(copy: Path, first: str, release: Release) -> None:
    """What a change would do is what it is for."""
    assert release("shadow", clone(copy / first, 0, of_another_encoder))[0] == 0


def test_unfit_shadow_is_refused(copy: Path, first: str, three: list[str], release: Release) -> None:
    (copy / three[0] / MANIFEST).write_bytes(b"{")
    for arguments, message in (
        ([three[0]], MANIFEST),
        ([first], "is the current release"),
        (["nonsense"], "holds no release"),
        ([], "--none"),
        ([three[1], "--none"], "--none"),
    ):
        code, out, error = release("shadow", *arguments)
        assert (code, out) == (2, "")
        assert message in error
        assert shadow_id(copy) is None
    assert len(history.read(copy).events) == 1


def test_invalid_shadow_pointer_can_be_repaired(copy: Path, three: list[str], release: Release) -> None:
    (copy / SHADOW).write_text("nonsense", encoding="ascii")
    with pytest.raises(ReleaseError, match="taugate release shadow"):
        shadow_id(copy)
    assert release("list")[0] == 0
    assert release("shadow", three[0])[0] == 0
    (copy / SHADOW).write_text("nonsense", encoding="ascii")
    assert release("shadow", "--none")[0] == 0
    assert shadow_id(copy) is None
