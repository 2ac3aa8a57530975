"""Training and validation queries: labelled or generated ones and, where there are none or few, crops of documents."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from taugate.adaptation.parts import TRAIN, UNSEEN, VALIDATION, CorpusParts
from taugate.calibration.metrics.clusters import clusters
from taugate.calibration.metrics.documents import Parents
from taugate.errors import InputError
from taugate.ingestion.dataset.beir import PEOPLE, Dataset, LabelledQuery
from taugate.ingestion.queries.crop import crop, sampling_key
from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.release.adaptation import PairsRecord

_MOST = {TRAIN: 4096, VALIDATION: 1024}  # queries of a part; the step that learns from them takes fewer still
# Fewer pairs hold no matrix of 384 × 384 numbers, and with fewer queries luck chooses and judges.
FEWEST = {TRAIN: 30, VALIDATION: 10, UNSEEN: 30}
# Where fewer labelled queries teach, crops of the documents to learn from fill up to as many. People's still choose. To
# an adapter of 60 labels they added 0.9 points of NDCG@10 on covidqa_chunks and none on squadshifts_reddit, to one of
# 120 labels 0.1 on both (seed 1). No other number was tried: twice 120 is near where they add nothing.
_FEW = 256
# Words of a crop, as many as questions have. With them crops gain 4.3 points of NDCG@10 on covidqa_chunks and 2.2 on
# squadshifts_reddit (docs/benchmarks/adapt.md); with the shares of `taugate queries` it was 3.7 and 2.5.
_WORDS = (5, 20)
_USE = {TRAIN: "learn from", VALIDATION: "choose a recipe by", UNSEEN: "decide on admission"}


@dataclass(frozen=True)
class AdaptationQueries:
    """The queries of an adaptation; no document answers queries of two parts.

    Attributes:
        parts: Of the corpus.
        source: Where training queries come from.
        split: Of those that are not crops made here, None where all are.
        lost: Documents that gave no query, by the reason, where queries were generated, None where nobody counted.
        train: Queries of the parts.
        validation: Queries of the parts.
        unseen: Queries of the parts.
    """

    parts: CorpusParts
    source: Literal["labels", "generated", "crops", "labels and crops"]
    split: str | None
    lost: Mapping[str, int] | None
    train: list[LabelledQuery]
    validation: list[LabelledQuery]
    unseen: list[LabelledQuery]

    @classmethod
    def collect(
        cls, evaluation: Dataset, training: Dataset | None, seed: int, lost: Mapping[str, int] | None = None
    ) -> Self:
        """Divide the documents, and take the queries of each part.

        Args:
            evaluation: Data set with the split that decides on admission.
            training: The same data set with the split to learn from, None for crops.
            seed: Of division and crops.
            lost: Documents that gave no query when the split was generated, None where that is not known.

        Raises:
            InputError: Where a part has too few queries.
        """
        documents, judged = evaluation.documents, decisive(evaluation.answerable)
        labelled = [] if training is None else training.answerable
        parts = CorpusParts.divide(len(documents), documents.parents, labelled, judged, seed)
        learned: dict[int, list[LabelledQuery]] = {}
        empty = 0
        for part, most in _MOST.items():
            if training is None:
                learned[part], without = _crops(documents, parts.passages(part), most, seed)
                empty += without
            else:
                learned[part] = sorted(parts.queries(part, labelled), key=lambda query: sampling_key(query.id, seed))
                learned[part] = learned[part][:most]
        unseen = parts.queries(UNSEEN, judged)
        _check(evaluation.name, {**learned, UNSEEN: unseen}, training)
        if training is None:
            return cls(parts, "crops", None, {"empty": empty}, learned[TRAIN], learned[VALIDATION], unseen)
        train, split = learned[TRAIN], training.split
        if all(query.origin not in PEOPLE for query in train):
            return cls(parts, "generated", split, lost, train, learned[VALIDATION], unseen)
        if len(train) >= _FEW:
            return cls(parts, "labels", split, None, train, learned[VALIDATION], unseen)
        crops, empty = _crops(documents, parts.passages(TRAIN), _FEW - len(train), seed)
        return cls(parts, "labels and crops", split, {"empty": empty}, train + crops, learned[VALIDATION], unseen)

    @property
    def evidence(self) -> Literal["human", "generated"]:
        """Return "human" if people asked the queries that decide on admission, else "generated"."""
        return "human" if all(query.origin in PEOPLE for query in self.unseen) else "generated"

    @property
    def record(self) -> PairsRecord:
        """Return the record for adaptation.json."""
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
    """Return the queries that people asked; all of them where nobody did."""
    human = [query for query in queries if query.origin in PEOPLE]
    return human or list(queries)


def _crops(
    documents: DocumentStore, passages: NDArray[np.int64], most: int, seed: int
) -> tuple[list[LabelledQuery], int]:
    """Crop a random sample of passages; returns crops in the order of the corpus, and how many were too short."""
    parents: Parents = documents.parents
    keys = sorted((sampling_key(documents[position].id, seed), position) for position in passages.tolist())
    found = []
    for position in sorted(position for _, position in keys[:most]):
        document = documents[position]
        text = crop(document.text, document.id, seed, _WORDS)
        if not text:
            continue
        name = f"crop:{document.id}"
        if parents is None:
            found.append(LabelledQuery(name, text, {position: 1}, origin="crop"))
        else:
            parent = int(parents[position])
            found.append(LabelledQuery(name, text, {parent: 1}, origin="crop", chunks={parent: (position,)}))
    return found, min(most, len(passages)) - len(found)


def _check(name: str, queries: dict[int, list[LabelledQuery]], training: Dataset | None) -> None:
    for part, fewest in FEWEST.items():
        if (found := len(queries[part])) >= fewest:
            continue
        if part == UNSEEN:
            advice = "label more, about other documents"
        elif training is None:
            advice = "add documents of ten words or more"
        else:
            advice = "label more, about other documents, or learn from crops, without --split and without a split train"
        raise InputError(
            f"{name}: {found} {'query' if found == 1 else 'queries'} to {_USE[part]} on documents of their own, and "
            f"{fewest} are the fewest; {advice}"
        )
    if len({*clusters(queries[UNSEEN]).tolist()}) == 1:
        raise InputError(
            f"{name}: all {len(queries[UNSEEN])} queries to {_USE[UNSEEN]} are about the same document, or about "
            "documents that some of them share, and count as one; label more, about other documents"
        )
