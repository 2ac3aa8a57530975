"""Count the queries until questions of a near field raise an alarm, which the corpus does not answer either."""

from functools import partial

import numpy as np

from benchmarks.drift.fleets import BEFORE, CHUNK, MOST, alone, delays, median_and_tail
from benchmarks.drift.patterns import independent, mixed, moved
from benchmarks.drift.plan import DriftPlan
from benchmarks.drift.traffic import Pool, asked, encoded, heldout, labelled, released
from benchmarks.drift.worlds import monitor
from benchmarks.markdown import share, table
from taugate.retrieval.reader import Release

HEADING = "Questions of a near field"
_SHARES = (1.0, 0.5, 0.2, 0.1, 0.05)
_QUESTIONS = 2000  # foreign ones of a row, or all if there are fewer: the detector remembers 4,000 distinct queries
# A release, and the set whose questions are mixed into its traffic: encyclopaedic ones, medical ones, and far ones.
_FIELDS = (
    ("squad_v2_dev", "squad_v2_dev"),
    ("squad_v2_dev", "squadshifts_new_wiki"),
    ("squadshifts_new_wiki", "squad_v2_dev"),
    ("covidqa_chunks", "pubmedqa_labelled"),
    ("covidqa_chunks", "scifact"),
    ("squad_v2_dev", "ood_queries"),
    ("squadshifts_new_wiki", "ood_queries"),
    ("covidqa_chunks", "ood_queries"),
)


def section(plan: DriftPlan) -> str:
    """Mix questions of each near field into the traffic, and count the queries until the alarm."""
    rows = []
    for name, other in _FIELDS:
        release = released(plan.data, name, plan.work)
        own = _pool(plan, release, name, [*heldout(plan.data, name, release)], "heldout")
        foreign = _pool(plan, release, other, _foreign(plan, name, other), f"foreign-to-{name}")
        cells = [delays_beside(plan, release, own, foreign, part) for part in _SHARES]
        nearness = share(_auroc(own.top[:, 0], foreign.top[:, 0]), 2)
        rows.append([name, "its unanswerable ones" if other == name else other, nearness, *cells])
    header = ["corpus", "foreign questions", "AUROC", *(f"{part:.0%}" for part in _SHARES)]
    return f"""\
The off-topic queries above are of another field than the corpus. Here the foreign questions are like the ordinary ones in style and
field, but about other documents: encyclopaedic questions on other articles, and medical questions on other papers. The nearest are the
unanswerable questions of squad_v2_dev, which people wrote about its own articles. The last rows have far questions, for comparison.

*AUROC* says how well similarity tells the two kinds apart: the probability that an ordinary question has a higher best similarity than a
foreign one. At .5 no detector that sees only similarities could find them. The other columns have the number of queries until the alarm,
by the share of foreign questions: median / 90th percentile of {plan.runs} runs. A run gives up after {MOST:,} queries.

{table(header, rows)}
"""


def _foreign(plan: DriftPlan, name: str, other: str) -> list[str]:
    """Draw questions that the corpus does not answer."""
    if other == name:
        found = [text for text, relevant in labelled(plan.data, name) if not relevant]
    else:
        found = asked(plan.data, other)
    rows = np.random.default_rng(plan.seed).permutation(len(found))[:_QUESTIONS]
    return [found[row] for row in rows.tolist()]


def _pool(plan: DriftPlan, release: Release, name: str, texts: list[str], kind: str) -> Pool:
    return Pool.of(encoded(texts, release, plan.work / f"{name}-{kind}.npy"), release)


def delays_beside(plan: DriftPlan, release: Release, own: Pool, foreign: Pool, part: float) -> str:
    """Format the queries of one process until the alarm, from when foreign ones are this part of the traffic."""
    both, usual = own.beside(foreign), independent(len(own))
    pattern = mixed(usual, moved(independent(len(foreign)), len(own)), part)
    found = delays(
        alone,
        partial(monitor, release),
        lambda rng: own.draw(BEFORE, rng),
        lambda rng: both.seen(pattern(CHUNK, rng), rng),
        runs=plan.runs,
        seed=plan.seed,
    )
    return median_and_tail(found)


def _auroc(own: np.ndarray, foreign: np.ndarray) -> float:
    """P(own > foreign) + P(own = foreign) / 2 of similarities, (n,) and (m,)."""
    ordered = np.sort(foreign)
    below = np.searchsorted(ordered, own, "left") + np.searchsorted(ordered, own, "right")
    return float(below.mean() / (2 * len(foreign)))
