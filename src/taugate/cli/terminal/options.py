"""Building blocks of parsers: options made from declared settings, and actions of subcommands."""

import argparse
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

# Placeholder of an option's value in help, unless the option sets its own.
_METAVARS = {int: "N", float: "X", str: "NAME"}
Parser = argparse.ArgumentParser | argparse._ArgumentGroup  # argparse has no public name for a group
# Settings of the service that are also flags, with their further arguments for argparse.
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
    """Add an option that sets a field; help and default are those of the field.

    Args:
        parser: A parser or a group of one.
        fields: Declarations of a group of settings, as `Options.fields` returns them.
        name: Name of the field.
        option: Name of the option, or None to derive it from the field.
        omit_default: Leave the field out of the parsed arguments if the option is not given, because its default
            depends on other options.
        keywords: Arguments of argparse's add_argument that override the derived ones.
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
    """Add the option for a signing key; it is missing from the parsed arguments if it is not given."""
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
        name: Name of the action.
        run: Function that runs the action and returns the exit code.
        text: Help and description of the action.
    """
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    action.set_defaults(run=run)
    return action


def variable_help(name: str) -> str:
    """Return the help of an option that sets a setting of the service: description, variable and default.

    Args:
        name: Name of the setting in `taugate.service.settings.VARIABLES`.
    """
    from taugate.service.settings import VARIABLES  # loaded only by commands with such an option

    variable = VARIABLES[name]
    default = "" if variable.default == "–" else f", default {variable.default}"
    return f"{variable.description} ({variable.name}{default})"


def add_setting_flags(parser: Parser) -> None:
    """Add the flags that override variables of the service, as `read_settings` takes them."""
    for name, keywords in SETTING_FLAGS.items():
        parser.add_argument(f"--{name}", help=variable_help(name), **keywords)


def flag_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of these flags by the name of the setting, None for those not given."""
    return {name: getattr(arguments, name) for name in SETTING_FLAGS}


def lexical_weight(text: str) -> float | str:
    """Parse a lexical weight, "off" or "auto"; argparse shows the message of the error."""
    try:
        return text if text in {"off", "auto"} else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}": give off, auto, or a weight such as 0.5') from None


def _choices(annotation: object) -> Iterator[str]:
    """Yield the values of a Literal, or of a union of several."""
    for member in _members(annotation):
        if get_origin(member) is Literal:
            yield from get_args(member)


def _type(annotation: object) -> type:
    """Return the type of the option's value: the member of the annotation that is not None."""
    members = [member for member in _members(annotation) if isinstance(member, type)]
    (kind,) = (member for member in members if member is not types.NoneType)
    return kind


def _members(annotation: object) -> Iterator[object]:
    """Yield the members of an annotation, through unions and Annotated."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for argument in get_args(annotation):
            yield from _members(argument)
    else:
        yield annotation
