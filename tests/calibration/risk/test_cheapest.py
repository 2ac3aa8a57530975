"""What would be certified instead: the counts are those of a calibration, and the advice can be followed."""

import re
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.metrics.clusters import SamplingUnits
from taugate.calibration.metrics.splits import MIN_CALIBRATING, HoldoutSplit, QueryRoles
from taugate.calibration.risk.cheapest import RuleVariant, remedy
from taugate.calibration.settings.rules import ThresholdRule
from taugate.retrieval.release.evidence import Certificate
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
    assert way(holdout, "relative").certifying(labels) == len(members)
    assert way(holdout).certifying(labels) == len(members)
    assert way(holdout, "probability").certifying(labels) == len(parts.not_fitting) * enough
    certify = parts.not_fitting if enough else members  # with too few, `auto` is `relative`
    assert way(holdout, guarantee="expected-loss").certifying(labels) == len(certify)


WAYS = [way(0.0, "similarity"), way(0.3), way(0.3, "probability"), way(0.9, "auto", "expected-loss")]


@pytest.mark.parametrize("asked", WAYS)
@pytest.mark.parametrize("needed", [1, 59, 299])
def test_labels_needed_is_minimal(asked: RuleVariant, needed: int) -> None:
    labels = asked.labels_needed(needed)
    assert asked.certifying(labels) >= needed
    assert all(asked.certifying(fewer) < needed for fewer in range(labels))


def certificate(limit: str, queries: int, needed: int, bound: float = 0.2) -> Certificate:
    facts = {"effective_queries": queries, "loss": 0.0, "bound": 0.01 if queries >= needed else bound}
    return Certificate(limit=limit, most=0.05, queries=queries, queries_needed=needed, **facts)


# What was asked of 503 labelled queries, the limits, and what is said of them.
ADVICE = [
    ({}, [("accuracy", 352, 400)], "any of these can be certified: --holdout 0; --guarantee expected-loss"),
    ({}, [("accuracy", 352, 700)], "with 700 in all, --holdout 0 is enough; the request as it is needs about 1,000"),
    ({"policy": "probability"}, [("accuracy", 264, 299)], "certified: --policy relative; --holdout 0; "),
    ({"policy": "probability"}, [("accuracy", 264, 400)], "certified: --holdout 0 --policy relative; "),
    ({"policy": "similarity"}, [("accuracy", 352, 400)], "certified: --holdout 0; "),
    ({}, [("accuracy", 352, 59), ("empty", 352, 2995)], "--max-empty 0.2"),
    ({}, [("ndcg", 352, 599), ("empty", 352, 599)], "--max-loss 0.2 --max-empty 0.2"),
    (
        {"guarantee": "expected-loss"},
        [("accuracy", 264, 999)],
        "any of these can be certified: --max-loss 0.2. Label more with `taugate judge`: with 999",
    ),
    ({"method": "non-inferiority"}, [("accuracy", 352, 400)], "certified: --holdout 0; --max-loss 0.2."),
]


@pytest.mark.parametrize(("asked", "limits", "says"), ADVICE)
def test_remedy_names_cheapest_options(asked: dict, limits: list[tuple], says: str) -> None:
    rule = ThresholdRule.from_options(max_loss=[0.05], **asked)
    message = remedy(503, 0.3, rule, [certificate(*item) for item in limits])
    assert says.lower() in message.lower()
    assert "`taugate judge`" in message, "how to label more"
    if "guarantee" in asked or "method" in asked:
        assert "--guarantee" not in message


def test_remedy_by_document_names_computed_limits() -> None:
    """The e-value of another structure of documents, or of another division of them, is not known here."""
    by_document = certificate("accuracy", 352, 400, bound=0.0771).model_copy(update={"unit": "document", "units": 60})
    message = remedy(503, 0.3, ThresholdRule.from_options(max_loss=[0.05]), [by_document])
    assert "certified: --holdout 0; --max-loss 0.0771." in message


@pytest.mark.slow
@pytest.mark.parametrize("asked", [("--max-loss", "0.05"), ("--max-loss", "0.03", "--guarantee", "expected-loss")])
def test_remedy_options_certify(asked: tuple, tmp_path: Path, calibrate: Capture) -> None:
    """Every way that is named certifies a cut."""
    data, encoder = small(tmp_path, 43)
    code, _, error = calibrate(data, tmp_path / "r", encoder, *asked)
    assert code == 3
    (ways,) = re.findall(r"can be certified: (.*?)\. [A-Z]", error)
    ways = [way.removesuffix(" (on average)").split() for way in ways.split("; ")]
    assert len(ways) >= 2
    for way in ways:
        code, manifest, _ = calibrate(data, tmp_path / "r", encoder, *asked, *way)
        assert (code, manifest["policy"]["kind"] != "none") == (0, True), way
