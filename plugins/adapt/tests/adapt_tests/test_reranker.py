"""`taugate adapt --stage`: what a second stage learns, when it is accepted, and what a calibration makes of it.

The data are the sample with two copies of every answer, one of which has been appealed. The first stage cannot tell
them apart, and only the active one answers. Some questions have only the appealed copy, and so no answer.
"""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("accelerate")
import zaragoza_construction_faq

from adapt_tests.training.encoders import write_small_bert
from taugate.calibration.encoding.source import exported_encoder
from taugate.cli import main as cli
from taugate.registry.catalog import find
from taugate.release.adaptation import RerankerAdaptation, read_reranker_adaptation
from taugate.release.verify import verify_searchable
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from taugate.retrieval.rerank.late_interaction import LateInteraction
from taugate_adapt import trained_rerankers
from taugate_adapt.settings import NothingToLearn
from taugate_adapt.trained_rerankers import TRAINED, draw
from taugate_adapt.training import cross_encoding
from taugate_adapt.training.cross_encoding import ScoredPairs
from tests.calibration.commands import refusal

pytestmark = pytest.mark.model
FAQ = zaragoza_construction_faq.load(lang="en")
STEPS = {"rerank": 160, "late-interaction": 400}  # so many that neither is refused by chance
UNANSWERABLE = 4  # every fourth question has no answer
MARKS = ("active", "appealed")  # first words of the copies, each rare in the sample


def write_copies(folder: Path, *, questions: int = len(FAQ), meaningful: bool = True) -> Path:
    """Write the data set with every question in two forms; unless meaningful, chance says which copy answers."""
    swapped = np.random.default_rng(0).random(questions) < (0.0 if meaningful else 0.5)
    documents, queries, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for row, entry in enumerate(FAQ[:questions]):
        answered = row % UNANSWERABLE > 0
        valid, other = MARKS[:: -1 if swapped[row] else 1]
        kinds = [valid, other] if answered else [other]
        documents += [{"_id": f"d{row}-{kind}", "text": f"{8 * f'{kind} '}{entry['a']}"} for kind in kinds]
        for form in ("", "?"):
            queries.append({"_id": f"q{row}{form}", "text": entry["q"] + form, "answerable": answered})
            qrels.append(f"q{row}{form}\td{row}-{kinds[0]}\t{int(answered)}")
    (folder / "qrels").mkdir(parents=True)
    for name, lines in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n")
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bert(tmp_path_factory.mktemp("small"), layers=2, spread=0.05)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_copies(tmp_path_factory.mktemp("data") / "copies")


def arguments(data: Path, small: Path, target: Path, *more: str) -> list[str]:
    command = ["adapt", str(data), "--stage", "rerank", "--encoder", str(small), "--to", str(target)]
    return [*command, "--split", "test", "--budget", "160steps", *more]


@pytest.fixture(scope="module", params=["rerank", "late-interaction"])
def trained(
    copies: Path, small: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    target, stage = tmp_path_factory.mktemp("trained") / "reranker", request.param
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TRAINED[stage], "rate", 2e-3)  # a model of 32 dimensions needs larger steps
        patched.setattr(cross_encoding, "_FASTER", 1)  # and so its head has them already
        assert cli.main(arguments(copies, small, target, "--stage", stage, "--budget", f"{STEPS[stage]}steps")) == 0
    return target


def record_of(folder: Path) -> RerankerAdaptation:
    record = read_reranker_adaptation(folder)
    assert record is not None
    return record


def test_model_that_learned_is_accepted_on_unseen_documents(trained: Path) -> None:
    record = record_of(trained)
    assert (record.admitted, record.reason, record.evidence) == (True, None, "human")
    assert -record.gate.ndcg.loss.upper > 0.02
    assert record.separation is not None
    assert record.separation.candidate > record.separation.baseline + 0.05
    assert 50 < record.unanswerable < len(FAQ) / UNANSWERABLE + 1
    assert len(record.training.losses) == record.training.steps == STEPS[record.training.stage]
    assert record.first_stage_weight > 0


def test_release_serves_the_calibrated_sum_of_both_scores(
    trained: Path, copies: Path, small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--releases", str(tmp_path), "--encoder", str(small), "--rerank", f"auto:{trained}", "--refuse", "off"]
    options += ["--rerank-candidates", "5"]
    assert cli.main(["calibrate", str(copies), *options]) == 0
    assert "the reranker was trained on the split test" in capfd.readouterr().err
    folder = find(tmp_path)
    record = verify_searchable(folder).second_stage
    assert record is not None
    adapted = record_of(trained)
    weight = adapted.first_stage_weight
    assert record.first_stage_weight == pytest.approx(weight)
    late = adapted.training.stage == "late-interaction"
    assert record.kind == ("late-interaction" if late else "cross-encoder")
    release = load(folder)
    second = release.retriever.second
    assert second is not None
    query = FAQ[1]["q"]
    (answer,) = release.retriever.search([Query(query, 5)])
    assert answer.stage == "second"
    assert answer.read(release.documents)[0].id.endswith("-active")
    assert answer.first_scores is not None
    if isinstance(second.reranker, LateInteraction):
        assert second.reranker.vectors.weights is not None  # tokens count by their rarity, as in training
    alone = second.reranker.score(query, answer.positions)
    np.testing.assert_allclose(answer.scores, alone + weight * answer.first_scores, atol=1e-3)


def test_model_of_meaningless_labels_is_refused_by_adapt_and_by_auto(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, target, releases = (
        write_copies(tmp_path / "data", questions=200, meaningful=False),
        tmp_path / "model",
        tmp_path / "releases",
    )
    assert cli.main(arguments(data, small, target, "--budget", "40steps")) == 4
    assert "taugate: not accepted: " in capfd.readouterr().err
    assert not record_of(target).admitted
    options = ["--releases", str(releases), "--encoder", str(small), "--rerank", f"auto:{target}", "--refuse", "off"]
    options += ["--rerank-candidates", "5"]
    assert cli.main(["calibrate", str(data), *options]) == 0
    assert "taugate adapt did not accept the reranker: " in capfd.readouterr().err
    manifest = verify_searchable(find(releases))
    assert manifest.second_stage is None
    assert not manifest.gate[-1].admitted


def test_interrupted_training_resumes_to_same_bytes(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    few = write_copies(tmp_path / "data", questions=120)
    complete, again = tmp_path / "complete", tmp_path / "again"
    steps = ("--budget", "6steps")
    cli.main(arguments(few, small, complete, *steps))
    with monkeypatch.context() as patched:
        patched.setattr(trained_rerankers, "export_cross_encoder", interrupted)
        assert cli.main(arguments(few, small, again, *steps)) == 130
    assert not again.exists()
    capfd.readouterr()
    cli.main(arguments(few, small, again, *steps))
    assert "resuming the unfinished work" in capfd.readouterr().err
    for name in ("model.safetensors", "reranker-adaptation.json"):
        assert (again / name).read_bytes() == (complete / name).read_bytes()


def test_option_of_encoders_and_exported_base_are_refused(
    copies: Path, small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = refusal(arguments(copies, small, tmp_path / "model", "--recipe", "ft"), tmp_path / "model", capfd)
    assert text == "--recipe ft: is for encoders; leave it out with --stage rerank"
    exported = exported_encoder(str(small))
    text = refusal(arguments(copies, exported, tmp_path / "model"), tmp_path / "model", capfd)
    assert text.endswith("use the sentence-transformers folder from which it was exported")


def test_draws_show_every_query_with_an_answer_and_negatives() -> None:
    relevant = [np.array([0, 1]), np.array([2]), np.zeros(0, dtype=np.int64)]
    scores = [np.array([0.9, 0.8], np.float32), np.array([0.7], np.float32), np.zeros(0, np.float32)]
    negatives = np.array([[2, 3], [0, 3], [1, 3]])
    pairs = ScoredPairs("abc", ["0", "1", "2", "3"], relevant, scores, negatives, np.zeros((3, 2), np.float32))
    assert pairs.first_stage_weight() > 1
    drawn = pairs.draw(300, seed=0)
    assert [sorted(example.query for example in drawn[start : start + 3]) for start in (0, 3)] == 2 * [["a", "b", "c"]]
    shown = {query: [example.documents for example in drawn if example.query == query] for query in "abc"}
    assert {documents[0] for documents in shown["a"]} == {"0", "1"}
    hard = [documents[1] for documents in shown["a"]]
    assert hard.count("2") > hard.count("3") > 0  # the harder one more often
    assert {documents[3] for documents in shown["b"]} == {"0", "1", "3"}
    assert {*map(tuple, shown["c"])} == {("1",)}
    everything = ScoredPairs("a", ["0"], relevant[:1], scores[:1], np.full((1, 2), -1), np.zeros((1, 2), np.float32))
    with pytest.raises(NothingToLearn, match="add documents"):
        everything.draw(4, seed=0)


def test_late_interaction_draws_documents_after_queries_that_they_mislead() -> None:
    relevant = [np.array([0]), np.array([1]), np.array([1]), np.zeros(0, dtype=np.int64), np.array([2])]
    negatives = np.array([[1], [3], [3], [1], [0]])
    pairs = ScoredPairs(
        "abcde", "0123", relevant, [np.zeros(0, np.float32)] * 5, negatives, np.zeros((5, 1), np.float32)
    )
    drawn = draw(pairs, 5, seed=0)
    assert sorted(example.query for example in drawn) == [0, 1, 2, 3, 4]
    assert {example.query: example.document for example in drawn} == {0: 0, 1: 1, 2: 1, 3: 1, 4: 2}
    order = [*dict.fromkeys(example.document for example in drawn)]
    for document, following in pairwise(order):
        negative = {0: 1, 2: 0}.get(document, following)
        assert negative == following or negative in order[: order.index(document)]
    assert {example.negative for example in drawn if example.document == 1} == {3}
    everything = ScoredPairs(
        "a", "0", relevant[:1], [np.zeros(0, np.float32)], np.full((1, 1), -1), pairs.negative_scores
    )
    with pytest.raises(NothingToLearn, match="add documents"):
        draw(everything, 4, seed=0)
