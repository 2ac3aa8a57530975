"""`taugate calibrate --max-answered …` from end to end: what is written, served, promoted, refused and said."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.metrics.inputs import clusters
from taugate.cli import main as cli
from taugate.data.beir import read_dataset
from taugate.data.questions import off_topic_table
from taugate.registry.catalog import current_id
from taugate.release.layout import content_digest
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, Printed, arguments, refusal, small
from tests.fake_encoder import write_fake_encoder

ASKED = ("--max-answered", "0.2", "--max-empty", "0.2")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """120 answerable queries, each about a document of its own, and an encoder that finds it.

    The encoder knows the words of all other questions as well, so that none is refused as unreadable.
    """
    folder = tmp_path_factory.mktemp("plain")
    data, _ = small(folder, 120, texts=120)
    documents = [json.loads(line)["text"] for line in (data / "corpus.jsonl").open(encoding="utf-8")]
    remaining = [
        *(question.text for question in off_topic_table()),
        "unknown things",
        "nothing of the kind",
        *(f"word{row}" for row in range(400)),
    ]
    return data, write_fake_encoder(folder / "knowing", [*documents, *remaining])


def with_unanswerable(plain: Path, folder: Path, texts: list[str]) -> Path:
    """The same with queries that no document answers, each judged against another one."""
    data = shutil.copytree(plain, folder)
    with (data / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.writelines(json.dumps({"_id": f"u{row}", "text": text}) + "\n" for row, text in enumerate(texts))
    with (data / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.writelines(f"u{row}\td{row}\t0\n" for row in range(len(texts)))
    return data


@pytest.fixture(scope="module")
def far(plain: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries of which one word is known: they are less like any document than the answerable ones."""
    return with_unanswerable(plain[0], tmp_path_factory.mktemp("far") / "data", texts_of(1))


@pytest.fixture(scope="module")
def near(plain: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries in the very words of answerable ones: nothing tells them apart."""
    queries = [json.loads(line)["text"] for line in (plain[0] / "queries.jsonl").open(encoding="utf-8")]
    return with_unanswerable(plain[0], tmp_path_factory.mktemp("near") / "data", queries[:80])


def texts_of(known: int) -> list[str]:
    return [" ".join([*(f"word{row + item}" for item in range(known)), "unknown things"]) for row in range(80)]


def test_certified_limits_are_served(plain: tuple[Path, Path], far: Path, tmp_path: Path, calibrate: Capture) -> None:
    code, manifest, error = calibrate(far, tmp_path / "r", plain[1], *ASKED)
    assert code == 0
    assert current_id(tmp_path / "r") == manifest["release_id"]
    record = manifest["refusal"]["limits"]
    answered, refused = record["answered"], record["refused"]
    assert manifest["refusal"]["certified"]
    assert (answered["asked"], answered["upper"], refused["asked"]) == (0.2, 0.2, 0.2)
    assert refused["found"] <= refused["upper"] <= 0.2
    assert manifest["refusal"]["evidence"]["unanswerable"]["lower"] == 0.8
    message = error.splitlines()
    first = next(
        at for at, line in enumerate(message) if line.startswith("Of 100 questions that have no answer here, ")
    )
    assert "accuracy@5" in message[first + 2]  # before the table
    assert record["guarantee"] in error
    assert record["guarantee"] in (tmp_path / "r" / manifest["release_id"] / "report.html").read_text("utf-8")

    retriever = load(tmp_path / "r" / manifest["release_id"]).retriever
    unanswerable = retriever.search([Query(text, k=5) for text in texts_of(1)])
    assert {answer.reason for answer in unanswerable} <= {"unanswerable", None}
    empty = np.mean([not len(answer.positions) for answer in unanswerable])
    assert empty >= 0.8
    queries = [json.loads(line)["text"] for line in (plain[0] / "queries.jsonl").open(encoding="utf-8")]
    answers = retriever.search([Query(text, k=5) for text in queries])
    kept = 120 - round(0.3 * 120)
    order = np.random.default_rng(0).permutation(120)
    for name, members in (("calibration", order[:kept]), ("heldout", order[kept:])):
        metrics = manifest["metrics"][name]
        assert metrics["abstention"]["unanswerable_empty"] == pytest.approx(empty)
        chosen = [answers[row] for row in members.tolist()]
        assert np.mean([not len(item.positions) for item in chosen]) == metrics["abstention"]["answerable_empty"]
        assert np.mean([len(item.positions) / 5 for item in chosen]) == pytest.approx(metrics["kept_fraction"])

    _, again, _ = calibrate(far, tmp_path / "again", plain[1], *ASKED)
    assert content_digest(again) == content_digest(manifest)
    _, papers, _ = calibrate(far, tmp_path / "papers", plain[1])
    assert papers["refusal"].get("limits") is None
    assert papers["policy"] == manifest["policy"]  # refusals say nothing of the cut
    for name in ("accuracy", "ndcg", "coe", "roe"):
        assert papers["metrics"]["heldout"][name] == manifest["metrics"]["heldout"][name]


def test_impossible_limits_are_not_promoted(
    plain: tuple[Path, Path], near: Path, tmp_path: Path, calibrate: Capture
) -> None:
    code, manifest, error = calibrate(near, tmp_path / "r", plain[1], *ASKED)
    assert code == 4
    assert current_id(tmp_path / "r") is None
    limits = manifest["refusal"]["limits"]
    assert not manifest["refusal"]["certified"]
    assert limits["refused"]["upper"] == 0.2
    assert limits["answered"]["upper"] > 0.5
    message = [line for line in error.splitlines() if line.startswith("taugate: ")]
    assert len(message) == 1
    for part in ("cannot both hold", "at most 20 % of answerable queries", "Allow --max-answered", "not promoted"):
        assert part in message[0]
    rule = ["--if", "accuracy not lower", "--releases", str(tmp_path / "r")]
    assert cli.main(["release", "promote", manifest["release_id"], *rule]) == 4
    assert current_id(tmp_path / "r") is None
    retriever = load(tmp_path / "r" / manifest["release_id"]).retriever  # whoever wants it all the same can promote it
    assert retriever.search([Query("nothing of the kind", k=5)])[0].reason == "unanswerable"


def test_missing_labels_are_counted(plain: tuple[Path, Path], near: Path, tmp_path: Path, calibrate: Capture) -> None:
    code, _, error = calibrate(near, tmp_path / "r", plain[1], "--max-answered", "0.01")
    assert code == 4
    assert "--max-answered 0.01 takes 368 certifying unanswerable queries, and there are " in error


def test_no_unanswerable_queries_are_refused(plain: tuple[Path, Path], tmp_path: Path, capfd: Printed) -> None:
    data, encoder = plain
    message = refusal(arguments(data, tmp_path / "r", encoder, "--max-answered", "0.2"), tmp_path / "r", capfd)
    assert message.startswith("--max-answered 0.2: the split test has no unanswerable queries")
    assert "label some, each with a score of 0" in message


def test_off_topic_estimate_is_named(plain: tuple[Path, Path], tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = plain
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, "--refuse", "off")
    assert code == 0
    ((kind, record),) = manifest["refusal"]["evidence"].items()
    (tmp_path / "spool").mkdir()
    requested = read_dataset(data, "test", tmp_path / "spool").off_topic_texts
    assert (kind, record["queries"]) == ("off_topic", len(requested))
    assert record["lower"] < record["refused"] / len(requested) or record["lower"] == record["refused"] == 0
    for part in (f"{len(requested)} questions about other subjects", "easy cases", "optimistic"):
        assert part in error
    answers = load(tmp_path / "r" / manifest["release_id"]).retriever.search([Query(text, k=5) for text in requested])
    assert record["refused"] == sum(not len(answer.positions) for answer in answers)


def test_both_kinds_share_clusters(far: Path, tmp_path: Path) -> None:
    dataset = read_dataset(far, "test", tmp_path)
    assert [query.judged for query in dataset.unanswerable[:3]] == [(0,), (1,), (2,)]
    assert not any(query.judged for query in dataset.answerable)
    labels = clusters(dataset.answerable + dataset.unanswerable)
    assert labels[:120].tolist() == clusters(dataset.answerable).tolist() == list(range(120))
    assert labels[120:].tolist() == list(
        range(80)
    )  # judged against the document of the answerable query of that number
