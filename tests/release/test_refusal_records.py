"""The three records of schema 2 for what refuses queries become one, with the same thresholds and counts."""

from typing import Any

import pytest
from pydantic import ValidationError

from taugate.release.refusal_records import RefusalRecord, refusal_of_schema_2

UNIT = {"unit": "document", "units": 30, "design_effect": 1.5}
LIMIT = {"asked": 0.2, "upper": 0.2, "found": 0.1, "queries": 90, "queries_needed": 36, "evidence": UNIT}
OF_LIMITS = {
    "score": "model",
    "tau": 0.25,
    "certified": True,
    "answered_unanswerable": LIMIT,
    "empty_answerable": LIMIT | {"asked": None, "queries_needed": None, "upper": 0.3},
    "confidence": 0.95,
    "guarantee": "With 95 % confidence …",
    "least_empty": None,
    "candidates": [],
    "tradeoff": [{"empty": 0.1, "answered": 0.4}],
}
REFUSED = {"queries": 20, "refused": 19, "lower": 0.784, "evidence": None}
BY_DEFAULT = {
    "score": "best_similarity",
    "rho": 0.375,
    "provisional": True,
    "off_topic": REFUSED,
    "request": REFUSED | {"uncertified": 20},
    "near_miss": None,
    "unanswerable": None,
    "lost": {"mean": 0.01, "lower": 0.0, "upper": 0.04},
    "left_out": 3,
}
NO_ANSWER = {"asked": "unanswerable", "queries": 40, "answered": 0.35, "upper": 0.5, "evidence": UNIT}


def converted(**records: Any) -> RefusalRecord:
    return RefusalRecord.model_validate(refusal_of_schema_2(records), strict=True)


def test_default_refusal_keeps_threshold_and_counts() -> None:
    record = converted(abstention=None, refusal=BY_DEFAULT, no_answer=None)
    assert (record.threshold, record.is_default, record.certified) == (("best_similarity", 0.375), True, False)
    assert record.lost is not None
    assert (record.lost.upper, record.left_out, record.provisional) == (0.04, 3, True)
    assert [*record.evidence] == ["off_topic", "request"]
    assert [counted.uncertified for counted in record.evidence.values()] == [None, 20]


def test_certified_refusal_keeps_limits_and_share() -> None:
    record = converted(abstention=OF_LIMITS, no_answer=NO_ANSWER)
    assert (record.threshold, record.is_default, record.certified) == (("model", 0.25), False, True)
    assert record.limits is not None
    assert (record.limits.answered.promised, record.limits.refused.promised) == (0.2, 0.3)
    assert record.evidence["unanswerable"].answered == 0.35
    assert record.evidence["unanswerable"].lower == 0.5


def test_share_without_rule_refuses_nothing() -> None:
    record = converted(abstention=None, no_answer=NO_ANSWER | {"asked": "off_topic"})
    assert (record.threshold, record.is_default, record.limits) == (None, False, None)
    assert record.evidence["off_topic"].refused == 26
    assert refusal_of_schema_2({"abstention": None, "refusal": None, "no_answer": None}) is None


@pytest.mark.parametrize("wrong", [{"answered": "much"}, {"answered": 2.0}, {"queries": 0}, {"asked": "nothing"}])
def test_invalid_share_is_a_validation_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        refusal_of_schema_2({"no_answer": NO_ANSWER | wrong})


def test_score_without_rho_is_invalid() -> None:
    for given in ({"score": "model"}, {"rho": 0.2}, {"score": "model", "rho": 1e300}):
        with pytest.raises(ValidationError, match="rho"):
            RefusalRecord.model_validate(given)
