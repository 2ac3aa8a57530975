"""A reload that meets an irregular file or an undecodable name reports it and changes nothing."""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from taugate.registry.promotion import promote
from taugate.registry.transfer import promote_remote, push
from taugate.service.app import create_app
from taugate.service.settings import Settings
from tests.service.access.files import OPS, bearer, entry
from tests.service.conftest import Two
from tests.service.inprocess import serving, status, until


def reloaded(settings: Settings, meanwhile: Callable[[], None]) -> httpx.Response:
    """The answer to a reload after something has happened; the release in service is the same before and after."""

    async def scenario() -> httpx.Response:
        async with serving(create_app(settings)) as http:
            await until(lambda: status(http, "/readyz", 200))
            before = (await http.get("/readyz")).json()
            meanwhile()
            reply = await http.post("/admin/reload", headers=bearer(OPS))
            assert (await http.get("/readyz")).json() == before
            return reply

    return asyncio.run(scenario())


def keyed(releases: Path | str, copy: Path) -> Settings:
    return Settings(releases=releases, releases_copy=copy, keys=json.dumps([entry(OPS, "ops", "admin")]))


def test_named_pipe_as_pointer_fails_reload(two: Two, tmp_path: Path) -> None:
    url, current = f"file://{tmp_path}/store", tmp_path / "store" / "current"
    push(two.folder / two.old, url)
    promote_remote(url, two.old)

    def pipe() -> None:
        """Of which a reader would get the id of the release in service, so that no test waits."""
        current.unlink()
        os.mkfifo(current)

        def write() -> None:
            with suppress(OSError):
                current.write_text(two.old)

        threading.Thread(target=write, daemon=True).start()

    reply = reloaded(keyed(url, tmp_path / "copy"), pipe)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "reload_failed")
    assert f"{two.old} remains in service: {url}/current" in reply.json()["error"]["message"]
    assert "not a plain file" in reply.json()["error"]["message"]


def test_non_utf8_file_name_fails_reload(two: Two, tmp_path: Path) -> None:
    def stray() -> None:
        promote(two.folder, two.new)
        Path(os.fsdecode(os.fsencode(two.folder / two.new) + b"/\xff")).touch()

    reply = reloaded(keyed(two.folder, tmp_path / "copy"), stray)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "reload_failed")
    assert rf"{two.new}/\udcff: not part of this release; remove it" in reply.json()["error"]["message"]
