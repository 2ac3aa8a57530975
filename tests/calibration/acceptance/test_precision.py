"""Precisions of the query encoder: their speed, and what the gate accepts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from taugate.calibration.acceptance import cheaper_search
from taugate.calibration.acceptance.baseline import AcceptedSearch, GateState
from taugate.calibration.acceptance.cheaper_search import encoding_rates, speed_line, try_precisions
from taugate.calibration.progress import Job
from taugate.cli import main as cli
from taugate.evidence.rules import GateSettings
from taugate.registry.catalog import current_id
from taugate.release.encoder import Precision
from taugate.release.layout import content_digest
from taugate.retrieval.encoder import bert
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.reader import load
from tests.calibration.commands import Printed
from tests.calibration.export.test_export import WORDS, tokenizer
from tests.fake_encoder import write_fake_encoder


@dataclass
class Clock:
    """Processor time that only the encoders pass."""

    now: float = 0.0
    calls: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class TimedEncoder:
    """Takes so many seconds a batch, one number a batch, the last for all that follow."""

    name: str
    clock: Clock
    seconds: list[float]

    def single_threaded(self) -> Self:
        return self

    def encode(self, texts: Sequence[str], role: str) -> None:
        self.clock.calls.append((self.name, len(texts)))
        self.clock.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]


def test_rate_is_median_of_five_alternations(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.process_time", lambda: clock.now)
    int8 = TimedEncoder("int8", clock, [100.0, 9.0, 1.0, 9.0, 2.0, 4.0])  # the first is not timed
    encoders: Any = {"float32": TimedEncoder("float32", clock, [8.0]), "int8": int8}
    assert encoding_rates(encoders, ["question"] * 16) == {"float32": 2.0, "int8": 4.0}
    assert clock.calls == [("float32", 16), ("int8", 16)] * 6


def test_questions_are_encoded_sixteen_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.process_time", lambda: clock.now)
    encoders: Any = {"float32": TimedEncoder("float32", clock, [1.0])}
    assert encoding_rates(encoders, ["question"] * 20) == {"float32": 10.0}
    assert {size for _, size in clock.calls} == {16, 4}
    clock.calls.clear()
    encoding_rates(encoders, ["question"] * 1000)
    assert len(clock.calls) == 1 + 5 * 10


def test_speed_line_names_rate_and_runtime(tmp_path: Path) -> None:
    encoder = ExportedEncoder.load(write_fake_encoder(tmp_path / "encoder", ["a text"]))
    assert speed_line(encoder, 412.4, 200.0) == (
        "gate: float32: 412 questions a second here, 16 together on one thread, 2.06 times float32 (onnxruntime)"
    )


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
    sample: Path, encoder: Path, tmp_path: Path, capfd: Printed
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
    judged, skipped = ([record["candidate"] for record in manifest[name]] for name in ("gate", "skipped"))
    assert sorted([*judged, *skipped]) == ["bfloat16", "int8"]
    assert "bfloat16" in skipped  # int8 as well if it is hardly faster here


def _stub(precision: str) -> Any:
    config = SimpleNamespace(precision=precision, runtime="kernel")
    return SimpleNamespace(config=config)


# Requested, questions a second in float32, bfloat16 and int8, and what is judged and left out.
SPEEDS = [
    ("auto", (100, 80, 125), ["int8"], ["bfloat16"]),
    ("auto", (100, 150, 130), ["bfloat16"], ["int8"]),
    ("auto", (100, 119, 110), [], ["bfloat16", "int8"]),
    ("int8", (100, 300, 50), ["int8"], []),
]


@pytest.mark.parametrize(("requested", "rates", "judged", "left_out"), SPEEDS)
def test_speed_decides_what_is_judged_before_any_label(
    requested: str, rates: tuple, judged: list, left_out: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def judging(inputs: Any, baseline: Any, state: Any, encoder: Any, gain: dict, gate: Any) -> Any:
        tried.append(encoder.config.precision)
        return SimpleNamespace(admitted=False, gain=gain), None

    monkeypatch.setattr(cheaper_search, "_cheaper", lambda inputs, float32, precision: _stub(precision))
    monkeypatch.setattr(cheaper_search, "_judged", judging)
    names: tuple[Precision, ...] = ("float32", "bfloat16", "int8")
    accepted = AcceptedSearch(_stub("float32"), cast(Any, None), cast(Any, None), cast(Any, None))
    state = GateState(accepted, cast(Any, None))
    candidates = SimpleNamespace(candidates=SimpleNamespace(precision=requested))
    inputs = cast(Any, SimpleNamespace(settings=candidates, job=Job()))
    baseline = cast(Any, SimpleNamespace(queries=[]))  # no label
    measured = dict(zip(names, rates, strict=True))
    _, after = try_precisions(inputs, baseline, state, GateSettings(0.005), lambda *_: measured)
    assert tried == judged
    skipped = after.accepted.skipped
    assert [candidate.candidate for candidate in skipped] == left_out
    assert all(candidate.gain is not None for candidate in skipped)
    for candidate in skipped:
        slow = measured[candidate.candidate] < 120
        reason = "not 1.2 times as fast as float32 on this machine" if slow else f"{judged[0]} is faster"
        assert candidate.reason == reason


def test_digest_leaves_out_what_speed_left_out() -> None:
    manifest: dict[str, Any] = {"files": {}, "gate": []}
    slow = {"candidate": "int8", "kind": "precision", "reason": "slow", "gain": {"queries_per_second": 1.0}}
    impossible = {"candidate": "int8", "kind": "precision", "reason": "nothing to quantise"}
    assert content_digest(manifest | {"skipped": [slow]}) == content_digest(manifest)
    assert content_digest(manifest | {"skipped": [slow, impossible]}) == content_digest(
        manifest | {"skipped": [impossible]}
    )
    assert content_digest(manifest | {"skipped": [impossible]}) != content_digest(manifest)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(bert.processor_path("bfloat16") is None, reason="needs a compiler at installation, and AVX2")
def test_named_precision_is_judged_at_whole_confidence(brief: Path, tmp_path: Path) -> None:
    manifest = calibrate(brief, tmp_path, "--precision", "int8", "--margin", "0.1")
    (record,) = manifest["gate"]
    assert (record["candidate"], record["confidence"]) == ("int8", 0.95)
    assert record["processor"] == bert.processor_path("int8")
    assert "skipped" not in manifest
    refused = calibrate(brief, tmp_path / "refused", "--precision", "int8", "--margin", "0.0001")
    assert [(record["candidate"], record["admitted"]) for record in refused["gate"]] == [("int8", False)]
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
