"""Around every request: its id, its time, its metrics, its log line, and a 500 that shows nothing of what broke."""

import logging
import re
import time

import orjson
from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import error_body
from service.ids import new_id
from service.metrics import Metrics
from service.security_headers import SECURITY_HEADERS

_log = logging.getLogger("taugate.request")
_ACCEPTED_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")  # what may go into a log line and a header as it came
_UNMATCHED = "unmatched"  # one label for every path that is no route: paths of strangers must not become series


class RequestScope:
    """Pure ASGI middleware, the outermost: nothing that happens inside goes unseen."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._counted: dict[tuple[str, int], tuple[Counter, Histogram]] = {}  # looking a series up takes longer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event; anything but HTTP passes through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        request_id = _request_id(dict(scope["headers"]).get(b"x-request-id", b""))
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *SECURITY_HEADERS, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:  # noqa: BLE001 (the last line of defence: logged in full, answered with nothing of it)
            _log.exception("unhandled", extra={"fields": {"request_id": request_id}})
            if not status:
                await _send_internal(send_with_id, request_id)
        finally:
            if status:  # else nothing was answered: the process is going down
                self._record(scope, status, time.perf_counter() - began, request_id)

    def _record(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", _UNMATCHED)
        if (route, status) not in self._counted:
            requests, times = self._metrics.requests, self._metrics.request_seconds
            self._counted[route, status] = requests.labels(route, str(status)), times.labels(route)
        counter, histogram = self._counted[route, status]
        counter.inc()
        histogram.observe(seconds)
        fields = {
            "request_id": request_id,
            "method": scope["method"],
            "route": route,
            "status": status,
            "milliseconds": round(seconds * 1000, 3),
        }
        if "key" in scope["state"]:
            fields["key"] = scope["state"]["key"].name
        _log.info("request", extra={"fields": fields})


def _request_id(given: bytes) -> str:
    return given.decode("ascii") if _ACCEPTED_ID.fullmatch(given) else new_id()


async def _send_internal(send: Send, request_id: str) -> None:
    body = orjson.dumps(error_body("internal", "something broke here; the log has it under this id", request_id))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})
