"""Converts the fields of a search request to a query of a release, for the service and for `taugate.open`."""

from typing import TYPE_CHECKING

from taugate.errors import InputError, NoEncoder
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.query import Query
from taugate.retrieval.vectors.unit import vector_bytes
from taugate.service.api.schemas import SearchFields

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.release.reader import Release


def to_query(request: SearchFields, release: "Release", permitted: Filter = ()) -> Query:
    """Return the query of a release that a request stands for; `permitted` says which documents the caller may see.

    Raises:
        NoEncoder: If the query is a text alone, and the release has no encoder.
        InputError: If fields contradict each other or do not fit the release. The message starts with the field.
    """
    k = release.manifest.policy.k if request.k is None else request.k
    if request.min_results > k:
        raise InputError(f"min_results: {request.min_results} is over k, which is {k}")
    if request.group_by is not None and release.retriever.passages.remote:
        raise InputError("group_by: the documents are in an engine, where results cannot be grouped; leave it out")
    if request.filter:
        try:
            release.fields.check_kinds(request.filter)
        except InputError as error:
            raise InputError(f"filter: {error}") from error
    return Query(
        request.query or "",
        k,
        request.threshold,
        request.min_results,
        request.filter,
        permitted,
        request.group_by,
        vector=_vector(request, release),
    )


def _vector(request: SearchFields, release: "Release") -> bytes | None:
    """Return the vector of a query as in `Query`; None if it is to be encoded."""
    manifest, needs_words = release.manifest, release.retriever.needs_words
    dimension = manifest.encoder.model_dimension
    if request.vector is None:
        if request.query is None:
            raise InputError("query: Field required" if manifest.reads_texts else "vector: Field required")
        if not manifest.reads_texts:
            beside = ", beside its text" if needs_words else ""
            raise NoEncoder(
                "query: the release has no encoder, because it was calibrated on vectors; send the vector of the query "
                f"as `vector`, {dimension} numbers by the same model{beside}"
            )
        return None
    if not manifest.reads_vectors:
        raise InputError("vector: the release encodes queries itself; send `query`, or calibrate with --accept-vectors")
    if needs_words and request.query is None:
        raise InputError("query: the score of this release depends on words, too; send the text beside the vector")
    added = bytes(4 * (manifest.encoder.dimension - dimension))  # the zero that `extended` adds for inner products
    return vector_bytes(request.vector, dimension) + added
