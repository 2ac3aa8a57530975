"""Retrieval with a calibrated similarity threshold.

`taugate.open("releases")` returns a retriever that searches a release in this process.
"""

from os import PathLike
from typing import TYPE_CHECKING

from taugate.telemetry import switch_off_reports

if TYPE_CHECKING:
    from taugate.local import LocalRetriever

switch_off_reports()  # before any module of the package can import one of these libraries


def open(releases: str | PathLike[str], release: str | None = None, *, threads: int | None = None) -> "LocalRetriever":
    """Open a release to search it in this process; see `taugate.local.LocalRetriever.open`.

    Args:
        releases: The releases directory.
        release: Id of the release, or None for the current one.
        threads: Threads of the encoder, or None for one per processor.
    """
    from taugate.local import LocalRetriever  # loads FAISS and ONNX Runtime

    return LocalRetriever.open(releases, release, threads=threads)
