"""`taugate-mcp` as a process: both transports in both protocols, shutdown, allowed hosts, and wrong usage."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from taugate_mcp.command import main
from tests.clients.mcp_process import COMMAND, HTTPProcess, environment, stdio
from tests.interruptible import interruptible
from tests.loopback import LoopbackHTTPServer
from tests.service_process import ServiceProcess
from tests.unread import redirected, unread

QUESTION = "Who is liable for hidden defects?"
KEY = "sesame-of-mine"
PROTOCOLS = {"legacy": "2025-11-25", "auto": "2026-07-28"}  # the newest with a handshake, and the one without
HEADERS = {"Accept": "application/json, text/event-stream"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture(scope="module")
def guarded(releases: Path) -> Iterator[str]:
    """The URL of a service that asks for a key."""
    key = {"name": "agent", "sha256": sha256(KEY.encode()).hexdigest(), "scopes": ["search", "feedback"]}
    with ServiceProcess(releases, TAUGATE_KEYS=json.dumps([key])) as process:
        process.ready()
        yield f"http://127.0.0.1:{process.port}"


@pytest.fixture(scope="module")
def served(guarded: str) -> Iterator[HTTPProcess]:
    with HTTPProcess(guarded, "--allowed-hosts", "agents.example, mcp", TAUGATE_KEY=KEY) as process:
        yield process


async def search_and_judge(server: str | StdioServerParameters, mode: str) -> None:
    async with Client(server, mode=mode) as client:
        assert client.protocol_version == PROTOCOLS[mode]
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search", "explain", "gate", "feedback"]
        found = await client.call_tool("search", {"query": QUESTION})
        assert not found.is_error, found.content
        shown = found.structured_content
        empty = await client.call_tool("search", {"query": QUESTION, "threshold": 0.99})
        assert empty.structured_content["passages"] == []
        judged = {"query_id": shown["query_id"], "document_id": shown["passages"][0]["id"], "relevant": True}
        assert not (await client.call_tool("feedback", judged)).is_error
        refused = await client.call_tool("search", {"query": QUESTION, "filter": {"colour": "red"}})
        assert refused.is_error


@pytest.mark.parametrize("mode", PROTOCOLS)
@pytest.mark.slow
def test_stdio_search_and_judge(guarded: str, mode: str) -> None:
    asyncio.run(search_and_judge(stdio(guarded, TAUGATE_KEY=KEY), mode))


@pytest.mark.parametrize("mode", PROTOCOLS)
def test_http_search_and_judge(served: HTTPProcess, mode: str) -> None:
    asyncio.run(search_and_judge(served.url, mode))


def test_key_file_is_read(guarded: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n", encoding="utf-8")
    with HTTPProcess(guarded, TAUGATE_KEY_FILE=str(tmp_path / "key")) as process:
        asyncio.run(search_and_judge(process.url, "auto"))


def test_concurrent_clients_have_no_session(served: HTTPProcess) -> None:
    asked = {"name": "search", "arguments": {"query": QUESTION, "k": 1}}

    def ask(number: int) -> str:
        body = LIST | {"id": number, "method": "tools/call", "params": asked}
        reply = httpx.post(served.url, json=body, headers=HEADERS, timeout=30)
        assert "mcp-session-id" not in reply.headers
        return str(reply.json()["result"]["structuredContent"]["passages"][0]["id"])

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(32)))) == 1


@pytest.mark.parametrize("version", PROTOCOLS.values())
@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost", None, 200),
        ("localhost:8765", "http://localhost:8765", 200),
        ("[::1]:8765", None, 200),
        ("mcp", None, 200),
        ("agents.example:443", "https://agents.example", 200),
        ("evil.example", None, 421),
        ("127.0.0.1.evil.example", None, 421),
        ("localhost", "http://evil.example", 403),
        ("localhost", "null", 403),
    ],
)
def test_foreign_host_or_origin_is_refused(
    served: HTTPProcess, version: str, host: str, origin: str | None, status: int
) -> None:
    """A page whose name is bound to 127.0.0.1 after it was loaded sends its own name (DNS rebinding)."""
    headers = HEADERS | {"Host": host, "MCP-Protocol-Version": version, "MCP-Method": "tools/list"}
    body: dict[str, object] = dict(LIST)
    if version == PROTOCOLS["auto"]:
        body["params"] = {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        }
    reply = httpx.post(served.url, json=body, headers=headers | ({"Origin": origin} if origin else {}))
    assert reply.status_code == status, reply.text
    assert "server" not in reply.headers


def test_livez_stream_and_large_body(served: HTTPProcess) -> None:
    assert httpx.get(served.url.replace("/mcp", "/livez")).text == "ok\n"
    stream = httpx.get(served.url, headers=HEADERS)
    assert (stream.status_code, stream.headers["allow"]) == (405, "POST")
    assert (
        httpx.post(served.url, content=b"x" * 200_000, headers={"Content-Type": "application/json"}).status_code == 413
    )
    assert (
        httpx.post(served.url, content=b"{", headers=HEADERS | {"Content-Type": "application/json"}).status_code == 400
    )
    assert httpx.get(served.url.replace("/mcp", "/")).status_code == 404


class Slow(BaseHTTPRequestHandler):
    """A service that takes a second to refuse."""

    asked = threading.Event()

    def do_POST(self) -> None:
        self.asked.set()
        time.sleep(1)
        self.send_error(500)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_sigterm_completes_requests_in_progress() -> None:
    with LoopbackHTTPServer(Slow) as slow, HTTPProcess(slow.url, TAUGATE_KEY=KEY) as process:
        body = LIST | {"method": "tools/call", "params": {"name": "search", "arguments": {"query": "q"}}}
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(httpx.post, process.url, json=body, headers=HEADERS, timeout=30)
            assert Slow.asked.wait(30)
            assert process.stop() == 0
            result = asked.result().json()["result"]
        assert result["isError"]
        assert result["content"][0]["text"].startswith("The search service failed (request ")
        assert KEY not in process.log
        assert "Traceback" not in process.log


def test_sigint_ends_both_transports() -> None:
    with HTTPProcess("http://127.0.0.1:9") as process:
        assert process.stop(signal.SIGINT) == 130
    command = [*COMMAND, "--url", "http://127.0.0.1:9"]
    with subprocess.Popen(
        interruptible(command), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as over_stdio:
        assert over_stdio.stdin is not None
        assert over_stdio.stdout is not None
        over_stdio.stdin.write(json.dumps(LIST | {"method": "ping"}).encode() + b"\n")
        over_stdio.stdin.flush()
        assert over_stdio.stdout.readline()  # it serves
        over_stdio.send_signal(signal.SIGINT)
        assert over_stdio.wait(timeout=30) == -signal.SIGINT


def test_stdio_ends_with_input() -> None:
    call = LIST | {"method": "tools/call", "params": {"name": "search", "arguments": {"query": "q", "k": 0}}}
    hello = LIST | {
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    lines = [json.dumps(hello), "no JSON", json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})]
    text = "\n".join([*lines, json.dumps(call | {"id": 2})]) + "\n"
    command = [*COMMAND, "--url", "http://127.0.0.1:9"]
    done = subprocess.run(
        command, env=environment(), input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(each["jsonrpc"] == "2.0" for each in replies)
    assert replies[0]["result"]["serverInfo"]["name"] == "taugate"


@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        ([], {}, "arguments are required: --url"),
        (["--url", "ftp://a"], {}, "does not begin with http"),
        (["--url", "http://a", "--port", "70000"], {}, "'70000' is not a port"),
        (["--url", "http://a", "--port", "-1"], {}, "'-1' is not a port"),
        (["--url", "http://a", "--allowed-hosts", "http://b"], {}, "leave out scheme and port"),
        (["--url", "http://a", "--transport", "sse"], {}, "invalid choice"),
        (["--url", "http://a"], {"TAUGATE_KEY": "two words"}, "printable ASCII"),
        (["--url", "http://a"], {"TAUGATE_KEY_FILE": "/no/such"}, "TAUGATE_KEY_FILE: /no/such cannot be read"),
        (
            ["--url", "http://a"],
            {"TAUGATE_KEY_FILE": "/dev/null"},
            "TAUGATE_KEY_FILE: /dev/null is empty; write the key into it",
        ),
        (["--url", "http://a"], {"TAUGATE_KEY": "a", "TAUGATE_KEY_FILE": "b"}, "are both set; unset one"),
    ],
)
def test_wrong_usage_exits_with_2(
    options: list[str],
    variables: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    try:
        status = main(options)
    except SystemExit as ended:  # argparse
        status = ended.code
    printed = capsys.readouterr()
    assert status == 2
    assert said in printed.err
    assert printed.out == ""
    assert "two words" not in printed.err


def test_port_in_use_is_reported(served: HTTPProcess, capsys: pytest.CaptureFixture) -> None:
    port = served.url.rpartition(":")[2].removesuffix("/mcp")
    assert main(["--url", "http://a", "--transport", "http", "--port", port]) == 1
    assert capsys.readouterr().err == (
        f"taugate-mcp: 127.0.0.1, port {port}: Address already in use; choose another with --host and --port\n"
    )


def test_missing_extra_names_install_command() -> None:
    program = "import sys; sys.modules['mcp'] = None; from taugate_mcp.command import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "--url", "http://a"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("is missing; run: pip install 'taugate-client[mcp]'\n")
    assert done.stderr.count("\n") == 1


def closed(command: list[str], text: str = "") -> tuple[int, str]:
    """Exit status and stderr of a command over stdio, to whom a client sends a text and leaves."""
    done = subprocess.run(
        command, env=environment(), input=text, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def test_closed_reader_ends_server_quietly() -> None:
    command = [*COMMAND, "--url", "http://127.0.0.1:9"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    assert closed(unread("1", command), f"{request}\n") == (141, "")
    assert closed(unread("1,2", command)) == (0, "")


def test_closed_stdout_is_refused() -> None:
    status, said = closed(redirected(">&-", [*COMMAND, "--url", "http://127.0.0.1:9"]))
    assert status == 2
    assert said.startswith("taugate-mcp: stdin or stdout is closed")
    assert closed(redirected(">&- 2>&-", [*COMMAND, "--url", "nowhere"])) == (2, "")
