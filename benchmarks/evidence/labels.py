"""Compute how many documents a statement takes if nothing changes, and if some answers do."""

import math

import numpy as np

from benchmarks.evidence.verdicts import of_documents, passed
from benchmarks.evidence.worlds import changed
from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.losses import min_detectable_loss
from taugate.evidence.rules import CONFIDENCE

HEADING = "How many documents it takes"
_MARGINS = (0.005, 0.01, 0.02, 0.05)
_CHANGED = (0.005, 0.01)
_SIZES = (2, 5, 10)  # queries of a document
_POWER = 0.8  # four times in five, the usual power of a trial
_TRIALS = 400  # a standard error of .02
_STEP = 1.1  # from one number of documents that is tried to the next, from the fewest that can show anything


def section(experiment: Experiment) -> str:
    """Compute the number of documents for each statement and margin."""
    rows = []
    for margin in _MARGINS:
        fewest = _fewest(margin)
        found = [
            _enough(margin, share_changed, size, fewest, experiment.seed)
            for share_changed in _CHANGED
            for size in _SIZES
        ]
        rows.append([share(margin), f"{fewest:,}", *(f"{each:,}" for each in found)])
    header = ["margin", "nothing changes"]
    header += [f"± {100 * changed_share:g} %, {size} queries each" for changed_share in _CHANGED for size in _SIZES]
    return f"""\
How many documents do gate and promotion need to recognise a release that is equally good, with {CONFIDENCE * 100:g} % confidence? "Nothing changes" has
the fewest, however many queries each document has. The other columns lose a share of the queries and gain as many, anywhere, and have the
number that recognises four cases of five. Numbers go up in steps of {100 * (_STEP - 1):.0f} %, with {_TRIALS} trials each.

{table(header, rows)}
"""


def _fewest(margin: float) -> int:
    """Return the fewest documents without a loss that show the margin."""
    return next(
        count
        for count in range(1, 10_000)
        if min_detectable_loss(SamplingUnits(np.repeat(np.arange(count), 2), 2.0), CONFIDENCE) <= margin
    )


def _enough(margin: float, share_changed: float, size: int, fewest: int, seed: int) -> int:
    documents = fewest
    while _power(margin, share_changed, size, documents, seed) < _POWER:
        documents = math.ceil(documents * _STEP)
    return documents


def _power(margin: float, share_changed: float, size: int, documents: int, seed: int) -> float:
    rng = np.random.default_rng([seed, documents])
    drawn = changed(rng, np.full(documents, size), share_changed, _TRIALS, whole=False)
    return float(passed(of_documents(drawn, margin)).mean())
