"""`taugate recalibrate` from end to end: what it promotes, what it refuses, and that it goes on where it was killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taugate.calibration.recalibration.request import STATE
from taugate.cli import main as cli
from taugate.registry import history, promotion
from taugate.registry.catalog import current_id, release_ids, shadow_id
from taugate.release.verify import verify_searchable
from tests.calibration.commands import Printed
from tests.calibration.update.corpora import garbled, mixed_changes, newer
from tests.data.traffic_log import TrafficLog
from tests.registry.conftest import copy, first
from tests.release.clones import clone

__all__ = ["copy", "first"]

HOLDS, FAILS = ("--max-accuracy-drop", "0.2"), ("--max-accuracy-drop", "0.000001")
JOB = "taugate.calibration.recalibration.job"


class Recalibrating:
    """The command: exit code, what --json prints, and stderr."""

    def __init__(self, capfd: Printed, data: Path, releases: Path) -> None:
        self.capfd, self.data, self.releases = capfd, data, releases

    @property
    def command(self) -> list[str]:
        return ["recalibrate", str(self.data), "--releases", str(self.releases), "--json"]

    def __call__(self, *more: str) -> tuple[int, dict[str, Any], str]:
        self.capfd.readouterr()
        code = cli.main([*self.command, *more])
        printed = self.capfd.readouterr()
        assert "Traceback" not in printed.err
        return code, json.loads(printed.out) if printed.out else {}, printed.err

    def killed(self, when: str, module: str, name: str, *more: str) -> None:
        program = [sys.executable, "-m", "tests.calibration.recalibration.killed", when, module, name]
        done = subprocess.run([*program, *self.command, *more], check=False, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def relabelled(data: Path) -> Path:
    """The data set with one more labelled query."""
    document = json.loads((data / "corpus.jsonl").read_text().splitlines()[0])["_id"]
    with (data / "queries.jsonl").open("a") as queries, (data / "qrels" / "test.tsv").open("a") as qrels:
        queries.write('{"_id": "late", "text": "When does the office open?"}\n')
        qrels.write(f"late\t{document}\t1\n")
    return data


@pytest.fixture
def recalibrate(sample: Path, copy: Path, tmp_path: Path, capfd: Printed) -> Recalibrating:
    """On a newer corpus, beside the release of the older one."""
    return Recalibrating(capfd, newer(sample, tmp_path / "zaragoza", mixed_changes), copy)


def promotions(releases: Path) -> list[str | None]:
    return [event.release for event in history.read(releases).events if event.action == "promote"]


def test_changed_documents_keep_threshold(recalibrate: Recalibrating, copy: Path, first: str) -> None:
    code, printed, error = recalibrate(*HOLDS)
    assert code == 0
    assert (printed["previous"], printed["promoted"], printed["refusal"], printed["resumed"]) == (first, True, None, [])
    assert printed["verdict"]["path"] == "check"
    assert printed["changed"] == {"added": 5, "changed": 5, "removed": 0}
    assert 0 <= printed["loss"]["lower"] <= printed["loss"]["mean"] <= printed["loss"]["upper"] <= 1
    assert printed["gate"]["clauses"][0]["finding"] == "holds"
    assert current_id(copy) == printed["release"] != first
    old, new = verify_searchable(copy / first), verify_searchable(copy / printed["release"])
    assert (new.parent, new.bootstrap, new.encoder, new.policy) == (first, old.bootstrap, old.encoder, old.policy)
    assert new.data.documents == old.data.documents + 5
    assert "Verdict     Checked: the documents changed, and the threshold still holds: on " in error
    assert "Promoted in place of" in error
    assert not (copy / STATE).exists()
    assert recalibrate()[1]["verdict"]["path"] == "nothing"


def test_changed_labels_are_calibrated(recalibrate: Recalibrating, sample: Path, tmp_path: Path, copy: Path) -> None:
    recalibrate.data = relabelled(newer(sample, tmp_path / "relabelled", lambda documents: documents))
    first = verify_searchable(copy / str(current_id(copy)))
    code, printed, error = recalibrate(*HOLDS)
    assert (code, printed["promoted"], printed["verdict"]["path"]) == (0, True, "calibration")
    assert "Verdict     New calibration: the labels changed (queries and qrels)." in error
    new = verify_searchable(copy / printed["release"])
    assert (new.bootstrap, new.encoder) == (first.bootstrap, first.encoder)
    assert (new.policy.method, new.policy.k, new.data.split) == (first.policy.method, first.policy.k, first.data.split)
    assert (new.update, new.data.answerable) == (None, first.data.answerable + 1)


def test_unchanged_data_write_no_release(recalibrate: Recalibrating, sample: Path, copy: Path, first: str) -> None:
    recalibrate.data = sample
    code, printed, error = recalibrate()
    assert (code, printed["release"], printed["promoted"], printed["changed"]) == (0, first, False, None)
    assert printed["verdict"]["path"] == "nothing"
    assert error.splitlines()[-1].startswith(
        "Nothing to do: the documents and labels are those of the current release."
    )
    assert release_ids(copy) == [first]


def test_same_documents_in_other_bytes_write_no_release(
    recalibrate: Recalibrating, sample: Path, tmp_path: Path, copy: Path, first: str
) -> None:
    recalibrate.data = newer(sample, tmp_path / "rewritten", lambda documents: documents)
    corpus = recalibrate.data / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes().replace(b'", "', b'",  "'))
    code, printed, _ = recalibrate()
    assert (code, printed["verdict"]["path"], release_ids(copy)) == (0, "nothing", [first])


def test_threshold_that_no_calibration_replaces_is_inherited(
    recalibrate: Recalibrating, sample: Path, copy: Path, first: str, tmp_path: Path
) -> None:
    """A threshold that was given has no rule by which another one could be chosen."""

    def adjusted(manifest: dict[str, Any]) -> None:
        manifest["policy"]["method"] = "fixed"

    promotion.promote(copy, clone(copy / first, 1, adjusted, parent=first))
    recalibrate.data = newer(sample, tmp_path / "garbled", garbled)
    code, printed, error = recalibrate()
    assert (code, printed["promoted"], printed["verdict"]["path"]) == (4, False, "calibration")
    assert verify_searchable(copy / printed["release"]).state == "inherited"
    assert "A new calibration cannot certify it either: " in error.splitlines()[-1]
    assert "its threshold was given with --tau" in error.splitlines()[-1]
    code, again, _ = recalibrate()
    assert (code, again["release"], again["resumed"]) == (4, printed["release"], ["calibrate"])
    recalibrate.data = relabelled(recalibrate.data)
    assert recalibrate()[0] == 2


def test_failed_rule_is_not_promoted(recalibrate: Recalibrating, copy: Path, first: str) -> None:
    code, printed, error = recalibrate(*FAILS)
    assert code == 4
    assert (printed["promoted"], current_id(copy)) == (False, first)
    assert 'the promotion rule does not hold: "accuracy not lower by more than 1e-06"' in printed["refusal"]
    assert printed["refusal"] in error.splitlines()[-1]
    code, again, _ = recalibrate(*FAILS)
    assert (code, again["release"], again["resumed"]) == (4, printed["release"], ["calibrate"])
    assert len(release_ids(copy)) == 2, "the same data are not calibrated twice"
    code, other, _ = recalibrate(*HOLDS)
    assert (code, other["release"], other["promoted"]) == (0, printed["release"], True)


def test_no_promote_writes_release(recalibrate: Recalibrating, copy: Path, first: str) -> None:
    code, printed, error = recalibrate("--no-promote")
    assert (code, printed["promoted"], printed["refusal"], current_id(copy)) == (0, False, None, first)
    assert "because of --no-promote" in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "resumed"),
    [
        pytest.param(("before", JOB, "calibrate"), [], marks=pytest.mark.exhaustive),
        (("before", "taugate.registry.writer", "write"), []),
        (("after", "taugate.registry.writer", "write"), ["calibrate"]),
        pytest.param(("after", JOB, "decide"), ["calibrate"], marks=pytest.mark.exhaustive),
        (("before", "taugate.registry.promotion", "_move_pointer"), ["calibrate"]),
        (("after", "taugate.registry.promotion", "promote"), ["calibrate", "promote"]),
    ],
)
def test_killed_recalibration_resumes(
    recalibrate: Recalibrating, copy: Path, moment: tuple[str, str, str], resumed: list[str]
) -> None:
    relabelled(recalibrate.data)
    recalibrate.killed(*moment, *HOLDS)
    code, printed, _ = recalibrate(*HOLDS)
    assert (code, printed["promoted"], printed["resumed"]) == (0, True, resumed)
    assert current_id(copy) == printed["release"]
    assert promotions(copy)[-1] == printed["release"]
    assert promotions(copy).count(printed["release"]) == 1
    assert len(release_ids(copy)) == 2, "the same release is not written twice"
    for each in release_ids(copy):
        verify_searchable(copy / each)
    assert not (copy / STATE).exists()
    assert recalibrate()[1]["release"] == printed["release"], "and nothing is left to do"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "resumed"),
    [
        (("before", "taugate.registry.promotion", "_move_pointer"), ["calibrate"]),
        (("after", "taugate.registry.promotion", "promote"), ["calibrate", "promote"]),
    ],
)
def test_killed_check_resumes(
    recalibrate: Recalibrating, copy: Path, moment: tuple[str, str, str], resumed: list[str]
) -> None:
    recalibrate.killed(*moment)
    code, printed, _ = recalibrate()
    assert (code, printed["promoted"], printed["resumed"]) == (0, True, resumed)
    assert (printed["verdict"]["path"], len(release_ids(copy))) == ("check", 2)
    assert recalibrate()[1]["verdict"]["path"] == "nothing"


def test_changed_input_repeats_affected_steps(recalibrate: Recalibrating, copy: Path) -> None:
    _, before, _ = recalibrate(*FAILS)
    with (recalibrate.data / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "late", "text": "The office opens at nine on Mondays."}\n')
    _, after, _ = recalibrate(*HOLDS)
    assert after["release"] != before["release"]
    assert (after["resumed"], after["changed"]["added"], after["promoted"]) == ([], 6, True)


def test_manual_promotion_does_not_block_recalibration(recalibrate: Recalibrating, copy: Path) -> None:
    _, refused, _ = recalibrate(*FAILS)
    assert cli.main(["release", "promote", refused["release"], "--releases", str(copy)]) == 0
    with (recalibrate.data / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "late", "text": "The office opens at nine on Mondays."}\n')
    _, printed, _ = recalibrate(*HOLDS)
    assert (printed["previous"], printed["changed"]["added"], printed["promoted"]) == (refused["release"], 1, True)


def test_weak_evidence_is_refused_before_trial(recalibrate: Recalibrating, copy: Path, first: str) -> None:
    for name in ("queries.jsonl", "qrels/test.tsv"):  # twenty queries are too few for a calibrated release
        lines = (recalibrate.data / name).read_text().splitlines(keepends=True)
        kept = lines[:21] if name.endswith(".tsv") else lines
        (recalibrate.data / name).write_text("".join(kept))
    code, printed, error = recalibrate("--url", "http://127.0.0.1:9", "--shadow-seconds", "60")
    assert (code, printed["shadow"], current_id(copy)) == (4, None, first)
    assert "provisional" in printed["refusal"]
    assert "trying" not in error


@pytest.mark.slow
def test_judged_traffic_is_added(recalibrate: Recalibrating, copy: Path, tmp_path: Path) -> None:
    path = tmp_path / "queries.log"
    documents = [json.loads(line)["_id"] for line in (recalibrate.data / "corpus.jsonl").read_text().splitlines()[:2]]
    log = TrafficLog(collection="zaragoza")
    log.judged(log.asked("When does the office open?", documents), documents[1])
    log.write(path)
    recalibrate.killed("before", JOB, "calibrate", "--log", str(path))
    assert (recalibrate.data / "qrels" / "traffic.tsv").is_file()
    code, printed, error = recalibrate("--log", str(path))
    assert (code, printed["resumed"], printed["traffic"]) == (
        0,
        ["traffic"],
        {"queries": 1, "judgements": 1, "left_out": {}},
    )
    assert "Judged traffic: 1 query with 1 judgement." in error


def test_log_without_judgements_is_ignored(recalibrate: Recalibrating, tmp_path: Path) -> None:
    path = tmp_path / "queries.log"
    log = TrafficLog(collection="zaragoza")
    log.asked("When does the office open?", ["d1"])
    code, printed, error = recalibrate("--log", str(log.write(path)))
    assert (code, printed["promoted"], printed["traffic"]["queries"]) == (0, True, 0)
    assert "warning: " in error


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-accuracy-drop", "nonsense"], "--max-accuracy-drop"),
        ([*HOLDS, "--no-promote"], "--no-promote promotes nothing"),
        (["--url", "127.0.0.1:8000"], "not the address of a service"),
        (["--shadow", "3"], "--shadow 3: too few"),
        (["--log", "nowhere.log"], "nowhere.log: no such file"),
    ],
)
def test_invalid_input_writes_nothing(
    recalibrate: Recalibrating, copy: Path, first: str, more: list[str], message: str
) -> None:
    code, _, error = recalibrate(*more)
    assert code == 2
    assert message in error
    assert release_ids(copy) == [first]
    assert not (copy / STATE).exists()


def test_invalid_state_file_is_rejected(recalibrate: Recalibrating, copy: Path) -> None:
    (copy / STATE).write_text("{}")
    code, _, error = recalibrate()
    assert code == 2
    assert "remove the file" in error


def test_missing_current_release_explains_remedy(sample: Path, tmp_path: Path, capfd: Printed) -> None:
    code, _, error = Recalibrating(capfd, sample, tmp_path / "none")()
    assert code != 0
    assert "run `taugate calibrate" in error or "`taugate calibrate DATA --releases" in error
    assert not (tmp_path / "none").exists()


def test_failed_trial_removes_shadow(recalibrate: Recalibrating, copy: Path) -> None:
    code, printed, _ = recalibrate("--url", "http://127.0.0.1:9", "--shadow-seconds", "0.5")
    assert code == 4
    assert "http://127.0.0.1:9 did not respond" in printed["refusal"]
    assert "on 0 of 200 queries" in printed["refusal"]
    assert shadow_id(copy) is None
