"""What is said of one cut whose loss is small on average: its upper limit, against a loss that is known."""

import numpy as np
import pytest

from taugate.evidence.risk.certify import LossLimit, certify
from taugate.evidence.risk.steps import LossSteps
from taugate.evidence.risk.words import guarantee
from taugate.evidence.rules import ThresholdRule

RULE = ThresholdRule.from_options(max_loss=[0.05], guarantee="expected-loss")


@pytest.mark.parametrize(("queries", "printed"), [(21, "13.3 %"), (99, "9.01 %")])
def test_upper_limit_of_cut_holds(queries: int, printed: str) -> None:
    """A query's only result scores uniformly in 0…1, so that a cut at τ loses τ of the queries: τ is the truth.

    On average that is at most δ, and for one cut in three it is more; above the limit it is once in twenty.
    """
    rng, rounds = np.random.default_rng(0), 1500
    truth, limits, sentence = np.empty(rounds), np.empty(rounds), ""
    for item in range(rounds):
        steps = LossSteps.of_empty(rng.random((queries, 1), dtype=np.float32))
        actual = certify([LossLimit("accuracy", steps, 0.05)], RULE)
        truth[item], limits[item] = actual.tau, actual.certificates[0].upper
        sentence = guarantee(RULE, actual.certificates, 5)
    errors = (truth > limits).mean()
    assert errors <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / rounds)
    assert errors >= 0.05 - 3 * np.sqrt(0.05 * 0.95 / rounds), "the limit is exact: a wider one says less"
    assert truth.mean() <= 0.05
    assert (truth > 0.05).mean() > 0.3
    assert f"Of this one cut, with 95 % confidence, the loss is at most {printed}." in sentence


def test_guarantee_names_both_upper_limits() -> None:
    steps = LossSteps.of_empty(np.random.default_rng(1).random((99, 1), dtype=np.float32))
    limits = [LossLimit("accuracy", steps, 0.05), LossLimit("empty", steps, 0.05)]
    message = guarantee(RULE, certify(limits, RULE).certificates, 5)
    assert "the loss is at most 9.01 % and the share left empty is at most 9.01 %" in message
