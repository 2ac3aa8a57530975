"""Pre-training hides tokens by the seed alone, teaches the encoder's own transformer, and refuses what cannot learn."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

pytest.importorskip("torch")
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from transformers import BertConfig, BertForMaskedLM, BertModel, GPT2Config, GPT2Model, PreTrainedTokenizerFast

from taugate.calibration.progress import Job
from taugate.data.beir import read_dataset
from taugate.errors import EncoderError, InputError
from taugate_adapt.training.fine_tuning import (
    MaskedSentences,
    MaskingCollator,
    corpus_sentences,
    masked_language_model,
    pretrain,
)
from taugate_adapt.training.run import Schedule, TrainingRun

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(40))]
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
SENTENCES = [" ".join([f"w{start % 5}"] * (4 + start % 9)) + f" w{start}" for start in range(40)]


def tokenizer(*, mask: bool = True) -> Any:
    fast = Tokenizer(models.WordLevel({word: position for position, word in enumerate(WORDS)}, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, model_max_length=32, **SPECIAL, **({"mask_token": "[MASK]"} if mask else {})
    )


def encoder(folder: Path, kind: str = "bert", *, mask: bool = True) -> SentenceTransformer:
    """A sentence encoder of one layer with random weights.

    Args:
        kind: Bert, bert with a head of its own, or gpt2.
    """
    torch.manual_seed(0)
    if kind == "gpt2":
        model: Any = GPT2Model(GPT2Config(vocab_size=len(WORDS), n_positions=64, n_embd=32, n_layer=1, n_head=2))
    else:
        shape: dict[str, Any] = {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        }
        config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, **shape)
        model = BertForMaskedLM(config) if kind == "head" else BertModel(config)
    model.save_pretrained(folder)
    tokenizer(mask=mask).save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(str(folder), max_seq_length=32), Pooling(32, "mean")], device="cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pretrained(folder: Path, steps: int, *, killed_at: int | None = None) -> tuple[list[float], Any]:
    """Losses and embeddings of an encoder that was pre-trained, or killed after so many steps."""

    class KillError(Exception):
        pass

    created: list[float] = []

    def told(seconds: float) -> None:
        created.append(seconds)
        if len(created) == killed_at:
            raise KillError

    (folder / "base").mkdir(parents=True, exist_ok=True)
    model = encoder(folder / "base")
    run = TrainingRun(folder / "work", 0, Job(), save=0, on_step=told)
    with contextlib.suppress(KillError):
        losses = pretrain(model, "tiny", SENTENCES, run, Schedule(steps, 8, 0.01))
        return losses, model.encode(SENTENCES[:3])
    return [], None


@pytest.mark.slow
def test_pretraining_lowers_the_loss(tmp_path: Path) -> None:
    losses, after = pretrained(tmp_path, 60)
    assert len(losses) == 60
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.5
    assert np.abs(after - encoder(tmp_path / "base").encode(SENTENCES[:3])).max() > 0.01


@pytest.mark.slow
def test_killed_run_resumes_to_same_bytes(tmp_path: Path) -> None:
    losses, after = pretrained(tmp_path / "whole", 12)
    pretrained(tmp_path / "killed", 12, killed_at=7)
    again, resumed = pretrained(tmp_path / "killed", 12)
    assert again == losses
    assert resumed.tobytes() == after.tobytes()


def test_step_that_ends_the_run_is_its_last(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    durations: list[float] = []
    reports: list[str] = []

    def third(seconds: float) -> bool:
        durations.append(seconds)
        return len(durations) == 3

    run = TrainingRun(tmp_path / "work", 0, Job(reports.append), on_step=third)
    losses = pretrain(encoder(tmp_path / "base"), "tiny", SENTENCES, run, Schedule(12, 8, 0.01))
    assert len(losses) == len(durations) == 3
    assert run.losses("pt") == losses, "what is finished is kept"
    assert reports == ["warning: pt ended after 3 of 12 steps, which were slower than measured before"]


@pytest.mark.parametrize("texts", [[], [""]])
def test_corpus_without_words_is_refused(tmp_path: Path, texts: list[str]) -> None:
    with pytest.raises(InputError, match="no sentence to pre-train on; add documents with text"):
        pretrain(encoder(tmp_path), "tiny", texts, TrainingRun(tmp_path / "work", 0, Job()), Schedule(1, 8, 0.01))


def test_shortest_sentences_are_masked() -> None:
    words = tokenizer()
    shown, collate = MaskedSentences(words, ["w1", ""], 32, steps=40, batch=1, seed=0), MaskingCollator(words, 0)
    for place in range(40):
        batch = collate([shown[place]])
        assert batch["labels"].tolist() == [[-100, words.convert_tokens_to_ids("w1"), -100]]


def test_new_head_depends_on_seed(tmp_path: Path) -> None:
    model: Any = encoder(tmp_path)
    heads: list[Any] = []
    for noise, seed in ((1, 0), (2, 0), (3, 1)):
        torch.manual_seed(noise)
        heads.append(masked_language_model(model, "tiny", seed))
    first, same, other = (head.cls.predictions.transform.dense.weight for head in heads)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert heads[0].cls.predictions.decoder.weight is model[0].auto_model.embeddings.word_embeddings.weight


@pytest.mark.parametrize("below", ["", "0_Transformer"])
def test_existing_head_is_used(tmp_path: Path, below: str) -> None:
    source, folder = tmp_path / "source", tmp_path / "model"
    encoder(source, "head").save(str(folder), create_model_card=False)
    (folder / below).mkdir(exist_ok=True)
    for item in source.iterdir():
        (folder / item.name).unlink(missing_ok=True)
        shutil.copy(item, folder / below / item.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = below
    (folder / "modules.json").write_text(json.dumps(modules))
    kept: Any = BertForMaskedLM.from_pretrained(source)
    masked: Any = masked_language_model(SentenceTransformer(str(folder), device="cpu"), "tiny", seed=5)
    assert torch.equal(masked.cls.predictions.transform.dense.weight, kept.cls.predictions.transform.dense.weight)


def test_missing_folder_gives_new_head(tmp_path: Path) -> None:
    model: Any = encoder(tmp_path / "gone")
    before = model[0].auto_model.embeddings.word_embeddings.weight.clone()
    shutil.rmtree(tmp_path / "gone")
    masked: Any = masked_language_model(model, "tiny", seed=0)
    assert torch.equal(masked.bert.embeddings.word_embeddings.weight, before)


def test_global_generator_is_unchanged(tmp_path: Path) -> None:
    model = encoder(tmp_path)
    state = torch.get_rng_state()
    masked_language_model(model, "tiny", seed=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_masking_depends_on_seed_and_place() -> None:
    words = tokenizer()
    shown = MaskedSentences(words, SENTENCES, 32, steps=4, batch=8, seed=0)
    batches = [[shown[8 * step + row] for row in range(8)] for step in range(4)]
    complete, resumed, other = MaskingCollator(words, 0), MaskingCollator(words, 0), MaskingCollator(words, 1)
    first = [complete(batch) for batch in batches]
    again = [resumed(batch) for batch in batches[2:]]
    for one, two in zip(first[2:], again, strict=True):
        assert all(torch.equal(one[name], two[name]) for name in ("input_ids", "labels", "attention_mask"))
    assert not torch.equal(other(batches[2])["labels"], first[2]["labels"])
    twice = [{**item, "place": item["place"] + 8} for item in batches[2]]
    assert not torch.equal(complete(twice)["labels"], first[2]["labels"])


def test_fifteen_percent_of_words_are_masked() -> None:
    words = tokenizer()
    shown = MaskedSentences(words, SENTENCES * 50, 32, steps=1, batch=2000, seed=0)
    batch = MaskingCollator(words, 0)([shown[row] for row in range(2000)])
    hidden, text = batch["labels"] != -100, batch["input_ids"] != 0
    requested = batch["labels"][hidden]
    assert not torch.isin(requested, torch.tensor([0, 1, 2, 3, 4])).any()
    assert float(hidden.sum()) / float(text.sum() - 2 * 2000) == pytest.approx(0.15, abs=0.01)


def test_epoch_shows_sentences_once() -> None:
    many = [f"{first} {second}" for first in SENTENCES for second in SENTENCES[:9]]
    shown, other = (MaskedSentences(tokenizer(), many, 32, steps=90, batch=8, seed=seed) for seed in (0, 1))
    rows = [tuple(shown[place]["input_ids"]) for place in range(len(shown))]
    assert len(rows) == 720
    assert len(set(rows[:360])) == len(set(rows[360:])) == 360
    assert rows[:360] != rows[360:]
    assert rows != [tuple(other[place]["input_ids"]) for place in range(len(other))]
    spread = [np.ptp([len(rows[8 * step + row]) for row in range(8)]) for step in range(90)]
    assert np.mean(spread) <= 3  # of 16 at most


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpt2", "encoder 'tiny': transformers has no masked language model of the kind gpt2; choose another recipe"),
        ("no mask", "encoder 'tiny': its tokenizer has no mask token, which pre-training needs; choose another recipe"),
        ("static", "encoder 'tiny': has no transformer that could be pre-trained; choose another recipe"),
    ],
)
def test_unsuitable_model_is_refused(tmp_path: Path, kind: str, words: str) -> None:
    if kind == "static":
        static = StaticEmbedding(tokenizer().backend_tokenizer, embedding_weights=np.eye(len(WORDS), dtype=np.float32))
        model = SentenceTransformer(modules=[static], device="cpu")
    else:
        model = encoder(tmp_path, "gpt2" if kind == "gpt2" else "bert", mask=kind != "no mask")
    with pytest.raises(EncoderError, match=words):
        masked_language_model(model, "tiny", seed=0)


def test_corpus_sentences_are_distinct_and_ordered(tmp_path: Path) -> None:
    data, spool = tmp_path / "data", tmp_path / "spool"
    (data / "qrels").mkdir(parents=True)
    spool.mkdir()
    texts = ["One is here. Two is there!", "Unseen, and not read.", "Two is there! And three?"]
    lines = [f'{{"_id": "d{number}", "text": "{text}"}}' for number, text in enumerate(texts)]
    (data / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (data / "queries.jsonl").write_text('{"_id": "q", "text": "what"}\n')
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
    documents = read_dataset(data, "test", spool).documents
    result = list(corpus_sentences(documents, np.array([0, 2])))
    assert result == ["One is here.", "Two is there!", "And three?"]
