"""A release that has its words by sentence: its refusals are those of the version that wrote it."""

import json
import re
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from taugate.errors import ReleaseError
from taugate.policy.abstention import AnswerScore
from taugate.registry.catalog import release_ids
from taugate.registry.erasure import erase
from taugate.release.layout import ABSTENTION, LEXICAL
from taugate.retrieval.index.lexical import TYPES, from_sentences, word_reader
from taugate.retrieval.index.words import terms, words
from taugate.retrieval.reader import Release, load
from taugate.storage.tensors import read_tensors, write_tensors
from tests.compatibility.write import FOLDER

RELEASES = FOLDER / "releases" / "schema-2-words"
FOLDER_OF_RELEASE = RELEASES / release_ids(RELEASES)[0]
SCORES: dict[str, float] = json.loads((FOLDER / "refusal-scores.json").read_bytes())  # by the version that wrote it
ROWS = {name: read_tensors(FOLDER_OF_RELEASE / ABSTENTION)[name] for name in TYPES}
DOCUMENTS = len(ROWS["documents"]) - 1


def refusal_scores(release: Release) -> list[float]:
    retriever, texts = release.retriever, [*SCORES]
    vectors = retriever.vectors(texts)
    assert retriever.abstention is not None
    return retriever.abstention.score.of(texts, vectors, retriever.index.search(vectors, 5)).tolist()


def test_refusal_scores_equal_those_of_writing_version() -> None:
    assert refusal_scores(load(FOLDER_OF_RELEASE)) == [*SCORES.values()]


def test_erased_release_has_words_in_file_of_index(tmp_path: Path) -> None:
    """Also with the same refusals of queries that neither the erased document nor its words concern."""
    releases = shutil.copytree(RELEASES, tmp_path / "releases")
    before = load(FOLDER_OF_RELEASE)
    gone = before.documents[7]
    manifest = erase(releases, FOLDER_OF_RELEASE.name, [gone.id]).manifest
    assert LEXICAL in manifest.files
    after = load(releases / manifest.release_id)
    assert {*read_tensors(releases / manifest.release_id / ABSTENTION)}.isdisjoint(TYPES)
    assert after.retriever.abstention is not None
    words_after = after.retriever.abstention.score.signals.words
    assert words_after is not None
    query, positions = "tram library closed", np.arange(7)  # of the documents before the erased one
    assert before.retriever.abstention is not None
    words_before = before.retriever.abstention.score.signals.words
    assert words_before is not None
    one, other = words_before.match(query, positions), words_after.match(query, positions)
    assert (one.bm25.tolist(), one.idf.tolist()) == (other.bm25.tolist(), other.idf.tolist())
    assert one.best_sentence == other.best_sentence > 0


@pytest.mark.parametrize("text", ["हिन्दी में", "石油危机。", "Straße_1 été", "", "ﬁre\ud800"])
def test_rule_1_splits_as_earlier_versions_did(text: str) -> None:
    assert words(text, 1) == re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())
    assert len(terms(text, 1)) == len(words(text, 1))


def changed(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return ROWS | arrays


@pytest.mark.parametrize(
    "rows",
    [
        {name: array for name, array in ROWS.items() if name != "codes"},
        changed(vocabulary=ROWS["vocabulary"][::-1]),
        changed(vocabulary=ROWS["vocabulary"].astype(np.int64)),
        changed(vocabulary=ROWS["vocabulary"][:-1]),
        changed(vocabulary=np.append(ROWS["vocabulary"], np.uint32(0xFFFFFFFF))),
        changed(documents=ROWS["documents"][:-1]),
        changed(documents=ROWS["documents"][::-1]),
        changed(documents=ROWS["documents"] + 1),
        changed(offsets=ROWS["offsets"][:-1]),
        changed(offsets=ROWS["offsets"] * 2),
        changed(offsets=ROWS["offsets"] + 1),
        changed(offsets=ROWS["offsets"].reshape(1, -1)),
        changed(codes=ROWS["codes"] + np.uint32(7)),
        changed(codes=ROWS["codes"][:-1]),
        changed(counts=ROWS["counts"] * np.uint8(0)),
        changed(counts=ROWS["counts"].astype(np.float32)),
    ],
)
def test_modified_rows_are_refused(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    assert from_sentences(ROWS, DOCUMENTS) is not None
    assert from_sentences(rows, DOCUMENTS) is None
    path = tmp_path / ABSTENTION
    others = {name: array for name, array in read_tensors(FOLDER_OF_RELEASE / ABSTENTION).items() if name not in TYPES}
    write_tensors(path, others | rows)
    with pytest.raises(ReleaseError, match="does not hold the words of these documents; calibrate again"):
        AnswerScore.load(path, "model", 32, word_reader(load(FOLDER_OF_RELEASE).documents))


def test_rows_of_other_corpus_are_refused() -> None:
    assert from_sentences(ROWS, DOCUMENTS + 1) is None
