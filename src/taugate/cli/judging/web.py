"""Judging on a page in a browser of this machine, which only its user can open.

The server listens on the loopback interface only. The URL of the page holds a secret token, so that neither another
user of the machine nor another page in the browser can read or judge. The Host header is checked against DNS
rebinding. The page loads nothing from other hosts, and inserts texts as text, not as HTML.
"""

import hmac
import os
import secrets
import socket
import sys
import webbrowser
from json import JSONDecodeError
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from taugate.cli.judging.session import GUIDELINE, KEYS, Commands, JudgingSession, heading, next_step, segments
from taugate.cli.terminal.output import say
from taugate.errors import InputError, TaugateError
from taugate.ingestion.labels.judging import Judging
from taugate.service.api.playground.files import PAGE_HEADERS, PageFile, page_files
from taugate.storage.json_values import Json

_HOST = "127.0.0.1"
_HEADERS = {**PAGE_HEADERS, "Cache-Control": "no-store"}
_MAX_BYTES = 4096  # of a request body: a key, and the digits of a result
_SILENCE_SECONDS = 30  # before an idle connection is closed


def judge_on_page(work: Judging, port: int, commands: Commands) -> None:
    """Serve the page and open it, on any free port if it is 0, until the judge stops there or presses Ctrl-C here.

    Without a browser on this host, the command that tunnels to the page is printed. When the judge stops, the page
    names the commands.

    Raises:
        InputError: If the port is taken, or the data set changes meanwhile.
    """
    try:
        listener = socket.create_server((_HOST, port))
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: cannot be used ({error}); give another, or leave it out") from error
    with listener:
        page = _Page(work, listener.getsockname()[1], commands)
        address = f"http://{_HOST}:{page.port}/{page.token}/"
        say(f"Judge at {address} (Ctrl-C ends)")
        if not open_in_browser(address):
            tunnel = f"ssh -L {page.port}:{_HOST}:{page.port} {socket.gethostname()}"
            say(f"No browser here? Run `{tunnel}` where you have one, and open the address there.")
        page.server.run(sockets=[listener])
    if page.failure is not None:
        raise page.failure


def open_in_browser(address: str) -> bool:
    """Open a page in a browser with windows on this host; False if there is none, as in an SSH session."""
    has_windows = sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    return has_windows and "SSH_CONNECTION" not in os.environ and webbrowser.open(address)


class _Page:
    """The page, and the session that all its requests share; they are handled one after another.

    Attributes:
        token: Secret part of every path.
        failure: Error that ended the session, or None if the judge ended it.
    """

    def __init__(self, work: Judging, port: int, commands: Commands) -> None:
        self.port, self.token = port, secrets.token_urlsafe(24)
        self.failure: TaugateError | OSError | None = None
        self._work, self._remarks, self._commands = work, list[str](), commands
        self._session = JudgingSession(work, self._remarks.append)
        self._hosts = {f"{name}:{port}" for name in (_HOST, "localhost")}
        routes = [Route(f"/{self.token}/{name}", _sender(file)) for name, file in page_files("judge").items()]
        routes.append(Route(f"/{self.token}/state", self._get_state))
        routes.append(Route(f"/{self.token}/key", self._post_key, methods=["POST"], max_body_size=_MAX_BYTES))
        app = Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._guard)])
        self.server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="error", lifespan="off", server_header=False, timeout_keep_alive=_SILENCE_SECONDS
            )
        )

    async def _guard(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Refuse requests under another host name or without the token."""
        token, slash, _ = request.scope["path"].removeprefix("/").partition("/")
        if request.headers.get("Host") not in self._hosts:
            response: Response = PlainTextResponse("unknown Host header\n", 403)
        elif not slash or not hmac.compare_digest(token.encode(), self.token.encode()):
            response = PlainTextResponse("not found\n", 404)
        else:
            response = await call_next(request)
        response.headers.update(_HEADERS)
        return response

    async def _get_state(self, _: Request) -> Response:
        return JSONResponse(self._state())

    async def _post_key(self, request: Request) -> Response:
        """Carry out the action of a key, and send the new state of the page.

        A judgement of another result than the one shown is rejected, which happens if the page is open twice.
        """
        origin, kind = request.headers.get("Origin"), request.headers.get("Content-Type", "").partition(";")[0]
        if (origin is not None and origin.removeprefix("http://") not in self._hosts) or kind != "application/json":
            return PlainTextResponse("only the page itself may send keys\n", 403)
        try:
            sent = orjson.loads(await request.body())
            key, pair = sent["key"], sent["pair"]
        except (JSONDecodeError, KeyError, TypeError):
            key = pair = None
        if not isinstance(key, str) or key not in KEYS or not isinstance(pair, str):
            return PlainTextResponse("not a key\n", 422)
        question = self._session.question
        if key in {"y", "n", "s"} and (question is None or question.pair != pair):
            self._remarks.append("that result was already judged; this is the next one")
            return JSONResponse(self._state())
        try:
            running = self._session.handle_key(key)
        except (TaugateError, OSError) as error:  # the data set has changed, or the disk is full
            self.failure, running = error, False
        if running:
            return JSONResponse(self._state())
        self.server.should_exit = True
        if self.failure is None:
            return JSONResponse(self._ending("Stopped. All judgements are kept.") | {"stopped": True})
        return JSONResponse(self._progress() | {"message": str(self.failure), "stopped": True})

    def _state(self) -> dict[str, Json]:
        """Return what the page shows."""
        remark = ". ".join(self._remarks)
        self._remarks.clear()
        question = self._session.question
        if question is None:
            return self._ending("All queries of the sample are judged. Press q to stop.") | {
                "remark": remark,
                "keys": KEYS,
            }
        query, document = question.query.text, question.document
        return self._progress() | {
            "remark": remark,
            "keys": KEYS,
            "guideline": GUIDELINE,
            "pair": question.pair,
            "query": query,
            "heading": heading(question),
            "title": segments(document.title or "", query),
            "text": segments(document.text, query),
        }

    def _progress(self) -> dict[str, Json]:
        progress = self._work.session.progress()
        return {"progress": str(progress), "done": progress.done, "total": progress.total}

    def _ending(self, message: str) -> dict[str, Json]:
        """Return what the page shows when the sample is finished, or the judge has stopped."""
        step, command = next_step(self._work, self._commands)
        return self._progress() | {"message": message, "step": f"{step}:", "command": command}


def _sender(file: PageFile) -> Any:  # noqa: ANN401 (an endpoint of Starlette)
    async def send(_: Request) -> Response:
        return Response(file.content, media_type=file.media_type)

    return send
