"""Judging on a page in a browser of this machine, which only its user can open, and the session of a judge.

Judging on a page in a browser of this machine, which only its user can open. The server listens on the loopback
interface only. The URL of the page holds a secret token, so that neither another user of the machine nor another page
in the browser can read or judge. The Host header is checked against DNS rebinding. The page loads nothing from other
hosts, and inserts texts as text, not as HTML.
"""

import hmac
import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from json import JSONDecodeError
from typing import Any, NamedTuple

import orjson
import regex
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from taugate.cli.terminal.output import say
from taugate.data.queries import DatasetBusy
from taugate.errors import InputError, TaugateError
from taugate.retrieval.index.words import UNSPACED, words
from taugate.service.api.pages import PAGE_HEADERS, PageFile, read_page
from taugate.storage.files import Json
from taugate_label.judging import Judging
from taugate_label.session import Question

# What every judge has to agree on, so that judgements can be compared.
GUIDELINE = "Relevant: the passage answers the query, or a part of it. The same topic alone is not enough."
# The keys of the page, and their actions.
KEYS = {"y": "relevant", "n": "not relevant", "s": "skip query", "u": "undo", "q": "stop"}
_LETTER = regex.compile(rf"{UNSPACED}\p{{M}}*+")  # of a language without spaces between words
_PAIR = regex.compile(rf"(?:{_LETTER.pattern}){{2}}")
_WORD = regex.compile(rf"(?<![\w\u200c\u200d])(?:(?!{UNSPACED})[\w\u200c\u200d])++")
# Shorter words are in every passage, so marking them does not help, unless they hold a digit or are acronyms.
_MARKED = regex.compile(rf"\w{{4,}}|\w*\d\w*|{_PAIR.pattern}|{_LETTER.pattern}")
_ACRONYM = regex.compile(r"\w+\p{Lu}\w*")  # a capital letter after the first, as in EU, pH and 3D
_GRAMMAR = regex.compile(r"\p{Hiragana}+")  # Hiragana alone: endings and particles of Japanese

_HOST = "127.0.0.1"
_HEADERS = {**PAGE_HEADERS, "Cache-Control": "no-store"}
_PAGE = {"": ["judge.html"], "judge.css": ["judge.css"], "judge.js": ["judging.js"]}
_MAX_BYTES = 4096  # of a request body: a key, and the digits of a result
_SILENCE_SECONDS = 30  # before an idle connection is closed


class Commands(NamedTuple):
    """Commands of a judge: to go on judging this sample, and to calibrate on the judgements."""

    judge: str
    calibrate: str


class Segment(NamedTuple):
    """A piece of a passage, and whether it is a word of the query."""

    text: str
    matched: bool


class JudgingSession:
    """The session of one judge: the current question, and what the keys do to it.

    Attributes:
        question: The result to judge next, or None if the sample is finished.
    """

    def __init__(self, work: Judging, say: Callable[[str], None]) -> None:
        self.work = work
        self._say = say
        self.question = work.session.question()

    def handle_key(self, key: str) -> bool:
        """Carry out the action of a key of KEYS, any other does nothing; returns False if the judge stops.

        The qrels are written whenever a query is finished, or after the next one if another command is writing to the
        data set.
        """
        session, question = self.work.session, self.question
        if key == "q":
            return False
        if key == "u":
            if not session.undo():
                self._say("there is nothing to undo")
        elif question is None:
            return True
        elif key == "s":
            session.skip(question)
        elif key in {"y", "n"}:
            session.judge(question, relevant=key == "y")
        else:
            return True
        self.question = session.question()
        if question is None or self.question is None or self.question.query != question.query:
            with suppress(DatasetBusy):
                self.work.save()
        return True


def next_step(work: Judging, commands: Commands) -> tuple[str, str]:
    """Return what a judge who stops can do next: a phrase, and the command."""
    progress = work.session.progress()
    if progress.done < progress.total:
        return "Continue with", commands.judge
    if work.has_judged:
        return work.next_words, commands.calibrate
    return "Every query was skipped. Judge others with", f"{commands.judge} --more"


def heading(question: Question) -> str:
    """Return the heading of a passage; showing its score or the threshold's decision would bias the judge."""
    if question.rank is not None:
        return f"Result {question.place} of {question.of}"
    return f"No result was relevant. Passage {question.place} of {question.of} that shares words with the query"


def segments(text: str, query: str) -> list[Segment]:
    """Split a text into segments that match words of the query, whatever their case and Unicode form, and others.

    For languages without spaces between words, pairs of adjacent letters are compared instead of words.
    """
    query_words = set(words(query))
    acronyms = _acronyms(query)
    marked = {word for word in query_words if _MARKED.fullmatch(word) and not _GRAMMAR.fullmatch(word)}
    marked |= query_words & (acronyms | _acronyms(text))
    matched = [False] * len(text)
    for pattern in (_WORD, _PAIR, _LETTER):
        for piece in pattern.finditer(text, overlapped=True):
            if marked.intersection(words(piece[0])):
                matched[slice(*piece.span())] = [True] * len(piece[0])
    groups = groupby(zip(text, matched, strict=True), key=lambda pair: pair[1])
    return [Segment("".join(letter for letter, _ in group), is_match) for is_match, group in groups]


def _acronyms(text: str) -> set[str]:
    """Return the words of a text that have capital letters within them, unless all of it is in capitals."""
    return set() if text.isupper() else {folded for piece in _ACRONYM.findall(text) for folded in words(piece)}


def judge_on_page(work: Judging, port: int, commands: Commands) -> None:
    """Serve the page and open it, on any free port if it is 0, until the judge stops there or presses Ctrl-C here.

    Without a browser on this host, the command that tunnels to the page is printed. When the judge stops, the page
    names the commands.
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
        failure: Error that ended the session, or None if the judge ended it.
    """

    def __init__(self, work: Judging, port: int, commands: Commands) -> None:
        self.port, self.token = port, secrets.token_urlsafe(24)
        self.failure: TaugateError | OSError | None = None
        self._work, self._remarks, self._commands = work, list[str](), commands
        self._session = JudgingSession(work, self._remarks.append)
        self._hosts = {f"{name}:{port}" for name in (_HOST, "localhost")}
        page = read_page("taugate_label.judge_page", _PAGE)
        routes = [Route(f"/{self.token}/{name}", _sender(file)) for name, file in page.items()]
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
