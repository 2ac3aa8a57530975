"""Judge a split of a data set: draw a sample or continue with it, and write the judgements to the split."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import CORPUS, read_corpus
from taugate.ingestion.dataset.editing import QueryFile, judgement_lines
from taugate.ingestion.dataset.judgements import CorpusIds, qrels_of
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.dataset.lock import sole_writer
from taugate.ingestion.labels.journal import open_journal
from taugate.ingestion.labels.population import logged, population
from taugate.ingestion.labels.sample import (
    Draw,
    Round,
    check_corpus,
    check_queries,
    corpus_digest,
    draw_round,
    latest_round,
    rounds_folder,
    save_round,
)
from taugate.ingestion.labels.session import Documents, Session
from taugate.ingestion.labels.verdicts import Verdicts, disputed, read_journals, write_verdicts
from taugate.retrieval.documents.store import Document
from taugate.retrieval.release.reader import Release

Say = Callable[[str], None]
_QUERIES = 50  # of a sample, where nobody says how many
# Drawing a sample takes longer, but a judge who writes labels, or `taugate queries` that makes crops, is done by then.
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class SampleRequest:
    """The sample that a user asks for.

    Attributes:
        n: How many queries, None for as many as the sample has that is being judged, or 50.
        seed: Of every random choice, None for that of this sample, or 0.
        more: Draw a new sample although there is one.
    """

    n: int | None = None
    seed: int | None = None
    more: bool = False


@dataclass(frozen=True)
class Sources:
    """Where a new sample comes from.

    Attributes:
        release: Opens the release whose results are judged.
        logs: Files of the service, whose queries may be judged too.
    """

    release: Callable[[], Release]
    logs: Sequence[Path] = ()


def sample_to_judge(data: Path, split: str, request: SampleRequest, sources: Sources, say: Say) -> Round:
    """Return the sample that is being judged, or draw the first or another one.

    Args:
        data: Folder of the data set.
        split: That the judgements go to.
        request: Size and seed of a new sample.
        sources: Of a new sample.
        say: Called with each message to the user.

    Raises:
        InputError: Where a sample of another size or seed is being judged, where the data set is no longer that of the
            sample or of the release, and where no query is left.
    """
    if request.n is not None and request.n < 1:
        raise InputError(f"--n {request.n}: give a number of queries, 1 or more")
    if not data.is_dir():
        raise InputError(f"{data}: no such directory; give the folder that holds {CORPUS}")
    if request.more:
        _write_what_is_left(data, split)
    with sole_writer(data, PATIENCE_SECONDS):
        latest = latest_round(data, split)
        if latest is not None and not request.more:
            if request.n not in {None, latest.n} or request.seed not in {None, latest.seed}:
                raise InputError(
                    f"{data}: sample {latest.number} was drawn with --n {latest.n} --seed {latest.seed}; leave both "
                    "out to continue it, or add --more to draw another one"
                )
            check_corpus(data, latest)
            check_queries(data, QueryFile.read(data), latest)
            return latest
        earlier = {line.query: line.judgement.weight for line in judgement_lines(data / qrels_of(split))}
        release = sources.release()
        if release.manifest.data.sha256["corpus"] != corpus_digest(data):
            raise InputError(
                f"{data / CORPUS}: release {release.manifest.release_id} was made of another corpus; make a release of "
                f"this one first: taugate update {data} --releases DIR"
            )
        candidates = population(data, earlier, logged(sources.logs, release.manifest.data.name))
        for remark in candidates.remarks:
            say(f"warning: {remark}")
        number = 1 if latest is None else latest.number + 1
        draw = Draw(number, _QUERIES if request.n is None else request.n, request.seed or 0)
        drawn = draw_round(draw, release, candidates, earlier, say)
        save_round(data, split, drawn)
        return drawn


@dataclass(frozen=True)
class Judging:
    """A judge at work on a sample.

    Attributes:
        data: Folder of the data set.
        split: That the judgements go to.
        session: Of the judge.
        documents: Every passage of the sample.
    """

    data: Path
    split: str
    session: Session
    documents: Documents

    def verdicts(self) -> Verdicts:
        """Combine what all judges of the sample have said so far."""
        return Verdicts.of(self.session.sample, self.documents, read_journals(self.data, self.split))

    def write(self, seconds: float = 0) -> Verdicts:
        """Write what is judged to the data set. seconds and errors: as `write_verdicts` has them."""
        verdicts = self.verdicts()
        write_verdicts(self.data, self.split, verdicts, seconds)
        return verdicts


@contextmanager
def judging(data: Path, split: str, sample: Round, judge: str, *, only_disputed: bool = False) -> Iterator[Judging]:
    """Begin or continue judging a sample; what an earlier process has left is written first.

    Args:
        data: Folder of the data set.
        split: That the judgements go to.
        sample: The round.
        judge: Name of the judge.
        only_disputed: Ask only about results that as many of the other judges find relevant as not.

    Raises:
        InputError: Where the judge is at work in another process, and where nothing is disputed.
    """
    with open_journal(rounds_folder(data, split) / f"{judge}.jsonl") as journal:
        documents = read_passages(data, sample)
        pairs = None
        if only_disputed:
            others = [each for each in read_journals(data, split) if each.judge != judge]
            pairs = {question.pair for question, _ in disputed(sample, documents, others)}
            if not pairs:
                raise InputError(f"{data}: no result of sample {sample.number} is disputed; leave --disputed out")
        work = Judging(data, split, Session(sample, documents, journal, pairs), documents)
        work.write(PATIENCE_SECONDS)
        yield work


def read_passages(data: Path, sample: Round) -> dict[str, Document]:
    """Return every passage that a sample names, by id.

    Args:
        data: Folder of the data set.
        sample: The round.
    """
    wanted = {name for query in sample.queries for name in (*query.results, *query.others)}
    path = stored_file(data / CORPUS)
    return {each.id: each for each in read_corpus(path, CorpusIds()) if each.id in wanted}


def _write_what_is_left(data: Path, split: str) -> None:
    """Write what a killed process has left of the latest sample, so that the next one is joined to all of it."""
    latest = latest_round(data, split)
    if latest is None or latest.corpus != corpus_digest(data):
        return
    try:
        check_queries(data, QueryFile.read(data), latest)
    except InputError:  # as a new sample is to be drawn for that very reason
        return
    verdicts = Verdicts.of(latest, read_passages(data, latest), read_journals(data, split))
    write_verdicts(data, split, verdicts, PATIENCE_SECONDS)
