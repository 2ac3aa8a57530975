"""Query PCA against a transcription of the paper, judged on queries it has not seen, used where it is admitted."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.acceptance.projection import (
    NO_LOSS,
    QUERY_PCA,
    VARIANTS,
    ProjectionCandidate,
    Variant,
    _smallest_near_best,
    cross_validated,
    fit_pca,
    retained,
)
from taugate.calibration.recalibration.request import inherited_settings
from taugate.cli import main as cli
from taugate.data.labelled_queries import LabelledQuery
from taugate.errors import ReleaseError
from taugate.evidence.acceptance import adjusted_p_values
from taugate.registry.catalog import current_id
from taugate.release.evidence import Interval
from taugate.release.layout import PROJECTION
from taugate.release.search_records import GateRecord, PairedLoss
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.calibration.commands import Printed
from tests.vectors import unit

D, DOCUMENTS, QUERIES = 32, 120, 90
HALF = [ProjectionCandidate(QUERY_PCA, 0.5)]


@pytest.fixture(scope="module")
def trial() -> SearchTrial:
    rng = np.random.default_rng(0)
    documents = unit(rng.normal(size=(DOCUMENTS, D)) + 0.5)
    correct = rng.integers(0, DOCUMENTS, QUERIES)
    vectors = unit(documents[correct] + 0.2 * rng.normal(size=(QUERIES, D)))
    queries = [LabelledQuery(str(row), "", {int(document): 1}) for row, document in enumerate(correct)]
    return SearchTrial.build(queries, vectors, documents, 5)


def algorithm_1(queries: np.ndarray, documents: np.ndarray, fitted_on: np.ndarray, d: int) -> tuple:
    """The paper's Algorithm 1 as it stands, for one set of fitting vectors. Returns μ, W, and ranked documents."""
    x = fitted_on.astype(np.float64)
    mu = x.mean(axis=0)
    eigenvalues, eigenvectors = np.linalg.eigh((x - mu).T @ (x - mu) / (len(x) - 1))
    w = eigenvectors[:, np.argsort(-eigenvalues)[:d]]
    ranked = []
    for q in (queries - mu) @ w:
        s = [q @ p / (np.linalg.norm(q) * np.linalg.norm(p)) for p in (documents - mu) @ w]
        ranked.append(np.argsort(-np.array(s), kind="stable"))
    return mu, w, ranked


def literal_ndcg(ranked: np.ndarray, relevant: dict[int, int]) -> float:
    dcg = sum(relevant.get(int(document), 0) / np.log2(rank + 2) for rank, document in enumerate(ranked[:10]))
    best = sorted(relevant.values(), reverse=True)[:10]
    return dcg / sum(grade / np.log2(rank + 2) for rank, grade in enumerate(best))


@pytest.mark.parametrize("retention", [1.0, 0.9, 0.5, 0.1])
def test_query_pca_equals_algorithm_1(trial: SearchTrial, retention: float) -> None:
    fitted = fit_pca(trial.vectors)
    size = retained(retention, D, fitted.rank)
    assert size == max(1, int(retention * D))
    projection = fitted.projection.first(size)
    mu, w, ranked = algorithm_1(trial.vectors, trial.documents, trial.vectors, size)
    np.testing.assert_allclose(projection.mean, mu, atol=1e-6)
    signs = np.sign((projection.components * w).sum(axis=0))
    np.testing.assert_allclose(projection.components, w * signs, atol=1e-6)
    moved = (trial.vectors - mu) @ (w * signs)
    np.testing.assert_allclose(projection.apply(trial.vectors), unit(moved), atol=1e-6)
    result = SearchTrial.build(
        trial.queries, projection.apply(trial.vectors), projection.apply(trial.documents), 5
    ).outcomes()
    expected = [literal_ndcg(row, query.relevant) for row, query in zip(ranked, trial.queries, strict=True)]
    np.testing.assert_allclose(result.ndcg, expected, atol=1e-6)


def test_few_queries_limit_components(trial: SearchTrial) -> None:
    """n vectors around their mean span n − 1 directions (Appendix E): what is asked for above cannot be kept."""
    fitted = fit_pca(trial.vectors[:10])
    assert fitted.rank == 9
    assert retained(0.9, D, fitted.rank) == 9
    assert fitted.explained.sum() == pytest.approx(1)


def test_cross_validation_excludes_own_fold(trial: SearchTrial) -> None:
    """Folds are drawn here as they are there; the fold's own queries may be anything and change no other's outcome."""
    (result,) = cross_validated(trial, np.arange(QUERIES), HALF, np.random.default_rng(1), folds=3)
    order = np.random.default_rng(1).permutation(QUERIES)
    for fold in range(3):
        rows = np.sort(order[fold::3])
        remaining = np.setdiff1d(np.arange(QUERIES), rows)
        _, _, ranked = algorithm_1(trial.vectors[rows], trial.documents, trial.vectors[remaining], D // 2)
        expected = [literal_ndcg(item, trial.queries[row].relevant) for item, row in zip(ranked, rows, strict=True)]
        np.testing.assert_allclose(result.ndcg[rows], expected, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variant_equals_paper(trial: SearchTrial, variant: Variant) -> None:
    fitted_on = trial.vectors if variant.kind == "query-pca" else np.concatenate((trial.vectors, trial.documents))
    mu, w, _ = algorithm_1(trial.vectors, trial.documents, fitted_on, D // 2)
    projection = variant.fit(trial.vectors, trial.documents).projection.first(D // 2)
    moved = (trial.vectors - (mu if variant.centred else 0)) @ (w * np.sign((projection.components * w).sum(axis=0)))
    np.testing.assert_allclose(projection.apply(trial.vectors), unit(moved), atol=1e-6)


def test_sequence_ends_at_first_candidate_that_is_not_accepted() -> None:
    p_values = np.array([0.01, 0.03, 0.001, 0.001, 0.02])
    np.testing.assert_allclose(adjusted_p_values(p_values, [3, 2]), [0.02, 0.06, 0.06, 0.002, 0.04])


def test_settings_file_takes_a_projection_that_loses(
    sample: Path, encoder: Path, tmp_path: Path, capfd: Printed
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('accept = ["projection"]\n', encoding="utf-8")
    options = ("--projection", "query-pca", "--retention", "0.1", "--settings", str(file))
    assert calibrate(sample, tmp_path / "r", encoder, *options) == 0
    manifest = manifest_of(tmp_path / "r")
    (judged,) = manifest["gate"]
    assert not judged["admitted"]
    assert judged["ndcg"]["loss"]["mean"] > 0
    assert manifest["projection"]["accepted"] is False
    assert manifest["projection"]["dimension"] == 12
    assert "query-pca, retention 0.1 in use, as given: NDCG@10" in capfd.readouterr().err
    release = load(tmp_path / "r" / current_id(tmp_path / "r"))
    assert inherited_settings(release.manifest).candidates.accept == ("projection",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acept = []", "unknown key acept; the keys are accept, accept-vectors, "),
        ("holdout = [0.2, true]", "not a valid float"),
        ("bootstraps = true", "bootstraps: give a value as the option"),
        ('accept = ["index"]', 'give ["projection"]'),
        ("accept = [", "not TOML"),
        (None, "No such file"),
    ],
)
def test_settings_file_that_is_wrong_is_refused(
    sample: Path, encoder: Path, tmp_path: Path, capfd: Printed, text: str | None, said: str
) -> None:
    file = tmp_path / "settings.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert calibrate(sample, tmp_path / "r", encoder, "--settings", str(file)) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("taugate: ")]
    assert line.startswith(f"taugate: --settings {file}: ")
    assert said in line
    assert not (tmp_path / "r").exists()


def test_queries_outside_the_fit_are_answered_by_the_whole_fit(trial: SearchTrial) -> None:
    fitting, others = np.arange(0, QUERIES, 2), np.arange(1, QUERIES, 2)
    (result,) = cross_validated(trial, fitting, HALF, np.random.default_rng(1), folds=3)
    (alone,) = cross_validated(
        replace(trial, queries=[trial.queries[row] for row in fitting], vectors=trial.vectors[fitting]),
        np.arange(len(fitting)),
        HALF,
        np.random.default_rng(1),
        folds=3,
    )
    np.testing.assert_array_equal(result.ndcg[fitting], alone.ndcg)
    _, _, ranked = algorithm_1(trial.vectors[others], trial.documents, trial.vectors[fitting], D // 2)
    expected = [literal_ndcg(item, trial.queries[row].relevant) for item, row in zip(ranked, others, strict=True)]
    np.testing.assert_allclose(result.ndcg[others], expected, atol=1e-6)


def calibrate(data: Path, releases: Path, encoder: Path, *more: str) -> int:
    options = ["--releases", str(releases), "--encoder", str(encoder), "--lexical", "off"]
    return cli.main(["calibrate", str(data), "--verbose", *options, *more])


def manifest_of(releases: Path) -> dict:
    return json.loads((releases / current_id(releases) / "manifest.json").read_bytes())


@pytest.fixture(scope="module")
def projected(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """A release with a projection: a margin of 20 points admits one."""
    folder = tmp_path_factory.mktemp("projected")
    assert calibrate(sample, folder, encoder, "--projection", "query-pca", "--retention", "0.8", "--margin", "0.2") == 0
    return folder


def test_accepted_projection_is_served(projected: Path, sample: Path) -> None:
    manifest = manifest_of(projected)
    (record,) = manifest["gate"]
    assert record["admitted"]
    assert record["n"] == 503, "all labelled queries judge"
    gain = record["gain"]
    assert gain["bytes_per_document"] == pytest.approx(4 * 102, rel=1e-3), "and some bytes a file"
    assert gain["baseline_bytes_per_document"] == pytest.approx(4 * 128, rel=1e-3)
    assert gain["milliseconds"] > 0
    assert manifest["projection"]["dimension"] == 102
    assert manifest["projection"]["queries"] == 352
    assert 0.8 < manifest["projection"]["explained_variance"] < 1
    assert PROJECTION in manifest["files"]
    release = load(projected / current_id(projected))
    assert release.retriever.index.dimension == 102
    texts = [json.loads(line)["text"] for line in (sample / "queries.jsonl").open(encoding="utf-8")]
    answers = release.retriever.search([Query(text, 5) for text in texts])
    order = np.random.default_rng(0).permutation(503)[:352]
    kept = np.mean([len(answers[row].positions) / 5 for row in order.tolist()])
    assert kept == pytest.approx(manifest["metrics"]["calibration"]["kept_fraction"])
    stages: dict[str, float] = {}
    release.retriever.search([Query("a house", 5)], lambda stage, began, ended: stages.update({stage: ended - began}))
    assert list(stages) == ["encode", "project", "search", "filter"]


def test_missing_projection_fails_to_load(projected: Path, tmp_path: Path) -> None:
    release = projected / current_id(projected)
    copy = tmp_path / release.name
    copy.mkdir()
    for path in release.rglob("*"):
        if path.is_file() and path.name != PROJECTION:
            target = copy / path.relative_to(release)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    with pytest.raises(ReleaseError, match=PROJECTION):
        load(copy)


def test_rejected_projections_are_recorded(sample: Path, encoder: Path, tmp_path: Path, capfd: Printed) -> None:
    assert calibrate(sample, tmp_path, encoder, "--projection", "auto") == 0
    manifest = manifest_of(tmp_path)
    assert len(manifest["gate"]) == 22, "two kinds from 1 to .5, and two from .9"
    message = capfd.readouterr().err.splitlines()
    assert len([line for line in message if line.startswith("gate: ")]) == 22
    (warning,) = [line for line in message if line.startswith("warning: the gate's margin is ")]
    assert "is 0.009 in place of 0.005, because 503 queries cannot show a smaller loss" in warning
    if not any(record["admitted"] for record in manifest["gate"]):
        assert manifest.get("projection") is None
        assert PROJECTION not in manifest["files"]
    for record in manifest["gate"]:
        assert record["admitted"] == (record["p_adjusted"] <= 0.05)
        assert record["margin"] == 0.009
        assert 0.008 < record["least"] <= 0.009, "503 queries, and four sequences: (1 − m)⁵⁰³ ≤ 0.05 / 4"
    (verdict,) = [line for line in message if line.startswith("Projection ")]
    assert ("not used: query-" in verdict) == (manifest.get("projection") is None)


def test_same_command_gives_same_digest(projected: Path, sample: Path, encoder: Path, tmp_path: Path) -> None:
    options = ("--projection", "query-pca", "--retention", "0.8", "--margin", "0.2")
    assert calibrate(sample, tmp_path, encoder, *options) == 0
    assert current_id(tmp_path).rsplit("-", 1)[1] == current_id(projected).rsplit("-", 1)[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--projection", "query-pca", "--retention", "0"], "--retention 0.0"),
        (["--retention", "0.8"], "--retention 0.8: needs --projection query-pca"),
        (["--projection", "query-pca", "--retention", "1.1"], "--retention 1.1"),
        (["--projection", "auto", "--margin", "0"], "--margin 0.0"),
        (["--projection", "auto", "--gate-confidence", "1"], "--gate-confidence 1.0"),
        (["--projection", "auto", "--holdout", "0.95"], "--projection auto: needs at least 30"),
    ],
)
def test_invalid_projection_options_are_refused(
    sample: Path, encoder: Path, tmp_path: Path, capfd: Printed, options: list[str], said: str
) -> None:
    assert calibrate(sample, tmp_path / "r", encoder, *options) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("taugate: ")]
    assert said in line
    assert not (tmp_path / "r").exists()


def record(accuracy: float, ndcg: float, *, admitted: bool = True, lost: float = 0) -> GateRecord:
    def paired(candidate: float) -> PairedLoss:
        return PairedLoss(baseline=0.5, candidate=candidate, loss=Interval(mean=lost, lower=0, upper=lost), p=0.01)

    return GateRecord(
        candidate="",
        kind="projection",
        admitted=admitted,
        accuracy=paired(accuracy),
        ndcg=paired(ndcg),
        p_adjusted=0.01,
        margin=0.005,
        confidence=0.95,
        n=1,
        clusters=1,
        gain={},
    )


def chosen_row(records: list[GateRecord], sizes: list[int]) -> int | None:
    return _smallest_near_best(records, sizes, NO_LOSS)


def test_smallest_projection_near_best_is_chosen() -> None:
    refused = record(0.9, 0.9, admitted=False)
    assert chosen_row([refused, refused], [4, 2]) is None
    assert chosen_row([record(0.5, 0.5), record(0.5, 0.499, lost=0.002)], [4, 3]) == 0, "a measured loss is not needed"
    assert chosen_row([record(0.5, 0.5), record(0.5, 0.496), refused], [4, 3, 2]) == 1, "within the margin"
    assert chosen_row([record(0.6, 0.6), record(0.6, 0.59), record(0.5, 0.5)], [4, 3, 2]) == 0, (
        "a gain is not given away"
    )
    assert chosen_row([record(0.6, 0.5), record(0.5, 0.6), record(0.5, 0.5)], [4, 3, 2]) == 2, (
        "no one is near both bests"
    )
