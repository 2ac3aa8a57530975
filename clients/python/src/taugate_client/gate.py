"""A calibrated threshold for the results of another retriever, in this process."""

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taugate_client.errors import InvalidConfiguration, InvalidRequest

if TYPE_CHECKING:
    from taugate.retrieval.gate import GateReply, ScoredResult


class Gate:
    """Cuts results by a release of `taugate calibrate-run`. `cut` may be called by several threads.

    It needs the package `taugate`, of which it loads neither an encoder nor an index.

    Args:
        releases: The releases directory.
        release: Id of the release, or the beginning of one; None for the current one.

    Raises:
        InvalidConfiguration: If `taugate` is not installed, or the release cannot be opened.
    """

    def __init__(self, releases: str | PathLike[str], release: str | None = None) -> None:
        try:
            from taugate.errors import InputError, TaugateError
            from taugate.registry.catalog import find
            from taugate.registry.writer import trusted_keys
            from taugate.retrieval import gate
        except ModuleNotFoundError as error:
            raise InvalidConfiguration(
                "Gate needs the package taugate, as well as taugate-client: run `pip install .` in a clone of its "
                "repository"
            ) from error
        try:
            self._gate = gate.Gate.load(find(Path(releases), release), trusted_keys())
        except TaugateError as error:
            raise InvalidConfiguration(str(error)) from error
        self._result, self._invalid = gate.ScoredResult, InputError

    def cut(self, results: Iterable[Mapping[str, Any]], k: int | None = None) -> "GateReply":
        """Keep the results of a query that pass the threshold.

        Args:
            results: Results of the retriever, best first: `id`, `score` and, if calibrated, `scores` by name.
            k: How many of them are considered; None for the K of the calibration.

        Raises:
            InvalidRequest: If a result has no id or no score, an id is repeated, or a score is not a finite number.
        """
        try:
            return self._gate.cut([self._read(result) for result in results], k)
        except self._invalid as error:
            raise InvalidRequest(str(error)) from error

    def _read(self, result: Mapping[str, Any]) -> "ScoredResult":
        try:
            given = {name: float(value) for name, value in (result.get("scores") or {}).items() if value is not None}
            return self._result(str(result["id"]), float(result["score"]), given)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest("every result needs an id, a score and, if calibrated, scores by name") from error
