"""All alarms of a release, on what is seen of its traffic."""

import numpy as np

from retrieval.drift.alarm import Alarm, Change
from retrieval.drift.observations import Observations
from retrieval.drift.reference import Reference
from retrieval.drift.signals import feedback_signal, query_signals
from retrieval.similarity import Float32

# Half of what Cohen calls a small effect: a share of 50 % that becomes 55 %, one of 5 % that becomes 7.4 %.
SMALLEST_EFFECT = 0.1
# Queries to a false alarm of any signal, on average and at least, while all means are just within their bounds: a
# hundred queries a second for four months. Further inside there are none.
SELDOM = 1e9


class Monitor:
    """theta: see `query_signals`; seldom: of all signals together."""

    def __init__(
        self, reference: Reference, theta: float, smallest_effect: float = SMALLEST_EFFECT, seldom: float = SELDOM
    ) -> None:
        signals = query_signals(reference, theta)
        # The first of several alarms is as rare as wanted when each of them is so many times rarer.
        each = seldom * (len(signals) + 1)
        self.of_queries = [Alarm(signal, smallest_effect, each) for signal in signals]
        self.of_feedback = Alarm(feedback_signal(reference, theta), smallest_effect, each)

    @property
    def alarms(self) -> list[Alarm[Observations] | Alarm[Float32]]:
        """Of every signal."""
        return [*self.of_queries, self.of_feedback]

    def update(self, seen: Observations) -> list[Change]:
        """What queries, in their order, begin or end."""
        changes = [change for alarm in self.of_queries for change in alarm.update(seen)]
        return sorted(changes, key=lambda change: change.row)

    def feedback(self, correct: Float32) -> list[Change]:
        """The same of similarities with documents that were judged relevant, (n,)."""
        return self.of_feedback.update(correct)


def theta_of(reference: Reference, percentile: float) -> float:
    """θ of all calibration queries together: the percentile, 0…100, of their top-K similarities."""
    return float(np.percentile(reference.top, percentile))
