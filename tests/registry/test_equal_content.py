"""A release with the content of the current one: `taugate quickstart` keeps the current one alone."""

from pathlib import Path

from taugate.calibration.comparison.publish import Promotion, Published
from taugate.cli.terminal.promotion import CalibratedRelease
from taugate.registry.catalog import release_ids
from taugate.registry.writer import without_equal
from taugate.release.layout import MANIFEST
from taugate.release.verify import verify
from tests.release.clones import clone, without_a_cut


def test_equal_release_is_removed_and_current_one_kept(copy: Path, first: str) -> None:
    again = clone(copy / first, 1, parent=first)
    kept = without_equal(copy, verify(copy / again))
    assert (kept.release_id, release_ids(copy)) == (first, [first])
    assert without_equal(copy, kept) == kept, "the current one itself"
    released = CalibratedRelease("data", kept, copy / first, Promotion(), Published(promoted=True), first)
    assert released.rows()["Promotion"] == f"Not needed: {first} has the same content and remains the current release."


def test_different_release_and_remedy_of_damaged_one_are_kept(copy: Path, first: str) -> None:
    other = clone(copy / first, 1, without_a_cut)
    assert without_equal(copy, verify(copy / other)).release_id == other
    again = verify(copy / clone(copy / first, 2))
    (copy / first / MANIFEST).unlink()
    (copy / first / MANIFEST).write_text("{}")
    assert without_equal(copy, again) == again
