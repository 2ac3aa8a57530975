"""What newer data need, by the digests of their files and the manifest of the current release."""

from pathlib import Path
from typing import Any

import pytest

from taugate.calibration.recalibration.request import Verdict
from taugate.release.manifest import Manifest
from taugate.release.state import ErasureRecord, WithdrawnRecord
from taugate.release.verify import verify_searchable
from tests.registry.conftest import copy, first

__all__ = ["copy", "first"]

WITHDRAWN = [WithdrawnRecord(promise="loss", words="At most 2 %.", reason="it is 3 %")]
ERASURE = ErasureRecord(release="20260101T000000Z-0123456789ab", documents=1)


def without_threshold(manifest: Manifest) -> dict[str, Any]:
    return {"policy": manifest.policy.model_copy(update={"kind": "none", "tau": None})}


@pytest.mark.parametrize(
    ("changed", "facts", "path", "because"),
    [
        ((), {}, "nothing", "the documents and labels are those of the current release"),
        (("corpus",), {}, "check", "the documents changed, and the labels did not"),
        (("qrels",), {}, "calibration", "the labels changed (qrels)"),
        (("corpus", "queries", "qrels"), {}, "calibration", "the labels changed (queries and qrels)"),
        ((), {"withdrawn": WITHDRAWN}, "calibration", "does not keep its promises"),
        ((), {"erasure": ERASURE}, "check", "the documents changed"),
    ],
)
def test_verdict_follows_changed_files(
    copy: Path, first: str, changed: tuple[str, ...], facts: dict[str, Any], path: str, because: str
) -> None:
    manifest = verify_searchable(copy / first)
    digests = {name: "other" if name in changed else digest for name, digest in manifest.data.sha256.items()}
    verdict = Verdict.of(manifest.model_copy(update=facts), digests)
    assert verdict.path == path
    assert because in verdict.because


def test_missing_threshold_is_not_checked(copy: Path, first: str) -> None:
    manifest = verify_searchable(copy / first)
    without = manifest.model_copy(update=without_threshold(manifest))
    assert Verdict.of(without, {**manifest.data.sha256}).path == "nothing"
    assert Verdict.of(without, {**manifest.data.sha256, "corpus": "other"}).path == "calibration"


def test_changed_vectors_alone_are_calibrated(copy: Path, first: str) -> None:
    manifest = verify_searchable(copy / first)
    sha256 = {**manifest.data.sha256, "vectors": "some", "query_vectors": "some"}
    own = manifest.model_copy(update={"data": manifest.data.model_copy(update={"sha256": sha256})})
    assert Verdict.of(own, sha256).path == "nothing"
    assert Verdict.of(own, sha256 | {"vectors": "other"}).path == "calibration"
    assert Verdict.of(own, sha256 | {"vectors": "other", "corpus": "other"}).path == "check"
