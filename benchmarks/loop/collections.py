"""Two versions of a collection, the second with half of the documents replaced, and questions that users ask of each."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

Records = list[dict[str, str]]
BEFORE, ADDED = "squad_v2_dev", "squadshifts_reddit"


@dataclass(frozen=True)
class Versions:
    """A collection before and after half of its documents are replaced.

    Attributes:
        before: Folders of data sets of the same name.
        after: Folders of data sets of the same name.
        asked_before: Texts of questions about each, none of them labelled.
        asked_after: Texts of questions about each, none of them labelled.
    """

    before: Path
    after: Path
    asked_before: Sequence[str]
    asked_after: Sequence[str]


@dataclass(frozen=True)
class _Part:
    """Documents of a public set with their questions, of which some are labelled and the others only asked."""

    documents: Records
    labelled: Records
    judged: dict[str, list[str]]
    asked: list[str]


def write_versions(data: Path, work: Path, documents: int, labelled: int, seed: int) -> Versions:
    """Write both versions: squad, then half of it with as many passages of reddit."""
    rng = random.Random(seed)  # noqa: S311 (no secret)
    half = documents // 2
    stays, goes = _parts(data / BEFORE, half, labelled // 2, rng, count=2)
    (comes,) = _parts(data / ADDED, half, labelled // 2, rng, count=1)
    before, after = work / "before" / "collection", work / "after" / "collection"
    _write(before, [stays, goes])
    _write(after, [stays, comes])
    return Versions(before, after, _mixed([stays, goes], rng), _mixed([stays, comes], rng))


def _parts(folder: Path, documents: int, labelled: int, rng: random.Random, count: int) -> list[_Part]:
    """Choose `count` times so many documents, no document twice; each with as many labelled questions."""
    corpus, queries = (_records(folder / name) for name in ("corpus.jsonl", "queries.jsonl"))
    texts = {each["_id"]: each for each in queries}
    about: dict[str, list[str]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")[:3]
        if int(score) >= 1:
            about.setdefault(document, []).append(query)
    chosen = rng.sample([document for document in corpus if document["_id"] in about], documents * count)
    found = []
    for start in range(0, documents * count, documents):
        part = chosen[start : start + documents]
        relevant = {query: each["_id"] for each in part for query in about[each["_id"]]}
        order = rng.sample([*relevant], len(relevant))
        with_labels = order[:labelled]
        found.append(
            _Part(
                part,
                [texts[query] for query in with_labels],
                {query: [relevant[query]] for query in with_labels},
                [texts[query]["text"] for query in order[labelled:]],
            )
        )
    return found


def _mixed(parts: Sequence[_Part], rng: random.Random) -> list[str]:
    """Shuffle as many questions of each part."""
    fewest = min(len(each.asked) for each in parts)
    texts = [text for each in parts for text in each.asked[:fewest]]
    return rng.sample(texts, len(texts))


def _write(folder: Path, parts: Sequence[_Part]) -> None:
    (folder / "qrels").mkdir(parents=True)
    for name, records in (
        ("corpus.jsonl", [each for part in parts for each in part.documents]),
        ("queries.jsonl", [each for part in parts for each in part.labelled]),
    ):
        (folder / name).write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    rows = [
        f"{query}\t{document}\t1\n"
        for part in parts
        for query, documents in part.judged.items()
        for document in documents
    ]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")


def _records(path: Path) -> Records:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
