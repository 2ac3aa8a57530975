"""The sample of queries that all judges of a split judge: drawn once, and kept until it is judged.

Samples are numbered rounds: `judgements/<split>/round-1.json` in the folder of the data set is the first. The judges'
journals lie beside them.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.errors import InputError
from taugate.ingestion.dataset.beir import CORPUS, QUERIES, Origin
from taugate.ingestion.dataset.editing import QueryFile
from taugate.ingestion.dataset.lines import stored_file
from taugate.ingestion.labels.population import Candidate, Population
from taugate.ingestion.labels.results import lexical_candidates, search
from taugate.ingestion.labels.sampling import NAMES, spreads, strata_of, turns
from taugate.retrieval.release.reader import Release
from taugate.storage.files import atomic_write, read_bounded, sha256_file

# Of a larger population, so many queries are searched for and divided into strata; they stand for the rest (Cochran,
# Sampling Techniques, 3rd edition, 1977, chapter 12: double sampling).
MAX_SEARCHED = 5_000
_MAX_BYTES = 64 << 20


class SampledQuery(BaseModel):
    """A query that is to be judged.

    Attributes:
        id: Of the query.
        text: Of the query.
        origin: Of the query.
        new: Whether it comes from a log, and goes to queries.jsonl once it is judged.
        stratum: Number of its stratum.
        results: Ids of the passages that the release returns, best first.
        others: Ids of passages that it did not return, and that share words with the query.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    text: str
    origin: Origin
    new: bool
    stratum: int
    results: list[str]
    others: list[str]


class Round(BaseModel):
    """A sample, with all that its weights need.

    Attributes:
        number: From 1.
        n: As asked for.
        seed: As asked for.
        release: Id of the release whose results are judged.
        corpus: SHA-256 of corpus.jsonl.
        population: How many queries the sample stands for.
        sizes: How many of them are in each stratum; not whole numbers where only some of the population were searched
            for.
        earlier: Weights of the queries that were judged before, by id; None where they have none.
        queries: In the order in which they are judged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    n: int
    seed: int
    release: str
    corpus: str
    population: int
    sizes: list[float]
    earlier: dict[str, float | None]
    queries: list[SampledQuery]


class Draw(NamedTuple):
    """What a sample is drawn with.

    Attributes:
        number: Of the round.
        n: How many queries.
        seed: Of every random choice.
    """

    number: int
    n: int
    seed: int


def draw_round(
    draw: Draw,
    release: Release,
    candidates: Population,
    earlier: Mapping[str, float | None],
    say: Callable[[str], None],
) -> Round:
    """Draw a sample of queries, with the results that a release returns for each.

    Args:
        draw: Size and seed.
        release: That is searched; of the same corpus as the data set.
        candidates: The population.
        earlier: Weights of the queries that were judged before.
        say: Told before each step that takes time.
    """
    rng = np.random.default_rng(draw.seed)
    everyone = candidates.queries
    searched = [everyone[place] for place in np.sort(rng.permutation(len(everyone))[:MAX_SEARCHED]).tolist()]
    say(f"searching for {len(searched):,} of {len(everyone):,} queries")
    found = search(release, [each.text for each in searched])
    tau = release.retriever.policy.tau
    strata = strata_of(found.decisions, tau)
    sizes = np.bincount(strata, minlength=len(NAMES))
    order = turns(sizes.tolist(), spreads(strata, found.decisions, tau, found.relevance), draw.n)
    members = {
        stratum: iter(rng.permutation(np.flatnonzero(strata == stratum)).tolist()) for stratum in range(len(NAMES))
    }
    chosen = [next(members[stratum]) for stratum in order]
    say(f"looking for passages with the words of {len(chosen):,} queries")
    texts = [searched[place].text for place in chosen]
    others = lexical_candidates(release, texts, found.positions[chosen])
    documents = release.documents
    queries = []
    for place, positions in zip(chosen, others, strict=True):
        query: Candidate = searched[place]
        results = [documents[position].id for position in found.positions[place].tolist()]
        unseen = [documents[position].id for position in positions]
        queries.append(SampledQuery(**query._asdict(), stratum=int(strata[place]), results=results, others=unseen))
    return Round(
        number=draw.number,
        n=draw.n,
        seed=draw.seed,
        release=release.manifest.release_id,
        corpus=release.manifest.data.sha256["corpus"],
        population=len(everyone),
        sizes=(sizes * (len(everyone) / len(searched))).tolist(),
        earlier=dict(earlier),
        queries=queries,
    )


def rounds_folder(data: Path, split: str) -> Path:
    """Return the folder of a split's rounds and journals.

    Args:
        data: Folder of the data set.
    """
    return data / "judgements" / split


def latest_round(data: Path, split: str) -> Round | None:
    """Read the round that was drawn last; None before the first.

    Args:
        data: Folder of the data set.
        split: That is judged.

    Raises:
        InputError: Where the file is damaged.
    """
    numbers = [each.stem.removeprefix("round-") for each in rounds_folder(data, split).glob("round-*.json")]
    latest = max((int(each) for each in numbers if each.isdecimal()), default=None)
    if latest is None:
        return None
    path = _file(data, split, latest)
    try:
        return Round.model_validate_json(read_bounded(path, _MAX_BYTES))
    except (OSError, ValidationError) as error:
        raise InputError(f"{path}: not a sample of `taugate judge`, or a damaged one; restore or remove it") from error


def save_round(data: Path, split: str, drawn: Round) -> None:
    """Write a round.

    Args:
        data: Folder of the data set.
        split: That is judged.

    Raises:
        OSError: .
    """
    path = _file(data, split, drawn.number)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, drawn.model_dump_json(indent=1).encode() + b"\n")


def corpus_digest(data: Path) -> str:
    """Return the SHA-256 of the corpus as a manifest has it.

    Args:
        data: Folder of the data set.

    Raises:
        InputError: .
    """
    path = stored_file(data / CORPUS)
    try:
        found = path.stat()
        return _digest(path, (found.st_ino, found.st_size, found.st_mtime_ns))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give the folder of a data set") from error


@lru_cache(maxsize=1)
def _digest(path: Path, _version: tuple[int, int, int]) -> str:
    """Return the SHA-256 of a file; a large corpus is not read again after each query while it stays the same."""
    return sha256_file(path)


def check_corpus(data: Path, sample: Round) -> None:
    """Check that a sample is of the corpus that the data set has now.

    Args:
        data: Folder of the data set.
        sample: The round.

    Raises:
        InputError: Where it is not.
    """
    if corpus_digest(data) != sample.corpus:
        raise InputError(
            f"{data / CORPUS}: has changed since sample {sample.number} was drawn; all judgements are kept, and --more "
            "draws a new sample from a release of the new corpus"
        )


def check_queries(data: Path, queries: QueryFile, sample: Round) -> None:
    """Check that the queries of a sample are those that the data set has now.

    Args:
        data: Folder of the data set.
        queries: That it has.
        sample: The round.

    Raises:
        InputError: Where a query of the sample has another text or is gone; one of a log need not be in the data set
            yet.
    """
    texts = queries.texts()
    for query in sample.queries:
        if texts.get(query.id, query.text if query.new else None) != query.text:
            raise InputError(
                f"{data / QUERIES}: query {query.id!r} has changed or is gone since sample {sample.number} was drawn; "
                "all judgements are kept, and --more draws a new sample"
            )


def _file(data: Path, split: str, number: int) -> Path:
    return rounds_folder(data, split) / f"round-{number}.json"
