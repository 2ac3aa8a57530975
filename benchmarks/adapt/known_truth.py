"""Adaptations of which it is known whether they are better: by construction, or because a large set tells."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import orjson

from taugate.adaptation.admission import Admission, K, judge_adapted
from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.recipes import EncodedPairs, LearnedRecipes, search_trial
from taugate.adaptation.settings import Recipe
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.gate.baseline import DEPTH, RankingOutcomes
from taugate.calibration.metrics.clusters import SamplingUnits, clusters
from taugate.calibration.progress import Stopwatch
from taugate.calibration.risk.paired import paired_losses
from taugate.ingestion.dataset.beir import CORPUS, Dataset, LabelledQuery, read_dataset
from taugate.ingestion.dataset.beir import QUERIES as QUERIES_FILE
from taugate.ingestion.dataset.judgements import qrels_of
from taugate.retrieval.encoder.encoder import OnnxEncoder, Role
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.vectors.similarity import Float32

_DOCUMENTS = 500  # of a set: a search takes a tenth of the time, and all it knows of their queries is the truth
QUERIES = 600  # of an adaptation: some 300 to learn from, 90 to choose by and 210 to decide
STEPS = 8  # the best of them come before the eighth, where pairs are as few
_WIDTHS = (0.02, 0.5)  # of the noise in a random map: from next to nothing to a third of the length of a vector


@dataclass(frozen=True)
class Known:
    """One decision.

    Attributes:
        admitted: By the gate.
        better: Whether the encoder is, as far as anybody can know.
    """

    admitted: bool
    better: bool


@dataclass(frozen=True)
class EncodedSet:
    """A public data set, encoded by the default encoder.

    Attributes:
        dataset: With q answerable queries.
        documents: (N, d) float32.
        encoder: That embeds its queries, of which the cache knows most.
        spool: Keeps the documents.
    """

    dataset: Dataset
    documents: Float32
    encoder: OnnxEncoder
    spool: tempfile.TemporaryDirectory[str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a part of a data set, whose queries are all there are, and encode it or look it up in the cache."""
        spool = tempfile.TemporaryDirectory(prefix="taugate-adapt-")
        part, texts = Path(spool.name, "part"), Path(spool.name, "texts")
        for each in (part / "qrels", texts):
            each.mkdir(parents=True)
        _write_part(folder, part)
        dataset = read_dataset(part, "test", texts)
        encoder = OnnxEncoder.load(exported_encoder(DEFAULT_ENCODER))
        documents = _embed(encoder, [each.encoded_text for each in dataset.documents], "document")
        return cls(dataset, documents, encoder, spool)

    def sample(self, seed: int, rng: np.random.Generator) -> list[LabelledQuery]:
        """Draw queries; with an odd seed one of each document, so that the gate counts queries, else documents."""
        queries = self.dataset.answerable
        order = rng.permutation(len(queries))
        if seed % 2:
            order = order[np.sort(np.unique(clusters([queries[row] for row in order]), return_index=True)[1])]
        return [queries[row] for row in order[:QUERIES]]

    def relabelled(self, asked: Sequence[LabelledQuery], seed: int, rng: np.random.Generator) -> list[LabelledQuery]:
        """Give to some queries the labels of as many queries of this set.

        Args:
            asked: Of this set or of another.
        """
        labels = self.sample(seed, rng)
        return [
            replace(query, relevant=label.relevant, chunks=label.chunks)
            for query, label in zip(asked, labels, strict=False)
        ]

    def pairs(self, queries: list[LabelledQuery], seed: int) -> EncodedPairs:
        """Divide queries as `taugate adapt` does.

        Args:
            queries: Labelled with documents of this set.
            seed: Of the division.
        """
        dataset = replace(self.dataset, answerable=queries)
        divided = AdaptationQueries.collect(dataset, dataset, seed)

        return EncodedPairs(
            divided,
            self.documents,
            self._queries(divided.train),
            self._queries(divided.validation),
            self._queries(divided.unseen),
            self.dataset.documents,
        )

    def gain(self, learned: LinearMap | None) -> tuple[float, float]:
        """Return what a map gains in NDCG@10 and accuracy@K on all queries of the set, by the unit of their evidence."""
        queries = self.dataset.answerable
        units = SamplingUnits.from_labels(clusters(queries))
        before, after = (self.outcomes(queries, each) for each in (None, learned))
        differences = (before.ndcg - after.ndcg, before.accuracy - after.accuracy)
        ndcg, accuracy = (-paired_losses(each, units).mean for each in differences)
        return ndcg, accuracy

    def gain_of_chance(
        self, asking: "EncodedSet", labels: Sequence[LabelledQuery], learned: LinearMap | None
    ) -> tuple[float, float]:
        """Return the expected gain in NDCG@10 and accuracy@K where every query has any of some labels by lot.

        It is not 0. An encoder that finds few documents for all queries gains as soon as it finds those with labels.

        Args:
            asking: All of its queries are asked.
            labels: Of this set, with one document each.
            learned: The map.
        """
        share = np.bincount([next(iter(each.relevant)) for each in labels], minlength=len(self.documents)) / len(labels)
        queries, found = asking._queries(asking.dataset.answerable), []
        for each in (None, learned):
            asked, documents = (queries, self.documents) if each is None else map(each.apply, (queries, self.documents))
            hits = share[FlatIndex.build(documents).search(asked, DEPTH).positions].mean(axis=0)
            found.append((float(hits @ (1 / np.log2(np.arange(DEPTH) + 2))), float(hits[:K].sum())))
        (ndcg, accuracy), (ndcg_after, accuracy_after) = found
        return ndcg_after - ndcg, accuracy_after - accuracy

    def outcomes(self, queries: Sequence[LabelledQuery], learned: LinearMap | None) -> RankingOutcomes:
        """Search for queries of this set through a map."""
        parents = self.dataset.documents.parents
        return search_trial(queries, self._queries(queries), self.documents, learned, K, parents).outcomes()

    def _queries(self, asked: Sequence[LabelledQuery]) -> Float32:
        return _embed(self.encoder, [query.text for query in asked], "query")


def _embed(encoder: OnnxEncoder, texts: list[str], role: Role) -> Float32:
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    return encode(encoder, texts, len(texts), role, cache, Stopwatch()).vectors


def _write_part(source: Path, target: Path) -> None:
    """Copy some documents of a data set, and the queries whose answers are among them."""
    corpus = (source / CORPUS).read_bytes().splitlines()
    kept = [corpus[row] for row in np.sort(np.random.default_rng(0).permutation(len(corpus))[:_DOCUMENTS])]
    documents = {orjson.loads(line)["_id"] for line in kept}
    header, *rows = (source / qrels_of("test")).read_text().splitlines()
    missing = {row.split("\t")[0] for row in rows if row.split("\t")[1] not in documents}
    judged = [row for row in rows if row.split("\t")[0] not in missing]
    (target / CORPUS).write_bytes(b"\n".join(kept) + b"\n")
    (target / QUERIES_FILE).write_bytes((source / QUERIES_FILE).read_bytes())
    (target / qrels_of("test")).write_text("\n".join([header, *judged]) + "\n")


def shuffled(of: EncodedSet, seed: int) -> Known:
    """Adapt to queries each of which has the labels of another one, by lot."""
    return foreign(of, of, seed)


def foreign(of: EncodedSet, asking: EncodedSet, seed: int) -> Known:
    """Adapt to queries of another set, each with the labels of a query of this one, by lot."""
    rng = np.random.default_rng(seed)
    pairs = of.pairs(of.relabelled(asking.sample(seed, rng), seed, rng), seed)
    learned = learn(pairs, seed)
    found = Admission.decide(pairs, learned)
    ndcg, accuracy = of.gain_of_chance(asking, pairs.queries.unseen, learned.chosen.learned)
    return Known(found.admitted, better=ndcg > 0 and accuracy > -found.chosen.margin)


def elsewhere(learning: EncodedSet, judged: EncodedSet, seed: int) -> Known:
    """Learn from one set and admit by some queries of another, all of whose queries tell whether it is better."""
    rng = np.random.default_rng(seed)
    learned = learn(learning.pairs(learning.sample(seed, rng), seed), seed)
    return _decided(judged, learned, rng, seed)


def random_map(of: EncodedSet, seed: int) -> Known:
    """Take two random maps near the identity for recipes; all queries of the set tell whether the chosen one is better."""
    rng = np.random.default_rng(seed)
    pairs = of.pairs(of.sample(seed, rng), seed)
    d, tried = of.documents.shape[1], []
    for each in learn(pairs, seed).tried:
        width = math.exp(rng.uniform(*np.log(_WIDTHS)))
        learned = LinearMap.from_float64(np.eye(d) + width / math.sqrt(d) * rng.standard_normal((d, d)), np.zeros(d))
        tried.append(replace(each, learned=learned, per_query=pairs.validate(learned)))
    best = max(tried, key=lambda each: each.ndcg)
    return _decided(of, LearnedRecipes(tried, best, 0, float(pairs.validate(None).mean()), []), rng, seed)


def random_signs(of: EncodedSet, learned: LearnedRecipes, seed: int) -> Known:
    """Turn what recipes gain and lose the other way round for a random half of the documents: they gain nothing."""
    rng = np.random.default_rng(seed)
    queries = of.sample(seed, rng)
    labels = clusters(queries)
    signs = rng.choice([-1.0, 1.0], labels.max() + 1)[labels]
    base = of.outcomes(queries, None)
    turned = []
    for each in learned.tried:
        found = of.outcomes(queries, each.learned)
        outcomes = (
            base.accuracy + signs * (found.accuracy - base.accuracy),
            base.ndcg + signs * (found.ndcg - base.ndcg),
        )
        turned.append((each.name, RankingOutcomes(*outcomes)))
    records = judge_adapted(base, turned, SamplingUnits.from_labels(labels))
    return Known(admitted=any(record.admitted for record in records), better=False)


def learn(pairs: EncodedPairs, seed: int, recipe: Recipe = "auto") -> LearnedRecipes:
    """Try the recipes.

    Args:
        pairs: To learn from.
        seed: Of the draw.
        recipe: Which.
    """
    return LearnedRecipes.climb(pairs, recipe, seed, STEPS, lambda _: None)


def _decided(judged: EncodedSet, learned: LearnedRecipes, rng: np.random.Generator, seed: int) -> Known:
    """Admit recipes by a sample of queries, and ask all queries of the set whether that was right."""
    pairs = judged.pairs(judged.sample(seed, rng), seed)
    tried = [replace(each, pairs=pairs) for each in learned.tried]
    chosen = tried[learned.tried.index(learned.chosen)]
    found = Admission.decide(pairs, replace(learned, tried=tried, chosen=chosen))
    ndcg, accuracy = judged.gain(chosen.learned)
    return Known(found.admitted, better=ndcg > 0 and accuracy > -found.chosen.margin)
