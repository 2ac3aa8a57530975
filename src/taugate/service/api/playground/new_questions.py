"""GET /playground/new-questions: the questions under the latest drift alarm that are least like the calibration."""

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response

from taugate.service.http.operation import Operation
from taugate.service.http.replies import json_reply
from taugate.service.lifecycle.serving import Serving


def new_questions_operation(serving: Serving) -> Operation:
    """Return the operation. It needs the scope of operators, because the questions are those of other callers."""

    async def new_questions(request: Request) -> Response:
        """Get at most ten groups of questions; null if the service keeps no texts (TAUGATE_QUERY_LOG_TEXTS)."""
        drift = serving.active.drift
        groups = None if drift is None else drift.new_questions
        return json_reply({"questions": None if groups is None else [asdict(group) for group in groups]})

    return Operation("playground_new_questions", new_questions, None)
