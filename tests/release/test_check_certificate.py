"""Figures are recomputed from evidence.json, and a release that was changed and made to fit is found."""

import ast
import json
import random
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks.certificate.edits import KINDS, edit
from taugate.cli import main as cli
from taugate.registry.catalog import find
from taugate.release import check_certificate
from taugate.release.layout import CHECK, EVIDENCE, MANIFEST
from tests.calibration.commands import arguments

PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
OPTIONS = {
    "papers": (),
    "certified": ("--max-loss", "0.05,0.1"),
    "average": ("--max-loss", "0.05", "--guarantee", "expected-loss", "--max-empty", "0.3"),
    "cut alone": ("--method", "non-inferiority", "--max-loss", "0.05", "--refuse", "off"),
}


@pytest.fixture(scope="module", params=OPTIONS)
def release(request: pytest.FixtureRequest, releases: Path, sample: Path, encoder: Path, tmp_path_factory) -> Path:
    if not OPTIONS[request.param]:
        return find(releases)
    folder = tmp_path_factory.mktemp("checked")
    assert cli.main(arguments(sample, folder, encoder, *OPTIONS[request.param], "--no-promote")) in {0, 3}
    return next(path for path in folder.iterdir() if (path / MANIFEST).exists())


def checked(release: Path) -> int:
    return cli.main(["release", "check", release.name, "--releases", str(release.parent)])


def test_script_alone_recomputes_figures(release: Path) -> None:
    script = release.parent / CHECK
    assert script.read_bytes() == Path(check_certificate.__file__).read_bytes()
    command = [sys.executable, "-I", "-S", str(script), str(release)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (said.returncode, said.stdout[:4]) == (0, "ok: "), said
    assert checked(release) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_edit_with_fitting_digests_is_found(release: Path, kind: str, tmp_path: Path) -> None:
    for seed in range(2):
        edited = edit(release, kind, random.Random(seed), tmp_path)  # noqa: S311 (no secret)
        assert edited.by_script or edited.by_command or edited.changes is None, edited


def test_evidence_has_no_text(release: Path, sample: Path) -> None:
    content = (release / EVIDENCE).read_text(encoding="utf-8")
    assert not any(json.loads(line)["text"] in content for line in (sample / "queries.jsonl").open(encoding="utf-8"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda evidence: evidence.pop("answerable"), "nothing can be recomputed from it (KeyError('answerable'))"),
        (lambda evidence: evidence["answerable"].update(grades=[]), "nothing can be recomputed from it"),
    ],
    ids=["missing", "empty"],
)
def test_damaged_evidence_gives_one_line(release: Path, tmp_path: Path, change, sentence: str) -> None:
    evidence, manifest = (json.loads((release / name).read_bytes()) for name in (EVIDENCE, MANIFEST))
    change(evidence)
    content = json.dumps(evidence).encode()
    manifest["files"][EVIDENCE]["sha256"] = sha256(content).hexdigest()
    (tmp_path / EVIDENCE).write_bytes(content)
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    (line,) = check_certificate.recompute(tmp_path)[1]
    assert sentence in line


def test_release_of_earlier_version_has_nothing_to_check(release: Path, tmp_path: Path) -> None:
    manifest = json.loads((release / MANIFEST).read_bytes())
    del manifest["files"][EVIDENCE]
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    (line,) = check_certificate.recompute(tmp_path)[1]
    assert line == "evidence.json: missing, because an earlier version wrote the release; calibrate again"


def test_page_has_the_digest_of_the_script() -> None:
    assert sha256(Path(check_certificate.__file__).read_bytes()).hexdigest() in PAGE.read_text(encoding="utf-8")


def test_page_names_lines_of_functions() -> None:
    lines = {}
    for node in ast.parse(Path(check_certificate.__file__).read_text(encoding="utf-8")).body:
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(part, ast.FunctionDef):
                lines[prefix + part.name] = (part.lineno, part.end_lineno)
    named = re.findall(r"`([a-zA-Z_.]+)` (\d+)–(\d+)", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 15
    assert {name: (int(first), int(last)) for name, first, last in named}.items() <= lines.items()
