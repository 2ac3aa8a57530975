"""Checks explanations of random queries and documents against brute force over all passages.

`python -m tests.retrieval.brute_force [--pairs N]` calibrates the sample in chunks, with the encoder of the tests, and
explains random documents by random searches: with every policy, grouped or not, with and without a filter, a threshold
and min_results. Exit code 1 where any explanation says something else than the sorted list of all passages.
"""

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from taugate.data.location import write_sample
from taugate.policy.names import PolicyKind
from taugate.policy.policy import Policy
from taugate.registry.catalog import find
from taugate.retrieval.documents.filters import OneOf, all_of, sort_key
from taugate.retrieval.explanation import explain
from taugate.retrieval.index.hybrid import HybridIndex, vector_index
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.index.words import query_terms
from taugate.retrieval.query import Explanation, Query
from taugate.retrieval.reader import Release, load
from taugate.retrieval.retriever import Retriever
from tests.chunked_release import write_chunked_release
from tests.fake_encoder import write_fake_encoder

_THRESHOLDS: dict[PolicyKind, float | None] = {"similarity": 0.25, "relative": 0.8, "probability": 0.2, "none": None}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.retrieval.brute_force", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000, help="how many explanations to check (default: 1000)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder) / "sample")
        texts = (Path(folder) / "sample" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        encoder = write_fake_encoder(Path(folder) / "encoder", texts)
        releases = write_chunked_release(Path(folder) / "sample", encoder, Path(folder))
        release = load(find(releases))
        rules, wrong = check(release, given.pairs, given.seed)
    sys.stdout.write(f"{given.pairs} explanations, {len(wrong)} differ from brute force\n")
    for rule, count in rules.most_common():
        sys.stdout.write(f"{count:6} {rule}\n")
    for line in wrong[:10]:
        sys.stdout.write(f"{line}\n")
    return 1 if wrong else 0


def check(release: Release, pairs: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Explain random pairs; returns how many there are of each rule, and a line for each that is wrong."""
    rng = np.random.default_rng(seed)
    rules: Counter[str] = Counter()
    wrong = []
    for _ in range(pairs):
        kind: PolicyKind = rng.choice([*_THRESHOLDS])
        retriever = replace(release.retriever, policy=Policy(kind, _THRESHOLDS[kind], 5))
        query, document_id = _random_pair(release, rng)
        explained = explain(retriever, release.documents, query, document_id)
        rules[explained.rule] += 1
        expected = brute_force(retriever, release, query, document_id)
        found = (explained.id, explained.rank, _float32(explained.score), explained.kept, explained.filtered)
        if (
            found != (*expected[:2], _float32(expected[2]), *expected[3:5])
            or not _close(explained.relevance, expected[5])
            or not _is_consistent(explained)
        ):
            wrong.append(f"{kind} {query}, {document_id}: {explained}, not {expected}")
    return rules, wrong


def _float32(score: float | None) -> np.float32 | None:
    """Return a score as it was computed: an explanation has its shortest decimal."""
    return None if score is None else np.float32(score)


def _random_pair(release: Release, rng: np.random.Generator) -> tuple[Query, str]:
    """Draw a search, and a document of the upper part of its list or of anywhere, named by its id or a passage's."""
    documents = release.documents
    asked = documents[int(rng.integers(len(documents)))]
    query = Query(" ".join(rng.permutation(asked.text.split())[:8].tolist()) or asked.text, int(rng.integers(1, 12)))
    if rng.random() < 0.5:
        query = replace(query, group_by="document")
    if rng.random() < 0.3:
        value = str(documents[int(rng.integers(len(documents)))].metadata["category"])
        query = replace(query, filter=all_of(OneOf("category", (sort_key(value),))))
    if rng.random() < 0.3:
        query = replace(query, threshold=float(rng.uniform(0, 1)))
    if rng.random() < 0.3:
        query = replace(query, min_results=int(rng.integers(0, query.k + 1)))
    near = release.retriever.search([Query(query.text, 15, -2.0)])[0].positions
    position = int(rng.choice(near)) if rng.random() < 0.7 else int(rng.integers(len(documents)))
    named = documents[position]
    return query, named.id if rng.random() < 0.5 else named.document_id


Expected = tuple[str | None, int | None, float | None, bool, bool, float | None]


def brute_force(retriever: Retriever, release: Release, query: Query, document_id: str) -> Expected:
    """Sort all passages, and read everything off the list: passage, rank, score, kept, filtered, relevance."""
    documents = [*release.documents]
    inside = [row for row, each in enumerate(documents) if _meets(each.metadata, query)]
    vector, index = retriever.vectors([query.text]), retriever.index
    stored = vector_index(index).vectors[np.arange(len(documents))]  # type: ignore[attr-defined]  # of this kind
    scores = (stored.astype(np.float64) @ vector[0].astype(np.float64)).astype(np.float32)
    if isinstance(index, HybridIndex):
        shares = index.lexical.shares(query_terms(query.text), np.arange(len(documents)))
        scores += np.float32(index.weight) * shares
    order = np.array(sorted(inside, key=lambda row: (-scores[row], row)), dtype=np.int64)
    top = TopK(scores[order][None], order[None])
    relevance = retriever.relevance.estimate(vector, top)[0] if retriever.relevance else None
    own = {document_id} & {document.id for document in documents}
    named = [row for row in order if (documents[row].id if own else documents[row].document_id) == document_id]
    if not named:
        return None, None, None, False, True, None
    listed = [*range(len(order))]
    if query.group_by:
        first: dict[str, int] = {}
        for place in listed:
            first.setdefault(documents[order[place]].document_id, place)
        listed = [*first.values()]
    kept = _kept(retriever.policy, query, scores[order], relevance, listed)
    returned = [place for place in kept if order[place] in named]
    place = returned[0] if returned else int(np.flatnonzero(order == named[0])[0])
    document = documents[order[place]].document_id
    before = [
        item
        for item in listed
        if item < place and not (query.group_by and documents[order[item]].document_id == document)
    ]
    return (
        documents[order[place]].id,
        len(before) + 1,
        float(scores[order[place]]),
        bool(returned),
        False,
        None if relevance is None else float(relevance[place]),
    )


def _meets(metadata: object, query: Query) -> bool:
    wanted = {condition.field: condition.keys[0][1] for condition in query.filter or () if isinstance(condition, OneOf)}
    return isinstance(metadata, dict) and all(metadata.get(name) == value for name, value in wanted.items())


def _kept(
    policy: Policy, query: Query, scores: np.ndarray, relevance: np.ndarray | None, listed: list[int]
) -> list[int]:
    """Apply the rule word by word to a list; returns the places that are kept."""
    tau = policy.tau if query.threshold is None else query.threshold
    considered = listed[: query.k]
    value = {"similarity": scores, "none": scores, "relative": scores, "probability": relevance}[policy.kind]
    if policy.kind == "relative":
        best = np.float64(scores[0])
        value = (scores / best).astype(np.float32) if best > 0 else np.zeros(len(scores), dtype=np.float32)
    assert value is not None
    kept = [place for place in considered if tau is None or value[place] >= np.float32(tau)]
    others = [place for place in considered if place not in kept]
    return sorted(kept + others[: max(0, query.min_results - len(kept))])


def _close(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and abs(one - other) < 1e-6)


def _is_consistent(explained: Explanation) -> bool:
    """Tell whether rule and numbers say the same; this index is exact, and no key has a filter."""
    tau, rule = explained.threshold, explained.rule
    if rule in {"index", "key_filter", "unanswerable"}:
        return False
    if explained.kept != (rule in {"kept", "min_results"}) or explained.filtered != (rule == "filter"):
        return False
    passes = tau is None or (explained.compared is not None and explained.compared >= float(np.float32(tau)))
    return passes if rule == "kept" else not passes if rule in {"threshold", "min_results"} else True


if __name__ == "__main__":
    sys.exit(main())
