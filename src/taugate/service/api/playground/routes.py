"""The playground: its page and two files, which are public, and what only the page requests, with a key."""

from starlette.requests import Request
from starlette.responses import Response

from taugate.service.api.playground.documents import documents_operation
from taugate.service.api.playground.files import PAGE_HEADERS, PageFile, page_files
from taugate.service.api.playground.new_questions import new_questions_operation
from taugate.service.api.playground.questions import questions_operation
from taugate.service.api.playground.shadow import shadow_operation
from taugate.service.http.endpoints import ENDPOINTS
from taugate.service.http.operation import Operation
from taugate.service.lifecycle.serving import Serving
from taugate.service.settings import Settings

# The browser revalidates its copy each time, because the page must match the version of the service.
_CACHE_HEADERS = {"Cache-Control": "no-cache"}


def playground_operations(settings: Settings, serving: Serving) -> list[Operation]:
    """Return the operations of the page, of its files, and of what only the page requests."""
    files, names = page_files(), ("playground_style", "playground_script")
    page = _operation("playground", files[""])
    return [
        page,
        *(_operation(name, files[ENDPOINTS[name].path.removeprefix("/")]) for name in names),
        questions_operation(serving),
        new_questions_operation(serving),
        documents_operation(serving),
        shadow_operation(settings, serving),
    ]


def _operation(name: str, file: PageFile) -> Operation:
    headers = {**PAGE_HEADERS, **_CACHE_HEADERS, "ETag": file.etag}

    async def page_file(request: Request) -> Response:
        """A file of the playground."""
        cached = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if cached & {file.etag, "*"}:
            return Response(None, 304, headers)
        return Response(file.content, 200, {**headers, "Content-Type": file.media_type})

    described = {"content": {file.media_type.partition(";")[0]: {"schema": {"type": "string"}}}}
    return Operation(name, page_file, None, described=described, response_class=Response)
