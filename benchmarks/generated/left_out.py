"""The interval that a provisional release states, tried on data sets that had no say in it."""

from collections.abc import Callable, Sequence

from benchmarks.generated.cases import Case
from benchmarks.generated.plan import GeneratedPlan
from benchmarks.generated.shipped import measured_sets
from benchmarks.markdown import share, table
from taugate.calibration.provisional.bias import expected_bias
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.records import BiasRecord

HEADING = "The stated bias, tried on sets left out"
# Each figure with the bias of a case and the interval of a record.
_FIGURES: dict[str, tuple[Callable[[Case], float], Callable[[BiasRecord], Interval]]] = {
    "Accuracy": (lambda case: case.accuracy_bias, lambda record: record),
    "Loss at the default threshold": (lambda case: case.loss_bias, lambda record: record.loss),
}


def section(plan: GeneratedPlan) -> str:
    """Leave each set out in turn, and return the tables as Markdown."""
    cases = plan.cases
    records = {name: _expected([case for case in cases if case.name != name]) for name in {case.name for case in cases}}
    figures = "\n\n".join(
        _figure(name, cases, [(bias(case), interval(records[case.name])) for case in cases], interval(_expected(cases)))
        for name, (bias, interval) in _FIGURES.items()
    )
    return f"""\
A provisional release states what to expect of human queries. It takes the mean bias over the public sets and a 95 % *prediction
interval*: the bias of one further set lies in it 19 times in 20, if sets are alike. With m sets whose biases have the standard
deviation s, the interval is mean ± t·s·√(1 + 1/m), where t is Student's, with m − 1 degrees of freedom. Encoders on one set are not
independent, so their mean is one bias. Below, each set is left out in turn: does the interval from the others hold for it?

{figures}
"""


def _figure(name: str, cases: Sequence[Case], tried: Sequence[tuple[float, Interval]], stated: Interval) -> str:
    """Return the table of one figure.

    Args:
        tried: Of each case its bias with the interval from the other sets.
    """
    inside = sum(_holds(*each) for each in tried)
    rows = [
        [case.name, case.encoder, share(bias), _limits(interval), "yes" if _holds(bias, interval) else "**no**"]
        for case, (bias, interval) in zip(cases, tried, strict=True)
    ]
    sets = len({case.name for case in cases})
    return f"""\
### {name}

All {sets} sets: mean bias {share(stated.mean)}, 95 % prediction interval {_limits(stated)}. The interval from the other sets holds in {inside} of
{len(cases)} cases.

{table(["set left out", "encoder", "its bias", "interval from the other sets", "holds"], rows)}"""


def _expected(cases: Sequence[Case]) -> BiasRecord:
    record = expected_bias(measured_sets(cases))
    if record is None:
        raise SystemExit("leaving one set out takes three sets or more")
    return record


def _holds(bias: float, interval: Interval) -> bool:
    return interval.lower <= bias <= interval.upper


def _limits(interval: Interval) -> str:
    return f"{share(interval.lower)} to {share(interval.upper)}"
