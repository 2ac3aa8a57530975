"""Rows of values that cover every pair of values that is allowed together."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations

from allpairspy import AllPairs

from tests.pairs.factors import BY_NAME, DEFAULTS, FACTORS, Factor, Row, Value

Pair = frozenset[tuple[str, Value]]
Refused = Callable[[Row], bool]


def pairs_of(row: Mapping[str, Value]) -> set[Pair]:
    """Return the pairs of values in a row."""
    return {frozenset(pair) for pair in combinations(row.items(), 2)}


def all_pairs(factors: Sequence[Factor] = FACTORS) -> Iterator[Pair]:
    """Yield every pair of values of two factors."""
    for first, second in combinations(factors, 2):
        for value in first.values:
            yield from (frozenset({(first.name, value), (second.name, other)}) for other in second.values)


def alone(pair: Pair) -> Row | None:
    """Return the row of the pair, what its values need, and defaults; None if one needs another value than given."""
    given = dict(pair)
    needed: Row = {}
    for name, value in given.items():
        needed |= BY_NAME[name].needed(value)
    needed |= {name: value for other in [*needed] for name, value in (BY_NAME[other].needs or {}).items()}
    if any(given.get(name, value) != value and given[name] is None for name, value in needed.items()):
        return None
    return DEFAULTS | needed | given


def covering_rows(refused: Refused, done: Collection[Pair] = (), factors: Sequence[Factor] = FACTORS) -> list[Row]:
    """Return rows that cover all pairs of values of the factors that are not refused and not done already.

    The greedy algorithm of allpairspy leaves out pairs whose rows it cannot complete; each gets a row that has defaults
    for everything else.
    """
    allowed = {pair for pair in all_pairs(factors) if (row := alone(pair)) is not None and not refused(row)}
    missing = allowed - {*done}
    names = [factor.name for factor in factors]

    def acceptable(values: list[Value]) -> bool:
        return not refused(DEFAULTS | dict(zip(names, values, strict=False)))

    rows: list[Row] = []
    if not done:
        for values in AllPairs([list(factor.values) for factor in factors], filter_func=acceptable):
            rows.append(DEFAULTS | dict(zip(names, values, strict=True)))
            missing -= pairs_of(rows[-1])
    while missing:
        row = _row_with(missing, refused)
        rows.append(row)
        missing -= pairs_of(row)
    return rows


def _row_with(missing: Collection[Pair], refused: Refused) -> Row:
    """Return a row with a missing pair and as many further ones as fit, each tried once."""
    ordered = sorted(missing, key=lambda pair: sorted((name, value or "") for name, value in pair))
    row = alone(ordered[0])
    assert row is not None
    fixed = {name for name, value in row.items() if value != DEFAULTS[name]} | {name for name, _ in ordered[0]}
    for pair in ordered[1:]:
        more = alone(pair)
        values = {} if more is None else {n: v for n, v in more.items() if v != DEFAULTS[n]} | dict(pair)
        if any(name in fixed and row[name] != value for name, value in values.items()):
            continue
        tried = row | values
        if not refused(tried):
            row, fixed = tried, fixed | {*values}
    return row
