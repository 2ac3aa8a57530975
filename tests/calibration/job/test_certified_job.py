"""`taugate calibrate --max-loss …` from end to end: what is written, what is served, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.evidence.clusters import SamplingUnits
from taugate.evidence.divisions import QueryRoles
from taugate.evidence.relevance.record import ReliabilitySums, expected_calibration_error
from taugate.registry.catalog import current_id, release_ids
from taugate.release.layout import RELEVANCE, content_digest
from taugate.release.queries import threshold_curve
from taugate.retrieval.query import Query
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, Printed, arguments, small

EXPECTED = ("--max-loss", "0.05", "--guarantee", "expected-loss")


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """A releases directory with a promoted release of which at most 5 % are lost on average."""
    folder = tmp_path_factory.mktemp("certified")
    assert cli.main(arguments(sample, folder, encoder, *EXPECTED)) == 0
    return folder


def manifest_of(releases: Path) -> dict:
    return json.loads((releases / current_id(releases) / "manifest.json").read_bytes())


def queries_of(data: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (data / "queries.jsonl").open(encoding="utf-8")]


def relevant_of(data: Path) -> list[set[int]]:
    """Relevant positions of each query, in file order."""
    ids = [json.loads(line)["_id"] for line in (data / "corpus.jsonl").open(encoding="utf-8")]
    place = {name: row for row, name in enumerate(ids)}
    found: dict[str, set[int]] = {}
    for line in (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) >= 1:
            found.setdefault(query, set()).add(place[document])
    return [found[json.loads(line)["_id"]] for line in (data / "queries.jsonl").open(encoding="utf-8")]


def test_manifest_records_certificates(certified: Path) -> None:
    manifest = manifest_of(certified)
    policy = manifest["policy"]
    assert (policy["kind"], policy.get("choice")) == ("probability", None)
    assert (policy["method"], policy["metric"], policy["max_loss"], policy.get("psi")) == (
        "risk-control",
        "accuracy",
        0.05,
        None,
    )
    (certificate,) = policy["certificates"]
    assert certificate["queries"] == 264
    assert certificate["loss"] < certificate["bound"] <= 0.05
    assert certificate["bound"] == pytest.approx((certificate["loss"] * certificate["queries"] + 1) / (264 + 1))
    assert certificate["queries_needed"] == 19
    for part in ("On average", "at most 5 %", "264 queries", "conformal risk control", "expected loss"):
        assert part in policy["guarantee"]
    assert [(each["method"], each["policy"] != "none") for each in manifest["alternatives"]] == [
        ("bootstrap", True),
        ("risk-control", True),
    ]
    assert manifest["relevance"]["queries"] == 151
    assert manifest["relevance"]["part"] == "heldout"
    assert 0 <= manifest["relevance"]["expected_calibration_error"] < 0.2
    assert RELEVANCE in manifest["files"]


def test_metrics_match_papers_rule(certified: Path, releases: Path) -> None:
    """What does not depend on the cut is the same number: the model draws nothing from the contract's generator."""
    papers, ours = manifest_of(releases)["metrics"], manifest_of(certified)["metrics"]
    for part in ("calibration", "heldout"):
        for name in ("accuracy", "ndcg", "coe", "roe"):
            assert papers[part][name] == ours[part][name], (part, name)
    assert manifest_of(releases)["relevance"] == manifest_of(certified)["relevance"]


def test_served_results_match_metrics(certified: Path, sample: Path) -> None:
    """Every calibration and held-out query, asked of the release: its kept share and loss are the manifest's."""
    manifest, release = manifest_of(certified), load(certified / current_id(certified))
    answers = release.retriever.search([Query(text, k=5) for text in queries_of(sample)])
    assert all(answer.calibrated for answer in answers)
    order = np.random.default_rng(0).permutation(503)
    kept = 503 - round(0.3 * 503)
    for name, members in (("calibration", order[:kept]), ("heldout", order[kept:])):
        metrics = manifest["metrics"][name]
        chosen = [answers[row] for row in members.tolist()]
        assert np.mean([len(each.positions) / 5 for each in chosen]) == pytest.approx(metrics["kept_fraction"])
        assert np.mean([not len(each.positions) for each in chosen]) == pytest.approx(
            metrics["abstention"]["answerable_empty"]
        )
    record = manifest["relevance"]
    assert record["unanswerable_share"] == 0.5
    # Bins hold the results of held-out queries, and as many of questions without an answer, by rounded weights.
    assert abs(sum(each["results"] for each in record["bins"]) - 2 * 5 * (503 - kept)) <= len(record["bins"])
    # Those of the answerable queries alone are what the release serves.
    members, relevant = order[kept:].tolist(), relevant_of(sample)
    texts = queries_of(sample)
    answers = release.retriever.search([Query(texts[row], k=5, min_results=5) for row in members])
    shown = [(row, answer) for row, answer in zip(members, answers, strict=True) if len(answer.positions) == 5]
    assert len(shown) > 0.9 * len(members)  # the others are refused
    served = np.array([answer.relevance for _, answer in shown])
    true = np.array([[at in relevant[row] for at in answer.positions.tolist()] for row, answer in shown])
    sums = ReliabilitySums.by_cluster(served, true, np.arange(len(shown)))
    assert expected_calibration_error(sums) == pytest.approx(record["error_of_answerable"]["mean"], abs=0.01)


def test_served_loss_matches_certificate(certified: Path, sample: Path) -> None:
    manifest, release = manifest_of(certified), load(certified / current_id(certified))
    kept = 503 - round(0.3 * 503)
    calibration = np.sort(np.random.default_rng(0).permutation(503)[:kept])
    members = QueryRoles.draw(calibration, SamplingUnits.from_clusters(np.arange(503)), 0).not_fitting.tolist()
    texts, relevant = queries_of(sample), relevant_of(sample)
    cut = release.retriever.search([Query(texts[row], k=5) for row in members])
    whole = release.retriever.search([Query(texts[row], k=5, min_results=5) for row in members])
    lost = [
        bool(relevant[row] & set(everything.positions.tolist())) and not relevant[row] & set(answer.positions.tolist())
        for row, answer, everything in zip(members, cut, whole, strict=True)
    ]
    (certificate,) = manifest["policy"]["certificates"]
    assert certificate["queries"] == len(members)
    assert certificate["loss"] == pytest.approx(np.mean(lost))


def test_auto_policy_is_reproducible(
    certified: Path, sample: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calibrate: Capture
) -> None:
    """With an empty cache as well, and beside another parent."""
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    assert calibrate(sample, tmp_path / "r", encoder)[0] == 0
    code, again, _ = calibrate(sample, tmp_path / "r", encoder, *EXPECTED)
    first = manifest_of(certified)
    assert code == 0
    assert (again.get("parent") is None, first.get("parent") is None) == (False, True)
    assert content_digest(again) == content_digest(first)
    assert again["files"][RELEVANCE] == first["files"][RELEVANCE]


def test_uncertified_release_is_not_promoted(
    releases: Path, sample: Path, encoder: Path, tmp_path: Path, calibrate: Capture
) -> None:
    shutil.copytree(releases, tmp_path / "r")
    promoted, known = current_id(tmp_path / "r"), set(release_ids(tmp_path / "r"))
    code, manifest, error = calibrate(sample, tmp_path / "r", encoder, "--max-loss", "0.005")
    assert code == 5
    said = [line for line in error.splitlines() if line.startswith("taugate: ")]
    assert len(said) == 1
    assert said[0].startswith(
        "taugate: Nothing is certified, and nothing was promoted: with the 503 documents of this corpus, no test can "
        "certify a loss of 0.5 % at 95 %, however many queries"
    )
    assert (manifest["policy"]["kind"], manifest["policy"].get("tau")) == ("none", None)
    assert "they are too few" in manifest["policy"]["guarantee"]
    assert manifest["policy"]["certificates"][0]["queries_needed"] == 598
    assert current_id(tmp_path / "r") == promoted
    assert set(release_ids(tmp_path / "r")) == known | {manifest["release_id"]}
    assert manifest["metrics"]["calibration"]["kept_fraction"] == 1.0

    release = load(tmp_path / "r" / manifest["release_id"])
    for answer in release.retriever.search([Query(text, k=5) for text in queries_of(sample)[:40]]):
        assert len(answer.positions) == 5
        assert (answer.policy, answer.threshold, answer.calibrated) == ("none", None, False)
        assert answer.relevance.shape == (5,)


# What is named beside --max-loss, and how many queries certify it.
NAMED = [
    (["--policy", "relative", "--max-loss", "0.05"], 352),
    (["--policy", "similarity", "--max-loss", "0.01"], 352),
    (["--policy", "probability", "--max-loss", "0.05"], 264),
    (["--policy", "relative", "--max-loss", "0.05", "--method", "non-inferiority"], 352),
    (["--policy", "relative", "--max-loss", "0.05", "--metric", "ndcg"], 352),
    (["--policy", "probability", "--max-loss", "0.05", "--k", "1", "--holdout", "0"], 377),
]


@pytest.mark.parametrize(
    ("options", "certifying"), NAMED, ids=lambda value: " ".join(value[1::2]) if isinstance(value, list) else None
)
@pytest.mark.slow
def test_named_policy_is_certified(
    sample: Path, encoder: Path, tmp_path: Path, calibrate: Capture, options: list[str], certifying: int
) -> None:
    code, manifest, _ = calibrate(sample, tmp_path, encoder, *options, "--refuse", "off")
    policy = manifest["policy"]
    assert code == 0
    assert (policy["kind"], policy["certificates"][0]["queries"]) == (options[1], certifying)
    assert policy["method"] == ("non-inferiority" if "non-inferiority" in options else "risk-control")
    assert policy["certificates"][0]["bound"] <= policy["max_loss"]
    assert current_id(tmp_path) == manifest["release_id"]
    release = load(tmp_path / manifest["release_id"])
    (answer,) = release.retriever.search([Query("a building permit", policy["k"])])
    assert (answer.calibrated, answer.policy) == (True, policy["kind"])
    reference = release.reference
    assert (reference.relevance is not None) == (policy["kind"] == "probability")
    curve = threshold_curve(reference, policy["kind"], policy["tau"])
    (point,) = (each for each in curve if each.tau == np.float32(policy["tau"]))
    assert point.kept == pytest.approx(manifest["metrics"]["calibration"]["kept_fraction"], abs=1e-12)
    assert point.loss == pytest.approx(curve[-1].loss - reference.correct_kept.mean(), abs=1e-12)


def test_max_empty_limits_empty_replies(sample: Path, encoder: Path, tmp_path: Path, calibrate: Capture) -> None:
    data = shutil.copytree(sample, tmp_path / "data")
    nonsense = [f"z y {number} house" for number in range(20)]  # most of its letters are in words that are read
    with (data / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.writelines(json.dumps({"_id": f"u{row}", "text": text}) + "\n" for row, text in enumerate(nonsense))
    with (data / "qrels" / "test.tsv").open("a", encoding="utf-8") as qrels:
        qrels.writelines(f"u{row}\tbygglov-001\t0\n" for row in range(20))
    code, manifest, _ = calibrate(data, tmp_path / "r", encoder, "--max-loss", "0.15", "--max-empty", "0.1")
    policy, abstention = manifest["policy"], manifest["metrics"]["heldout"]["abstention"]
    assert code == 0
    assert policy["max_empty"] == 0.1
    assert {each["method"]: each.get("max_empty") for each in manifest["alternatives"]} == {
        "bootstrap": None,
        "risk-control": 0.1,
    }
    assert [each["limit"] for each in policy["certificates"]] == ["accuracy", "empty"]
    assert all(each["bound"] <= each["most"] for each in policy["certificates"])
    assert "at most 10 % of answerable queries are answered with nothing" in policy["guarantee"]
    answers = load(tmp_path / "r" / manifest["release_id"]).retriever.search([Query(text, k=5) for text in nonsense])
    assert abstention["unanswerable_empty"] == np.mean([not len(answer.positions) for answer in answers])
    assert 0 <= abstention["auroc"] <= 1
    assert 0 <= abstention["aurc"] <= 1


def test_auto_policy_respects_max_empty(sample: Path, encoder: Path, tmp_path: Path, calibrate: Capture) -> None:
    """A share of the best score never leaves a query without a result: where that is what binds, it keeps the least.

    By --max-loss alone another policy is the best. What counts is what is kept under both limits.
    """
    limits = ["--max-loss", "0.3", "--max-empty", "0.02", "--refuse", "off"]
    kept = {}
    for policy in ("auto", "relative"):
        code, manifest, _ = calibrate(sample, tmp_path, encoder, *limits, "--policy", policy)
        assert code == 0
        kept[policy] = manifest["metrics"]["heldout"]["kept_fraction"]
    assert kept["relative"] == pytest.approx(0.2)
    assert kept["auto"] <= kept["relative"] + 0.05


def test_thirty_queries_suffice(tmp_path: Path, calibrate: Capture) -> None:
    data, encoder = small(tmp_path, 30)
    code, manifest, _ = calibrate(data, tmp_path / "r", encoder, "--max-loss", "0.2", "--holdout", "0")
    assert code == 0
    assert manifest["policy"]["certificates"][0]["queries"] in {22, 30}  # those that did not fit the model, or all


# What a certificate must not say.


def test_duplicate_hits_count_once(tmp_path: Path, calibrate: Capture) -> None:
    """Six copies of each of 60 queries are lost together, and count as 60 whatever their accuracy has in common.

    Accuracy is 1 for all of them, so that its intra-cluster correlation cannot be known; the loss is what is certified,
    and it is the same for all copies of a query.
    """
    data, encoder = small(tmp_path, 60, copies=6)
    options = ["--method", "non-inferiority", "--policy", "similarity", "--max-loss", "0.05", "--holdout", "0"]
    _, manifest, _ = calibrate(data, tmp_path / "r", encoder, *options, "--refuse", "off", "--k", "3")
    assert manifest["metrics"]["calibration"]["accuracy"]["mean"] == 1
    assert manifest["query_set"]["clusters"] == 60
    (certificate,) = manifest["policy"]["certificates"]
    assert certificate["queries"] == 360
    assert certificate["effective_queries"] == 60
    assert (certificate["unit"], certificate["units"]) == ("document", 60)
    assert (
        manifest["evidence"] == manifest["policy"]["evidence"] == {"unit": "document", "units": 60, "design_effect": 6}
    )
    for metric in ("accuracy", "ndcg_at_tau", "coe"):
        assert set(manifest["metrics"]["calibration"][metric]["by_document"]) == {"mean", "lower", "upper"}


def test_ndcg_certificate_is_limited_to_k(sample: Path, encoder: Path, tmp_path: Path, calibrate: Capture) -> None:
    """Five relevant documents of which ranks 1 and 2 are found, and rank 2 is cut: a fifth of NDCG@5, 39 % of NDCG@2.

    The ideal DCG shrinks with K, so a cut that loses little at K = 5 may lose much at K = 2, prefix or not.
    """
    discount = [1 / np.log2(rank + 1) for rank in range(1, 6)]
    assert discount[1] / sum(discount) == pytest.approx(0.214, abs=1e-3)
    assert discount[1] / sum(discount[:2]) == pytest.approx(0.387, abs=1e-3)
    options = ["--metric", "ndcg", "--policy", "relative", "--max-loss", "0.05"]
    code, manifest, _ = calibrate(sample, tmp_path, encoder, *options)
    assert code == 0
    retriever = load(tmp_path / manifest["release_id"]).retriever
    whole, fewer = retriever.search([Query("a building permit", k=5), Query("a permit", k=2)])
    assert whole.calibrated
    assert not fewer.calibrated


# Two releases beside each other.


def test_diff_of_policies_has_no_difference(releases: Path, certified: Path, tmp_path: Path, capfd: Printed) -> None:
    folder, old, new = tmp_path / "r", current_id(releases), current_id(certified)
    for source, name in ((releases, old), (certified, new)):
        shutil.copytree(source / name, folder / name)
    capfd.readouterr()
    assert cli.main(["release", "diff", "--releases", str(folder), old, new]) == 0
    lines = capfd.readouterr().out
    assert "policy: method" in lines
    assert "bootstrap" in lines
    assert cli.main(["release", "diff", "--releases", str(folder), old, old]) == 0
    assert capfd.readouterr().out == "no difference\n"
    assert cli.main(["release", "correlations", "--releases", str(folder)]) == 2
    assert "now a table of `taugate compare`" in capfd.readouterr().err
