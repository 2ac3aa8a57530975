"""Show a calibration as a table for a terminal."""

from taugate.calibration.abstention.words import SCORES, evidence, headline
from taugate.calibration.charts.numbers import METRICS
from taugate.calibration.progress import Stopwatch
from taugate.calibration.settings.rules import MAX_EMPTY
from taugate.retrieval.release.evidence import Alternative, DriftRecord, Interval, Level
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.records import AbstentionRecord


def table(manifest: Manifest) -> str:
    """Write every metric of every part of the queries with its 95 % interval, and the rule in force.

    manifest: of the release.
    """
    parts = list(manifest.metrics)
    lines = [] if manifest.no_answer is None else [f"{headline(manifest.no_answer)} {evidence(manifest.no_answer)}"]
    lines += ["".join([f"{'':18}", *(f"{part:>28}" for part in parts)])]
    for row, label in METRICS.items():
        cells = (_interval(getattr(manifest.metrics[part], row)) for part in parts)
        lines.append("".join([f"{label.format(k=manifest.policy.k):18}", *(f"{cell:>28}" for cell in cells)]))
    for label, values in (
        ("results kept", [manifest.metrics[part].kept_fraction for part in parts]),
        ("answerable empty", [manifest.metrics[part].abstention.answerable_empty for part in parts]),
        ("unanswerable empty", [manifest.metrics[part].abstention.unanswerable_empty for part in parts]),
    ):
        cells = (f"{'–' if value is None else f'{value:.4f}':<11}" for value in values)
        lines.append("".join([f"{label:18}", *(f"{cell:>28}" for cell in cells)]))
    lines += _standing(manifest)
    lines.append(_rule(manifest))
    if manifest.abstention is not None:
        lines += _abstention(manifest.abstention)
    lines += [_level(level) for level in manifest.policy.levels[1:]]
    refusing = "" if manifest.abstention is None else ", before any query is refused"
    lines += [_alternative(other) + refusing for other in manifest.alternatives]
    if manifest.drift is not None:
        lines.append(_drift(manifest.drift))
    return "\n".join(lines)


def _standing(manifest: Manifest) -> list[str]:
    """Write what a release with too little behind it says before anything else."""
    record, k = manifest.calibration, manifest.policy.k
    if record is None:
        return []
    lines = [f"provisional: {record.because(k)}"] if record.state == "provisional" else []
    worthless = record.worthless(k)
    return lines if worthless is None else [*lines, f"warning: {worthless}"]


def _rule(manifest: Manifest) -> str:
    policy = manifest.policy
    where = f", percentile {policy.psi} of Γ" if policy.psi is not None else ""
    cut = "no cut" if policy.tau is None else f"{policy.kind}, τ = {policy.tau:.6f}{where}"
    return f"in force: {cut} ({policy.method}). {policy.guarantee}"


def _abstention(record: AbstentionRecord) -> list[str]:
    """Write what is refused, with a warning where more answerable queries are than anybody has agreed to."""
    limits = "certified" if record.certified else "not certified"
    line = (
        f"refused: queries whose score is below {record.tau:.6f} ({limits}). A query is scored by "
        f"{SCORES[record.score]}. {record.guarantee}"
    )
    refused = record.empty_answerable
    if refused.asked is not None or refused.found <= MAX_EMPTY:
        return [line]
    share = f"{100 * refused.found:.0f} %"
    return [line, f"warning: {share} of the answerable queries are refused; --max-empty limits that"]


def _level(level: Level) -> str:
    """Write what is certified of a loss that was asked for beside the one in force."""
    if level.tau is None:
        return f"certified with it: no cut for a loss of at most {level.max_loss:g}; too few queries"
    return f"certified with it: τ = {level.tau:.6f} for a loss of at most {level.max_loss:g}"


def _alternative(other: Alternative) -> str:
    what = "expected loss" if other.statement == "expected-loss" else "loss"
    limit = "" if other.max_loss is None else f", {what} at most {other.max_loss:g}"
    limit += "" if other.max_empty is None else f", empty at most {other.max_empty:g}"
    cut = "no cut" if other.tau is None else f"{other.policy}, τ = {other.tau:.6f}"
    return f"beside it: {cut} ({other.method}{limit}) would keep {other.kept_fraction:.4f} and lose {other.loss:.4f}"


def _drift(record: DriftRecord) -> str:
    """Write the shifts of similarity and COE that an alarm finds; the report has all of them."""
    found = []
    for what, name in (("similarities", "topk_similarity"), ("a COE", "coe")):
        shifts = ((record.signals[name].lower, "lower"), (record.signals[name].higher, "higher"))
        if ways := [f"{abs(shift.points):.3f} {way}" for shift, way in shifts if shift is not None]:
            found.append(f"{what} {' or '.join(ways)}")
    finds = " and ".join(found) or "no shift"
    return f"drift: within {record.within:,} queries an alarm finds {finds}, nine times out of ten"


def times(watch: Stopwatch) -> str:
    """Write seconds by stage, and how the total compares with the time spent in the encoder; watch: stopwatch."""
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in watch.seconds.items())
    encoder = watch.seconds.get("encode", 0.0)
    ratio = f", {watch.total / encoder:.2f} times the encoder's {encoder:.1f} s" if encoder > 1 else ""
    return f"took {watch.total:.1f} s{ratio} (seconds: {stages})"


def _interval(value: Interval) -> str:
    return f"{value.mean:.4f} ({value.lower:.4f}–{value.upper:.4f})"
