"""GET /playground and its two files. They are public: the page asks the user for the key that its requests need."""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import Route

from taugate.service.api.openapi import errors, operation_id, replies
from taugate.service.api.playground.files import PAGE_HEADERS, PageFile, page_files

# The browser revalidates its copy each time, because the page must match the version of the service.
_CACHE_HEADERS = {"Cache-Control": "no-cache"}
_NAMES = {"": "playground", "playground/app.css": "playground_style", "playground/app.js": "playground_script"}


def add_playground_routes(app: FastAPI) -> None:
    """Add the page at /playground, /playground/app.css and /playground/app.js, for GET and HEAD."""
    for path, file in page_files().items():
        _add_route(app, f"/{path or 'playground'}", _NAMES[path], file)


def _add_route(app: FastAPI, path: str, name: str, file: PageFile) -> None:
    headers = {**PAGE_HEADERS, **_CACHE_HEADERS, "ETag": file.etag}

    async def page_file(request: Request) -> Response:
        """A file of the playground."""
        request.scope["route"] = route
        cached = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if cached & {file.etag, "*"}:
            return Response(None, 304, headers)
        return Response(file.content, 200, {**headers, "Content-Type": file.media_type})

    route = Route(path, page_file)
    app.router.routes.append(route)
    content = {file.media_type.partition(";")[0]: {"schema": {"type": "string"}}}
    app.add_api_route(  # never reached, because the route above matches first; FastAPI only describes its own routes
        path,
        page_file,
        name=name,
        response_class=Response,
        generate_unique_id_function=operation_id,
        tags=["playground"],
        responses=replies(200, None, content=content) | errors(),
    )
