"""Promises of a release: what each says, when it holds, and what is left of a record when it is withdrawn."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from taugate.release.evidence import Certificate, EvidenceRecord, Interval, StrataRecord, StratumRecord
from taugate.release.outcome_records import PolicyRecord
from taugate.release.promises import NOTHING, StatedRecords, ask_promises, promises
from taugate.release.refusal_records import ErrorLimit, RefusalRecord, RefusedQuestions, RequestedLimits

UNIT = EvidenceRecord(unit="query", units=200, design_effect=1.0)


def certificate(bound: float, limit: str = "accuracy", most: float = 0.1) -> Certificate:
    return Certificate(
        limit=limit, most=most, queries=200, effective_queries=200.0, loss=bound / 2, bound=bound, queries_needed=29
    )


def error(share: float, limit: float | None) -> ErrorLimit:
    return ErrorLimit(asked=limit, upper=limit or 0.3, found=share, queries=90, queries_needed=36, evidence=UNIT)


def refused(count: int) -> RefusedQuestions:
    return RefusedQuestions(queries=40, refused=count, lower=0.8)


POLICY = PolicyRecord(
    kind="similarity",
    tau=0.5,
    psi=None,
    k=5,
    method="risk-control",
    statement="high-probability",
    metric="accuracy",
    max_loss=0.1,
    max_empty=0.2,
    confidence=0.95,
    guarantee="With 95 % confidence …",
    certificates=[certificate(0.09), certificate(0.18, "empty", 0.2)],
    choice=None,
)
LIMITS = RequestedLimits(
    answered=error(0.1, 0.2),
    refused=error(0.2, None),
    confidence=0.95,
    guarantee="With 95 % confidence …",
    least_empty=0.2,
    candidates=[],
    tradeoff=[],
)
REFUSAL = RefusalRecord(
    score="best_similarity",
    rho=0.4,
    evidence={"off_topic": refused(36), "unanswerable": refused(35)},
    lost=Interval(mean=0.01, lower=0.0, upper=0.03),
)
WITHIN_LIMITS = RefusalRecord(score="best_similarity", rho=0.4, certified=True, limits=LIMITS)
STRATUM = StratumRecord(
    value="a", tau=0.6, tau_without_filter=0.5, queries=100, units=100, queries_needed=29, found=0.9
)
OTHERS = STRATUM.model_copy(update={"value": None, "tau": None})
STRATA = StrataRecord(field="part", strata=[STRATUM], others=OTHERS, other_values=["b", "c"])


@dataclass(frozen=True)
class Measurements:
    """Evidence that says what a test wants; by default nothing has changed."""

    silence: str = "nothing asks it"
    certificates: list[Certificate] | None = field(default_factory=lambda: POLICY.certificates)
    within: list[Certificate] | None = field(default_factory=lambda: POLICY.certificates)
    limits: tuple[ErrorLimit | None, ErrorLimit | None] = (LIMITS.answered, LIMITS.refused)
    counted: RefusalRecord | None = REFUSAL

    def losses(self, policy: PolicyRecord) -> list[Certificate] | None:
        return self.certificates

    def stratum(self, policy: PolicyRecord, strata: StrataRecord, stratum: StratumRecord) -> list[Certificate] | None:
        return self.within

    def errors(self, limits: RequestedLimits) -> tuple[ErrorLimit | None, ErrorLimit | None]:
        return self.limits

    def refusal(self, record: RefusalRecord) -> RefusalRecord | None:
        return self.counted


RECORDS = StatedRecords(POLICY, REFUSAL, STRATA)
LIMITED = replace(RECORDS, refusal=WITHIN_LIMITS)
OF_CUT = ["loss", "empty", "stratum part a", "stratum part b, c"]
NAMES = [*OF_CUT, "off-topic questions refused", "unanswerable queries refused", "answers refused"]
NAMES_WITHIN_LIMITS = [*OF_CUT, "answered", "refused"]
UNMEASURED: dict[str, Any] = {"certificates": None, "within": None, "limits": (None, None), "counted": None}


def withdrawn(evidence: Measurements, records: StatedRecords = RECORDS) -> tuple[StatedRecords, dict[str, str]]:
    left, names = ask_promises(records, evidence)
    return left, {record.promise: record.reason for record in names}


def test_every_promise_holds_if_nothing_changed() -> None:
    for records, names in ((RECORDS, NAMES), (LIMITED, NAMES_WITHIN_LIMITS)):
        assert [promise.name for promise in promises(records)] == names
        assert withdrawn(Measurements(), records) == (records, {})


def test_unmeasured_promises_are_withdrawn_by_name() -> None:
    left, names = withdrawn(Measurements(**UNMEASURED))
    assert names == dict.fromkeys(NAMES, "nothing asks it")
    assert [*promises(left)] == []
    assert (left.policy.certified, left.policy.guarantee) == (False, NOTHING)
    assert left.strata is not None
    assert left.refusal is not None
    assert left.refusal.lost is not None
    strata = (*left.strata.strata, left.strata.others)
    thresholds = [(stratum.tau, stratum.tau_without_filter) for stratum in strata if stratum]
    assert thresholds == [(None, None), (None, None)]
    assert (left.refusal.evidence["off_topic"].lower, left.refusal.lost.upper) == (0.0, 1.0)


def test_unmeasured_limits_are_not_certified() -> None:
    left, names = withdrawn(Measurements(**UNMEASURED), LIMITED)
    assert names == dict.fromkeys(NAMES_WITHIN_LIMITS, "nothing asks it")
    assert [*promises(left)] == []
    assert left.refusal is not None
    assert left.refusal.limits is not None
    assert (left.refusal.certified, left.refusal.limits.guarantee) == (False, NOTHING)


def test_loss_is_compared_by_its_own_limit() -> None:
    """NDCG has a limit of its own, whatever accuracy does, and so has the share of empty replies."""
    ndcg = POLICY.model_copy(update={"metric": "ndcg", "certificates": [certificate(0.09, "ndcg")]})
    changed = Measurements(certificates=[certificate(0.12, "ndcg")])
    records = StatedRecords(ndcg, None)
    assert withdrawn(changed, records)[1] == {"loss": "on 200 of them it is 6 %, and may be 12 %"}
    assert next(promises(records)).words == "NDCG is at most 10 % lower than without the threshold."
    empty = Measurements(certificates=[POLICY.certificates[0], certificate(0.25, "empty", 0.2)])
    assert [*withdrawn(empty)[1]] == ["empty"]


def test_stratum_is_withdrawn_alone() -> None:
    within = [certificate(0.05), certificate(0.21, "empty", 0.2)]
    left, names = withdrawn(
        Measurements(within=within), replace(RECORDS, strata=STRATA.model_copy(update={"others": None}))
    )
    assert [*names] == ["stratum part a"]
    assert left.policy == POLICY
    assert withdrawn(Measurements(within=[]))[1] == {}, "no document is left in it"


@pytest.mark.parametrize(
    ("answered", "refusals", "names"),
    [
        (error(0.15, 0.2), error(0.3, None), []),
        (error(0.15, 0.2).model_copy(update={"upper": 0.24}), error(0.2, None), ["answered"]),
        (error(0.15, 0.2), error(0.31, None), ["refused"]),
    ],
)
def test_certified_limit_is_certified_again(answered: ErrorLimit, refusals: ErrorLimit, names: list[str]) -> None:
    """A limit that was only found has to be no smaller than the share now."""
    assert [*withdrawn(Measurements(limits=(answered, refusals)), LIMITED)[1]] == names


def test_rho_is_asked_with_off_topic_questions() -> None:
    evidence = REFUSAL.evidence | {"off_topic": refused(31)}
    counted = REFUSAL.model_copy(update={"evidence": evidence, "lost": Interval(mean=0.04, lower=0.02, upper=0.06)})
    _, names = withdrawn(Measurements(counted=counted), replace(RECORDS, refusal=REFUSAL))
    assert [*names] == ["off-topic questions refused", "answers refused"]
    assert names["off-topic questions refused"] == "on 40 of them it is 22.5 %"
    assert ask_promises(RECORDS, Measurements(counted=counted), replace(RECORDS, refusal=counted))[0].refusal == counted


def test_uncertified_release_promises_nothing_of_the_cut() -> None:
    papers = POLICY.model_copy(update={"method": "bootstrap", "statement": None, "certificates": []})
    none = POLICY.model_copy(update={"kind": "none", "tau": None})
    for policy in (papers, none, POLICY.model_copy(update={"certified": False})):
        assert [*promises(StatedRecords(policy, None))] == []
