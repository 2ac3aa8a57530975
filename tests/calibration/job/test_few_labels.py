"""`taugate calibrate --labels`: few judged queries of a set whose other queries say what is true."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from taugate.calibration.recalibration.request import inherited_settings
from taugate.cli import main as cli
from taugate.data.generation.generate import generate_crops
from taugate.registry.catalog import current_id
from taugate.release.manifest import Manifest
from taugate.retrieval.reader import load
from tests.calibration.commands import Capture, Printed, arguments, refusal, small

HEADER = "query-id\tcorpus-id\tscore"


def rows_of(data: Path, split: str = "test") -> dict[str, str]:
    """The line of each query in a split where each has one."""
    lines = (data / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return {line.split("\t")[0]: line for line in lines}


def write_qrels(data: Path, split: str, lines: list[str], header: str = HEADER) -> None:
    (data / "qrels" / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def cropped(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """The sample with 300 generated queries."""
    data = Path(shutil.copytree(sample, tmp_path_factory.mktemp("cropped") / "data"))
    generate_crops(data, 300, 0)
    return data


def judged(data: Path, to: Path, count: int) -> Path:
    """A copy in which people judged `count` of the queries, drawn at random."""
    copy = Path(shutil.copytree(data, to / "few"))
    rows = rows_of(data)
    write_qrels(copy, "human", [rows[name] for name in random.Random(0).sample(sorted(rows), count)])  # noqa: S311
    return copy


def test_fifty_labels_agree_with_all_labels(
    tmp_path: Path, cropped: Path, sample: Path, encoder: Path, calibrate: Capture
) -> None:
    _, everything, _ = calibrate(sample, tmp_path / "all", encoder, "--max-loss", "0.1", "--policy", "similarity")
    truth = everything["calibration"]["accuracy"]["accuracy"]
    data = judged(cropped, tmp_path, 50)
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, "--labels", "human", "--max-loss", "0.2")
    assert code == 0
    found = manifest["labels"]
    assert (found["judged"], found["answerable"], found["unjudged"]) == (50, 50, 453)
    assert (found["splits"], found["machine"], found["effective"]) == (["human"], "generated", pytest.approx(50))
    both, alone = found["both"]["accuracy"], found["alone"]["accuracy"]
    for interval in (both, alone, manifest["metrics"]["calibration"]["accuracy"]):
        assert interval["lower"] <= truth <= interval["upper"]
    assert both == {name: manifest["metrics"]["calibration"]["accuracy"][name] for name in ("mean", "lower", "upper")}
    assert both["upper"] - both["lower"] <= 1.05 * (alone["upper"] - alone["lower"])
    assert found["machine_only"]["accuracy"] != pytest.approx(truth, abs=0.001)
    assert 0 < found["accuracy"]["r2"] < 1
    policy, tau = manifest["policy"], found["both"]["tau"]
    assert (policy["kind"], policy["method"], policy["statement"]) == ("similarity", "risk-control", "labels")
    assert policy["tau"] == tau["safe"] <= tau["value"] <= tau["upper"]
    assert policy["certificates"][0]["bound"] <= 0.2
    assert manifest["calibration"]["state"] == "calibrated"
    assert "50 judged queries, and 453 unjudged queries from people." in error
    for source in ("labels alone", "machine alone", "both"):
        assert any(line.startswith(source) for line in error.splitlines())
    report = (tmp_path / "r" / manifest["release_id"] / "report.html").read_text(encoding="utf-8")
    assert '<section id="labels">' in report
    assert load(tmp_path / "r" / manifest["release_id"]).manifest.labels is not None


@pytest.mark.parametrize(("count", "state"), [(29, "provisional"), (30, "calibrated")])
def test_thirty_judged_queries_make_release_calibrated(
    tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture, count: int, state: str
) -> None:
    code, manifest, _ = calibrate(judged(cropped, tmp_path, count), tmp_path / "r", encoder, "--labels", "human")
    assert (code, manifest["calibration"]["state"], manifest["calibration"]["human"]) == (0, state, count)
    assert manifest["calibration"]["generated"] == 0
    assert (manifest["policy"]["method"], manifest["labels"].get("most")) == ("bootstrap", None)
    assert manifest["labels"]["both"].get("tau") is None
    assert manifest["bootstrap"]["holdout"] == 0


def test_no_unjudged_queries_uses_labels_alone(tmp_path: Path, sample: Path, encoder: Path, calibrate: Capture) -> None:
    data = judged(sample, tmp_path, 40)
    asked = rows_of(data, "human").keys()
    lines = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if json.loads(line)["_id"] in asked]
    (data / "queries.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    _, manifest, error = calibrate(data, tmp_path / "r", encoder, "--labels", "human")
    found = manifest["labels"]
    assert (found.get("machine"), found.get("machine_only"), found["both"]) == (None, None, found["alone"])
    hits = round(40 * found["alone"]["accuracy"]["mean"])
    exact = stats.binomtest(hits, 40).proportion_ci(confidence_level=0.95, method="exact")
    np.testing.assert_allclose([found["both"]["accuracy"][end] for end in ("lower", "upper")], [exact.low, exact.high])
    assert "so only the labels are used" in error


def test_few_misses_use_labels_alone(tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture) -> None:
    data, own = small(tmp_path, 60)
    rows = rows_of(data)
    write_qrels(data, "human", [*rows.values()][:40])
    _, manifest, _ = calibrate(data, tmp_path / "r", own, "--labels", "human")
    found = manifest["labels"]
    assert found["machine"] == "similarity"
    assert (found["both"]["accuracy"], found["accuracy"]["weight"]) == (found["alone"]["accuracy"], 0)


def test_query_weights_change_estimates(
    tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture, capfd: Printed
) -> None:
    data = judged(cropped, tmp_path, 50)
    _, plain, _ = calibrate(data, tmp_path / "plain", encoder, "--labels", "human")
    lines = [f"{row}\t{2 + 8 * (number % 2)}" for number, row in enumerate(rows_of(data, "human").values())]
    write_qrels(data, "human", lines, f"{HEADER}\tweight")
    message = refusal(arguments(data, tmp_path / "no", encoder, "--split", "human"), tmp_path / "no", capfd)
    assert "the queries of split human have weights" in message
    assert message.endswith("calibrate with --labels human, which uses the weights")
    _, manifest, _ = calibrate(data, tmp_path / "r", encoder, "--labels", "human")
    found = manifest["labels"]
    assert found["effective"] == pytest.approx(50 * 6**2 / (0.5 * (2**2 + 10**2)))
    assert found["alone"]["accuracy"]["mean"] != pytest.approx(plain["labels"]["alone"]["accuracy"]["mean"], abs=1e-6)
    lines = [row.rpartition("\t")[0] + "\t7" for row in lines]
    write_qrels(data, "human", lines, f"{HEADER}\tweight")
    _, same, _ = calibrate(data, tmp_path / "same", encoder, "--labels", "human")
    assert same["labels"]["both"]["accuracy"] == pytest.approx(plain["labels"]["both"]["accuracy"], rel=1e-12)


def test_traffic_counts_for_loss_only(tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture) -> None:
    data = judged(cropped, tmp_path, 40)
    _, human, _ = calibrate(data, tmp_path / "human", encoder, "--labels", "human")
    rows, people = rows_of(data), rows_of(data, "human")
    others = [row for name, row in rows.items() if name not in people][:60]
    twice = [*people.values()][:5]  # judged whole by people, and so not by what was shown
    write_qrels(data, "traffic", [f"{row}\t3.5" for row in [*others, *twice]], f"{HEADER}\tweight")
    _, manifest, _ = calibrate(data, tmp_path / "r", encoder, "--labels", "human,traffic", "--max-loss", "0.3")
    found = manifest["labels"]
    assert (found["splits"], found["judged"], found["unjudged"]) == (["human", "traffic"], 100, 463)
    assert found["alone"]["accuracy"]["mean"] == human["labels"]["alone"]["accuracy"]["mean"]
    assert found["both"]["accuracy"] == human["labels"]["both"]["accuracy"]
    assert (found["loss"]["weight"], found["both"]["loss"]) == (0, found["alone"]["loss"])
    assert manifest["calibration"]["accuracy"] == human["calibration"]["accuracy"]
    assert manifest["policy"]["certificates"][0]["queries"] == 100
    assert manifest["calibration"]["human"] == 100
    assert manifest["data"]["split"] == "human"
    assert manifest["data"]["sha256"]["qrels"] != human["data"]["sha256"]["qrels"]


def test_traffic_without_relevant_result_is_ignored(
    tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture
) -> None:
    """Users did not see the other documents. What is there because users judged it is no random query."""
    data = judged(cropped, tmp_path, 40)
    rows, people = rows_of(data), rows_of(data, "human")
    asked = [name for name in rows if name not in people][:20]
    queries = data / "queries.jsonl"
    lines = [json.loads(line) for line in queries.read_text(encoding="utf-8").splitlines()]
    lines = [line | {"origin": "traffic"} if line["_id"] in asked else line for line in lines]
    queries.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    shown = [*(rows[name] for name in asked[:15]), *(rows[name].removesuffix("1") + "0" for name in asked[15:])]
    write_qrels(data, "traffic", shown)
    _, both, _ = calibrate(data, tmp_path / "both", encoder, "--labels", "human,traffic")
    assert (both["labels"]["judged"], both["labels"]["unjudged"], both["data"]["unanswerable"]) == (55, 443, 0)
    _, human, _ = calibrate(data, tmp_path / "human", encoder, "--labels", "human")
    assert (human["labels"]["judged"], human["labels"]["unjudged"]) == (40, 443)


def test_unanswerable_queries_are_left_out(tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture) -> None:
    data = judged(cropped, tmp_path, 50)
    rows = [*rows_of(data, "human").values()]
    write_qrels(data, "human", [*rows[:40], *(row.removesuffix("1") + "0" for row in rows[40:])])
    _, manifest, error = calibrate(data, tmp_path / "r", encoder, "--labels", "human")
    found = manifest["labels"]
    assert (found["judged"], found["answerable"]) == (50, 40)
    hits = 40 * found["alone"]["accuracy"]["mean"]
    assert hits == pytest.approx(round(hits))
    assert "50 judged queries, 40 of them with an answer" in error


def test_unjudged_queries_use_accepted_projection(
    tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture
) -> None:
    """Through the projection, which the gate admits here whatever it loses."""
    data, own = judged(cropped, tmp_path, 50), ("--labels", "human")
    _, plain, _ = calibrate(data, tmp_path / "plain", encoder, *own)
    _, manifest, _ = calibrate(
        data, tmp_path / "r", encoder, *own, "--projection", "query-pca", "--retention", "0.2", "--margin", "0.9"
    )
    assert manifest["projection"]["dimension"] < manifest["encoder"]["dimension"]
    assert manifest["labels"]["unjudged"] == 453
    assert manifest["labels"]["machine_only"] != plain["labels"]["machine_only"]


def test_update_keeps_label_record(tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture) -> None:
    """A recalibration reads from it that weights count."""
    data = judged(cropped, tmp_path, 40)
    lines = [f"{row}\t{2 + number % 2}" for number, row in enumerate(rows_of(data, "human").values())]
    write_qrels(data, "human", lines, f"{HEADER}\tweight")
    _, before, _ = calibrate(data, tmp_path / "r", encoder, "--labels", "human", "--max-loss", "0.3")
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as corpus:
        corpus.write(json.dumps({"_id": "new", "text": "Permits for cranes are given by the city."}) + "\n")
    assert cli.main(["update", str(data), "--releases", str(tmp_path / "r"), "--force"]) == 0
    updated = load(tmp_path / "r" / str(current_id(tmp_path / "r"))).manifest
    assert updated.release_id != before["release_id"]
    assert updated.labels == Manifest.model_validate(before).labels
    assert inherited_settings(updated).labels == ("human",)


def test_too_few_labels_give_no_threshold(tmp_path: Path, cropped: Path, encoder: Path, calibrate: Capture) -> None:
    data = judged(cropped, tmp_path, 50)
    code, manifest, error = calibrate(data, tmp_path / "r", encoder, "--labels", "human", "--max-loss", "0.02")
    assert (code, manifest["policy"]["kind"], manifest["labels"]["both"]["tau"].get("safe")) == (3, "none", None)
    assert manifest["labels"]["both"]["loss"] == {"mean": 0.0, "lower": 0.0, "upper": 0.0}
    assert "labels alone need 149 or more" in error.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--labels", "test"], "--labels test: give human, or human,traffic"),
        (["--labels", "traffic"], "give human, or human,traffic"),
        (["--labels", "human", "--holdout", "0.3"], "--holdout 0.3: cannot be combined with --labels human"),
        (
            ["--labels", "human", "--policy", "probability"],
            "--policy probability: cannot be combined with --labels human",
        ),
        (["--labels", "human", "--max-loss", "0.1,0.2"], "--max-loss with several: cannot be combined with"),
        (["--labels", "human", "--guarantee", "expected-loss"], "--guarantee expected-loss: cannot be combined with"),
        (["--labels", "human"], "human.tsv: no such file"),
    ],
)
def test_incompatible_label_options_are_rejected(
    tmp_path: Path, sample: Path, encoder: Path, capfd: Printed, options: list[str], message: str
) -> None:
    assert message in refusal(arguments(sample, tmp_path / "r", encoder, *options), tmp_path / "r", capfd)


def test_generated_judgements_alone_are_rejected(tmp_path: Path, cropped: Path, encoder: Path, capfd: Printed) -> None:
    data = judged(cropped, tmp_path, 1)
    write_qrels(data, "human", [*rows_of(data, "generated").values()][:10])
    message = refusal(arguments(data, tmp_path / "r", encoder, "--labels", "human"), tmp_path / "r", capfd)
    assert "no query by people has a document with score 1 or more" in message
