"""GET /playground/questions: the questions of the calibration, with the scores that thresholds are compared with."""

from typing import TYPE_CHECKING, Annotated

import orjson
from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from taugate.service.errors import Invalid, NotFound
from taugate.service.http.operation import Operation
from taugate.service.http.replies import EncodedJsonResponse
from taugate.service.lifecycle.serving import Serving

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.release.reader import Release

_PAGE = 1000  # questions of a reply, some 200 kB
_OFFSET: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=0, le=2**31 - 1)])


def questions_operation(serving: Serving) -> Operation:
    """Return the operation. Any key without a filter that may search may read the questions."""

    async def questions(request: Request) -> Response:
        """Get the questions of the calibration of a release, `current` or `shadow`, 1,000 from an `offset` on."""
        try:
            offset = _OFFSET.validate_python(request.query_params.get("offset", "0"))
        except ValidationError as error:
            raise Invalid("offset: a whole number from 0") from error
        side = request.query_params.get("release", "current")
        if side not in {"current", "shadow"}:
            raise Invalid("release: current or shadow")
        release = shadow_release(serving) if side == "shadow" else serving.active.release
        return EncodedJsonResponse(_page(release, offset))

    return Operation("playground_questions", questions, None)


def shadow_release(serving: Serving) -> "Release":
    """Return the shadow release.

    Raises:
        NotFound: If there is none.
    """
    if serving.shadowing.active is None:
        raise NotFound("no shadow release is loaded; name one with taugate release shadow ID")
    return serving.shadowing.active.release


def _page(release: "Release", offset: int) -> bytes:
    """Write the thresholds of a release and a page of its questions, whose lines are JSON already."""
    manifest = release.manifest
    score, rho = manifest.answer_threshold or (None, None)
    facts = {
        "release": manifest.release_id,
        "policy": manifest.policy.kind,
        "threshold": manifest.policy.tau,
        "rho": rho,
        "score": score,
        "k": manifest.policy.k,
        "total": len(release.questions),
    }
    page = b",".join(release.questions[offset : offset + _PAGE])
    return orjson.dumps(facts)[:-1] + b',"questions":[' + page + b"]}"
