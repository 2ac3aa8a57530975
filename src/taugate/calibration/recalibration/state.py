"""What a recalibration has done so far: a file beside the releases, by which one that was killed goes on."""

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from taugate.errors import InputError
from taugate.storage.files import atomic_write, read_bounded

STATE = "recalibration.json"
Step = Literal["traffic", "calibrate", "shadow"]
_STEPS: tuple[Step, ...] = get_args(Step)  # in the order in which they are done
_MAX_BYTES = 1 << 20


class _Done(BaseModel):
    """A step that is done: a digest of what it was done with, and what came of it."""

    model_config = ConfigDict(extra="forbid")

    inputs: str
    outcome: dict[str, Any]


class _State(BaseModel):
    """The file: which release the recalibration began from, and the steps that are done."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    current: str
    steps: dict[Step, _Done] = Field(default_factory=dict)


class RecalibrationState:
    """The steps of one recalibration. A step counts as done while its inputs are those that it was done with."""

    def __init__(self, releases: Path) -> None:
        """Read the state that an earlier run left.

        Args:
            releases: The releases directory.

        Raises:
            InputError: Where there is a file that is no such state.
        """
        self._path = releases / STATE
        self._state: _State | None = None
        try:
            self._state = _State.model_validate_json(read_bounded(self._path, _MAX_BYTES))
        except FileNotFoundError:
            pass
        except (OSError, ValidationError) as error:
            raise InputError(
                f"{self._path}: not the state of a recalibration; remove the file, and the next run begins anew"
            ) from error

    @property
    def began_from(self) -> str | None:
        """Id of the release that was current when the recalibration began; None where none was left unfinished."""
        return None if self._state is None else self._state.current

    def begin(self, current: str) -> None:
        """Begin anew where another release is current now.

        Args:
            current: Its id.
        """
        if self._state is None or self._state.current != current:
            self._state = _State(current=current)

    def done(self, step: Step, inputs: str | None = None) -> dict[str, Any] | None:
        """Return the outcome of a step that is done; None where it is not, or was done with other inputs.

        Args:
            step: Its name.
            inputs: Digest of what it would be done with now, None for any.
        """
        found = None if self._state is None else self._state.steps.get(step)
        return None if found is None or inputs not in {None, found.inputs} else found.outcome

    def record(self, step: Step, inputs: str, outcome: dict[str, Any]) -> None:
        """Write down that a step is done; the steps after it have to be done again.

        Args:
            step: Its name.
            inputs: Digest of what it was done with.
            outcome: What came of it, as JSON.

        Raises:
            OSError: .
        """
        if self._state is None:
            raise ValueError("no recalibration has begun")
        later = _STEPS[_STEPS.index(step) :]
        self._state.steps = {name: each for name, each in self._state.steps.items() if name not in later}
        self._state.steps[step] = _Done(inputs=inputs, outcome=outcome)
        atomic_write(self._path, self._state.model_dump_json(indent=2).encode() + b"\n")

    def finish(self) -> None:
        """Remove the file: the recalibration is over, and nothing is left to resume.

        Raises:
            OSError: .
        """
        self._state = None
        self._path.unlink(missing_ok=True)
