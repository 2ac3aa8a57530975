"""What a promotion rule may say, and that anything else is refused with the word that is wrong."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.calibration.comparison.rule import QUANTITIES, Clause, PromotionRule
from taugate.errors import InputError


def parsed(text: str) -> list[tuple[str, str, float | None]]:
    rule = PromotionRule.parse(text, "--promote-if")
    return [(clause.quantity, clause.way, clause.margin) for clause in rule.clauses]


def test_documented_rule_is_parsed() -> None:
    assert parsed("accuracy not lower and kept share not higher") == [
        ("accuracy", "lower", None),
        ("kept share", "higher", None),
    ]
    assert parsed("Accuracy NOT  Lower by more than 0.02 AND ndcg@k not higher by MORE than 1e-1") == [
        ("accuracy", "lower", 0.02),
        ("NDCG@K", "higher", 0.1),
    ]


@pytest.mark.parametrize(
    ("row", "quantity"),
    [
        ("accuracy@K at τ", "accuracy"),
        ("NDCG@K at τ", "NDCG"),
        ("results kept", "kept share"),
        ("accuracy@K", "accuracy@K"),
        ("unanswerable empty", "unanswerable empty"),
    ],
)
def test_diff_row_names_are_accepted(row: str, quantity: str) -> None:
    assert parsed(f"{row} not lower") == [(quantity, "lower", None)]


def test_limits_build_the_same_rule_as_sentence() -> None:
    rule = PromotionRule.from_limits(max_accuracy_drop=0.02, max_kept_increase="auto")
    assert rule == PromotionRule.parse("accuracy not lower by more than 0.02 and kept share not higher", "--promote-if")
    only = PromotionRule.from_limits(max_kept_increase=0.05)
    assert str(only) == "kept share not higher by more than 0.05"


@pytest.mark.parametrize("limit", [0, 1e-9, 1, -0.1, float("nan")])
def test_limit_out_of_bounds_names_option(limit: float) -> None:
    with pytest.raises(InputError, match=r"^--max-accuracy-drop .*: give a share of 1e-06 or more and below 1"):
        PromotionRule.from_limits(max_accuracy_drop=limit)


def test_missing_limits_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least one limit"):
        PromotionRule.from_limits()


CLAUSES = st.builds(
    Clause,
    st.sampled_from(list(QUANTITIES)),
    st.sampled_from(["lower", "higher"]),
    st.floats(1e-4, 0.9).map(lambda margin: float(f"{margin:g}")),
)


@given(st.lists(CLAUSES, min_size=1, max_size=5), st.sampled_from([str.upper, str.lower, str.title]))
def test_recorded_rule_parses_to_itself(clauses: list[Clause], case: Callable[[str], str]) -> None:
    """Whatever the case, with more white space than there need be."""
    rule = PromotionRule(tuple(clauses))
    assert PromotionRule.parse(str(rule), "--if") == rule
    assert PromotionRule.parse(f"  {case(str(rule))} ".replace(" ", " \t "), "--if") == rule


REFUSED = [
    ("", "a clause is missing"),
    ("and", "a clause is missing"),
    ("accuracy not lower and", "a clause is missing"),
    ("accuracy not lower and and NDCG not lower", "a clause is missing"),
    ("accuracy", '"accuracy" is not a clause; give one such as "accuracy not lower"'),
    ("not lower", '"not lower" is not a clause'),
    ("accuracy higher", '"accuracy higher" is not a clause'),
    ("acuracy not lower", '"acuracy" is not a quantity; there are accuracy, NDCG, kept share, answerable empty'),
    ("AUROC not lower", '"AUROC" is not a quantity'),
    ("accuracy not worse", '"worse" after "not"; give "not lower" or "not higher"'),
    ("accuracy not lower, NDCG not lower", '"lower," after "not"'),
    ("accuracy not lower or NDCG not lower", '"or NDCG not lower" after the clause; give "by more than 0.01"'),
    ("accuracy not lower by 0.01", '"by 0.01" after the clause'),
    ("accuracy not lower by more than", '"by more than" after the clause'),
    ("accuracy not lower by more than 1%", '"1%" is not a margin; give 1e-06 or more and below 1'),
    ("accuracy not lower by more than 0", '"0" is not a margin'),
    ("accuracy not lower by more than 1e-9", '"1e-9" is not a margin'),
    ("accuracy not lower by more than 1", '"1" is not a margin'),
    ("accuracy not lower by more than -0.1", '"-0.1" is not a margin'),
    ("accuracy not lower by more than nan", '"nan" is not a margin'),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_invalid_rule_names_wrong_word(text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        PromotionRule.parse(text, "--promote-if")
    assert str(refused.value).startswith(f'--promote-if "{text}": ')
    assert says in str(refused.value)


WORDS = ["accuracy", "kept share", "not", "lower", "higher", "and", "by", "more", "than", "0.1"]


@given(st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_text_parses_or_explains_why(text: str) -> None:
    try:
        rule = PromotionRule.parse(text, "--if")
    except InputError as error:
        assert str(error).isprintable()
        assert str(error).startswith("--if ")
    else:
        assert PromotionRule.parse(str(rule), "--if") == rule
