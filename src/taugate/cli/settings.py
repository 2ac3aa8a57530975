"""`taugate settings`: show the effective settings of the service and their sources."""

import os
from typing import Any

import click

from taugate.cli.terminal.command import Command
from taugate.cli.terminal.options import setting_parameters
from taugate.cli.terminal.output import aligned, print_result, printable, say
from taugate.service.settings.settings import SettingInForce, former_variables, settings_in_force, unknown_variables
from taugate.storage.files import Json


def run(as_json: bool, **flags: Any) -> int:  # noqa: ANN401 (of the types of the settings)
    """Print the effective settings, as one JSON object on request; returns the exit code."""
    settings = settings_in_force(**flags)
    unknown = unknown_variables(os.environ)
    if as_json:
        values: dict[str, Json] = {
            setting.variable.name: {
                "value": setting.value,
                **({"options": dict(setting.options)} if setting.options else {}),
                "source": setting.source,
                "set_by": setting.set_by,
            }
            for setting in settings
        }
        print_result({"settings": values, "unknown": unknown})
    else:
        _print_table(settings)
        for name, nearest in unknown.items():
            hint = f"; did you mean {nearest}?" if nearest else ""
            say(f"warning: {printable(name)} is set, but is not a setting{hint}")
        for name, use in former_variables(os.environ).items():
            say(f"warning: {printable(name)} is a former name; use {use}")
    return 0


command = Command(
    "settings",
    callback=run,
    params=[
        *setting_parameters(moved=True),
        click.Option(["--json", "as_json"], is_flag=True, help="print one JSON object"),
    ],
    help="Shows the settings that `taugate serve` would use without options. Secrets are hidden; docs/settings.md "
    "describes every setting.",
)


def _print_table(settings: list[SettingInForce]) -> None:
    """Print a line for each setting: variable, value and source."""
    rows = []
    for setting in settings:
        options = [f"{key}={_text(value)}" for key, value in setting.options.items() if value is not None]
        rows.append((setting.variable.name, printable(",".join([_text(setting.value), *options])), _source(setting)))
    print_result("\n".join(aligned(rows)))


def _text(value: object) -> str:
    """Return a value as the user would write it, or – if there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    return "–" if value is None else str(value)


def _source(setting: SettingInForce) -> str:
    """Return the source of a value, with the name that set it if that differs from the variable."""
    if setting.set_by is None or setting.set_by == setting.variable.name:
        return setting.source
    return f"{setting.source} ({printable(setting.set_by)})"
