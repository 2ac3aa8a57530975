"""Converts the fields of a search request to a query of a release, for the service and for `taugate.open`."""

from typing import TYPE_CHECKING

from taugate.errors import InputError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.query import Query
from taugate.service.api.schemas import SearchFields

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.release.reader import Release


def to_query(request: SearchFields, release: "Release", permitted: Filter = ()) -> Query:
    """Return the query of a release that a request stands for; `permitted` says which documents the caller may see.

    Raises:
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
    return Query(request.query, k, request.threshold, request.min_results, request.filter, permitted, request.group_by)
