"""Say what a calibration found: in sentences that anyone understands, and in a table for a terminal."""

from taugate.calibration.abstention.words import SCORES, evidence, headline
from taugate.calibration.charts.numbers import METRICS, percent
from taugate.calibration.progress import Stopwatch
from taugate.calibration.provisional.words import PROVISIONAL, outlook
from taugate.calibration.report import few_labels
from taugate.calibration.settings.rules import MAX_EMPTY
from taugate.retrieval.release.evidence import Alternative, Certificate, DriftRecord, Interval, Level
from taugate.retrieval.release.manifest import Manifest, MetricsRecord, PolicyRecord
from taugate.retrieval.release.records import AbstentionRecord


def cost(policy: PolicyRecord, metrics: MetricsRecord, *, refusing: bool) -> str:
    """Say what the threshold keeps, drops and loses, in two sentences.

    Args:
        policy: In force.
        metrics: Of the queries that had no say in it, where there are any.
        refusing: Whether queries are refused as a whole before the threshold decides, which the metrics include.
    """
    results = f"{policy.k} {'result' if policy.k == 1 else 'results'}"
    first = "the first result" if policy.k == 1 else f"the first {results}"
    without, left = percent(metrics.accuracy.mean), percent(metrics.accuracy_at_tau.mean)
    who, it, keep, drop = "The threshold", "it", "keeps", "drops"
    if refusing:
        who, it, keep, drop = (
            "The refusals and the threshold" if policy.tau is not None else "The refusals",
            "them",
            "keep",
            "drop",
        )
    elif policy.tau is None:
        return f"{without} of the questions find their answer in {first}. Nothing is dropped."
    return (
        f"{who} {keep} {metrics.kept_fraction * policy.k:.1f} of {results} per question on average and {drop} "
        f"{percent(1 - metrics.kept_fraction)} of all results. Without {it}, {without} of the questions find their "
        f"answer in {first}; with {it}, {left} do."
    )


def promise(policy: PolicyRecord) -> str:
    """Say what is guaranteed, in one or two plain sentences; `statement` says it exactly.

    Args:
        policy: In force.
    """
    if policy.tau is None:
        return "No threshold could be shown to be safe with these labels."
    if policy.statement is None:
        return (
            "This loss is measured, not guaranteed: other questions can lose more. To get a guarantee, calibrate with "
            "--max-loss, such as --max-loss 0.02."
        )
    limits = " and ".join(_limit(each, policy.k) for each in policy.certificates)
    if policy.statement == "labels":
        return f"Shown from few labels, with {100 * policy.confidence:.4g} % confidence: {limits}."
    if policy.statement == "expected-loss":
        return f"Guaranteed on average over calibrations like this one: {limits}."
    return f"Guaranteed with {100 * policy.confidence:.4g} % confidence: {limits}."


def _limit(certificate: Certificate, k: int) -> str:
    share = f"{100 * certificate.most:.4g} %"
    return {
        "accuracy": f"at most {share} of the questions lose their answer to the threshold",
        "ndcg": f"the quality of the ranking, NDCG@{k}, falls by at most {certificate.most:.4g}",
        "empty": f"at most {share} of the questions with an answer get no result",
    }[certificate.limit]


def statement(rule: PolicyRecord | Alternative) -> str:
    """Say exactly what a rule guarantees, for whom and by which test.

    Args:
        rule: The policy in force, or another rule beside it.
    """
    if rule.method == "bootstrap":
        return (
            "Nothing is certified. The rule takes the highest threshold whose mean bootstrapped metric is not below "
            "the 95 % interval of the metric without a threshold (thresholds paper §2.2). It sets no limit on the loss."
        )
    return rule.guarantee or "Nothing is certified."


def refusal_warning(record: AbstentionRecord) -> str | None:
    """Warn where more answerable queries are refused than anybody has agreed to; None where few are.

    Args:
        record: The rule by which a query is refused as a whole.
    """
    refused = record.empty_answerable
    if refused.asked is not None or refused.found <= MAX_EMPTY:
        return None
    return f"{100 * refused.found:.0f} % of the answerable queries are refused; --max-empty limits that"


def table(manifest: Manifest) -> str:
    """Write every metric of every part of the queries with its 95 % interval, and the rule in force.

    Args:
        manifest: Of the release.
    """
    parts = list(manifest.metrics)
    lines = _standing(manifest)
    if manifest.no_answer is not None:
        lines.append(f"{headline(manifest.no_answer)} {evidence(manifest.no_answer)}")
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
    if manifest.labels is not None:
        lines += few_labels.lines(manifest.labels, manifest.policy.k)
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
    """Write what the figures of a release with too little evidence are worth, to be read before them."""
    record, k = manifest.calibration, manifest.policy.k
    if record is None:
        return []
    said = outlook(record, manifest.policy, [*manifest.metrics.values()][-1])
    lines = [] if said is None else [f"{PROVISIONAL} {said}"]
    worthless = record.worthless(k)
    return lines if worthless is None else [*lines, f"warning: {worthless}"]


def _rule(manifest: Manifest) -> str:
    policy = manifest.policy
    where = f", ψ = {policy.psi}" if policy.psi is not None else ""
    cut = "no threshold" if policy.tau is None else f"{policy.kind}, τ = {policy.tau:.6f}{where}"
    return f"in force: {cut} ({policy.method}). {statement(policy)}"


def _abstention(record: AbstentionRecord) -> list[str]:
    """Write which queries are refused, and a warning where these are many."""
    limits = "certified" if record.certified else "not certified"
    line = (
        f"refused: queries that score below {record.tau:.6f} ({limits}). A query is scored by {SCORES[record.score]}. "
        f"{record.guarantee}"
    )
    warning = refusal_warning(record)
    return [line] if warning is None else [line, f"warning: {warning}"]


def _level(level: Level) -> str:
    """Write the threshold of another loss that was asked for beside the one in force."""
    if level.tau is None:
        return f"for a loss of at most {level.max_loss:g}: no threshold can be certified with so few queries"
    return f"for a loss of at most {level.max_loss:g}: τ = {level.tau:.6f}, certified as well"


def _alternative(other: Alternative) -> str:
    what = "expected loss" if other.statement == "expected-loss" else "loss"
    limit = "" if other.max_loss is None else f", {what} at most {other.max_loss:g}"
    limit += "" if other.max_empty is None else f", empty at most {other.max_empty:g}"
    cut = "no threshold" if other.tau is None else f"{other.policy}, τ = {other.tau:.6f}"
    return f"instead: {cut} ({other.method}{limit}) would keep {other.kept_fraction:.4f} and lose {other.loss:.4f}"


def _drift(record: DriftRecord) -> str:
    """Write the shifts of similarity and COE that an alarm finds; the report has all of them."""
    found = []
    for what, name in (("similarity", "topk_similarity"), ("COE", "coe")):
        shifts = ((record.signals[name].lower, "down"), (record.signals[name].higher, "up"))
        if ways := [f"{abs(shift.points):.3f} {way}" for shift, way in shifts if shift is not None]:
            found.append(f"{what} {' or '.join(ways)}")
    shifts_found = f"these shifts within {record.within:,} queries, nine times out of ten: {', '.join(found)}"
    return f"drift: an alarm finds {shifts_found if found else f'no shift within {record.within:,} queries'}"


def times(watch: Stopwatch) -> str:
    """Write the seconds of each stage, and the total as a multiple of the encoder's.

    Args:
        watch: Stopwatch.
    """
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in watch.seconds.items())
    encoder = watch.seconds.get("encode", 0.0)
    ratio = f", {watch.total / encoder:.2f} times the encoder's {encoder:.1f} s" if encoder > 1 else ""
    return f"took {watch.total:.1f} s{ratio} (seconds: {stages})"


def _interval(value: Interval) -> str:
    return f"{value.mean:.4f} ({value.lower:.4f}–{value.upper:.4f})"
