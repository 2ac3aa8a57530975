"""Training through the encoder: what learns, what stays, what a checkpoint holds, and a loss that is no number."""

import resource
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("accelerate")
pytest.importorskip("datasets")
import torch
from sentence_transformers import SentenceTransformer

from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.training.fine_tuning import Triplets, fine_tune, fine_tune_layers, with_map
from taugate.adaptation.training.merging import merge
from taugate.adaptation.training.plan import NothingToLearn
from taugate.adaptation.training.repeated_texts import RepeatedTextsLoss
from taugate.adaptation.training.run import LossError, Schedule, TrainingRun
from taugate.adaptation.training.upper_layers import LowerStates, upper_model
from taugate.calibration.progress import Stopwatch
from taugate.errors import InputError
from tests.adaptation.training.encoders import words, write_small_bert

pytestmark = pytest.mark.model
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
    return {name: each.detach().clone() for name, each in model.named_parameters()}


def test_every_query_is_drawn_as_often_with_an_answer_and_a_negative_of_its_own() -> None:
    found = triplets()
    assert len(found.queries) == len(found.positives) == len(found.negatives) == 40
    assert sorted(found.queries[:24]) == sorted(QUERIES)
    for query, positive, negative in zip(found.queries, found.positives, found.negatives, strict=True):
        row = QUERIES.index(query)
        assert positive == DOCUMENTS[row]
        assert DOCUMENTS.index(negative) in NEGATIVES[row]


def test_queries_drawn_together_share_a_document_and_a_negative_that_answers_none_of_them() -> None:
    relevant = [np.array([row // 4]) for row in range(24)]
    negatives = np.array([[(row // 4 + 1) % 6, (row // 4 + 2) % 6] for row in range(24)])
    found = Triplets.draw(QUERIES, DOCUMENTS, relevant, negatives, 24, seed=0, together=4)
    assert sorted(found.queries) == sorted(QUERIES)
    for start in range(0, 24, 4):
        (positive,), (negative,) = (set(each[start : start + 4]) for each in (found.positives, found.negatives))
        assert {QUERIES.index(query) // 4 for query in found.queries[start : start + 4]} == {DOCUMENTS.index(positive)}
        assert (DOCUMENTS.index(negative) - DOCUMENTS.index(positive)) % 6 in {1, 2}


def test_a_negative_that_answers_another_query_of_the_document_is_not_drawn_for_both() -> None:
    relevant = [np.array([0]), np.array([0, 1])]
    found = Triplets.draw(QUERIES[:2], DOCUMENTS[:3], relevant, np.array([[1], [2]]), 40, seed=0, together=2)
    assert all(
        DOCUMENTS.index(negative) not in relevant[QUERIES.index(query)]
        for query, negative in zip(found.queries, found.negatives, strict=True)
    )


def test_the_loss_of_repeated_documents_is_that_of_a_softmax_over_different_ones(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    queries, positives, negatives = QUERIES[:3], [DOCUMENTS[0], DOCUMENTS[0], DOCUMENTS[2]], [DOCUMENTS[5]] * 3
    texts = [*dict.fromkeys(queries + positives + negatives)]
    states = LowerStates.compute(model, "small", 2, texts, tmp_path / "states.safetensors", Stopwatch())
    with upper_model(model, "small", 2, states) as view, torch.no_grad():
        columns = [view.preprocess(each) for each in (queries, positives, negatives)]
        loss = float(RepeatedTextsLoss(view, scale=20.0)(columns, torch.zeros(3)))
    asked, answers = (torch.from_numpy(model.encode(each)) for each in (queries, positives + negatives))
    scores = 20 * torch.nn.functional.cosine_similarity(asked[:, None], answers[None], dim=2)
    scores[0, 1] = scores[1, 0] = -torch.inf
    expected = float(torch.nn.functional.cross_entropy(scores, torch.arange(3)))
    assert loss == pytest.approx(expected, abs=2e-2)  # the states are kept in float16
    assert columns[1]["input_ids"].shape[0] == 2, "each document is encoded once"


def test_upper_layers_over_kept_states_say_what_the_whole_model_says(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    expected = model.encode(QUERIES)
    kept = tmp_path / "states.safetensors"
    for _ in range(2):  # computed, and read from the file
        states = LowerStates.compute(model, "small", 2, QUERIES, kept, Stopwatch())
        with upper_model(model, "small", 2, states) as view, torch.no_grad():
            found = view(view.preprocess(QUERIES))["sentence_embedding"].numpy()
        assert found == pytest.approx(expected, abs=2e-3)  # the states are kept in float16
    assert model.encode(QUERIES) == pytest.approx(expected, abs=1e-6), "the lower layers are back"


def test_layers_change_the_last_two_alone(model: SentenceTransformer, tmp_path: Path) -> None:
    before = weights(model)
    losses = fine_tune_layers(model, "small", 2, triplets(), SCHEDULE, TrainingRun(tmp_path, 0, Stopwatch()))
    changed = {name for name, each in weights(model).items() if not torch.equal(each, before[name])}
    assert len(losses) == SCHEDULE.steps
    assert changed
    assert all("layer.1." in name or "layer.2." in name for name in changed)


def test_the_whole_encoder_learns_under_a_map_that_stays(model: SentenceTransformer, tmp_path: Path) -> None:
    before = weights(model)
    learned = LinearMap(2 * np.eye(32, dtype=np.float32), np.full(32, 0.1, dtype=np.float32))
    whole = with_map(model, learned)
    long = Schedule(steps=30, batch=8, rate=1e-3)
    losses = fine_tune(whole, triplets(), long, TrainingRun(tmp_path, 0, Stopwatch()))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert any(not torch.equal(each, before[name]) for name, each in weights(model).items() if "embeddings" in name)
    assert np.array_equal(whole[-2].linear.weight.detach().numpy(), learned.weight)
    assert len(model) == 3, "the map belongs to the other view of the model"


def test_a_finished_stage_is_read_and_not_made_again(folder: Path, tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        model = SentenceTransformer(str(folder), device="cpu")
        losses = fine_tune(model, triplets(), SCHEDULE, TrainingRun(tmp_path, 0, Stopwatch()))
        found.append((losses, weights(model)))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(found[0][1][name], found[1][1][name]) for name in found[0][1])


def test_a_loss_that_is_no_number_ends_the_run_in_one_sentence(model: SentenceTransformer, tmp_path: Path) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(LossError, match="ft: the loss of step 1 is no number; choose another recipe"):
        fine_tune(model, triplets(), SCHEDULE, TrainingRun(tmp_path, 0, Stopwatch()))


def test_merging_moves_every_weight_by_the_same_share(folder: Path) -> None:
    base, trained = (SentenceTransformer(str(folder), device="cpu") for _ in range(2))
    with torch.no_grad():
        for each in trained.parameters():
            each.add_(1)
    merge(base, trained, 0.25)
    for name, each in weights(trained).items():
        assert each.numpy() == pytest.approx(weights(base)[name].numpy() + 0.25, abs=1e-6)


def test_what_a_loss_that_is_no_number_left_is_removed(model: SentenceTransformer, tmp_path: Path) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(LossError):
        fine_tune(model, triplets(), SCHEDULE, TrainingRun(tmp_path, 0, Stopwatch()))
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_every_document_may_answer_makes_no_triplet() -> None:
    with pytest.raises(NothingToLearn, match="every document may answer every query"):
        Triplets.draw(QUERIES, DOCUMENTS, RELEVANT, np.full((24, 2), -1), 40, seed=0)
    one = np.full((24, 2), -1)
    one[5, 1] = 6
    assert set(Triplets.draw(QUERIES, DOCUMENTS, RELEVANT, one, 40, seed=0).queries) == {QUERIES[5]}


@pytest.mark.parametrize("recipe", ["layers", "ft"])
def test_a_full_disk_under_the_training_is_one_sentence(recipe: str, folder: Path, tmp_path: Path) -> None:
    """No file may grow beyond 4 KiB; with room again the same training goes on, to what it would have been."""

    def losses(work: Path) -> list[float]:
        model, run = SentenceTransformer(str(folder), device="cpu"), TrainingRun(work, 0, Stopwatch(), save=0.0)
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
def test_a_gpu_is_used(model: SentenceTransformer, tmp_path: Path) -> None:
    run = TrainingRun(tmp_path, 0, Stopwatch(), bfloat16=True)
    torch.cuda.reset_peak_memory_stats()
    losses = fine_tune(model, triplets(), SCHEDULE, run)
    assert np.isfinite(losses).all()
    assert torch.cuda.max_memory_allocated() > 0
    assert model.device.type == "cpu", "it goes back, to be saved and exported"
