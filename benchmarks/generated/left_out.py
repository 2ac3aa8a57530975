"""The interval that a provisional release states, tried on data sets that had no say in it."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from benchmarks.generated.cases import Case
from benchmarks.generated.plan import GeneratedPlan
from benchmarks.markdown import share, table
from taugate.retrieval.release.evidence import Interval

HEADING = "The stated bias, tried on sets left out"


Bias = Callable[[Case], float]
_BIASES: dict[str, Bias] = {
    "Accuracy": lambda case: case.accuracy_bias,
    "Loss at the default threshold": lambda case: case.loss_bias,
}


def section(plan: GeneratedPlan) -> str:
    """Leave each set out in turn, and return the tables as Markdown."""
    cases = plan.cases
    sections = []
    for what, bias in _BIASES.items():
        stated = prediction_interval(_by_set(cases, bias))
        held = [_left_out(cases, case, bias) for case in cases]
        inside = sum(interval.lower <= bias(case) <= interval.upper for case, interval in zip(cases, held, strict=True))
        rows = [
            [case.name, case.encoder, share(bias(case)), _limits(interval), _verdict(bias(case), interval)]
            for case, interval in zip(cases, held, strict=True)
        ]
        header = ["set left out", "encoder", "its bias", "interval from the other sets", ""]
        sections.append(
            f"### {what}\n\nAll {len({*_names(cases)})} sets together: bias {share(stated.mean)}, 95 % prediction interval "
            f"{_limits(stated)}. The interval from the other sets\nholds the left-out one in {inside} of {len(cases)} "
            f"cases.\n\n{table(header, rows)}"
        )
    return (
        """\
A provisional release states what to expect of human queries. It takes the mean bias over the public sets and a 95 % *prediction
interval*: the range in which the bias of one further set lies, 19 times in 20, if sets are alike. With m sets whose biases have
the standard deviation s, it is mean ± t·s·√(1 + 1/m), where t is Student's, with m − 1 degrees of freedom. Both encoders on one set
make one mean, as they are not independent.

"""
        + "\n\n".join(sections)
        + "\n"
    )


def prediction_interval(values: Sequence[float]) -> Interval:
    """Return the mean and the 95 % prediction interval of one further value; values: two or more independent ones."""
    m, mean = len(values), float(np.mean(values))
    half = float(stats.t.ppf(0.975, m - 1) * np.std(values, ddof=1) * np.sqrt(1 + 1 / m))
    return Interval(mean=mean, lower=max(-1.0, mean - half), upper=min(1.0, mean + half))


def _by_set(cases: Sequence[Case], bias: Bias) -> list[float]:
    return [
        float(np.mean([bias(case) for case in cases if case.name == name])) for name in dict.fromkeys(_names(cases))
    ]


def _left_out(cases: Sequence[Case], out: Case, bias: Bias) -> Interval:
    return prediction_interval(_by_set([case for case in cases if case.name != out.name], bias))


def _names(cases: Sequence[Case]) -> list[str]:
    return [case.name for case in cases]


def _limits(interval: Interval) -> str:
    return f"{share(interval.lower)} to {share(interval.upper)}"


def _verdict(bias: float, interval: Interval) -> str:
    return "inside" if interval.lower <= bias <= interval.upper else "**outside**"
