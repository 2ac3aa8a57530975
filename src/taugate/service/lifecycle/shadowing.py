"""Which release is the shadow: loaded, exchanged and let go beside the release in service."""

import asyncio
import logging

from taugate.errors import EngineUnavailable, TaugateError
from taugate.service.lifecycle.loading import ReleaseLoader
from taugate.service.metrics import Metrics
from taugate.service.pipeline.search import SearchPipeline
from taugate.service.shadow.shadow import Shadow

_log = logging.getLogger("taugate.shadow")


class Shadowing:
    """The shadow at work, where there is one. Belongs to one event loop.

    active: None where there is none; refused: id of the release that was to be the shadow and could not.
    """

    def __init__(self, loader: ReleaseLoader, metrics: Metrics, share: float) -> None:
        """With a share of 0 no shadow is ever loaded.

        Args:
            loader: Loads the shadow.
            metrics: Of the process.
            share: Of the queries that it answers too, 0…1.
        """
        self._loader, self._metrics, self._share = loader, metrics, share
        self.active: Shadow | None = None
        self.refused: str | None = None

    @property
    def release_id(self) -> str | None:
        """Id of the shadow at work."""
        return None if self.active is None else self.active.release.manifest.release_id

    def is_behind(self, wanted: str | None, in_service: str) -> bool:
        """Tell whether `renew` would change anything.

        Args:
            wanted: Id of the release that is to be the shadow.
            in_service: Id of the release in service.
        """
        if not self._share or (wanted is not None and wanted == self.refused):
            return False
        return (None if wanted == in_service else wanted) != self.release_id

    async def renew(self, current: SearchPipeline) -> None:
        """Load the release that is to be the shadow; none where it is in service itself.

        Errors are logged, and there is no shadow then: nobody who searches is concerned.

        Args:
            current: The one in service.
        """
        if not self._share:
            return
        wanted = None
        try:
            wanted = await self._loader.shadow()
            name = None if wanted is None or wanted.name == current.release.manifest.release_id else wanted.name
            if self.active is not None and name == self.release_id:
                self.active.current = current
                return
            await self.close()
            if name is not None and wanted is not None:
                release = await self._loader.load(wanted, threads=1)
                self.active = Shadow(release, current, self._share, self._metrics.new_shadow_registry())
                _log.info("shadow", extra={"fields": {"release": name}})
            self.refused = None
        except Exception as error:  # noqa: BLE001 (as the docstring says)
            # An engine that is away may answer at the next look.
            self.refused = None if wanted is None or isinstance(error, EngineUnavailable) else wanted.name
            known = isinstance(error, TaugateError | OSError)
            _log.error(
                "there is no shadow", exc_info=None if known else error, extra={"fields": {"reason": str(error)}}
            )

    async def close(self) -> None:
        """Let go of the shadow, and take its metrics back."""
        shadow, self.active = self.active, None
        if shadow is not None:
            await asyncio.to_thread(shadow.close)
            self._metrics.new_shadow_registry()
