"""What a process is doing: it loads its first release, waits for what that needs, serves, ends, or has failed."""

from dataclasses import dataclass

from taugate.service.errors import EncoderAway, EngineAway, NotReady
from taugate.service.lifecycle.active import ActiveRelease


class State:
    """A state of a process.

    Attributes:
        release: The release that is active, or was until the service stopped; None if none was loaded.
        error: Why no release could be loaded; None if one may be.
        stopped: Whether requests are refused because the service has stopped.
    """

    release: ActiveRelease | None = None
    error: Exception | None = None
    stopped = False

    def active(self) -> ActiveRelease:
        """Return the active release; raises NotReady, EngineAway or EncoderAway if none serves."""
        raise NotReady("the release is being loaded")

    def ready(self) -> ActiveRelease:
        """Return the active release if new requests may come; raises as `active`."""
        return self.active()

    def then(self, following: "State") -> "State":
        """Return the state after `following` has begun."""
        return following


class Loading(State):
    """The first release is being loaded."""


@dataclass(frozen=True)
class Waiting(State):
    """The first release cannot be loaded until something else responds; `reason` says that it does not."""

    reason: type[EngineAway | EncoderAway]

    def active(self) -> ActiveRelease:
        """See State."""
        raise self.reason()


@dataclass(frozen=True)
class Ready(State):
    """A release serves."""

    release: ActiveRelease

    def active(self) -> ActiveRelease:
        """See State."""
        return self.release


@dataclass(frozen=True)
class Failed(State):
    """No release could be loaded, which ends the process."""

    error: Exception

    def active(self) -> ActiveRelease:
        """See State."""
        raise NotReady("no release could be loaded")


class Ending(State):
    """The service is about to stop, and serves as in the state before until it has `stopped`."""

    def __init__(self, before: State, *, stopped: bool = False) -> None:
        self._before, self.stopped = before, stopped
        self.release, self.error = before.release, before.error

    def active(self) -> ActiveRelease:
        """See State."""
        return self.ready() if self.stopped else self._before.active()

    def ready(self) -> ActiveRelease:
        """See State."""
        raise NotReady("the service is shutting down")

    def then(self, following: State) -> State:
        """See State; the service does not end later because a release was loaded."""
        return Ending(following, stopped=self.stopped)
