"""The progress of a recalibration, in a file beside the releases, so that an interrupted run can be resumed."""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from taugate.calibration.recalibration.request import Learned, Written
from taugate.calibration.recalibration.trial import TrialResult
from taugate.errors import InputError
from taugate.storage.files import atomic_write, read_bounded

STATE = "recalibration.json"
Step = Literal["traffic", "calibrate", "shadow"]
_STEPS: dict[type, Step] = {Learned: "traffic", Written: "calibrate", TrialResult: "shadow"}  # in order
Outcome = TypeVar("Outcome", Learned, Written, TrialResult)
_MAX_BYTES = 1 << 20


class _Done(BaseModel):
    """A finished step: a digest of its inputs, and its outcome."""

    model_config = ConfigDict(extra="forbid")

    inputs: str
    outcome: dict[str, JsonValue]


class _State(BaseModel):
    """Content of the file: the release that was current at the start, and the finished steps."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    current: str
    steps: dict[Step, _Done] = Field(default_factory=dict)


class RecalibrationState:
    """The steps of one recalibration. A step counts as done as long as its inputs are the same."""

    def __init__(self, releases: Path) -> None:
        """Read the state that an earlier run left in the releases directory.

        Raises:
            InputError: If the file is not a valid state.
        """
        self._path = releases / STATE
        self._state: _State | None = None
        try:
            self._state = _State.model_validate_json(read_bounded(self._path, _MAX_BYTES))
        except FileNotFoundError:
            pass
        except (OSError, ValidationError) as error:
            raise InputError(
                f"{self._path}: not the state of a recalibration; remove the file, and the next run starts over"
            ) from error

    @property
    def began_from(self) -> str | None:
        """Id of the release that was current at the start; None if there is no unfinished recalibration."""
        return None if self._state is None else self._state.current

    def begin(self, current: str) -> None:
        """Start over if the id of the current release has changed."""
        if self._state is None or self._state.current != current:
            self._state = _State(current=current)

    def done(self, step: type[Outcome], inputs: str | None = None) -> Outcome | None:
        """Return the outcome of a finished step; None if it is not finished or had other inputs.

        Args:
            step: Class of the outcome, which names the step.
            inputs: Digest of the inputs it would have now, None for any.
        """
        done_step = None if self._state is None else self._state.steps.get(_STEPS[step])
        if done_step is None or inputs not in {None, done_step.inputs}:
            return None
        return TypeAdapter(step).validate_python(done_step.outcome)

    def record(self, inputs: str, outcome: Learned | Written | TrialResult) -> None:
        """Record that a step is done, and forget the steps after it.

        Args:
            inputs: Digest of its inputs.
            outcome: Its outcome.

        Raises:
            OSError: If the file cannot be written.
        """
        if self._state is None:
            raise ValueError("no recalibration has begun")
        names, step = [*_STEPS.values()], _STEPS[type(outcome)]
        later = names[names.index(step) :]
        self._state.steps = {name: done for name, done in self._state.steps.items() if name not in later}
        done = TypeAdapter(type(outcome)).dump_python(outcome, mode="json")
        self._state.steps[step] = _Done(inputs=inputs, outcome=done)
        atomic_write(self._path, self._state.model_dump_json(indent=2).encode() + b"\n")

    def finish(self) -> None:
        """Remove the file, since nothing is left to resume; raises OSError if that fails."""
        self._state = None
        self._path.unlink(missing_ok=True)
