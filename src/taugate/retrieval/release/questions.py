"""The questions of a calibration with their scores, from which people see what other thresholds would do to each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import orjson
from pydantic import BaseModel, Field

from taugate.errors import ReleaseError
from taugate.storage.files import read_bounded

QuestionKind = Literal["answerable", "unanswerable", "off_topic"]
# Kept or lost: the relevant results of a question with an answer, lost to τ or to ρ; missed: it has none in its top K.
# Refused: no result, for a question that has no answer or misses it. Answered: a result, for one without an answer.
Outcome = Literal["kept", "lost", "missed", "refused", "answered"]
# More than a person reads, few enough for a browser to count again while a threshold is dragged (10 ms).
MAX_QUESTIONS = 10_000
_MAX_BYTES = 64 << 20  # ten times what calibration writes


class CalibrationQuestion(BaseModel):
    """A question with the values that τ and ρ are compared with. Scores are float32."""

    text: str
    kind: QuestionKind = Field(
        description="`answerable` and `unanswerable` as labelled; `off_topic` for questions about other subjects that "
        "ship with Taugate"
    )
    heldout: bool = Field(description="true if the question did not influence τ")
    values: list[float] = Field(description="value of each result of the top K that is compared with τ")
    best: float = Field(description="score of the first result")
    refusal: float | None = Field(description="score that is compared with ρ; null if questions are not refused by one")
    rank: int | None = Field(description="rank of the first relevant result; null if the top K has none")
    right: float | None = Field(description="largest value of a relevant result; null if the top K has none")

    def outcome(self, tau: float | None, rho: float | None) -> Outcome:
        """Return what becomes of the question at thresholds, None for one that is not in force; compares float32.

        Args:
            tau: τ.
            rho: ρ; with one, a question that is not refused keeps its first result.
        """
        if rho is not None and np.float32(self.best if self.refusal is None else self.refusal) < np.float32(rho):
            return "refused" if self.right is None else "lost"
        if self.kind != "answerable":
            return "answered" if rho is not None or any(_passes(value, tau) for value in self.values) else "refused"
        if self.right is None:
            return "missed"
        return "kept" if _passes(self.right, tau) or (rho is not None and self.rank == 1) else "lost"

    def distance(self, tau: float | None, rho: float | None) -> float:
        """Return the smallest distance of a threshold to the value that decides the outcome; infinity without any."""
        distances = [] if rho is None else [abs((self.best if self.refusal is None else self.refusal) - rho)]
        if tau is not None and self.right is not None:
            distances.append(abs(self.right - tau))
        return min(distances, default=float("inf"))


def _passes(value: float, tau: float | None) -> bool:
    return tau is None or bool(np.float32(value) >= np.float32(tau))


def write_calibration_questions(path: Path, questions: Sequence[CalibrationQuestion]) -> None:
    """Write questions, one JSON object per line."""
    path.write_bytes(b"".join(orjson.dumps(question.model_dump()) + b"\n" for question in questions))


def read_calibration_questions(path: Path) -> list[bytes]:
    """Read the lines of the file that `write_calibration_questions` wrote; none if the release has no such file.

    Raises:
        ReleaseError: If it cannot be read.
    """
    try:
        return read_bounded(path, _MAX_BYTES).splitlines()
    except FileNotFoundError:  # releases of earlier versions, and those with erased documents
        return []
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read; calibrate again") from error


def texts_of(lines: Sequence[bytes]) -> list[str]:
    """Return the texts of questions, of lines that `read_calibration_questions` returned."""
    return [orjson.loads(line)["text"] for line in lines]
