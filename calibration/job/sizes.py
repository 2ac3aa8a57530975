"""Whether a data set has what is asked for, and enough of it, found out before anything is encoded."""

from taugate.calibration.gate.index_admit import kinds_asked
from taugate.calibration.metrics.parts import (
    FEWEST_QUERIES,  # to judge by the gate, and to fit a projection on, as well
)
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.strata import Strata
from taugate.errors import InputError
from taugate.ingestion.dataset.dataset import Dataset

_MOST_SIMILARITIES = 50_000_000  # 200 times the default, and about 1 GB while COE and ROE are computed


def check_sizes(dataset: Dataset, settings: CalibrationSettings) -> None:
    """Raise InputError with too few queries or documents for what is asked, or too much asked of them."""
    if settings.k > len(dataset.documents):
        raise InputError(f"--k {settings.k}: the corpus has only {len(dataset.documents)} documents; give a smaller K")
    if settings.bootstraps * settings.sample_size * settings.k > _MOST_SIMILARITIES:
        raise InputError(
            f"--bootstraps {settings.bootstraps} × --sample-size {settings.sample_size} × --k {settings.k}: more than "
            f"{_MOST_SIMILARITIES:,} similarities at once; give fewer bootstraps, they narrow no interval any more"
        )
    answerable = len(dataset.answerable)
    if answerable == round(settings.holdout * answerable):
        raise InputError(
            f"--holdout {settings.holdout}: leaves none of the {answerable} answerable queries to calibrate on; "
            "label more queries or give a smaller share"
        )
    members, asked = answerable - round(settings.holdout * answerable), settings.cheaper.asked
    if asked and members < FEWEST_QUERIES:
        name, value = next(iter(asked.items()))
        raise InputError(
            f"--{name} {value}: needs at least {FEWEST_QUERIES} answerable queries to calibrate on, there are "
            f"{members}; label more, or leave the option out"
        )
    kinds_asked(settings.cheaper.index, len(dataset.documents))
    if settings.rule.strata is not None:
        Strata.of(dataset, settings.rule.strata)
    if settings.abstention is not None:
        settings.abstention.check(dataset)
