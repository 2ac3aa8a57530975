"""The general set is fit for its purpose, and an encoder that was ruined is found out."""

import re

import numpy as np
import pytest

from taugate.calibration.comparison.measures import forgetting_words, general_set
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.data.questions import off_topic_table
from taugate.policy.arrays import Float32
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.adaptation_records import measures
from tests.vectors import unit

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
