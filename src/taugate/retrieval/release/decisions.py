"""Loads what decides about results: policies, models of relevance, rules that refuse queries, and the second stage."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from taugate.errors import (
    ReleaseError,
    RerankerUnavailable,
)
from taugate.retrieval.documents.filters import composed, sort_key
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.policy.abstention import AnswerRule, AnswerScore
from taugate.retrieval.policy.policy import Policy, StratumThresholds
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.policy.score_relevance import ScoreRelevance
from taugate.retrieval.release.corpus import Corpus
from taugate.retrieval.release.layout import (
    ABSTENTION,
    KNOWN_PAIRS,
    LEXICAL,
    RELEVANCE,
    RERANKER_FOLDER,
)
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.second_stage import SecondStageRecord, read_pairs
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.late_interaction import TOKEN_VECTORS, LateInteraction, TokenVectors
from taugate.retrieval.rerank.reranker import Reranker, TextReranker, TextScorer
from taugate.retrieval.rerank.stage import FIRST_SCORE, SecondStage, SecondStageRule
from taugate.retrieval.rerank.token_encoder import TokenEncoder

_log = logging.getLogger(__name__)
_ENDPOINT_SECONDS = 5.0  # to score the known pairs at load, before the first stage serves alone
OpenReranker = Callable[[str | None], TextScorer]  # given the model's name in requests


def load_relevance(path: Path, manifest: Manifest, corpus: Corpus) -> Relevance | None:
    """Load the model of relevance; None if there is none. `manifest` describes the stage of the model."""
    if manifest.relevance is None:
        return None
    dimension = corpus.index.dimension
    if corpus.read is None:
        return Relevance.load(path, dimension, len(corpus.index))
    return Relevance.load(path, dimension, None).reading(corpus.read)


def load_second_stage(
    release: Path, manifest: Manifest, corpus: Corpus, threads: int | None, open_reranker: OpenReranker
) -> SecondStage | None:
    """Load the second stage, and compare the known pairs.

    An endpoint that does not give their scores is asked again later, because the first stage can answer meanwhile.
    """
    record, folder = manifest.second_stage, release / RERANKER_FOLDER
    if record is None:
        return None
    relevance = abstention = None
    if manifest.relevance is not None:
        relevance = ScoreRelevance.load(release / RELEVANCE, (FIRST_SCORE,))
    if manifest.answer_threshold is not None:
        score, threshold = manifest.answer_threshold
        loaded = AnswerScore.load(release / ABSTENTION, score, 0, ())
        abstention = AnswerRule(loaded, threshold, within_filters=_within_filters(manifest))
    rule = SecondStageRule(record.candidates, read_policy(manifest), relevance, abstention, record.first_stage_weight)
    if record.kind == "endpoint":
        reranker: Reranker = TextReranker(open_reranker(record.model), corpus.documents)
    else:
        reranker = _load_reranker(folder, record, corpus, threads)
    second = SecondStage(rule, reranker, corpus.documents, read_pairs(folder / KNOWN_PAIRS), record.tolerance)
    try:
        second.check(time.monotonic() + _ENDPOINT_SECONDS if record.kind == "endpoint" else None)
    except RerankerUnavailable as error:
        if record.kind != "endpoint":
            raise
        _log.warning("second stage not available yet: %s", error)
        second.pause()
    return second


def _load_reranker(folder: Path, record: SecondStageRecord, corpus: Corpus, threads: int | None) -> Reranker:
    """Load a reranker from the files of a release."""
    model = CrossEncoder(folder, threads) if record.token_vectors is None else TokenEncoder(folder, threads)
    if model.sha256 != record.sha256:
        raise ReleaseError(f"{folder}: its files are not the reranker in the manifest; calibrate again")
    if isinstance(model, CrossEncoder):
        return TextReranker(model, corpus.documents)
    vectors = TokenVectors(folder / TOKEN_VECTORS, model.config.dimension)
    if len(vectors) != len(corpus.documents):
        raise ReleaseError(f"{folder / TOKEN_VECTORS}: is not of the documents of this release; calibrate again")
    return LateInteraction(model, vectors)


def load_abstention(release: Path, path: Path, manifest: Manifest, corpus: Corpus) -> AnswerRule | None:
    """Load the rule that refuses queries; None if none is refused. `manifest` describes the stage of the rule."""
    if manifest.answer_threshold is None:
        return None
    score, threshold = manifest.answer_threshold
    index, lexical = corpus.index, None
    if isinstance(index, HybridIndex):
        lexical = index.lexical
    elif LEXICAL in manifest.files:
        lexical = LexicalIndex.load(release / LEXICAL, len(index))
    loaded = AnswerScore.load(path, score, index.dimension, corpus.documents, lexical)
    return AnswerRule(loaded, threshold, within_filters=_within_filters(manifest))


def _within_filters(manifest: Manifest) -> bool:
    """Return whether queries are refused within filters, too: certified limits are of whole searches."""
    return manifest.refusal is not None and manifest.refusal.is_default


def read_policy(manifest: Manifest) -> Policy:
    """Return the policy that a manifest describes."""
    record, provisional = manifest.policy, manifest.state != "calibrated"
    return Policy(record.kind, record.tau, record.k, record.metric, provisional, _stratum_thresholds(manifest))


def _stratum_thresholds(manifest: Manifest) -> StratumThresholds | None:
    if manifest.strata is None:
        return None
    taus = {record.value: record.tau for record in manifest.strata.strata if record.value is not None}
    # Earlier versions took two Unicode forms of a value for two strata; no threshold is certified for both together.
    forms = Counter(map(sort_key, (*taus, *manifest.strata.other_values)))
    alone = {key: tau for value, tau in taus.items() if tau is not None and forms[key := sort_key(value)] == 1}
    return StratumThresholds(composed(manifest.strata.field), alone)
