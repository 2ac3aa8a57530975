"""Is a query set worth calibrating on: against simulations whose truth is known, scikit-learn, and spoiled sets."""

import dataclasses

import numpy as np
import pytest
from joblib.externals.loky.backend import context
from scipy import stats
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from taugate.calibration.metrics.inputs import clusters, judge_queries
from taugate.calibration.query_set.measure import (
    _k_means,
    cosine_distance,
    duplicates,
    measure_query_set,
    silhouette,
    topic_clusters,
)
from taugate.calibration.query_set.warnings import QuerySetSigns, query_set_warnings
from taugate.data.labelled_queries import LabelledQuery
from taugate.evidence.clusters import cluster_bootstrap, effective_sample_size, intra_cluster_correlation
from taugate.policy.arrays import Float32
from taugate.release.records import QuerySetRecord
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.vectors import pair_similarity
from tests.calibration.commands import Printed
from tests.vectors import unit


def query(*relevant: int, text: str = "?") -> LabelledQuery:
    return LabelledQuery("q", text, dict.fromkeys(relevant, 1))


def simulated(rng: np.random.Generator, sizes: np.ndarray, icc: float) -> tuple[np.ndarray, np.ndarray]:
    """A metric of unit variance whose share `icc` belongs to the cluster, with its clusters."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    common = rng.standard_normal(len(sizes))[labels]
    return np.sqrt(icc) * common + np.sqrt(1 - icc) * rng.standard_normal(len(labels)), labels


EQUAL, UNEQUAL = np.full(40, 5), np.array([30, 20, 10] + [1] * 40)
sizes_and_icc = pytest.mark.parametrize(
    ("sizes", "icc"), [(EQUAL, 0.0), (EQUAL, 0.4), (UNEQUAL, 0.3)], ids=["independent", "equal", "unequal"]
)


def test_clusters_join_shared_documents() -> None:
    queries = [query(7), query(9, 3), query(5), query(7), query(3, 5), query(10**9)]
    result = clusters(queries)
    assert result.tolist() == [0, 1, 1, 0, 1, 2]
    assert result.dtype == np.int64


@pytest.mark.parametrize("icc", [0.0, 0.2, 0.7])
def test_correlation_recovers_simulation(icc: float) -> None:
    rng = np.random.default_rng(1)
    values, labels = simulated(rng, rng.integers(1, 12, size=4000), icc)
    assert intra_cluster_correlation(values, labels) == pytest.approx(icc, abs=0.02)


def test_correlation_equals_hand_calculation() -> None:
    """Clusters {0} and {2, 3, 4}: MSB = 6.75, MSW = 1, m₀ = 4 − 10/4 = 1.5, so (6.75 − 1) / (6.75 + 0.5) = 23/29."""
    values, labels = np.array([0.0, 2.0, 3.0, 4.0]), np.array([0, 1, 1, 1])
    assert intra_cluster_correlation(values, labels) == pytest.approx(23 / 29, abs=1e-12)


@sizes_and_icc
def test_effective_size_predicts_variance(sizes: np.ndarray, icc: float) -> None:
    """Over 20,000 simulations the variance of the mean is 1 / ESS, to 1 % (one standard deviation)."""
    rng = np.random.default_rng(2)
    means = [simulated(rng, sizes, icc)[0].mean() for _ in range(20_000)]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    assert np.var(means) * effective_sample_size(labels, icc) == pytest.approx(1, abs=0.04)


def test_effective_size_of_known_cases() -> None:
    values = np.random.default_rng(0).random(60)
    alone, sixes = np.arange(60), np.repeat(np.arange(10), 6)
    assert effective_sample_size(alone, intra_cluster_correlation(values, alone)) == 60
    same = (values[:10] > 0.5)[sixes].astype(float)
    assert intra_cluster_correlation(same, sixes) == 1
    assert effective_sample_size(sixes, 1.0) == 10
    one = np.zeros(60, dtype=np.int64)
    assert effective_sample_size(one, intra_cluster_correlation(values, one)) == 1
    assert intra_cluster_correlation(np.ones(60), sixes) == 1
    opposite = np.tile([0.0, 1.0], 30)  # each cluster's mean is the same: the estimate is negative before it is clipped
    assert effective_sample_size(sixes, intra_cluster_correlation(opposite, sixes)) == 60


@pytest.mark.slow
@sizes_and_icc
def test_cluster_interval_covers_truth(sizes: np.ndarray, icc: float) -> None:
    """Near 95 % of 300 simulations; drawing single queries holds fewer (.76 and .59 where queries go together)."""
    rng = np.random.default_rng(3)
    held = alone = 0
    for _ in range(300):
        values, labels = simulated(rng, sizes, icc)
        result = cluster_bootstrap(values, labels, rng, 200)
        held += result.lower <= 0 <= result.upper
        single = cluster_bootstrap(values, np.arange(len(values)), rng, 200)
        alone += single.lower <= 0 <= single.upper
    assert held / 300 > 0.9
    assert icc == 0 or alone / 300 < 0.8


def test_cosine_distance_equals_all_pairs() -> None:
    vectors = unit(np.random.default_rng(0).standard_normal((50, 8)) + 0.5)
    pairs = 1 - (vectors.astype(np.float64) @ vectors.astype(np.float64).T)[np.triu_indices(50, 1)]
    assert cosine_distance(vectors) == pytest.approx(pairs.mean(), abs=1e-12)


def test_silhouette_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    vectors, labels = unit(rng.standard_normal((200, 8))), rng.integers(0, 6, 200).astype(np.int32)
    labels[labels == 5] = 4
    labels[17] = 5  # alone
    expected = silhouette_score(vectors.astype(np.float64), labels, metric="cosine")
    assert silhouette(vectors, labels) == pytest.approx(expected, abs=1e-6)


def blobs(rng: np.random.Generator, sizes: list[int]) -> Float32:
    centres = np.eye(16)[: len(sizes)]
    return unit(np.repeat(centres, sizes, axis=0) + 0.05 * rng.standard_normal((sum(sizes), 16)))


def test_topics_and_entropy_of_blobs() -> None:
    rng = np.random.default_rng(0)
    even = topic_clusters(blobs(rng, [40] * 7), seed=0)
    assert even is not None
    assert (even.topics, even.topic_entropy) == (7, pytest.approx(1, abs=1e-12))
    assert even.silhouette > 0.9
    uneven = topic_clusters(blobs(rng, [80, 10, 10]), seed=0)
    assert uneven is not None
    assert uneven.topics == 3
    assert uneven.topic_entropy == pytest.approx(-(0.8 * np.log(0.8) + 0.2 * np.log(0.1)) / np.log(3), abs=1e-12)


def test_topics_are_independent_of_threads() -> None:
    vectors = unit(np.random.default_rng(0).standard_normal((1500, 64)))
    result = set()
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            result |= {topic_clusters(vectors, seed=5) for _ in range(2)}
    assert len(result) == 1
    assert topic_clusters(vectors, seed=6) not in result  # another seed, another sample


def test_two_documents_have_no_diversity() -> None:
    vectors = unit(np.random.default_rng(0).standard_normal((2, 8)))
    assert cosine_distance(vectors) is None
    assert topic_clusters(vectors, seed=0) is None
    assert topic_clusters(np.repeat(vectors, 5, axis=0), seed=0) is None


def test_duplicates_ignore_case_and_space() -> None:
    assert duplicates(["Roof  tiles?", "roof tiles?", " ROOF\ttiles?\n", "roof tile?", "STRASSE", "straße"]) == 3


GOOD = QuerySetSigns(
    queries=400, accuracy=0.8, clusters=300, effective=350.0, relative_distance=1.0, duplicates=0, overtaken=4
)


def test_good_set_has_no_warning() -> None:
    assert query_set_warnings(GOOD) == []
    assert query_set_warnings(dataclasses.replace(GOOD, relative_distance=None, duplicates=3, effective=200.0)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"queries": 29, "effective": 29.0, "overtaken": 0}, "only 29 answerable queries: accuracy 0.80 may be"),
        ({"queries": 99, "effective": 99.0, "overtaken": 0}, "papers' rule draws samples of 100"),
        ({"queries": 100, "effective": 100.0, "accuracy": 0.99, "overtaken": 0}, "too easy"),
        ({"accuracy": 0.99}, "too easy: accuracy 0.990"),
        ({"relative_distance": 0.7}, "one topic: their documents are 0.70 times"),
        ({"duplicates": 4}, "4 of 400 queries repeat"),
        ({"clusters": 90, "effective": 120.0}, "in 90 groups and are worth 120"),
        ({"overtaken": 20}, "for 20 of 400 queries"),
    ],
)
def test_each_defect_has_one_warning(change: dict[str, float], words: str) -> None:
    (sentence,) = query_set_warnings(dataclasses.replace(GOOD, **change))
    assert words in sentence


def test_few_overtaken_queries_are_chance() -> None:
    few = QuerySetSigns(
        queries=30, accuracy=0.8, clusters=30, effective=30.0, relative_distance=1.0, duplicates=0, overtaken=2
    )
    assert not any("labels" in warning for warning in query_set_warnings(few))
    assert any("labels look wrong" in warning for warning in query_set_warnings(dataclasses.replace(few, overtaken=3)))


@pytest.mark.parametrize(("accuracy", "queries"), [(0.9, 50), (1.0, 30), (0.0, 12), (0.8, 29)])
def test_accuracy_interval_equals_clopper_pearson(accuracy: float, queries: int) -> None:
    hits = round(accuracy * queries)
    few = dataclasses.replace(GOOD, queries=queries, effective=float(queries), accuracy=hits / queries)
    exact = stats.binomtest(hits, queries).proportion_ci(0.95, method="exact")
    assert few.accuracy_interval == pytest.approx((exact.low, exact.high), abs=1e-12)
    halved = dataclasses.replace(few, effective=queries / 2)
    assert (
        halved.accuracy_interval[0]
        <= few.accuracy_interval[0]
        <= few.accuracy_interval[1]
        <= halved.accuracy_interval[1]
    ), "copies of a query say less"


def measured(relevant: np.ndarray, spoiled: float = 0.0) -> QuerySetRecord:
    """400 documents in 20 topics; a query near each document in `relevant`, some labelled with a random document."""
    rng = np.random.default_rng(0)
    topic = np.repeat(rng.standard_normal((20, 24)), 20, axis=0)
    documents = unit(topic + 0.7 * rng.standard_normal(topic.shape))
    hardness = 0.25 * rng.standard_normal(documents.shape)  # shared by the queries on one document
    vectors = unit((documents + hardness)[relevant] + 0.02 * rng.standard_normal((len(relevant), 24)))
    moved = rng.random(len(relevant)) < spoiled
    labels = np.where(moved, rng.integers(0, len(documents), len(relevant)), relevant)
    queries = [query(label, text=f"query {number}") for number, label in enumerate(labels.tolist())]
    judged = judge_queries(queries, vectors, FlatIndex.build(documents), 3)
    random_scores = pair_similarity(vectors, documents, rng.integers(0, len(documents), (len(relevant), 1)))[:, 0]
    return measure_query_set(queries, judged, random_scores, documents, seed=0)


def test_clean_set_is_measured_repeatably() -> None:
    everything = np.arange(400)
    record = measured(everything)
    assert record.warnings == []
    assert (record.clusters, record.effective_sample_size, record.duplicate_queries) == (400, 400, 0)
    assert record.topics is not None
    assert record == measured(everything)
    assert QuerySetRecord.model_validate_json(record.model_dump_json()) == record


@pytest.mark.parametrize(
    ("relevant", "spoiled", "words"),
    [
        (np.arange(400), 0.2, "labels look wrong"),
        (np.arange(20), 0.0, "all of one topic"),
        (np.tile(np.arange(0, 400, 10), 10), 0.0, "share relevant documents in 40 groups"),
    ],
    ids=["moved labels", "one topic", "few documents"],
)
def test_spoiled_set_gets_warning(relevant: np.ndarray, spoiled: float, words: str) -> None:
    assert any(words in sentence for sentence in measured(relevant, spoiled).warnings)


def test_chunks_do_not_change_diversity() -> None:
    """Each of 400 documents in three chunks that are alike: distances and topics are those of the documents."""
    rng = np.random.default_rng(0)
    documents = unit(np.repeat(rng.standard_normal((20, 24)), 20, axis=0) + 0.7 * rng.standard_normal((400, 24)))
    further = unit(np.tile(documents, (2, 1)) + 0.05 * rng.standard_normal((800, 24)))
    passages = np.concatenate([documents, further]).astype(np.float32)
    parents = np.tile(np.arange(400, dtype=np.int32), 3)
    vectors = unit(documents[::2] + 0.1 * rng.standard_normal((200, 24)))
    complete = [query(row, text=f"query {row}") for row in range(0, 400, 2)]
    in_chunks = [dataclasses.replace(item, chunks={}) for item in complete]
    one = judge_queries(complete, vectors, FlatIndex.build(documents), 3)
    other = judge_queries(in_chunks, vectors, FlatIndex.build(passages), 3, parents)
    random_scores = pair_similarity(vectors, documents, rng.integers(0, 400, (200, 1)))[:, 0]
    expected = measure_query_set(complete, one, random_scores, documents, seed=0)
    result = measure_query_set(in_chunks, other, random_scores, passages, seed=0, parents=parents)
    for figure in ("cosine_distance", "topics", "silhouette", "topic_entropy", "clusters"):
        assert getattr(result, figure) == getattr(expected, figure), figure
    assert other.accuracy().tolist() == one.accuracy().tolist()


@pytest.mark.filterwarnings("ignore:Could not find the number of physical cores")
def test_topics_warn_of_nothing_on_bare_machine(monkeypatch: pytest.MonkeyPatch, capfd: Printed) -> None:
    monkeypatch.setattr(context, "physical_cores_cache", None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    _k_means(np.eye(6, dtype=np.float32), 2, 0)
    assert context.physical_cores_cache == "not found"
    assert capfd.readouterr().err == ""
