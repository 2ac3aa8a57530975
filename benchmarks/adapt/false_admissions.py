"""Encoders admitted though they are not better: adaptations whose truth is known."""

import sys
from collections.abc import Callable

from benchmarks.adapt.known_truth import (
    EncodedSet,
    Known,
    elsewhere,
    foreign,
    learn,
    random_map,
    random_signs,
    shuffled,
)
from benchmarks.adapt.trials import AdaptPlan
from benchmarks.markdown import Target, share, table, targets
from taugate.calibration.provisional.state import lower_limit

HEADING = "Admitted though not better"
_SETS = ("squadshifts_reddit", "squad_v2_dev")
_AT_MOST = 0.05  # of the runs: the gate's confidence is 95 %


def section(plan: AdaptPlan) -> str:
    """Adapt again and again where the truth is known, a fifth of the runs of each kind, and count."""
    sets = [EncodedSet.read(plan.data / name) for name in _SETS]
    recipes = [learn(each.pairs(each.dataset.answerable, 0), 0) for each in sets]

    def one(seed: int) -> int:
        return seed // 2 % 2  # the lowest bit of a seed decides what counts as one draw

    kinds: dict[str, Callable[[int], Known]] = {
        "labels shuffled": lambda seed: shuffled(sets[one(seed)], seed),
        "queries of another corpus": lambda seed: foreign(sets[one(seed)], sets[1 - one(seed)], seed),
        "learned from one corpus, judged on another": lambda seed: elsewhere(
            sets[one(seed)], sets[1 - one(seed)], seed
        ),
        "gains and losses with random signs": lambda seed: random_signs(sets[one(seed)], recipes[one(seed)], seed),
        "random maps": lambda seed: random_map(sets[one(seed)], seed),
    }
    rows: list[list[int]] = []
    for name, decide in kinds.items():
        found = [decide(seed) for seed in range(plan.seed, plan.seed + plan.runs // len(kinds))]
        worse = [each for each in found if not each.better]
        rows.append(
            [len(found), sum(each.admitted for each in found), len(worse), sum(each.admitted for each in worse)]
        )
        print(name, rows[-1], file=sys.stderr, flush=True)
    total = [sum(column) for column in zip(*rows, strict=True)]
    worse, false = total[2:]
    header = ["adaptations", "runs", "admitted", "not better", "admitted though not better"]
    lines = [[name, *row] for name, row in zip([*kinds, "together"], [*rows, total], strict=True)]
    wanted = Target(
        "admitted though not better, of those that are not", 100 * false / worse, at_most=100 * _AT_MOST, unit=" %"
    )
    most = 1 - lower_limit(worse - false, worse)
    return f"{table(header, lines)}\n\n{targets([wanted])}\n\nThe 95 % upper limit of that share is {share(most)}."
