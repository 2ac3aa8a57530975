"""Estimates from few labels, from a machine's scores, and from both, as a table for the terminal and the report."""

from dataclasses import dataclass

from taugate.calibration.charts.numbers import NOTHING, fixed, limits
from taugate.ingestion.dataset.judgements import TRAFFIC
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.labels import LabelsRecord, MachineRecord, MachineWorth, SourceRecord


@dataclass(frozen=True)
class SourceRow:
    """One source of estimates; each value is formatted, with its interval.

    Attributes:
        name: Name of the source.
        accuracy: Accuracy.
        loss: Loss at τ.
        tau: Safe τ.
    """

    name: str
    accuracy: tuple[str, str]
    loss: tuple[str, str]
    tau: tuple[str, str]


def labelled_evidence(record: LabelsRecord) -> str:
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
        rows.append(_row_of_machine(record.machine_only))
        rows.append(_row("both", record.both))
    return rows


def _row(name: str, source: SourceRecord) -> SourceRow:
    tau = (NOTHING, "")
    if source.tau is not None:
        ends = [NOTHING if end is None else fixed(end) for end in (source.tau.lower, source.tau.upper)]
        tau = (fixed(source.tau.safe), f"({ends[0]}–{ends[1]})")
    return SourceRow(name, _share(source.accuracy), _share(source.loss), tau)


def _row_of_machine(source: MachineRecord) -> SourceRow:
    return SourceRow("machine alone", (fixed(source.accuracy), ""), (fixed(source.loss), ""), (fixed(source.tau), ""))


def _share(value: Interval) -> tuple[str, str]:
    return fixed(value.mean), limits(value)


def heads(record: LabelsRecord, k: int) -> list[str]:
    """Return the column headings; `k` is K."""
    columns = [f"accuracy@{k}", "loss at τ"]
    return columns if record.most is None else [*columns, f"safe τ for a loss of {100 * record.most:.4g} %"]


def lines(record: LabelsRecord, k: int) -> list[str]:
    """Return the lines for a terminal; `k` is K."""
    columns = heads(record, k)
    table = ["".join([f"{'':18}", *(f"{head:>28}" for head in columns)])]
    for row in source_rows(record):
        cells = [" ".join(cell_parts).strip() for cell_parts in (row.accuracy, row.loss, row.tau)]
        table.append("".join([f"{row.name:18}", *(f"{cell:>28}" for cell in cells[: len(columns)])]))
    return (
        [labelled_evidence(record), *table, machine_effect(record)]
        if record.machine
        else [labelled_evidence(record), *table]
    )
