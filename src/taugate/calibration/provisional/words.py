"""Sentences for the terminal and the report about figures on generated queries."""

from taugate.calibration.charts.numbers import percent
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.methods import METHODS
from taugate.retrieval.release.outcome_records import MetricsRecord, PolicyRecord
from taugate.retrieval.release.records import CalibrationRecord

_MAX_RANGE = 0.5  # a share of which no more is known is not named
PROVISIONAL = "PROVISIONAL:"  # prefix of the lines about a provisional release in the terminal


def outlook(record: CalibrationRecord, policy: PolicyRecord, metrics: MetricsRecord, *, refusing: bool) -> str | None:
    """State what to expect for people's questions if figures are of generated ones; None if no query was generated.

    Args:
        record: State of the release.
        policy: Policy in force.
        metrics: Metrics of the queries that did not influence the policy, if there are any.
        refusing: Whether the metrics include queries that are refused as a whole.
    """
    if not record.generated:
        return None
    accuracy, queries = metrics.accuracy.mean, record.human + record.generated
    results = "the first result" if policy.k == 1 else f"the first {policy.k} results"
    questions = (
        "the generated questions"
        if not record.human
        else f"the questions ({record.generated:,} of {queries:,} generated)"
    )
    share = record.generated / queries
    sentences = [f"{percent(accuracy)} of {questions} find their answer in {results}."]
    if record.bias is None:
        sentences.append(
            "For questions that people ask, this share is unknown: the difference was measured for cropped queries "
            "alone. If taugate queries kept only those of a model's questions that find their document (the round "
            "trip), they find it again, and the share says nothing about the search."
        )
    else:
        mean, lower, upper = _of_people(accuracy, record.bias, share)
        if upper - lower > _MAX_RANGE:
            expected = f"this share is unknown until people judge: it may be {percent(lower)} to {percent(upper)}"
        else:
            expected = f"expect {_range(mean, lower, upper)}"
        sentences.append(f"For questions that people ask, {expected}.")
        # The bias of the loss was only measured with such thresholds, alone.
        if policy.tau is not None and METHODS[policy.method].of_papers and not refusing:
            lost = accuracy - metrics.accuracy_at_tau.mean
            sentences.append(
                f"The threshold loses the answer to {percent(lost)} of {questions}; for questions that people ask, "
                f"expect {_range(*_of_people(lost, record.bias.loss, share))}."
            )
        sentences.append(
            f"These ranges are 95 % prediction intervals, from {record.bias.sets} public data sets on which cropped "
            "and human questions were measured: 19 of 20 new data sets should lie within."
        )
    if policy.tau is not None and policy.statement is not None:
        limit = "The guarantee holds for questions generated like these, and for no others"
        measured = (
            ": on most of the public data sets, such a threshold took more answers from people's questions than it "
            "guaranteed"
        )
        sentences.append(f"{limit}{measured if record.bias else ''}.")
    return " ".join(sentences)


def _of_people(measured: float, bias: Interval, share: float) -> tuple[float, float, float]:
    """Return the share to expect for people's questions, and the lower and upper end of its range.

    Args:
        measured: Share of all questions, in 0…1.
        bias: Share of generated questions less that of people's.
        share: Share of the questions that are generated, in 0…1.
    """
    mean, lower, upper = (min(1.0, max(0.0, measured - share * value)) for value in (bias.mean, bias.upper, bias.lower))
    return mean, lower, upper


def _range(mean: float, lower: float, upper: float) -> str:
    return f"{percent(mean)} ({percent(lower)} to {percent(upper)})"
