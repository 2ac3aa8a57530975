"""A small real run of every command, each in a home folder of its own that is empty before.

`make attacks` records the names that the same runs look up.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zaragoza_construction_faq

from taugate.cli.main import build_parser
from taugate.ingestion.dataset.sample import write_sample
from tests.fake_encoder import write_fake_encoder
from tests.keys import write_keys
from tests.language_model import fake_model
from tests.loopback import free_port

QUESTION = "Who is liable for hidden defects when I buy a house?"
_SECONDS = 240.0  # longest run of a command, and longest wait for a server
_HELP = "--help"
_MCP = "taugate-mcp"  # the client's command, which is not among those of the parser
Wrap = Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class CommandRun:
    """One run of a command.

    command: its words without options, such as "release list". arguments: the rest of the command line. serve: a server
    is asked by it, with its port, and is then told to stop; None for a command that ends by itself. text: goes to stdin.
    """

    command: str
    arguments: Sequence[str]
    serve: Callable[[int], None] | None = None
    port: int = 0
    text: str = ""
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class CommandOutcome:
    """What came of a run.

    status: exit status. output: stdout and stderr. home: the folder that was its home. left: files below it and in its
    folder for temporary files, relative to them, in order.
    """

    run: CommandRun
    status: int
    output: str
    left: Sequence[str]
    temporary: Sequence[str]


def commands() -> set[str]:
    """Name every command that there is: those of the parser, whichever they are, and the client's."""

    def leaves(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[str]:
        groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not groups:
            yield " ".join(words)
        for group in groups:
            for word, inner in group.choices.items():
                yield from leaves(inner, (*words, word))

    return {*leaves(build_parser(None), ()), _MCP}


def run_every_command(folder: Path, wrap: Wrap = list, root: Path | None = None) -> Iterator[CommandOutcome]:
    """Run the commands one after the other, as each needs what earlier ones wrote, and yield what came of each.

    folder: for data, releases and homes. wrap: turns a command line into the one that runs it. root: checkout whose code
    runs; None for the one that is installed.
    """
    for number, run in enumerate(_runs(folder)):
        yield _run(run, folder / f"{number}", wrap, root)


def _run(run: CommandRun, place: Path, wrap: Wrap, root: Path | None) -> CommandOutcome:
    home = place / "home"
    home.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="t") as temporary:  # short, as Ray has its sockets below
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": temporary, "OMP_NUM_THREADS": "1"}
        if root is not None:
            environment["PYTHONPATH"] = os.pathsep.join(str(root / part) for part in ("src", "clients/python/src"))
        module, words = ("taugate_mcp", []) if run.command == _MCP else ("taugate", run.command.split())
        with (place / "output").open("w+b") as output:
            process = subprocess.Popen(
                wrap([sys.executable, "-m", module, *words, *run.arguments]),
                cwd=place,
                env=environment | dict(run.settings),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status = _wait(process, run)
            output.seek(0)
            said = output.read().decode(errors="replace")
        return CommandOutcome(run, status, said, _files(home), _files(Path(temporary)))


def _wait(process: "subprocess.Popen[bytes]", run: CommandRun) -> int:
    """Wait for the end of a run, and end all that it started if it takes too long."""
    try:
        if run.serve is None:
            process.communicate(run.text.encode(), timeout=_SECONDS)
            return process.returncode
        _wait_for_port(process, run.port)
        run.serve(run.port)
        os.killpg(process.pid, signal.SIGTERM)
        return process.wait(_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for_port(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def _runs(folder: Path) -> Iterator[CommandRun]:
    """Yield the runs; what is in the folder by then decides on the arguments of later ones."""
    data, releases, log, keys = (folder / name for name in ("data", "releases", "queries.jsonl", "keys.json"))
    texts = [entry[field] for entry in zaragoza_construction_faq.load(lang="en") for field in ("q", "a")]
    encoder = str(write_fake_encoder(folder / "encoder", texts))
    write_sample(data)
    signer, public = write_keys(folder)
    at = ("--releases", str(releases))

    def ids() -> list[str]:
        return sorted(path.parent.name for path in releases.glob("*/manifest.json"))

    yield CommandRun("completion", ["bash"])
    yield CommandRun("settings", [])
    yield CommandRun("key new", ["--name", "a", "--scopes", "search", "--file", str(keys)])
    yield CommandRun("key remove", ["a", "--file", str(keys)])
    (folder / "texts").mkdir()
    for number, text in enumerate(texts[:40]):
        (folder / "texts" / f"{number}.txt").write_text(text, encoding="utf-8")
    imported = str(folder / "imported")
    yield CommandRun("import", [str(folder / "texts"), "--to", imported, "--encoder", encoder])
    with fake_model() as model:
        asked = ("--endpoint", model.url, "--model", "m", "--yes", "--encoder", encoder, "--max", "5")
        yield CommandRun("queries", [imported, "--method", "endpoint", *asked])
    yield CommandRun("calibrate", [str(data), *at, "--encoder", encoder])
    yield CommandRun("calibrate", [str(data), *at, "--encoder", encoder, "--seed", "1", "--method", "risk-control"])
    yield from _servers(at, str(log))
    current = (releases / "current").read_text(encoding="utf-8").strip()
    document = json.loads((data / "corpus.jsonl").read_text(encoding="utf-8").partition("\n")[0])["_id"]
    yield CommandRun("explain", [QUESTION, document, *at])
    yield CommandRun("traffic", [str(log), "--to", str(data), "--votes", "1"])
    yield CommandRun("drift replay", [str(log), *at])
    yield CommandRun("drift baseline", [str(log), *at])
    yield CommandRun("release list", [*at])
    yield CommandRun("release show", [*at])
    yield CommandRun("release verify", [*at])
    yield CommandRun("release history", [*at])
    yield CommandRun("release correlations", [*at])
    yield CommandRun("release diff", [*ids()[:2], *at])
    yield CommandRun("release promote", [next(each for each in ids() if each != current), *at, "--force"])
    yield CommandRun("release rollback", [*at])
    yield CommandRun("release shadow", ["--none", *at])
    yield CommandRun("release sign", [current, "--key", str(signer), *at])
    bucket = (folder / "bucket").as_uri()
    yield CommandRun("release push", [current, "--to", bucket, "--promote", *at])
    yield CommandRun("release pull", ["--from", bucket, "--releases", str(folder / "pulled")])
    yield CommandRun("release erase", [current, document, *at])
    yield CommandRun("release prune", ["--keep", "1", *at])
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write(json.dumps({"_id": "new", "text": texts[0] + " And a tower."}) + "\n")
    yield CommandRun("update", [str(data), *at])
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write(json.dumps({"_id": "newer", "text": texts[1] + " And a bridge."}) + "\n")
    yield CommandRun("recalibrate", [str(data), *at])
    yield CommandRun("encode", [str(data), "--to", (folder / "vectors").as_uri(), "--encoder", encoder, "--workers", "2"])
    yield CommandRun("judge", [str(data), *at, "--judge", "ana", "--n", "1"], text="y\n" * 20)


def _servers(at: Sequence[str], log: str) -> Iterator[CommandRun]:
    """Yield runs of the service with one process and with two, and of the MCP server."""
    for workers in ("1", "2"):
        port = free_port()
        recorded = (("TAUGATE_QUERY_LOG", log), ("TAUGATE_QUERY_LOG_TEXTS", "true"))
        yield CommandRun(
            "serve", [*at, "--port", str(port), "--workers", workers], serve=_search, port=port, settings=recorded
        )
    port = free_port()
    http = ["--url", f"http://127.0.0.1:{free_port()}", "--transport", "http", "--port", str(port)]
    yield CommandRun(_MCP, http, serve=lambda port: None, port=port)
    yield CommandRun(_MCP, http[:2])


def _search(port: int) -> None:
    """Search until the service answers, and judge a result."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            reply = _post(port, "/search", {"query": QUESTION, "threshold": 0.0, "min_results": 1})
            break
        except OSError:  # not ready yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    result = reply["results"][0]["id"]
    _post(port, "/feedback", {"query_id": reply["query_id"], "document_id": result, "relevant": True})


def _post(port: int, path: str, body: object) -> Any:  # noqa: ANN401 (JSON)
    request = urllib.request.Request(  # noqa: S310 (http on loopback)
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as reply:
        return json.load(reply)
