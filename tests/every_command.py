"""A small real run of every command, each in a new, empty home folder.

A test checks the files that the runs leave there, and `make attacks` the names that they look up.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import zaragoza_construction_faq

from taugate.cli.main import COMMANDS, load_command
from taugate.data.location import write_sample
from tests.fake_encoder import write_fake_encoder
from tests.fork_server import LIBRARIES, PYTORCH, ForkServer
from tests.keys import write_keys
from tests.language_model import fake_model
from tests.loopback import free_port
from tests.runs import dense_results, write_json
from tests.spoilt_model import write_spoilt_model

MCP = "taugate-mcp"  # the client's command, which is not among those of the parser
IMPORTS = "imports"  # of libraries, before the commands that run in forks
_QUESTION = "Who is liable for hidden defects when I buy a house?"
_OWN_PROCESSES = "encode"  # starts processes of its own, of Ray
_SECONDS = 240.0  # longest run of a command, and longest wait for a server


@dataclass(frozen=True)
class CommandRun:
    """One run of a command.

    Attributes:
        command: Words of the command without options, such as "release list".
        arguments: Options and arguments of the command line.
        port: Port of the server that it starts; 0 if the command ends by itself.
        use: Sends requests to the server, which is stopped afterwards.
        settings: Additional environment variables.
        status: Expected exit status.
    """

    command: str
    arguments: Sequence[str]
    port: int = 0
    use: Callable[[int], None] = lambda port: None
    settings: Mapping[str, str] = field(default_factory=dict)
    status: int = 0


@dataclass(frozen=True)
class CommandOutcome:
    """The outcome of a run.

    Attributes:
        run: The run.
        status: Exit status.
        output: Stdout and stderr.
        home: Files left in the home folder, as relative paths.
        temporary: Files left in the folder for temporary files, as relative paths.
    """

    run: CommandRun
    status: int
    output: str
    home: Sequence[str]
    temporary: Sequence[str]


def command_names() -> set[str]:
    """Return the names of all commands: those of the parser, and that of the client."""

    names = {MCP}
    for name in COMMANDS:
        command = load_command(name)
        names |= {f"{name} {action}" for action in command.commands} if isinstance(command, click.Group) else {name}
    return names


def run_every_command(
    folder: Path,
    wrap: Callable[[list[str]], list[str]] = list,
    settings: Mapping[str, str] | None = None,
    serve_seconds: float = 0.0,
    *,
    forked: bool = False,
) -> Iterator[CommandOutcome]:
    """Run the commands in sequence, because each needs files of earlier ones, and yield the outcomes.

    Args:
        folder: Folder for data, releases and home folders.
        wrap: Returns the command line that runs a command line, such as one of strace.
        settings: Additional variables of every environment, which otherwise has PATH and what keeps runs short.
        serve_seconds: Seconds that a service runs after its first answer.
        forked: Whether most commands are forks of one process that has imported their libraries. The last outcome,
            IMPORTS, is then that of this process.
    """
    imports = _RunFolder(folder / IMPORTS, settings or {})
    with ForkServer([*LIBRARIES, *PYTORCH], wrap, imports.environment) if forked else nullcontext() as server:
        for number, run in enumerate(_runs(folder, serve_seconds)):
            words = [*run.command.split(), *run.arguments]
            if run.command == MCP:
                command = wrap([sys.executable, "-m", "taugate_mcp", *run.arguments])
            elif server is None or run.command == _OWN_PROCESSES:
                command = wrap([sys.executable, "-m", "taugate", *words])
            else:
                command = [str(server.client), *words]
            yield _outcome(run, command, _RunFolder(folder / f"run-{number}", settings or {}))
    if forked:
        yield CommandOutcome(CommandRun(IMPORTS, ()), 0, "", *imports.files())


class _RunFolder:
    """The folder of a run, with a home folder; that for temporary files is removed once its files are known.

    Attributes:
        environment: Environment of the run.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder, self._home = folder, folder / "home"
        self._home.mkdir(parents=True)
        # A short path, because Ray creates Unix sockets in it.
        self._temporary = tempfile.TemporaryDirectory(prefix="t")
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self._home), "TMPDIR": self._temporary.name}
        self.environment |= {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        self.environment["TAUGATE_DRAIN_SECONDS"] = "0"  # no other service takes the place of one that ends
        self.environment |= settings

    def files(self) -> tuple[list[str], list[str]]:
        """Return the files left in the home folder and in that for temporary files, as relative paths."""
        with self._temporary as temporary:
            return _files(self._home), _files(Path(temporary))


def _outcome(run: CommandRun, command: list[str], own: _RunFolder) -> CommandOutcome:
    with (own.folder / "output").open("w+b") as output:
        process = subprocess.Popen(
            command,
            cwd=own.folder,
            env={**own.environment, **run.settings},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status = _wait(process, run)
        output.seek(0)
        return CommandOutcome(run, status, output.read().decode(), *own.files())


def _wait(process: "subprocess.Popen[bytes]", run: CommandRun) -> int:
    """Wait for the end of a run, and kill its remaining processes; those that hang write their stacks first."""
    try:
        if not run.port:
            process.communicate(timeout=_SECONDS)
            return process.returncode
        with suppress(RuntimeError):  # its exit status and its output say why
            _wait_until_ready(process, run)
            run.use(run.port)
            os.killpg(process.pid, signal.SIGTERM)
        return process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        return process.wait(_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_ready(process: "subprocess.Popen[bytes]", run: CommandRun) -> None:
    """Wait until a server answers with another status than 503.

    Raises:
        RuntimeError: If the server ends before it is ready.
    """
    deadline = time.monotonic() + _SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            if _ask(run.port, "GET", "/readyz")[0] != http.client.SERVICE_UNAVAILABLE:
                return
        time.sleep(0.1)
    raise RuntimeError(f"{run.command} does not serve")


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def _runs(folder: Path, serve_seconds: float) -> Iterator[CommandRun]:
    """Yield the runs; the arguments of later runs depend on files of earlier ones."""
    texts = [entry[field] for entry in zaragoza_construction_faq.load(lang="en") for field in ("q", "a")]
    encoder = str(write_fake_encoder(folder / "encoder", texts))
    data, releases, log = folder / "data", folder / "releases", folder / "queries.jsonl"
    write_sample(data)
    yield CommandRun("completion", ["bash"])
    yield CommandRun("settings", [])
    yield CommandRun("key new", ["--name", "a", "--scopes", "search", "--file", str(folder / "keys.json")])
    yield CommandRun("key list", ["--file", str(folder / "keys.json")])
    yield CommandRun("key remove", ["a", "--file", str(folder / "keys.json")])
    yield from _runs_on_texts(folder, texts, encoder)
    base = str(write_spoilt_model(folder / "spoilt"))
    recipe = ["--recipe", "whitening", "--split", "test", "--lexical", "off"]
    yield CommandRun("adapt", [str(data), "--encoder", base, "--to", str(folder / "adapted"), *recipe])
    yield CommandRun("compare", [str(data), encoder, base, "--lexical", "off"])
    vectors = (folder / "vectors").as_uri()
    yield CommandRun("encode", [str(data), "--to", vectors, "--encoder", encoder, "--workers", "2"])
    at = ["--releases", str(releases)]
    yield CommandRun("calibrate", [str(data), *at, "--encoder", encoder])
    yield CommandRun("calibrate", [str(data), *at, "--encoder", encoder, "--seed", "1"])
    run, of_run = write_json(folder / "run.jsonl", dense_results(data, releases)), str(folder / "of-run")
    store = ["--as", "qdrant", "--url", "http://127.0.0.1:1", "--collection", "a", "--encoder", encoder]
    yield CommandRun("run", [str(data), *store, "--to", str(folder / "new.jsonl")], status=1)  # nothing listens there
    yield CommandRun("calibrate-run", [str(run), str(data / "qrels" / "test.tsv"), "--releases", of_run])
    yield from _servers(at, str(log), serve_seconds)
    yield CommandRun("explain", [_QUESTION, _first_id(data), *at])
    yield CommandRun("traffic", [str(log), "--to", str(data), "--votes", "1"])
    yield CommandRun("log verify", [str(log)], status=1)  # it is not chained
    yield CommandRun("drift replay", [str(log), *at])
    yield CommandRun("drift baseline", [str(log), *at], status=2)  # it needs the queries of a week
    yield from _runs_on_releases(folder, releases, _first_id(data))
    yield CommandRun("update", [str(data), *at])  # the same code as recalibrate, with nothing to do
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write(json.dumps({"_id": "new", "text": f"{texts[1]} and a bridge"}) + "\n")
    yield CommandRun("recalibrate", [str(data), *at])
    judge = [str(data), *at, "--judge", "ana", "--n", "1"]
    port = free_port()
    yield CommandRun("judge", [*judge, "--port", str(port)], port=port, settings={"SSH_CONNECTION": "1"}, status=130)


def _runs_on_texts(folder: Path, texts: Sequence[str], encoder: str) -> Iterator[CommandRun]:
    """Yield runs on a folder of files; the quickstart exports its encoder from PyTorch."""
    files, imported, port = folder / "texts", str(folder / "imported"), free_port()
    files.mkdir()
    for number, text in enumerate(texts[:40]):
        (files / f"{number}.txt").write_text(text, encoding="utf-8")
    yield CommandRun("import", [str(files), "--to", imported, "--encoder", encoder])
    with fake_model() as model:
        endpoint = ["--method", "endpoint", "--endpoint", model.url, "--model", "m", "--yes"]
        yield CommandRun("queries", [imported, *endpoint, "--encoder", encoder, "--max", "5"])
    place = ["--directory", str(folder / "quickstart"), "--port", str(port)]
    yield CommandRun("quickstart", [str(files), *place], port=port, use=_search)


def _servers(at: Sequence[str], log: str, seconds: float) -> Iterator[CommandRun]:
    """Yield runs of the service with one process and with two, and of the MCP server."""

    def search_and_wait(port: int) -> None:
        _search(port)
        time.sleep(seconds)

    settings = {"TAUGATE_QUERY_LOG": log, "TAUGATE_QUERY_LOG_TEXTS": "true"}
    for workers in ("1", "2"):
        port = free_port()
        arguments = [*at, "--port", str(port), "--workers", workers]
        yield CommandRun("serve", arguments, port=port, use=search_and_wait, settings=settings)
    port, url = free_port(), f"http://127.0.0.1:{free_port()}"
    yield CommandRun(MCP, ["--url", url])
    yield CommandRun(MCP, ["--url", url, "--transport", "http", "--port", str(port)], port=port)


def _runs_on_releases(folder: Path, releases: Path, document: str) -> Iterator[CommandRun]:
    at = ["--releases", str(releases)]
    for action in ("list", "show", "verify", "check", "history"):
        yield CommandRun(f"release {action}", at)
    yield CommandRun("release correlations", at, status=2)  # it has moved to `compare`
    current = (releases / "current").read_text(encoding="utf-8").strip()
    (previous,) = {path.parent.name for path in releases.glob("*/manifest.json")} - {current}
    yield CommandRun("release diff", [previous, current, *at])
    yield CommandRun("release promote", [previous, *at, "--force"])
    yield CommandRun("release rollback", at)
    yield CommandRun("release shadow", [previous, *at])
    yield CommandRun("release shadow", ["--none", *at])
    yield CommandRun("release sign", [current, "--key", str(write_keys(folder)[0]), *at])
    bucket = (folder / "bucket").as_uri()
    yield CommandRun("release push", [current, "--to", bucket, "--promote", *at])
    yield CommandRun("release pull", ["--from", bucket, "--releases", str(folder / "pulled")])
    yield CommandRun("release erase", [current, document, *at])
    yield CommandRun("release prune", ["--keep", "1", *at])


def _first_id(data: Path) -> str:
    with (data / "corpus.jsonl").open(encoding="utf-8") as corpus:
        return str(json.loads(next(corpus))["_id"])


def _search(port: int) -> None:
    """Search, and judge the first result, if any."""
    reply = json.loads(_ask(port, "POST", "/search", {"query": _QUESTION})[1])
    if reply["results"]:
        judged = {"query_id": reply["query_id"], "document_id": reply["results"][0]["id"], "relevant": True}
        _ask(port, "POST", "/feedback", judged)


def _ask(port: int, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    """Return status and body of a reply.

    Raises:
        OSError: If the server does not answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()
