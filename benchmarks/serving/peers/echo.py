"""A bare FastAPI endpoint: the same request, checked by the same model, and a reply of the same size that is ready.

What is slower than this is the service's own doing; what is not, is HTTP, FastAPI and pydantic. ECHO_BYTES: of the reply.
"""

import os

from fastapi import FastAPI
from fastapi.responses import Response

from taugate.service.api.schemas import SearchRequest

_REPLY = b'{"results":"' + b"x" * (int(os.environ["ECHO_BYTES"]) - 14) + b'"}'
app = FastAPI()


@app.post("/search", response_model=None)
async def search(body: SearchRequest) -> Response:
    """The reply."""
    return Response(_REPLY, media_type="application/json")
