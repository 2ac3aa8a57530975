"""Search a release in this process, without a service: `taugate.open`."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from taugate.errors import InputError
from taugate.registry.catalog import find
from taugate.registry.writer import trusted_keys
from taugate.release.manifest import Manifest
from taugate.retrieval.query import GroupBy
from taugate.retrieval.reader import Release, load
from taugate.service.api.schemas import SearchFields, SearchResults, to_query
from taugate.service.pipeline.record import search_fields


class LocalRetriever:
    """Searches one release. `search` may be called from several threads."""

    def __init__(self, release: Release) -> None:
        """Search a release that is already loaded; `close` closes it."""
        self._release = release

    @classmethod
    def open(cls, releases: str | PathLike[str], release: str | None = None, *, threads: int | None = None) -> Self:
        """Verify and load a release.

        Args:
            releases: The releases directory.
            release: Id of the release, or None for the current one.
            threads: Threads of the encoder, or None for one per processor.

        Raises:
            ReleaseError: If there is no such release, or its files have changed.
            InputError: If the id is ambiguous.
            EngineUnavailable: If the release needs an engine that is not responding.
        """
        return cls(load(find(Path(releases), release), threads, trusted=trusted_keys()))

    @property
    def manifest(self) -> Manifest:
        """The manifest of the release: its threshold, certificates and metrics."""
        return self._release.manifest

    def search(  # noqa: PLR0913 (the fields of POST /search)
        self,
        query: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        k: int | None = None,
        threshold: float | None = None,
        min_results: int = 0,
        filter: dict[str, Any] | None = None,
        group_by: GroupBy | None = None,
        explain: bool = False,
    ) -> SearchResults:
        """Return the results that pass the threshold, best first, as POST /search does.

        Args:
            query: Text to search for; may be left out if there is a vector.
            vector: Vector of the query, for a release that was calibrated on vectors or accepts them.
            k: Number of results to consider, or None for the K of the calibration.
            threshold: Threshold to use instead of the calibrated one.
            min_results: Return at least this many results, even if they score below the threshold.
            filter: Conditions on metadata, all of which must hold (docs/api.md).
            group_by: "document" to let `k` count documents, each represented by its best chunk.
            explain: Include the parts of the scores and the words that match.

        Raises:
            NoEncoder: If there is no vector, and the release has no encoder.
            InputError: If a value is out of bounds, or the filter does not fit the metadata.
            EngineUnavailable: If the engine of the release is not responding.
        """
        values = {
            "query": query,
            "vector": None if vector is None else list(vector),
            "k": k,
            "threshold": threshold,
            "min_results": min_results,
            "filter": filter,
            "group_by": group_by,
        }
        try:
            fields = SearchFields.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        search = replace(to_query(fields, self._release), with_parts=explain)
        (answer,) = self._release.retriever.search([search])
        documents = answer.read(self._release.documents)
        return SearchResults.model_validate(search_fields(answer, documents, self.manifest))

    def close(self) -> None:
        """Close the release, so that it can be removed. A second call does nothing."""
        self._release.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
