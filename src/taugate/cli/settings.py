"""`taugate settings`: which settings of the service are in force, and where each of them came from."""

import argparse
import json
import os
import sys

from taugate.cli.terminal.options import add_setting_flags, given_settings
from taugate.cli.terminal.output import printable, say
from taugate.service.settings.reading import SettingInForce, settings_in_force, unknown_variables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate settings` to its parser."""
    parser.description = (
        "Shows the settings that `taugate serve` would use with the same flags. Secrets are hidden; docs/settings.md "
        "describes every setting."
    )
    add_setting_flags(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the settings in force.

    Args:
        arguments: The parsed command line.

    Returns:
        The exit code.

    Raises:
        InputError: For a value that cannot be used.
    """
    found = settings_in_force(**given_settings(arguments))
    unknown = unknown_variables(os.environ)
    if arguments.json:
        _print_json(found, unknown)
    else:
        _print_table(found)
        for name, nearest in unknown.items():
            hint = f"; did you mean {nearest}?" if nearest else ""
            say(f"warning: {printable(name)} is set, but there is no such setting{hint}")
    return 0


def _print_json(found: list[SettingInForce], unknown: dict[str, str | None]) -> None:
    """Print the settings by variable, and the nearest setting of each unknown variable."""
    settings = {
        each.variable.name: {"value": each.shown(), "source": each.source, "set_by": each.set_by} for each in found
    }
    sys.stdout.write(json.dumps({"settings": settings, "unknown": unknown}) + "\n")


def _print_table(found: list[SettingInForce]) -> None:
    """Print a line for each setting: variable, value and source."""
    rows = [(each.variable.name, _text(each.shown()), _source(each)) for each in found]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, source in rows:
        sys.stdout.write(f"{name:{widths[0]}}  {printable(value):{widths[1]}}  {source}\n")


def _text(value: object) -> str:
    """A value as one would set it; – where there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    return "–" if value is None else str(value)


def _source(setting: SettingInForce) -> str:
    """The source of a value, with the name that set it where that is not the variable's own."""
    if setting.set_by is None or setting.set_by == setting.variable.name:
        return setting.source
    return f"{setting.source} ({printable(setting.set_by)})"
