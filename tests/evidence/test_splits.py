"""The parts share no query, leave none out, and draw nothing that the contract speaks of."""

import numpy as np
import pytest

from taugate.calibration.settings import CalibrationSettings
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import FIT_SHARE, MIN_CALIBRATING, HoldoutSplit, QueryRoles
from taugate.evidence.measure import Resamples


def alone(queries: int) -> SamplingUnits:
    """No two queries share a document."""
    return SamplingUnits.from_clusters(np.arange(queries))


@pytest.mark.parametrize("size", [MIN_CALIBRATING, 31, 100, 352, 5001])
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_each_query_has_one_role(size: int, seed: int) -> None:
    calibration = np.sort(np.random.default_rng(size).choice(3 * size, size=size, replace=False))
    parts = QueryRoles.draw(calibration, alone(3 * size), seed)
    everyone = [*parts.fit.tolist(), *parts.not_fitting.tolist()]
    assert len(everyone) == len(set(everyone))
    assert sorted(everyone) == calibration.tolist()
    for part in (parts.fit, parts.not_fitting):
        assert len(part)
        assert (np.diff(part) > 0).all()


def test_role_sizes_match_shares() -> None:
    parts = QueryRoles.draw(np.arange(1000), alone(1000), 0)
    assert (len(parts.fit), len(parts.not_fitting)) == (250, 750)


def test_roles_depend_on_seed_alone() -> None:
    calibration = np.arange(5, 500, 3)
    first, again, other = (QueryRoles.draw(calibration, alone(500), seed) for seed in (7, 7, 8))
    assert np.array_equal(first.fit, again.fit)
    assert np.array_equal(first.not_fitting, again.not_fitting)
    assert not np.array_equal(first.not_fitting, other.not_fitting)


def test_certifying_queries_are_random() -> None:
    """Over many seeds a query certifies with the same probability wherever it stands in the file."""
    certifies = np.zeros(100)
    for seed in range(400):
        certifies[QueryRoles.draw(np.arange(100), alone(100), seed).not_fitting] += 1
    assert np.abs(certifies / 400 - 0.75).max() < 5 * np.sqrt(0.75 * 0.25 / 400)


def test_roles_leave_contract_draws_unchanged() -> None:
    """Contract §3: permutation, rows, random documents from default_rng(seed), and nothing in between."""
    n, documents, seed = 200, 37, 11
    settings = CalibrationSettings(bootstraps=20, sample_size=10, seed=seed)
    rng = np.random.default_rng(seed)
    split = HoldoutSplit.by_query(rng, n, settings.holdout)
    parts = QueryRoles.draw(split.calibration, alone(n), seed)
    draw = Resamples.draw(rng, alone(n).take(split.calibration), documents, settings)

    literal = np.random.default_rng(seed)
    order = literal.permutation(n)
    kept = np.sort(order[: n - round(0.3 * n)])
    assert split.calibration.tolist() == kept.tolist()
    assert draw.rows.tolist() == literal.integers(0, len(kept), size=(20, 10)).tolist()
    assert draw.random_documents.tolist() == literal.integers(0, documents, size=len(kept)).tolist()
    assert parts.fit.tolist() != np.sort(order[: len(parts.fit)]).tolist()


def test_roles_divide_whole_documents() -> None:
    rng = np.random.default_rng(0)
    units = SamplingUnits.from_clusters(rng.integers(0, 300, size=2000))
    calibration = np.sort(rng.choice(2000, size=1400, replace=False))
    parts = QueryRoles.draw(calibration, units, 3)
    documents = [set(units.clusters[part].tolist()) for part in (parts.fit, parts.not_fitting)]
    assert sum(map(len, documents)) == len(set.union(*documents)) == len(set(units.clusters[calibration].tolist()))
    assert len(parts.fit) == pytest.approx(350, abs=20)
    same = units.clusters[parts.fit][:, None] == units.clusters[parts.fit]
    assert ((parts.clusters[:, None] == parts.clusters) == same).all()


def test_roles_follow_document_permutation() -> None:
    """The first documents of a permutation that have enough of the queries fit."""
    rng = np.random.default_rng(0)
    for seed in range(30):
        labels = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 9, size=60)))
        calibration = np.sort(rng.choice(len(labels), size=round(0.7 * len(labels)), replace=False))
        parts = QueryRoles.draw(calibration, SamplingUnits.from_clusters(labels), seed)
        everyone = np.concatenate([parts.fit, parts.not_fitting])
        assert np.sort(everyone).tolist() == calibration.tolist()
        documents = [set(labels[part].tolist()) for part in (parts.fit, parts.not_fitting)]
        assert not documents[0] & documents[1]

        there = sorted(set(labels[calibration].tolist()))  # literally: documents one by one, until there is enough
        order = [there[row] for row in np.random.default_rng([seed, 1]).permutation(len(there))]
        counts = {document: int((labels[calibration] == document).sum()) for document in there}
        part: set[int] = set()
        while sum(counts[document] for document in part) < round(FIT_SHARE * len(calibration)):
            part.add(order.pop(0))
        assert documents == [part, set(order)]


@pytest.mark.parametrize(("queries", "documents"), [(29, 29), (90, 1)])
def test_too_few_units_have_no_roles(queries: int, documents: int) -> None:
    assert QueryRoles.assign(np.arange(queries), SamplingUnits.from_clusters(np.arange(queries) % documents), 0) is None
    assert QueryRoles.assign(np.arange(90), SamplingUnits.from_clusters(np.arange(90) % 30), 0) is not None
