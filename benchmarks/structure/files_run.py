"""Lists the files of this repository that run for one search over ASGI, or for one calibration of the sample.

`python -m benchmarks.structure.files_run search|calibrate [--limit N]` needs what `make quickstart` installs. A file runs
when one of its functions is called. All modules whose requirements are installed are imported beforehand, so that
importing a module does not count as running it. With `--limit`, the exit code is 1 if more files than that ran.
"""

import argparse
import asyncio
import contextlib
import importlib
import inspect
import io
import json
import pkgutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import taugate
from taugate.cli import main as cli
from taugate.ingestion.dataset.sample import write_sample
from taugate.registry.catalog import find

ROOT = Path(__file__).resolve().parents[2]
_NOT_COUNTED = {"benchmarks", "tests"}  # they start the product, and are no part of it
_READY_SECONDS = 60.0
_REPEATED = 5  # searches: a file that runs only in some of them does work in the background, such as the canaries


class FileTracer:
    """Records which source files run, in all threads that start after `install`.

    `recording()` is a context manager: only calls inside it are counted. Code of modules and class bodies is left out.
    """

    def __init__(self) -> None:
        self._recording = False
        self._codes: set[CodeType] = set()

    def install(self) -> None:
        """Trace this thread and those that start from now on."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Count the calls made inside, and forget those before."""
        self._codes, self._recording = set(), True
        try:
            yield
        finally:
            self._recording = False

    def files(self) -> list[Path]:
        """Return the paths of the files that ran, relative to the repository, with links resolved, sorted."""
        functions = (code for code in self._codes if code.co_flags & inspect.CO_OPTIMIZED)
        resolved = {Path(name).resolve() for name in {code.co_filename for code in functions} if name.endswith(".py")}
        inside = (path.relative_to(ROOT) for path in resolved if path.is_relative_to(ROOT))
        return sorted(path for path in inside if path.parts[0] not in _NOT_COUNTED and ".venv" not in path.parts)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self._recording:
            self._codes.add(frame.f_code)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structure.files_run", description=__doc__)
    parser.add_argument("work", choices=["search", "calibrate"])
    parser.add_argument("--limit", type=int, help="exit with 1 if more files ran")
    options = parser.parse_args(arguments)
    _import_installed()
    tracer = FileTracer()
    with tempfile.TemporaryDirectory() as folder:
        data, releases = Path(folder) / "data", Path(folder) / "releases"
        write_sample(data)
        if options.work == "calibrate":
            tracer.install()
            with tracer.recording():
                _calibrate(data, releases)
            files = tracer.files()
        else:
            _calibrate(data, releases)
            files = asyncio.run(_search(releases, tracer))
    sys.setprofile(None)
    folders = Counter(str(path.parent) for path in files)
    print(*files, sep="\n")
    print(f"\n{len(files)} files in {len(folders)} folders")
    return int(options.limit is not None and len(files) > options.limit)


def _import_installed() -> None:
    """Import every module of taugate, but for those that need a library that is not installed."""
    for module in pkgutil.walk_packages(taugate.__path__, "taugate.", onerror=lambda _: None):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("taugate"):
                    raise


def _calibrate(data: Path, releases: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as log:
        status = cli.main(["calibrate", str(data), "--releases", str(releases)])
    if status:
        raise RuntimeError(f"the sample could not be calibrated: {log.getvalue()}")


async def _search(releases: Path, tracer: FileTracer) -> list[Path]:
    """Serve the release in this process, and return the files that run for every search whose reply is not cached."""
    from taugate.service.app import create_app
    from taugate.service.settings import Settings

    find(releases)
    tracer.install()
    app = create_app(Settings(releases=releases, shadow_share=0))
    async with app.router.lifespan_context(app):
        async with asyncio.timeout(_READY_SECONDS):
            while await _call(app, "GET", "/readyz") != 200:
                await asyncio.sleep(0.05)
        await _call(app, "POST", "/search", {"query": "another query"})  # afterwards nothing is done for the first time
        runs = []
        for number in range(_REPEATED):
            await asyncio.sleep(1.3)  # longer than the second in which the drift watch collects traffic
            with tracer.recording():
                status = await _call(app, "POST", "/search", {"query": f"Do I need a permit for {number} garages?"})
            if status != 200:
                raise RuntimeError(f"the search was answered {status}")
            runs.append({*tracer.files()})
    return sorted(set.intersection(*runs))


async def _call(app: Any, method: str, path: str, body: object = None) -> int:  # noqa: ANN401 (an ASGI application)
    """Make a request without a server; returns the status of the reply."""
    content = b"" if body is None else json.dumps(body).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers += [(b"content-length", str(len(content)).encode())]
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
    }
    scope |= {"query_string": b"", "headers": headers, "scheme": "http", "root_path": ""}
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "state": {}}
    sent: list[dict[str, Any]] = []
    received = False

    async def receive() -> dict[str, Any]:
        nonlocal received
        if received:
            await asyncio.Event().wait()  # the client stays connected
        received = True
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


if __name__ == "__main__":
    sys.exit(main())
