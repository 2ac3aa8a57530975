"""Check that all services give the same answers: same corpus, same encoder, same first document."""

from collections.abc import Sequence

from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest

_QUERIES = 50
_SHARE = 0.9  # of queries with the first document of the first service: int8 and another order of sums change some


def check(services: Sequence[ServiceUnderTest], queries: Sequence[str]) -> None:
    """Ask every service some queries.

    Raises:
        ValueError: If one of them finds something else than the first does.
    """
    first: list[str] | None = None
    for service in services:
        with Server(service) as server:
            # taugate keeps what passes its threshold, which may be nothing
            found = [(service.found(server.ask(text)) or [""])[0] for text in queries[:_QUERIES]]
        if first is None:
            first = found
        asked = [(own, theirs) for own, theirs in zip(first, found, strict=True) if own and theirs]
        same = sum(own == theirs for own, theirs in asked)
        if same < _SHARE * len(asked) or len(asked) < _SHARE * len(found):
            raise ValueError(f"{service.name} finds the same first document for {same} of {len(asked)} queries only")
