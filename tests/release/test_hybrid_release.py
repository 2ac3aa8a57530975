"""The words of a release are verified, checked and searched like its other files."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.errors import ReleaseError
from taugate.registry.catalog import find
from taugate.release.layout import LEXICAL
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.reader import load
from tests.release.test_hostile_release import forge

WEIGHT = 0.5


@pytest.fixture(scope="module")
def hybrid_releases(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    command = ["calibrate", str(sample), "--releases", str(folder), "--encoder", str(encoder)]
    assert cli.main([*command, "--lexical", str(WEIGHT)]) == 0
    return folder


@pytest.fixture
def copy(hybrid_releases: Path, tmp_path: Path) -> Path:
    """A releases directory that a test may break."""
    return shutil.copytree(hybrid_releases, tmp_path / "releases")


def test_hybrid_release_searches_by_cosine_and_words(hybrid_releases: Path) -> None:
    release = load(find(hybrid_releases))
    index, record = release.retriever.index, release.manifest.lexical
    assert isinstance(index, HybridIndex)
    assert (index.weight, record.weight, record.terms) == (WEIGHT, WEIGHT, len(index.lexical.vocabulary))
    queries = release.retriever.encode([query.text for query in release.golden[:20]])
    top = index.search(queries, 5)
    cosines, weighted = index.parts(queries, top.positions)
    np.testing.assert_array_equal(top.scores, cosines + weighted)
    assert (weighted.max(axis=1) > 0).all()


def test_changed_words_are_refused(copy: Path) -> None:
    path = find(copy) / LEXICAL
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ReleaseError, match=LEXICAL):
        load(find(copy))
    path.write_bytes(content[:-1])
    with pytest.raises(ReleaseError, match=LEXICAL):
        load(find(copy))
    path.unlink()
    with pytest.raises(ReleaseError, match=LEXICAL):
        load(find(copy))


def other_words(release: Path, raw: dict) -> None:
    """The words of other documents, as many as before."""
    count = raw["data"]["documents"]
    LexicalIndex.of([f"word{row}" for row in range(count)]).save(release / LEXICAL)


def fewer_documents(release: Path, raw: dict) -> None:
    index = LexicalIndex.load(release / LEXICAL, raw["data"]["documents"])
    index.subset(np.arange(5)).save(release / LEXICAL)


FORGERIES: dict[str, tuple[Callable[[Path, dict], None], str]] = {
    "words of other documents": (other_words, "golden"),
    "another weight": (lambda release, raw: raw["lexical"].update(weight=2 * WEIGHT), "golden"),
    "without the lexical part": (lambda release, raw: raw.pop("lexical"), f"golden|{LEXICAL}"),
    "fewer documents": (fewer_documents, f"{LEXICAL}: does not hold the words of these documents"),
    "no arrays": (
        lambda release, raw: (release / LEXICAL).write_bytes(b"x" * 99) and None,
        f"{LEXICAL}: cannot be read",
    ),
    "k1 of another index": (lambda release, raw: raw["lexical"].update(k1=1.2), f"{LEXICAL}: k1 and b are not"),
    "weight 0": (lambda release, raw: raw["lexical"].update(weight=0), "lexical.weight"),
    "weight infinite": (lambda release, raw: raw["lexical"].update(weight=1e999), "lexical.weight|JSON"),
}


@pytest.mark.parametrize(("change", "message"), FORGERIES.values(), ids=FORGERIES.keys())
def test_forged_words_are_refused(copy: Path, change: Callable[[Path, dict], None], message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        load(forge(find(copy), change))


def test_unchanged_forgery_loads(copy: Path) -> None:
    assert isinstance(load(forge(find(copy), lambda release, raw: None)).retriever.index, HybridIndex)
