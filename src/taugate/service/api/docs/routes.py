"""GET /docs describes the API, and GET / leads a browser to it or to the playground."""

import base64
import hashlib
from html import escape

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from taugate.service.api.docs.html import api_page, html_page, style
from taugate.service.api.playground.files import PAGE_HEADERS
from taugate.service.errors import NotFound
from taugate.service.http.endpoints import ENDPOINTS
from taugate.service.http.operation import Operation
from taugate.service.lifecycle.reference import ComputedOnce
from taugate.service.lifecycle.serving import Serving


def docs_operations(app: FastAPI, serving: Serving, *, has_playground: bool) -> list[Operation]:
    """Return the operations of both pages. Neither needs a key: the description of the API is no secret."""
    headers = _headers()
    page = ComputedOnce(lambda: api_page(app.openapi()).encode())
    playground, docs, openapi = (ENDPOINTS[name].path for name in ("playground", "docs", "openapi"))

    async def describe(request: Request) -> Response:
        """The description of the API, as a page."""
        return Response(await page.get(), 200, headers)

    async def home(request: Request) -> Response:
        """Lead a browser to the playground, or to what there is instead."""
        if "text/html" not in request.headers.get("accept", ""):
            raise NotFound(f"there is nothing at /; {docs} and {openapi} list all paths")
        if has_playground:
            return Response(None, 307, {**headers, "Location": playground[1:]})  # relative, for proxies with a prefix
        return Response(_home(serving.active.release_id if serving.has_release else None), 200, headers)

    return [
        Operation("docs", describe, None, response_class=Response),
        Operation("home", home, None, response_class=Response),
    ]


def _home(release: str | None) -> str:
    state = f"It serves the release <code>{escape(release)}</code>." if release else "It has no release yet."
    docs, ready = ENDPOINTS["docs"].path[1:], ENDPOINTS["readyz"].path[1:]
    return html_page(
        "Taugate",
        f"<main><h1>Taugate</h1>\n<p>This service searches documents. {state}</p>\n"
        f'<p>Programs call it: <a href="{docs}">the HTTP API</a>. Whether it is ready: '
        f'<a href="{ready}">readyz</a>.</p>\n'
        "<p>The playground is off; <code>TAUGATE_PLAYGROUND=on</code> turns it on.</p></main>",
    )


def _headers() -> dict[str, str]:
    """Return the headers of both pages: nothing is loaded or run, and only their own style applies."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return {
        **PAGE_HEADERS,
        "Content-Security-Policy": policy,
        "Content-Type": "text/html; charset=utf-8",
        "Cache-Control": "no-cache",
    }
