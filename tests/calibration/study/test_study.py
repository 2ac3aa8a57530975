"""What a study decides from scores: capabilities, the cheapest labels, growth, questions without an answer."""

import ast
import inspect
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import orjson
import pytest

from taugate.calibration.job.run import RunSearch
from taugate.calibration.metrics.inputs import clusters
from taugate.calibration.relevance import LabelledSearch, removed_documents, seem_answered
from taugate.calibration.settings import CalibrationSettings
from taugate.calibration.study import decide, outcomes
from taugate.calibration.study.corpus import question_parts
from taugate.calibration.study.refusing import Best, Growth
from taugate.calibration.threshold.shortage import RuleVariant, certifying_count, remedy
from taugate.cli import main as cli
from taugate.data.beir import Dataset, read_dataset
from taugate.data.questions import off_topic_questions, off_topic_table
from taugate.evidence.abstention.refusal import MAX_LOST, RefusalEvidence, ScoredQuestions
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import MIN_CALIBRATING, HoldoutSplit, QueryRoles
from taugate.evidence.measure import DrawnQueries
from taugate.evidence.ranking import AnsweredQueries, JudgedQueries, ScoredQueries
from taugate.evidence.rules import ThresholdRule
from taugate.evidence.threshold.policy_choice import CalibrationQueries
from taugate.policy.arrays import Float32
from taugate.policy.names import ThresholdKind
from taugate.release import queries
from taugate.release.evidence import Certificate
from taugate.release.layout import OUTCOMES, QUESTIONS
from taugate.release.manifest import Manifest
from taugate.release.queries import CalibrationQuestion, Outcomes
from taugate.release.refusal_records import QuestionKind
from taugate.release.verify import verify_searchable
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from tests.calibration.commands import Capture, Printed, small
from tests.calibration.report.studies import Studied, encode_with, studied


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


def test_run_has_scores_alone() -> None:
    inputs: Any = None
    run = RunSearch(inputs)
    assert (run.vectors, run.random, run.describe, run.corpus) == (None, None, None, None)


@pytest.mark.parametrize("module", [decide, outcomes])
def test_decisions_ask_capabilities_not_classes(module: Any) -> None:
    calls = [node.func for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    assert "isinstance" not in {call.id for call in calls if isinstance(call, ast.Name)}


DOCUMENTS, QUERIES, OFF_TOPIC, DIMENSION = 400, 1500, 300, 24


def unit(vectors: np.ndarray) -> Float32:
    return cast(Float32, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))


def searched(queries: Float32, documents: Float32) -> TopK:
    scores = queries @ documents.T
    positions = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    return TopK(np.take_along_axis(scores, positions, axis=1), positions)


def growth_of(
    documents: Float32, queries: Float32, owners: np.ndarray, off_topic: Float32
) -> tuple[Growth, RefusalEvidence]:
    """Return the growth of a corpus with the evidence for its ρ; query i is answered by document `owners[i]`."""
    top, others = searched(queries, documents), searched(off_topic, documents)
    relevant = top.positions == owners[:, None]
    judged = SimpleNamespace(top=top, relevant=relevant, accuracy=lambda: relevant.any(axis=1).astype(float))
    dataset = SimpleNamespace(documents=documents, parents=None)
    search = cast(LabelledSearch, SimpleNamespace(judged=judged, dataset=dataset))
    found = np.flatnonzero(relevant.any(axis=1))

    def take(best: Best) -> dict[QuestionKind, ScoredQuestions]:
        questions = ScoredQuestions.of(best(others), np.arange(len(off_topic)), np.ones(len(off_topic), dtype=np.bool_))
        assert questions is not None
        return {"off_topic": questions}

    def first(top: TopK) -> Float32:
        return top.scores[:, 0]

    right = ScoredQuestions.of(first(top)[found], found, np.ones(len(found), dtype=np.bool_))
    evidence = RefusalEvidence(right, take(first), 0, MAX_LOST)
    return Growth(search, take, seed=0), evidence


def test_forecast_is_close_to_the_doubled_corpus() -> None:
    forecasts, truths, today = [], [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        documents = unit(rng.normal(size=(2 * DOCUMENTS, DIMENSION)))
        off_topic = unit(rng.normal(size=(OFF_TOPIC, DIMENSION)))
        owners = rng.integers(0, 2 * DOCUMENTS, QUERIES)
        queries = unit(documents[owners] + rng.normal(size=(QUERIES, DIMENSION)) * 0.2)
        old = owners < DOCUMENTS
        growth, evidence = growth_of(documents[:DOCUMENTS], queries[old], owners[old], off_topic)
        after = growth_of(documents, queries, owners, off_topic)[1]
        shares = [(each.kinds["off_topic"].scores < np.float32(evidence.rho)).mean() for each in (evidence, after)]
        forecast = growth.doubled(evidence)
        assert forecast.documents == 2 * DOCUMENTS
        assert growth.doubled(evidence) == forecast
        forecasts.append((forecast.rho, forecast.refused))
        truths.append((after.rho, shares[1]))
        today.append((evidence.rho, shares[0]))
    rho, refused = np.abs(np.array(forecasts) - truths).mean(axis=0)
    unchanged = np.abs(np.array(today) - truths).mean(axis=0)
    assert rho < 0.4 * unchanged[0]
    assert refused < 0.4 * unchanged[1]


def tau_of(manifest: Manifest) -> np.float32:
    """Return τ in force."""
    assert manifest.policy.threshold is not None
    return manifest.policy.threshold


def _kept(question: CalibrationQuestion, manifest: Manifest) -> int:
    """Count the results that a user gets for a question, as documented in the fields of CalibrationQuestion."""
    _, rho = manifest.answer_threshold or (None, None)
    if rho is not None and question.refusal is not None and np.float32(question.refusal) < np.float32(rho):
        return 0
    passing = np.asarray(question.values, dtype=np.float32) >= tau_of(manifest)
    return int((passing | (np.arange(len(passing)) == 0)).sum() if rho is not None else passing.sum())


@pytest.mark.parametrize("options", [[], ["--max-loss", "0.05", "--policy", "relative", "--refuse", "off"],
                                     ["--max-loss", "0.05", "--policy", "probability"]])  # fmt: skip
def test_listed_questions_have_outcomes_of_calibration(
    sample: Path, encoder: Path, tmp_path: Path, options: list[str]
) -> None:
    assert cli.main(["calibrate", str(sample), "--releases", str(tmp_path), "--encoder", str(encoder), *options]) == 0
    (release,) = tmp_path.glob("*Z-*")
    manifest = verify_searchable(release)
    listed = [
        CalibrationQuestion(**orjson.loads(line)) for line in queries.read_calibration_questions(release / QUESTIONS)
    ]
    assert [each.kind for each in listed].count("answerable") == manifest.data.answerable
    heldout = [each for each in listed if each.heldout]
    outcomes = Outcomes.load(release / OUTCOMES, manifest.policy.k)
    assert [each.rank is not None for each in heldout] == outcomes.hit.tolist()
    assert [_kept(each, manifest) for each in heldout] == outcomes.kept.tolist()
    _, rho = manifest.answer_threshold or (None, None)
    right = [each.outcome(manifest.policy.tau, rho) == "kept" for each in heldout]
    assert right == outcomes.hit_kept.tolist()
    assert len(listed) - manifest.data.answerable == 150  # off-topic questions in English that state


def test_rho_is_used_as_given(sample: Path, encoder: Path, tmp_path: Path, capsys: Printed) -> None:
    given = ["calibrate", str(sample), "--releases", str(tmp_path), "--encoder", str(encoder)]
    assert cli.main([*given, "--policy", "similarity", "--tau", "0.4", "--refuse", "0.3", "--json"]) == 0
    manifest = orjson.loads(capsys.readouterr().out)["manifest"]
    assert (manifest["policy"]["tau"], manifest["refusal"]["rho"]) == (0.4, 0.3)
    assert manifest["refusal"]["evidence"]["off_topic"]["queries"] == 150


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "give --tau and --policy as well"),
        (["--max-loss", "0.02"], "give --tau and --policy as well"),
        (["--policy", "similarity", "--tau", "0.4", "--no-refusal"], "--refuse 0.3 is given as well"),
        (["--policy", "similarity", "--tau", "0.4", "--refuse", "nan"], "--refuse"),
    ],
)
def test_rho_beside_other_rules_is_refused(
    sample: Path, tmp_path: Path, options: list[str], reason: str, capsys: Printed
) -> None:
    assert cli.main(["calibrate", str(sample), "--releases", str(tmp_path), "--refuse", "0.3", *options]) == 2
    assert reason in capsys.readouterr().err


SEARCHED = 200


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return small(tmp_path_factory.mktemp("made"), SEARCHED, texts=100)


@pytest.fixture(scope="module")
def refusing(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Studied:
    return studied(*made, tmp_path_factory.mktemp("refusing") / "s", refuse="auto")


@pytest.fixture(scope="module")
def papers(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Studied:
    return studied(*made, tmp_path_factory.mktemp("papers") / "s")


def test_refusing_calibration_measures_relevance_on_a_mixture(refusing: Studied, papers: Studied) -> None:
    record, plain = refusing.found.manifest.relevance, papers.found.manifest.relevance
    assert record is not None
    assert plain is not None
    assert (record.unanswerable_share, plain.unanswerable_share) == (0.5, None)
    heldout = len(refusing.found.parts["heldout"].members)
    # Off-topic questions that measure, and the held-out queries without their documents.
    asked = off_topic_questions(query.text for query in refusing.found.search.dataset.answerable)
    assert record.unanswerable == sum(not question.chooses for question in asked) + heldout
    assert record.queries == plain.queries == heldout
    assert refusing.manifest().relevance == record


def test_refusing_calibration_lowers_relevance_of_removed_documents(
    refusing: Studied, papers: Studied, made: tuple[Path, Path]
) -> None:
    encoded = encode_with(made[1], refusing.found.search.dataset)
    top, rows = removed_documents(refusing.found.search.dataset, encoded, FlatIndex.build(encoded.documents), 5)
    found, plain = (
        study.found.estimated.relevance.estimate(encoded.answerable[rows], top)  # type: ignore[union-attr]
        for study in (refusing, papers)
    )
    assert found[:, 0].mean() < 0.8 * plain[:, 0].mean()
    assert refusing.found.scored.relevance is not None
    assert papers.found.scored.relevance is not None
    order, plain_order = (np.argsort(-study.found.scored.relevance, axis=1) for study in (refusing, papers))  # type: ignore[operator]
    assert (order[:, 0] == plain_order[:, 0]).all()


def test_removed_documents_are_not_among_the_results(made: tuple[Path, Path], tmp_path: Path) -> None:
    dataset = read_dataset(made[0], "test", tmp_path)
    encoded = encode_with(made[1], dataset)
    index = FlatIndex.build(encoded.documents)
    top, rows = removed_documents(dataset, encoded, index, 5)
    everything = index.search(encoded.answerable, len(dataset.documents))
    assert rows.tolist() == list(range(SEARCHED))
    for row, query in enumerate(dataset.answerable):
        remaining = [at for at in everything.positions[row].tolist() if at not in query.relevant]
        assert top.positions[row].tolist() == remaining[:5]
    assert (np.diff(top.scores, axis=1) <= 0).all()
    assert removed_documents(dataset, encoded, index, 100)[1].size == 0  # 99 documents remain


def test_questions_that_score_high_and_share_words_seem_answered(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = read_dataset(made[0], "test", tmp_path)
    text = dataset.documents[3].text
    asked = [off_topic_table()[0]._replace(text=question) for question in (text, text, "Why does bread rise?")]
    monkeypatch.setattr(Dataset, "off_topic", asked)
    top = TopK(np.array([[0.9], [0.4], [0.9]], dtype=np.float32), np.array([[3], [3], [3]]))
    right = np.array([0.5, 0.6, 0.7], dtype=np.float32)
    assert seem_answered(dataset, top, right).tolist() == [True, False, False]
    assert not seem_answered(dataset, top, right[:0]).any()


def test_queries_that_measure_make_no_questions_to_learn_from(made: tuple[Path, Path], tmp_path: Path) -> None:
    units = SamplingUnits.from_clusters(clusters(read_dataset(made[0], "test", tmp_path).answerable))
    for holdout in (0.3, 0.0):
        drawn = DrawnQueries.draw(units, 100, CalibrationSettings(holdout=holdout))
        roles = QueryRoles.draw(drawn.parts["calibration"].members, units, 0)
        learns, measures = question_parts(drawn.parts, roles, SEARCHED)
        assert not (learns & measures).any()
        assert (learns | measures).all() or not holdout
        expected = drawn.parts["heldout"].members if holdout else roles.not_fitting
        assert np.flatnonzero(measures).tolist() == expected.tolist()
