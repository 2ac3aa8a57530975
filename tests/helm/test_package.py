"""The chart as an archive: it holds what it shows, as links do not leave a repository."""

from pathlib import Path

import helm_python

from tests.helm.rendered import CHART, VARIANTS, render


def test_an_archive_renders_what_the_folder_does(tmp_path: Path) -> None:
    archive = helm_python.package(CHART, destination=tmp_path)
    assert Path(archive).parent == tmp_path
    with helm_python.Chart.load(archive) as chart:
        texts = chart.render(VARIANTS["all"], name="shop", namespace="team", revision=1)
    folder = render(VARIANTS["all"])
    assert {path.removeprefix("taugate/templates/"): text for path, text in texts.items() if text.strip()} == {
        **folder.texts,
        "NOTES.txt": folder.notes,
    }


def test_an_archive_leaves_out_what_only_tests_need(tmp_path: Path) -> None:
    with helm_python.Chart.load(helm_python.package(CHART, destination=tmp_path)) as chart:
        names = {each["name"] for each in chart.files}
    assert not any(name.startswith("ci/") for name in names)
    assert {"README.md", "values-gpu.yaml", "files/search.py", "files/rules/taugate.alerts.yml"} <= names
