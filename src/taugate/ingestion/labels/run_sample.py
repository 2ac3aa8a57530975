"""A sample of the queries of a run, with the results of another retriever for each."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from taugate.errors import InputError
from taugate.ingestion.dataset.corpus import CORPUS, read_corpus
from taugate.ingestion.dataset.judgements import CorpusIds
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.labels.population import Population
from taugate.ingestion.labels.results import lexical_candidates
from taugate.ingestion.labels.sample import Draw, Round, SampledQuery, corpus_digest
from taugate.ingestion.runs.run import Run

PREFIX = "run:"  # of the name that stands for a release in a round


def draw_run_round(
    draw: Draw, data: Path, run: Path, k: int, candidates: Population, earlier: Mapping[str, float | None]
) -> Round:
    """Draw a simple random sample of the queries of a run, with the first K results of each.

    A run has no threshold that results could lie near, so there is one stratum, and judgements need no weights.

    Args:
        draw: Size and seed.
        data: Folder of the data set, with the texts of the results.
        run: File of the run.
        k: K, the number of results that are judged.
        candidates: The population; queries without results in the run are left out.
        earlier: Weights of the queries that were judged before.

    Raises:
        InputError: If the run cannot be read, has results for no query, or a result has no text.
    """
    listed = Run.read(run, ordered=False)
    population = [query for query in candidates.queries if query.id in listed.queries]
    if not population:
        raise InputError(f"{run}: has no results for any query that is left to judge; check that the ids are the same")
    order = np.random.default_rng(draw.seed).permutation(len(population))[: draw.n].tolist()
    chosen = [population[place] for place in order]
    documents, names = [*read_corpus(stored_file(data / CORPUS), CorpusIds())], [*listed.numbers]
    results = [[names[number] for number in listed.queries[query.id].documents[:k].tolist()] for query in chosen]
    positions = {document.id: place for place, document in enumerate(documents)}
    if missing := next((name for ids in results for name in ids if name not in positions), None):
        raise InputError(f"{run}: the data set has no text of document {missing!r}; record the run with --texts")
    texts, places = [query.text for query in chosen], [[positions[name] for name in ids] for ids in results]
    unseen = lexical_candidates(documents, texts, places)
    return Round(
        **dict(draw),
        release=PREFIX + listed.sha256[:12],
        corpus=corpus_digest(data),
        population=len(population),
        sizes=[len(population)],
        earlier=dict(earlier),
        queries=[
            SampledQuery(**dict(query), stratum=0, results=ids, others=[documents[place].id for place in others])
            for query, ids, others in zip(chosen, results, unseen, strict=True)
        ],
    )
