"""The outcome of a calibration as a table for a terminal."""

from calibration.stopwatch import Stopwatch
from retrieval.release.manifest import Interval, Manifest

_ROWS = ("accuracy", "accuracy_at_tau", "ndcg", "ndcg_at_tau", "coe", "roe")
_LABELS = {
    "accuracy": "accuracy@{k}",
    "accuracy_at_tau": "accuracy@{k} at τ",
    "ndcg": "NDCG@{k}",
    "ndcg_at_tau": "NDCG@{k} at τ",
    "coe": "COE",
    "roe": "ROE",
}


def table(manifest: Manifest) -> str:
    """Every metric of every part of the queries, with its 95 % interval."""
    parts = list(manifest.metrics)
    lines = ["".join([f"{'':18}", *(f"{part:>28}" for part in parts)])]
    for row in _ROWS:
        cells = (_interval(getattr(manifest.metrics[part], row)) for part in parts)
        lines.append("".join([f"{_LABELS[row].format(k=manifest.policy.k):18}", *(f"{cell:>28}" for cell in cells)]))
    for label, values in (
        ("results kept", [manifest.metrics[part].kept_fraction for part in parts]),
        ("answerable empty", [manifest.metrics[part].abstention.answerable_empty for part in parts]),
        ("unanswerable empty", [manifest.metrics[part].abstention.unanswerable_empty for part in parts]),
    ):
        cells = (f"{'–' if value is None else f'{value:.4f}':<11}" for value in values)
        lines.append("".join([f"{label:18}", *(f"{cell:>28}" for cell in cells)]))
    policy = manifest.policy
    lines.append(f"τ = {policy.tau:.6f}, percentile {policy.psi} of Γ ({policy.method}, 95 % intervals)")
    return "\n".join(lines)


def times(watch: Stopwatch) -> str:
    """Seconds by stage, and how the total compares with the time spent in the encoder."""
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in watch.seconds.items())
    encoder = watch.seconds.get("encode", 0.0)
    ratio = f", {watch.total / encoder:.2f} times the encoder's {encoder:.1f} s" if encoder > 1 else ""
    return f"took {watch.total:.1f} s{ratio} (seconds: {stages})"


def _interval(value: Interval) -> str:
    return f"{value.mean:.4f} ({value.lower:.4f}–{value.upper:.4f})"
