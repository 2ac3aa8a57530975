"""The chart as an archive, which contains the files behind its links."""

from pathlib import Path

import helm_python

from tests.helm.rendered import CHART, VARIANTS, render


def test_archive_renders_like_folder(tmp_path: Path) -> None:
    archive = helm_python.package(CHART, destination=tmp_path)
    assert Path(archive).parent == tmp_path
    with helm_python.Chart.load(archive) as chart:
        texts = chart.render(VARIANTS["all"], name="shop", namespace="team", revision=1)
    folder = render(VARIANTS["all"])
    assert {path.removeprefix("taugate/templates/"): text for path, text in texts.items() if text.strip()} == {
        **folder.texts,
        "NOTES.txt": folder.notes,
    }


def test_archive_excludes_test_files(tmp_path: Path) -> None:
    with helm_python.Chart.load(helm_python.package(CHART, destination=tmp_path)) as chart:
        names = {file["name"] for file in chart.files}
    assert not any(name.startswith("ci/") for name in names)
    assert {"README.md", "values-gpu.yaml", "files/search.py", "files/rules/taugate.alerts.yml"} <= names
