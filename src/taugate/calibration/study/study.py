"""Analyses labelled queries from the scores of any search, with parts of an earlier release that are reused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.inputs import SearchedQueries, StudyInputs
from taugate.calibration.query_set.warnings import Wording
from taugate.calibration.relevance import LabelledSearch, estimate_score_relevance
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study import refusing
from taugate.calibration.threshold.few_labels import FewLabels
from taugate.evidence.abstention.certify import keep_refusal, refuse_within_limits
from taugate.evidence.abstention.choose import LabelledGroups
from taugate.evidence.abstention.refusal import StudiedRefusal
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.measure import PartName, QueryPart
from taugate.evidence.ranking import ScoredQueries
from taugate.evidence.relevance.fitting import AppliedRelevance, EstimatedRelevance
from taugate.evidence.threshold.policy_choice import CalibrationQueries, certifiable_rho, with_enough_evidence
from taugate.policy.abstention import AnswerRule, AnswerScore
from taugate.policy.arrays import Float32
from taugate.policy.relevance import Relevance
from taugate.policy.score_relevance import NO_COMPONENTS, Components, ScoreRelevance
from taugate.release.evidence import IsotropyRecord, RelevanceRecord
from taugate.release.layout import RELEVANCE
from taugate.release.manifest import Manifest
from taugate.release.names import Method
from taugate.release.outcome_records import PolicyRecord
from taugate.release.records import QuerySetRecord
from taugate.release.refusal_records import RefusalRecord
from taugate.release.verify import verify
from taugate.retrieval.folders import ModelsFolder
from taugate.retrieval.reader import Release
from taugate.retrieval.rerank.stage import SecondStageRule
from taugate.retrieval.retriever import Retriever


@dataclass(frozen=True)
class Inherited:
    """Reused parts of an earlier release."""

    # Model of relevance, whose weights do not change, None if the release has none. Of a second stage, it is a
    # model of scores.
    relevance: Relevance | ScoreRelevance | None
    relevance_record: RelevanceRecord | None  # record of the model, None if the release has none
    chosen_by: Method
    policy: PolicyRecord | None = None  # the policy, None if only the model is reused
    # The rule by which queries are refused, with its record; None if there is none
    refusal: tuple[AnswerRule, RefusalRecord] | None = None

    @property
    def score_relevance(self) -> ScoreRelevance | None:
        """The model, if it reads scores alone."""
        return self.relevance if isinstance(self.relevance, ScoreRelevance) else None

    @property
    def refuses_by_default(self) -> bool:
        """Whether it has a default ρ."""
        return self.refusal is not None and self.refusal[1].is_default

    @classmethod
    def everything(cls, release: Release) -> Self:
        """Reuse the model, the policy and the refusals of an opened release; of two stages, of the second."""
        second = release.retriever.second
        return cls._of(release.manifest, release.retriever if second is None else second.rule)

    @classmethod
    def first_stage(cls, release: Release) -> Self:
        """Reuse the same of the first stage alone of an opened release with two stages."""
        return cls._of(release.manifest.first_stage, release.retriever)

    @classmethod
    def _of(cls, manifest: Manifest, rule: Retriever | SecondStageRule) -> Self:
        refusal = None
        if rule.abstention is not None and manifest.refusal is not None:
            refusal = (rule.abstention, manifest.refusal)
        policy = manifest.policy
        return cls(rule.relevance, manifest.relevance, policy.method, policy, refusal)

    @classmethod
    def model_of(cls, release: Path, encoder_sha256: str, k: int) -> Self | None:
        """Reuse only the model of relevance.

        Args:
            encoder_sha256: Digest of the float32 encoder of the new release.

        Returns:
            None if the release has another encoder or another K, or none, or a second stage, so that its model does not
            fit.
        """
        manifest = verify(release).searchable
        if manifest is None or manifest.second_stage is not None:
            return None
        encoder = manifest.float32_encoder or manifest.answering
        if (encoder.sha256, manifest.policy.k) != (encoder_sha256, k):
            return None
        return cls(_relevance(release, manifest), manifest.relevance, manifest.policy.method)


def _relevance(release: Path, manifest: Manifest) -> Relevance | None:
    if manifest.relevance is None:
        return None
    dimension = manifest.encoder.dimension if manifest.projection is None else manifest.projection.dimension
    documents = manifest.index.documents if manifest.engine is None else None
    return Relevance.load(release / RELEVANCE, dimension, documents)


@dataclass(frozen=True)
class ScoredPart(QueryPart):
    """A part of the queries, with the similarities of its random documents."""

    # S_rand, (q,) float32, similarity of each query and its random document; (0,) if the search cannot score any
    # document but its results
    random_scores: Float32


Parts = Mapping[PartName, ScoredPart]
# A model with the relevance of the answerable queries' results, and that of the unanswerable ones', (u, K) float32.
Modelled = tuple[AppliedRelevance, Float32]


@dataclass(frozen=True)
class DescribedTexts:
    """What the queries and the documents of a data set are like."""

    isotropy: IsotropyRecord
    query_set: QuerySetRecord
    wording: Wording  # queries that copy their document, and answers that the corpus repeats


# Scores a random document for each of the q queries of a part, (q,) float32.
ScoreRandom = Callable[[QueryPart], Float32]


class VectorSearch(Protocol):
    """What a search can do whose queries and documents have vectors and words."""

    def relevance(
        self, parts: Parts, roles: QueryRoles | None, inherited: Inherited | None, *, refuses: bool
    ) -> Modelled | None:
        """Fit the model of relevance on vectors, or apply an inherited one.

        Args:
            roles: Roles of the calibration queries, None if there are too few.
            inherited: Parts of an earlier release; None to fit a model.
            refuses: Whether the model also learns from questions that no document answers.

        Returns:
            None if there are too few queries, or none is inherited.
        """
        ...

    def groups(self, calibration: NDArray[np.int64], kept: AnswerRule | None) -> LabelledGroups:
        """Return the labelled queries with all that a score of whole queries may be made of.

        Args:
            calibration: Positions of the answerable queries that may choose or certify.
            kept: Rule of an earlier release that scores them; None to choose one.
        """
        ...

    def few_labels(self) -> FewLabels | None:
        """Estimate from few labels and a machine; None if labels are used alone."""
        ...


class Search(Protocol):
    """A search of labelled queries: it yields them scored, and has further capabilities, None for one that it lacks."""

    @property
    def vectors(self) -> VectorSearch | None:
        """What it can do with vectors; without them, the scores of results are all that is known."""
        return None

    @property
    def random(self) -> ScoreRandom | None:
        """Scores documents that are no results."""
        return None

    @property
    def describe(self) -> Callable[[Parts], DescribedTexts] | None:
        """Describes the texts of queries and documents, given the parts."""
        return None

    @property
    def corpus(self) -> LabelledSearch | None:
        """The queries with their documents."""
        return None

    @property
    def queries(self) -> SearchedQueries:
        """The labelled queries with their results; searched at first use."""
        ...

    @property
    def components(self) -> tuple[Components, Components]:
        """Further scores of the answerable and the unanswerable queries' results; none if vectors describe these."""
        return NO_COMPONENTS, NO_COMPONENTS

    def questions(self, parts: refusing.LabelledParts) -> refusing.RefusalQuestions | None:
        """Return the questions that no document answers, which choose the default ρ; None without any."""
        ...

    @property
    def check_refusals(self) -> Callable[[AnswerScore], None] | None:
        """Raises InputError if the chosen score cannot tell the queries that are to be refused."""
        return None


@dataclass(frozen=True)
class Study:
    """Labelled queries that were searched and scored."""

    search: SearchedQueries
    scored: ScoredQueries  # every labelled query with its results and decision scores
    parts: dict[PartName, ScoredPart]
    roles: QueryRoles | None  # calibration queries that fit, and those that do not, None if there are too few
    estimated: AppliedRelevance | None  # model of relevance with its probabilities, None without one
    refusal: StudiedRefusal | None  # what refuses queries as a whole; None if nothing does
    few_labels: FewLabels | None  # estimates from few labels and a machine, None if labels are used alone
    texts: DescribedTexts | None  # what queries and documents are like; None if neither texts nor vectors are known
    corpus: LabelledSearch | None  # the queries of `search` with their documents; None if these are not known

    @property
    def fitted(self) -> EstimatedRelevance | None:
        """The model of relevance if it was fitted on these queries; None if it is inherited, or without one."""
        return self.estimated if isinstance(self.estimated, EstimatedRelevance) else None

    @property
    def answer_rule(self) -> AnswerRule | None:
        """The rule that refuses queries as a whole; None without one."""
        return None if self.refusal is None else self.refusal.rule

    @property
    def measured(self) -> ScoredPart:
        """The held-out queries, or the calibration queries without a holdout."""
        return self.parts.get("heldout", self.parts["calibration"])

    def write_models(self, folder: Path) -> None:
        """Write the model of relevance and the score that refuses queries into a folder, as far as there are any."""
        relevance = None if self.estimated is None else self.estimated.relevance
        ModelsFolder(folder).write(relevance, None if self.answer_rule is None else self.answer_rule.score)

    def deciding(self, inputs: StudyInputs) -> CalibrationQueries:
        """Return the queries that decide the rule of the settings, and which of them certify."""
        part, settings = self.parts["calibration"], inputs.settings
        queries = CalibrationQueries(
            self.scored, part.members, part.resamples.rows, self.roles, self.fitted, inputs.units, settings.seed
        )
        return with_enough_evidence(settings.rule, queries)


def study(inputs: StudyInputs, searching: Search, inherited: Inherited | None = None) -> Study:
    """Search for all labelled queries, fit the model of relevance, and set what refuses queries.

    Args:
        inherited: Parts of an earlier release to reuse, None if everything is fitted and chosen now.

    Raises:
        InputError: If the requested rule cannot be applied to the data.
    """
    job, settings, units = inputs.job, inputs.settings, inputs.units
    with job.stage("search"):
        search = searching.queries
        parts: dict[PartName, ScoredPart] = {
            name: ScoredPart(
                part.members, part.resamples, searching.random(part) if searching.random else np.empty(0, np.float32)
            )
            for name, part in inputs.drawn.parts.items()
        }
    members = parts["calibration"].members
    refuses = settings.refuses or (inherited is not None and inherited.refuses_by_default)
    with job.stage("model"):
        roles = QueryRoles.assign(members, units, settings.seed)
        if searching.vectors is None:
            modelled = _relevance_of_scores(search, searching.components, roles, inherited)
        else:
            modelled = searching.vectors.relevance(parts, roles, inherited, refuses=refuses)
        estimated, of_unanswerable = (None, None) if modelled is None else modelled
    with job.stage("abstention"):
        refusal = _refusal(searching, parts, roles, settings, inherited)
        answering = None if refusal is None else refusal.answering
        of_answerable = None if estimated is None else estimated.answerable
        scored = ScoredQueries(
            search.judged, search.unanswerable, of_answerable, of_unanswerable, answering, shares=search.shares
        )
    with job.stage("labels"):
        few_labels = None if searching.vectors is None else searching.vectors.few_labels()
    with job.stage("query set"):
        texts = None if searching.describe is None else searching.describe(parts)
    studied = Study(search, scored, parts, roles, estimated, refusal, few_labels, texts, searching.corpus)
    chosen = refusal is not None and refusal.record.is_default and inherited is None and settings.rho is None
    if settings.rule.statement is None or not chosen or few_labels is not None:
        return studied
    return _certifiable(
        studied, inputs, lambda rho: _refusal(searching, parts, roles, replace(settings, refuse=rho), inherited)
    )


def _certifiable(studied: Study, inputs: StudyInputs, refuse: Callable[[float], StudiedRefusal | None]) -> Study:
    """Lower ρ as far as the certificate of a loss needs it; `refuse`: refuses below a lower ρ."""
    evidence, answering = studied.deciding(inputs), studied.scored.answering
    rho = certifiable_rho(inputs.settings.rule, evidence)
    if rho is None or answering is None or rho >= answering.threshold:
        return studied
    refusal = refuse(rho)
    if refusal is None:
        return studied
    inputs.job.report(refusing.lowered_rho(evidence, float(answering.threshold), refusal.rule.tau))
    answering = replace(refusal.answering, planned=answering.threshold)
    return replace(studied, refusal=refusal, scored=replace(studied.scored, answering=answering))


def _refusal(
    searching: Search,
    parts: Parts,
    roles: QueryRoles | None,
    settings: CalibrationSettings,
    inherited: Inherited | None,
) -> StudiedRefusal | None:
    """Decide what refuses queries as a whole: the inherited rule, requested limits, or the default; None for nothing.

    Args:
        roles: Roles of the calibration queries, None if there are too few.
    """
    kept, members = None if inherited is None else inherited.refusal, parts["calibration"].members
    if kept is not None and not kept[1].is_default:
        return keep_refusal(kept, _groups(searching, members, settings, kept[0]))
    if settings.abstention is not None:
        refusal = refuse_within_limits(settings.abstention, _groups(searching, members, settings))
        if searching.check_refusals is not None:
            searching.check_refusals(refusal.rule.score)
        return refusal
    if not settings.refuses and kept is None:
        return None
    divided = refusing.divide_queries(parts, roles, settings.rule)
    questions = searching.questions(divided)
    if questions is None:
        return None
    return refusing.refuse_by_default(searching.queries, questions, divided, roles, settings, kept and kept[1])


def _groups(
    searching: Search, members: NDArray[np.int64], settings: CalibrationSettings, kept: AnswerRule | None = None
) -> LabelledGroups:
    """Return the labelled queries with all that a score of whole queries may be made of; see `VectorSearch.groups`."""
    if searching.vectors is not None:
        return searching.vectors.groups(members, kept)
    return refusing.scored_groups(searching.queries, members, settings.seed)


def _relevance_of_scores(
    search: SearchedQueries,
    components: tuple[Components, Components],
    roles: QueryRoles | None,
    inherited: Inherited | None,
) -> tuple[AppliedRelevance, Float32] | None:
    """Fit the model on the scores of results, or apply an inherited one; None if there are too few queries, or none is.

    Args:
        roles: Roles of the calibration queries, None if there are too few.
        inherited: Parts of an earlier release; None to fit a model.

    Returns:
        The model, and the relevance of the unanswerable queries' results, (u, K) float32.
    """
    model, answerable = None, search.judged.top.scores
    estimated: AppliedRelevance | None = None
    if inherited is not None:
        model = inherited.score_relevance
    elif roles is not None and (fitted := estimate_score_relevance(search.judged, components[0], roles)):
        estimated, model = fitted, fitted.relevance
    if model is None:
        return None
    with threadpool_limits(limits=1):  # the same data give the same bits
        of_unanswerable = model.estimate(search.unanswerable.scores, components[1])
        estimated = estimated or AppliedRelevance(model, model.estimate(answerable, components[0]), None)
    return estimated, of_unanswerable
