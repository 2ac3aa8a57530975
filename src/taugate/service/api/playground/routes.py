"""GET /playground and its two files, which anybody may have: the page asks for the key that its requests need."""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import Route

from taugate.service.api.openapi import errors, operation_id, replies
from taugate.service.api.playground.files import PAGE_HEADERS, PageFile, page_files

# The browser asks each time whether its copy is still the one that belongs to this service.
_CACHED = {"Cache-Control": "no-cache"}
_NAMES = {"": "playground", "playground/app.css": "playground_style", "playground/app.js": "playground_script"}


def add_playground_routes(app: FastAPI) -> None:
    """Add the page at /playground, /playground/app.css and /playground/app.js.

    Args:
        app: Gets the routes, which answer GET and HEAD.
    """
    for path, file in page_files().items():
        _add_route(app, f"/{path or 'playground'}", _NAMES[path], file)


def _add_route(app: FastAPI, path: str, name: str, file: PageFile) -> None:
    headers = {**PAGE_HEADERS, **_CACHED, "ETag": file.etag}

    async def page_file(request: Request) -> Response:
        """A file of the playground."""
        request.scope["route"] = route
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if known & {file.etag, "*"}:
            return Response(None, 304, headers)
        return Response(file.content, 200, {**headers, "Content-Type": file.media_type})

    route = Route(path, page_file)
    app.router.routes.append(route)
    content = {file.media_type.partition(";")[0]: {"schema": {"type": "string"}}}
    app.add_api_route(  # answers nothing, as the route above comes first: FastAPI describes no other kind
        path,
        page_file,
        name=name,
        response_class=Response,
        generate_unique_id_function=operation_id,
        tags=["playground"],
        responses=replies(200, None, content=content) | errors(),
    )
