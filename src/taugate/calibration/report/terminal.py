"""The result of a calibration in plain sentences, and as tables for the terminal."""

from dataclasses import dataclass

from taugate.calibration.progress import METRICS, NOTHING, Job, fixed, limits, percent
from taugate.calibration.provisional import PROVISIONAL, outlook
from taugate.data.judgements import TRAFFIC
from taugate.evidence.abstention.words import SCORES, evidence, headline
from taugate.evidence.rules import MAX_EMPTY
from taugate.release.evidence import Alternative, DriftRecord, Interval, Level
from taugate.release.manifest import ReleaseManifest
from taugate.release.names import METHODS, STATEMENTS
from taugate.release.outcome_records import LabelsRecord, MachineWorth, PolicyRecord, SourceRecord
from taugate.release.refusal_records import QuestionKind, RefusalRecord, RefusedQuestions

# Kinds of questions that no document answers.
_KINDS: dict[QuestionKind, str] = {
    "off_topic": "off-topic questions",
    "request": "short requests",
    "near_miss": "near misses",
    "unanswerable": "labelled unanswerable queries",
}

_EVERY_CANDIDATE = (
    "ψ = 100: no percentile of Γ lowers the metric, so this threshold depends on the number and size of bootstraps."
)


@dataclass(frozen=True)
class SourceRow:
    """One source of estimates; each value is formatted, with its interval."""

    name: str
    accuracy: tuple[str, str]
    loss: tuple[str, str]
    tau: tuple[str, str]


def basis(record: LabelsRecord) -> str:
    """Describe which queries were judged, and how the others were scored."""
    judged = f"{record.judged:,} judged {'query' if record.judged == 1 else 'queries'}"
    if record.answerable < record.judged:
        judged += f", {record.answerable:,} of them with an answer"
    if record.effective < 0.95 * record.judged:
        judged += f" (as informative as {record.effective:.0f} queries of equal weight)"
    if record.machine is None:
        return f"{judged}. There are no unjudged queries from people, so only the labels are used."
    return f"{judged}, and {record.unjudged:,} unjudged queries from people. {record.machine.words}"


def machine_effect(record: LabelsRecord) -> str:
    """Describe how much the machine narrows the intervals of the labels."""
    if record.machine is None:
        return ""
    sentences = [_effect("accuracy", record.accuracy, record.alone.accuracy, record.both.accuracy)]
    if TRAFFIC in record.splits:
        sentences.append(
            "Queries from traffic count for the loss and for τ, but not for accuracy. They are not a random sample, so "
            "only the labels are used for these."
        )
    elif record.both.loss.upper > 0:  # there is a cut
        sentences.append(_effect("the loss", record.loss, record.alone.loss, record.both.loss))
    return " ".join(sentences)


def _effect(metric: str, machine: MachineWorth, alone: Interval, both: Interval) -> str:
    if not machine.weight:
        return f"For {metric}, only the labels are used: they are too few to check the machine, or it would not help."
    wider = (both.upper - both.lower) / (alone.upper - alone.lower) - 1
    return (
        f"For {metric}, the machine explains {100 * machine.r2:.0f} % of the differences between queries (R²). The "
        f"interval is {100 * abs(wider):.0f} % {'wider' if wider > 0 else 'narrower'} than that of the labels alone."
    )


def source_rows(record: LabelsRecord) -> list[SourceRow]:
    """Return a row for each source: the labels alone, the machine alone, and both."""
    rows = [_row("labels alone", record.alone)]
    if record.machine_only is not None:
        alone = record.machine_only
        rows.append(
            SourceRow("machine alone", (fixed(alone.accuracy), ""), (fixed(alone.loss), ""), (fixed(alone.tau), ""))
        )
        rows.append(_row("both", record.both))
    return rows


def _row(name: str, source: SourceRecord) -> SourceRow:
    tau = (NOTHING, "")
    if source.tau is not None:
        ends = [NOTHING if end is None else fixed(end) for end in (source.tau.lower, source.tau.upper)]
        tau = (fixed(source.tau.safe), f"({ends[0]}–{ends[1]})")
    return SourceRow(name, _share(source.accuracy), _share(source.loss), tau)


def _share(value: Interval) -> tuple[str, str]:
    return fixed(value.mean), limits(value)


def heads(record: LabelsRecord, k: int) -> list[str]:
    """Return the column headings; `k` is K."""
    columns = [f"accuracy@{k}", "loss at τ"]
    return columns if record.most is None else [*columns, f"safe τ for a loss of {100 * record.most:.4g} %"]


def few_label_lines(record: LabelsRecord, k: int) -> list[str]:
    """Return the few_label_lines for a terminal; `k` is K."""
    columns = heads(record, k)
    table = ["".join([f"{'':18}", *(f"{head:>28}" for head in columns)])]
    for row in source_rows(record):
        cells = [" ".join(cell_parts).strip() for cell_parts in (row.accuracy, row.loss, row.tau)]
        table.append("".join([f"{row.name:18}", *(f"{cell:>28}" for cell in cells[: len(columns)])]))
    return [basis(record), *table, machine_effect(record)] if record.machine else [basis(record), *table]


def statement(rule: PolicyRecord | Alternative) -> str:
    """State exactly what a rule guarantees, for which queries and by which test."""
    if METHODS[rule.method].of_papers:
        said = (
            "This is the highest candidate of Γ at which the metric does not measurably fall: its bootstrapped mean "
            "stays within the 95 % interval without a threshold (thresholds paper §2.2). It guarantees nothing; "
            "--max-loss does."
        )
        return f"{said} {_EVERY_CANDIDATE}" if rule.psi == 100 else said
    return rule.guarantee or "Nothing is certified."


def unrestricted(policy: PolicyRecord) -> str:
    """Say what the interval of the papers' rule allows beyond Γ; empty for other rules."""
    other = policy.unrestricted
    if other is None:
        return ""
    return (
        f" If every similarity were a candidate, the interval would allow τ = {other.tau:.6f}, which keeps "
        f"{percent(other.kept_fraction)} of the results and loses {percent(other.loss)} of "
        f"{'the answers' if policy.metric == 'accuracy' else 'NDCG'}."
    )


def refusal_warning(record: RefusalRecord) -> str | None:
    """Warn if more answerable queries are refused than the default limit and no limit was requested; else None."""
    if record.limits is None or record.limits.refused.asked is not None or record.limits.refused.found <= MAX_EMPTY:
        return None
    return f"{100 * record.limits.refused.found:.0f} % of the answerable queries are refused; --max-empty limits that"


def refused_kinds(record: RefusalRecord) -> dict[str, RefusedQuestions]:
    """Return how many questions of each kind are refused, by the name of the kind for people."""
    return {_KINDS[kind]: refused for kind, refused in record.evidence.items()}


def refusal_sentence(record: RefusalRecord) -> str | None:
    """Say in one sentence which questions are refused as a whole, for people who read no further; None for none."""
    if record.threshold is None:
        return None
    score, rho = record.threshold
    return f"A question that scores below ρ = {rho:.3f} gets no result; it is scored by {SCORES[score]}."


def answered_sentences(record: RefusalRecord | None) -> list[str]:
    """Say how many questions without an answer get a result, unless the default ρ counts them; first a headline."""
    if record is None or record.is_default:
        return []
    return [sentence for counted in record.evidence.items() for sentence in (headline(*counted), evidence(*counted))]


def table(manifest: ReleaseManifest) -> str:
    """Format every metric of every part of the queries with its 95 % interval, and the rule in force."""
    parts = list(manifest.metrics)
    lines = _standing(manifest)
    if answered := answered_sentences(manifest.refusal):
        lines.append(" ".join(answered))
    lines += ["".join([f"{'':18}", *(f"{part:>28}" for part in parts)])]
    for row, label in METRICS.items():
        if any(getattr(manifest.metrics[part], row) is None for part in parts):
            continue
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
        lines += few_label_lines(manifest.labels, manifest.policy.k)
    lines.append(_rule(manifest))
    if manifest.refusal is not None and manifest.refusal.threshold is not None:
        lines += _refusal(manifest.refusal, *manifest.refusal.threshold)
    lines += [_level(level) for level in manifest.policy.levels[1:]]
    lines += [_alternative(other) for other in manifest.alternatives]
    if manifest.drift is not None:
        lines.append(_drift(manifest.drift))
    return "\n".join(lines)


def _standing(manifest: ReleaseManifest) -> list[str]:
    """Format the warnings about a release with too little evidence, which come before its figures."""
    record, k = manifest.calibration, manifest.policy.k
    if record is None:
        return []
    refusing = manifest.answer_threshold is not None
    expectation = outlook(record, manifest.policy, [*manifest.metrics.values()][-1], refusing=refusing)
    lines = [] if expectation is None else [f"{PROVISIONAL} {expectation}"]
    chance_warning = record.chance_warning(k)
    return lines if chance_warning is None else [*lines, f"warning: {chance_warning}"]


def _rule(manifest: ReleaseManifest) -> str:
    policy = manifest.policy
    psi = f", ψ = {policy.psi}" if policy.psi is not None else ""
    cut = "no threshold" if policy.tau is None else f"{policy.kind}, τ = {fixed(policy.tau, 6)}{psi}"
    return f"in force: {cut} ({policy.method}). {statement(policy)}{unrestricted(policy)}"


def _refusal(record: RefusalRecord, score: str, rho: float) -> list[str]:
    """Format which queries are refused: with the limits and a warning if these are many, or by kind of question."""
    if record.limits is not None:
        limits, warning = "certified" if record.certified else "not certified", refusal_warning(record)
        line = f"refused: queries that score below {rho:.6f} ({limits}). A query is scored by {SCORES[score]}. "
        return [line + record.limits.guarantee, *([] if warning is None else [f"warning: {warning}"])]
    shares = ", ".join(
        f"{refused.refused:,} of {refused.queries:,} {name} (at least {percent(refused.lower)})"
        for name, refused in refused_kinds(record).items()
    )
    provisional = " Too few queries are labelled to limit what ρ loses: ρ is provisional." if record.provisional else ""
    return [f"refused: {shares}, with ρ = {rho:.6f} ({score}). Off-topic questions are easy.{provisional}"]


def _level(level: Level) -> str:
    """Format the threshold for another requested loss than the one in force."""
    if level.tau is None:
        return f"for a loss of at most {level.max_loss:g}: no threshold can be certified with so few queries"
    return f"for a loss of at most {level.max_loss:g}: τ = {fixed(level.tau, 6)}, certified as well"


def _alternative(other: Alternative) -> str:
    loss = None if other.statement is None else STATEMENTS[other.statement].loss
    limit = "" if other.max_loss is None else f", {loss} at most {other.max_loss:g}"
    limit += "" if other.max_empty is None else f", empty at most {other.max_empty:g}"
    cut = "no threshold" if other.tau is None else f"{other.policy}, τ = {other.tau:.6f}"
    return f"instead: {cut} ({other.method}{limit}) would keep {other.kept_fraction:.4f} and lose {other.loss:.4f}"


def _drift(record: DriftRecord) -> str:
    """Format the shifts of similarity and quality that an alarm detects; the report has those of all signals."""
    signals = []
    for label, name in (("similarity", "topk_similarity"), ("relevant replies", "quality")):
        shifts = ((record.signals[name].lower, "down"), (record.signals[name].higher, "up"))
        if ways := [f"{abs(shift.points):.3f} {way}" for shift, way in shifts if shift is not None]:
            signals.append(f"{label} {' or '.join(ways)}")
    if not signals:
        return f"drift: an alarm detects no shift within {record.within:,} queries"
    shifts_detected = ", ".join(signals)
    return (
        f"drift: nine times out of ten, an alarm detects these shifts within {record.within:,} queries: "
        f"{shifts_detected}"
    )


def times(job: Job) -> str:
    """Format the seconds of each stage, and the total as a multiple of the encoder's time."""
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in job.seconds.items())
    encoder = job.seconds.get("encode", 0.0)
    ratio = f", {job.total / encoder:.2f} times the encoder's {encoder:.1f} s" if encoder > 1 else ""
    return f"took {job.total:.1f} s{ratio} (seconds: {stages})"


def _interval(value: Interval) -> str:
    return f"{value.mean:.4f} ({value.lower:.4f}–{value.upper:.4f})"
