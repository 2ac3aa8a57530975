"""Chooses the threshold of a study, measures what it keeps and loses, and checks promises of an earlier release."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from taugate.calibration.metrics.inputs import StudyInputs
from taugate.calibration.relevance import LabelledSearch
from taugate.calibration.settings import requested_rule
from taugate.calibration.study.study import Inherited, ScoredPart, Study
from taugate.calibration.threshold.shortage import with_shortage
from taugate.calibration.threshold.strata import QueryStrata, StrataCertifier
from taugate.errors import InputError
from taugate.evidence.abstention.certify import limits_again
from taugate.evidence.abstention.refusal import refused_off_topic, refused_unanswerable
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.measure import PartName, measure
from taugate.evidence.relevance.record import kept_relevance_record, relevance_record
from taugate.evidence.risk import words
from taugate.evidence.risk.certify import certificate
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import alternatives, decide_policy, with_unrestricted
from taugate.evidence.threshold.policy_choice import CalibrationQueries, certifiable_policy, loss_limits
from taugate.policy.policy import POLICIES
from taugate.release.evidence import Alternative, Certificate, RelevanceRecord, StrataRecord, StratumRecord
from taugate.release.names import METHODS
from taugate.release.outcome_records import LabelsRecord, MetricsRecord, PolicyRecord
from taugate.release.refusal_records import ErrorLimit, QuestionKind, RefusalRecord, RefusedQuestions, RequestedLimits


@dataclass(frozen=True)
class Decided:
    """The policy in force, and what it keeps and loses. Fields are as in the manifest."""

    policy: PolicyRecord
    strata: StrataRecord | None
    metrics: dict[PartName, MetricsRecord]
    alternatives: list[Alternative]
    relevance: RelevanceRecord | None
    refusal: RefusalRecord | None
    labels: LabelsRecord | None


def decide(study: Study, inputs: StudyInputs, inherited: Inherited | None = None) -> Decided:
    """Choose the policy in force, and measure it and its alternatives.

    Args:
        inherited: Parts of an earlier release to reuse, None if everything is chosen now.

    Raises:
        InputError: If the requested rule cannot be applied to the data.
    """
    settings, few_labels = inputs.settings, study.few_labels
    with inputs.job.stage("threshold"):
        queries = study.deciding(inputs)
        policy = with_shortage(_choose(study, inputs, queries, inherited), inputs.dataset, queries, settings)
        policy, strata = _stratified(policy, study, inputs, queries)
        if inherited is None:
            measured = study.scored.take(study.measured.members)
            policy = with_unrestricted(_counting_refusals(policy, study), queries, measured)
        metrics: dict[PartName, MetricsRecord] = {
            name: _measure(part, study, policy, inputs) for name, part in study.parts.items()
        }
        if few_labels is not None:
            metrics = {name: few_labels.metrics(measured, policy) for name, measured in metrics.items()}
        other_rules = _alternatives(study, inputs, queries)
    return Decided(
        policy=policy,
        strata=strata,
        metrics=metrics,
        alternatives=other_rules,
        relevance=_reliability(study, inputs, inherited),
        refusal=_refusal(study, policy),
        labels=None if few_labels is None else few_labels.record(policy, settings.rule),
    )


def _choose(
    study: Study, inputs: StudyInputs, queries: CalibrationQueries, inherited: Inherited | None
) -> PolicyRecord:
    """Return the inherited policy, or the rule's policy; few labels limit a loss by a separate method."""
    if inherited and inherited.policy:
        return inherited.policy
    if study.few_labels and METHODS[inputs.settings.rule.method].few_labels:
        return study.few_labels.policy(inputs.settings.rule, inputs.settings.k)
    return decide_policy(inputs.settings.rule, queries)


def _stratified(
    policy: PolicyRecord, study: Study, inputs: StudyInputs, queries: CalibrationQueries
) -> tuple[PolicyRecord, StrataRecord | None]:
    """Certify the policy in each stratum, if strata are requested and there is a cut.

    Returns:
        The policy with a τ that holds in each stratum, and the record of the strata.
    """
    rule, search = inputs.settings.rule, study.corpus
    if rule.strata is None or policy.tau is None or search is None:
        return policy, None
    candidate = certifiable_policy(rule, policy.kind, queries)
    limits = next(candidate.rule.split_by_loss())
    certifier = StrataCertifier(
        search.dataset, search.encoded.answerable, search.index, queries, candidate.queries, policy.kind, limits
    )
    strata = certifier.certify(QueryStrata.group(search.dataset, rule.strata))
    return certifier.lowered(policy, strata), strata


def _counting_refusals(policy: PolicyRecord, study: Study) -> PolicyRecord:
    """Say in the guarantee whether it counts refused queries as lost."""
    if study.refusal is None or not policy.certificates or policy.tau is None:
        return policy
    cut_alone = study.refusal.record.comes_on_top(policy.statement)
    counted = words.WITHOUT_REFUSALS if cut_alone else words.WITH_REFUSALS
    return policy.model_copy(update={"guarantee": f"{policy.guarantee} {counted}"})


def _alternatives(study: Study, inputs: StudyInputs, queries: CalibrationQueries) -> list[Alternative]:
    """Measure the rules that are not in force, on the queries that influenced the rule least."""
    # An inherited model may have seen the queries that would certify, so the alternatives do not use it.
    usable = study.scored if study.fitted else replace(study.scored, relevance=None, unanswerable_relevance=None)
    # Queries that chose ρ may certify an alternative, so alternatives do not refuse any.
    queries = replace(queries, scored=replace(usable, answering=None))
    rules = alternatives(inputs.settings.rule, queries, study.scored.take(_unseen_by_fit(study)))
    if study.few_labels is None:
        return rules
    # A certificate counts every judged query once, which is wrong for queries sampled with weights.
    return [rule for rule in rules if not METHODS[rule.method].certifies]


def _unseen_by_fit(study: Study) -> NDArray[np.int64]:
    """Return the held-out queries, else the calibration queries that did not fit the model."""
    if "heldout" in study.parts or study.roles is None:
        return study.measured.members
    return study.roles.not_fitting


def _measure(part: ScoredPart, study: Study, policy: PolicyRecord, inputs: StudyInputs) -> MetricsRecord:
    queries, percentile = study.scored.take(part.members), inputs.settings.overlap_percentile
    return measure(queries, part.random_scores, part.resamples, policy.kind, policy.threshold, percentile)


def _reliability(study: Study, inputs: StudyInputs, inherited: Inherited | None) -> RelevanceRecord | None:
    """Measure how reliable the model of relevance is; None without one, or without its record in the release."""
    judged, units, seed = study.search.judged, inputs.units, inputs.settings.seed
    heldout = study.parts["heldout"].members if "heldout" in study.parts else None
    if study.fitted and study.roles:
        return relevance_record(study.fitted, study.roles, judged, units, heldout, seed)
    if study.estimated and inherited and inherited.relevance_record:
        part: Literal["calibration", "heldout"] = "calibration" if heldout is None else "heldout"
        unseen = (part, _unseen_by_fit(study))
        return kept_relevance_record(inherited.relevance_record, study.estimated, judged, units, unseen, seed)
    return None


def _refusal(study: Study, policy: PolicyRecord) -> RefusalRecord | None:
    """Record what refuses queries, with the queries without an answer that get no result; None if neither is known.

    The default ρ has counted them. Without it, unanswerable queries are counted, or else off-topic questions.
    """
    scored, search, refusal = study.scored, study.search, study.refusal
    if refusal is not None and refusal.record.is_default:
        return refusal.record
    evidence: dict[QuestionKind, RefusedQuestions] = {}
    if len(scored.unanswerable):
        units = SamplingUnits.from_clusters(search.cluster_ids[len(scored.judged) :])
        evidence = {"unanswerable": refused_unanswerable(scored, policy, units, refusal)}
    elif study.corpus is not None and study.corpus.dataset.off_topic:  # else there is no encoder for them
        estimated = study.corpus.off_topic_relevance(study.estimated)
        evidence = {"off_topic": refused_off_topic(study.corpus.off_topic, estimated, policy)}
    if refusal is not None:
        return refusal.record.model_copy(update={"evidence": evidence})
    return RefusalRecord(evidence=evidence) if evidence else None


@dataclass(frozen=True)
class LabelledEvidence:
    """The labelled queries of a data set, with the rules of an earlier release.

    The queries are divided as in a calibration with the same seed, so those that fitted a model certify nothing. That
    they chose τ favours the earlier documents, so they overestimate what is lost now.
    """

    studied: Study
    search: LabelledSearch
    inputs: StudyInputs
    silence: str = "no labelled query of the data set asks it"

    def losses(self, policy: PolicyRecord) -> Sequence[Certificate] | None:
        """See `Evidence`; few labels count by their weights."""
        rule = _rule(policy)
        if policy.statement == "labels":
            few_labels = self.studied.few_labels
            return None if few_labels is None else [few_labels.certificate(rule, policy.tau)]
        queries = self._queries(policy)
        limits = loss_limits(rule, queries, queries.certifying(model=POLICIES[policy.kind].needs_model), policy.kind)
        return [certificate(limit, policy.tau, rule) for limit in limits]

    def stratum(
        self, policy: PolicyRecord, strata: StrataRecord, stratum: StratumRecord
    ) -> Sequence[Certificate] | None:
        """See `Evidence`."""
        search, queries = self.search, self._queries(policy)
        try:
            now = QueryStrata.group(search.dataset, strata.field)
        except InputError:  # no document, or none that is relevant, has the field any more
            return None
        certifier = StrataCertifier(
            search.dataset,
            search.encoded.answerable,
            search.index,
            queries,
            queries.certifying(model=POLICIES[policy.kind].needs_model),
            policy.kind,
            _rule(policy),
        )
        return certifier.certificates(now, strata, stratum, policy.tau)

    def errors(self, limits: RequestedLimits) -> Sequence[ErrorLimit | None]:
        """See `Evidence`."""
        kept = self.studied.refusal
        return (None, None) if kept is None else limits_again(kept, self.studied.search.cluster_ids)

    def refusal(self, record: RefusalRecord) -> RefusalRecord | None:
        """See `Evidence`; the study has counted with the ρ that is kept."""
        return None if self.studied.refusal is None else self.studied.refusal.record

    def _queries(self, policy: PolicyRecord) -> CalibrationQueries:
        """Return the queries as they certified the policy."""
        studied, units, scored = self.studied, self.inputs.units, self.studied.scored
        part, answering = studied.parts["calibration"], scored.answering
        if answering is not None and answering.certified:
            # ρ depended on the fitting queries, unless some were held out.
            fitted = studied.roles is not None and "heldout" not in studied.parts
            scored = replace(scored, answering=replace(answering, fitted=fitted))
        if units.unit == "document":
            units = replace(units, cap=policy.certificates[0].count_at_most)
        rows, seed = part.resamples.rows, self.inputs.settings.seed
        return CalibrationQueries(scored, part.members, rows, studied.roles, studied.estimated, units, seed)


def _rule(policy: PolicyRecord) -> ThresholdRule:
    """Return the rule that certified a policy, with the part of the error that `auto` and several losses left it."""
    candidates = () if policy.choice is None else policy.choice.candidates
    shares = (candidate.confidence for candidate in candidates if candidate.kind == policy.kind)
    confidence = next((share for share in shares if share is not None), policy.confidence)
    rule = replace(requested_rule(policy), confidence=confidence)
    return next(rule.split_by_loss())
