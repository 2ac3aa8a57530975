"""POST /feedback: whether a result answered its query."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from service.access.access import permitted
from service.access.spending import Spending
from service.described import errors, replies
from service.errors import ApiError, Invalid
from service.ids import may_judge
from service.json_body import add_json_route
from service.json_reply import json_reply
from service.metrics import Metrics
from service.schemas import FeedbackRequest, FeedbackResponse
from service.serving import Serving

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
