"""The verdict on each clause, in cases whose answer is known."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.comparison.decision import (
    Clause,
    ClauseVerdict,
    MeasuredRelease,
    PromotionDecision,
    PromotionRule,
    evaluate_rule,
)
from taugate.calibration.comparison.publish import report
from taugate.errors import InputError, ReleaseError
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.risk.losses import min_detectable_loss
from taugate.registry.catalog import find
from taugate.release.layout import OUTCOMES
from taugate.release.manifest import Manifest
from taugate.release.queries import Outcomes
from taugate.release.verify import verify
from tests.calibration.comparison.measured import K, outcomes, share


@pytest.fixture(scope="module")
def manifest(releases: Path) -> Manifest:
    return verify(find(releases))


@pytest.fixture
def verdicts(manifest: Manifest) -> "Judge":
    def judged(current: Outcomes, new: Outcomes, *clauses: Clause) -> list[ClauseVerdict]:
        rule = PromotionRule(clauses or (LOSS,))
        return evaluate_rule(rule, MeasuredRelease(manifest, current), MeasuredRelease(manifest, new))

    return judged


Judge = Callable[..., list[ClauseVerdict]]
LOSS, KEPT = Clause("accuracy", "lower"), Clause("kept share", "higher")
BEFORE = outcomes(share(0.9, 400), kept=3, unanswerable=400)
CASES = [
    (LOSS, BEFORE, "holds"),
    (LOSS, outcomes(share(0.8, 400)), "worse"),
    (LOSS, outcomes(share(0.895, 400)), "not shown"),
    (Clause("accuracy", "higher"), outcomes(share(0.8, 400)), "holds"),
    (Clause("accuracy", "higher"), outcomes(share(0.95, 400)), "worse"),
    (replace(LOSS, margin=0.15), outcomes(share(0.8, 400)), "holds"),
    (KEPT, outcomes(share(0.9, 400), kept=2), "holds"),
    (KEPT, outcomes(share(0.9, 400), kept=4), "worse"),
    (Clause("kept share", "lower"), outcomes(share(0.9, 400), kept=2), "worse"),
    (Clause("accuracy@K", "lower"), replace(BEFORE, hit_kept=np.zeros(400, dtype=bool)), "holds"),
    # The same figures of 400 other queries: what can be said of two samples is much less.
    (LOSS, outcomes(share(0.9, 400), first=400), "not shown"),
    (replace(LOSS, margin=0.05), outcomes(share(0.9, 400), first=400), "holds"),
    (replace(LOSS, margin=0.05), outcomes(share(0.7, 400), first=400), "worse"),
    (replace(KEPT, margin=0.05), outcomes(share(0.9, 400), kept=2, first=400), "holds"),
]


@pytest.mark.parametrize(("clause", "new", "finding"), CASES)
def test_clause_finding(verdicts: Judge, clause: Clause, new: Outcomes, finding: str) -> None:
    (verdict,) = verdicts(BEFORE, new, clause)
    assert verdict.finding == finding
    assert (verdict.upper <= verdict.clause.margin) == (finding == "holds")
    assert verdict.confidence == 0.95


def test_verdict_reports_means_and_limits(verdicts: Judge) -> None:
    first, second = verdicts(BEFORE, outcomes(share(0.8, 300), kept=2, first=7), LOSS, KEPT)
    assert (first.current, first.new) == (pytest.approx(0.9), pytest.approx(0.8))
    assert (second.current, second.new) == (pytest.approx(0.6), pytest.approx(0.4))
    assert (first.test, first.queries) == ("two samples", (400, 300))
    assert first.upper == pytest.approx(0.1 + 1.645 * np.sqrt(0.09 / 400 + 0.16 / 300), abs=0.01)
    assert verdicts(BEFORE, BEFORE)[0].test == "paired"


def test_few_queries_never_satisfy_rule(verdicts: Judge) -> None:
    """As a test for a difference would: of ten queries of which three are lost nothing is significant."""
    before, after = outcomes(np.ones(10)), outcomes(np.arange(10) >= 3)
    (verdict,) = verdicts(before, after)
    assert verdict.finding == "worse"
    (verdict,) = verdicts(before, before)
    assert verdict.finding == "not shown"


def test_duplicate_queries_add_no_evidence(verdicts: Judge) -> None:
    once = outcomes(share(0.9, 100))
    copies = {name: np.repeat(getattr(once, name), 10) for name in ("query", "cluster", "hit", "hit_kept", "kept")}
    many = replace(once, **copies, ndcg=np.zeros(1000), ndcg_kept=np.zeros(1000))
    assert verdicts(many, many, replace(LOSS, margin=0.02))[0].finding == "not shown"
    alone = replace(many, cluster=np.arange(1000))
    assert verdicts(alone, alone, replace(LOSS, margin=0.02))[0].finding == "holds"


def on_documents(found: Outcomes, each: int) -> Outcomes:
    return replace(found, cluster=np.arange(len(found.query)) // each)


def test_clustered_queries_are_compared_by_document(verdicts: Judge) -> None:
    same = on_documents(outcomes(share(0.9, 2000)), each=2)
    (verdict,) = verdicts(same, same, replace(LOSS, margin=0.01))
    assert (verdict.finding, verdict.unit, verdict.statement) == ("holds", "document", "document and query")
    assert (verdict.queries, verdict.documents) == ((2000, 2000), 1000)
    assert (
        verdict.upper
        == verdict.detectable
        == pytest.approx(min_detectable_loss(SamplingUnits.from_clusters(same.cluster), 0.95))
    )
    one_more = np.append(same.query, np.arange(2000, 2200, dtype=np.uint64))
    uneven = on_documents(outcomes(share(0.9, 2200)), each=2)
    uneven = replace(uneven, query=one_more, cluster=np.append(same.cluster, np.full(200, 1000)))
    (verdict,) = verdicts(uneven, uneven, replace(LOSS, margin=0.01))
    assert (verdict.finding, verdict.statement) == ("holds", "document"), "one document has 200 queries"


@pytest.mark.parametrize(("lost", "finding"), [(0, "holds"), (4, "not shown"), (11, "worse")])
def test_verdict_distinguishes_worse_from_not_shown(verdicts: Judge, lost: int, finding: str) -> None:
    """Of 500 documents, each with four queries, so many are lost whole; a fiftieth may be."""
    before = on_documents(outcomes(np.ones(2000)), each=4)
    after = on_documents(outcomes(np.arange(2000) >= 4 * lost), each=4)
    (verdict,) = verdicts(before, after, replace(LOSS, margin=0.02))
    assert verdict.finding == finding
    assert (verdict.needed is None) == (finding != "not shown")
    if verdict.needed is not None:
        times = -(-verdict.needed // 2000)
        hits = np.arange(2000 * times) >= 4 * lost * times
        many = verdicts(
            on_documents(outcomes(np.ones(2000 * times)), each=4),
            on_documents(outcomes(hits), each=4),
            replace(LOSS, margin=0.02),
        )
        assert many[0].finding == "holds"


def test_loss_at_margin_needs_no_more_queries(verdicts: Judge) -> None:
    before = on_documents(outcomes(np.ones(400)), each=4)
    after = on_documents(outcomes(np.arange(400) >= 4 * 5), each=4)  # the margin, exactly
    (verdict,) = verdicts(before, after, replace(LOSS, margin=0.05))
    assert (verdict.finding, verdict.needed) == ("not shown", None)
    decision = PromotionDecision(PromotionRule((verdict.clause,)), "new", "current", [verdict])
    said: list[str] = []
    report(decision, said.append)
    assert said[0].endswith("; more queries like these would not show it")
    assert "400 queries about 100 documents, paired" in said[0]


def test_explicit_margin_is_never_widened(verdicts: Judge) -> None:
    few = outcomes(np.ones(100))
    named, open_ = verdicts(few, few, replace(LOSS, margin=0.01), LOSS)
    assert (named.widened, named.clause.margin, named.finding) == (False, 0.01, "not shown")
    assert (open_.widened, open_.clause.margin, open_.finding) == (True, 0.03, "holds")
    (two,) = verdicts(few, outcomes(np.ones(100), first=100))
    assert (two.widened, two.clause.margin) == (False, 0.01), "of two samples it would follow from what was found"


def test_different_k_cannot_be_compared(manifest: Manifest) -> None:
    other = manifest.model_copy(update={"policy": manifest.policy.model_copy(update={"k": 20})})
    with pytest.raises(InputError, match=r"has K = 20, and the current release .* 5; a rule compares only"):
        evaluate_rule(PromotionRule((LOSS,)), MeasuredRelease(manifest, BEFORE), MeasuredRelease(other, BEFORE))


def test_outcomes_match_manifest_metrics(releases: Path, manifest: Manifest) -> None:
    """Of the held-out queries; the manifest's accuracies are means of bootstraps."""
    found = Outcomes.load(find(releases) / OUTCOMES, K)
    metrics = manifest.metrics["heldout"]
    assert len(found.query) == 151
    assert found.kept.mean() / K == pytest.approx(metrics.kept_fraction)
    assert (found.kept == 0).mean() == pytest.approx(metrics.abstention.answerable_empty)
    for name, of in (
        ("hit", "accuracy"),
        ("hit_kept", "accuracy_at_tau"),
        ("ndcg", "ndcg"),
        ("ndcg_kept", "ndcg_at_tau"),
    ):
        assert getattr(found, name).mean() == pytest.approx(getattr(metrics, of).mean, abs=0.02)


HARMS: dict[str, Callable[[Outcomes], Outcomes]] = {
    "one query less": lambda found: replace(found, kept=found.kept[1:]),
    "no query": lambda found: Outcomes(*(getattr(found, name)[:0] for name in Outcomes.__dataclass_fields__)),
    "another type": lambda found: replace(found, hit=found.hit.astype(np.int64)),
    "more than K": lambda found: replace(found, kept=found.kept + K),
    "less than none": lambda found: replace(found, unanswerable=found.query, unanswerable_kept=found.kept - K - 1),
    "no number": lambda found: replace(found, ndcg=found.ndcg * np.nan),
    "more than all": lambda found: replace(found, ndcg_kept=found.ndcg_kept + 1.1),
    "a cluster below": lambda found: replace(found, cluster=found.cluster - 10**6),
    "a column": lambda found: replace(found, query=found.query[:, None]),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
def test_invalid_outcomes_are_rejected(releases: Path, tmp_path: Path, harm: Callable) -> None:
    harm(Outcomes.load(find(releases) / OUTCOMES, K)).save(tmp_path / OUTCOMES)
    with pytest.raises(ReleaseError, match=r"outcomes\.safetensors: does not hold the outcomes of calibration queries"):
        Outcomes.load(tmp_path / OUTCOMES, K)
