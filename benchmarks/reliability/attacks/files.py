"""Attacks by files: planted ones, and commands that change the same ones at once."""

import http.client
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting
from benchmarks.serving.client import HOST
from benchmarks.serving.servers import Server
from taugate.release.layout import HISTORY

_RELOAD_SECONDS = 10.0
_KEYS, _RELEASES, _JUDGEMENTS = 12, 200, 30
_WORKERS_SECONDS = 4.0  # until the second of two workers answers as well


def fifo(setting: AttackSetting) -> AttackResult:
    """Replace `current` on a shared folder by a pipe without a writer, and ask for a reload."""
    with (
        _copied(setting) as own,
        tempfile.TemporaryDirectory() as kept,
        own.service("--releases", own.releases.as_uri(), settings={"RELEASES_COPY": kept}) as server,
    ):
        (own.releases / "current").unlink()
        os.mkfifo(own.releases / "current")
        began = time.monotonic()
        status, code = _reload(server, setting.keys["admin"])
        took = time.monotonic() - began
        if not status:
            server.kill()
    measured = f"reload: {status} {code} after {took:.1f} s" if status else f"reload: none within {took:.0f} s"
    return AttackResult(
        "a FIFO as `current`", measured, f"an error within {_RELOAD_SECONDS:g} s", bool(status) and bool(code)
    )


def file_names(setting: AttackSetting) -> AttackResult:
    """Promote a release with a file whose name is not UTF-8."""
    with _copied(setting) as own, own.service() as server:
        name = own.another_release()
        Path(os.fsdecode(bytes(own.releases / name) + b"/\xff\xfe")).write_bytes(b"")
        (own.releases / "current").write_text(f"{name}\n")
        status, code = _reload(server, setting.keys["admin"])
    held = status == 200 or (bool(code) and code != "internal")
    return AttackResult("a file name that is not UTF-8", f"reload: {status} {code}", "an error that says so", held)


def keys_at_once(setting: AttackSetting) -> AttackResult:
    """Run `taugate key new` on one file 12 times at once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "keys.json"
        named = [["key", "new", "--name", f"key-{number}", "--scopes", "search"] for number in range(_KEYS)]
        ended = [process.communicate()[1] for process in [setting.run(*each, "--file", str(file)) for each in named]]
        added, entries = sum("Added" in each for each in ended), len(json.loads(file.read_bytes()))
    return AttackResult(
        "`key new` at once", f"{added} added, {entries} entries", f"{_KEYS} and {_KEYS}", added == entries == _KEYS
    )


def prunes_at_once(setting: AttackSetting) -> AttackResult:
    """Run `taugate release prune` twice at once."""
    with _copied(setting) as own:
        for number in range(_RELEASES):
            own.another_release(number)
        command = ["release", "prune", "--keep", "1", "--releases", str(own.releases)]
        errors = sum(process.wait() != 0 for process in [own.run(*command) for _ in range(2)])
        history = [json.loads(line) for line in (own.releases / HISTORY).read_text().splitlines()]
    removed = [event["release"] for event in history if event["action"] == "prune"]
    twice = len(removed) - len({*removed})
    return AttackResult(
        "`release prune` twice at once", f"{errors} errors, {twice} removed twice", "0 and 0", not errors and not twice
    )


def judgements(setting: AttackSetting) -> AttackResult:
    """Judge replies of two workers without Redis, each judgement on a connection of its own."""
    unknown = 0
    with setting.service("--workers", "2") as server:
        time.sleep(_WORKERS_SECONDS)
        for number in range(_JUDGEMENTS):
            reply = orjson.loads(server.ask(f"Who is liable for hidden defects when I buy house {number}?"))
            judged = {"query_id": reply["query_id"], "document_id": _shown(reply), "relevant": True}
            unknown += _post(server, "/feedback", setting.keys["good"], judged)[0] == 404
    return AttackResult("judgements with two workers", f"{unknown} of {_JUDGEMENTS} are 404", "0", not unknown)


def _shown(reply: dict[str, Any]) -> str:
    return str(reply["results"][0]["id"]) if reply["results"] else "none"


@contextmanager
def _copied(setting: AttackSetting) -> Iterator[AttackSetting]:
    """Copy the setting with its releases, so that an attack may change them."""
    with tempfile.TemporaryDirectory() as folder:
        releases = Path(folder) / "releases"
        shutil.copytree(setting.releases, releases)
        yield replace(setting, releases=releases)


def _reload(server: Server, key: str) -> tuple[int, str]:
    """Status and code of a reload, 0 and "" if there is no answer."""
    return _post(server, "/admin/reload", key, None)


def _post(server: Server, path: str, key: str, body: object) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=_RELOAD_SECONDS)
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    try:
        connection.request("POST", path, b"" if body is None else orjson.dumps(body), headers)
        reply = connection.getresponse()
        said = reply.read()
        try:
            code = orjson.loads(said).get("error", {}).get("code", "")
        except ValueError:
            code = ""
        return reply.status, code
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()
