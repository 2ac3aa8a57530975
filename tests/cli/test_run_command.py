"""`taugate run`: from a collection in Qdrant to a certified threshold, with questions of people or without any."""

import json
from collections.abc import Iterator
from pathlib import Path

import ir_measures
import pytest
from qdrant_client import QdrantClient, models

from taugate.cli import main as cli
from taugate.data.queries import read_queries
from taugate.data.questions import off_topic_sent
from taugate.data.runs.exchange import write_exchanged
from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.release.verify import verify
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.calibration.commands import failure
from tests.data.runs.qdrant_local import COLLECTION, qdrant
from tests.fake_encoder import DIMENSION
from tests.loopback import free_port
from tests.sample_part import write_part


@pytest.fixture(scope="module")
def url(sample: Path, encoder: Path) -> Iterator[str]:
    """A collection with the documents of the sample."""
    lines = (sample / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [json.loads(line) for line in lines]
    vectors = ExportedEncoder.load(encoder).encode([document["text"] for document in documents], "document")
    client = QdrantClient(":memory:")
    client.create_collection(COLLECTION, models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE))
    points = [
        models.PointStruct(id=place, vector=vector.tolist(), payload={"doc": document["_id"], "text": document["text"]})
        for place, (document, vector) in enumerate(zip(documents, vectors, strict=True))
    ]
    client.upsert(COLLECTION, points)
    with qdrant(client) as address:
        yield address


def run(queries: Path | str, to: Path, url: str, encoder: Path, *more: str) -> list[str]:
    store = ["--as", "qdrant", "--url", url, "--collection", COLLECTION, "--id-field", "doc"]
    return ["run", str(queries), *store, "--encoder", str(encoder), "--rate", "1e6", "--to", str(to), *more]


def twelve_queries(sample: Path, folder: Path) -> Path:
    path = folder / "queries.jsonl"
    lines = (sample / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:12]), encoding="utf-8")
    return path


def test_collection_gets_a_certified_threshold(url: str, sample: Path, encoder: Path, tmp_path: Path) -> None:
    part, to = write_part(sample, tmp_path / "part", 200), tmp_path / "run.jsonl"
    assert cli.main(run(part, to, url, encoder)) == 0
    record = json.loads(to.read_text(encoding="utf-8").splitlines()[0])
    assert len(record["results"]) == 20
    assert {*record["results"][0]} == {"id", "score"}
    asked = [
        json.loads(line) for line in (tmp_path / "run.jsonl.off-topic.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["query"] for line in asked] == [question.text for question in off_topic_sent(["What is the law?"])]
    calibrate = ["calibrate-run", str(to), str(part / "qrels" / "test.tsv"), "--releases", str(tmp_path / "gates")]
    assert cli.main([*calibrate, "--max-loss", "0.05"]) == 0
    assert verify(find(tmp_path / "gates")).refusal is not None


def test_changed_and_removed_questions_are_counted(
    url: str, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    to, queries = tmp_path / "run.jsonl", twelve_queries(sample, tmp_path)
    assert cli.main(run(queries, to, url, encoder)) == 0
    lines = [json.loads(line) for line in queries.read_text(encoding="utf-8").splitlines()[2:]]
    lines[0]["text"] = "another question"
    queries.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    capfd.readouterr()
    assert cli.main(run(queries, to, url, encoder)) == 0
    said = "1 queries sent, 9 sent earlier, 1 sent again because they changed, 2 removed;"
    assert said in capfd.readouterr().err
    texts = [json.loads(line)["query"] for line in to.read_text(encoding="utf-8").splitlines()]
    assert {*texts} == {line["text"] for line in lines}


def test_store_without_questions_gets_a_provisional_threshold(
    url: str, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    to, data = tmp_path / "run.jsonl", tmp_path / "data"
    assert cli.main(run("generated", to, url, encoder, "--texts", str(data), "--max", "120")) == 0
    assert "120 documents of the store" in capfd.readouterr().err
    assert {query.origin for query in read_queries(data / "queries.jsonl").values()} == {"crop"}
    calibrate = ["calibrate-run", str(to), str(data / "qrels" / "generated.tsv"), "--releases", str(tmp_path / "gates")]
    assert cli.main([*calibrate, "--json"]) in {0, 3, 4}
    assert "generated_queries" in json.loads(capfd.readouterr().out)["manifest"]["calibration"]["reasons"]


def test_request_of_the_user_replaces_the_built_in_one(
    url: str, sample: Path, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    request = tmp_path / "request.json"
    body = {"query": "$vector", "limit": 3, "with_payload": True}
    request.write_text(json.dumps({"body": body, "scores": {"doubled": "score"}}), encoding="utf-8")
    to = tmp_path / "run.jsonl"
    assert cli.main(run(twelve_queries(sample, tmp_path), to, url, encoder, "--request", str(request))) == 0
    assert "12 queries have fewer than 20 results" in capfd.readouterr().err
    first = json.loads(to.read_text(encoding="utf-8").splitlines()[0])["results"][0]
    assert first["scores"] == {"doubled": first["score"]}


def test_unusable_options_are_named(sample: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    base = ["run", str(sample), "--to", str(tmp_path / "run.jsonl"), "--url"]
    assert "--as http: needs --request" in failure([*base, nowhere, "--as", "http", "--collection", "c"], capfd)
    assert "--as qdrant needs the name" in failure([*base, nowhere, "--as", "qdrant"], capfd)
    words = [*base, nowhere, "--as", "qdrant", "--collection", "c"]
    assert "the request needs $vector; give --encoder" in failure(words, capfd)
    assert "not an HTTP URL" in failure([*base, "localhost:6333", "--as", "qdrant", "--collection", "c"], capfd)
    assert "add --texts DATA" in failure(["run", "generated", *words[2:]], capfd)


@pytest.mark.parametrize("suffix", ["trec", "json"])
def test_run_and_judgements_are_read_by_other_tools(
    url: str, sample: Path, encoder: Path, tmp_path: Path, suffix: str
) -> None:
    part, to = write_part(sample, tmp_path / "part", 20), tmp_path / f"run.{suffix}"
    assert cli.main(run(part, to, url, encoder)) == 0
    recorded = [json.loads(line) for line in (tmp_path / f"run.{suffix}.jsonl").read_text().splitlines()]
    qrels = tmp_path / f"run.qrels.{suffix}"
    if suffix == "trec":
        scores, grades = ir_measures.read_trec_run(str(to)), ir_measures.read_trec_qrels(str(qrels))
    else:
        scores = ir_measures.util.RunConverter(json.loads(to.read_text())).as_namedtuple_iter()
        grades = ir_measures.util.QrelsConverter(json.loads(qrels.read_text())).as_namedtuple_iter()
    shown = [(each.query_id, each.doc_id, each.score) for each in scores]
    assert shown == [(line["query_id"], each["id"], each["score"]) for line in recorded for each in line["results"]]
    rows = [line.split("\t") for line in (part / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    assert [(each.query_id, each.doc_id, each.relevance) for each in grades] == [(q, d, int(g)) for q, d, g in rows]


def test_id_with_a_blank_cannot_be_written_for_trec(tmp_path: Path) -> None:
    recorded = tmp_path / "run.trec.jsonl"
    recorded.write_text('{"query_id": "q", "results": [{"id": "a b", "score": 1}]}\n')
    with pytest.raises(InputError, match=r"cannot hold the id 'a b', which has a blank; write .json"):
        write_exchanged(tmp_path / "run.trec", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.trec.jsonl"]
