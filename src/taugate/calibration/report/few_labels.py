"""Say what few labels, a machine, and both together tell, in a table for the terminal and for the report."""

from dataclasses import dataclass

from taugate.calibration.charts.numbers import NOTHING, fixed, spread
from taugate.ingestion.dataset.judgements import TRAFFIC
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.labels import LabelsRecord, MachineRecord, MachineWorth, SourceRecord

_MACHINES = {
    "generated": "The machine is a model of relevance, fitted on generated queries.",
    "similarity": (
        "The machine is the similarity itself, because there are too few generated queries to fit a model on; taugate "
        "queries makes some."
    ),
}


@dataclass(frozen=True)
class SourceRow:
    """One source of estimates, in words.

    Attributes:
        name: Of the source.
        accuracy: Values as they are written, each with its interval.
        loss: Values as they are written, each with its interval.
        tau: Values as they are written, each with its interval.
    """

    name: str
    accuracy: tuple[str, str]
    loss: tuple[str, str]
    tau: tuple[str, str]


def evidence(record: LabelsRecord) -> str:
    """Say which queries were judged, which were not, and who scored them.

    Args:
        record: Of the labels.
    """
    judged = f"{record.judged:,} judged {'query' if record.judged == 1 else 'queries'}"
    if record.answerable < record.judged:
        judged += f", {record.answerable:,} of them with an answer"
    if record.effective < 0.95 * record.judged:
        judged += f" (their weights make them worth {record.effective:.0f})"
    if record.machine is None:
        return f"{judged}. There is no other query that people asked, so the labels decide alone."
    return f"{judged}, and {record.unjudged:,} others that people asked. {_MACHINES[record.machine]}"


def worth(record: LabelsRecord) -> str:
    """Say what the machine adds to the labels.

    Args:
        record: Of the labels.
    """
    if record.machine is None:
        return ""
    said = [_worth("accuracy", record.accuracy, record.alone.accuracy, record.both.accuracy)]
    if TRAFFIC in record.splits:
        said.append(
            "Queries from traffic count for the loss and for τ, and not for accuracy. They are no random sample, so "
            "the labels decide alone there."
        )
    elif record.both.loss.upper > 0:  # there is a cut
        said.append(_worth("the loss", record.loss, record.alone.loss, record.both.loss))
    return " ".join(said)


def _worth(of: str, found: MachineWorth, alone: Interval, both: Interval) -> str:
    if not found.weight:
        return f"For {of}, the labels decide alone: they are too few to check the machine, or it would not help."
    wider = (both.upper - both.lower) / (alone.upper - alone.lower) - 1
    return (
        f"For {of}, the machine explains {100 * found.r2:.0f} % of the differences between queries (R²). The interval "
        f"is {100 * abs(wider):.0f} % {'wider' if wider > 0 else 'narrower'} than that of the labels alone."
    )


def source_rows(record: LabelsRecord) -> list[SourceRow]:
    """Return a row for each source: the labels alone, the machine alone, and both.

    Args:
        record: Of the labels.
    """
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
    return fixed(value.mean), spread(value)


def heads(record: LabelsRecord, k: int) -> list[str]:
    """Return the heads of the columns.

    Args:
        record: Of the labels.
        k: K, results of a query.
    """
    found = [f"accuracy@{k}", "loss at τ"]
    return found if record.most is None else [*found, f"safe τ for a loss of {100 * record.most:.4g} %"]


def lines(record: LabelsRecord, k: int) -> list[str]:
    """Return the lines for a terminal.

    Args:
        record: Of the labels.
        k: K, results of a query.
    """
    columns = heads(record, k)
    table = ["".join([f"{'':18}", *(f"{head:>28}" for head in columns)])]
    for row in source_rows(record):
        cells = [" ".join(each).strip() for each in (row.accuracy, row.loss, row.tau)]
        table.append("".join([f"{row.name:18}", *(f"{cell:>28}" for cell in cells[: len(columns)])]))
    return [evidence(record), *table, worth(record)] if record.machine else [evidence(record), *table]
