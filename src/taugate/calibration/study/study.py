"""Analyses labelled queries from their scores; no threshold is chosen, and nothing is written."""

from dataclasses import dataclass

from taugate.calibration.abstention.certify import CertifiedAbstention
from taugate.calibration.abstention.refusal import DefaultRefusal
from taugate.calibration.metrics.inputs import StudyInputs
from taugate.calibration.metrics.ranking import ScoredQueries
from taugate.calibration.metrics.searched import SearchedQueries
from taugate.calibration.metrics.splits import QueryRoles
from taugate.calibration.relevance.model import AppliedRelevance, EstimatedRelevance
from taugate.calibration.study.inherited import Inherited
from taugate.calibration.study.search import DescribedTexts, ScoredPart, StudiedSearch
from taugate.calibration.threshold.few_labels import FewLabels
from taugate.retrieval.policy.abstention import AnswerRule
from taugate.retrieval.release.records import AbstentionRecord, RefusalRecord


@dataclass(frozen=True)
class Study:
    """Labelled queries that were searched and scored.

    Attributes:
        search: The queries with their results.
        scored: Every labelled query with its results and decision scores.
        parts: "calibration" and, with a holdout, "heldout".
        roles: Calibration queries that fit, and those that do not, None if there are too few.
        estimated: Model of relevance with its probabilities, None without one.
        abstention: Certified rule that refuses queries as a whole; None without one.
        refusal: Default rule that refuses queries as a whole; None without one.
        few_labels: Estimates from few labels and a machine, None if labels are used alone.
        texts: What queries and documents are like; None if neither texts nor vectors are known.
    """

    search: SearchedQueries
    scored: ScoredQueries
    parts: dict[str, ScoredPart]
    roles: QueryRoles | None
    estimated: AppliedRelevance | None
    abstention: CertifiedAbstention | None
    refusal: DefaultRefusal | None
    few_labels: FewLabels | None
    texts: DescribedTexts | None

    @property
    def fitted(self) -> EstimatedRelevance | None:
        """The model of relevance if it was fitted on these queries; None if it is inherited, or without one."""
        return self.estimated if isinstance(self.estimated, EstimatedRelevance) else None

    @property
    def refusing(self) -> CertifiedAbstention | DefaultRefusal | None:
        """What refuses queries as a whole, certified or by default; None if nothing does."""
        return self.abstention or self.refusal

    @property
    def answer_rule(self) -> AnswerRule | None:
        """The rule that refuses queries as a whole; None without one."""
        return None if self.refusing is None else self.refusing.rule

    @property
    def abstention_record(self) -> AbstentionRecord | None:
        """The record of the certified rule; None without one."""
        return None if self.abstention is None else self.abstention.record

    @property
    def refusal_record(self) -> RefusalRecord | None:
        """The record of the default rule; None without one."""
        return None if self.refusal is None else self.refusal.record

    @property
    def measured(self) -> ScoredPart:
        """The held-out queries, or the calibration queries without a holdout."""
        return self.parts.get("heldout", self.parts["calibration"])


def study(inputs: StudyInputs, searching: StudiedSearch, inherited: Inherited | None = None) -> Study:
    """Search for all labelled queries, fit the model of relevance, and set what refuses queries.

    Args:
        inputs: The labelled queries and the settings.
        searching: The search.
        inherited: Parts of an earlier release to reuse, None if everything is fitted and chosen now.

    Raises:
        InputError: If the requested rule cannot be applied to the data.
    """
    job, settings, units = inputs.job, inputs.settings, inputs.units
    with job.stage("search"):
        search = searching.queries
        parts = {
            name: ScoredPart(part.members, part.resamples, searching.random_scores(part))
            for name, part in inputs.drawn.parts.items()
        }
    members = parts["calibration"].members
    refuses = settings.refusal or (inherited is not None and inherited.refusal is not None)
    with job.stage("model"):
        roles = QueryRoles.assign(members, units, settings.seed)
        modelled = searching.relevance(parts, roles, inherited, refuses=refuses)
        estimated, of_unanswerable = (None, None) if modelled is None else modelled
    with job.stage("abstention"):
        abstention = searching.abstention(members, inherited)
        refusal = searching.refusal(parts, roles, inherited)
        refusing = abstention or refusal
        answering = None if refusing is None else refusing.answering
        of_answerable = None if estimated is None else estimated.answerable
        scored = ScoredQueries(
            search.judged, search.unanswerable, of_answerable, of_unanswerable, answering, shares=search.shares
        )
    with job.stage("labels"):
        few_labels = searching.few_labels()
    with job.stage("query set"):
        texts = searching.texts(parts)
    return Study(search, scored, parts, roles, estimated, abstention, refusal, few_labels, texts)
