"""`auto` takes the policy that is plainly better, and the preferred one where the difference may be luck."""

import numpy as np
import pytest

from taugate.calibration.metrics.ranking import JudgedQueries
from taugate.calibration.settings.rules import ThresholdRule
from taugate.calibration.threshold.policy_choice import choose_by_kept_share
from taugate.retrieval.index.top_k import TopK


def queries(grades: np.ndarray) -> JudgedQueries:
    scores = np.tile(np.linspace(0.9, 0.1, grades.shape[1], dtype=np.float32), (len(grades), 1))
    return JudgedQueries(
        TopK(scores, np.zeros(grades.shape, dtype=np.int64)), grades, np.ones(len(grades)), scores[:, 0]
    )


def world(seed: int, n: int, k: int = 5) -> tuple[JudgedQueries, np.ndarray, np.ndarray]:
    """One relevant document a query, with decision scores that tell it apart and others that know nothing."""
    rng = np.random.default_rng(seed)
    grades = np.zeros((n, k), dtype=np.int64)
    grades[np.arange(n), rng.integers(0, k, size=n)] = 1
    noise = rng.uniform(size=(n, k)).astype(np.float32)
    return queries(grades), noise, (grades + 0.5 * rng.uniform(size=(n, k))).astype(np.float32)


RULE = ThresholdRule("risk-control", "auto", max_loss=0.05)


@pytest.mark.parametrize("metric", ["accuracy", "ndcg"])
@pytest.mark.parametrize("better", ["probability", "relative", "similarity"])
def test_clearly_better_policy_is_chosen(better: str, metric: str) -> None:
    judged, noise, clear = world(0, 200)
    decisions = {kind: clear if kind == better else noise for kind in ("probability", "relative", "similarity")}
    rule = ThresholdRule("risk-control", "auto", metric, max_loss=0.05)
    kind, candidates = choose_by_kept_share(judged, decisions, rule, np.random.default_rng(0))
    assert kind == better
    assert [item.kind for item in candidates] == list(decisions)
    kept = {item.kind: item.kept_fraction for item in candidates}
    assert 0.18 <= kept[better] <= 0.2  # one of five, and up to 10 % of the queries may lose theirs
    assert all(kept[other] > 0.8 for other in kept if other != better)


def test_equal_policies_keep_preference() -> None:
    judged, noise, _ = world(1, 100)
    for order in (("probability", "relative", "similarity"), ("similarity", "probability")):
        kind, candidates = choose_by_kept_share(judged, dict.fromkeys(order, noise), RULE, np.random.default_rng(0))
        assert kind == order[0]
        assert len({item.kept_fraction for item in candidates}) == 1


def test_small_difference_keeps_preferred_policy() -> None:
    """The second policy is the first but for 2 of 300 queries, where it keeps less: less than one standard error."""
    judged, noise, clear = world(2, 300)
    slightly, plainly = noise.copy(), noise.copy()
    slightly[:1], plainly[:150] = clear[:1] - 1, clear[:150] - 1
    first = {"probability": noise, "relative": slightly}
    kind, candidates = choose_by_kept_share(judged, first, RULE, np.random.default_rng(0))
    assert kind == "probability"
    assert candidates[0].standard_error > 0
    assert choose_by_kept_share(judged, first | {"relative": clear}, RULE, np.random.default_rng(0))[0] == "relative"


def test_kept_share_averages_allowed_thresholds() -> None:
    judged, noise, _ = world(3, 60)
    rule = ThresholdRule("risk-control", "auto", max_loss=0.1)
    relevant = judged.grades >= 1
    shares = []
    for tau in np.unique(noise[relevant]):
        kept = noise >= tau
        lost = sum(not (row & expected).any() for row, expected in zip(kept, relevant, strict=True))
        if lost <= 2 * 0.1 * 60:
            shares.append(kept.mean())
    _, (candidate,) = choose_by_kept_share(judged, {"similarity": noise}, rule, np.random.default_rng(0))
    assert 10 < len(shares) < 60
    assert candidate.kept_fraction == pytest.approx(np.mean(shares))


def test_choice_is_repeatable() -> None:
    judged, noise, clear = world(4, 80)
    decisions = {"probability": noise, "relative": (noise + clear).astype(np.float32)}
    assert choose_by_kept_share(judged, decisions, RULE, np.random.default_rng(3)) == choose_by_kept_share(
        judged, decisions, RULE, np.random.default_rng(3)
    )


def test_no_hits_keep_preferred_policy() -> None:
    _, noise, clear = world(5, 40)
    nothing = queries(np.zeros((40, 5), dtype=np.int64))
    kind, _ = choose_by_kept_share(nothing, {"relative": noise, "similarity": clear}, RULE, np.random.default_rng(0))
    assert kind == "relative"
