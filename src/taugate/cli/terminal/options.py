"""Building blocks of parsers: options that are made from declared settings, and actions of subcommands."""

import argparse
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

# How help names the value of an option that has no name of its own.
_METAVARS = {int: "N", float: "X", str: "NAME"}
Parser = argparse.ArgumentParser | argparse._ArgumentGroup  # argparse has no public name for a group
# Settings of the service that are also flags, with what argparse is told beside their help.
SETTING_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "releases": {"metavar": "DIR_OR_URL"},
    "host": {},
    "port": {"type": int},
    "workers": {"type": int},
}


def add_option(
    parser: Parser,
    fields: Mapping[str, FieldInfo],
    name: str,
    *,
    option: str | None = None,
    omit_default: bool = False,
    **keywords: Any,  # noqa: ANN401 (whatever argparse takes)
) -> None:
    """Add the option that sets a field: its help is the field's description, and its default the field's.

    Args:
        parser: A parser or a group of one.
        fields: The declarations of a group of settings, as of `Options.fields`.
        name: Of the field.
        option: On the command line, None for the one named after the field.
        omit_default: Leave the name out of the parsed arguments where the option is not given, as what it then is
            follows from other options.
        keywords: Go to argparse's add_argument before what is derived.
    """
    field = fields[name]
    text = (field.description or "").replace("%", "%%")  # argparse formats help texts by %
    if field.annotation is bool:
        parser.add_argument(option or f"--{name.replace('_', '-')}", action="store_true", help=text, **keywords)
        return
    derived: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS}
    if not (field.default in {None, ()} or field.is_required()):
        derived["help"] = f"{text} (default: {field.default})"
        if not omit_default:
            derived["default"] = field.default
    if choices := tuple(_choices(field.annotation)):
        derived["choices"] = choices
    elif "type" not in keywords:
        kind = _type(field.annotation)
        derived["type"] = kind
        derived["metavar"] = _METAVARS[kind]
    parser.add_argument(option or f"--{name.replace('_', '-')}", **(derived | keywords))


def add_signing_option(parser: Parser) -> None:
    """Add the option that names a key to sign a new release with; it is left out of the arguments where not given.

    Args:
        parser: Of a command that writes a release.
    """
    parser.add_argument(
        "--sign-with",
        metavar="PEM",
        type=Path,
        default=argparse.SUPPRESS,
        help="Ed25519 private key to sign the release with",
    )


def add_action(
    actions: Any,  # noqa: ANN401 (argparse's own type is private)
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    """Add an action to a subcommand, and return its parser for further arguments.

    Args:
        actions: The subparsers of the subcommand.
        name: Of the action.
        run: Carries it out, and returns the exit code.
        text: Its help and its description.
    """
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    action.set_defaults(run=run)
    return action


def variable_help(name: str) -> str:
    """The help of an option that stands for a setting of the service: its description, variable and default.

    Args:
        name: Of the setting, as in VARIABLES of service/settings.
    """
    from taugate.service.settings import (
        VARIABLES,
    )  # only the commands that have such an option load the service's settings

    variable = VARIABLES[name]
    default = "" if variable.default == "–" else f", default {variable.default}"
    return f"{variable.info.description} ({variable.name}{default})"


def add_setting_flags(parser: Parser) -> None:
    """Add the flags that go before the service's variables, as `read_settings` takes them.

    Args:
        parser: Of a command that reads the settings of the service.
    """
    for name, keywords in SETTING_FLAGS.items():
        parser.add_argument(f"--{name}", help=variable_help(name), **keywords)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of these flags, by the name of the setting; None for each that was not given.

    Args:
        arguments: The parsed command line.
    """
    return {name: getattr(arguments, name) for name in SETTING_FLAGS}


def _choices(annotation: object) -> Iterator[str]:
    """Yield the values of a Literal, or of a union of several."""
    for each in _members(annotation):
        if get_origin(each) is Literal:
            yield from get_args(each)


def _type(annotation: object) -> type:
    """The type that argparse makes of a text: the one of the annotation that is not None."""
    (found,) = (each for each in _members(annotation) if isinstance(each, type) and each is not types.NoneType)
    return found


def _members(annotation: object) -> Iterator[object]:
    """Yield what an annotation is made of, through unions and Annotated."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for each in get_args(annotation):
            yield from _members(each)
    else:
        yield annotation
