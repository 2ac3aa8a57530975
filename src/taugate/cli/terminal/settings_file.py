"""The file that --settings names: options of a command as keys in TOML, for those that a first month leaves alone."""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.core import ParameterSource

from taugate.cli.terminal.output import say
from taugate.errors import InputError

SECTION = "keys of --settings"
_Value: TypeAlias = bool | str | int | float | list[Any]
_REMOVED_IN = "0.4"


def settings_option(keys: Collection[str]) -> click.Option:
    """Return the option --settings of a command; `keys` are the names of its parameters that are keys of the file."""

    def read(context: click.Context, _: click.Parameter, path: Path | None) -> None:
        if path is not None:
            context.default_map = _values(path, _options(context.command, keys))

    return click.Option(
        ["--settings"],
        type=click.Path(path_type=Path),
        metavar="FILE.toml",
        is_eager=True,  # before the options whose defaults it has
        expose_value=False,
        callback=read,
        help="options in TOML, by their names; an option wins",
    )


def warn_of_moved(context: click.Context, keys: Collection[str]) -> None:
    """Print a notice for each given option that became a key of the file, or an environment variable."""
    for parameter in context.command.params:
        name, variable = parameter.opts[0], getattr(parameter, "variable", None)
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
            continue
        if parameter.name in keys:
            remedy = f"write {name[2:]} = … into a file, and name it with --settings"
        elif variable is not None:
            remedy = f"set {variable}"
        else:
            continue
        say(f"warning: {name} is deprecated and will be removed in version {_REMOVED_IN}; {remedy}")


def key_rows(command: click.Command, keys: Collection[str]) -> list[tuple[str, str]]:
    """Return name and help text of each key, for --help-all."""
    return [(key, option.help or "") for key, option in _options(command, keys).items() if option.name in keys]


def _options(command: click.Command, keys: Collection[str]) -> Mapping[str, click.Option]:
    """Return the options that a file may have, by their keys; hidden ones are keys alone, or deprecated."""
    return {
        option.opts[0].lstrip("-"): option
        for option in command.params
        if isinstance(option, click.Option) and not option.is_eager and (not option.hidden or option.name in keys)
    }


def _values(path: Path, options: Mapping[str, click.Option]) -> dict[str, _Value]:
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--settings {path}: {error.strerror}; give a readable file") from error
    except ValueError as error:
        raise InputError(f"--settings {path}: not TOML in UTF-8: {error}") from error
    values: dict[str, _Value] = {}
    for key, value in read.items():
        option = options.get(key.replace("_", "-"))
        if option is None or option.name is None:
            raise InputError(f"--settings {path}: unknown key {key}; the keys are {', '.join(sorted(options))}")
        if isinstance(value, bool) is not option.is_flag or not isinstance(value, bool | str | int | float | list):
            raise InputError(f"--settings {path}: {key}: give a value as the option --{key} has it")
        # As on the command line: several values with commas, unless the option is repeated.
        values[option.name] = ",".join(map(str, value)) if isinstance(value, list) and not option.multiple else value
        _check(path, key, option, values[option.name])
    return values


def _check(path: Path, key: str, option: click.Option, value: _Value) -> None:
    try:
        option.type_cast_value(click.Context(click.Command("")), value)
    except click.UsageError as error:
        raise InputError(f"--settings {path}: {key}: {error.message}") from error
