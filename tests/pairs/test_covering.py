"""The covering array holds every allowed pair, and every option that changes a release or a reply is in it."""

import pytest

from taugate.cli.calibrate import command
from taugate.service.api.schemas import SearchRequest
from taugate.service.settings.settings import VARIABLES
from tests.pairs.calibrated import RECORDED
from tests.pairs.covering import all_pairs, alone, covering_rows, pairs_of
from tests.pairs.factors import ANY, BY_NAME, CONFLICTS, FACTORS, UNCHANGING, Kind, Row
from tests.pairs.settings import option_refusal, refusal

# Those that exclude one another or need one another.
SOME = [factor for factor in FACTORS if factor.name in {
    "documents", "unanswerable", "encoder", "policy", "method", "tau", "refuse", "max_loss", "strata", "count_at_most",
    "max_answered", "drawn", "precision", "rerank", "rerank_candidates",
}]  # fmt: skip


def refused(row: Row) -> bool:
    return refusal(row) is not None


def test_rows_cover_every_allowed_pair() -> None:
    allowed = {pair for pair in all_pairs(SOME) if (row := alone(pair)) is not None and not refused(row)}
    rows = covering_rows(refused, factors=SOME)
    assert len(allowed) > 500
    assert allowed <= set().union(*map(pairs_of, rows))
    assert not any(map(refused, rows))
    assert len(rows) < 60
    assert rows == covering_rows(refused, factors=SOME), "the same every time"


def test_further_rows_cover_remaining_pairs() -> None:
    rows = covering_rows(refused, factors=SOME)
    done = set().union(*map(pairs_of, rows[:-3]))
    more = covering_rows(refused, done, SOME)
    assert 0 < len(more) < 10
    assert {pair for row in rows for pair in pairs_of(row)} <= done.union(*map(pairs_of, more))


def test_refused_options_name_both() -> None:
    """In the message, or by an option that one of the two cannot be without."""
    for pair in all_pairs():
        row, given = alone(pair), dict(pair)
        message = None if row is None else option_refusal(row)
        if row is None or message is None:
            continue
        for name in given:
            needed = [name, *(BY_NAME[name].needs or {})]
            assert any(f"--{one.replace('_', '-')}" in message for one in needed), (given, message)


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        (Kind.OPTION, {str(param.name) for param in command.params} - {"help", "help_all"}),
        (
            Kind.SETTING,
            {one.names[0] for main in VARIABLES.values() for one in (main, *main.options.values())} - {"releases"},
        ),
        (Kind.REQUEST, {*SearchRequest.model_fields}),
    ],
)
def test_every_option_is_in_the_array_or_named(kind: Kind, declared: set[str]) -> None:
    aliases = {"precision": "encoder_precision", "k": "k of the request"} if kind is not Kind.OPTION else {}
    missing = {name for name in declared if aliases.get(name, name) not in BY_NAME and name not in UNCHANGING}
    assert not missing, "add them to FACTORS of tests/pairs/factors.py, or to UNCHANGING with the reason"


def test_every_option_has_a_record() -> None:
    assert {*RECORDED} == {factor.name for factor in FACTORS if factor.kind is Kind.OPTION}
    values = {(factor.name, value) for factor in FACTORS for value in (*factor.values, ANY)}
    assert all(pair in values for conflict in CONFLICTS for pair in conflict.items())
