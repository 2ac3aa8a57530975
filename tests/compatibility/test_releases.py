"""Releases of earlier versions: those of schemas that are read serve the same scores, others are refused."""

import json
import shutil
from pathlib import Path

import pytest

from taugate.cli import main as cli
from taugate.registry.catalog import current_id, find, release_ids
from taugate.release.layout import MANIFEST
from taugate.release.manifest import SCHEMA_VERSION
from taugate.release.records import SCHEMA_2
from taugate.retrieval import golden
from taugate.retrieval.reader import load
from tests.compatibility.write import DATA, FOLDER
from tests.service.process.test_process import refusal
from tests.service_process import ServiceProcess

RELEASES = FOLDER / "releases"
READ = sorted(folder.name for folder in RELEASES.glob(f"schema-[{SCHEMA_2}-{SCHEMA_VERSION}]-*"))
QUESTION = "When does the last tram leave in Graz?"


@pytest.fixture(params=READ)
def releases(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a releases directory of an earlier version, with a current release."""
    copy = shutil.copytree(RELEASES / request.param, tmp_path / "releases")
    if current_id(copy) is None:
        assert cli.main(["release", "promote", release_ids(copy)[0], "--releases", str(copy)]) == 0
    return copy


def test_fixtures_cover_every_kind() -> None:
    assert {"schema-2-baseline", "schema-2-early", "schema-2-everything", "schema-2-last"} <= set(READ)
    manifest = json.loads(next((RELEASES / "schema-2-everything").rglob(MANIFEST)).read_bytes())
    assert (manifest["index"]["kind"], manifest["policy"]["kind"]) == ("hnsw", "relative")
    assert manifest["projection"] is not None
    assert manifest["abstention"] is not None


def test_earlier_release_refuses_as_it_did(releases: Path) -> None:
    """By default, within limits, or nothing: what its manifest says of schema 2."""
    written = json.loads((find(releases) / MANIFEST).read_bytes())
    limits, by_default = written.get("abstention"), written.get("refusal")
    release = load(find(releases))
    rule, record = release.retriever.abstention, release.manifest.refusal
    if limits is None and by_default is None:
        assert rule is None
        return
    assert rule is not None
    assert record is not None
    threshold = (limits["score"], limits["tau"]) if limits else (by_default["score"], by_default["rho"])
    assert (rule.score.name, rule.tau) == record.threshold == threshold
    assert rule.within_filters == record.is_default == (limits is None)
    for kind, questions in record.evidence.items() if by_default else ():
        before = by_default[kind]
        assert (questions.queries, questions.refused) == (before["queries"], before["refused"])
        assert questions.lower == before["lower"]


def test_golden_queries_keep_recorded_scores(releases: Path) -> None:
    release = load(find(releases))
    assert len(release.golden) > 0
    golden.check(release.retriever, release.golden, release.manifest.golden_tolerance)


def test_release_commands_read_earlier_release(releases: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = find(releases).name
    for action, out in (("list", f"* {name}"), ("verify", f"ok {name}"), ("show", "{")):
        assert cli.main(["release", action, "--releases", str(releases)]) == 0
        assert capfd.readouterr().out.startswith(out)
    document = json.loads((DATA / "corpus.jsonl").read_text().splitlines()[0])["_id"]
    assert cli.main(["release", "erase", name, document, "--releases", str(releases)]) == 0
    erased = capfd.readouterr().out.strip()
    assert cli.main(["release", "diff", erased, "--releases", str(releases)]) == 0
    assert cli.main(["release", "promote", erased, "--releases", str(releases)]) == 0
    assert cli.main(["release", "rollback", "--releases", str(releases)]) == 0
    assert current_id(releases) == name


def test_earlier_release_is_served(releases: Path) -> None:
    written = json.loads((find(releases) / MANIFEST).read_bytes())
    with ServiceProcess(releases).ready() as service:
        reply = service.http.post("/search", json={"query": QUESTION, "min_results": 1}).json()
        assert service.http.get("/release").json()["manifest"]["taugate_version"] == written["taugate_version"]
    assert reply["release"] == find(releases).name
    assert reply["results"][0]["id"] == "graz-tram"


def test_calibration_continues_from_earlier_release(
    releases: Path, encoder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = current_id(releases)
    assert cli.main(["calibrate", str(DATA), "--releases", str(releases), "--encoder", str(encoder)]) == 0
    assert load(find(releases)).manifest.parent == before
    if (releases / str(before) / "outcomes.safetensors").exists():
        command = ["calibrate", str(DATA), "--releases", str(releases), "--encoder", str(encoder), "--seed", "1"]
        assert cli.main([*command, "--max-accuracy-drop", "0.5"]) == 0


def test_schema_1_is_refused_with_remedy(capfd: pytest.CaptureFixture[str]) -> None:
    path = RELEASES / "schema-1"
    name = release_ids(path)[0]
    message = f"{path / name / MANIFEST}: schema version 1, this taugate reads 2 and 3; calibrate with this version"
    assert message in refusal("--releases", str(path))
    assert cli.main(["release", "verify", "--releases", str(path)]) == 1
    assert message in capfd.readouterr().err
    assert cli.main(["release", "list", "--releases", str(path)]) == 0
    assert capfd.readouterr().out.startswith(f"* {name}")


def test_later_schema_asks_for_upgrade(tmp_path: Path) -> None:
    """So does the version before, which reads 2, of a release of this one."""
    releases = shutil.copytree(RELEASES / READ[0], tmp_path / "releases")
    path = find(releases) / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"schema_version": SCHEMA_VERSION + 1}))
    message = f"schema version {SCHEMA_VERSION + 1}, this taugate reads 2 and 3; upgrade the services first, then the"
    assert message in refusal("--releases", str(releases))
