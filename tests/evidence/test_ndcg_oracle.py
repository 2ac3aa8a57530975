"""NDCG, its interval and τ(ψ) on graded qrels: the papers' procedure line by line, and another implementation of NDCG.

Thresholds paper §2.1 and §2.2 with NDCG@K in place of accuracy, in the order of draws of contract §3. The gain is the
grade itself, discounted by log2(rank + 1), and the ideal ranking is of all relevant documents, retrieved or not.
"""

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from ir_measures import nDCG

from taugate.calibration.metrics.inputs import judge_queries
from taugate.cli import main as cli
from taugate.data.labelled_queries import LabelledQuery
from taugate.release.layout import ENCODER_FOLDER
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.index.approximate import load_index
from taugate.retrieval.index.flat import FlatIndex
from tests.fake_encoder import write_fake_encoder

TOLERANCE = 1e-9
Grades = list[dict[int, int]]


class GradedData:
    """A data set in the making: texts as lists of words, queries with the grades of documents by position."""

    def __init__(self, texts: list[list[str]], queries: list[tuple[list[str], dict[int, int]]]) -> None:
        self.texts = texts
        self.queries = queries

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The data set, and an encoder that knows its words."""
        (folder / "data" / "qrels").mkdir(parents=True)
        corpus = [{"_id": f"d{row}", "text": " ".join(text)} for row, text in enumerate(self.texts)]
        queries = [{"_id": f"q{row}", "text": " ".join(text)} for row, (text, _) in enumerate(self.queries)]
        qrels = ["query-id\tcorpus-id\tscore"]
        for row, (_, graded) in enumerate(self.queries):
            qrels += [f"q{row}\td{document}\t{grade}" for document, grade in graded.items()]
        for name, records in (("corpus", corpus), ("queries", queries)):
            lines = "".join(json.dumps(item) + "\n" for item in records)
            (folder / "data" / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        (folder / "data" / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n", encoding="utf-8")
        return folder / "data", write_fake_encoder(folder / "encoder", [item["text"] for item in corpus])


def mixed() -> GradedData:
    """82 queries, most of them with several relevant documents of grades 1 to 3; two have none."""
    rng = random.Random(0)  # noqa: S311 (no secret)
    words = [f"word{number}" for number in range(150)]
    texts = [rng.choices(words, k=20) for _ in range(100)]
    queries = []
    for number in range(82):
        first, second = rng.sample(range(100), 2)
        text = rng.sample(texts[first], 4) + rng.sample(texts[second], 3) + rng.choices(words, k=4)
        graded = {first: 3, second: 1} | {rng.randrange(100): rng.randint(0, 2) for _ in range(number % 4)}
        queries.append((text, dict.fromkeys(graded, 0) if number in {20, 60} else graded))
    return GradedData(texts, queries)


def groups() -> GradedData:
    """All five documents of a group answer its queries, and nearly every query finds them: any cut costs NDCG."""
    rng = random.Random(1)  # noqa: S311 (no secret)
    common = [f"common{number}" for number in range(40)]
    texts, queries = [], []
    for group in range(20):
        own = [f"own{group}x{number}" for number in range(12)]
        texts += [rng.sample(own, 11) + rng.sample(common, 6) for _ in range(5)]
        for _ in range(4):
            missed = {5 * (group - 1) % 100: 1} if rng.random() < 0.02 else {}
            graded = {5 * group + number: 1 for number in range(5 - len(missed))} | missed
            queries.append((rng.sample(own, 8) + rng.sample(common, 4), graded))
    return GradedData(texts, queries)


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Each of them, and its encoder."""
    return {make.__name__: make().write(tmp_path_factory.mktemp(make.__name__)) for make in (mixed, groups)}


def read(data: Path, release: Path) -> tuple[np.ndarray, np.ndarray, Grades]:
    """E(Q), E(D) and the grades by document position, from the release's encoder and index and the raw files."""
    ids = [json.loads(line)["_id"] for line in (data / "corpus.jsonl").open(encoding="utf-8")]
    grades: dict[str, dict[int, int]] = {}
    for line in (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) >= 1:
            grades.setdefault(query, {})[ids.index(document)] = int(score)
    records = [json.loads(line) for line in (data / "queries.jsonl").open(encoding="utf-8")]
    answerable = [record for record in records if record["_id"] in grades]
    questions = ExportedEncoder.load(release / ENCODER_FOLDER).encode(
        [record["text"] for record in answerable], "query"
    )
    documents = np.array(load_index(release, "flat", questions.shape[1]).vectors)
    return questions, documents, [grades[record["_id"]] for record in answerable]


def ndcg(ranking: list[int], kept: list[bool], relevant: dict[int, int], k: int) -> float:
    """NDCG@K of what is kept, by the ranks of the uncut list."""
    gained = 0.0
    for rank, (document, keeps) in enumerate(zip(ranking, kept, strict=True), start=1):
        if keeps:
            gained += relevant.get(document, 0) / math.log2(rank + 1)
    best = sorted(relevant.values(), reverse=True)[:k]
    return gained / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, start=1))


@dataclass
class Oracle:
    """What the papers would report of NDCG."""

    values: list[float]  # mean NDCG of each bootstrap
    at_tau: list[float]  # the same after the cut
    tau: float
    psi: int
    coe: list[float]
    rankings: list[list[int]]
    per_query: list[float]


@dataclass(frozen=True)
class Numbers:
    """K, m, l and the seed."""

    k: int
    m: int
    l: int  # noqa: E741 (the papers' name)
    seed: int

    @property
    def options(self) -> list[str]:
        named = {"--k": self.k, "--bootstraps": self.m, "--sample-size": self.l, "--seed": self.seed, "--holdout": 0}
        return [str(part) for pair in named.items() for part in pair]


def transcribe(questions: np.ndarray, documents: np.ndarray, grades: Grades, numbers: Numbers) -> Oracle:
    k = numbers.k
    rng = np.random.default_rng(numbers.seed)
    samples = rng.integers(0, len(questions), size=(numbers.m, numbers.l)).tolist()
    similarity = (questions.astype(float) @ documents.astype(float).T).astype(np.float32)
    rankings = np.argsort(-similarity, axis=1, kind="stable")[:, :k].tolist()
    scores = [similarity[q, ranking].tolist() for q, ranking in enumerate(rankings)]
    everything = [True] * k

    def mean(sample: list[int], tau: float | None) -> float:
        total = 0.0
        for q in sample:
            kept = everything if tau is None else [score >= tau for score in scores[q]]
            total += ndcg(rankings[q], kept, grades[q], k)
        return total / len(sample)

    values = [mean(sample, None) for sample in samples]
    gamma = [min(min(scores[q]) for q in sample) for sample in samples]
    lower = np.percentile(values, 2.5)
    taus = np.percentile(gamma, np.arange(101)).tolist()
    psi, at_tau = 0, [mean(sample, float(np.float32(taus[0]))) for sample in samples]
    for candidate in range(100, -1, -1):
        cut = [mean(sample, float(np.float32(taus[candidate]))) for sample in samples]
        if np.mean(cut) >= lower - 1e-12:
            psi, at_tau = candidate, cut
            break
    correct = [max(similarity[q, document] for document in relevant) for q, relevant in enumerate(grades)]
    thetas = [np.percentile([scores[q] for q in sample], 5) for sample in samples]
    coe = [sum(score > theta for score in correct) / len(correct) for theta in thetas]
    per_query = [ndcg(ranking, everything, relevant, k) for ranking, relevant in zip(rankings, grades, strict=True)]
    return Oracle(values, at_tau, taus[psi], psi, coe, rankings, per_query)


def interval(values: list[float]) -> dict[str, float]:
    lower, upper = np.percentile(values, [2.5, 97.5])
    return {"mean": float(np.mean(values)), "lower": lower, "upper": upper}


def calibrate(folders: tuple[Path, Path], releases: Path, capfd: pytest.CaptureFixture[str], *more: str) -> dict:
    data, encoder = folders
    options = ["--releases", str(releases), "--encoder", str(encoder), "--lexical", "off"]
    options += ["--refuse", "off", "--json"]
    assert cli.main(["calibrate", str(data), "--verbose", *options, *more]) == 0
    return json.loads(capfd.readouterr().out)


CASES = [
    ("mixed", Numbers(k=5, m=40, l=30, seed=0)),
    ("mixed", Numbers(k=1, m=40, l=25, seed=1)),
    ("mixed", Numbers(k=10, m=30, l=30, seed=2)),
    ("groups", Numbers(k=5, m=40, l=30, seed=0)),
    ("groups", Numbers(k=5, m=40, l=8, seed=1)),
]


@pytest.mark.parametrize(("name", "numbers"), CASES)
def test_manifest_equals_transcription(
    data_sets: dict, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, numbers: Numbers
) -> None:
    result = calibrate(data_sets[name], tmp_path, capfd, "--metric", "ndcg", *numbers.options)
    questions, documents, grades = read(data_sets[name][0], Path(result["path"]))
    assert len(grades) == 80
    oracle = transcribe(questions, documents, grades, numbers)
    policy, metrics = result["manifest"]["policy"], result["manifest"]["metrics"]["calibration"]
    assert (policy["method"], policy["metric"], policy["psi"]) == ("bootstrap", "ndcg", oracle.psi)
    assert policy["tau"] == pytest.approx(oracle.tau, abs=TOLERANCE)
    for metric, values in (("ndcg", oracle.values), ("ndcg_at_tau", oracle.at_tau), ("coe", oracle.coe)):
        expected = interval(values)
        assert {key: metrics[metric][key] for key in expected} == pytest.approx(expected, abs=TOLERANCE), metric
    assert (name == "groups") == (oracle.psi < 100), "the search over ψ has to stop early once"


def test_metric_decides_the_cut(data_sets: dict, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each query has five relevant documents: the last may go without a loss of accuracy, but not of NDCG."""
    numbers = Numbers(k=5, m=40, l=8, seed=1).options
    ndcg_rule, accuracy_rule = (
        calibrate(data_sets["groups"], tmp_path, capfd, "--metric", metric, *numbers)["manifest"]["policy"]
        for metric in ("ndcg", "accuracy")
    )
    assert (ndcg_rule["metric"], accuracy_rule["metric"]) == ("ndcg", "accuracy")
    assert ndcg_rule["psi"] < accuracy_rule["psi"] == 100
    assert ndcg_rule["tau"] < accuracy_rule["tau"]


@pytest.mark.parametrize("k", [1, 5, 10])
def test_ndcg_agrees_with_ir_measures(
    data_sets: dict, tmp_path: Path, capfd: pytest.CaptureFixture[str], k: int
) -> None:
    numbers = Numbers(k=k, m=2, l=2, seed=0)
    result = calibrate(data_sets["mixed"], tmp_path, capfd, *numbers.options)
    questions, documents, grades = read(data_sets["mixed"][0], Path(result["path"]))
    oracle = transcribe(questions, documents, grades, numbers)
    qrels = {
        f"q{row}": {f"d{document}": grade for document, grade in relevant.items()}
        for row, relevant in enumerate(grades)
    }
    run = {
        f"q{row}": {f"d{document}": float(k - rank) for rank, document in enumerate(ranking)}
        for row, ranking in enumerate(oracle.rankings)
    }
    measured = {item.query_id: item.value for item in ir_measures.pytrec_eval.iter_calc([nDCG @ k], qrels, run)}
    assert len(measured) == 80
    expected = [measured[f"q{row}"] for row in range(80)]
    assert 0 < np.mean(expected) < 1
    labelled = [LabelledQuery(f"q{row}", "?", relevant) for row, relevant in enumerate(grades)]
    judged = judge_queries(labelled, questions, FlatIndex.build(documents), k)
    np.testing.assert_allclose(judged.ndcg(), expected, atol=TOLERANCE)
    np.testing.assert_allclose(oracle.per_query, expected, atol=TOLERANCE)
