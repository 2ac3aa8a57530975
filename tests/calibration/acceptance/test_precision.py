"""`--precision auto` judges bfloat16, then int8, and skips what an encoder cannot have."""

import json
from pathlib import Path
from typing import Any

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id
from taugate.retrieval.encoder import bert
from taugate.retrieval.reader import load
from tests.calibration.export.test_export import WORDS, tokenizer

HIDDEN = 64


def calibrate(data: Path, releases: Path, *more: str) -> dict[str, Any]:
    """Calibrate with the score by the cosine, and return the manifest."""
    assert cli.main(["calibrate", str(data), "--releases", str(releases), "--lexical", "off", *more]) == 0
    manifest: dict[str, Any] = json.loads((releases / current_id(releases) / "manifest.json").read_bytes())
    return manifest


def odd_model(kind: str, folder: Path) -> Path:
    """Save a random model of one layer: T5 with a Dense module, or DeBERTa.

    It knows few of the sample's words, so it retrieves hardly better than chance: such a release needs --force.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import DebertaV2Config, DebertaV2Model, PreTrainedTokenizerFast, T5Config, T5EncoderModel

    torch.manual_seed(0)
    if kind == "t5":
        config = T5Config(vocab_size=len(WORDS), d_model=HIDDEN, d_kv=16, d_ff=128, num_layers=1, num_heads=4)
        T5EncoderModel(config).save_pretrained(folder / "parts")
    else:
        shape = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
        relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 32}
        DebertaV2Model(DebertaV2Config(vocab_size=len(WORDS), **shape, **relative)).save_pretrained(folder / "parts")
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer(), **special).save_pretrained(folder / "parts")
    parts = [modules.Transformer(str(folder / "parts"), max_seq_length=32), modules.Pooling(HIDDEN, "mean")]
    parts += [modules.Dense(HIDDEN, 48)] if kind == "t5" else []
    model = SentenceTransformer(modules=[*parts, modules.Normalize()], device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def test_auto_with_static_encoder_records_both_precisions_as_not_possible(
    sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = calibrate(sample, tmp_path, "--encoder", str(encoder), "--precision", "auto", "--verbose")
    assert [skipped["candidate"] for skipped in manifest["skipped"]] == ["bfloat16", "int8"]
    assert "nothing to quantise to int8" in manifest["skipped"][1]["reason"]
    assert manifest["gate"] == []
    assert "gate: bfloat16: not possible: " in capfd.readouterr().err
    report = (tmp_path / manifest["release_id"] / "report.html").read_text("utf-8")
    assert "bfloat16 was not possible: " in report


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "deberta"])
def test_auto_with_model_unknown_to_kernel_ends_with_release(sample: Path, tmp_path: Path, kind: str) -> None:
    model = odd_model(kind, tmp_path)
    manifest = calibrate(sample, tmp_path / "releases", "--encoder", str(model), "--precision", "auto", "--force")
    assert [record["candidate"] for record in manifest["gate"]] == ["int8"]
    assert [skipped["candidate"] for skipped in manifest["skipped"]] == ["bfloat16"]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(bert.processor_path("bfloat16") is None, reason="needs a compiler at installation, and AVX2")
def test_auto_judges_bfloat16_then_int8_at_whole_confidence(brief: Path, tmp_path: Path) -> None:
    manifest = calibrate(brief, tmp_path, "--precision", "auto", "--margin", "0.1")
    candidates = {record["candidate"]: record for record in manifest["gate"]}
    assert list(candidates) == ["bfloat16", "int8"]
    assert {record["confidence"] for record in candidates.values()} == {0.95}
    assert all(record["processor"] == bert.processor_path(name) for name, record in candidates.items())
    assert "skipped" not in manifest
    refused = calibrate(brief, tmp_path / "refused", "--precision", "auto", "--margin", "0.0001")
    assert [(record["candidate"], record["admitted"]) for record in refused["gate"]] == [("bfloat16", False)]
    assert refused["encoder"]["precision"] == "float32"


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(bert.processor_path("bfloat16") is None, reason="needs a compiler at installation, and AVX2")
def test_accepted_bfloat16_is_served(brief: Path, tmp_path: Path) -> None:
    manifest = calibrate(brief, tmp_path, "--precision", "bfloat16", "--margin", "0.1")
    assert (manifest["encoder"]["precision"], manifest["encoder"]["runtime"]) == ("bfloat16", "kernel")
    assert manifest["golden_tolerance"] < 0.02, "a tenth of what int8 may change"
    folder = tmp_path / manifest["release_id"]
    precisions = ("auto", "bfloat16", "float32")
    assert [load(folder, precision=name).precision for name in precisions] == ["bfloat16", "bfloat16", "float32"]
