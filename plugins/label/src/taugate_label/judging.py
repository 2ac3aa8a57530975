"""Judges a split of a data set: draws a sample or continues with it, and writes the judgements to the split."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from taugate.data.corpus import CORPUS, read_corpus
from taugate.data.judgements import CorpusIds, qrels_of
from taugate.data.lines import stored_file
from taugate.data.queries import QueryFile, check_folder, judgement_lines, sole_writer
from taugate.data.runs.run import Run
from taugate.errors import InputError
from taugate.retrieval.documents.store import Document
from taugate.retrieval.reader import Release
from taugate_label.population import Population, lexical_candidates, logged, population
from taugate_label.sample import (
    Round,
    SampledQuery,
    SampleDraw,
    check_corpus,
    check_queries,
    corpus_digest,
    draw_round,
    latest_round,
    rounds_folder,
    save_round,
)
from taugate_label.session import Documents, Session, open_journal
from taugate_label.verdicts import Verdicts, disputed, read_journals, write_verdicts

PREFIX = "run:"  # of the name that stands for a release in a round

Say = Callable[[str], None]
_QUERIES = 50  # default size of a sample
# Drawing a sample takes longer, but writing judgements, or crops of `taugate queries`, has ended by then.
PATIENCE_SECONDS = 10.0


def draw_run_round(
    draw: SampleDraw, data: Path, run: Path, k: int, candidates: Population, earlier: Mapping[str, float | None]
) -> Round:
    """SampleDraw a simple random sample of the queries of a run, with the first K results of each.

    A run has no threshold that results could lie near, so there is one stratum, and judgements need no weights.

    Args:
        candidates: The population; queries without results in the run are left out.
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


@dataclass(frozen=True)
class SampleRequest:
    """The sample that a user requests.

    Attributes:
        n: Number of queries; None for the size of the sample that is being judged, or 50.
        seed: Seed of every random choice; None for that of the sample that is being judged, or 0.
    """

    n: int | None = None
    seed: int | None = None
    another: bool = False


@dataclass(frozen=True)
class Sources:
    """Sources of a new sample.

    Attributes:
        release: Opens the release whose results are judged; not called if there is a run.
        k: K, the number of results of a run that are judged per query.
    """

    release: Callable[[], Release]
    logs: Sequence[Path] = ()
    run: Path | None = None
    k: int = 5


def sample_to_judge(data: Path, split: str, request: SampleRequest, sources: Sources, say: Say) -> Round:
    """Return the sample that is being judged, or draw the first or another one.

    Args:
        say: Called with each message to the user.
    """
    if request.n is not None and request.n < 1:
        raise InputError(f"--n {request.n}: give a number of queries, 1 or more")
    check_folder(data)
    if request.another:
        _write_pending(data, split)
    with sole_writer(data, PATIENCE_SECONDS):
        latest = latest_round(data, split)
        if latest is not None and not request.another:
            if request.n not in {None, latest.n} or request.seed not in {None, latest.seed}:
                raise InputError(
                    f"{data}: sample {latest.number} was drawn with --n {latest.n} --seed {latest.seed}; leave both "
                    "out to continue it, or add --more to draw another one"
                )
            check_corpus(data, latest)
            check_queries(data, QueryFile.read(data), latest)
            return latest
        earlier = {line.query: line.judgement.weight for line in judgement_lines(data / qrels_of(split))}
        number = 1 if latest is None else latest.number + 1
        draw = SampleDraw(number=number, n=_QUERIES if request.n is None else request.n, seed=request.seed or 0)
        if sources.run is not None:
            candidates = population(data, earlier, Population([], []))
            drawn = draw_run_round(draw, data, sources.run, sources.k, candidates, earlier)
        else:
            drawn = _drawn_of_release(data, draw, sources.release(), sources.logs, earlier, say)
        save_round(data, split, drawn)
        return drawn


def _drawn_of_release(
    data: Path, draw: SampleDraw, release: Release, logs: Sequence[Path], earlier: Mapping[str, float | None], say: Say
) -> Round:
    """SampleDraw a sample of the queries of the data set and of logs, with the results of a release."""
    if release.manifest.data.sha256["corpus"] != corpus_digest(data):
        raise InputError(
            f"{data / CORPUS}: release {release.manifest.release_id} was made of another corpus; make a release of "
            f"this one first: taugate recalibrate {data} --releases DIR"
        )
    candidates = population(data, earlier, logged(logs, release.manifest.data.name))
    for remark in candidates.remarks:
        say(f"warning: {remark}")
    return draw_round(draw, release, candidates, earlier, say)


@dataclass(frozen=True)
class Judging:
    """A judge who is judging a sample."""

    data: Path
    split: str
    session: Session
    documents: Documents

    next_words: ClassVar = "Next, calibrate on the judgements"

    @property
    def has_judged(self) -> bool:
        """Whether any query is judged completely."""
        return bool(self.verdicts().judged)

    def save(self) -> None:
        """Write the judgements so far, whenever a query is finished."""
        self.write()

    def verdicts(self) -> Verdicts:
        """Combine the judgements of all judges of the sample so far."""
        return Verdicts.of(self.session.sample, self.documents, read_journals(self.data, self.split))

    def write(self, seconds: float = 0) -> Verdicts:
        """Write the judgements to the data set; the parameter and the errors are those of `write_verdicts`."""
        verdicts = self.verdicts()
        write_verdicts(self.data, self.split, verdicts, seconds)
        return verdicts


@contextmanager
def judging(data: Path, split: str, sample: Round, judge: str, *, only_disputed: bool = False) -> Iterator[Judging]:
    """Begin or continue judging a sample; judgements that an earlier process has not written are written first.

    Args:
        only_disputed: Whether to ask only about results that as many of the other judges find relevant as not.
    """
    with open_journal(rounds_folder(data, split) / f"{judge}.jsonl") as journal:
        documents = read_passages(data, sample)
        pairs = None
        if only_disputed:
            other_journals = [journal for journal in read_journals(data, split) if journal.judge != judge]
            pairs = {question.pair for question, _ in disputed(sample, documents, other_journals)}
            if not pairs:
                raise InputError(f"{data}: no result of sample {sample.number} is disputed; leave --disputed out")
        work = Judging(data, split, Session(sample, documents, journal, pairs), documents)
        work.write(PATIENCE_SECONDS)
        yield work


def read_passages(data: Path, sample: Round) -> dict[str, Document]:
    """Return every passage that a sample names, by id."""
    named = {name for query in sample.queries for name in (*query.results, *query.others)}
    path = stored_file(data / CORPUS)
    return {document.id: document for document in read_corpus(path, CorpusIds()) if document.id in named}


def _write_pending(data: Path, split: str) -> None:
    """Write what a killed process has not written of the latest sample, so that the next one is joined to all of it."""
    latest = latest_round(data, split)
    if latest is None or latest.corpus != corpus_digest(data):
        return
    try:
        check_queries(data, QueryFile.read(data), latest)
    except InputError:  # the very reason for drawing a new sample
        return
    verdicts = Verdicts.of(latest, read_passages(data, latest), read_journals(data, split))
    write_verdicts(data, split, verdicts, PATIENCE_SECONDS)
