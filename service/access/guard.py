"""In front of every route: a request that may not pass is answered before a byte of its body is read."""

from starlette.types import ASGIApp, Receive, Scope, Send

from service.access.access import Access
from service.access.rules import RULES, rule_of
from service.errors import ApiError, NotFound, error_reply, no_such_path
from service.metrics import Metrics


class Guard:
    """Pure ASGI middleware. Paths that there are not are 404 without a key: openapi.json tells which there are."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics) -> None:
        self._app, self._access, self._refused = app, access, metrics.refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            rule = rule_of(scope["path"])
            if rule is None:
                raise NotFound(no_such_path(scope["path"]))
            self._access.admit(rule, scope)
        except ApiError as error:
            if rule is not None:
                self._refused.labels(error.code).inc()
                if rule.path in RULES:  # counted as what it asked for
                    scope["route"] = rule
            await error_reply(scope, error)(scope, receive, send)
            return
        await self._app(scope, receive, send)
