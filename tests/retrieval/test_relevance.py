"""Relevance in a reply: a cut by mask, aligned with its documents, the same in every list; and a file that is checked."""

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from retrieval.errors import ReleaseError
from retrieval.policy import Policy
from retrieval.release.catalog import find
from retrieval.release.layout import RELEVANCE
from retrieval.release.reader import load
from retrieval.relevance.features import FEATURES
from retrieval.relevance.model import Relevance
from retrieval.retriever import Query, Retriever
from tests.calibration.test_relevance_fit import DIMENSION, DOCUMENTS, QUERIES, K, World
from tests.retrieval.test_hostile_release import forge


class NumberedQueries:
    """An encoder whose texts are the numbers of the world's queries."""

    def __init__(self, world: World) -> None:
        self.world = world

    def encode(self, texts, role):
        return self.world.queries[[int(text) for text in texts]]


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def relevance(world: World) -> Relevance:
    return world.estimated().relevance


@pytest.fixture(scope="module")
def said(world: World, relevance: Relevance) -> np.ndarray:
    """What the model says of every query's top K, (QUERIES, K)."""
    return relevance.estimate(world.queries, world.judged.top)


@pytest.fixture(scope="module")
def tau(said: np.ndarray) -> float:
    """A threshold at which some query keeps a result below one that it drops."""
    return float(np.quantile(said, 0.5))


def retriever(world: World, relevance: Relevance | None, kind: str, tau: float | None) -> Retriever:
    return Retriever(NumberedQueries(world), world.index, Policy(kind, tau, K), relevance)


EVERYTHING = [Query(str(number), k=K) for number in range(QUERIES)]


def test_what_is_kept_is_what_reaches_tau_and_no_prefix(
    world: World, relevance: Relevance, said: np.ndarray, tau: float
) -> None:
    answers = retriever(world, relevance, "probability", tau).search(EVERYTHING)
    skipping = 0
    for row, answer in enumerate(answers):
        ranks = [rank for rank in range(K) if said[row, rank] >= np.float32(tau)]
        skipping += ranks != list(range(len(ranks)))
        assert answer.positions.tolist() == world.judged.top.positions[row][ranks].tolist()
        assert answer.scores.tolist() == world.judged.top.scores[row][ranks].tolist()
        assert answer.relevance.tolist() == said[row][ranks].tolist()
        assert answer.reason == (None if ranks else "all_below_threshold")
        assert (answer.considered, answer.policy, answer.threshold) == (K, "probability", float(np.float32(tau)))
        assert answer.best_score == world.judged.top.scores[row, 0]
    assert skipping > 5, "no query keeps a result below one that it drops: the test above says nothing"


@pytest.mark.parametrize("least", [1, 2, 4, K, K + 3])
def test_too_few_are_filled_up_in_the_order_of_ranks(
    world: World, relevance: Relevance, said: np.ndarray, tau: float, least: int
) -> None:
    queries = [replace(query, min_results=least) for query in EVERYTHING]
    for row, answer in enumerate(retriever(world, relevance, "probability", tau).search(queries)):
        ranks = [rank for rank in range(K) if said[row, rank] >= np.float32(tau)]
        for rank in range(K):
            if len(ranks) < least and rank not in ranks:
                ranks.append(rank)
        ranks.sort()
        assert answer.positions.tolist() == world.judged.top.positions[row][ranks].tolist()
        assert answer.relevance.tolist() == said[row][ranks].tolist()
        assert answer.reason is None


@pytest.mark.parametrize("k", [1, 2, K - 1, K, K + 1, 40, DOCUMENTS + 10])
def test_another_k_keeps_the_same_of_the_first_and_is_calibrated_for_its_own_k_only(
    world: World, relevance: Relevance, said: np.ndarray, tau: float, k: int
) -> None:
    queries = [replace(query, k=k) for query in EVERYTHING]
    for row, answer in enumerate(retriever(world, relevance, "probability", tau).search(queries)):
        first = [rank for rank in range(min(k, K)) if said[row, rank] >= np.float32(tau)]
        assert answer.positions[: len(first)].tolist() == world.judged.top.positions[row][first].tolist()
        assert answer.relevance[: len(first)].tolist() == said[row][first].tolist()
        assert answer.considered == min(k, DOCUMENTS)
        assert answer.calibrated == (k == K)
        assert (answer.relevance >= np.float32(tau)).all()
        if k <= K:
            assert len(answer.positions) == len(first)


def test_queries_of_different_k_in_one_batch_are_answered_as_alone(
    world: World, relevance: Relevance, tau: float
) -> None:
    searcher = retriever(world, relevance, "probability", tau)
    queries = [replace(query, k=1 + number % 30) for number, query in enumerate(EVERYTHING)]
    for query, together in zip(queries, searcher.search(queries), strict=True):
        (alone,) = searcher.search([query])
        assert alone.positions.tolist() == together.positions.tolist()
        assert alone.relevance.tobytes() == together.relevance.tobytes()
        assert (alone.considered, alone.calibrated) == (together.considered, together.calibrated)


def test_a_threshold_of_the_caller_is_a_probability(world: World, relevance: Relevance, said: np.ndarray) -> None:
    searcher = retriever(world, relevance, "probability", 0.99)
    for threshold in (0.0, 0.05, 0.3, 1.0):
        answers = searcher.search([replace(query, threshold=threshold) for query in EVERYTHING])
        assert [len(answer.positions) for answer in answers] == (said >= np.float32(threshold)).sum(axis=1).tolist()
        assert not any(answer.calibrated for answer in answers)
        assert {answer.threshold for answer in answers} == {float(np.float32(threshold))}


@pytest.mark.parametrize(("kind", "tau"), [("similarity", 0.6), ("relative", 0.8), ("none", None)])
def test_relevance_is_said_under_every_policy(
    world: World, relevance: Relevance, said: np.ndarray, kind: str, tau: float | None
) -> None:
    with_model = retriever(world, relevance, kind, tau).search(EVERYTHING)
    without = retriever(world, None, kind, tau).search(EVERYTHING)
    for row, (answer, bare) in enumerate(zip(with_model, without, strict=True)):
        kept = len(answer.positions)
        assert answer.positions.tolist() == bare.positions.tolist()
        assert answer.relevance.tolist() == said[row, :kept].tolist()
        assert bare.relevance is None
    assert 0 < sum(len(answer.positions) for answer in with_model) <= QUERIES * K


def test_without_a_model_nothing_can_be_cut_by_probability(world: World) -> None:
    with pytest.raises(ValueError, match="probability"):
        retriever(world, None, "probability", 0.5).search(EVERYTHING)


# The file.


@pytest.fixture
def arrays(relevance: Relevance, tmp_path: Path) -> dict[str, np.ndarray]:
    relevance.save(tmp_path / RELEVANCE)
    return load_file(tmp_path / RELEVANCE)


def test_what_is_saved_is_what_is_loaded(
    world: World, relevance: Relevance, said: np.ndarray, arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    again = Relevance.load(tmp_path / RELEVANCE, DIMENSION, DOCUMENTS)
    assert again.k == relevance.k == K
    assert again.model.intercept == relevance.model.intercept
    assert again.estimate(world.queries, world.judged.top).tobytes() == said.tobytes()
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / RELEVANCE).read_bytes()


def edited(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict], bytes]:
    return lambda arrays: save({**arrays, name: np.ascontiguousarray(change(arrays[name]))})


def first_is(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array.flat[0] = value
        return array

    return change


def column(number: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[:, number] = value
        return array

    return change


def of_unknown_type(name: str) -> Callable[[dict], bytes]:
    """A well-formed file with two bytes a number that NumPy has no type for."""

    def write(arrays: dict) -> bytes:
        header, body = {}, b""
        for each, array in arrays.items():
            known = {"float64": "F64", "float32": "F32", "int64": "I64"}[str(array.dtype)]
            content = bytes(2 * array.size) if each == name else array.tobytes()
            header[each] = {
                "dtype": "BF16" if each == name else known,
                "shape": list(array.shape),
                "data_offsets": [len(body), len(body) + len(content)],
            }
            body += content
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + body

    return write


BROKEN = {
    "empty": lambda arrays: b"",
    "garbage": lambda arrays: b"no safetensors at all" * 9,
    "truncated": lambda arrays: save(arrays)[:-3],
    "header only": lambda arrays: save(arrays)[:200],
    "an array missing": lambda arrays: save({name: each for name, each in arrays.items() if name != "scale"}),
    "an array too many": lambda arrays: save(arrays | {"extra": np.zeros(3)}),
    "another name": lambda arrays: save({name.replace("weights", "weight"): each for name, each in arrays.items()}),
    "a weight too few": edited("weights", lambda each: each[:-1]),
    "a matrix of weights": edited("weights", lambda each: each[None]),
    "features of another version": edited("center", lambda each: np.zeros(len(FEATURES) + 1)),
    "mean of another dimension": edited("mean", lambda each: each[:-1]),
    "covariance not square": edited("covariance", lambda each: each[:-1]),
    "a document too few": edited("documents", lambda each: each[:-1]),
    "a document's number too few": edited("documents", lambda each: each[:, :4]),
    "NaN weight": edited("weights", first_is(np.nan)),
    "infinite center": edited("center", first_is(np.inf)),
    "NaN document": edited("documents", first_is(np.nan)),
    "NaN covariance": edited("covariance", first_is(np.nan)),
    "two intercepts": edited("intercept", lambda each: np.zeros(2)),
    "k 0": edited("k", lambda each: np.array([0])),
    "k negative": edited("k", lambda each: np.array([-1])),
    "k a fraction": edited("k", lambda each: np.array([4.9])),
    "k a truth value": edited("k", lambda each: np.array([True])),
    "weights in half precision": edited("weights", lambda each: each.astype(np.float16)),
    "weights whole numbers": edited("weights", lambda each: each.astype(np.int64)),
    "documents in double precision": edited("documents", lambda each: each.astype(np.float64)),
    "covariance of truth values": edited("covariance", lambda each: each > 0),
    "weights complex": edited("weights", lambda each: each.astype(np.complex64)),
    "weights of a type NumPy lacks": of_unknown_type("weights"),
    "scale 0": edited("scale", first_is(0.0)),
    "scale negative": edited("scale", lambda each: -each),
    "no deviation among documents": edited("documents", column(1, 0.0)),
    "no deviation among queries": edited("documents", column(3, 0.0)),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_is_no_model_for_this_index_is_refused(
    broken: Callable[[dict], bytes], arrays: dict[str, np.ndarray], tmp_path: Path
) -> None:
    (tmp_path / RELEVANCE).write_bytes(broken(arrays))
    with pytest.raises(ReleaseError, match=RELEVANCE):
        Relevance.load(tmp_path / RELEVANCE, DIMENSION, DOCUMENTS)


def test_a_model_for_another_index_is_refused(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    for dimension, documents in ((DIMENSION + 1, DOCUMENTS), (DIMENSION, DOCUMENTS + 1)):
        with pytest.raises(ReleaseError, match=RELEVANCE):
            Relevance.load(tmp_path / RELEVANCE, dimension, documents)
    with pytest.raises(ReleaseError, match="missing"):
        Relevance.load(tmp_path / "missing", DIMENSION, DOCUMENTS)


# The release around it.


def without_the_file(release: Path, raw: dict) -> None:
    (release / RELEVANCE).unlink()
    del raw["files"][RELEVANCE]


def without_any_model(release: Path, raw: dict) -> None:
    without_the_file(release, raw)
    raw["relevance"] = None


def asking_for_probability(release: Path, raw: dict) -> None:
    without_any_model(release, raw)
    raw["policy"].update(kind="probability")


def of_another_k(release: Path, raw: dict) -> None:
    """Fitted at K = 3, calibrated at K = 5: the numbers that describe the list are of another list."""
    arrays = load_file(release / RELEVANCE)
    (release / RELEVANCE).write_bytes(save(arrays | {"k": np.array([3])}))


RELEASES = {
    "file without a record": lambda release, raw: raw.update(relevance=None),
    "record without a file": without_the_file,
    "probability without a model": asking_for_probability,
    "another k": of_another_k,
}


@pytest.mark.parametrize("change", RELEASES.values(), ids=RELEASES.keys())
def test_a_release_that_disagrees_with_its_model_is_refused(
    releases: Path, tmp_path: Path, change: Callable[[Path, dict], None]
) -> None:
    forged = forge(find(shutil.copytree(releases, tmp_path / "releases")), change)
    with pytest.raises(ReleaseError, match="relevance"):
        load(forged)


def test_a_release_without_a_model_serves_without_relevance(releases: Path, tmp_path: Path) -> None:
    forged = forge(find(shutil.copytree(releases, tmp_path / "releases")), without_any_model)
    (answer,) = load(forged).retriever.search([Query("Do I need a building permit?", k=5, min_results=5)])
    assert (len(answer.positions), answer.relevance) == (5, None)
