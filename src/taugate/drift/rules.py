"""The rules of drift detection: which drift matters, how rare false alarms are, and how many queries make a block."""

from dataclasses import dataclass
from typing import Literal

# Half of Cohen's small effect: a share of 50 % that becomes 55 %, or one of 5 % that becomes 7.4 %.
MIN_EFFECT = 0.1
# Distinct queries between false alarms. While all means are just within their bounds, the probability of a false alarm
# of any signal within N queries is at most N over this: one in four for a hundred queries a second all month. Further
# within the bounds there are none.
AVERAGE_RUN_LENGTH = 1e9
# Distinct queries in a block unless the settings say otherwise. Bursts of 200 queries on one topic then raise no alarm,
# and a wrong corpus is detected within 1,500 queries (docs/benchmarks/drift.md).
BLOCK = 200
MIN_IN_BLOCK, MAX_IN_BLOCK = 25, 10_000  # at least five queries in each fifth; 10,000 take 160 kB
# Blocks of judged replies are so many times smaller: few replies are judged, so a burst of queries leaves few of them.
# A mean of five gives away hardly any evidence; means of 40 find a loss of a fifth of the relevant replies four times
# as late.
_JUDGED = 8
# As many queries as a bootstrap draws by default (l in the paper); with fewer, COE and ROE have very wide intervals.
MIN_IN_WINDOW = 100

BlockRule = int | Literal["auto"]


@dataclass(frozen=True)
class Rules:
    """When an alarm is raised.

    Attributes:
        smallest_effect: Cohen's h by which a mean must exceed the bounds of the calibration.
        average_run_length: Distinct queries between false alarms, see `drift.alarm.threshold`.
        block: Distinct queries in a block, or `auto` to adapt it to the length of bursts.
    """

    smallest_effect: float = MIN_EFFECT
    average_run_length: float = AVERAGE_RUN_LENGTH
    block: BlockRule = BLOCK

    @property
    def smallest_block(self) -> int:
        """Distinct queries in the smallest block."""
        return BLOCK if self.block == "auto" else self.block

    @property
    def judged_block(self) -> int:
        """Judged replies to distinct queries in a block."""
        return max(MIN_IN_BLOCK, self.smallest_block // _JUDGED)


DEFAULT_RULES = Rules()
