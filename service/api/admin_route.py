"""POST /admin/reload: have the service look for another current release now."""

from fastapi import APIRouter, Request

from taugate.service.api.described import errors, replies
from taugate.service.api.schemas import ReloadResponse
from taugate.service.lifecycle.reloading import Reloading


def admin_routes(reloading: Reloading) -> APIRouter:
    """Routes for whoever runs the service."""
    router = APIRouter(prefix="/admin", tags=["operations"])

    @router.post("/reload", responses=replies(200, ReloadResponse) | errors(409, 503))
    async def reload(request: Request) -> ReloadResponse:
        """Put the current release into service, after its golden queries were answered as recorded.

        Answered when it is; until then, and where it cannot be served, the one before goes on.
        """
        await request.body()  # none is needed, but a client that has not sent all of it is waited for only so long
        turn = await reloading.reload()
        status = "unchanged" if turn.release == turn.previous else "loaded"
        return ReloadResponse(status=status, release=turn.release, previous=turn.previous, shadow=turn.shadow)

    return router
