"""Training pairs: queries with documents that answer them, and documents that rank like an answer but are none.

Hard negatives: documents that the encoder ranks like an answer, without those that may be an answer. Hard negatives
teach an encoder more than random documents (Xiong et al., "Approximate Nearest Neighbor Negative Contrastive Learning",
ICLR 2021). But labels are seldom complete, and an unjudged document may be an answer: about 70 % of the unlabelled
passages that a retriever ranked first in MS MARCO were (Qu et al., "RocketQA", NAACL 2021, §1). Two signs identify such
documents. One is the margin to the positive: the document is about as near to the query as its answer (de Souza Moreira
et al., "NV-Retriever", 2024, TopK-MarginPos). Alone it removes the documents that the encoder gets wrong, and so most
of the training signal. The second sign is that BM25, which compares words, agrees: two systems of different kinds
rarely make the same mistake (Spärck Jones and van Rijsbergen, British Library Report 5266, 1975). A document is
excluded if both signs agree.
"""

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from taugate.calibration.metrics.inputs import clusters
from taugate.data.beir import Dataset
from taugate.data.generation.generate import crop, sampling_key
from taugate.data.labelled_queries import LabelledQuery
from taugate.data.queries import PEOPLE
from taugate.errors import InputError
from taugate.evidence.ranking import Parents
from taugate.policy.arrays import Float32
from taugate.release.adaptation import PairsRecord
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import query_terms

TRAIN, VALIDATION, UNSEEN = 0, 1, 2
# Most documents give pairs, and enough remain for the gate to show a gain of three points on about a hundred of them.
_SHARES = (0.5, 0.15, 0.35)
_STREAM = 2  # random stream of the seed, different from those of evidence/divisions.py


@dataclass(frozen=True)
class CorpusParts:
    """The part of each passage.

    Attributes:
        part: (N,) int64, TRAIN, VALIDATION or UNSEEN.
    """

    part: NDArray[np.int64]

    @classmethod
    def divide(
        cls,
        passages: int,
        parents: Parents,
        train: Sequence[LabelledQuery],
        evaluation: Sequence[LabelledQuery],
        seed: int,
    ) -> Self:
        """Split a corpus at random into three parts.

        Documents that answer only training queries are for learning or choosing; those that answer only evaluation
        queries are unseen. Documents that answer both or neither are divided; with the same queries for both, that is
        every document. Without training queries, documents with evaluation queries are the first unseen ones.

        Args:
            train: Labelled queries to learn from, empty if crops are used.
        """
        groups = _groups(passages, parents, [*train, *evaluation])
        trains, evaluates = (_queries_of(groups, queries) for queries in (train, evaluation))
        order = np.random.default_rng([seed, _STREAM]).permutation(len(trains))
        sizes = np.bincount(groups, minlength=len(trains))
        role = np.empty(len(trains), dtype=np.int64)
        if not len(train):
            order = order[np.argsort(evaluates[order] == 0, kind="stable")]  # documents with queries first
            reach = np.cumsum(sizes[order]) / passages
            role[order] = np.select(
                [reach <= _SHARES[UNSEEN], reach <= _SHARES[UNSEEN] + _SHARES[VALIDATION]], [2, 1], 0
            )
            return cls(role[groups])
        for mask, shares in (
            ((trains > 0) & (evaluates == 0), (_SHARES[0] / sum(_SHARES[:2]), _SHARES[1] / sum(_SHARES[:2]), 0.0)),
            ((trains == 0) & (evaluates > 0), (0.0, 0.0, 1.0)),
            ((trains > 0) & (evaluates > 0), _SHARES),
            ((trains == 0) & (evaluates == 0), _SHARES),
        ):
            members = order[mask[order]]
            weights = np.maximum(trains, evaluates)[members] if trains[members].any() else sizes[members]
            reach = (np.cumsum(weights) - weights / 2) / max(1, weights.sum())
            role[members] = np.searchsorted(np.cumsum(shares)[:2], reach, side="right")
        return cls(role[groups])

    def passages(self, part: int) -> NDArray[np.int64]:
        """Return the positions of the passages in a part, ascending."""
        return np.flatnonzero(self.part == part)

    def queries(self, part: int, queries: Collection[LabelledQuery]) -> list[LabelledQuery]:
        """Return the queries whose documents are all in a part."""
        return [query for query in queries if (self.part[list(query.relevant)] == part).all()]

    def of_unanswerable(self, query: LabelledQuery, seed: int) -> int | None:
        """Return the part of a query without an answer: that of the documents that it was judged against.

        None if these are in several parts. A query without any is assigned by its id and the seed.
        """
        if not query.judged:
            share = np.random.default_rng([seed, _STREAM, zlib.crc32(query.id.encode())]).random()
            return int(np.searchsorted(np.cumsum(_SHARES)[:2], share, side="right"))
        judged = {int(part) for part in self.part[list(query.judged)]}
        return judged.pop() if len(judged) == 1 else None


def _groups(passages: int, parents: Parents, queries: Sequence[LabelledQuery]) -> NDArray[np.int64]:
    """Assign each passage to a group that must not be divided, (N,)."""
    owners = np.repeat(np.arange(len(queries)), [len(query.relevant) for query in queries])
    answers = np.array([position for query in queries for position in query.relevant], dtype=np.int64)
    chunks = np.arange(passages)
    ends = chunks if parents is None else parents
    rows, columns = np.concatenate([chunks, answers]), np.concatenate([ends, passages + owners])
    nodes = passages + len(queries)
    edges = coo_array((np.ones(len(rows)), (rows, columns)), shape=(nodes, nodes))
    components = connected_components(edges, directed=False)[1]
    return np.unique(components[:passages], return_inverse=True)[1].astype(np.int64)


def _queries_of(groups: NDArray[np.int64], queries: Sequence[LabelledQuery]) -> NDArray[np.int64]:
    """Count the queries of each group."""
    query_groups = groups[[next(iter(query.relevant)) for query in queries]] if queries else groups[:0]
    return np.bincount(query_groups, minlength=int(groups.max()) + 1)


_MAX_QUERIES = {TRAIN: 4096, VALIDATION: 1024}  # queries in a part; a training step uses fewer
# Fewer pairs cannot fit a matrix of 384 × 384 numbers, and with fewer queries chance chooses and decides.
MIN_QUERIES = {TRAIN: 30, VALIDATION: 10, UNSEEN: 30}
# If there are fewer labelled queries to learn from, crops of the training documents are added up to this number;
# people's queries still choose. With 60 labels they added 0.9 points of NDCG@10 on covidqa_chunks and none on
# squadshifts_reddit, with 120 labels 0.1 on both (seed 1). No other number was tried: about twice 120 they add nothing.
_MIN_LABELLED = 256
# Words of a crop, as many as questions have. With them crops gain 4.3 points of NDCG@10 on covidqa_chunks and 2.2 on
# squadshifts_reddit (benchmarks/decisions.md); with the shares of `taugate queries` it was 3.7 and 2.5.
_WORDS = (5, 20)
_USE = {TRAIN: "learn from", VALIDATION: "choose a recipe by", UNSEEN: "decide acceptance by"}

Positions = NDArray[np.int64]
_DEPTH = 50  # documents considered for each query
_SMALLEST = 1e-9  # below the share of BM25 of any document that has a word of the query
_MARGIN = 0.05  # similarity below the answer's; the best of several in the NV-Retriever paper


@dataclass(frozen=True)
class AdaptationQueries:
    """The queries of an adaptation; no document answers queries of two parts.

    Attributes:
        split: Split of the training queries, None if all are crops.
        lost: Documents from which no query was generated, by reason, None if they were not counted.
    """

    parts: CorpusParts
    source: Literal["labels", "generated", "crops", "labels and crops"]
    split: str | None
    lost: Mapping[str, int] | None
    train: list[LabelledQuery]
    validation: list[LabelledQuery]
    unseen: list[LabelledQuery]
    unanswerable: Mapping[int, list[LabelledQuery]]

    @classmethod
    def collect(
        cls, evaluation: Dataset, training: Dataset | None, seed: int, lost: Mapping[str, int] | None = None
    ) -> Self:
        """Divide the documents, and take the queries of each part.

        Args:
            training: The same data set with the split to learn from, None for crops.
            lost: Documents from which no query of the split was generated, None if unknown.
        """
        documents, judged = evaluation.documents, decisive(evaluation.answerable)
        labelled = [] if training is None else training.answerable
        parts = CorpusParts.divide(len(documents), documents.parents, labelled, judged, seed)
        learned: dict[int, list[LabelledQuery]] = {}
        empty = 0
        for part, max_queries in _MAX_QUERIES.items():
            if training is None:
                learned[part], without = _crops(documents, parts.passages(part), max_queries, seed)
                empty += without
            else:
                learned[part] = sorted(parts.queries(part, labelled), key=lambda query: sampling_key(query.id, seed))
                learned[part] = learned[part][:max_queries]
        unseen = parts.queries(UNSEEN, judged)
        unanswerable = _unanswerable(parts, training, evaluation, seed)
        _check(evaluation.name, {**learned, UNSEEN: unseen}, training)
        if training is None:
            return cls(
                parts, "crops", None, {"empty": empty}, learned[TRAIN], learned[VALIDATION], unseen, unanswerable
            )
        train, split = learned[TRAIN], training.split
        if all(query.origin not in PEOPLE for query in train):
            return cls(parts, "generated", split, lost, train, learned[VALIDATION], unseen, unanswerable)
        if len(train) >= _MIN_LABELLED:
            return cls(parts, "labels", split, None, train, learned[VALIDATION], unseen, unanswerable)
        crops, empty = _crops(documents, parts.passages(TRAIN), _MIN_LABELLED - len(train), seed)
        return cls(
            parts, "labels and crops", split, {"empty": empty}, train + crops, learned[VALIDATION], unseen, unanswerable
        )

    @property
    def evidence(self) -> Literal["human", "generated"]:
        """Origin of the deciding queries: "human" if people asked all of them, else "generated"."""
        return "human" if all(query.origin in PEOPLE for query in self.unseen) else "generated"

    @property
    def record(self) -> PairsRecord:
        """Record for adaptation.json."""
        return PairsRecord(
            source=self.source,
            split=self.split,
            origins=dict(sorted(Counter(query.origin for query in self.train).items())),
            lost=None if self.lost is None else dict(self.lost),
            train=len(self.train),
            validation=len(self.validation),
            unseen=len(self.unseen),
            documents={
                "train": len(self.parts.passages(TRAIN)),
                "validation": len(self.parts.passages(VALIDATION)),
                "unseen": len(self.parts.passages(UNSEEN)),
            },
        )


def decisive(queries: Sequence[LabelledQuery]) -> list[LabelledQuery]:
    """Return the queries by people, or all queries if there are none by people."""
    human = [query for query in queries if query.origin in PEOPLE]
    return human or list(queries)


def _unanswerable(
    parts: CorpusParts, training: Dataset | None, evaluation: Dataset, seed: int
) -> dict[int, list[LabelledQuery]]:
    """Divide the unanswerable queries by the documents that they were judged against, at random without any."""
    divided: dict[int, list[LabelledQuery]] = {}
    for part in (TRAIN, VALIDATION, UNSEEN):
        source = evaluation if part == UNSEEN else training
        queries = sorted([] if source is None else source.unanswerable, key=lambda query: sampling_key(query.id, seed))
        divided[part] = [query for query in queries if parts.of_unanswerable(query, seed) == part]
        divided[part] = divided[part][: _MAX_QUERIES.get(part)]
    return divided


def _crops(
    documents: DocumentStore, passages: NDArray[np.int64], max_queries: int, seed: int
) -> tuple[list[LabelledQuery], int]:
    """Crop a random sample of passages, and return crops in corpus order and the number of too short passages."""
    parents: Parents = documents.parents
    keys = sorted((sampling_key(documents[position].id, seed), position) for position in passages.tolist())
    crops = []
    for position in sorted(position for _, position in keys[:max_queries]):
        document = documents[position]
        text = crop(document.text, document.id, seed, _WORDS)
        if not text:
            continue
        name = f"crop:{document.id}"
        if parents is None:
            crops.append(LabelledQuery(name, text, {position: 1}, origin="crop"))
        else:
            parent = int(parents[position])
            crops.append(LabelledQuery(name, text, {parent: 1}, origin="crop", chunks={parent: (position,)}))
    return crops, min(max_queries, len(passages)) - len(crops)


def _check(name: str, queries: dict[int, list[LabelledQuery]], training: Dataset | None) -> None:
    for part, min_queries in MIN_QUERIES.items():
        if (count := len(queries[part])) >= min_queries:
            continue
        if part == UNSEEN:
            advice = "label more queries about other documents"
        elif training is None:
            advice = "add documents of ten words or more"
        else:
            advice = "label more queries about other documents, or learn from crops (no --split and no split train)"
        raise InputError(
            f"{name}: only {count} {'query' if count == 1 else 'queries'} to {_USE[part]} on separate documents, but "
            f"at least {min_queries} are needed; {advice}"
        )
    if len({*clusters(queries[UNSEEN]).tolist()}) == 1:
        raise InputError(
            f"{name}: all {len(queries[UNSEEN])} queries to {_USE[UNSEEN]} are about the same document, or about "
            "documents that some of them share, and count as one; label more queries about other documents"
        )


@dataclass(frozen=True)
class HardNegatives:
    """Hard negatives of n queries.

    Attributes:
        positions: (n, c) int64, most similar first, filled with random documents that do not answer the query; −1 if
            every document answers it.
        suspects: Documents of each query that were excluded because they may answer it; they should be ignored.
    """

    positions: Positions
    suspects: list[Positions]


@dataclass(frozen=True)
class PairedTexts:
    """Queries and documents to learn from, encoded by the current encoder.

    Attributes:
        queries: (n, d) float32 of unit length.
        documents: (N, d) float32 of unit length.
    """

    queries: Float32
    texts: Sequence[str]
    relevant: Sequence[Positions]
    documents: Float32
    document_texts: Iterable[str]

    def take(self, rows: Positions) -> Self:
        """Take the queries at `rows`, in that order, with all documents."""
        texts, relevant = [self.texts[row] for row in rows.tolist()], [self.relevant[row] for row in rows.tolist()]
        return replace(self, queries=self.queries[rows], texts=texts, relevant=relevant)

    def mine(self, count: int, rng: np.random.Generator) -> HardNegatives:
        """Find hard negatives with the current encoder, and exclude those that may be answers."""
        nearest = FlatIndex.build(self.documents).search(self.queries, min(_DEPTH, len(self.documents)))
        positions = np.empty((len(self.queries), count), dtype=np.int64)
        suspects = []
        lexical = LexicalIndex.of(self.document_texts)
        for row, text in enumerate(self.texts):
            answers, words = self.relevant[row], query_terms(text)
            retrieved, scores = nearest.positions[row], nearest.scores[row]
            other = ~np.isin(retrieved, answers)
            retrieved, scores = retrieved[other], scores[other]
            suspect = np.zeros(len(retrieved), dtype=np.bool_)  # no document answers an unanswerable query
            if len(answers):
                suspect = scores > (self.documents[answers] @ self.queries[row]).max() - _MARGIN
                suspect &= lexical.shares(words, retrieved) >= max(lexical.shares(words, answers).max(), _SMALLEST)
            suspects.append(retrieved[suspect])
            seen = np.concatenate([answers, retrieved])
            positions[row] = _filled(retrieved[~suspect][:count], count, seen, answers, len(self.documents), rng)
        return HardNegatives(positions, suspects)


def _filled(
    retrieved: Positions, count: int, excluded: Positions, answers: Positions, documents: int, rng: np.random.Generator
) -> Positions:
    """Return negatives of a query, followed by random documents if they are too few."""
    if len(retrieved) == count:
        return retrieved
    candidates = np.setdiff1d(np.arange(documents), excluded)
    if not len(candidates):  # all of a small corpus was retrieved
        candidates = np.setdiff1d(np.arange(documents), answers)
    if not len(candidates):
        return np.full(count, -1)
    return np.concatenate([retrieved, rng.choice(candidates, count - len(retrieved))])
