"""What a promotion rule came to, for people and as JSON."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from calibration.promotion.rule import PromotionRule
from calibration.report.numbers import fixed

if TYPE_CHECKING:  # what compares needs the extra `calibration`, and these words are known to every command
    from calibration.promotion.decision import Decision
    from calibration.promotion.judge import Verdict

_REASONS = {
    "first release": "no release is current, and there is nothing to compare with",
    "same content": "the same content as the current release, which stays",
}

NOT_PROMOTED = 4  # exit code: there is a release, and its rule does not hold


def report(decision: "Decision", say: Callable[[str], object]) -> int:
    """Say what each clause came to, and what to do. Returns the exit code."""
    for line in _lines(decision):
        say(line)
    if decision.holds:
        return 0
    failed = ", ".join(f'"{each.clause}" ({each.finding})' for each in decision.verdicts if each.finding != "holds")
    say(
        f"taugate: {decision.name}: not promoted, as the rule does not hold: {failed}; look at `taugate release diff "
        f"{decision.name}`, and promote it without a rule where it is wanted all the same"
    )
    return NOT_PROMOTED


def _lines(decision: "Decision") -> list[str]:
    """One line a clause, after what limits their worth."""
    found = [
        f"warning: {name} was calibrated with --holdout 0: its figures are of the queries that chose its threshold"
        for name in decision.optimistic
    ]
    if decision.reason is not None:
        found.append(f"promotion: {_REASONS[decision.reason]}")
    return [*found, *map(_line, decision.verdicts)]


def as_json(rule: PromotionRule, decision: "Decision | None") -> dict[str, Any]:
    """The object `promotion` of `taugate calibrate --json`; no decision: there was no cut to promote."""
    if decision is None:
        return {"rule": str(rule), "current": None, "promoted": False, "reason": "no cut", "clauses": []}
    return {
        "rule": str(rule),
        "current": decision.current,
        "promoted": decision.promoted,
        "reason": decision.reason,
        "clauses": [_clause(verdict) for verdict in decision.verdicts],
    }


def _clause(verdict: "Verdict") -> dict[str, Any]:
    return {
        "quantity": verdict.clause.quantity,
        "not": verdict.clause.way,
        "margin": verdict.clause.margin,
        "current": verdict.current,
        "new": verdict.new,
        "worse_by_at_most": verdict.most,
        "confidence": verdict.confidence,
        "finding": verdict.finding,
        "test": verdict.test,
        "queries": list(verdict.queries),
    }


def _line(verdict: "Verdict") -> str:
    clause, (before, after) = verdict.clause, verdict.queries
    queries = f"{after:,} queries" if verdict.test == "paired" else f"{before:,} and {after:,} queries"
    line = (
        f"promotion: {clause}: {verdict.finding}, {fixed(verdict.new)} after {fixed(verdict.current)}, "
        f"{_limit(verdict)} ({verdict.confidence:.0%} confidence; {queries}, {verdict.test})"
    )
    # With none of them worse (1 − margin)ⁿ ≤ 1 − confidence has to hold.
    fewest = math.ceil(math.log(1 - verdict.confidence) / math.log1p(-clause.margin))
    if verdict.finding == "not shown" and min(verdict.queries) < fewest:
        line += f"; this margin takes {fewest:,} queries at least"
    return line


def _limit(verdict: "Verdict") -> str:
    way = verdict.clause.way
    if verdict.most >= 0:
        return f"{way} by at most {fixed(verdict.most)}"
    return f"{'higher' if way == 'lower' else 'lower'} by at least {fixed(-verdict.most)}"
