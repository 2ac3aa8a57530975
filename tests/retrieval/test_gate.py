"""The gate cuts live results as the calibration cut those of the run, and says if they are not covered."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.errors import InputError, ReleaseError
from taugate.registry.catalog import find
from taugate.release.layout import MANIFEST
from taugate.retrieval.gate import MAX_RESULTS, Gate, ScoredResult
from taugate.retrieval.golden import GoldenResults, compare, grown_store, read_golden_results, write_golden_results
from taugate_client import Gate as ClientGate
from taugate_client import InvalidConfiguration, InvalidRequest
from tests.runs import dense_results, fused_with_cosine, write_json

CORPUS_OPTIONS = ("--refuse", "off", "--lexical", "off")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    folder = tmp_path_factory.mktemp("run")
    calibrate = ["calibrate", str(sample), "--releases", str(folder / "releases"), "--encoder", str(encoder)]
    assert cli.main([*calibrate, *CORPUS_OPTIONS]) == 0
    return fused_with_cosine(write_json(folder / "dense.jsonl", dense_results(sample, folder / "releases")))


@pytest.fixture(scope="module", params=["relative", "gap", "similarity", "probability"])
def calibrated(
    request: pytest.FixtureRequest, run: Path, sample: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    releases = tmp_path_factory.mktemp("releases")
    options = ("--policy", request.param, "--max-loss", "0.1", "--drawn", "queries", "--holdout", "0")
    command = ["calibrate-run", str(run), str(sample / "qrels" / "test.tsv"), "--releases", str(releases), *options]
    assert cli.main(command) == 0
    return find(releases)


@pytest.fixture(scope="module")
def gate(run: Path, sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Gate:
    releases = tmp_path_factory.mktemp("releases")
    options = ("--policy", "probability", "--max-loss", "0.1", "--drawn", "queries")
    command = ["calibrate-run", str(run), str(sample / "qrels" / "test.tsv"), "--releases", str(releases), *options]
    assert cli.main(command) == 0
    return Gate.load(find(releases))


def results_of(run: Path) -> list[list[ScoredResult]]:
    lines = run.read_text(encoding="utf-8").splitlines()
    return [
        [ScoredResult(result["id"], result["score"], result["scores"]) for result in json.loads(line)["results"]]
        for line in lines
    ]


def test_gate_keeps_what_the_calibration_kept_to_the_bit(run: Path, calibrated: Path) -> None:
    gate = Gate.load(calibrated)
    replies = [gate.cut(results) for results in results_of(run)]
    assert [reply.uncut_kept for reply in replies] == gate.reference.kept.tolist()
    assert [len(reply.results) for reply in replies] == gate.reference.kept.tolist()
    np.testing.assert_array_equal(np.array([reply.uncut for reply in replies]), gate.reference.top)
    assert all(reply.calibrated for reply in replies)


def test_reply_names_rank_relevance_threshold_and_policy(run: Path, gate: Gate) -> None:
    reply = gate.cut(results_of(run)[0])
    assert (reply.policy, reply.threshold) == ("probability", float(np.float32(gate.manifest.policy.tau or 0)))
    assert (reply.considered, len(reply.positions)) == (5, len(reply.results))
    for kept in reply.results:
        assert kept.relevance is not None
        assert kept.relevance >= (reply.threshold or 0)


Change = Callable[[list[ScoredResult]], list[ScoredResult]]
CHANGES: dict[str, Change] = {
    "fewer_than_k": lambda results: results[:3],
    "not_sorted": lambda results: results[::-1],
    "missing_score:cosine": lambda results: [replace(result, scores={}) for result in results],
    "outside_calibrated_range": lambda results: [replace(result, score=10 * result.score) for result in results],
}


@pytest.mark.parametrize("reason", CHANGES)
def test_results_outside_the_calibration_say_why(run: Path, gate: Gate, reason: str) -> None:
    reply = gate.cut(CHANGES[reason](results_of(run)[0]))
    assert (reply.calibrated, reply.why_not) == (False, reason)


def test_shuffled_results_are_ranked_by_their_scores(run: Path, gate: Gate) -> None:
    results = results_of(run)[0]
    assert [kept.id for kept in gate.cut(results[::-1]).results] == [kept.id for kept in gate.cut(results).results]


def test_no_results_give_a_reply_with_its_reason(gate: Gate) -> None:
    reply = gate.cut([])
    assert (reply.results, reply.reason, reply.why_not) == ([], "no_results", "fewer_than_k")


def test_other_k_is_not_covered(run: Path, gate: Gate) -> None:
    reply = gate.cut(results_of(run)[0], k=8)
    assert (reply.considered, reply.why_not) == (8, "other_k")


def test_ten_thousand_equal_scores_are_cut(gate: Gate) -> None:
    results = [ScoredResult(str(place), 0.016, {"cosine": 0.5}) for place in range(MAX_RESULTS)]
    assert gate.cut(results).considered == 5


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([ScoredResult("a", float("nan"), {})], "results.0.score: nan is not a finite number"),
        ([ScoredResult("a", 1.0, {"cosine": float("inf")})], "results.0.scores.cosine: inf is not a finite number"),
        ([ScoredResult("a", 1.0, {}), ScoredResult("a", 0.5, {})], "results.1.id: 'a' is listed twice"),
        ([ScoredResult(str(place), 0.0, {}) for place in range(MAX_RESULTS + 1)], "results: 10,001 are over 10,000"),
    ],
    ids=["NaN", "infinity", "duplicate", "too many"],
)
def test_invalid_results_are_refused(gate: Gate, results: list[ScoredResult], message: str) -> None:
    with pytest.raises(InputError) as refused:
        gate.cut(results)
    assert str(refused.value).startswith(message)


def test_release_with_a_corpus_has_no_gate(releases: Path) -> None:
    with pytest.raises(ReleaseError, match="has a corpus, so a service searches it"):
        Gate.load(find(releases))


def test_changed_release_is_refused(calibrated: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(calibrated, tmp_path / calibrated.name)
    (copy / MANIFEST).write_bytes((copy / MANIFEST).read_bytes().replace(b'"tau"', b'"Tau"', 1))
    with pytest.raises(ReleaseError):
        Gate.load(copy)


def test_client_gate_replies_as_the_gate_does(run: Path, calibrated: Path) -> None:
    line = json.loads(run.read_text(encoding="utf-8").splitlines()[0])
    reply, expected = ClientGate(calibrated.parent).cut(line["results"]), Gate.load(calibrated).cut(results_of(run)[0])
    assert (reply.results, reply.calibrated) == (expected.results, expected.calibrated)
    with pytest.raises(InvalidRequest, match="every result needs an id, a score"):
        ClientGate(calibrated.parent).cut([{"id": "a"}])


def test_client_gate_names_a_missing_release(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="no release is current"):
        ClientGate(tmp_path / "absent")


def test_client_gate_loads_no_encoder_or_index(calibrated: Path) -> None:
    code = f"import sys, taugate_client; taugate_client.Gate({str(calibrated.parent)!r}).cut([]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "onnxruntime", "faiss", "tokenizers", "sklearn", "scipy"} & {*done.stdout.split()}


def questions(seed: int = 0) -> list[GoldenResults]:
    rng = np.random.default_rng(seed)
    return [
        GoldenResults(
            f"q{number}",
            None,
            [
                ScoredResult(f"d{number}-{place}", score, {"bm25": 10 * score})
                for place, score in enumerate(sorted(rng.uniform(0.2, 0.9, 5).tolist(), reverse=True))
            ],
        )
        for number in range(16)
    ]


def live(golden: list[GoldenResults]) -> dict[str, list[ScoredResult]]:
    return {question.query_id: question.results for question in golden}


def test_written_questions_are_read_again(tmp_path: Path) -> None:
    write_golden_results(tmp_path / "golden.jsonl", questions())
    assert read_golden_results(tmp_path / "golden.jsonl") == questions()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b'{"query_id": "q", "query": null, "results": []}\n',
        b'{"query_id": "q", "query": null, "results": [{"id": "d", "score": 1e39, "scores": {}}]}\n',
        b'{"query_id": "q", "query": null, "results": [{"id": "d", "score": "1", "scores": {}}]}\n',
    ],
)
def test_invalid_content_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "golden.jsonl").write_bytes(content)
    with pytest.raises(ReleaseError, match="does not hold golden questions"):
        read_golden_results(tmp_path / "golden.jsonl")


@pytest.mark.parametrize(("changed", "objects"), [(3, False), (5, True)])
def test_quarter_of_moved_scores_is_another_retriever(changed: int, *, objects: bool) -> None:
    golden = questions()
    moved = [
        replace(question, results=[replace(result, score=result.score + 0.3) for result in question.results])
        for question in golden[:changed]
    ]
    deviation = compare(golden, live(golden) | live(moved))
    assert (deviation.objection is not None) == objects


def test_component_that_moves_is_named() -> None:
    golden = questions()
    moved = [
        replace(
            question,
            results=[replace(result, scores={"bm25": result.scores["bm25"] + 1}) for result in question.results],
        )
        for question in golden
    ]
    assert (compare(golden, live(moved)).objection or "").startswith("scores bm25 moved by 1 (tolerance ")


def test_equal_recorded_scores_tolerate_rounding_only() -> None:
    golden = [GoldenResults("q", "text", [ScoredResult(str(place), 0.5, {}) for place in range(5)])]
    for factor, alike in ((1 + 1e-8, True), (1 + 1e-6, False)):
        results = {"q": [replace(result, score=factor * 0.5) for result in golden[0].results]}
        assert (compare(golden, results).objection is None) == alike


def test_results_that_cannot_be_cut_are_refused() -> None:
    golden = questions()
    with pytest.raises(InputError, match="'q0' are missing"):
        compare(golden, {})
    with pytest.raises(InputError, match="is not a finite number"):
        compare(golden, live(golden) | {"q0": [ScoredResult("d", float("nan"), {})]})


def test_grown_store_answers_more_than_promised() -> None:
    """Of four unanswerable questions one had a result at the calibration; one in ten was promised."""
    golden = [
        GoldenResults(f"u{row}", None, [ScoredResult("d", 0.1 * row, None)], unanswerable=True) for row in range(4)
    ]
    refusal = Mock(limits=Mock(answered=Mock(asked=0.1)))
    gate = Mock(
        manifest=Mock(refusal=refusal),
        cut=lambda results: Mock(results=[result for result in results if result.score > 0.25]),
    )
    assert grown_store(golden, live(golden), gate) is None
    grown = {question.query_id: [ScoredResult("new", 0.9, None)] for question in golden[:2]}
    assert "3 of 4 unanswerable questions get a result, 1 at" in str(grown_store(golden, live(golden) | grown, gate))
    assert grown_store(golden, live(golden) | grown, Mock(manifest=Mock(refusal=None))) is None


def test_grown_store_answers_off_topic_questions_that_rho_refused() -> None:
    """ρ was stated to refuse nine in ten questions of the worse kind."""
    golden = [GoldenResults(f"o{row}", None, [ScoredResult("d", 0.1, None)], unanswerable=True) for row in range(10)]
    refusal = Mock(limits=None, evidence={"off_topic": Mock(lower=0.95), "request": Mock(lower=0.9)})
    gate = Mock(
        manifest=Mock(refusal=refusal),
        cut=lambda results: Mock(results=[result for result in results if result.score > 0.25]),
    )
    grown = [{question.query_id: [ScoredResult("new", 0.9, None)] for question in golden[:count]} for count in (1, 2)]
    assert grown_store(golden, live(golden) | grown[0], gate) is None
    assert str(grown_store(golden, live(golden) | grown[1], gate)).startswith("2 of 10 off-topic questions and short")


def test_unanswerable_questions_do_not_move_scores() -> None:
    golden = questions()
    longer = [*golden, GoldenResults("u", None, [ScoredResult("d", 0.1, None)], unanswerable=True)]
    assert compare(longer, live(golden) | {"u": []}).recorded == compare(golden, live(golden)).recorded
