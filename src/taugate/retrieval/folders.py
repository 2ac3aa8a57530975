"""What decides about the results of a release: its models, its policy and its second stage, written and opened."""

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

from taugate.errors import ReleaseError, RerankerUnavailable
from taugate.policy.abstention import AnswerRule, AnswerScore
from taugate.policy.policy import Policy, StratumThresholds
from taugate.policy.relevance import Relevance
from taugate.policy.score_relevance import ScoreRelevance
from taugate.release.files import RERANKER_FILES
from taugate.release.layout import ABSTENTION, FIRST_STAGE_FOLDER, KNOWN_PAIRS, LEXICAL, RELEVANCE, TOKEN_VECTORS
from taugate.release.manifest import Manifest, ReleaseManifest
from taugate.release.names import ReleaseFolder
from taugate.release.search_records import KnownPair, SecondStageRecord, read_pairs, write_pairs
from taugate.retrieval.documents.filters import composed, sort_key
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.word_match import index_of, word_reader
from taugate.retrieval.loading import Corpus
from taugate.retrieval.rerank.cross_encoder import CrossEncoder
from taugate.retrieval.rerank.late_interaction import LateInteraction, TokenVectors
from taugate.retrieval.rerank.reranker import Reranker, TextReranker, TextScorer
from taugate.retrieval.rerank.stage import FIRST_SCORE, SecondStage, SecondStageRule
from taugate.retrieval.rerank.token_encoder import TokenEncoder

_log = logging.getLogger(__name__)
_ENDPOINT_SECONDS = 5.0  # to score the known pairs at load, before the first stage serves alone
OpenReranker = Callable[[str | None], TextScorer]  # given the model's name in requests


class ModelsFolder(ReleaseFolder):
    """What one stage knows of scores: a model of relevance, and the score by which queries are refused.

    The folder of a release has those of its last stage, FIRST_STAGE_FOLDER those of the first of two.
    """

    def write(self, relevance: Relevance | ScoreRelevance | None, answer_score: AnswerScore | None) -> None:
        """Write the models that there are, with the words of refusals; raises OSError if that fails."""
        if relevance is not None or answer_score is not None:
            self.path.mkdir(exist_ok=True)
        if relevance is not None:
            relevance.save(self.path / RELEVANCE)
        if answer_score is not None:
            answer_score.save(self.path / ABSTENTION)
            words = index_of(answer_score.signals.words)
            if words is not None and not (self._release / LEXICAL).exists():  # those of the search are the same
                words.save(self._release / LEXICAL)

    @property
    def _release(self) -> Path:
        return self.path.parent if self.path.name == FIRST_STAGE_FOLDER else self.path

    def open(self, manifest: Manifest, corpus: Corpus) -> tuple[Relevance | None, AnswerRule | None]:
        """Load the models of the only stage, or of the first of two, which a manifest describes."""
        relevance, dimension = None, corpus.index.dimension
        if manifest.relevance is not None:
            count = len(corpus.index) if corpus.read is None else None
            relevance = Relevance.load(self.path / RELEVANCE, dimension, count)
            relevance = relevance if corpus.read is None else relevance.reading(corpus.read)
        if manifest.answer_threshold is None:
            return relevance, None
        (score, threshold), words = manifest.answer_threshold, corpus.words
        if words is None and LEXICAL in manifest.files:
            words = LexicalIndex.load(self._release / LEXICAL, len(corpus.index))
        loaded = AnswerScore.load(self.path / ABSTENTION, score, dimension, word_reader(corpus.documents, words))
        return relevance, AnswerRule(loaded, threshold, within_filters=_within_filters(manifest))

    def open_of_scores(
        self, manifest: ReleaseManifest, features: tuple[str, ...], components: tuple[str, ...]
    ) -> tuple[ScoreRelevance | None, AnswerRule | None]:
        """Load the models of a second stage or of a run, which know nothing but scores.

        Args:
            features: Further scores of a result that the model of relevance has.
            components: Those that the score of a query has.
        """
        relevance = rule = None
        if manifest.relevance is not None:
            relevance = ScoreRelevance.load(self.path / RELEVANCE, features)
        if manifest.answer_threshold is not None:
            score, threshold = manifest.answer_threshold
            loaded = AnswerScore.load(self.path / ABSTENTION, score, 0, components=components)
            rule = AnswerRule(loaded, threshold, within_filters=_within_filters(manifest))
        return relevance, rule


class RerankerFolder(ReleaseFolder):
    """The second stage: its model unless that is behind an endpoint, and the pairs that check it."""

    def write(
        self,
        model: Path | None,
        known: list[KnownPair],
        token_vectors: TokenVectors | None = None,
        documents: Sequence[int] | None = None,
    ) -> None:
        """Write the files.

        Args:
            model: Folder that a model is copied from; None for an endpoint.
            token_vectors: Token vectors of late interaction; None for other kinds.
            documents: Positions of the documents whose token vectors are kept; None for all.
        """
        self.path.mkdir()
        if model is not None:
            for name in RERANKER_FILES:
                if (model / name).exists():  # there is one model of several kinds
                    shutil.copyfile(model / name, self.path / name)
        if token_vectors is not None:
            token_vectors.save(self.path / TOKEN_VECTORS, documents)
        write_pairs(self.path / KNOWN_PAIRS, known)

    def open(
        self, manifest: Manifest, corpus: Corpus, threads: int | None, open_reranker: OpenReranker
    ) -> SecondStage | None:
        """Load the second stage, and compare the known pairs; None if the release has one stage."""
        # An endpoint that does not give their scores is asked again later, because the first stage can answer
        # meanwhile.
        record = manifest.second_stage
        if record is None:
            return None
        relevance, rule = ModelsFolder(self.path.parent).open_of_scores(manifest, (FIRST_SCORE,), ())
        stage = SecondStageRule(record.candidates, read_policy(manifest), relevance, rule, record.first_stage_weight)
        if record.kind == "endpoint":
            reranker: Reranker = TextReranker(open_reranker(record.model), corpus.documents)
        else:
            reranker = self._open_model(record, corpus, threads)
        second = SecondStage(stage, reranker, corpus.documents, read_pairs(self.path / KNOWN_PAIRS), record.tolerance)
        try:
            second.check(time.monotonic() + _ENDPOINT_SECONDS if record.kind == "endpoint" else None)
        except RerankerUnavailable as error:
            if record.kind != "endpoint":
                raise
            _log.warning("second stage not available yet: %s", error)
            second.pause()
        return second

    def _open_model(self, record: SecondStageRecord, corpus: Corpus, threads: int | None) -> Reranker:
        if record.token_vectors is None:
            cross = CrossEncoder(self.path, threads)
            self._check_digest(cross.sha256, record)
            return TextReranker(cross, corpus.documents)
        model = TokenEncoder(self.path, threads)
        self._check_digest(model.sha256, record)
        vectors = TokenVectors(self.path / TOKEN_VECTORS, model.config.dimension)
        if len(vectors) != len(corpus.documents):
            raise ReleaseError(f"{self.path / TOKEN_VECTORS}: is not of the documents of this release; calibrate again")
        return LateInteraction(model, vectors)

    def _check_digest(self, sha256: str, record: SecondStageRecord) -> None:
        if sha256 != record.sha256:
            raise ReleaseError(f"{self.path}: its files are not the reranker in the manifest; calibrate again")


def _within_filters(manifest: ReleaseManifest) -> bool:
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
    alone: dict[Hashable, float] = {
        key: tau for value, tau in taus.items() if tau is not None and forms[key := sort_key(value)] == 1
    }
    return StratumThresholds(composed(manifest.strata.field), alone)
