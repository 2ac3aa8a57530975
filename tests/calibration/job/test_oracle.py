"""Every bootstrapped number of a manifest equals the literal transcription of the papers, from the same embeddings."""

import json
from pathlib import Path

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.release.layout import ENCODER_FOLDER
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.approximate import load_index
from tests.calibration.commands import Printed
from tests.oracle import Oracle, transcribe

TOLERANCE = 1e-9


def calibrate(capfd: Printed, *arguments: str) -> dict:
    assert cli.main(["calibrate", *arguments, "--lexical", "off", "--refuse", "off", "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def read_queries(data: Path, release: Path) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """E(Q), E(D) and the correct positions, from the release's own encoder and index and the raw files."""
    positions = {
        json.loads(line)["_id"]: row for row, line in enumerate((data / "corpus.jsonl").open(encoding="utf-8"))
    }
    correct: dict[str, list[int]] = {}
    for line in (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) >= 1:
            correct.setdefault(query, []).append(positions[document])
    records = [json.loads(line) for line in (data / "queries.jsonl").open(encoding="utf-8")]
    answerable = [record for record in records if record["_id"] in correct]
    questions = ExportedEncoder.load(release / ENCODER_FOLDER).encode(
        [record["text"] for record in answerable], "query"
    )
    documents = np.array(load_index(release, "flat", questions.shape[1]).vectors)
    return questions, documents, [correct[record["_id"]] for record in answerable]


def compare(manifest: dict, oracle: Oracle) -> None:
    metrics, policy = manifest["metrics"]["calibration"], manifest["policy"]
    assert policy["psi"] == oracle.psi
    assert policy["tau"] == pytest.approx(oracle.tau, abs=TOLERANCE)
    assert metrics["accuracy_at_tau"]["mean"] == pytest.approx(oracle.accuracy_at[oracle.psi], abs=TOLERANCE)
    for name, values in (("accuracy", oracle.accuracy), ("coe", oracle.coe), ("roe", oracle.roe)):
        lower, upper = np.percentile(values, [2.5, 97.5])
        expected = {"mean": np.mean(values), "lower": lower, "upper": upper}
        found = {key: metrics[name][key] for key in expected}
        assert found == pytest.approx(expected, abs=TOLERANCE), name


@pytest.mark.parametrize(("k", "seed"), [(1, 0), (5, 0), (5, 1), (20, 2)])
def test_sample_matches_reference_implementation(
    sample: Path, encoder: Path, tmp_path: Path, capfd: Printed, k: int, seed: int
) -> None:
    settings = ["--k", str(k), "--seed", str(seed), "--bootstraps", "60", "--sample-size", "50", "--holdout", "0"]
    result = calibrate(capfd, str(sample), "--releases", str(tmp_path), "--encoder", str(encoder), *settings)
    questions, documents, correct = read_queries(sample, Path(result["path"]))
    compare(result["manifest"], transcribe(questions, documents, correct, k=k, m=60, l=50, seed=seed))


def test_holdout_matches_reference_implementation(sample: Path, encoder: Path, tmp_path: Path, capfd: Printed) -> None:
    result = calibrate(capfd, str(sample), "--releases", str(tmp_path), "--encoder", str(encoder), "--bootstraps", "40")
    questions, documents, correct = read_queries(sample, Path(result["path"]))
    n, k, m, l = len(questions), 5, 40, 100  # noqa: E741
    rng = np.random.default_rng(0)
    kept = np.sort(rng.permutation(n)[: n - round(0.3 * n)])
    rows = rng.integers(0, len(kept), size=(m, l))
    similarity = (questions[kept].astype(float) @ documents.astype(float).T).astype(np.float32)
    top = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    hit = np.array([bool(set(row) & set(correct[q])) for q, row in zip(kept, top.tolist(), strict=True)])
    assert result["manifest"]["metrics"]["calibration"]["accuracy"]["mean"] == pytest.approx(hit[rows].mean())
    assert set(result["manifest"]["metrics"]) == {"calibration", "heldout"}
