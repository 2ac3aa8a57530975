"""Training through the encoder: what learns, what stays, what a checkpoint holds, and a loss that is no number."""

import resource
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("accelerate")
pytest.importorskip("datasets")
import torch
from sentence_transformers import SentenceTransformer

from adapt_tests.training.encoders import words, write_small_bert
from taugate.calibration.progress import Job
from taugate.errors import InputError
from taugate_adapt.linear import LinearMap
from taugate_adapt.settings import NothingToLearn
from taugate_adapt.training.fine_tuning import Triplets, fine_tune, fine_tune_layers, merge, with_map
from taugate_adapt.training.run import LossError, Schedule, TrainingRun
from taugate_adapt.training.upper_layers import LowerStates, RepeatedTextsLoss, upper_model

pytestmark = [pytest.mark.model, pytest.mark.slow]
DRAWN = np.random.default_rng(0)
DOCUMENTS = [" ".join(DRAWN.choice(words(), 12)) for _ in range(24)]
QUERIES = [" ".join(text.split()[:4]) for text in DOCUMENTS]
RELEVANT = [np.array([row]) for row in range(24)]
NEGATIVES = np.array([[(row + 1) % 24, (row + 2) % 24] for row in range(24)])
SCHEDULE = Schedule(steps=4, batch=8, rate=1e-3)


def triplets() -> Triplets:
    return Triplets.draw(QUERIES, DOCUMENTS, RELEVANT, NEGATIVES, 40, seed=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bert(tmp_path_factory.mktemp("small"))


@pytest.fixture
def model(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


def weights(model: SentenceTransformer) -> dict[str, torch.Tensor]:
    return {name: item.detach().clone() for name, item in model.named_parameters()}


def test_triplets_draw_queries_equally() -> None:
    result = triplets()
    assert len(result.queries) == len(result.positives) == len(result.negatives) == 40
    assert sorted(result.queries[:24]) == sorted(QUERIES)
    for query, positive, negative in zip(result.queries, result.positives, result.negatives, strict=True):
        row = QUERIES.index(query)
        assert positive == DOCUMENTS[row]
        assert DOCUMENTS.index(negative) in NEGATIVES[row]


def test_grouped_queries_share_document_and_negative() -> None:
    relevant = [np.array([row // 4]) for row in range(24)]
    negatives = np.array([[(row // 4 + 1) % 6, (row // 4 + 2) % 6] for row in range(24)])
    result = Triplets.draw(QUERIES, DOCUMENTS, relevant, negatives, 24, seed=0, together=4)
    assert sorted(result.queries) == sorted(QUERIES)
    for start in range(0, 24, 4):
        (positive,), (negative,) = (set(item[start : start + 4]) for item in (result.positives, result.negatives))
        assert {QUERIES.index(query) // 4 for query in result.queries[start : start + 4]} == {DOCUMENTS.index(positive)}
        assert (DOCUMENTS.index(negative) - DOCUMENTS.index(positive)) % 6 in {1, 2}


def test_answering_negative_separates_queries() -> None:
    relevant = [np.array([0]), np.array([0, 1])]
    result = Triplets.draw(QUERIES[:2], DOCUMENTS[:3], relevant, np.array([[1], [2]]), 40, seed=0, together=2)
    assert all(
        DOCUMENTS.index(negative) not in relevant[QUERIES.index(query)]
        for query, negative in zip(result.queries, result.negatives, strict=True)
    )


def test_repeated_documents_loss_equals_softmax(model: SentenceTransformer, tmp_path: Path) -> None:
    queries, positives, negatives = QUERIES[:3], [DOCUMENTS[0], DOCUMENTS[0], DOCUMENTS[2]], [DOCUMENTS[5]] * 3
    texts = [*dict.fromkeys(queries + positives + negatives)]
    states = LowerStates.compute(model, "small", 2, texts, TrainingRun(tmp_path, 0, Job()))
    with upper_model(model, "small", 2, states) as view, torch.no_grad():
        columns = [view.preprocess(item) for item in (queries, positives, negatives)]
        loss = float(RepeatedTextsLoss(view, scale=20.0)(columns, torch.zeros(3)))
    requested, answers = (torch.from_numpy(model.encode(item)) for item in (queries, positives + negatives))
    scores = 20 * torch.nn.functional.cosine_similarity(requested[:, None], answers[None], dim=2)
    scores[0, 1] = scores[1, 0] = -torch.inf
    expected = float(torch.nn.functional.cross_entropy(scores, torch.arange(3)))
    assert loss == pytest.approx(expected, abs=2e-2)  # the states are kept in float16
    assert columns[1]["input_ids"].shape[0] == 2, "each document is encoded once"


def test_upper_layers_equal_complete_model(model: SentenceTransformer, tmp_path: Path) -> None:
    expected = model.encode(QUERIES)
    run = TrainingRun(tmp_path, 0, Job())
    for _ in range(2):  # computed, and read from the file
        states = LowerStates.compute(model, "small", 2, QUERIES, run)
        with upper_model(model, "small", 2, states) as view, torch.no_grad():
            result = view(view.preprocess(QUERIES))["sentence_embedding"].numpy()
        assert result == pytest.approx(expected, abs=2e-3)  # the states are kept in float16
    assert model.encode(QUERIES) == pytest.approx(expected, abs=1e-6), "the lower layers are back"


def test_training_changes_last_layers_only(model: SentenceTransformer, tmp_path: Path) -> None:
    before = weights(model)
    losses = fine_tune_layers(model, "small", 2, triplets(), SCHEDULE, TrainingRun(tmp_path, 0, Job()))
    changed = {name for name, item in weights(model).items() if not torch.equal(item, before[name])}
    assert len(losses) == SCHEDULE.steps
    assert changed
    assert all("layer.1." in name or "layer.2." in name for name in changed)


def test_full_training_freezes_map(model: SentenceTransformer, tmp_path: Path) -> None:
    before = weights(model)
    learned = LinearMap(2 * np.eye(32, dtype=np.float32), np.full(32, 0.1, dtype=np.float32))
    complete = with_map(model, learned)
    long = Schedule(steps=30, batch=8, rate=1e-3)
    losses = fine_tune(complete, triplets(), long, TrainingRun(tmp_path, 0, Job()))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert any(not torch.equal(item, before[name]) for name, item in weights(model).items() if "embeddings" in name)
    assert np.array_equal(complete[-2].linear.weight.detach().numpy(), learned.weight)
    assert len(model) == 3, "the map belongs to the other view of the model"


def test_finished_stage_is_read(folder: Path, tmp_path: Path) -> None:
    result = []
    for _ in range(2):
        model = SentenceTransformer(str(folder), device="cpu")
        losses = fine_tune(model, triplets(), SCHEDULE, TrainingRun(tmp_path, 0, Job()))
        result.append((losses, weights(model)))
    assert result[0][0] == result[1][0]
    assert all(torch.equal(result[0][1][name], result[1][1][name]) for name in result[0][1])


def test_infinite_loss_stops_run(model: SentenceTransformer, tmp_path: Path) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(LossError, match="ft: the loss of step 1 is not a finite number; choose another recipe"):
        fine_tune(model, triplets(), SCHEDULE, TrainingRun(tmp_path, 0, Job()))


def test_merging_interpolates_weights(folder: Path) -> None:
    base, trained = (SentenceTransformer(str(folder), device="cpu") for _ in range(2))
    with torch.no_grad():
        for item in trained.parameters():
            item.add_(1)
    merge(base, trained, 0.25)
    for name, item in weights(trained).items():
        assert item.numpy() == pytest.approx(weights(base)[name].numpy() + 0.25, abs=1e-6)


def test_infinite_loss_removes_folder(model: SentenceTransformer, tmp_path: Path) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(LossError):
        fine_tune(model, triplets(), SCHEDULE, TrainingRun(tmp_path, 0, Job()))
    assert list(tmp_path.iterdir()) == []


def test_query_without_negatives_is_refused() -> None:
    with pytest.raises(NothingToLearn, match="every document may answer every query"):
        Triplets.draw(QUERIES, DOCUMENTS, RELEVANT, np.full((24, 2), -1), 40, seed=0)
    one = np.full((24, 2), -1)
    one[5, 1] = 6
    assert set(Triplets.draw(QUERIES, DOCUMENTS, RELEVANT, one, 40, seed=0).queries) == {QUERIES[5]}


@pytest.mark.parametrize("recipe", ["layers", "ft"])
def test_full_disk_during_training_is_refused(recipe: str, folder: Path, tmp_path: Path) -> None:
    """No file may grow beyond 4 KiB; with room again the same training goes on, to what it would have been."""

    def losses(work: Path) -> list[float]:
        model, run = SentenceTransformer(str(folder), device="cpu"), TrainingRun(work, 0, Job(), save=0.0)
        if recipe == "ft":
            return fine_tune(model, triplets(), SCHEDULE, run)
        return fine_tune_layers(model, "small", 2, triplets(), SCHEDULE, run)

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(InputError, match="the unfinished work cannot be written there .*; free some space"):
            losses(tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert losses(tmp_path / "full") == losses(tmp_path / "empty")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_training_uses_gpu(model: SentenceTransformer, tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, 0, Job(), bfloat16=True)
    torch.cuda.reset_peak_memory_stats()
    losses = fine_tune(model, triplets(), SCHEDULE, run)
    assert np.isfinite(losses).all()
    assert torch.cuda.max_memory_allocated() > 0
    assert model.device.type == "cpu", "it goes back, to be saved and exported"
