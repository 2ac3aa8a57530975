"""What would be certified instead: the counts are those of a calibration, and the advice can be followed."""

import re
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from taugate.calibration.threshold.shortage import RuleVariant, certifying_count, remedy
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import MIN_CALIBRATING, HoldoutSplit, QueryRoles
from taugate.evidence.ranking import AnsweredQueries, JudgedQueries, ScoredQueries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from taugate.policy.names import ThresholdKind
from taugate.release.evidence import Certificate
from taugate.retrieval.index.top_k import TopK
from tests.calibration.commands import Capture, small


@pytest.fixture
def calibrate(capfd: pytest.CaptureFixture[str]) -> Capture:
    return Capture(capfd)


def way(holdout: float, policy: str = "auto", guarantee: str = "high-probability") -> RuleVariant:
    return RuleVariant(holdout, ThresholdRule.from_options(policy=policy, guarantee=guarantee))


@pytest.mark.parametrize("holdout", [0.0, 0.3, 0.85])
@pytest.mark.parametrize("labels", [30, 43, 141, 503])
def test_certifying_count_matches_calibration(holdout: float, labels: int) -> None:
    units = SamplingUnits.from_clusters(np.arange(labels))
    members = HoldoutSplit.by_query(np.random.default_rng(0), labels, holdout).calibration
    parts = QueryRoles.draw(members, units, 0)
    enough = len(members) >= MIN_CALIBRATING
    assert certifying_count(way(holdout, "relative"), labels) == len(members)
    assert certifying_count(way(holdout), labels) == len(members)
    assert certifying_count(way(holdout, "probability"), labels) == len(parts.not_fitting) * enough
    certify = parts.not_fitting if enough else members  # with too few, `auto` is `relative`
    assert certifying_count(way(holdout, guarantee="expected-loss"), labels) == len(certify)


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("holdout", [0.0, 0.3])
@pytest.mark.parametrize("labels", [20, 43, 141])
def test_certifying_count_is_of_queries_that_certify(labels: int, holdout: float, refuses: bool) -> None:
    """For all rules: as many as `CalibrationQueries` takes, none if the named policy's model cannot be fitted."""
    units = SamplingUnits.from_clusters(np.arange(labels))
    members = HoldoutSplit.by_query(np.random.default_rng(0), labels, holdout).calibration
    roles, scores = QueryRoles.assign(members, units, 0), np.zeros(labels, dtype=np.float32)
    top = TopK(scores[:, None], np.zeros((labels, 1), dtype=np.int64))
    judged = JudgedQueries(top, np.zeros((labels, 1), dtype=np.int64), np.ones(labels), scores)
    # Without held-out queries, those that fit the model limit ρ.
    answering = AnsweredQueries(
        scores, scores[:0], np.float32(0), certified=True, fitted=roles is not None and not holdout
    )
    scored = ScoredQueries(judged, top, None, None, answering if refuses else None)
    queries = CalibrationQueries(scored, members, np.zeros((1, 1), dtype=np.int64), roles, None, units, 0)
    for policy, guarantee in product((*get_args(ThresholdKind), "auto"), ("high-probability", "expected-loss")):
        rule = RuleVariant(holdout, ThresholdRule.from_options(policy=policy, guarantee=guarantee), refuses=refuses)
        expected = len(queries.certifying(model=rule.rule.needs_model))
        if roles is None and rule.rule.score is not None and rule.rule.score.needs_model:
            expected = 0
        assert certifying_count(rule, labels) == expected, (policy, guarantee)


WAYS = [way(0.0, "similarity"), way(0.3), way(0.3, "probability"), way(0.9, "auto", "expected-loss")]


@pytest.mark.parametrize("asked", WAYS)
@pytest.mark.parametrize("needed", [1, 59, 299])
def test_labels_needed_is_minimal(asked: RuleVariant, needed: int) -> None:
    labels = asked.labels_needed(needed)
    assert certifying_count(asked, labels) >= needed
    assert all(certifying_count(asked, fewer) < needed for fewer in range(labels))


def certificate(limit: str, queries: int, needed: int, bound: float = 0.2, loss: float = 0.0) -> Certificate:
    too_large = bound if loss or queries < needed else 0.01
    facts = {"effective_queries": queries, "loss": loss, "bound": too_large}
    return Certificate(limit=limit, most=0.05, queries=queries, queries_needed=needed, **facts)


LABEL = "label {} more queries with `taugate judge`"
# What was asked of 503 labelled queries, the limits, and what is said of them.
ADVICE = [
    ({}, [("accuracy", 352, 400)], f"Give --holdout 0, or {LABEL.format(68)}."),
    ({}, [("accuracy", 352, 700)], f"L{LABEL.format(497)[1:]} (197 with --holdout 0), or give --max-loss 0.2."),
    ({"policy": "probability"}, [("accuracy", 264, 299)], f"Give --policy relative, or {LABEL.format(67)}."),
    (
        {"policy": "probability"},
        [("accuracy", 264, 400)],
        f"Give --holdout 0 --policy relative, or {LABEL.format(258)}.",
    ),
    ({}, [("accuracy", 352, 59), ("empty", 352, 2995)], "or give --max-empty 0.2."),
    ({}, [("ndcg", 352, 599), ("empty", 352, 599)], "or give --max-loss 0.2 --max-empty 0.2."),
    ({"guarantee": "expected-loss"}, [("accuracy", 264, 999)], "or give --max-loss 0.2."),
    ({"method": "non-inferiority"}, [("accuracy", 352, 400)], f"Give --holdout 0, or {LABEL.format(68)}."),
    ({}, [("accuracy", 20, 59, 0.6)], f"Give --holdout 0, or {LABEL.format(1)}."),
]


@pytest.mark.parametrize(("asked", "limits", "says"), ADVICE)
def test_remedy_is_one_sentence_with_cheapest_ways(asked: dict, limits: list[tuple], says: str) -> None:
    rule = ThresholdRule.from_options(max_loss=[0.05], **asked)
    message = remedy(503, 0.3, rule, [certificate(*item) for item in limits])
    assert message.endswith(says) if says.startswith("or") else message == says
    assert ". " not in message and "; " not in message


def test_remedy_by_document_names_computed_limits() -> None:
    """The e-value of another structure of documents, or of another division of them, is not known here."""
    by_document = certificate("accuracy", 352, 400, bound=0.0771).model_copy(update={"unit": "document", "units": 60})
    message = remedy(503, 0.3, ThresholdRule.from_options(max_loss=[0.05]), [by_document])
    assert message == "Label 68 more queries about other documents with `taugate judge`, or give --max-loss 0.0771."


@pytest.mark.slow
@pytest.mark.parametrize("asked", [("--max-loss", "0.05"), ("--max-loss", "0.03", "--guarantee", "expected-loss")])
def test_remedy_options_certify(asked: tuple, tmp_path: Path, calibrate: Capture) -> None:
    """Every way that is named certifies a cut."""
    data, encoder = small(tmp_path, 43)
    code, _, error = calibrate(data, tmp_path / "r", encoder, *asked)
    assert code == 3
    (way,) = re.findall(r"[Gg]ive (--[^,]*?)[,.]? or |or give (--.*?)\.$", error.splitlines()[-1])
    code, manifest, _ = calibrate(data, tmp_path / "r", encoder, *asked, *"".join(way).split())
    assert (code, manifest["policy"]["kind"] != "none") == (0, True), way
