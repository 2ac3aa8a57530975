"""Which release is the shadow, if any: the pointer `shadow` beside `current` says, and is read whenever that is."""

import asyncio
import logging

from taugate.errors import TaugateError
from taugate.retrieval.retriever import Query
from taugate.service.lifecycle.opening import Opener
from taugate.service.metrics import Metrics
from taugate.service.pipeline.engine import Engine
from taugate.service.shadow.shadow import Shadow

_log = logging.getLogger("taugate.shadow")


class Shadowing:
    """Of one event loop. share: of the queries that both releases answer; with 0 no second one is ever loaded."""

    def __init__(self, opener: Opener, metrics: Metrics, share: float) -> None:
        self._opener, self._metrics, self._share = opener, metrics, share
        self._shadow: Shadow | None = None
        self.refused: str | None = None  # the release that was to be the shadow and could not

    @property
    def release_id(self) -> str | None:
        """Of the shadow at work."""
        return None if self._shadow is None else self._shadow.release.manifest.release_id

    def seen(self, query: Query) -> None:
        """A query was answered."""
        if self._shadow is not None:
            self._shadow.seen(query)

    def is_behind(self, wanted: str | None, in_service: str) -> bool:
        """Whether `renew` would change anything."""
        if not self._share or (wanted is not None and wanted == self.refused):
            return False
        return (None if wanted == in_service else wanted) != self.release_id

    async def renew(self, current: Engine) -> None:
        """Have the release that is to be the shadow beside the one in service; the same as that one is none.

        What goes wrong is in the log, and there is no shadow then: nobody who searches is concerned.
        """
        if not self._share:
            return
        wanted = None
        try:
            wanted = await self._opener.shadow()
            name = None if wanted is None or wanted.name == current.release.manifest.release_id else wanted.name
            if self._shadow is not None and name == self.release_id:
                self._shadow.current = current
                return
            await self.close()
            if name is not None and wanted is not None:
                release = await self._opener.load(wanted, threads=1)
                self._shadow = Shadow(release, current, self._share, self._metrics.of_shadow())
                _log.info("shadow", extra={"fields": {"release": name}})
            self.refused = None
        except Exception as error:  # noqa: BLE001 (as the docstring says)
            self.refused = None if wanted is None else wanted.name
            known = isinstance(error, TaugateError | OSError)
            _log.error(
                "there is no shadow", exc_info=None if known else error, extra={"fields": {"reason": str(error)}}
            )

    async def close(self) -> None:
        """Let go of the shadow."""
        shadow, self._shadow = self._shadow, None
        if shadow is not None:
            await asyncio.to_thread(shadow.close)
            self._metrics.of_shadow()
