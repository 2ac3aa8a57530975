"""In front of every route: a request that may not pass is answered before a byte of its body is read."""

from starlette.types import ASGIApp, Receive, Scope, Send

from taugate.service.access.access import RULES, Access, rule_of
from taugate.service.access.hosts import Hosts
from taugate.service.errors import ApiError, BadRequest, HeadersTooLarge, NotFound, error_reply, no_such_path
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings

_MOST_HEADERS = 100  # Apache's default
_BOTH_FRAMINGS = {b"content-length", b"transfer-encoding"}  # RFC 9112, section 6.1: what request smuggling is made of


class Guard:
    """Pure ASGI middleware. Paths that there are not are 404 without a key: openapi.json tells which there are."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics, settings: Settings) -> None:
        self._app, self._access, self._refused = app, access, metrics.refused
        self._hosts, self._max_header_bytes = Hosts(settings), settings.connections.max_header_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rule = rule_of(scope["path"])
        try:
            self._check_head(scope)
            self._hosts.check(scope)
            if rule is None:
                raise NotFound(no_such_path(scope["path"]))
            self._access.admit(rule, scope)
        except ApiError as error:
            if not isinstance(error, NotFound):
                self._refused.labels(error.code).inc()
            if rule is not None and rule.path in RULES:  # counted as what it asked for
                scope["route"] = rule
            await error_reply(scope, error)(scope, receive, send)
            return
        scope["state"]["admitted"] = not rule.open
        await self._app(scope, receive, send)

    def _check_head(self, scope: Scope) -> None:
        headers = scope["headers"]
        line = len(scope["path"]) + len(scope["query_string"])
        size = line + sum(len(name) + len(value) for name, value in headers)
        if len(headers) > _MOST_HEADERS or size > self._max_header_bytes:  # h11 limits one that comes in several parts
            raise HeadersTooLarge("the head of the request is over TAUGATE_MAX_HEADER_BYTES, or has over 100 headers")
        if {name for name, _ in headers} >= _BOTH_FRAMINGS:
            raise BadRequest("send Content-Length or Transfer-Encoding, not both: readers disagree on which counts")
