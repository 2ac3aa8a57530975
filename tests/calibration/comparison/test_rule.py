"""What a promotion rule may say."""

import pytest

from taugate.calibration.comparison.decision import Clause, PromotionRule
from taugate.errors import InputError


def test_limits_build_rule() -> None:
    rule = PromotionRule.from_limits(max_accuracy_drop=0.02, max_kept_increase="auto")
    assert rule.clauses == (Clause("accuracy", "lower", 0.02), Clause("kept share", "higher"))
    assert str(rule) == "accuracy not lower by more than 0.02 and kept share not higher by more than 0.01"


@pytest.mark.parametrize("limit", [0, 1e-9, 1, -0.1, float("nan")])
def test_limit_out_of_bounds_names_option(limit: float) -> None:
    with pytest.raises(InputError, match=r"^--max-accuracy-drop .*: give a share of 1e-06 or more and below 1"):
        PromotionRule.from_limits(max_accuracy_drop=limit)


def test_missing_limits_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least one limit"):
        PromotionRule.from_limits()
