"""The chart's README and its notes: what they tell to set can be set, and leads where they say."""

import itertools
import re
import shlex

import pytest
import yaml
from helm_python import parse_set_json, parse_set_string

from tests.helm.rendered import CHART, KEYS, VARIANTS, Values, merged, render

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


def test_the_commands_of_the_readme_can_be_given_one_after_the_other() -> None:
    values: Values = {}
    assert len(SHELL) >= 5
    for command in SHELL:
        assert command[1] in {"install", "upgrade", "test"}
        values = merged(values, given(command))
        assert render(values).objects, command
    assert values["recalibration"]["job"]["arguments"][:2] == ["release", "promote"]


def test_the_values_of_the_readme_are_values() -> None:
    for kind, text in BLOCKS:
        if kind == "yaml":
            assert render(KEYS, yaml.safe_load(text)).of("CronJob")


@pytest.mark.parametrize("name", [*VARIANTS, "url"])
def test_the_command_of_the_notes_starts_a_calibration(name: str) -> None:
    url = {**KEYS, "releases": {"url": "s3://bucket/team", "volume": {"enabled": False}}}
    values = VARIANTS.get(name, url)
    found = [given(command) for command in commands(render(values).notes) if command[1] == "upgrade"]
    if name == "url":
        assert found == []
        return
    (wanted,) = found
    following = merged(values, wanted, {"recalibration": {"job": {"arguments": []}}})
    assert render(following).one("Job", "-calibrate-1")


def test_links_and_names_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (CHART / link).exists(), link
    for path in re.findall(r"`((?:helm|deploy)/[\w./-]+)`", README):
        assert (CHART.parents[1] / path).exists(), path
    text = README.split("## Values")[0]
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    groups = "|".join(values)
    for name in re.findall(rf"`((?:{groups})\.[\w.]+)", text):
        found = values
        for part in name.split("."):
            assert part in found, name
            found = found[part]
