"""A release without some documents: unchanged for all others, free of the erased texts, and fit to serve."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.errors import InputError
from taugate.policy.arrays import mean_and_covariance
from taugate.registry.catalog import current_id, find, parent_of, release_ids
from taugate.registry.erasure import erase
from taugate.registry.promotion import promote
from taugate.registry.prune import prune
from taugate.registry.writer import read_private_key, sign
from taugate.release.layout import LEXICAL, MANIFEST, QUESTIONS
from taugate.release.manifest import Manifest
from taugate.release.verify import TrustedKeys, verify
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex, index_of
from taugate.retrieval.index.words import query_terms, terms
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from tests.calibration.commands import arguments, small
from tests.keys import write_keys

Taugate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def before(copy: Path) -> Release:
    return load(find(copy))


def answered(before: Release) -> list[str]:
    """Documents that golden queries are answered with; the last of them is what one of these asks for alone."""
    first, second = before.golden[:2]
    returned = [first.documents[0], next(name for name in second.documents[1:] if name != first.documents[0])]
    alone = (query.relevant[0] for query in before.golden if len(query.relevant) == 1)
    return [*returned, next(name for name in alone if name not in returned)]


def replies(release: Release, queries: list[str], k: int) -> list[list[tuple[str, float]]]:
    answers = release.retriever.search([Query(text, k, min_results=k) for text in queries])
    return [
        [(release.documents[p].id, s) for p, s in zip(a.positions.tolist(), a.scores.tolist(), strict=True)]
        for a in answers
    ]


def lexical_index(release: Release) -> LexicalIndex:
    assert isinstance(release.retriever.index, HybridIndex)
    return release.retriever.index.lexical


def test_erased_release_keeps_other_results(copy: Path, before: Release, release: Taugate) -> None:
    gone = answered(before)
    code, out, message = release("erase", str(current_id(copy)), *gone, gone[0])
    assert code == 0
    created = out.strip()
    assert f"taugate release promote {created} --releases {copy}" in message
    assert current_id(copy) == before.manifest.release_id != created
    after = load(copy / created)
    words_of = [lexical_index(release).vocabulary for release in (before, after)]
    lost = np.setdiff1d(*words_of)
    queries = [query.text for query in before.golden if np.isin(query_terms(query.text), lost, invert=True).all()]
    assert 0 < len(queries) < len(before.golden)
    k = before.manifest.policy.k
    longer = replies(before, queries, k + len(gone))
    expected = [[each for each in reply if each[0] not in gone][:k] for reply in longer]
    assert replies(after, queries, k) == expected
    assert after.documents[:] == [document for document in before.documents if document.id not in gone]
    assert promote(copy, created).release_id == created


def test_manifest_records_only_erasure(copy: Path, before: Release) -> None:
    gone = answered(before)
    created = erase(copy, before.manifest.release_id, gone).manifest
    assert verify(copy / created.release_id) == created
    assert created.erasure is not None
    assert created.erasure.model_dump() == {"release": before.manifest.release_id, "documents": 3}
    assert created.parent == before.manifest.release_id == parent_of(copy, created.release_id)
    assert created.data.documents == created.index.documents == len(before.documents) - 3
    changed = {name for name in Manifest.model_fields if getattr(created, name) != getattr(before.manifest, name)}
    withdrawn = {"withdrawn", "calibration", "refusal", "summary"}
    assert changed - {"created_at"} - withdrawn == {
        "release_id",
        "parent",
        "data",
        "index",
        "files",
        "erasure",
        "lexical",
    }
    assert created.lexical is not None
    assert created.lexical.sha256 == created.files[LEXICAL].sha256
    assert set(created.files) == set(before.manifest.files) - {QUESTIONS}, "questions may quote documents"
    another = next(document.id for document in before.documents if document.id not in gone)
    again = erase(copy, created.release_id, [another]).manifest
    assert again.erasure is not None
    assert (again.erasure.release, again.erasure.documents) == (created.release_id, 4)


def test_erasure_withdraws_what_removal_may_break(
    copy: Path, before: Release, release: Callable[..., tuple[int, str, str]]
) -> None:
    """The best score of a question can only fall, so ρ refuses no fewer of those that nothing answers."""
    code, out, message = release("erase", before.manifest.release_id, before.documents[7].id)
    assert code == 0
    created = load(copy / out.strip())
    manifest, refusal = created.manifest, before.manifest.refusal
    assert manifest.withdrawn is not None
    assert [record.promise for record in manifest.withdrawn] == ["answers refused"]
    assert f"withdrawn: {manifest.withdrawn[0].words} Not shown: documents were removed" in message
    assert manifest.state == "inherited"
    assert refusal is not None
    assert manifest.refusal is not None
    assert manifest.refusal.lost is not None
    assert manifest.refusal.lost.upper == 1 > refusal.lost.upper
    assert manifest.refusal.evidence == refusal.evidence
    text = before.golden[0].text
    assert [release_.retriever.search([Query(text, k=5)])[0].calibrated for release_ in (before, created)] == [
        True,
        False,
    ]


def test_erasure_is_reproducible(copy: Path, before: Release) -> None:
    gone, name = answered(before), before.manifest.release_id
    first = erase(copy, name, gone).manifest
    promote(copy, first.release_id)
    second = erase(copy, name, gone[::-1]).manifest
    assert first.release_id[-12:] == second.release_id[-12:]
    assert first.parent == second.parent


def test_unaffected_golden_queries_are_unchanged(copy: Path, before: Release) -> None:
    gone = answered(before)
    erased = erase(copy, before.manifest.release_id, gone)
    after = {query.text: query for query in load(copy / erased.manifest.release_id).golden}
    remaining = [query for query in before.golden if not {*query.relevant} <= {*gone}]
    assert {*after} == {query.text for query in remaining}
    assert erased.dropped == len(before.golden) - len(remaining) >= 1
    same = [query for query in remaining if {*query.documents}.isdisjoint(gone)]
    assert [after[query.text] for query in same] == same
    assert erased.changed == len(remaining) - len(same) >= 1
    for query in after.values():
        assert {*query.relevant, *query.documents}.isdisjoint(gone)


def test_check_finds_no_remnants_after_prune(copy: Path, before: Release, release: Taugate, tmp_path: Path) -> None:
    document = before.documents[7]
    code, out, _ = release("erase", before.manifest.release_id, document.id)
    assert code == 0
    created = out.strip()
    words = ["--text", document.text]
    code, out, message = release("erase", "--check", document.id, *words)
    assert code == 1
    assert f"{copy}/{before.manifest.release_id}/documents.jsonl: names the document {document.id!r}\n" in out
    assert "documents.jsonl: contains the text" in out
    assert created not in out
    assert message.startswith("found text of the erased documents")
    promote(copy, created)
    assert [each.name for each in prune(copy, keep=0) if each.kept is None] == [before.manifest.release_id]
    assert release("erase", "--check", document.id, *words)[:2] == (0, "")
    log = tmp_path / "queries.jsonl"
    log.write_text(json.dumps({"query_id": "a", "document_id": document.id}) + "\n{half")
    assert release("erase", "--check", document.id, "--also", str(log))[:2] == (
        1,
        f"{log}: names the document {document.id!r}\n",
    )
    log.with_suffix(".gz").write_bytes(b"")
    code, out, _ = release("erase", "--check", "none such", "--also", str(tmp_path))
    assert (code, out) == (1, f"{log.with_suffix('.gz')}: compressed; unpack it and search again\n")
    assert release("erase", "--check", document.id, "--also", str(tmp_path / "nowhere"))[0] == 1


def test_new_release_does_not_contain_text(copy: Path, before: Release) -> None:
    """Nor in its report, which shows texts of a calibration."""
    gone = answered(before)
    created = copy / erase(copy, before.manifest.release_id, gone).manifest.release_id
    texts = [document.text.encode() for document in before.documents if document.id in gone]
    for path in created.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(text in content for text in texts)
    lexical = lexical_index(load(created))
    words = np.unique(np.concatenate([terms(document.encoded_text) for document in load(created).documents]))
    assert lexical.vocabulary.tolist() == words.tolist()
    assert len(words) < len(lexical_index(before).vocabulary)
    assert not any(f'"{each}"'.encode() in (created / MANIFEST).read_bytes() for each in gone)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such"], "has no document 'no-such'; give ids as in the corpus"),
        (["a", "b", "c", "d"], "has no document 'a', 'b', 'c' and 1 more"),
        ([], "give the ID of a release, then"),
    ],
)
def test_unknown_document_is_refused(copy: Path, release: Taugate, arguments: list[str], message: str) -> None:
    before = sorted(path.name for path in copy.iterdir())
    code, out, error = release("erase", str(current_id(copy)), *arguments)
    assert (code, out) == (2, "")
    assert message in error
    assert sorted(path.name for path in copy.iterdir()) == before


def test_erasing_too_many_documents_is_refused(copy: Path, before: Release) -> None:
    ids = [document.id for document in before.documents]
    with pytest.raises(InputError, match="4 documents would be left, fewer than K = 5"):
        erase(copy, before.manifest.release_id, ids[:-4])
    wanted = [name for query in before.golden for name in query.relevant]
    with pytest.raises(InputError, match="every golden query is answered by these documents alone"):
        erase(copy, before.manifest.release_id, wanted)
    assert release_ids(copy) == [before.manifest.release_id]


def test_erased_release_needs_new_signature(copy: Path, before: Release, release: Taugate, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path)
    name = before.manifest.release_id
    sign(copy / name, read_private_key(private))
    code, out, message = release("erase", name, before.documents[0].id)
    assert code == 0
    assert f"sign it first: taugate release sign {out.strip()}" in message
    sign(copy / out.strip(), read_private_key(private))
    verify(copy / out.strip(), TrustedKeys.load(public))


def test_erasure_appears_in_show_and_diff(copy: Path, before: Release, release: Taugate) -> None:
    created = erase(copy, before.manifest.release_id, [before.documents[0].id]).manifest.release_id
    assert json.loads(release("show", created)[1])["erasure"]["documents"] == 1
    code, out, _ = release("diff", before.manifest.release_id, created)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["data:", "documents"],
        ["lexical:", "terms"],
        ["policy:", "state"],
    ]


def test_erasure_equals_release_without_documents(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Beside a release of the same corpus without them: texts, index, metadata, and what scores are compared with."""
    data, encoder = small(tmp_path, 120, texts=120)
    refuse = ["--max-answered", "0.2", "--max-empty", "0.2"]
    with (data / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.writelines(
            json.dumps({"_id": f"u{row}", "text": f"word{row} unknown things"}) + "\n" for row in range(80)
        )
    with (data / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.writelines(f"u{row}\td{row}\t0\n" for row in range(80))
    corpus = [json.loads(line) for line in (data / "corpus.jsonl").open(encoding="utf-8")]
    people = [
        {"_id": f"p{row}", "text": f"word{row} word7 of somebody", "metadata": {"of": "somebody", "at": row}}
        for row in range(3)
    ]
    for document in corpus[::2]:
        document["metadata"] = {"of": "nobody"}

    def calibrated(documents: list[dict], folder: str) -> Path:
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        (data / "corpus.jsonl").write_text(lines, encoding="utf-8")
        assert cli.main(arguments(data, tmp_path / folder, encoder, *refuse, "--no-promote")) == 0
        return tmp_path / folder / release_ids(tmp_path / folder)[0]

    never = calibrated(corpus, "never")
    was = calibrated([people[0], *corpus[:50], people[1], *corpus[50:], people[2]], "was")
    created = was.parent / erase(was.parent, was.name, [each["_id"] for each in people]).manifest.release_id
    for name in ("documents.jsonl", "documents.safetensors", "index.faiss", "metadata.safetensors"):
        assert (created / name).read_bytes() == (never / name).read_bytes(), name
    one, other = load(created).retriever, load(never).retriever
    assert one.relevance is not None
    assert other.relevance is not None
    assert one.abstention is not None
    for field in ("mean", "covariance", "documents"):
        values = [getattr(each.relevance.background, field) for each in (one, other)]
        np.testing.assert_allclose(*values, rtol=1e-6, atol=1e-9, err_msg=field)
    signals = one.abstention.score.signals
    assert signals.words is not None or signals.moments is not None
    words = index_of(signals.words)
    if words is not None:  # its statistics are those of the calibration, so that scores stay equal
        lexical = LexicalIndex.of(each["text"] for each in corpus)
        for field in ("vocabulary", "offsets", "documents", "counts", "lengths"):
            np.testing.assert_array_equal(getattr(words, field), getattr(lexical, field), err_msg=field)
    if signals.moments is not None:
        vectors = one.index.vectors[np.arange(len(corpus))]  # type: ignore[attr-defined]  # a FlatIndex here
        for result, expected in zip(signals.moments, mean_and_covariance(vectors), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_hnsw_index_is_rebuilt_with_recall(sample: Path, encoder: Path, tmp_path: Path) -> None:
    remaining = ["--index", "hnsw", "--margin", "0.05", "--holdout", "0"]
    assert cli.main(arguments(sample, tmp_path, encoder, *remaining)) == 0
    was = load(find(tmp_path))
    created = load(tmp_path / erase(tmp_path, was.manifest.release_id, answered(was)).manifest.release_id).manifest
    assert created.index.model_dump() == was.manifest.index.model_dump() | {"documents": len(was.documents) - 3}
    assert created.index.kind == "hnsw"
    assert created.erasure is not None
    assert created.erasure.recall is not None
    assert 0.9 < created.erasure.recall <= 1
