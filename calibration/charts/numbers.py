"""Write numbers and rules one way in a terminal and on every page, never −0; load the templates of the pages."""

from typing import TYPE_CHECKING

from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.release.evidence import Interval, Method, Statement

if TYPE_CHECKING:  # comes with the extra `calibration`; the other commands write numbers without it
    from jinja2 import Template

NOTHING = "–"


def fixed(value: float | None, digits: int = 4) -> str:
    """Write `value` with so many `digits` after the point; a dash for None."""
    return NOTHING if value is None else f"{value:z.{digits}f}"


def signed(value: float, digits: int = 4) -> str:
    """Write a difference with its sign, unless it rounds to nothing; value: of it; digits: after the point."""
    text = f"{value:+z.{digits}f}"
    return text.removeprefix("+") if float(text) == 0 else text


def percent(value: float | None, digits: int = 1) -> str:
    """Write a share in 0…1 as percent, with a space that does not break; value: of it; digits: after the point."""
    return NOTHING if value is None else f"{100 * value:z.{digits}f}\u00a0%"


def count(value: int | None) -> str:
    """Write a whole number, `value`, with commas; a dash for None."""
    return NOTHING if value is None else f"{value:,}"


def brief(value: int) -> str:
    """Write a whole number, `value`, for a narrow place: thousands above 9,999."""
    return count(value) if value < 10_000 else f"{value / 1000:.0f}k"


def spread(value: Interval, digits: int = 4) -> str:
    """Write the 95 % interval around a mean; value: the interval; digits: after the point."""
    return f"({fixed(value.lower, digits)}–{fixed(value.upper, digits)})"


KEEPS: dict[PolicyKind, str] = {
    "similarity": "keeps a result whose cosine similarity with the query is at least τ",
    "relative": "keeps a result whose similarity is at least the share τ of the best one found for the query",
    "probability": "keeps a result that is relevant with an estimated probability of at least τ",
    "none": "keeps every result: there is no threshold",
}
THRESHOLD_OF: dict[PolicyKind, str] = {
    "similarity": "least similarity",
    "relative": "least share of the best similarity",
    "probability": "least probability of relevance",
    "none": "least similarity",
}
METRICS = {
    "accuracy": "accuracy@{k}",
    "accuracy_at_tau": "accuracy@{k} at τ",
    "ndcg": "NDCG@{k}",
    "ndcg_at_tau": "NDCG@{k} at τ",
    "coe": "COE",
    "roe": "ROE",
}
PARTS = {"calibration": "calibration queries", "heldout": "held-out queries"}


def rule_name(method: Method, statement: Statement | None) -> str:
    """Name the rule that gives a threshold; method, statement: of its policy."""
    if method == "bootstrap":
        return "The papers' rule (bootstrap)"
    if method == "non-inferiority":
        return "Paired non-inferiority"
    return "Risk control, " + ("on average" if statement == "expected-loss" else "with high probability")


def template(package: str, name: str) -> "Template":
    """Load a page's template, with the macros, the style sheet and the number filters that all pages share.

    Everything that is filled in is escaped: queries and documents are other people's text.

    package: dotted name of the package that holds the template; name: of its file there.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("taugate.calibration.charts", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {each.__name__: each for each in (fixed, percent, count, signed, spread)}
    return environment.get_template(name)
