"""--max-loss 0.01,0.05: the first is in force, and what is said of all of them holds together."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from taugate.cli import main as cli
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.ranking import JudgedQueries, ScoredQueries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.decide import decide_policy
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from taugate.retrieval.index.top_k import TopK
from tests.calibration.commands import arguments


def evidence(rng: np.random.Generator, queries: int, each: int = 1) -> CalibrationQueries:
    """Of every query the only relevant result has a uniform score, one for each document: τ loses a share of τ."""
    scores = np.repeat(rng.random((queries // each, 1)), each, axis=0).astype(np.float32)
    top = TopK(scores, np.zeros(scores.shape, dtype=np.int64))
    judged = JudgedQueries(top, np.ones(scores.shape, dtype=np.int64), np.ones(queries), scores[:, 0])
    units, members = SamplingUnits.from_clusters(np.arange(queries) // each), np.arange(queries)
    return CalibrationQueries(
        ScoredQueries(judged, top, None, None), members, np.zeros((1, 1), np.int64), None, None, units, 0
    )


def rule(*losses: float, **more: object) -> ThresholdRule:
    return ThresholdRule.from_options(max_loss=losses, policy="similarity", **more)  # type: ignore[arg-type]


def literal_tau(given: CalibrationQueries, delta: float, alpha: float) -> float:
    """The largest score below which so few are that the exact binomial test passes."""
    scores = np.sort(given.scored.judged.top.scores[:, 0])
    passed = [tau for lost, tau in enumerate(scores.tolist()) if stats.binom.cdf(lost, len(scores), delta) <= alpha]
    return max(passed)


def test_levels_divide_the_error() -> None:
    given = evidence(np.random.default_rng(0), 500)
    result = decide_policy(rule(0.02, 0.01, 0.05), given)
    assert [level.max_loss for level in result.levels] == [0.02, 0.01, 0.05]
    for level in result.levels:
        assert level.tau == literal_tau(given, level.max_loss, 0.05 / 3)
        assert level.loss < level.bound <= level.max_loss
    assert (result.tau, result.max_loss) == (result.levels[0].tau, 0.02)
    assert result.certificates[0].most == 0.02
    assert "With 95 % confidence (for losses of 2 % and 1 % and 5 % at once), " in result.guarantee
    (alone,) = decide_policy(rule(0.02), given).certificates
    assert decide_policy(rule(0.02), given).levels == []
    assert alone.upper is not None
    assert result.certificates[0].bound <= 0.02


def test_joint_levels_hold_confidence() -> None:
    rng, trials = np.random.default_rng(1), 400
    requested = rule(0.03, 0.1)
    errors = sum(
        any((level.tau or 0.0) > level.max_loss for level in decide_policy(requested, evidence(rng, 300)).levels)
        for _ in range(trials)
    )
    assert errors / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("each", [1, 2])
def test_certifiable_later_level_is_named(each: int) -> None:
    result = decide_policy(rule(0.01, 0.05, 0.2), evidence(np.random.default_rng(0), 400, each))
    assert (result.kind, result.tau) == ("none", None)
    assert result.levels[0].tau is None
    assert [level.tau is not None for level in result.levels[1:]] == [True, True]
    about = "" if each == 1 else " about 200 documents"
    assert f"with 400 queries{about} a loss of 1 % cannot be certified at 95 % together with 5 % and 20 %; " in (
        result.guarantee
    )
    assert result.guarantee.endswith(" are needed. A loss of 5 % or of 20 % can be: name it first.")
    none = decide_policy(rule(0.001, 0.002), evidence(np.random.default_rng(0), 400, each)).guarantee
    assert "name it first" not in none


def test_expected_losses_are_not_corrected() -> None:
    given = evidence(np.random.default_rng(0), 300)
    several = decide_policy(rule(0.02, 0.05, guarantee="expected-loss"), given)
    assert several.tau == decide_policy(rule(0.02, guarantee="expected-loss"), given).tau
    assert several.levels[1].tau == decide_policy(rule(0.05, guarantee="expected-loss"), given).tau


@pytest.mark.parametrize("text", ["0.01,", "a", "", "0.01;0.02", "0.01,,0.02"])
def test_invalid_loss_list_is_refused(
    text: str, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments(sample, tmp_path / "r", encoder, "--max-loss", text)) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.endswith(f'--max-loss\': "{text}": give a share such as 0.01, or several such as 0.01,0.02')
    assert list(tmp_path.iterdir()) == []
