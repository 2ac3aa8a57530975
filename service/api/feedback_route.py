"""POST /feedback: whether a result answered its query."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from taugate.service.access.access import permitted
from taugate.service.access.spending import Spending
from taugate.service.api.described import errors, replies
from taugate.service.api.json_body import add_json_route
from taugate.service.api.json_reply import json_reply
from taugate.service.api.schemas import FeedbackRequest, FeedbackResponse
from taugate.service.errors import ApiError, Invalid
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.runtime.ids import may_judge

_STATUSES = (400, 404, 413, 422, 500, 503)


def add_feedback_route(app: FastAPI, serving: Serving, metrics: Metrics, spending: Spending) -> None:
    """The route, answered 202: what is judged is counted within seconds."""

    async def feedback(request: Request, body: FeedbackRequest) -> Response:
        """Tell whether a result answered its query; the same judgement counts once, however often it is sent."""
        watch = serving.answering.watch
        if watch is None:
            raise Invalid("traffic is not watched here (TAUGATE_DRIFT is false), so that nobody asks for judgements")
        try:
            if not may_judge(permitted(request.scope), body.query_id):
                raise watch.judging.unknown()
            new = await watch.judging.judge(body.query_id, body.document_id, relevant=body.relevant)
        except ApiError:
            metrics.feedback.labels("unknown").inc()
            raise
        outcome = ("relevant" if body.relevant else "irrelevant") if new else "repeated"
        metrics.feedback.labels(outcome).inc()
        return json_reply({"status": "accepted" if new else "repeated"}, 202)

    described = replies(202, FeedbackResponse) | errors(*_STATUSES)
    add_json_route(
        app,
        "/feedback",
        FeedbackRequest,
        feedback,
        spending.charge,
        status_code=202,
        tags=["search"],
        responses=described,
    )
