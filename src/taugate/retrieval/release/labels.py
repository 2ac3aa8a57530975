"""Record of a calibration on few human judgements: what the labels say alone, the machine alone, and both together."""

from typing import Literal

from taugate.retrieval.release.evidence import Interval, Record

# The scores of results that stand beside the judgements: a model of relevance fitted on generated queries, or the
# similarity itself.
Machine = Literal["generated", "similarity"]


class ThresholdInterval(Record):
    """The strictest threshold whose loss is at most the limit, in units of the decision score; None is no cut at all.

    Attributes:
        safe: The strictest one whose loss is shown to be within the limit.
        value: The strictest one whose estimated loss is.
        lower: Ends of the 95 % interval of the true one.
        upper: Ends of the 95 % interval of the true one.
    """

    safe: float | None
    value: float | None
    lower: float | None
    upper: float | None


class SourceRecord(Record):
    """Estimates from one source, over the queries that people ask.

    Attributes:
        accuracy: Share of answerable queries with a relevant result among the top K.
        loss: Share of answerable queries that lose every relevant result to the threshold in force.
        tau: The threshold that the limit on the loss allows; None where no limit was given.
    """

    accuracy: Interval
    loss: Interval
    tau: ThresholdInterval | None


class MachineRecord(Record):
    """The same estimates from the machine's scores alone; nothing says how wrong they are.

    Attributes:
        accuracy: Mean scores.
        loss: Mean scores.
        tau: The strictest threshold whose mean score of a loss is within the limit, None where none is or no limit was
            given.
    """

    accuracy: float
    loss: float
    tau: float | None


class MachineWorth(Record):
    """The worth of the machine for one estimate.

    Attributes:
        r2: Share of the variance among judged queries that its scores explain.
        weight: λ, how far it is believed; 0 where the labels decide alone.
        labels: How many judged queries alone would give an interval as narrow.
    """

    r2: float
    weight: float
    labels: float


class LabelsRecord(Record):
    """Few human judgements, taken together with a machine's scores of the queries that nobody judged.

    Attributes:
        splits: That were read.
        judged: Queries that people judged, answerable or not.
        answerable: Those with an answer.
        unjudged: Other queries that people asked.
        effective: Equally weighted queries that the judged ones count as (Kish).
        machine: That scored the results.
        alone: Estimates from each.
        machine_only: Estimates from each.
        both: Estimates from each.
        accuracy: Worth of the machine for both.
        loss: Worth of the machine for both.
        most: Largest loss asked for, None without one.
    """

    splits: list[str]
    judged: int
    answerable: int
    unjudged: int
    effective: float
    machine: Machine | None
    alone: SourceRecord
    machine_only: MachineRecord | None
    both: SourceRecord
    accuracy: MachineWorth
    loss: MachineWorth
    most: float | None
