"""Options made from declared settings: nothing about them is written down a second time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from taugate.calibration.settings import CalibrationSettings, CandidateSettings
from taugate.cli import main as cli
from taugate.cli.calibrate import command, with_refuse
from taugate.cli.terminal.options import parameters, specified, variable_help
from taugate.errors import InputError
from taugate.evidence.rules import AbstentionRule, GateSettings, ThresholdRule

# Fields that have no option of their own.
COMPOSED = {"rule", "abstention", "candidates", "gate", "further_losses"}


def parse(*arguments: str) -> CalibrationSettings:
    context = command.make_context("calibrate", ["data", "--releases", "releases", *arguments])
    return CalibrationSettings.from_options(specified(context.params))


def test_every_field_has_described_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrate", "--help-all"]) == 0
    shown = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    for group in (CalibrationSettings, ThresholdRule, AbstentionRule, CandidateSettings):
        for name, field in group.fields().items():
            if name not in COMPOSED:
                assert name.replace("_", "-") in shown
                assert field.description
    for name in ("k", "holdout", "max_loss", "retention", "margin"):
        group = next(
            each
            for each in (CalibrationSettings, ThresholdRule, CandidateSettings, GateSettings)
            if name in each.fields()
        )
        assert (group.fields()[name].description or "").replace("- ", "-") in shown


def test_no_options_give_default_settings() -> None:
    assert parse() == CalibrationSettings(refuse="auto")


def test_every_option_sets_its_field() -> None:
    settings = parse(
        *("--split", "dev", "--k", "7", "--bootstraps", "9", "--sample-size", "8", "--seed", "3", "--holdout", "0.2"),
        *("--overlap-percentile", "10", "--method", "risk-control", "--policy", "relative", "--metric", "ndcg"),
        *("--max-loss", "0.02,0.05", "--guarantee", "expected-loss", "--confidence", "0.9", "--max-empty", "0.3"),
        *("--strata", "metadata.topic", "--projection", "query-pca", "--retention", "0.5", "--precision", "int8"),
        *("--index", "hnsw", "--margin", "0.01", "--gate-confidence", "0.8"),
    )
    assert settings == CalibrationSettings(
        refuse="auto",
        split="dev",
        k=7,
        bootstraps=9,
        sample_size=8,
        seed=3,
        holdout=0.2,
        overlap_percentile=10,
        rule=ThresholdRule(
            method="risk-control",
            policy="relative",
            metric="ndcg",
            guarantee="expected-loss",
            max_loss=0.02,
            further_losses=(0.05,),
            confidence=0.9,
            max_empty=0.3,
            strata="topic",
        ),
        candidates=CandidateSettings(
            projection="query-pca", retention=0.5, precision="int8", index="hnsw", gate=GateSettings(0.01, 0.8)
        ),
    )
    refusing = parse("--max-answered", "0.4", "--max-empty", "0.1")
    assert refusing.abstention == AbstentionRule(0.4, 0.1)
    assert refusing.rule == ThresholdRule("bootstrap", "similarity")
    assert refusing.refuse == "off"


@pytest.mark.parametrize(
    "options",
    [
        ("--refuse", "off"),
        ("--refuse", "off", "--max-loss", "0.02"),
        ("--method", "bootstrap", "--refuse", "off"),
        ("--policy", "similarity", "--tau", "0.4"),
    ],
)
def test_options_that_set_no_default_refusal(options: tuple[str, ...]) -> None:
    assert parse(*options).refuse == "off"


def test_refuse_auto_is_the_default() -> None:
    assert parse("--refuse", "auto") == parse()
    assert parse().refuse == "auto"
    assert parse("--refuse", "auto", "--policy", "similarity", "--tau", "0.4").refuse == "off"


def test_given_rho_needs_tau() -> None:
    assert parse("--refuse", "0.3", "--policy", "similarity", "--tau", "0.4").rho == 0.3
    with pytest.raises(InputError, match=r"^--refuse 0.3: .* give --tau and --policy as well$"):
        parse("--refuse", "0.3", "--max-loss", "0.02")


def test_refuse_that_is_no_number_names_choices() -> None:
    with pytest.raises(click.BadParameter, match="give auto, off, or a threshold ρ such as 0.4"):
        parse("--refuse", "maybe")
    for value in ("nan", "inf"):
        with pytest.raises(InputError, match=f"^--refuse {value}: give auto, off, or the threshold ρ as a number$"):
            parse("--refuse", value, "--policy", "similarity", "--tau", "0.4")


@pytest.mark.parametrize(
    ("deprecated", "new"), [({"no_refusal": True}, "off"), ({"rho": 0.3, "tau": 0.4, "policy": "similarity"}, 0.3)]
)
def test_deprecated_names_of_refuse_work_with_notice(
    deprecated: dict[str, Any], new: str | float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert CalibrationSettings.from_options(with_refuse(deprecated)).refuse == new
    assert capsys.readouterr().err.rstrip().endswith(f"will be removed in version 0.4; use --refuse {new}")
    assert with_refuse({"k": 3}) == {"k": 3}
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match=r"--refuse off is given as well; leave out one of the two"):
        with_refuse(deprecated | {"refuse": "off"})


def test_deprecated_names_of_refuse_are_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("calibrate", "calibrate-run"):
        assert cli.main([name, "--help-all"]) == 0
        shown = capsys.readouterr().out
        assert "--refuse" in shown
        assert "--no-refusal" not in shown
        assert "--rho" not in shown


def test_method_decides_threshold_and_not_refusal() -> None:
    assert parse("--method", "bootstrap") == parse()


def test_refuse_contradicts_certified_refusals() -> None:
    with pytest.raises(InputError, match=r"^--refuse off: --max-answered 0.4 decides .* leave out one of the two$"):
        parse("--refuse", "off", "--max-answered", "0.4")


def test_omitted_option_is_not_default() -> None:
    parsed = click.Command("c", params=parameters(GateSettings, "confidence"))
    assert parsed.make_context("c", []).params == {"confidence": None}
    assert specified(parsed.make_context("c", ["--confidence", "0.9"]).params) == {"confidence": 0.9}
    assert "(default: 0.95)" in parsed.get_help(click.Context(parsed))


def test_setting_help_names_variable_and_default() -> None:
    assert variable_help("port") == "port to listen on (TAUGATE_PORT, default 8000)"
    assert variable_help("drift_baseline").endswith("(TAUGATE_DRIFT_BASELINE)")


def test_settings_file_sets_options_and_an_option_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        'k = 7\nsample-size = 8\ngate_confidence = 0.9\nmax_loss = [0.02, 0.05]\nstrata = "metadata.topic"\n'
    )
    settings = parse("--settings", str(file), "--k", "3")
    assert settings == parse(
        *("--k", "3", "--sample-size", "8", "--gate-confidence", "0.9", "--max-loss", "0.02,0.05"),
        *("--strata", "metadata.topic"),
    )
    notices = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: --")]
    assert [line.split()[1] for line in notices] == ["--sample-size", "--strata", "--gate-confidence"]
    assert "version 0.4" in notices[0]


def _actions(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            action = command.get_command(click.Context(command), name)
            assert action is not None
            yield from _actions(action, f"{path} {name}")
    elif not command.hidden:
        yield path, command


def test_option_that_moved_is_hidden_and_names_its_successor(capsys: pytest.CaptureFixture[str]) -> None:
    declared = 0
    for path, action in [pair for name in cli.COMMANDS for pair in _actions(cli.load_command(name), name)]:
        options = [parameter for parameter in action.params if isinstance(parameter, click.Option)]
        declared += sum(not option.hidden for option in options) * (path != "update")
        keys = {*getattr(action, "keys", ())}
        variables = {option.name: variable for option in options if (variable := getattr(option, "variable", None))}
        assert keys <= {option.name for option in options}, path
        assert all(option.hidden for option in options if option.name in keys | variables.keys()), path
        help_option = "--help-all" if keys else "--help"
        assert cli.main([*path.split(), help_option]) == 0
        shown = capsys.readouterr().out
        for option in options:
            if option.name in keys | variables.keys():
                assert f"\n  {variables.get(option.name) or option.opts[0][2:]}" in shown, (path, option.name)
                assert f"  {option.opts[0]} " not in shown
    assert declared <= 160
