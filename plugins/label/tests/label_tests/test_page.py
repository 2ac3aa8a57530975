"""The page of `taugate judge`: only its reader can open it, and no key press is lost."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from label_tests.conftest import Start
from taugate.cli import main as cli
from tests.browser import cut_off, opened, violations


class Served:
    """A page that is served: its address, a client for it, and the process."""

    def __init__(self, start: Start) -> None:
        self.process = start(stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert self.process.stderr is not None
        self.address = ""
        for line in self.process.stderr:
            if found := re.search(rb"Judge at (http://127\.0\.0\.1:\d+/[\w-]{32}/) \(Ctrl-C ends\)", line):
                self.address = found[1].decode()
                break
        self.hint = self.process.stderr.readline().decode()
        self.http = httpx.Client(base_url=self.address, timeout=30)

    @property
    def state(self) -> dict[str, str]:
        """What the page shows now."""
        return self.http.get("state").json()

    def press(self, key: str, pair: str | None = None) -> dict[str, str]:
        """Send a key, for the result that is shown or for another one."""
        pair = self.state.get("pair", "") if pair is None else pair
        return self.http.post("key", json={"key": key, "pair": pair}).raise_for_status().json()


@pytest.fixture
def served(start: Start) -> Iterator[Served]:
    page = Served(start)
    yield page
    page.process.kill()
    page.process.communicate()


def test_page_judges_whole_sample(served: Served, data: Path) -> None:
    first = served.state
    assert (first["heading"], first["progress"]) == ("Result 1 of 5", "0 of 4 queries, 0 judgements")
    assert not {"score", "threshold", "kept", "command"} & first.keys()
    assert first["guideline"].startswith("Relevant: the passage answers the query")
    after = served.press("y")
    assert after["heading"] == "Result 2 of 5"
    assert served.press("u")["pair"] == first["pair"]
    for key in "ynnnn":
        last = served.press(key)
    assert last["progress"] == "1 of 4 queries, 5 judgements"
    qrels = (data / "qrels" / "human.tsv").read_text(encoding="utf-8").splitlines()
    assert len(qrels) == 6  # written while the page is open
    for _ in range(3):
        last = served.press("s")
    assert last["message"] == "All queries of the sample are judged. Press q to stop."
    assert (last["done"], last["total"], last["progress"]) == (4, 4, "4 of 4 queries, 5 judgements, 0 min left")
    assert last["command"].startswith(f"taugate calibrate {data} --releases ")
    assert last["command"].endswith(" --labels human")
    assert served.press("q")["stopped"] is True
    error = served.process.communicate(timeout=30)[1].decode()
    assert served.process.returncode == 0
    assert "1 of 4 queries judged, 1 of them with a relevant passage" in error


def test_page_with_skipped_queries_names_another_sample(served: Served) -> None:
    for _ in range(4):
        last = served.press("s")
    assert last["step"] == "Every query was skipped. Judge others with:"
    assert last["command"].endswith("--judge ana --more")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_process_keeps_judgements(served: Served, start: Start, data: Path, number: signal.Signals) -> None:
    for _ in range(7):
        shown = served.press("y")
    served.process.send_signal(number)
    error = served.process.communicate(timeout=30)[1].decode()
    if number != signal.SIGKILL:
        assert served.process.returncode == 130
        assert error.endswith("taugate: interrupted\n")
    journal, qrels = data / "judgements" / "human" / "ana.jsonl", data / "qrels" / "human.tsv"
    first = [json.loads(line)["query"] for line in journal.read_text(encoding="utf-8").splitlines()]
    assert len(first) == 7
    assert {line.split("\t")[0] for line in qrels.read_text(encoding="utf-8").splitlines()[1:]} == {first[0]}
    again = Served(start)
    assert again.state == shown
    assert again.press("q")["stopped"] is True
    assert again.process.wait(timeout=30) == 0


def test_second_page_rejects_stale_judgement(served: Served) -> None:
    first = served.state["pair"]
    second = served.press("y", first)["pair"]
    assert second != first
    late = served.press("n", first)
    assert (late["pair"], late["remark"]) == (second, "that result was already judged; this is the next one")
    assert late["progress"] == "0 of 4 queries, 1 judgement"


def test_request_without_token_is_rejected(served: Served) -> None:
    root = httpx.URL(served.address).copy_with(path="/")
    token = served.address.rstrip("/").rpartition("/")[2]
    pair, key = served.state["pair"], {"key": "y", "pair": served.state["pair"]}
    assert httpx.get(root).status_code == 404
    assert httpx.get(root.join(f"{token[:-1]}!/state")).status_code == 404
    assert httpx.get(root.join(token)).status_code == 404
    for host in ("evil.example", f"evil.example:{root.port}", "127.0.0.1", "localhost"):
        assert served.http.get("state", headers={"Host": host}).status_code == 403
        assert served.http.post("key", json=key, headers={"Host": host}).status_code == 403
    assert served.http.get("state", headers={"Host": f"localhost:{root.port}"}).status_code == 200
    foreign = ["https://evil.example", "null", f"https://127.0.0.1:{root.port}", "http://127.0.0.1"]
    for origin in foreign:
        assert served.http.post("key", json=key, headers={"Origin": origin}).status_code == 403
    form = {"Content-Type": "text/plain"}  # what a form of another page can send
    assert served.http.post("key", content=json.dumps(key), headers=form).status_code == 403
    assert served.http.post("state", json=key).status_code == 405
    assert served.http.post("key", json=key | {"more": "x" * 5000}).status_code == 413
    for wrong in ({}, [], {"key": "yy", "pair": pair}, {"key": ["y"], "pair": pair}, {"key": "y", "pair": 1}):
        assert served.http.post("key", json=wrong).status_code == 422
    for deep in (b"[" * 4000, b'{"a":' * 800, b"\xff", b""):
        reply = served.http.post("key", content=deep, headers={"Content-Type": "application/json"})
        assert (reply.status_code, reply.text) == (422, "not a key\n")
    assert served.http.put("key", json=key).status_code == 405
    assert served.state["progress"] == "0 of 4 queries, 0 judgements"


def test_page_loads_no_foreign_resource(served: Served) -> None:
    for name in ("", "judge.css", "judge.js", "state"):
        reply = served.http.get(name)
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (reply.headers["X-Content-Type-Options"], reply.headers["Cache-Control"]) == ("nosniff", "no-store")
    assert served.http.get("judging.js").status_code == served.http.get("page.css").status_code == 404


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_page_works_in_browser(browser: Browser, served: Served, width: int, scheme: str) -> None:
    with opened(browser, served.address, width=width, scheme=scheme) as page:
        page.wait_for_selector("#keys button")
        assert violations(page) == []
        assert cut_off(page) == []
        assert page.locator("mark").count() > 0
        page.keyboard.press("y")
        page.wait_for_function("document.getElementById('heading').textContent === 'Result 2 of 5'")
        assert page.evaluate("document.activeElement.id") == "passage"
        page.keyboard.press("Control+y")
        page.locator("#letters").uncheck()
        page.keyboard.press("n")
        page.get_by_role("button", name="Undo").click()
        page.wait_for_function("document.getElementById('heading').textContent === 'Result 1 of 5'")
        assert page.locator("#progress").text_content() == "0 of 4 queries, 0 judgements"
        assert page.get_by_role("progressbar").get_attribute("max") == "4"
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Stopped. All judgements are kept.").wait_for()
        assert "taugate judge " in str(page.locator("#command").text_content())
        assert violations(page) == []
        assert cut_off(page) == []
        assert page.get_by_role("button").count() == 0
    assert served.process.wait(timeout=30) == 0


def test_corpus_text_is_not_markup(browser: Browser, served: Served) -> None:
    """The script of a hostile document is shown, not run."""
    hostile = served.state | {"text": [["<img src=x onerror='window.ran=1'>", False]]}
    with opened(browser, served.address) as page:
        page.wait_for_selector("#keys button")
        page.route("**/key", lambda route: route.fulfill(json=hostile))
        page.locator('#keys button[aria-keyshortcuts="u"]').click()
        page.get_by_text("<img src=x").wait_for()
        assert page.evaluate("window.ran") is None


def test_second_start_is_refused(served: Served, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    port = httpx.URL(served.address).port
    assert cli.main([*command, "--judge", "ben", "--port", str(port)]) == 2
    assert f"taugate: --port {port}: cannot be used" in capsys.readouterr().err
    assert cli.main(command) == 2
    message = "ana is judging in another process; end it, or give another name with --judge"
    assert message in capsys.readouterr().err
    hint = rf"No browser here\? Run `ssh -L {port}:127.0.0.1:{port} \S+` where you have one, .*\n"
    assert re.fullmatch(hint, served.hint), "the host has no browser with windows"
