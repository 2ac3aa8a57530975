"""POST /admin/reload: have the service look for another current release now."""

from typing import Any

from fastapi import APIRouter

from service.reloading import Reloading
from service.schemas import ErrorResponse, ReloadResponse

_ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorResponse} for status in (409, 500, 503)}


def admin_routes(reloading: Reloading) -> APIRouter:
    """Routes for whoever runs the service."""
    router = APIRouter(prefix="/admin", tags=["operations"])

    @router.post("/reload", responses=_ERRORS)
    async def reload() -> ReloadResponse:
        """Put the current release into service, after its golden queries were answered as recorded.

        Answered when it is; until then, and where it cannot be served, the one before goes on.
        """
        turn = await reloading.reload()
        status = "unchanged" if turn.release == turn.previous else "loaded"
        return ReloadResponse(status=status, release=turn.release, previous=turn.previous, shadow=turn.shadow)

    return router
