"""Encoders are compared on the same queries, and on general questions."""

import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from taugate.calibration.comparison.measures import forgetting_words, general_set
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.calibration.job.compare import (
    EncoderComparison,
    EncoderCost,
    MeasuredEncoder,
    correlations,
    simultaneous_intervals,
)
from taugate.data.questions import off_topic_table
from taugate.evidence.clusters import PerQuery, SamplingUnits
from taugate.evidence.risk.losses import min_detectable_loss
from taugate.policy.arrays import Float32
from taugate.release.manifest import Manifest
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.adaptation_records import measures
from tests.vectors import unit

DOCUMENTS = 200


def hits_of(rng: np.random.Generator, clusters: np.ndarray, skills: list[float]) -> list[PerQuery]:
    """Draw hits of encoders that find the same queries hard; equal skills have equal expectations."""
    hard = rng.standard_normal(DOCUMENTS)[clusters] + rng.standard_normal(len(clusters))
    return [(hard + 0.8 * rng.standard_normal(len(clusters)) < skill).astype(np.float64) for skill in skills]


def drawn_clusters(rng: np.random.Generator) -> np.ndarray:
    return np.repeat(np.arange(DOCUMENTS), rng.integers(1, 5, DOCUMENTS))


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [150, pytest.param(400, marks=pytest.mark.exhaustive)])
def test_simultaneous_intervals_all_hold_in_19_of_20_data_sets(rounds: int) -> None:
    held = 0
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        clusters = drawn_clusters(rng)
        hits = hits_of(rng, clusters, [1.0] * 5)
        differences = [first - second for first, second in combinations(hits, 2)]
        intervals = simultaneous_intervals(differences, SamplingUnits.from_clusters(clusters), 0.95, seed, 400)
        held += all(interval.lower <= 0 <= interval.upper for interval in intervals)
    assert 0.92 <= held / rounds <= 0.98


def test_intervals_of_more_pairs_are_wider() -> None:
    rng = np.random.default_rng(0)
    clusters = drawn_clusters(rng)
    hits = hits_of(rng, clusters, [1.0, 0.9, 1.1, 0.8])
    units = SamplingUnits.from_clusters(clusters)
    differences = [first - second for first, second in combinations(hits, 2)]
    (alone,), (together, *_) = (simultaneous_intervals(some, units, 0.95, 0) for some in (differences[:1], differences))
    assert together.lower < alone.lower < alone.mean < alone.upper < together.upper
    assert alone == simultaneous_intervals(differences[:1], units, 0.95, 0)[0]


def test_equal_answers_do_not_show_that_encoders_are_equal() -> None:
    units = SamplingUnits.from_clusters(np.arange(40))
    (interval,) = simultaneous_intervals([np.zeros(40)], units, 0.95, 0)
    assert interval.upper == -interval.lower == pytest.approx(min_detectable_loss(units, 0.975))
    assert interval.upper > 0.05


def measured(name: str, hits: PerQuery, release: Manifest, milliseconds: float | None) -> MeasuredEncoder:
    return MeasuredEncoder(
        name=name,
        k=5,
        accuracy=hits,
        ndcg=hits / 2,
        metrics=release.metrics["calibration"],
        certified=True,
        lexical=None,
        cost=EncoderCost(milliseconds, None if milliseconds is None else 100.0, 1000, 10),
        isotropy=release.isotropy,
    )


@pytest.fixture(scope="module")
def manifest(releases: "object") -> Manifest:
    from taugate.registry.catalog import find
    from taugate.release.verify import verify_searchable

    return verify_searchable(find(releases))  # type: ignore[arg-type]


def compared(manifest: Manifest, margin: float = 0.03, **encoders: tuple[PerQuery, float | None]) -> EncoderComparison:
    rows = [measured(name, hits, manifest, milliseconds) for name, (hits, milliseconds) in encoders.items()]
    units = SamplingUnits.from_clusters(np.arange(len(rows[0].accuracy)))
    return EncoderComparison.of(rows, units, "accuracy", margin, 0)


def with_hits(share: float, queries: int = 2000) -> PerQuery:
    return (np.arange(queries) < share * queries).astype(np.float64)


def test_encoder_that_is_shown_to_be_best_is_chosen(manifest: Manifest) -> None:
    comparison = compared(manifest, good=(with_hits(0.9), 9.0), bad=(with_hits(0.5), 1.0), fair=(with_hits(0.7), 2.0))
    assert [encoder.name for encoder in comparison.encoders] == ["good", "fair", "bad"]
    assert (comparison.choice, len(comparison.differences)) == ("good", 3)
    assert "is higher than that of every other encoder, by 1" in comparison.sentence


def test_cheaper_encoder_within_the_margin_is_chosen(manifest: Manifest) -> None:
    comparison = compared(manifest, slow=(with_hits(0.9), 9.0), fast=(with_hits(0.897), 3.0), bad=(with_hits(0.5), 1.0))
    assert comparison.choice == "fast"
    assert "a query takes 33 % of the time" in comparison.sentence.replace("\u00a0", " ")


@pytest.mark.parametrize("milliseconds", [None, 8.9])
def test_encoder_that_saves_nothing_is_not_chosen_for_being_near(
    manifest: Manifest, milliseconds: float | None
) -> None:
    comparison = compared(manifest, best=(with_hits(0.9), 9.0), near=(with_hits(0.9), milliseconds))
    assert comparison.choice == "best"
    assert "near is at most 0.2 points below it, and none of these is clearly faster" in comparison.sentence


def test_few_queries_choose_the_best_and_say_that_they_show_nothing(manifest: Manifest) -> None:
    comparison = compared(manifest, one=(with_hits(0.9, 30), 9.0), two=(with_hits(0.8, 30), 1.0))
    assert comparison.choice == "one"
    assert "30 labelled queries do not show that it is better than two" in comparison.sentence
    assert "or label more queries" in comparison.sentence


def correlated(manifest: Manifest, accuracies: list[float], coes: list[float]) -> list[MeasuredEncoder]:
    rows, metrics = [], manifest.metrics["calibration"]
    for number, (accuracy, coe) in enumerate(zip(accuracies, coes, strict=True)):
        means = {"accuracy": metrics.accuracy.model_copy(update={"mean": accuracy})}
        means["coe"] = metrics.coe.model_copy(update={"mean": coe})
        row = measured(str(number), with_hits(accuracy), manifest, None)
        rows.append(
            replace(row, metrics=metrics.model_copy(update=means), papers_tau=None if number == 3 else number / 9)
        )
    return rows


def test_correlations_match_pearson(manifest: Manifest) -> None:
    accuracies, coes = [0.5, 0.7, 0.6, 0.9], [0.8, 0.85, 0.9, 0.95]
    found = correlations(correlated(manifest, accuracies, coes))
    assert found["accuracy and COE"] == pytest.approx(np.corrcoef(accuracies, coes)[0, 1])
    assert found["accuracy and τ"] == pytest.approx(np.corrcoef(accuracies[:3], range(3))[0, 1]), "one has no τ"
    assert found["accuracy and ROE"] is None, "one ROE for all of them"
    assert "accuracy and familiarity" not in found, "not measured"


def test_correlation_needs_three_encoders_that_differ(manifest: Manifest) -> None:
    """Also where the mean of equal numbers is not that number, in binary."""
    assert correlations(correlated(manifest, [0.95] * 3, [0.1, 0.2, 0.4]))["accuracy and COE"] is None
    assert correlations(correlated(manifest, [0.5, 0.6], [0.1, 0.2])) == {}


_FREQUENT = """
the a of and in to is it that for on are with as be at by this from or an which what why how do does did i my can when
where who one not its than they he she you if so no up out into would should could has have
"""


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower())) - set(_FREQUENT.split())


def test_general_questions_share_few_words() -> None:
    general = general_set()
    assert 150 <= len(general.queries) == len(general.passages) <= 200
    assert len(set(general.passages)) == len(general.passages)
    assert sorted(next(iter(query.relevant)) for query in general.queries) == list(range(len(general.passages)))
    shared = [
        len(words(query.text) & words(general.passages[next(iter(query.relevant))])) / len(words(query.text))
        for query in general.queries
    ]
    assert np.mean(shared) < 0.05
    assert max(shared) <= 0.5


def test_general_and_off_topic_questions_differ() -> None:
    assert not {query.text for query in general_set().queries} & {question.text for question in off_topic_table()}


@pytest.fixture(scope="module")
def encoded() -> tuple[Float32, Float32]:
    """Passages and questions by the default encoder."""
    encoder = ExportedEncoder.load(exported_encoder(DEFAULT_ENCODER))
    general = general_set()
    return (
        encoder.embed(encoder.tokenize(list(general.passages), "document")),
        encoder.embed(encoder.tokenize([query.text for query in general.queries], "query")),
    )


@pytest.mark.slow
@pytest.mark.model
def test_default_encoder_answers_general_questions(encoded: tuple[Float32, Float32]) -> None:
    result = general_set().judge(*encoded)
    assert 0.7 < result.ndcg.mean() < 0.9
    assert 0.4 < result.accuracy.mean() < 0.8


@pytest.mark.slow
def test_same_encoder_loses_nothing() -> None:
    general = general_set()
    vectors = unit(np.random.default_rng(0).standard_normal((len(general.passages), 16)))
    result = general.judge(vectors, vectors)
    order = [next(iter(query.relevant)) for query in general.queries]
    assert general.judge(vectors, vectors[order]).accuracy.mean() == 1
    record = general.compare(result, result)
    assert not record.lost
    assert record.ndcg.change.mean == 0
    assert record.ndcg.change.lower < 0 < record.ndcg.change.upper


def test_costly_training_suggests_merging() -> None:
    lost = measures(-0.05).forgetting
    message = forgetting_words(lost, unmerged=True)
    assert message.startswith("NDCG@10 -5.0 points (-6.0 to -4.0), accuracy@1 -5.0, on 168 everyday questions; if the")
    assert message.endswith("try --recipe merge, or keep its base")
    assert forgetting_words(lost, unmerged=False).endswith(
        "; if the encoder has to answer such questions too, keep its base"
    )
    assert "keep" not in forgetting_words(measures(0.0).forgetting, unmerged=True)
