"""Formats of numbers that are the same in the terminal and on every page.

Not with the charts: these need markupsafe, and the commands that promote and compare releases do without it.
"""

from taugate.policy.names import NO_CUT
from taugate.release.evidence import Estimate, Interval, Shift
from taugate.release.manifest import ReleaseManifest

NOTHING = "–"


def fixed(value: float | None, digits: int = 4) -> str:
    """Format `value` with `digits` after the point; a dash for None, and −∞ for the τ that drops nothing."""
    return NOTHING if value is None else "−∞" if value == NO_CUT else f"{value:z.{digits}f}"


def signed(value: float, digits: int = 4) -> str:
    """Format a difference with its sign, unless it rounds to 0."""
    text = f"{value:+z.{digits}f}"
    return text.removeprefix("+") if float(text) == 0 else text


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share in 0…1 as a percentage with a non-breaking space; a dash for None."""
    return NOTHING if value is None else f"{100 * value:z.{digits}f}\u00a0%"


def count(value: int | None) -> str:
    """Format a whole number with commas; a dash for None."""
    return NOTHING if value is None else f"{value:,}"


def brief(value: int) -> str:
    """Format a whole number for a narrow column, in thousands above 9,999."""
    return count(value) if value < 10_000 else f"{value / 1000:.0f}k"


def limits(value: Interval, digits: int = 4) -> str:
    """Format the limits of an interval in brackets."""
    return f"({fixed(value.lower, digits)}–{fixed(value.upper, digits)})"


def alone(value: float | None) -> tuple[str, str]:
    """Format a number as the cell of a table that has no interval beside it."""
    return fixed(value), ""


def estimate(value: Interval) -> tuple[str, str]:
    """Format an estimate and its interval, with that by document if it has one, as the cell of a table."""
    by_document = value.by_document if isinstance(value, Estimate) else None
    return fixed(value.mean), limits(value) + ("" if by_document is None else f" by document {limits(by_document)}")


def shift(value: Shift | None) -> tuple[str, str]:
    """Format a detected shift with its effect size as the cell of a table."""
    return alone(None) if value is None else (fixed(abs(value.points)), f"({fixed(abs(value.effect), 2)})")


METRICS = {
    "accuracy": "accuracy@{k}",
    "accuracy_at_tau": "accuracy@{k} at τ",
    "ndcg": "NDCG@{k}",
    "ndcg_at_tau": "NDCG@{k} at τ",
    "coe": "COE",
    "roe": "ROE",
}
PARTS = {"calibration": "calibration queries", "heldout": "held-out queries"}


def metrics_line(manifest: ReleaseManifest) -> str:
    """Return the measures of the papers on one line, of held-out queries if any are, with their 95 % intervals."""
    policy, metrics = manifest.policy, [*manifest.metrics.values()][-1]
    measured = [
        f"accuracy@{policy.k} {_share(metrics.accuracy)}",
        f"NDCG@{policy.k} {metrics.ndcg.mean:z.3f} {limits(metrics.ndcg, 3)}",
    ]
    if policy.tau is not None:
        measured.append(f"τ{'' if policy.psi is None else f'(ψ = {policy.psi})'} {fixed(policy.tau, 3)}")
    measured.append(f"COE {_share(metrics.coe)}")
    if metrics.roe is not None:
        measured.append(f"ROE {_share(metrics.roe)}")
    return ", ".join(measured)


def _share(value: Interval) -> str:
    return f"{percent(value.mean)} ({100 * value.lower:z.1f}–{100 * value.upper:z.1f})"
