"""Prompts and lengths that the user gives, and what is said about them."""

import html
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.encoding.encoder_options import (
    DEFAULT_TOKENS,
    FAMILIES,
    InputOptions,
    input_warnings,
    prompts_in_words,
)
from taugate.calibration.encoding.source import exported_encoder
from taugate.errors import EncoderError, InputError
from taugate.release.encoder import MODEL, EncoderConfig
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.commands import Capture, small
from tests.calibration.export.architectures import EXPORTED, model_folder

E5 = EXPORTED["XLM-RoBERTa (multilingual-e5, bge-m3, arctic-embed 2)"]
TEXTS = ["who pays for hidden defects", "the contractor pays", "?"]


@pytest.fixture(scope="module")
def multilingual_e5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("e5"), *E5)


def config(name: str = "model", **values: object) -> EncoderConfig:
    facts = {"name": name, "revision": "", "dimension": 8, "max_length": 512, "pooling": "mean"}
    return EncoderConfig.model_validate(facts | {"max_cosine_difference": 0} | values)


@pytest.mark.model
def test_given_e5_prompts_equal_sentence_transformers(multilingual_e5: Path) -> None:
    from sentence_transformers import SentenceTransformer

    options = InputOptions(query_prompt="query: ", document_prompt="passage: ")
    encoder = ExportedEncoder.load(exported_encoder(str(multilingual_e5), options))
    model = SentenceTransformer(str(multilingual_e5), device="cpu", prompts={"query": "query: "})
    queries = model.encode_query(TEXTS, normalize_embeddings=True)
    passages = model.encode(["passage: " + text for text in TEXTS], normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(TEXTS, "query"), queries, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(TEXTS, "document"), passages, atol=1e-6)


@pytest.mark.model
def test_given_prompts_need_no_second_export(multilingual_e5: Path) -> None:
    plain = Path(exported_encoder(str(multilingual_e5)))
    prompted = exported_encoder(str(multilingual_e5), InputOptions(query_prompt="query: "))
    assert prompted != plain
    assert (prompted / MODEL).samefile(plain / MODEL)
    again = exported_encoder(str(plain), InputOptions(query_prompt="query: "))
    assert ExportedEncoder.load(again).sha256 == ExportedEncoder.load(prompted).sha256


@pytest.mark.model
@pytest.mark.parametrize(
    ("prompts", "document"),
    [
        ({"passage": "passage: "}, "passage: "),
        ({"document": "", "corpus": "text: "}, "text: "),
        ({"document": "doc: ", "passage": "passage: "}, "doc: "),
    ],
)
def test_first_prompt_that_is_not_empty_is_used(prompts: dict[str, str], document: str, tmp_path: Path) -> None:
    path = model_folder(tmp_path, *E5, prompts=prompts)
    assert ExportedEncoder.load(exported_encoder(str(path))).config.document_prompt == document


@pytest.mark.model
def test_prompt_left_out_of_pooling_is_refused(tmp_path: Path) -> None:
    path = model_folder(tmp_path, *E5)
    pooling = path / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace('"include_prompt": true', '"include_prompt": false'))
    with pytest.raises(EncoderError, match="pooling leaves the prompt out"):
        exported_encoder(str(path), InputOptions(query_prompt="query: "))


def test_long_window_is_limited_unless_given() -> None:
    options = InputOptions()
    assert options.applied_to(config(max_length=8192), exported=False).max_length == DEFAULT_TOKENS
    assert options.applied_to(config(max_length=256), exported=False) == config(max_length=256)
    assert options.applied_to(config(max_length=8192), exported=True) == config(max_length=8192)
    long = InputOptions(max_length=4096).applied_to(config(max_length=8192), exported=False)
    assert (long.max_length, long.query_window) == (4096, DEFAULT_TOKENS)
    with pytest.raises(EncoderError, match="reads at most 256 tokens; give --max-length 256 or less"):
        InputOptions(max_length=300).applied_to(config(max_length=256), exported=False)
    with pytest.raises(InputError, match="--max-length 1: give a number of tokens, 8 or more"):
        InputOptions(max_length=1)


@pytest.mark.model
def test_long_query_is_truncated_like_by_tokenizer(tmp_path: Path) -> None:
    config_class, parameters = EXPORTED["Qwen 3 (Qwen3-Embedding)"]
    path = model_folder(tmp_path, config_class, parameters | {"max_position_embeddings": 2000}, max_tokens=2000)
    encoder = ExportedEncoder.load(exported_encoder(str(path), InputOptions(max_length=2000)))
    (query,), (document,) = (encoder.tokenize(["a" * 5000], role) for role in ("query", "document"))
    assert (len(query.ids), query.truncated) == (DEFAULT_TOKENS, True)
    assert len(document.ids) == 2000
    assert (query.ids[0], query.ids[-1]) == (document.ids[0], document.ids[-1])
    assert encoder.encode(["a" * 5000], "query").shape == (1, 32)


def test_calibration_and_report_say_how_texts_begin(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, encoder = small(tmp_path, 60)
    options = ("--query-prompt", "query: ", "--document-prompt", "passage: ", "--max-length", "40")
    _, manifest, said = Capture(capfd)(data, tmp_path / "releases", encoder, *options)
    sentence = 'queries begin with "query: ", documents with "passage: "'
    assert sentence in said
    report = (tmp_path / "releases" / manifest["release_id"] / "report.html").read_text(encoding="utf-8")
    assert sentence in html.unescape(report)
    facts = manifest["encoder"]
    assert (facts["query_prompt"], facts["document_prompt"], facts["max_length"]) == ("query: ", "passage: ", 40)


def test_prompts_are_named_in_words() -> None:
    assert prompts_in_words(config()) == "the encoder reads queries and documents without a prompt"
    both = config(query_prompt="query: ", document_prompt="passage: ")
    assert prompts_in_words(both) == 'queries begin with "query: ", documents with "passage: "'
    only = config(query_prompt="Instruct: x\nQuery: ")
    assert prompts_in_words(only) == 'queries begin with "Instruct: x\\nQuery: ", documents with nothing'


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("intfloat/multilingual-e5-small", "e5"),
        ("multilingual-e5-large-instruct", "e5-instruct"),
        ("BAAI/bge-base-en-v1.5", "bge"),
        ("nomic-ai/nomic-embed-text-v1.5", "nomic"),
        ("BAAI/bge-m3", None),
        ("sentence-transformers/all-MiniLM-L6-v2", None),
    ],
)
def test_family_without_prompts_is_warned_of(name: str, family: str | None) -> None:
    warnings = input_warnings(config(name))
    assert [f"of the family {family}, " in warning for warning in warnings] == ([] if family is None else [True])
    prompt = next((known.query for known in FAMILIES if known.name == family), "")
    assert input_warnings(config(name, query_prompt=prompt or "query: ")) == []


def test_assumed_pooling_is_warned_of() -> None:
    (warning,) = input_warnings(config(assumed_pooling=True))
    assert "declares no pooling (it has no modules.json), so the mean of all tokens is its vector" in warning
