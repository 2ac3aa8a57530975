"""Queries written by people: those that have been judged, and those that have not."""

import hashlib
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery, OpenDataset, OtherQueries
from taugate.ingestion.dataset.editing import judgement_lines
from taugate.ingestion.dataset.judgements import GENERATED, TRAFFIC, qrels_of, splits_in
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.dataset.queries import PEOPLE


def read_people(
    folder: Path,
    splits: Sequence[str],
    spool: Path,
    say: Callable[[str], None],
    earlier_ids: Container[str] = (),
    *,
    own_vectors: bool = False,
) -> Dataset:
    """Read the judged queries of several splits as one, with unjudged and generated queries.

    Queries made by a rule or a language model are left out of the judged ones, as they belong to another population. A
    query judged in two splits counts in the first alone. The weights of each split are scaled to a mean of 1, as the
    splits were sampled in different ways.

    Users see only results that the service shows. If none of these is relevant, the query may still have an answer, so
    it is left out. A query that is in the data set only because users judged it is not a random one, so it is not among
    the unjudged.

    Args:
        folder: Folder of the data set.
        splits: Names of files in qrels/; the first names the split of the result.
        spool: An empty folder for the documents, which has to outlive the result.
        say: Called with a message about queries that are left out.
        earlier_ids: As in `read_dataset`.
        own_vectors: As in `OpenDataset.read`.

    Raises:
        InputError: At the first fault, with file and line.
    """
    opened = OpenDataset.read(folder, splits[0], spool, own_vectors=own_vectors)
    judged, seen_only, generated_count = _judged(opened, splits, earlier_ids)
    in_order = [judged[name] for name in opened.queries if name in judged]
    answerable = [query for query in in_order if query.relevant]
    if not answerable:
        raise InputError(
            f"{folder / qrels_of(splits[0])}: no query by people has a document with score 1 or more; judge "
            f"some: taugate judge {folder} --releases DIR"
        )
    if generated_count:
        say(f"left out judged queries that were generated: {generated_count:,}; people phrase queries differently")
    generated = opened.labelled(GENERATED, earlier_ids)[0] if GENERATED in splits_in(folder) else []
    by_users = {line.query for line in judgement_lines(stored_file(folder / qrels_of(TRAFFIC)))}
    unjudged = [
        name
        for name, query in opened.queries.items()
        if (query.origin == "human" and (name not in judged or name in seen_only))
        or (query.origin == "traffic" and name not in judged and name not in by_users)
    ]
    return Dataset(
        name=folder.resolve().name,
        split=splits[0],
        documents=opened.documents,
        answerable=answerable,
        unanswerable=[query for query in in_order if not query.relevant],
        sha256=_digests(opened, splits),
        vectors=opened.vectors,
        other_queries=OtherQueries(
            splits=tuple(splits),
            unjudged=[opened.queries[name].text for name in unjudged],
            generated=[query for query in generated if query.relevant],
            seen_only=frozenset(seen_only),
            unjudged_own=[opened.own_passages(name) for name in unjudged],
        ),
        empty=len(opened.ids.empty),
        written_near_misses=opened.near_misses,
    )


def _judged(
    opened: OpenDataset, splits: Sequence[str], earlier_ids: Container[str]
) -> tuple[dict[str, LabelledQuery], set[str], int]:
    """Return the judged queries by people, the names of those that only users saw, and the number of generated ones."""
    judged: dict[str, LabelledQuery] = {}
    seen_only: set[str] = set()
    generated_count = 0
    for split in splits:
        queries, _ = opened.labelled(split, earlier_ids)
        from_people = [query for query in queries if query.origin in PEOPLE and query.id not in judged]
        generated_count += sum(query.origin not in PEOPLE for query in queries)
        if split == TRAFFIC:
            from_people = [query for query in from_people if query.relevant]
            seen_only |= {query.id for query in from_people}
        total = sum(query.weight for query in from_people)
        judged |= {query.id: replace(query, weight=query.weight * len(from_people) / total) for query in from_people}
    return judged, seen_only, generated_count


def _digests(opened: OpenDataset, splits: Sequence[str]) -> dict[str, str]:
    """Return the digests of the files; the digest of several qrels covers the digests of each."""
    digests = [opened.sha256(split) for split in splits]
    return digests[0] | {"qrels": digest_of_splits([of_split["qrels"] for of_split in digests])}


def digest_of_splits(digests: Sequence[str]) -> str:
    """Return one digest for the qrels of several splits.

    Args:
        digests: Digests of the files, in the order of the splits.
    """
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
