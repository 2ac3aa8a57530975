"""`taugate calibrate-run`: thresholds for the scores of a run, by the statistics of a calibration of a corpus."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taugate.calibration import relevance
from taugate.cli import main as cli
from taugate.data.questions import off_topic_table
from taugate.data.runs.recording import off_topic_run
from taugate.registry.catalog import current_id, find, release_ids
from taugate.release.layout import EVIDENCE, GOLDEN, MANIFEST, OUTCOMES, REFERENCE, RELEVANCE, REPORT
from taugate.release.manifest import RunManifest
from taugate.release.queries import Reference
from taugate.release.verify import verify
from taugate.retrieval.gate import Gate, ScoredResult
from taugate.retrieval.golden import read_golden_results
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.words import query_terms
from tests.calibration.commands import Printed, failure
from tests.runs import dense_results, fused_with_cosine, write_json, write_trec

CORPUS_OPTIONS = ("--refuse", "off", "--lexical", "off")  # a run has neither


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, sample: Path, encoder: Path) -> Path:
    """A run of the sample by cosine alone."""
    folder = tmp_path_factory.mktemp("run")
    calibrate = ["calibrate", str(sample), "--releases", str(folder / "releases"), "--encoder", str(encoder)]
    assert cli.main([*calibrate, *CORPUS_OPTIONS]) == 0
    return write_json(folder / "dense.jsonl", dense_results(sample, folder / "releases"))


@pytest.fixture(scope="session")
def run_releases(tmp_path_factory: pytest.TempPathFactory, sample: Path, run: Path) -> Path:
    folder = tmp_path_factory.mktemp("run-releases")
    assert cli.main(calibrate_run(run, sample, folder, "--max-loss", "0.05")) == 0
    return folder


def calibrate_run(run: Path, data: Path, releases: Path, *more: str) -> list[str]:
    return ["calibrate-run", str(run), str(data / "qrels" / "test.tsv"), "--releases", str(releases), *more]


def manifest(arguments: list[str], capfd: Printed) -> dict:
    capfd.readouterr()
    assert cli.main([*arguments, "--json"]) in {0, 3, 4}
    return json.loads(capfd.readouterr().out)["manifest"]


def off_topic_run_of(run: Path, releases: Path) -> Path:
    """Write the run of the English off-topic questions beside a run."""
    questions = [question.text for question in off_topic_table() if question.language == "English"]
    return write_json(off_topic_run(run), dense_results(questions, releases))


def test_off_topic_run_gives_rho_of_corpus(
    run: Path, sample: Path, encoder: Path, tmp_path: Path, capfd: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run has no texts, so it leaves out no question.
    monkeypatch.setattr(relevance, "seem_answered", lambda _, top, __: np.zeros(len(top), dtype=np.bool_))
    copy = shutil.copy(run, tmp_path / "dense.jsonl")
    off_topic_run_of(copy, run.parent / "releases")
    rule = ("--policy", "relative", "--max-loss", "0.05")
    calibrate = ["calibrate", str(sample), "--releases", str(tmp_path / "a"), "--encoder", str(encoder)]
    of_corpus = manifest([*calibrate, "--lexical", "off", *rule], capfd)
    of_run = manifest(calibrate_run(copy, sample, tmp_path / "b", *rule), capfd)
    near_miss = of_corpus["refusal"]["evidence"].pop("near_miss")
    assert near_miss["queries"]
    assert of_corpus["refusal"].pop("doubled")["documents"] == 1006  # a run has no documents to forecast by
    assert of_run["refusal"] == of_corpus["refusal"]
    assert of_run["policy"]["tau"] == of_corpus["policy"]["tau"]
    gate = Gate.load(find(tmp_path / "b"))
    pizza = gate.cut([ScoredResult(f"d{place}", of_run["refusal"]["rho"] - 0.01, {}) for place in range(5)])
    assert (pizza.results, pizza.reason, pizza.refuses) == ([], "unanswerable", True)
    golden = read_golden_results(find(tmp_path / "b") / GOLDEN)
    assert sum(question.unanswerable for question in golden) == 32  # off-topic questions, as ρ is stated to refuse them


@pytest.mark.parametrize("option", ["absent", "--refuse=off"])
def test_run_without_rho_says_that_nothing_is_refused(
    run: Path, sample: Path, tmp_path: Path, capfd: Printed, option: str
) -> None:
    copy = shutil.copy(run, tmp_path / "dense.jsonl")
    if option == "--refuse=off":
        off_topic_run_of(copy, run.parent / "releases")
    options = [] if option == "absent" else [option]
    assert cli.main(calibrate_run(copy, sample, tmp_path / "releases", *options)) == 0
    assert "; refuses nothing: every question gets a result; " in capfd.readouterr().err
    reply = Gate.load(find(tmp_path / "releases")).cut([ScoredResult("d1", 0.01, {})])
    assert (reply.refuses, reply.refusal) == (False, None)


def test_missing_off_topic_run_is_bad_input(run: Path, sample: Path, tmp_path: Path) -> None:
    arguments = calibrate_run(run, sample, tmp_path, "--off-topic", str(tmp_path / "nosuch.jsonl"))
    assert cli.main(arguments) == 2


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--policy", "similarity", "--max-loss", "0.05"),
        ("--policy", "relative", "--max-loss", "0.05"),
        ("--policy", "relative", "--max-loss", "0.1,0.05", "--metric", "ndcg", "--drawn", "queries"),
        ("--policy", "similarity", "--max-loss", "0.08", "--guarantee", "expected-loss", "--holdout", "0"),
    ],
    ids=" ".join,
)
def test_dense_run_gives_the_threshold_of_the_corpus_to_the_bit(
    run: Path, sample: Path, encoder: Path, tmp_path: Path, capfd: Printed, options: tuple[str, ...]
) -> None:
    calibrate = ["calibrate", str(sample), "--releases", str(tmp_path / "a"), "--encoder", str(encoder)]
    of_corpus = manifest([*calibrate, *CORPUS_OPTIONS, *options], capfd)
    of_run = manifest(calibrate_run(run, sample, tmp_path / "b", *options), capfd)
    assert of_run["policy"] == of_corpus["policy"]
    assert of_run["policy"].get("tau") is not None
    assert of_run["evidence"] == of_corpus["evidence"]
    for part, metrics in of_corpus["metrics"].items():
        same = {name: value for name, value in metrics.items() if name not in {"coe", "roe"}}
        assert {name: of_run["metrics"][part][name] for name in same} == same


def test_trec_run_gives_the_release_of_the_json_run(
    run: Path, sample: Path, encoder: Path, tmp_path: Path, capfd: Printed
) -> None:
    trec = write_trec(tmp_path / "dense.txt", dense_results(sample, run.parent / "releases"))
    plain = manifest(calibrate_run(run, sample, tmp_path / "a"), capfd)
    of_trec = manifest(calibrate_run(trec, sample, tmp_path / "b"), capfd)
    for part in ("policy", "metrics", "retriever"):
        assert of_trec[part] == plain[part]


def test_same_run_gives_the_same_digest(run: Path, sample: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert cli.main(calibrate_run(run, sample, tmp_path / name)) == 0
    first, second = ((current_id(tmp_path / name) or "")[-12:] for name in ("a", "b"))
    assert first == second


def test_release_of_a_run_has_no_encoder_index_or_random_scores(run_releases: Path) -> None:
    release = find(run_releases)
    written = verify(release)
    assert isinstance(written, RunManifest)
    assert {*written.files} == {EVIDENCE, REFERENCE, OUTCOMES, REPORT, RELEVANCE, GOLDEN}
    stored = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    assert not {"encoder", "index", "isotropy", "query_set", "golden"} & {*stored}
    assert all("roe" not in metrics for metrics in stored["metrics"].values())
    assert not len(Reference.load(release / REFERENCE).random)
    assert written.drift is not None
    assert "roe" not in written.drift.signals
    assert 0 < written.retriever.judged < 1
    assert (written.retriever.name, written.retriever.depth) == ("dense", 10)


def test_lowest_grade_that_answers_is_recorded(
    run: Path, sample: Path, run_releases: Path, tmp_path: Path, capfd: Printed
) -> None:
    """With every answer at grade 2, and the best other result of each query at grade 1."""
    (tmp_path / "qrels").mkdir()
    header, *rows = (sample / "qrels" / "test.tsv").read_text().splitlines()
    answers = dict(row.split("\t")[:2] for row in rows)
    graded = [f"{query}\t{document}\t2" for query, document in answers.items()]
    for line in run.read_text().splitlines():
        record = json.loads(line)
        others = (result["id"] for result in record["results"] if result["id"] != answers.get(record["query_id"]))
        graded += [f"{record['query_id']}\t{next(others)}\t1"] if record["query_id"] in answers else []
    (tmp_path / "qrels" / "test.tsv").write_text("\n".join([header, *graded]))
    grade = manifest(
        calibrate_run(run, tmp_path, tmp_path / "gates", "--relevant-from", "2", "--max-loss", "0.05"), capfd
    )
    before = json.loads((find(run_releases) / MANIFEST).read_bytes())
    assert grade["data"]["relevant_from"] == 2
    assert grade["policy"]["tau"] == before["policy"]["tau"]
    assert cli.main(calibrate_run(run, tmp_path, tmp_path / "gates", "--bootstraps", "20")) in {0, 3, 4}
    assert "grades 1 to 2: every document of grade 1 or more counts as an answer" in capfd.readouterr().err


def test_report_of_a_run_leaves_out_what_it_cannot_know(run_releases: Path) -> None:
    page = (find(run_releases) / REPORT).read_text(encoding="utf-8")
    assert "Run of the retriever dense" in page
    for absent in ("ROE", "Encoder ", 'id="papers"', 'id="query-set"', 'id="gate"', "<blockquote"):
        assert absent not in page


def test_registry_commands_work_on_releases_of_runs(
    run: Path, sample: Path, run_releases: Path, tmp_path: Path, capfd: Printed
) -> None:
    releases = shutil.copytree(run_releases, tmp_path / "releases")
    before = current_id(releases)
    assert cli.main(calibrate_run(run, sample, releases, "--policy", "similarity", "--max-loss", "0.08")) == 0
    assert current_id(releases) != before
    at = ["--releases", str(releases)]
    for action in ("list", "show", "verify", "history", "rollback"):
        assert cli.main(["release", action, *at]) == 0
    assert current_id(releases) == before
    (newer,) = {*release_ids(releases)} - {before}
    capfd.readouterr()
    assert cli.main(["release", "diff", newer, *at]) == 0
    assert "policy: τ" in capfd.readouterr().out
    assert cli.main(["release", "promote", newer, *at, "--max-accuracy-drop", "0.1"]) == 0
    assert cli.main(["release", "prune", "--keep", "1", *at]) == 0


def test_release_of_another_scorer_is_promoted_only_if_requested(
    run: Path, sample: Path, releases: Path, tmp_path: Path, capfd: Printed
) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    command = calibrate_run(run, sample, copy)
    assert cli.main(command) == 2
    assert "to promote it anyway, give --new-encoder" in capfd.readouterr().err
    assert cli.main([*command, "--new-encoder"]) == 0


@pytest.mark.parametrize("command", ["explain", "update"])
def test_command_that_searches_says_that_a_run_has_no_documents(
    sample: Path, run_releases: Path, capfd: Printed, command: str
) -> None:
    words = {"explain": ["a question", "d0"], "update": [str(sample)]}[command]
    assert cli.main([command, *words, "--releases", str(run_releases)]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert "was calibrated on a run, so it has neither encoder nor documents" in last


def changed(run: Path, folder: Path, change: str) -> Path:
    """Write a run whose scores tell less."""
    lines = []
    for line in run.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        for place, result in enumerate(record["results"]):
            result["score"] = 1.0 if change == "equal" else float(np.float32(1 / (60 + place)))
        lines.append(json.dumps(record))
    path = folder / f"{change}.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_run_of_equal_scores_is_refused(run: Path, sample: Path, tmp_path: Path, capfd: Printed) -> None:
    message = failure(calibrate_run(changed(run, tmp_path, "equal"), sample, tmp_path / "releases"), capfd)
    assert "every score is 1, so no threshold can separate documents" in message


def test_ranks_as_scores_get_a_warning_and_cannot_refuse_questions(
    run: Path, sample: Path, tmp_path: Path, capfd: Printed
) -> None:
    command = calibrate_run(changed(run, tmp_path, "ranks"), sample, tmp_path / "releases", "--max-loss", "0.05")
    assert cli.main(command) == 0
    assert "503 of 503 best scores are equal: this fused rank cannot tell" in capfd.readouterr().err


def test_distances_give_the_kept_results_of_their_similarities(
    run: Path, sample: Path, tmp_path: Path, capfd: Printed
) -> None:
    records = [json.loads(line) for line in run.read_text(encoding="utf-8").splitlines()]
    for record in records:
        for result in record["results"]:
            result["score"] = 2.0 - 2.0 * result["score"]  # the squared Euclidean distance of unit vectors
    path = tmp_path / "distances.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    options = ("--policy", "similarity", "--max-loss", "0.05")
    of_cosine = manifest(calibrate_run(run, sample, tmp_path / "a", *options), capfd)
    distances = manifest(calibrate_run(path, sample, tmp_path / "b", *options, "--scores", "distance"), capfd)
    assert distances["metrics"]["heldout"]["kept_fraction"] == of_cosine["metrics"]["heldout"]["kept_fraction"]
    assert distances["policy"]["tau"] == pytest.approx(2 * of_cosine["policy"]["tau"] - 2, abs=1e-6)


def test_component_scores_restore_what_rank_fusion_throws_away(
    run: Path, sample: Path, tmp_path: Path, capfd: Printed
) -> None:
    options = ("--policy", "probability", "--max-loss", "0.1", "--drawn", "queries")
    path = fused_with_cosine(run)
    with_components = manifest(calibrate_run(path, sample, tmp_path / "a", *options), capfd)
    ranks_alone = manifest(calibrate_run(changed(run, tmp_path, "ranks"), sample, tmp_path / "b", *options), capfd)
    skills = [found["relevance"]["brier_skill"]["mean"] for found in (with_components, ranks_alone)]
    assert skills[0] > skills[1]
    assert with_components["retriever"]["components"] == ["cosine"]
    assert "cosine: gap_to_best" in with_components["relevance"]["features"]
    assert with_components["relevance"]["expected_calibration_error"] < 0.05


@pytest.mark.parametrize("scores", ["logit", "distance"])
def test_auto_considers_the_gap_for_scores_without_shares(
    run: Path, sample: Path, tmp_path: Path, capfd: Printed, scores: str
) -> None:
    records = [json.loads(line) for line in run.read_text(encoding="utf-8").splitlines()]
    for record in records:
        for result in record["results"]:
            result["score"] = 8 * result["score"] - 4 if scores == "logit" else 2 - 2 * result["score"]
    path = tmp_path / "scores.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    options = ("--max-loss", "0.1", "--drawn", "queries", "--scores", scores)
    found = manifest(calibrate_run(path, sample, tmp_path / "a", *options), capfd)
    assert [candidate["kind"] for candidate in found["policy"]["choice"]["candidates"]] == ["probability", "gap"]
    message = failure(calibrate_run(path, sample, tmp_path / "b", "--policy", "relative", *options), capfd)
    assert f"a share of the best score means nothing for --scores {scores}; give --policy gap" in message


@pytest.fixture(scope="module")
def unanswered(tmp_path_factory: pytest.TempPathFactory, sample: Path, run: Path) -> tuple[Path, Path]:
    """The sample with questions about other subjects, which nothing answers, and its run by cosine."""
    data = shutil.copytree(sample, tmp_path_factory.mktemp("unanswered") / "data")
    texts = [question.text for question in off_topic_table() if question.language == "English"][:134]
    with (data / "queries.jsonl").open("a", encoding="utf-8") as queries:
        queries.writelines(f"{json.dumps({'_id': f'off-{row}', 'text': text})}\n" for row, text in enumerate(texts))
    with (data / "qrels" / "test.tsv").open("a", encoding="utf-8") as judgements:
        judgements.writelines(f"off-{row}\t-\t0\n" for row in range(len(texts)))
    return data, write_json(data / "dense.jsonl", dense_results(data, run.parent / "releases"))


def test_limit_on_answers_is_certified_by_scores_of_results(
    unanswered: tuple[Path, Path], tmp_path: Path, capfd: Printed
) -> None:
    data, path = unanswered
    found = manifest(calibrate_run(path, data, tmp_path / "a", "--max-answered", "0.3"), capfd)
    assert found["refusal"]["score"] == "best_similarity"
    assert found["refusal"]["certified"]
    assert found["refusal"]["limits"]["answered"]["upper"] <= 0.3


def with_words(run: Path, data: Path) -> Path:
    """Add the score `words`: the share of the query's words, weighted by rarity, that a result has."""
    lines = (data / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    documents = {document["_id"]: document["text"] for document in map(json.loads, lines)}
    places = {name: place for place, name in enumerate(documents)}
    index = LexicalIndex.of(documents.values())
    records = [json.loads(line) for line in run.read_text(encoding="utf-8").splitlines()]
    for record in records:
        positions = np.array([places[result["id"]] for result in record["results"]])
        for result, share in zip(record["results"], index.shares(query_terms(record["query"]), positions), strict=True):
            result["scores"]["words"] = float(share)
    run.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return run


def test_component_scores_refuse_questions_that_ranks_cannot_tell_apart(
    unanswered: tuple[Path, Path], tmp_path: Path, capfd: Printed
) -> None:
    data, dense = unanswered
    options = ("--max-answered", "0.3")
    message = failure(calibrate_run(changed(dense, tmp_path, "ranks"), data, tmp_path / "a", *options), capfd)
    assert "add the component scores" in message
    run = with_words(fused_with_cosine(dense), data)
    few = shutil.copytree(data, tmp_path / "few")
    rows = (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (few / "qrels" / "test.tsv").write_text("".join(rows[:-100]), encoding="utf-8")  # 34 remain without an answer
    message = failure(calibrate_run(run, few, tmp_path / "c", *options), capfd)
    assert "too few queries are judged to fit a model of the component scores" in message
    found = manifest(calibrate_run(run, data, tmp_path / "b", *options), capfd)["refusal"]
    auroc = {candidate["name"]: candidate["auroc"] for candidate in found["limits"]["candidates"]}
    assert (found["score"], found["certified"], auroc["best_similarity"]) == ("components", True, 0.5)
    assert auroc["components"] > 0.8
    gate = Gate.load(find(tmp_path / "b"))
    records = [json.loads(line) for line in run.read_text(encoding="utf-8").splitlines()]
    results = [[ScoredResult(**result) for result in record["results"]] for record in records]
    refused = [gate.cut(listed).reason == "unanswerable" for listed in results]
    off_topic = [record["query_id"].startswith("off-") for record in records]
    assert np.mean(np.array(refused)[off_topic]) > 0.6
    assert np.mean(np.array(refused)[~np.array(off_topic)]) <= found["limits"]["refused"]["upper"]
    missing = gate.cut([replace(result, scores={}) for result in results[0]])
    assert (missing.calibrated, missing.why_not) == (False, "missing_score:cosine")
    assert missing.refusal is not None
