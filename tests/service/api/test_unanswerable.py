"""A release with an abstention policy: refused queries, their reason, and their metrics."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.cli import main as cli
from taugate.errors import ReleaseError
from taugate.registry.catalog import find
from taugate.release.layout import ABSTENTION
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from tests.release.test_hostile_release import forge
from tests.service.test_metrics import scrape
from tests.service_process import ServiceProcess

REASON = "taugate_empty_responses_total{unanswerable}"


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """Releases of the sample less two documents in five, whose questions are labelled as unanswerable."""
    folder = tmp_path_factory.mktemp("refusing")
    data = shutil.copytree(sample, folder / "data")
    lines = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    left = [line for row, line in enumerate(lines) if row % 5 > 1]
    (data / "corpus.jsonl").write_text("\n".join(left) + "\n", encoding="utf-8")
    kept = {json.loads(line)["_id"]: None for line in left}
    others = iter(kept)  # that a question without its document is judged against, each against one of its own
    header, *rows = (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    split = (row.split("\t") for row in rows)
    judged = [
        row if document in kept else f"{query}\t{next(others)}\t0"
        for row, (query, document, _) in zip(rows, split, strict=True)
    ]
    (data / "qrels" / "test.tsv").write_text("\n".join([header, *judged]) + "\n", encoding="utf-8")
    limits = ["--max-answered", "0.9", "--max-empty", "0.5"]
    command = ["calibrate", str(data), "--releases", str(folder / "releases"), "--encoder", str(encoder), *limits]
    assert cli.main(command) == 0
    return folder / "releases"


@pytest.fixture(scope="module")
def release(refusing: Path) -> Release:
    return load(find(refusing), threads=1)


@pytest.fixture(scope="module")
def service(refusing: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(refusing) as process:
        yield process.ready()


def asked(release: Release) -> dict[str, list[str]]:
    """The golden queries, by whether they are refused; and questions of nothing that is in the corpus."""
    texts = [*(query.text for query in release.golden), "the of and", "a is in the for", "you can have this from that"]
    rule, retriever = release.retriever.abstention, release.retriever
    assert rule is not None
    vectors = retriever.encode(texts)
    answered = rule.answered(texts, vectors, retriever.index.search(vectors, retriever.policy.k))
    found: dict[str, list[str]] = {"answered": [], "refused": []}
    for text, each in zip(texts, answered.tolist(), strict=True):
        found["answered" if each else "refused"].append(text)
    assert all(found.values())
    return found


def test_refused_query_has_reason_and_count(service: ServiceProcess, release: Release) -> None:
    before = scrape(service)
    refused = asked(release)["refused"]
    for query in refused:
        for _ in ("worked out", "from the cache"):
            reply = service.search(query)
            assert (reply["results"], reply["reason"], reply["considered"]) == ([], "unanswerable", 5)
            assert reply["dropped"] == 5
            assert reply["calibrated"]
            assert reply["refusal"]["score"] < reply["refusal"]["rho"]
    counted = Counter(scrape(service))
    counted.subtract(before)
    assert counted[REASON] == counted["taugate_refused_total{unanswerable}"] == 2 * len(refused)
    assert counted["taugate_empty_responses_total{all_below_threshold}"] == 0


def test_answered_query_has_best_result(service: ServiceProcess, release: Release) -> None:
    for query in asked(release)["answered"]:
        reply = service.search(query)
        assert reply["reason"] is None
        assert reply["results"][0]["rank"] == 1


def test_own_threshold_overrides_refusal(service: ServiceProcess, release: Release) -> None:
    query = asked(release)["refused"][0]
    assert "refusal" not in service.search(query, threshold=-2.0)
    assert len(service.search(query, threshold=-2.0)["results"]) == 5
    assert service.search(query, threshold=2.0)["reason"] == "all_below_threshold"
    forced = service.search(query, min_results=2)
    assert ([result["rank"] for result in forced["results"]], forced["reason"]) == ([1, 2], None)
    assert ([result["below_threshold"] for result in forced["results"]], forced["calibrated"]) == ([True] * 2, False)


def test_batch_refuses_like_single_queries(service: ServiceProcess, release: Release) -> None:
    kinds = asked(release)
    queries = [*kinds["refused"], *kinds["answered"]]
    replies = service.http.post("/search/batch", json={"queries": queries}).json()["responses"]
    assert [reply["reason"] for reply in replies] == ["unanswerable"] * len(kinds["refused"]) + [None] * len(
        kinds["answered"]
    )


def test_served_counts_equal_calibration(release: Release) -> None:
    """Empty replies are watched for drift by the same count: that of the calibration's own queries, asked again."""
    kept = [found.uncut_kept for found in release.retriever.search([Query(q.text, k=5) for q in release.golden])]
    reference = release.reference
    rows = [int(np.flatnonzero((reference.top == np.float32(q.scores)).all(axis=1))[0]) for q in release.golden]
    assert kept == reference.kept[rows].tolist()
    assert 0 in kept
    share = release.manifest.metrics["calibration"].abstention.answerable_empty
    assert (reference.kept == 0).mean() == pytest.approx(share)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda release, raw: raw.update(refusal=None), "disagree on abstention.safetensors"),
        (lambda release, raw: raw["files"].pop(ABSTENTION) and (release / ABSTENTION).unlink(), "disagree on abst"),
        (lambda release, raw: raw["refusal"].update(score="magic"), "does not hold the score 'magic'"),
        (lambda release, raw: raw["refusal"].update(rho=1e300), "float32"),
        (lambda release, raw: (release / ABSTENTION).write_bytes(b"x" * 40) and None, ABSTENTION),
    ],
)
def test_release_with_forged_policy_is_refused(refusing: Path, tmp_path: Path, change: Any, said: str) -> None:
    copy = shutil.copytree(refusing, tmp_path / "releases")
    with pytest.raises(ReleaseError, match=said):
        load(forge(find(copy), change), threads=1)
