"""The sample of queries that all judges of a split judge: stratified, drawn once, and kept until it is judged.

Selection of the queries that people judge: a stratified random sample with known probabilities. Queries whose results
lie near the threshold say the most about it, so they are drawn more often than others. Each judged query is then
weighted by the inverse of its probability, so the estimates hold for all queries (Horvitz and Thompson, JASA 47, 1952).

A judge who stops early has judged a smaller sample of the same kind. Within a stratum the order is random, so the first
m queries are a simple random sample of it. The order of the strata is settled beforehand, so it does not depend on the
judgements.

Samples are numbered rounds: `judgements/<split>/round-1.json` in the folder of the data set is the first. The judges'
journals lie beside them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.data.corpus import CORPUS
from taugate.data.lines import stored_file
from taugate.data.queries import QUERIES, QueryFile
from taugate.errors import InputError
from taugate.retrieval.reader import Release
from taugate.storage.files import atomic_write, read_bounded, sha256_file
from taugate_label.population import Population, PopulationQuery, lexical_candidates, search_uncut

Float64 = NDArray[np.float64]
Strata = NDArray[np.int64]

# In ascending order of score: a stratum without judgements is joined to a neighbour.
BELOW, NEAR, ABOVE = 0, 1, 2
NAMES = ("below", "near", "above")
# Half of the sample is allocated in proportion to the strata's sizes, so no query counts more than twice the average.
_BY_SIZE = 0.5

# From a larger population, this many queries are searched for and divided into strata; they stand for all of them
# (Cochran, Sampling Techniques, 3rd edition, 1977, chapter 12: double sampling).
MAX_SEARCHED = 5_000
_MAX_BYTES = 64 << 20


def strata_of(decisions: NDArray[np.floating], tau: float | None) -> Strata:
    """Divide queries by the position of their results relative to the threshold; returns (q,) int64, BELOW to ABOVE.

    NEAR is the third of the queries that come closest to τ with any of their results. The others are ABOVE if their
    best result passes τ, and BELOW if it does not. Without a threshold, the three strata are thirds by the best result.
    """
    scores = decisions.astype(np.float64)
    best = scores.max(axis=1)
    strata = np.empty(len(scores), dtype=np.int64)
    if tau is None:
        strata[np.argsort(best, kind="stable")] = np.arange(len(best)) * 3 // max(len(best), 1)
        return strata
    strata[:] = np.where(best >= tau, ABOVE, BELOW)
    distance = np.abs(scores - tau).min(axis=1)
    strata[np.argsort(distance, kind="stable")[: -(-len(scores) // 3)]] = NEAR
    return strata


def outcome_deviations(
    strata: Strata, decisions: NDArray[np.floating], tau: float | None, relevance: Float64 | None
) -> Float64:
    """Estimate the standard deviation of outcomes within each stratum (Neyman's S); returns (3,) float64.

    There are two outcomes: a query has a relevant result, and a query has some but τ drops them all. The relevance
    model gives the mean probability p of each in the stratum, taking results as independent. S² is the sum of p·(1 − p)
    over the two.

    Args:
        relevance: (q, K) probability that each result is relevant; None without a model, and then all strata get 1.
    """
    if relevance is None:
        return np.ones(3)
    irrelevant = 1 - relevance
    nothing = irrelevant.prod(axis=1)
    kept = np.ones(decisions.shape, dtype=np.bool_) if tau is None else decisions >= np.float32(tau)
    lost = np.where(kept, irrelevant, 1.0).prod(axis=1) - nothing
    deviations = np.zeros(3)
    for stratum in np.unique(strata):
        shares = np.array([outcome[strata == stratum].mean() for outcome in (1 - nothing, lost)])
        deviations[stratum] = np.sqrt((shares * (1 - shares)).sum())
    return deviations


def stratum_order(sizes: Sequence[int], deviations: Float64, n: int) -> list[int]:
    """Return the stratum of each query of the sample, in order: `n` strata, or fewer if the population is smaller.

    First, two queries are taken from each stratum. After that, half of the sample is allocated in proportion to N_h and
    half in proportion to N_h·S_h, Neyman's allocation (Cochran, Sampling Techniques, 3rd edition, 1977, §5.5). The
    counts in every beginning of the order are rounded by Webster's method.
    """
    by_size = np.array(sizes, dtype=np.float64)
    neyman = by_size * deviations
    if not neyman.sum():
        neyman = by_size
    share = _BY_SIZE * by_size / by_size.sum() + (1 - _BY_SIZE) * neyman / neyman.sum()
    counts, order = [0] * len(sizes), list[int]()
    while len(order) < min(n, sum(sizes)):
        left = [stratum for stratum, size in enumerate(sizes) if counts[stratum] < size]
        short = [stratum for stratum in left if counts[stratum] < 2]
        if short:
            chosen = min(short, key=lambda stratum: (counts[stratum], -share[stratum]))
        else:
            chosen = max(left, key=lambda stratum: float(share[stratum]) / (2 * counts[stratum] + 1))
        counts[chosen] += 1
        order.append(chosen)
    return order


def weights(sizes: Sequence[float], judged: Sequence[int]) -> list[float]:
    """Return the number of queries that each judged query of a stratum stands for, 0 without judged queries.

    That is N_h / m_h. A stratum without judged queries is joined to its nearest neighbour that has some, as surveys
    do with strata in which no one responded (Kalton and Flores-Cervantes, Journal of Official Statistics 19, 2003). So
    the weights of all judged queries always add up to the population.

    Args:
        sizes: Number of queries in each stratum, in ascending order of score.
    """
    judged_strata = [stratum for stratum, count in enumerate(judged) if count]
    joined = [0.0] * len(sizes)
    for stratum, size in enumerate(sizes):
        if judged_strata:
            joined[min(judged_strata, key=lambda judged_stratum: abs(judged_stratum - stratum))] += size
    return [size / count if count else 0.0 for size, count in zip(joined, judged, strict=True)]


class SampledQuery(PopulationQuery):
    """A query of the sample; a new one is added to queries.jsonl once it is judged.

    Attributes:
        others: Ids of passages that it did not return, and that share words with the query.
    """

    stratum: int
    results: list[str]
    others: list[str]


class SampleDraw(BaseModel):
    """Parameters of a sample."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    n: int
    seed: int


class Round(SampleDraw):
    """A sample, with everything that its weights depend on.

    Attributes:
        release: Id of the release whose results are judged, or "run:" and a digest.
        sizes: Number of them in each stratum; not whole numbers if only a part of the population was searched for. A
            sample of a run has one stratum.
        earlier: Weights of the queries that were judged before, by id; None if they have none.
    """

    release: str
    corpus: str
    population: int
    sizes: list[float]
    earlier: dict[str, float | None]
    queries: list[SampledQuery]


def draw_round(
    draw: SampleDraw,
    release: Release,
    candidates: Population,
    earlier: Mapping[str, float | None],
    say: Callable[[str], None],
) -> Round:
    """SampleDraw a sample of queries, with the results that a release returns for each.

    Args:
        say: Called before each step that takes time.
    """
    rng = np.random.default_rng(draw.seed)
    population = candidates.queries
    searched = [population[place] for place in np.sort(rng.permutation(len(population))[:MAX_SEARCHED]).tolist()]
    say(f"searching for {len(searched):,} of {len(population):,} queries")
    results = search_uncut(release, [query.text for query in searched])
    tau = release.retriever.policy.tau
    strata = strata_of(results.decisions, tau)
    sizes = np.bincount(strata, minlength=len(NAMES))
    order = stratum_order(sizes.tolist(), outcome_deviations(strata, results.decisions, tau, results.relevance), draw.n)
    members = {
        stratum: iter(rng.permutation(np.flatnonzero(strata == stratum)).tolist()) for stratum in range(len(NAMES))
    }
    chosen = [next(members[stratum]) for stratum in order]
    say(f"searching passages that share words with {len(chosen):,} queries")
    texts = [searched[place].text for place in chosen]
    documents = release.documents
    unseen = lexical_candidates(documents, texts, results.positions[chosen].tolist())
    queries = [
        SampledQuery(
            **dict(searched[place]),
            stratum=int(strata[place]),
            results=[documents[position].id for position in results.positions[place].tolist()],
            others=[documents[position].id for position in positions],
        )
        for place, positions in zip(chosen, unseen, strict=True)
    ]
    return Round(
        **dict(draw),
        release=release.manifest.release_id,
        corpus=release.manifest.data.sha256["corpus"],
        population=len(population),
        sizes=(sizes * (len(population) / len(searched))).tolist(),
        earlier=dict(earlier),
        queries=queries,
    )


def rounds_folder(data: Path, split: str) -> Path:
    """Return the folder of a split's rounds and journals in a data set."""
    return data / "judgements" / split


def latest_round(data: Path, split: str) -> Round | None:
    """Read the latest round; None before the first."""
    numbers = [path.stem.removeprefix("round-") for path in rounds_folder(data, split).glob("round-*.json")]
    latest = max((int(number) for number in numbers if number.isdecimal()), default=None)
    if latest is None:
        return None
    path = _file(data, split, latest)
    try:
        return Round.model_validate_json(read_bounded(path, _MAX_BYTES))
    except (OSError, ValidationError) as error:
        raise InputError(f"{path}: not a sample of `taugate judge`, or a damaged one; restore or remove it") from error


def save_round(data: Path, split: str, drawn: Round) -> None:
    """Write a round."""
    path = _file(data, split, drawn.number)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, drawn.model_dump_json(indent=1).encode() + b"\n")


def corpus_digest(data: Path) -> str:
    """Return the SHA-256 of a data set's corpus, in the form of a manifest."""
    path = stored_file(data / CORPUS)
    try:
        status = path.stat()
        return _digest(path, (status.st_ino, status.st_size, status.st_mtime_ns))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give the folder of a data set") from error


@lru_cache(maxsize=1)
def _digest(path: Path, _version: tuple[int, int, int]) -> str:
    """Return the SHA-256 of a file; the cache spares reading an unchanged corpus again after each query."""
    return sha256_file(path)


def check_corpus(data: Path, sample: Round) -> None:
    """Check that the corpus has not changed since a sample was drawn."""
    if corpus_digest(data) != sample.corpus:
        raise InputError(
            f"{data / CORPUS}: has changed since sample {sample.number} was drawn; all judgements are kept, and --more "
            "draws a new sample from a release of the new corpus"
        )


def check_queries(data: Path, queries: QueryFile, sample: Round) -> None:
    """Check that the queries have not changed since a sample was drawn."""
    texts = queries.texts()
    for query in sample.queries:
        if texts.get(query.id, query.text if query.new else None) != query.text:
            raise InputError(
                f"{data / QUERIES}: query {query.id!r} was changed or removed after sample {sample.number} was drawn; "
                "all judgements are kept, and --more draws a new sample"
            )


def _file(data: Path, split: str, number: int) -> Path:
    return rounds_folder(data, split) / f"round-{number}.json"
