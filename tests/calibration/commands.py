"""`taugate calibrate` as a test runs it: its arguments, what it said, and a small data set whose answers are known."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from taugate.cli import main as cli
from tests.fake_encoder import write_fake_encoder

Printed = pytest.CaptureFixture[str]  # what a command has printed


def arguments(data: Path, releases: Path, encoder: Path, *more: str) -> list[str]:
    return ["calibrate", str(data), "--releases", str(releases), "--encoder", str(encoder), "--verbose", *more]


class Capture:
    """A session's `capfd`: exit code, manifest and stderr of a command."""

    def __init__(self, capfd: Printed) -> None:
        self.capfd = capfd

    def __call__(self, data: Path, releases: Path, encoder: Path, *more: str) -> tuple[int, dict, str]:
        self.capfd.readouterr()
        code = cli.main(arguments(data, releases, encoder, "--json", *more))
        printed = self.capfd.readouterr()
        assert printed.out, printed.err  # says why there is no manifest
        return code, json.loads(printed.out)["manifest"], printed.err


def failure(arguments: list[str], capfd: Printed, code: int = 2) -> str:
    """The one message of a command that ends with 2, or another code, which may tell of its progress before."""
    capfd.readouterr()
    assert cli.main(arguments) == code
    printed = capfd.readouterr()
    said = [line for line in printed.err.splitlines() if line.startswith("taugate: ")]
    assert printed.out == ""
    assert len(said) == 1
    assert printed.err.splitlines()[-1] == said[0]
    assert "Traceback" not in printed.err
    return said[0].removeprefix("taugate: ")


def refusal(arguments: list[str], releases: Path, capfd: Printed, code: int = 2) -> str:
    """The one message of a command that fails before it has made the releases directory."""
    said = failure(arguments, capfd, code)
    assert not releases.exists()
    return said


def small(
    folder: Path, queries: int, grade: Callable[[int], int] = lambda row: 1, copies: int = 1, texts: int = 60
) -> tuple[Path, Path]:
    """A data set whose queries each quote their own document, `copies` times over, and an encoder that finds it."""
    rng = random.Random(0)  # noqa: S311 (no secret)
    words = [f"word{number}" for number in range(400)]
    documents = [rng.sample(words, 12) for _ in range(texts)]
    data = folder / "data"
    (data / "qrels").mkdir(parents=True)
    asked = [rng.sample(documents[row % texts], 5) for row in range(queries)]
    lines = {
        "corpus.jsonl": [json.dumps({"_id": f"d{row}", "text": " ".join(text)}) for row, text in enumerate(documents)],
        "queries.jsonl": [
            json.dumps({"_id": f"q{row}-{copy}", "text": " ".join(text)})
            for row, text in enumerate(asked)
            for copy in range(copies)
        ],
        "qrels/test.tsv": [
            "query-id\tcorpus-id\tscore",
            *(f"q{row}-{copy}\td{row % texts}\t{grade(row)}" for row in range(queries) for copy in range(copies)),
        ],
    }
    for name, content in lines.items():
        (data / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    return data, write_fake_encoder(folder / "encoder", [" ".join(text) for text in documents])


def repeat_first(data: Path, rows: range) -> None:
    """Replace the queries of `small` in these rows by its first one."""
    lines = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])["text"]
    changed = [json.dumps({"_id": f"q{row}-0", "text": first}) for row in rows]
    (data / "queries.jsonl").write_text("\n".join([*lines[: rows.start], *changed]) + "\n", encoding="utf-8")
    header, *labels = (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    labels = [*labels[: rows.start], *(f"q{row}-0\td0\t1" for row in rows)]
    (data / "qrels" / "test.tsv").write_text("\n".join([header, *labels]) + "\n", encoding="utf-8")
