"""What an encoder reads, how it suits the texts, and encoders behind endpoints."""

import html
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration.encoding.encoder_fit import encoder_fit, encoder_fit_warnings, trained_similarity
from taugate.calibration.encoding.encoder_options import (
    DEFAULT_TOKENS,
    FAMILIES,
    InputOptions,
    input_warnings,
    prompts_in_words,
)
from taugate.calibration.encoding.source import exported_encoder
from taugate.cli import main as cli
from taugate.cli.main import main
from taugate.data.beir import read_dataset
from taugate.errors import EncoderError, InputError, ReleaseError
from taugate.registry.catalog import find
from taugate.release.encoder import CONFIG, MODEL, EncoderConfig
from taugate.release.golden import TOLERANCE
from taugate.retrieval.encoder.encoder import KEY_FILE, ExportedEncoder
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, Printed, small
from tests.calibration.export.architectures import EXPORTED, model_folder
from tests.embedding_server import EmbeddingServer, embedding_server
from tests.fake_encoder import MAX_LENGTH, write_fake_encoder
from tests.language_model import status
from tests.sample_part import write_part

KNOWN = [f"pump {number} stands in hall {number}" for number in range(40)]
THAI = ["ทีมฟุตบอลใดชนะเลิศการแข่งขัน", "ใครเป็นผู้ทำประตูสูงสุด", "เขียนถึงงานบริการ"]


def write_data(folder: Path, documents: list[str], queries: list[str]) -> Path:
    """A data set in which query n is answered by document n."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": f"{name[0]}{place}", "text": text}) for place, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = "".join(f"q{place}\tc{place}\t1\n" for place in range(len(queries)))
    (folder / "qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fake_encoder(tmp_path_factory.mktemp("encoder") / "e", KNOWN)


def fit_of(folder: Path, tmp_path: Path, documents: list[str], queries: list[str], trained: Any = None) -> Any:
    (tmp_path / "spool").mkdir()
    dataset = read_dataset(write_data(tmp_path / "data", documents, queries), "test", tmp_path / "spool")
    loaded = ExportedEncoder.load(folder)
    return encoder_fit(dataset, loaded, loaded, trained)


def test_encoder_fit_without_problems_is_none(folder: Path, tmp_path: Path) -> None:
    assert fit_of(folder, tmp_path, KNOWN, KNOWN[:30]) is None


def test_encoder_fit_counts_unread_texts(folder: Path, tmp_path: Path) -> None:
    long = " ".join(["pump"] * (MAX_LENGTH + 1))
    half_known = [f"pump hall stands {word}" for word in ("กขค", "งจฉ")]  # one vector, most of the characters read
    fit = fit_of(folder, tmp_path, [*KNOWN, *THAI, *half_known], [*KNOWN[:30], THAI[0], long])
    assert (fit.documents, fit.unreadable_documents, fit.indistinct_documents) == (45, 3, 5)
    assert (fit.queries, fit.truncated_queries, fit.unreadable_queries) == (32, 1, 1)
    said = encoder_fit_warnings(fit, "fake", MAX_LENGTH)
    assert [each.split(":")[0].replace("\xa0", " ") for each in said] == [
        "the encoder cannot read 3 of 45 documents (6.7 %)",
        "5 of 45 documents (11.1 %) have the same vector as another text, because they differ only in words that the "
        "encoder does not know; choose an encoder for their language",
        "the encoder cannot read 1 of 32 labelled queries (3.1 %)",
        "1 of 32 labelled queries (3.1 %) are longer than the encoder's 64 tokens; the rest of the query is ignored, "
        "and the reply says `truncated`",
    ]


def test_encoder_fit_names_trained_similarity(folder: Path, tmp_path: Path) -> None:
    fit = fit_of(folder, tmp_path, KNOWN, KNOWN[:30], "dot")
    (said,) = encoder_fit_warnings(fit, "fake", MAX_LENGTH)
    assert said.startswith("the encoder fake was trained for the dot product and does not normalize its vectors")


def test_calibrate_records_unread_texts(folder: Path, tmp_path: Path, capsys: Printed) -> None:
    data = write_data(tmp_path / "data", [*KNOWN, *THAI], KNOWN[:35])
    assert (
        cli.main(["calibrate", str(data), "--verbose", "--releases", str(tmp_path / "r"), "--encoder", str(folder)])
        == 0
    )
    assert "warning: the encoder cannot read 3 of 43 documents" in capsys.readouterr().err
    release = find(tmp_path / "r")
    manifest = json.loads((release / "manifest.json").read_bytes())
    assert manifest["encoder_fit"] == {
        "documents": 43,
        "unreadable_documents": 3,
        "indistinct_documents": 3,
        "queries": 35,
        "truncated_queries": 0,
        "unreadable_queries": 0,
    }
    assert "The encoder cannot read 3 of 43 documents" in (release / "report.html").read_text(encoding="utf-8")
    assert cli.main(["release", "verify", release.name, "--releases", str(tmp_path / "r")]) == 0


def test_calibrate_suitable_encoder_has_no_record(releases: Path) -> None:
    assert "encoder_fit" not in json.loads((find(releases) / "manifest.json").read_bytes())


MODELS: list[tuple[str, str | None, list[str], str | None]] = [
    ("model", "dot", ["Transformer", "Pooling"], "dot"),
    ("model", "dot_product", ["Transformer", "Pooling"], "dot"),
    ("model", "euclidean", ["Transformer", "Pooling"], "euclidean"),
    ("model", "manhattan", ["Transformer", "Pooling", "Dense"], "manhattan"),
    ("model", "dot", ["Transformer", "Pooling", "Normalize"], None),
    ("model", "cosine", ["Transformer", "Pooling"], None),
    ("model", None, ["Transformer", "Pooling"], None),
    ("msmarco-distilbert-dot-v5", None, ["Transformer", "Pooling"], "dot"),
    ("contriever", None, ["Transformer", "Pooling"], "dot"),
    ("msmarco-dot-v5", "cosine", ["Transformer", "Pooling"], None),
    ("dotted-model", None, ["Transformer", "Pooling"], None),
]


@pytest.mark.parametrize(("name", "written", "modules", "trained"), MODELS)
def test_trained_similarity_of_models(
    tmp_path: Path, name: str, written: str | None, modules: list[str], trained: str | None
) -> None:
    model = tmp_path / name
    model.mkdir()
    listed = [{"idx": place, "type": f"sentence_transformers.models.{each}"} for place, each in enumerate(modules)]
    (model / "modules.json").write_text(json.dumps(listed))
    (model / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": written}))
    assert trained_similarity(str(model)) == trained


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"[{}]", b"\xff"])
def test_trained_similarity_invalid_folder_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "modules.json").write_bytes(content)
    assert trained_similarity(str(tmp_path)) is None
    assert trained_similarity(str(tmp_path / "nowhere" / "model")) is None


def test_trained_similarity_from_release_manifest(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "encoder")
    assert trained_similarity(str(tmp_path / "encoder")) is None
    (tmp_path / "manifest.json").write_text(json.dumps({"encoder_fit": {"trained_similarity": "dot"}}))
    assert trained_similarity(str(tmp_path / "encoder")) == "dot"


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


def test_calibration_and_report_say_how_texts_begin(tmp_path: Path, capfd: Printed) -> None:
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


_PROBES = 17  # texts that are sent before anything else
_DOCUMENTS = 150


@pytest.fixture(scope="module")
def part(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the sample, because each test encodes it several times."""
    return write_part(sample, tmp_path_factory.mktemp("part") / "part", _DOCUMENTS)


@pytest.fixture
def server(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    """A server with the encoder of other tests; nothing of it is cached."""
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    loaded = ExportedEncoder.load(encoder)
    with embedding_server(lambda texts: loaded.encode(texts, "document")) as served:
        yield served


def calibrate(data: Path, releases: Path, server: EmbeddingServer, *options: str, model: str = "m") -> int:
    command = ["calibrate", str(data), "--releases", str(releases), "--encoder", f"openai:{server.url}"]
    return main([*command, "--model", model, *options])


def released(releases: Path) -> Path:
    return releases / (releases / "current").read_text(encoding="utf-8").strip()


def manifest_of(release: Path) -> dict[str, Any]:
    return dict(json.loads((release / "manifest.json").read_bytes()))


def test_same_weights_behind_endpoint_give_same_release(
    part: Path, encoder: Path, tmp_path: Path, server: EmbeddingServer, capsys: Printed
) -> None:
    assert calibrate(part, tmp_path / "behind", server, "--yes") == 0
    assert f"tokens, will be sent to {server.url} (m)" in capsys.readouterr().err
    assert main(["calibrate", str(part), "--releases", str(tmp_path / "local"), "--encoder", str(encoder)]) == 0
    behind, here = (released(tmp_path / name) for name in ("behind", "local"))
    expected, manifest = manifest_of(here), manifest_of(behind)
    assert manifest["policy"]["tau"] == pytest.approx(expected["policy"]["tau"], abs=TOLERANCE)
    assert manifest["metrics"]["calibration"]["accuracy"] == expected["metrics"]["calibration"]["accuracy"]
    assert manifest["encoder"]["endpoint"] == {"dialect": "openai", "url": server.url, "model": "m"}
    assert manifest["golden_tolerance"] == TOLERANCE
    assert {path.name for path in (behind / "encoder").iterdir()} == {CONFIG}
    with load(behind).resources, load(here).resources:
        pairs = zip(load(behind).golden, load(here).golden, strict=True)
        assert all(one.scores == pytest.approx(other.scores, abs=TOLERANCE) for one, other in pairs)


def test_nothing_is_sent_without_confirmation(
    part: Path, tmp_path: Path, server: EmbeddingServer, capsys: Printed
) -> None:
    assert calibrate(part, tmp_path / "releases", server) == 2
    assert "nothing was sent: add --yes to send the texts to the endpoint" in capsys.readouterr().err
    assert len(server.texts) == _PROBES
    assert not (tmp_path / "releases" / "current").exists()


def test_interrupted_calibration_does_not_send_texts_twice(
    part: Path, tmp_path: Path, server: EmbeddingServer, capsys: Printed
) -> None:
    server.faults = [None] * 16 + [status(402)] * 4
    assert calibrate(part, tmp_path / "releases", server, "--yes") == 2
    assert "402 (no); the account has no credit" in capsys.readouterr().err
    server.faults, before = [], len(server.texts) - _PROBES
    assert calibrate(part, tmp_path / "releases", server, "--yes") == 0
    again = len(server.texts) - 2 * _PROBES - len({*server.texts[_PROBES:]})
    assert before > 200
    assert again <= 4 * 32  # the requests that ran together with the failed ones
    sent = len(server.texts)
    assert calibrate(part, tmp_path / "releases", server) == 0  # does not ask, as nothing is left to send
    assert len(server.texts) < sent + 100  # the probes and the golden queries


def test_changed_model_is_refused_at_load_and_does_not_share_vectors(
    part: Path, tmp_path: Path, server: EmbeddingServer
) -> None:
    assert calibrate(part, tmp_path / "releases", server, "--yes") == 0
    release, before = released(tmp_path / "releases"), server.encode
    rng = np.random.default_rng(0)
    server.encode = lambda texts: before(texts) + rng.normal(0, 0.01, 128)
    with pytest.raises(ReleaseError, match=rf"away from the record .*the endpoint {server.url} may have another model"):
        load(release)
    server.encode = lambda texts: before(texts)[:, ::-1]
    sent = len(server.texts)
    assert calibrate(part, tmp_path / "releases", server, "--yes") == 0
    assert len(server.texts) > sent + _DOCUMENTS  # all documents again
    encoders = [manifest_of(path.parent)["encoder"] for path in (tmp_path / "releases").glob("*/manifest.json")]
    assert len({encoder["sha256"] for encoder in encoders}) == 2


def test_noisy_endpoint_has_larger_tolerance_or_is_refused(
    part: Path, tmp_path: Path, server: EmbeddingServer, capsys: Printed
) -> None:
    exact, rng = server.encode, np.random.default_rng(0)
    server.encode = lambda texts: (v := exact(texts)) + rng.normal(0, 3e-4, v.shape)
    assert calibrate(part, tmp_path / "releases", server, "--yes") == 0
    assert 1e-3 < manifest_of(released(tmp_path / "releases"))["golden_tolerance"] < 1e-2
    for _ in range(20):
        load(released(tmp_path / "releases")).close()
    server.encode = lambda texts: (v := exact(texts)) + rng.normal(0, 1e-2, v.shape)
    assert calibrate(part, tmp_path / "releases", server, "--yes") == 2
    assert "replies to the same text with different vectors" in capsys.readouterr().err


def test_update_sends_only_new_documents_and_key_is_nowhere(
    part: Path, tmp_path: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("sEcReTkEy", encoding="utf-8")
    data, releases = tmp_path / "data", tmp_path / "releases"
    shutil.copytree(part, data)
    assert calibrate(data, releases, server, "--yes", "--encoder-key-file", str(tmp_path / "key")) == 0
    assert server.headers["Authorization"] == "Bearer sEcReTkEy"
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write('{"_id": "new", "text": "A brand new document about scaffolding permits."}\n')
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    monkeypatch.setenv("TAUGATE_ENCODER_URL", server.url)
    sent = len(server.texts)
    assert main(["update", str(data), "--releases", str(releases)]) == 0
    assert "A brand new document about scaffolding permits." in server.texts[sent:]
    assert len(server.texts) < sent + 200  # golden queries, and near misses
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert not any(b"sEcReTkEy" in content for content in written)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoder", "openai:http://127.0.0.1:9/v1"], "add --model NAME"),
        (["--encoder", "tei:http://127.0.0.1:9", "--dimensions", "8"], "--dimensions 8: this endpoint has no such"),
        (["--encoder", "openai:http://key@127.0.0.1:9/v1", "--model", "m"], "the URL may hold no password"),
        (["--model", "m"], "is not behind an endpoint"),
        (["--encoder", "openai:http://127.0.0.1:9/v1", "--model", "m", "--dimensions", "0"], "--dimensions 0: give a"),
    ],
)
def test_option_that_does_not_fit_is_one_message(
    options: list[str], message: str, part: Path, tmp_path: Path, capsys: Printed
) -> None:
    assert main(["calibrate", str(part), "--releases", str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err
