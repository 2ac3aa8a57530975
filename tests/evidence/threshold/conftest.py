"""All queries of the known world, of which none is held out."""

import pytest

from taugate.evidence.threshold.policy_choice import CalibrationQueries
from tests.calibration.relevance.test_relevance_fit import World
from tests.evidence.threshold.labelled import evidence


@pytest.fixture(scope="module")
def known() -> CalibrationQueries:
    return evidence(World())
