"""The states of a process, one at a time."""

from types import SimpleNamespace
from typing import Any

import pytest

from taugate.service.errors import EngineAway, NotReady
from taugate.service.lifecycle.active import Ending, Failed, Loading, Ready, State, Waiting

RELEASE: Any = SimpleNamespace(release_id="release")


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (Loading(), NotReady, "is being loaded"),
        (Waiting(EngineAway), EngineAway, ""),
        (Failed(ValueError("no")), NotReady, "no release could be loaded"),
    ],
)
def test_state_without_release_says_why(state: State, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        state.active()


def test_ending_process_serves_until_it_has_stopped() -> None:
    ending = Ending(Ready(RELEASE))
    assert ending.active() is RELEASE
    with pytest.raises(NotReady, match="shutting down"):
        ending.ready()
    stopped = Ending(ending, stopped=True)
    with pytest.raises(NotReady, match="shutting down"):
        stopped.active()
    assert stopped.release is RELEASE


def test_release_loaded_while_ending_is_not_ready() -> None:
    state = Ending(Loading()).then(Ready(RELEASE))
    assert state.active() is RELEASE
    with pytest.raises(NotReady, match="shutting down"):
        state.ready()
