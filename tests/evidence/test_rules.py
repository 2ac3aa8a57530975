"""What the command line leaves open is completed as the contract says; what cannot be meant is refused by name."""

import re

import pytest

from taugate.errors import InputError
from taugate.evidence.rules import ThresholdRule

# What is asked for, and the method, policy, guarantee, loss and confidence that follow.
COMPLETED = [
    ({}, ("bootstrap", "similarity", "high-probability", 0.01, 0.95)),
    ({"metric": "ndcg"}, ("bootstrap", "similarity", "high-probability", 0.01, 0.95)),
    ({"method": "bootstrap"}, ("bootstrap", "similarity", "high-probability", 0.01, 0.95)),
    ({"policy": "similarity"}, ("bootstrap", "similarity", "high-probability", 0.01, 0.95)),
    ({"method": "bootstrap", "policy": "similarity"}, ("bootstrap", "similarity", "high-probability", 0.01, 0.95)),
    ({"max_loss": [0.05]}, ("risk-control", "auto", "high-probability", 0.05, 0.95)),
    ({"max_loss": [0.05], "metric": "ndcg"}, ("risk-control", "auto", "high-probability", 0.05, 0.95)),
    ({"max_loss": [0.05], "policy": "similarity"}, ("risk-control", "similarity", "high-probability", 0.05, 0.95)),
    ({"max_loss": [0.05], "method": "non-inferiority"}, ("non-inferiority", "auto", "high-probability", 0.05, 0.95)),
    ({"max_loss": [0.05], "guarantee": "expected-loss"}, ("risk-control", "auto", "expected-loss", 0.05, 0.95)),
    ({"guarantee": "expected-loss"}, ("risk-control", "auto", "expected-loss", 0.01, 0.95)),
    ({"confidence": 0.9}, ("risk-control", "auto", "high-probability", 0.01, 0.9)),
    ({"confidence": 0.5}, ("risk-control", "auto", "high-probability", 0.01, 0.5)),
    ({"max_empty": 0.2}, ("risk-control", "auto", "high-probability", 0.01, 0.95)),
    ({"policy": "relative"}, ("risk-control", "relative", "high-probability", 0.01, 0.95)),
    ({"policy": "probability"}, ("risk-control", "probability", "high-probability", 0.01, 0.95)),
    ({"policy": "auto"}, ("risk-control", "auto", "high-probability", 0.01, 0.95)),
    ({"method": "risk-control"}, ("risk-control", "auto", "high-probability", 0.01, 0.95)),
    (
        {"method": "risk-control", "policy": "similarity"},
        ("risk-control", "similarity", "high-probability", 0.01, 0.95),
    ),
    ({"method": "non-inferiority"}, ("non-inferiority", "auto", "high-probability", 0.01, 0.95)),
    ({"method": "non-inferiority", "confidence": 0.8}, ("non-inferiority", "auto", "high-probability", 0.01, 0.8)),
]


def test_given_threshold_is_kept() -> None:
    rule = ThresholdRule.from_options(policy="relative", tau=0.7)
    assert (rule.method, rule.policy, rule.tau, rule.statement) == ("fixed", "relative", 0.7, None)
    assert rule == ThresholdRule.from_options(method="fixed", policy="relative", tau=0.7)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tau": 0.3}, "--tau 0.3: give both --tau and --policy"),
        ({"tau": 0.3, "policy": "auto"}, "--tau 0.3: give both"),
        ({"method": "fixed", "policy": "similarity"}, "--method fixed: give both"),
        ({"tau": 0.3, "policy": "relative", "method": "bootstrap"}, "--tau 0.3: --method bootstrap chooses"),
        ({"tau": 0.3, "policy": "relative", "max_loss": [0.02]}, "leave out --max-loss"),
        ({"tau": 1e39, "policy": "relative"}, "too large for float32"),
        ({"tau": float("nan"), "policy": "relative"}, "--tau nan: give the threshold as a number"),
    ],
    ids=str,
)
def test_given_threshold_conflicts_are_rejected(asked: dict, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        ThresholdRule.from_options(**asked)


def id_of(value: object) -> str | None:
    return " ".join(f"{name}={each}" for name, each in value.items()) or "nothing" if isinstance(value, dict) else None


@pytest.mark.parametrize(("asked", "completed"), COMPLETED, ids=id_of)
def test_missing_options_get_defaults(asked: dict, completed: tuple) -> None:
    rule = ThresholdRule.from_options(**asked)
    assert (rule.method, rule.policy, rule.guarantee, rule.max_loss, rule.confidence) == completed
    assert rule.metric == asked.get("metric", "accuracy")
    assert rule.max_empty == asked.get("max_empty")


REFUSED = [
    *(({"max_loss": [value]}, f"--max-loss {value}") for value in (-0.1, 0.0, 1.0, 1.5, 5.0)),
    *(({"max_loss": [float(value)]}, f"--max-loss {value}") for value in ("nan", "inf", "-inf")),
    *(({"max_empty": value}, f"--max-empty {value}") for value in (-0.1, 0.0, 1.0, 2.0, float("nan"))),
    *(({"confidence": value}, f"--confidence {value}") for value in (1.0, 0.3, 0.0, -0.95, 1.5, 95.0)),
    *(({"confidence": float(value)}, f"--confidence {value}") for value in ("nan", "inf")),
    ({"method": "non-inferiority", "max_loss": [-1.0]}, "--max-loss -1.0"),
]


@pytest.mark.parametrize(("asked", "named"), REFUSED, ids=id_of)
def test_invalid_value_names_remedy(asked: dict, named: str) -> None:
    with pytest.raises(InputError) as refusal:
        ThresholdRule.from_options(**asked)
    said, _, remedy = str(refusal.value).partition(": ")
    assert said == named
    assert "give" in remedy


def test_several_losses_share_confidence() -> None:
    rule = ThresholdRule.from_options(max_loss=[0.02, 0.01, 0.05])
    assert (rule.max_loss, rule.further_losses, rule.method, rule.policy) == (
        0.02,
        (0.01, 0.05),
        "risk-control",
        "auto",
    )
    each = list(rule.split_by_loss())
    assert [one.max_loss for one in each] == [0.02, 0.01, 0.05]
    assert {one.further_losses for one in each} == {()}
    assert [one.confidence for one in each] == pytest.approx([1 - 0.05 / 3] * 3)
    expected = ThresholdRule.from_options(max_loss=[0.02, 0.01], guarantee="expected-loss")
    assert {one.confidence for one in expected.split_by_loss()} == {0.95}, "a mean is no statement that errs"
    assert list(ThresholdRule.from_options(max_loss=[0.02]).split_by_loss()) == [
        ThresholdRule.from_options(max_loss=[0.02])
    ]


@pytest.mark.parametrize("losses", [[0.02, 0.02], [0.01, 0.05, 0.01]])
def test_repeated_loss_is_rejected(losses: list[float]) -> None:
    with pytest.raises(InputError, match=r"^--max-loss 0\.0.*: the same loss is given twice"):
        ThresholdRule.from_options(max_loss=losses)


CONTRADICTIONS = [
    ({"method": "bootstrap", "max_loss": [0.05]}, "--max-loss"),
    ({"method": "bootstrap", "confidence": 0.9}, "--confidence"),
    ({"method": "bootstrap", "guarantee": "expected-loss"}, "--guarantee"),
    ({"method": "bootstrap", "max_empty": 0.1}, "--max-empty"),
    ({"method": "bootstrap", "policy": "relative"}, "--policy relative"),
    ({"method": "bootstrap", "policy": "probability"}, "--policy probability"),
    ({"method": "bootstrap", "policy": "auto"}, "--policy auto"),
    ({"method": "non-inferiority", "guarantee": "expected-loss"}, "--guarantee"),
    ({"method": "non-inferiority", "guarantee": "high-probability"}, "--guarantee"),
]


@pytest.mark.parametrize(("asked", "named"), CONTRADICTIONS, ids=id_of)
def test_contradicting_options_are_rejected(asked: dict, named: str) -> None:
    with pytest.raises(InputError, match=f"^{named}: "):
        ThresholdRule.from_options(**asked)
