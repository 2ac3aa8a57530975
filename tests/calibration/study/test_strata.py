"""`--strata metadata.FIELD`: every value certified by itself, with a threshold of its own for a search within it."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from taugate.evidence.risk.words import of_strata
from taugate.registry.catalog import release_ids
from taugate.release.evidence import StrataRecord, StratumRecord
from taugate.retrieval.documents.filters import OneOf, Range, all_of
from taugate.retrieval.query import Query
from taugate.retrieval.reader import Release, load
from tests.calibration.commands import Capture, Printed, arguments, refusal
from tests.fake_encoder import write_fake_encoder

DELTA = 0.1
# Words of its document that a query quotes, of 12: the fewer, the lower its score. Stratum "hard" loses first.
QUOTED = {"easy": (7, 10), "hard": (2, 8)}
SIZES = {"easy": 220, "hard": 120, "rare": 6, "odd": 5}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One query a document; strata are of very different difficulty, and two have next to no queries."""
    rng = random.Random(1)  # noqa: S311 (no secret)
    folder = tmp_path_factory.mktemp("strata")
    words = [f"word{number}" for number in range(700)]
    corpus, queries, qrels, texts = [], [], ["query-id\tcorpus-id\tscore"], []
    for stratum, size in SIZES.items():
        for number in range(size):
            text = rng.sample(words, 12)
            quoted = rng.sample(text, rng.randint(*QUOTED.get(stratum, (7, 10)))) + rng.sample(words, 3)
            name = f"{stratum}{number}"
            corpus.append(json.dumps({"_id": name, "text": " ".join(text), "metadata": {"kind": stratum}}))
            queries.append(json.dumps({"_id": name, "text": " ".join(quoted)}))
            qrels.append(f"{name}\t{name}\t1")
            texts.append(" ".join(text))
    (folder / "data" / "qrels").mkdir(parents=True)
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.tsv", qrels)):
        (folder / "data" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "data", write_fake_encoder(folder / "encoder", texts)


ASKED = ("--max-loss", str(DELTA), "--policy", "similarity", "--holdout", "0")


@pytest.fixture
def stratified(data: tuple[Path, Path], tmp_path: Path, calibrate: Capture) -> tuple[dict, Release]:
    asked = (*ASKED, "--refuse", "off", "--strata", "metadata.kind")
    _, manifest, _ = calibrate(data[0], tmp_path / "releases", data[1], *asked)
    (name,) = release_ids(tmp_path / "releases")
    return manifest, load(tmp_path / "releases" / name)


def lost(release: Release, data: Path, stratum: str, tau: float, *, within: bool) -> float:
    """Share of a stratum's queries whose document is found and scores below τ, by plain searches."""
    expected = all_of(OneOf.of("kind", stratum)) if within else None
    texts = {(row := json.loads(line))["_id"]: row["text"] for line in (data / "queries.jsonl").open(encoding="utf-8")}
    count, misses = 0, 0
    for name, text in texts.items():
        if name.rstrip("0123456789") != stratum:
            continue
        (answer,) = release.retriever.search([Query(text, 5, threshold=-1.0, filter=expected)])
        scores = dict(zip((release.documents[row].id for row in answer.positions), answer.scores, strict=True))
        count += 1
        misses += name in scores and scores[name] < np.float32(tau)
    return misses / count


def test_lowest_stratum_threshold_is_in_force(stratified: tuple[dict, Release], data: tuple[Path, Path]) -> None:
    manifest, release = stratified
    strata = manifest["strata"]
    result = {item["value"]: item for item in strata["strata"]}
    assert {*result} == {"easy", "hard"}
    assert strata["field"] == "kind"
    assert sorted(strata["other_values"]) == ["odd", "rare"]
    assert (strata["others"]["queries"], strata["others"].get("tau")) == (11, None)
    assert strata["others"]["queries_needed"] > 11
    taus = {value: item["tau_without_filter"] for value, item in result.items()}
    assert manifest["policy"]["tau"] == taus["hard"] < taus["easy"]
    for value, item in result.items():
        assert lost(release, data[0], value, manifest["policy"]["tau"], within=False) < DELTA
        assert 0 < lost(release, data[0], value, item["tau"], within=True) < DELTA
    guarantee = manifest["policy"]["guarantee"]
    assert "The same holds by itself for each of these values of kind: easy, hard." in guarantee
    assert "Nothing is certified for these values of kind: rare, odd; they have 11 queries in all" in guarantee


def test_hard_stratum_loses_more_without_strata(data: tuple[Path, Path], tmp_path: Path, calibrate: Capture) -> None:
    _, manifest, _ = calibrate(data[0], tmp_path / "releases", data[1], *ASKED)
    (name,) = release_ids(tmp_path / "releases")
    release = load(tmp_path / "releases" / name)
    assert manifest.get("strata") is None
    assert lost(release, data[0], "hard", manifest["policy"]["tau"], within=False) > DELTA


def test_filtered_search_uses_stratum_threshold(stratified: tuple[dict, Release]) -> None:
    manifest, release = stratified
    tau = {item["value"]: item["tau"] for item in manifest["strata"]["strata"]} | {None: manifest["policy"]["tau"]}
    for expected, threshold, calibrated in (
        (None, tau[None], True),
        (all_of(OneOf.of("kind", "easy")), tau["easy"], True),
        (all_of(OneOf.of("kind", "hard")), tau["hard"], True),
        (all_of(OneOf.of("kind", "rare")), tau[None], False),
        (all_of(OneOf.of("kind", "easy", "hard")), tau[None], False),
        (all_of(Range("kind", gt=0)), tau[None], False),
    ):
        (answer,) = release.retriever.search([Query("word1 word2", 5, filter=expected)])
        assert (answer.threshold, answer.calibrated) == (float(np.float32(threshold)), calibrated)
    (answer,) = release.retriever.search([Query("word1", 5, threshold=0.2, filter=all_of(OneOf.of("kind", "easy")))])
    assert not answer.calibrated


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("kind", "give a field of the documents' metadata as metadata.kind"),
        ("metadata.", "give a field of the documents' metadata as metadata.FIELD"),
        ("metadata.nothing", "--strata metadata.nothing: no document has the field nothing; the fields are kind"),
    ],
)
def test_invalid_strata_field_is_refused(
    data: tuple[Path, Path], tmp_path: Path, capfd: Printed, asked: str, message: str
) -> None:
    command = arguments(data[0], tmp_path / "releases", data[1], "--strata", asked)
    assert message in refusal(command, tmp_path / "releases", capfd)


def test_joined_strata_are_named() -> None:
    remaining = StratumRecord(
        value=None, tau=None, tau_without_filter=0.4, queries=90, units=90, queries_needed=59, found=0.9
    )
    sentence = of_strata(StrataRecord(field="kind", strata=[], others=remaining, other_values=["a", "b"]))
    assert sentence == "It holds for these values of kind taken together: a, b."
