"""Pages for browsers: what all of them share, the description of the API at /docs, and / that leads to one of them."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from taugate.plugins import missing, provided
from taugate.service.errors import NotFound
from taugate.service.http.operation import ENDPOINTS, Operation
from taugate.service.lifecycle.active import ComputedOnce
from taugate.service.lifecycle.serving import Serving
from taugate.service.settings import Settings
from taugate.service.settings.groups import ListenSettings

# Nothing is loaded from other hosts, no inline script runs, and no other page may frame this one.
PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# By the end of a file's path, its media type, and the file here that all pages have before their own.
_KINDS: Final = {"": ("text/html", ()), "css": ("text/css", ("page.css",)), "js": ("text/javascript", ("page.js",))}


# What a plug-in adds as an entry point of `taugate.pages`: a function that returns the operations of a page.
Page = Callable[[Settings, Serving], list[Operation]]


@dataclass(frozen=True)
class PageFile:
    """A file of a page: its content, its media type with the charset, and a hash of the content, in quotes."""

    content: bytes
    media_type: str
    etag: str


def read_page(package: str, sources: Mapping[str, Sequence[str]], script: bytes = b"") -> dict[str, PageFile]:
    """Read the files of a page, by path.

    Args:
        package: The package that has them.
        sources: By path, the files that it is made of. The page itself has the path "", and links to the others, one
            style and one script.
        script: Goes before the script.
    """
    folder, page = files(package), {}
    for path, names in sources.items():
        media_type, shared = _KINDS[path.rpartition(".")[2]]
        parts = [files(__package__).joinpath(name) for name in shared] + [folder.joinpath(name) for name in names]
        content = b"\n".join(part.read_bytes() for part in parts)
        if path.endswith(".js"):
            content = script + content
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        page[path] = PageFile(content, f"{media_type}; charset=utf-8", etag)
    return page


_SCHEMAS = "#/components/schemas/"
_CODE = re.compile(r"`([^`]+)`")


def style() -> str:
    """Return the style of the pages, which they contain, so that one request fetches a page."""
    return files("taugate.service.api").joinpath("docs.css").read_text("utf-8")


def html_page(title: str, body: str) -> str:
    """Return a page with a body of HTML; the title is text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{style()}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def api_page(document: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document that FastAPI made."""
    schemas = document["components"]["schemas"]
    operations = [
        (operation["tags"][0], method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    operations.sort(key=lambda row: row[0] != "search")  # the order of the table, but searches first
    links, parts = [], []
    for tag, rows in groupby(operations, key=lambda row: row[0]):
        parts.append(f"<h2>{escape(tag.capitalize())}</h2>")
        for _, method, path, operation in rows:
            name = operation["operationId"]
            links.append(f'<li><a href="#{escape(name)}"><code>{method} {escape(path)}</code></a></li>')
            parts.append(_operation(method, path, operation, schemas))
    parts.append("<h2>Objects</h2>")
    parts += [_object(name, schema) for name, schema in schemas.items()]
    info = document["info"]
    playground = ENDPOINTS["playground"].path
    further = f' Try it in <a href="{playground[1:]}">the playground</a>.' if playground in document["paths"] else ""
    return html_page(
        "Taugate: the HTTP API",
        f"<header><h1>Taugate {escape(info['version'])}: the HTTP API</h1><p>{_text(info['description'])}</p>"
        f'<p>Programs read <a href="{ENDPOINTS["openapi"].path[1:]}">openapi.json</a>.{further}</p></header>\n'
        f'<nav aria-label="Operations"><ul>{"".join(links)}</ul></nav>\n<main>\n' + "\n".join(parts) + "\n</main>",
    )


def _operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    row = ENDPOINTS[operation["operationId"]]
    if row.public:
        access = "Needs no key."
    elif row.scope is None:
        access = "If keys are configured, any of them will do."
    else:
        access = f"If keys are configured, the key needs the scope <code>{row.scope}</code>."
    parts = [f"<p>{_text(operation['description'])}</p>", f'<p class="quiet">{access}</p>']
    if body := operation.get("requestBody"):
        schema = _resolved(body["content"]["application/json"]["schema"], schemas)
        parts.append(f"<h4>Request</h4>{_fields(schema)}{_example(path, schema)}")
    success = str(row.status)
    for media in operation["responses"][success].get("content", {}).values():
        schema = _resolved(media.get("schema", {}), schemas)
        if "properties" in schema:
            parts.append(f"<h4>Reply, status {success}</h4>{_fields(schema)}")
    errors = "".join(
        f'<tr><th scope="row">{status}</th><td>{_text(reply["description"])}</td></tr>'
        for status, reply in operation["responses"].items()
        if status != success
    )
    parts.append(
        '<details><summary>Errors</summary><table><thead><tr><th scope="col">status</th><th scope="col">meaning</th>'
        f"</tr></thead><tbody>{errors}</tbody></table></details>"
    )
    name = escape(operation["operationId"])
    return f'<section aria-labelledby="{name}"><h3 id="{name}">{method} {escape(path)}</h3>{"".join(parts)}</section>'


def _object(name: str, schema: Mapping[str, Any]) -> str:
    content = _fields(schema) if "properties" in schema else f"<p>{_kind(schema)}</p>"
    description = _text(schema.get("description", "").partition("\n\n")[0])
    return f'<section aria-labelledby="{name}"><h3 id="{name}">{name}</h3><p>{description}</p>{content}</section>'


def _fields(schema: Mapping[str, Any]) -> str:
    """Return the table of an object's fields."""
    required = schema.get("required", ())
    rows = []
    for name, field in schema.get("properties", {}).items():
        kind = _kind(field)
        if name in required:
            kind += ", required"
        elif field.get("default") is not None:
            kind += f", default <code>{escape(json.dumps(field['default']))}</code>"
        rows.append(
            f'<tr><th scope="row"><code>{escape(name)}</code></th><td>{kind}</td>'
            f"<td>{_text(field.get('description', ''))}</td></tr>"
        )
    head = "".join(f'<th scope="col">{title}</th>' for title in ("field", "type", "meaning"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a value as HTML; objects with a name are links."""
    if reference := schema.get("$ref"):
        name = escape(reference.removeprefix(_SCHEMAS))
        return f'<a href="#{name}">{name}</a>'
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return _joined(map(_kind, alternatives))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema["const"]]
        return _joined(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    bounds = [
        f"{sign} {schema[name]:g}"
        for name, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
        if name in schema and abs(schema[name]) < 1e9  # of a type, no bound of the service
    ]
    return " ".join([escape(str(kind)), *bounds])


def _joined(kinds: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(kinds))


def _example(path: str, schema: Mapping[str, Any]) -> str:
    """Return a command that sends the first example of a request."""
    examples = schema.get("examples")
    if not examples:
        return ""
    body = json.dumps(examples[0], ensure_ascii=False)
    command = f"curl http://127.0.0.1:8000{path} -H 'Content-Type: application/json' \\\n  -d '{body}'"
    return f"<pre><code>{escape(command)}</code></pre>"


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema, or the object that it refers to."""
    reference = schema.get("$ref")
    resolved: Mapping[str, Any] = schemas[reference.removeprefix(_SCHEMAS)] if reference else schema
    return resolved


def _text(text: str) -> str:
    """Return a description as HTML; words between backquotes are code."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def docs_operations(app: FastAPI, serving: Serving, playground: str | None) -> list[Operation]:
    """Return the operations of both pages. Neither needs a key: the description of the API is no secret."""
    # `playground` is HTML on why there is none; None if there is one.
    headers = _headers()
    page = ComputedOnce(lambda: api_page(app.openapi()).encode())
    target, docs, openapi = (ENDPOINTS[name].path for name in ("playground", "docs", "openapi"))

    async def describe(request: Request) -> Response:
        """The description of the API, as a page."""
        return Response(await page.get(), 200, headers)

    async def home(request: Request) -> Response:
        """Lead a browser to the playground, or to what there is instead."""
        if "text/html" not in request.headers.get("accept", ""):
            raise NotFound(f"there is nothing at /; {docs} and {openapi} list all paths")
        if playground is None:
            return Response(None, 307, {**headers, "Location": target[1:]})  # relative, for proxies with a prefix
        return Response(_home(serving.active.release_id if serving.has_release else None, playground), 200, headers)

    return [
        Operation("docs", describe, None, response_class=Response),
        Operation("home", home, None, response_class=Response),
    ]


def no_playground(listen: ListenSettings) -> str:
    """Return HTML on why there is no playground."""
    if not listen.has_playground:
        return "The playground is off; <code>TAUGATE_PLAYGROUND=on</code> turns it on."
    if "playground" in provided("pages"):
        return "The playground cannot be loaded; the log says why."
    return escape(missing("pages", "playground"))


def _home(release: str | None, playground: str) -> str:
    state = f"It serves the release <code>{escape(release)}</code>." if release else "It has no release yet."
    docs, ready = ENDPOINTS["docs"].path[1:], ENDPOINTS["readyz"].path[1:]
    return html_page(
        "Taugate",
        f"<main><h1>Taugate</h1>\n<p>This service searches documents. {state}</p>\n"
        f'<p>Programs call it: <a href="{docs}">the HTTP API</a>. Whether it is ready: '
        f'<a href="{ready}">readyz</a>.</p>\n'
        f"<p>{playground}</p></main>",
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
