"""Loads, replaces and closes the shadow release."""

import asyncio
import logging
from typing import TYPE_CHECKING

from taugate.service.lifecycle.loading import ReleaseLoader, log_failure, may_pass
from taugate.service.lifecycle.memory import check_memory
from taugate.service.metrics import Metrics

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.service.pipeline.search import SearchPipeline
    from taugate.service.shadow.shadow import Shadow

_log = logging.getLogger(__name__)


class Shadowing:
    """The shadow release, if there is one. Belongs to one event loop.

    Attributes:
        active: The running shadow, None without one.
        refused: Id of the release that could not be loaded as the shadow.
    """

    def __init__(self, loader: ReleaseLoader, metrics: Metrics, share: float) -> None:
        """Answer a share of the queries, 0…1, with the shadow as well; with a share of 0 none is ever loaded."""
        self._loader, self._metrics, self._share = loader, metrics, share
        self.active: Shadow | None = None
        self.refused: str | None = None

    @property
    def release_id(self) -> str | None:
        """Id of the running shadow."""
        return None if self.active is None else self.active.release.manifest.release_id

    def is_behind(self, configured: str | None, active: str) -> bool:
        """Return whether `renew` would change anything, given the ids of the configured shadow and of the release."""
        if not self._share or (configured is not None and configured == self.refused):
            return False
        return (None if configured == active else configured) != self.release_id

    async def renew(self, current: "SearchPipeline | None") -> None:
        """Load the configured shadow, unless it is the active release itself, whose pipeline is `current`.

        Without a pipeline, the active release cuts the results of another retriever, and has no shadow.

        Errors are logged and leave the service without a shadow, because searches do not depend on one.
        """
        if not self._share:
            return
        folder = None
        try:
            folder = await self._loader.shadow()
            if current is None or (folder is not None and folder.name == current.release.manifest.release_id):
                folder = None
            name = None if folder is None else folder.name
            if current is not None and self.active is not None and name == self.release_id:
                self.active.current = current
                return
            await self.close()
            if folder is not None and current is not None:
                from taugate.service.shadow.shadow import Shadow

                await asyncio.to_thread(check_memory, folder.parent / current.release.manifest.release_id, folder)
                release = await self._loader.load(folder, threads=1)
                self.active = Shadow(release, current, self._share, self._metrics.new_shadow_registry())
                _log.info("shadow release loaded", extra={"fields": {"release": name}})
            self.refused = None
        except Exception as error:  # noqa: BLE001 (as the docstring says)
            self.refused = None if folder is None or may_pass(error) else folder.name
            log_failure("cannot load the shadow release", error)

    async def close(self) -> None:
        """Close the shadow and remove its metrics."""
        shadow, self.active = self.active, None
        if shadow is not None:
            await asyncio.to_thread(shadow.close)
            self._metrics.new_shadow_registry()
