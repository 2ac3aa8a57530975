"""Measures the promises of an earlier release again, by labelled queries on other documents, as a calibration does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from taugate.calibration.abstention.certify import limits_again
from taugate.calibration.metrics.inputs import StudyInputs
from taugate.calibration.relevance.probes import LabelledSearch
from taugate.calibration.risk.certify import certificate
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.settings.update import requested_rule
from taugate.calibration.study.study import Study
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.calibration.threshold.policy_choice import loss_limits
from taugate.calibration.threshold.strata import QueryStrata, StrataCertifier
from taugate.errors import InputError
from taugate.retrieval.policy.policy import POLICIES
from taugate.retrieval.release.evidence import Certificate, StrataRecord, StratumRecord
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.refusal_records import ErrorLimit, RefusalRecord, RequestedLimits


@dataclass(frozen=True)
class LabelledEvidence:
    """The labelled queries of a data set, with the rules of an earlier release.

    The queries are divided as in a calibration with the same seed, so those that fitted a model certify nothing. That
    they chose τ favours the earlier documents, so they overestimate what is lost now.

    Attributes:
        studied: The queries on the present documents.
        search: Their search.
        inputs: Their division and the settings.
        silence: See `Evidence`.
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
