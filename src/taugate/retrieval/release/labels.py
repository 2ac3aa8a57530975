"""Record of a calibration on few human judgements: what the labels say alone, the machine alone, and both together."""

from typing import Literal

from taugate.retrieval.release.evidence import Interval, Record

# The scores of results that stand beside the judgements: a model of relevance fitted on generated queries, or the
# similarity itself.
Machine = Literal["generated", "similarity"]


class ThresholdInterval(Record):
    """The strictest threshold whose loss is at most the limit, in units of the decision score; None is no cut at all.

    safe: the strictest one whose loss is shown to be within the limit. value: the strictest one whose estimated loss
    is. lower, upper: ends of the 95 % interval of the true one.
    """

    safe: float | None
    value: float | None
    lower: float | None
    upper: float | None


class SourceRecord(Record):
    """Estimates from one source, over the queries that people ask.

    accuracy: share of answerable queries with a relevant result among the top K. loss: share of answerable queries that
    lose every relevant result to the threshold in force. tau: the threshold that the limit on the loss allows; None
    where no limit was given.
    """

    accuracy: Interval
    loss: Interval
    tau: ThresholdInterval | None


class MachineRecord(Record):
    """The same estimates from the machine's scores alone; nothing says how wrong they are.

    accuracy, loss: mean scores. tau: the strictest threshold whose mean score of a loss is within the limit, None where
    none is or no limit was given.
    """

    accuracy: float
    loss: float
    tau: float | None


class MachineWorth(Record):
    """The worth of the machine for one estimate.

    r2: share of the variance among judged queries that its scores explain. weight: λ, how far it is believed; 0 where
    the labels decide alone. labels: how many judged queries alone would give an interval as narrow.
    """

    r2: float
    weight: float
    labels: float


class LabelsRecord(Record):
    """Few human judgements, taken together with a machine's scores of the queries that nobody judged.

    splits: that were read. judged: queries that people judged, answerable or not. answerable: those with an answer.
    unjudged: other queries that people asked. effective: equally weighted queries that the judged ones count as (Kish).
    machine: that scored the results. alone, machine_only, both: estimates from each. accuracy, loss: worth of the
    machine for both. most: largest loss asked for, None without one.
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
