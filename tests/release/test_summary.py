"""The two lines on what a release certifies and what was checked."""

from pathlib import Path
from typing import Any

import pytest

from taugate.registry.catalog import find
from taugate.release.evidence import Certificate, EvidenceRecord
from taugate.release.manifest import Manifest
from taugate.release.records import CheckedAnswers
from taugate.release.refusal_records import ErrorLimit, RefusalRecord, RefusedQuestions, RequestedLimits
from taugate.release.summary import certificate_cost, summary_lines, summary_of
from taugate.release.verify import verify_searchable

LIMIT: dict[str, Any] = {"queries": 264, "effective_queries": 264, "loss": 0.004, "bound": 0.018, "queries_needed": 149}
LOSS = Certificate(limit="accuracy", most=0.02, **LIMIT)
CERTIFIED: dict[str, Any] = {"statement": "high-probability", "max_loss": 0.02, "certificates": [LOSS]}
OFF_TOPIC = RefusedQuestions(queries=34, refused=28, lower=0.68, uncertified=30)
SHORT = RefusedQuestions(queries=100, refused=70, lower=0.62, uncertified=96)
CHECKED = CheckedAnswers(mean=1 / 124, lower=0.0, upper=0.038, heldout=True, answers=124, lost=1)


@pytest.fixture(scope="module")
def manifest(releases: Path) -> Manifest:
    """The sample's manifest, with round figures."""
    found = verify_searchable(find(releases))
    metrics = {"heldout": found.metrics["heldout"].model_copy(update={"kept_fraction": 0.96})}
    refusal = found.refusal
    assert refusal is not None
    kinds = {"evidence": {"off_topic": OFF_TOPIC, "request": SHORT}, "provisional": False}
    return found.model_copy(
        update={"metrics": metrics, "checked": CHECKED, "refusal": refusal.model_copy(update=kinds)}
    )


def with_policy(manifest: Manifest, **changed: Any) -> Manifest:
    return manifest.model_copy(update={"policy": manifest.policy.model_copy(update=changed)})


def in_state(manifest: Manifest, state: str) -> Manifest:
    assert manifest.calibration is not None
    return manifest.model_copy(update={"calibration": manifest.calibration.model_copy(update={"state": state})})


def certified_line(manifest: Manifest) -> str:
    return summary_lines(summary_of(manifest))["Certified"]


def checked_line(manifest: Manifest) -> str:
    return summary_lines(summary_of(manifest))["Checked"]


def test_certified_release_has_both_lines(manifest: Manifest) -> None:
    assert summary_of(with_policy(manifest, **CERTIFIED)) == (
        "Certified   at most 2 of 100 questions lose their answer (95 % confidence, 264 questions)\n"
        "Checked     1 of 124 held-out answers lost; 28 of 34 off-topic and 70 of 100 short questions refused; 4 % of "
        "the results dropped"
    )


def test_release_without_certificate_names_option(manifest: Manifest) -> None:
    assert certified_line(manifest) == "nothing; --max-loss 0.02 asks for it"
    assert manifest.state_in_words == "calibrated"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"statement": "expected-loss"}, "lose their answer (on average, 264 questions)"),
        ({"statement": "labels"}, "lose their answer to τ (95 % confidence, estimated from few labels, 264 questions)"),
        (
            {"certificates": [LOSS.model_copy(update={"count_at_most": 9})]},
            "264 questions, at most 9 about a document)",
        ),
        (
            {"certificates": [LOSS, LOSS.model_copy(update={"limit": "empty", "most": 0.005})]},
            "and at most 0.5 of 100 questions with an answer get no result (95 % confidence, 264 questions)",
        ),
        (
            {"certificates": [LOSS.model_copy(update={"limit": "ndcg"})]},
            "NDCG@5 falls by at most 0.02 (95 % confidence",
        ),
        ({"kind": "none", "tau": None}, "nothing: these labels cannot show a loss of 2 %"),
    ],
)
def test_certified_line_names_kind_of_limit(manifest: Manifest, changed: dict[str, Any], said: str) -> None:
    assert said in certified_line(with_policy(manifest, **CERTIFIED | changed))


def test_certified_refusals_are_named(manifest: Manifest) -> None:
    evidence = EvidenceRecord(unit="query", units=300, design_effect=1.0)
    limits = [
        ErrorLimit(asked=asked, upper=0.1, found=0.06, queries=queries, queries_needed=29, evidence=evidence)
        for asked, queries in ((0.1, 240), (0.3, 199))
    ]
    within = RequestedLimits(
        answered=limits[0], refused=limits[1], confidence=0.95, guarantee="", candidates=[], tradeoff=[]
    )
    refusal = RefusalRecord(score="model", rho=0.2, certified=True, limits=within)
    asked = manifest.model_copy(update={"refusal": refusal})
    assert certified_line(asked) == (
        "at most 10 % of unanswerable questions answered and 30 % of answerable ones refused (95 % confidence, 240 and "
        "199 questions)"
    )
    failed = asked.model_copy(update={"refusal": refusal.model_copy(update={"certified": False})})
    assert certified_line(failed).startswith("nothing")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("inherited", "nothing: the documents have changed"),
        ("adjusted", "nothing: the threshold was given"),
        ("provisional", "nothing about people's questions; of questions like these, at most 2 of 100"),
    ],
)
def test_uncalibrated_states_certify_nothing(manifest: Manifest, state: str, said: str) -> None:
    release = in_state(with_policy(manifest, **CERTIFIED), state)
    assert certified_line(release).startswith(said)
    assert (release.certified, release.state_in_words) == (None, state)


def test_certified_loss_is_part_of_state(manifest: Manifest) -> None:
    release = with_policy(manifest, **CERTIFIED | {"max_loss": 0.025})
    assert release.certified is not None
    assert (release.certified.model_dump(), release.state_in_words) == (
        {"max_loss": 0.025, "confidence": 0.95},
        "certified 2.5 %",
    )
    assert with_policy(release, statement="expected-loss").certified is None
    assert with_policy(release, kind="none", tau=None).certified is None


def test_checked_line_without_refusals_says_so(manifest: Manifest) -> None:
    without = manifest.model_copy(update={"refusal": None})
    relative = with_policy(without, kind="relative", tau=0.5)
    assert "; refuses nothing: every question gets a result; 4 % of" in checked_line(relative)
    assert "; refuses nothing: every question gets a result; 4 % of" in checked_line(without)
    counted = RefusalRecord(evidence={"off_topic": RefusedQuestions(queries=34, refused=17, lower=0.3)})
    assert "17 of 34 off-topic questions refused" in checked_line(without.model_copy(update={"refusal": counted}))


def test_checked_line_names_queries_that_chose(manifest: Manifest) -> None:
    chose = manifest.model_copy(update={"checked": CHECKED.model_copy(update={"heldout": False})})
    assert checked_line(chose).startswith("1 of 124 calibration answers lost; ")
    assert checked_line(manifest.model_copy(update={"checked": None})).startswith("28 of 34 off-topic")


def test_certificate_cost_is_before_and_after(manifest: Manifest) -> None:
    assert certificate_cost(manifest) == (
        "30 → 28 of 34 off-topic and 96 → 70 of 100 short questions refused, without → with the certificate"
    )
    assert manifest.refusal is not None
    usual = {
        kind: record.model_copy(update={"uncertified": None})
        for kind, record in {"off_topic": OFF_TOPIC, "request": SHORT}.items()
    }
    refusal = manifest.refusal.model_copy(update={"evidence": usual})
    assert certificate_cost(manifest.model_copy(update={"refusal": refusal})) is None


def test_sentence_of_earlier_version_is_one_line() -> None:
    assert summary_lines("Keeps 5.0 of 5 results.") == {"Summary": "Keeps 5.0 of 5 results."}
