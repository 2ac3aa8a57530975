"""The chart's README and its notes: their commands and values are valid and have the described effect."""

import itertools
import re
import shlex

import pytest
import yaml
from helm_python import parse_set_json, parse_set_string

from helm.values.settings import ServiceSettings
from tests.helm.rendered import CHART, KEYS, VARIANTS, Values, at, merged, render

README = (CHART / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)


def commands(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip().startswith("helm ")]


def given(command: list[str]) -> Values:
    parsers = {"--set": parse_set_string, "--set-json": parse_set_json}
    pairs = itertools.pairwise(command)
    return merged(*(parsers[option](value) for option, value in pairs if option in parsers))


SHELL = [command for kind, text in BLOCKS if kind == "sh" for command in commands(text)]


def test_readme_commands_work_in_sequence() -> None:
    values: Values = {}
    ran = []
    assert len(SHELL) >= 5
    for command in SHELL:
        assert command[1] in {"install", "upgrade", "test"}
        assert ("--reset-then-reuse-values" in command) == (command[1] == "upgrade")
        values = merged(values, given(command))
        (job,) = render(values).of("Job") or [None]
        ran.append(job and job["spec"]["template"]["spec"]["containers"][0]["args"][:2])
    assert values["image"]["repository"] == "registry.example.org/taugate/service"
    assert values["recalibration"]["image"] == "registry.example.org/taugate/calibration"
    # What an upgrade was given stays: each Job is turned off again, and a calibration after a command is one.
    assert [args for args in ran if args] == [["calibrate", "/data"], ["release", "promote"]]
    assert [args is None for args in ran[2:]] == [False, True, False, True, *[True] * (len(ran) - 6)]
    (calibration,) = [command for command in SHELL if "recalibration.data.existingClaim=labelled-data" in command]
    command = at("recalibration.job.arguments", ["release", "list"])
    (container,) = render(merged(values, command, given(calibration))).job["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["calibrate", "/data"]


def test_readme_values_are_valid() -> None:
    values = [part for kind, text in BLOCKS if kind == "yaml" for part in yaml.safe_load_all(text)]
    for part in values:
        if "apiVersion" not in part:
            assert render(KEYS, part).of("CronJob")
    objects = {part["kind"]: part["spec"] for part in values if "apiVersion" in part}
    source = objects["Application"]["source"]
    assert all((CHART / name).exists() for name in source["helm"]["valueFiles"])
    chart = objects["HelmRelease"]["chart"]["spec"]["chart"]
    assert source["path"] == chart == str(CHART.relative_to(CHART.parents[1]))
    installed = [name["metadata"]["name"].replace("shop-", "") for name in render(KEYS).objects]
    assert objects["VolumeSnapshot"]["source"]["persistentVolumeClaimName"] in installed
    assert objects["ScaledObject"]["scaleTargetRef"]["name"] in installed


@pytest.mark.parametrize("name", VARIANTS)
def test_notes_commands_start_one_calibration(name: str) -> None:
    values = VARIANTS[name]
    wanted, *off = [command for command in commands(render(values).notes) if command[1] == "upgrade"]
    following = merged(values, given(wanted))
    spec = render(following).job["spec"]["template"]["spec"]
    assert spec.get("initContainers", spec["containers"])[0]["args"][0] == "calibrate"
    reload_seconds = values.get("settings", {}).get("reload_seconds")
    assert following["settings"]["reload_seconds"] == (reload_seconds or 60)
    assert len(off) == bool(render(values).of("Job"))
    for command in off:
        assert render(merged(values, given(command))).of("Job") == []


@pytest.mark.parametrize(
    "releases", [{"url": "s3://bucket/team"}, {"volume": {"accessMode": "ReadOnlyMany", "existingClaim": "ours"}}]
)
def test_notes_contain_no_refused_command(releases: Values) -> None:
    notes = render(KEYS, {"releases": releases}).notes
    assert [command for command in commands(notes) if command[1] == "upgrade"] == []
    assert "taugate calibrate DATA --releases DIR`" in notes
    trusted = render(KEYS, {"releases": releases}, at("trustedKeys.existingSecret", "trusted")).notes
    assert "taugate calibrate DATA --releases DIR --sign-with PEM`" in trusted


def test_readme_links_resolve() -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README):
        assert (CHART / link).exists(), link
    for path in re.findall(r"`((?:helm|deploy)/[\w./-]+)`", README):
        assert (CHART.parents[1] / path).exists(), path
    text = README.split("## Values")[0]
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    groups = "|".join(values)
    for name in re.findall(rf"`((?:{groups})\.[\w.]+)", text):
        found = values
        for part in name.split("."):
            if found == {} and name.startswith("settings."):
                found = ServiceSettings.model_fields
            assert part in found, name
            found = found[part]
