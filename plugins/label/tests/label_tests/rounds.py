"""Samples to judge with queries, results and strata chosen by a test."""

from collections.abc import Mapping, Sequence

from taugate.retrieval.documents.store import Document
from taugate_label.sample import Round, SampledQuery
from taugate_label.session import Entry, Journal, pair_of

K = 2


def sampled(name: str, stratum: int = 1, others: int = 2) -> SampledQuery:
    """A query with two results and some passages that the search missed."""
    results = [f"{name}-r{place}" for place in range(K)]
    unseen = [f"{name}-o{place}" for place in range(others)]
    return SampledQuery(
        id=name, text=f"text of {name}", origin="human", new=False, stratum=stratum, results=results, others=unseen
    )


def round_of(
    queries: Sequence[SampledQuery], sizes: Sequence[float], earlier: Mapping[str, float | None] | None = None
) -> Round:
    """A sample that stands for a population of these sizes."""
    return Round(
        number=1,
        n=len(queries),
        seed=0,
        release="20260101T000000Z-000000000000",
        corpus="0" * 64,
        population=round(sum(sizes)),
        sizes=list(sizes),
        earlier=dict(earlier or {}),
        queries=list(queries),
    )


def passages(sample: Round) -> dict[str, Document]:
    """Every passage that a sample names."""
    names = [name for query in sample.queries for name in (*query.results, *query.others)]
    return {name: Document(name, f"passage {name}") for name in names}


def judged(sample: Round, relevant: Mapping[str, Sequence[str]], judge: str = "ana", number: int = 1) -> Journal:
    """The journal of a judge: every passage of these queries is judged, and the named ones are relevant."""
    documents = passages(sample)
    entries = [
        Entry(
            at=float(place),
            round=number,
            action="judge",
            query=query.id,
            document=name,
            pair=pair_of(query.text, documents[name]),
            relevant=name in relevant[query.id],
        )
        for query in sample.queries
        if query.id in relevant
        for place, name in enumerate((*query.results, *query.others))
    ]
    return Journal(judge, entries)
