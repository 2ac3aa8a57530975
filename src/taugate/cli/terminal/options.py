"""Parameters of commands, made from declared settings: names, types, defaults and help are those of the fields."""

import os
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import click
from pydantic import Field
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from taugate.cli.terminal.command import Argument, Command, Option, OptionGroup
from taugate.errors import InputError
from taugate.evidence.options import Options, annotated, option_of
from taugate.storage.files import read_secret

if TYPE_CHECKING:
    from taugate.data.generation.language_model import LanguageModel


T = TypeVar("T", bound=Options)
# Placeholder of an option's value in help, unless the field is annotated with another.
_METAVARS = {int: "N", float: "X", str: "NAME", Path: "FILE"}

KEY, KEY_FILE = "TAUGATE_LLM_KEY", "TAUGATE_LLM_KEY_FILE"


@plain_dataclass(frozen=True)
class Appearance:
    """How a field appears on the command line, as far as its type does not say; part of its annotation.

    Attributes:
        names: Names of the option, None for the one named after the field. A name without dashes is the name of the
            value, if that is not the field's.
        type: What Click parses the value with: a type of it, or a function that raises click.BadParameter.
    """

    metavar: str | None = None
    names: tuple[str, ...] | None = None
    type: click.ParamType[Any] | Callable[[str], Any] | None = None
    positional: bool = False
    hidden: bool = False
    variable: str | None = None


def option(default: Any, text: str, metavar: str | None = None) -> Any:  # noqa: ANN401 (of the field's type)
    """Declare a field with a default and a help text, as `Field` does, and perhaps the placeholder of its value."""
    field = Field(default=default, description=text)
    if metavar is not None:
        field.metadata.append(Appearance(metavar))
    return field


# Fields of repeated commands.
Data = Annotated[
    str,
    Appearance("DATA", type=click.Path(), positional=True),
    Field(description="folder or URL with corpus.jsonl, queries.jsonl, qrels/, or a name such as beir:scifact"),
]
DataFolder = Annotated[
    Path, Appearance("DATA", positional=True), Field(description="folder of the data set, with corpus.jsonl")
]
Releases = Annotated[Path, Appearance("DIR"), Field(description="the releases directory")]
Verbose = Annotated[bool, Field(description="print every figure and note, not only warnings and the result")]
AsJson = Annotated[bool, Appearance(names=("--json",)), Field(description="print the result as one JSON object")]


def number_or(*words: str, number: Callable[[str], Any] = float, example: str) -> Callable[[str], Any]:
    """Return a parser of a number or one of some words; its error names an example of a number."""

    def parse(text: str) -> Any:  # noqa: ANN401 (of the type of `number`)
        try:
            return text if text in words else number(text)
        except ValueError:
            raise click.BadParameter(f'"{text}": give {", ".join(words)}, or {example}') from None

    return parse


# How the weight of shared words appears, a field of repeated settings.
LEXICAL = Appearance("off|auto|W", type=number_or("off", "auto", example="a weight such as 0.5"))


def command_of(
    name: str,
    run: Callable[[T], int],
    declared: type[T],
    groups: Mapping[OptionGroup, type[Options]] | None = None,
    without: Collection[str] = (),
    keys: Collection[str] = (),
    **appearances: Appearance,
) -> Command:
    """Return a command with an option for each field of some settings.

    Args:
        run: Function that runs the command with the settings and returns the exit code; its docstring is the help.
    """
    params = _parameters(declared, [field for field in declared.fields() if field not in without], appearances)
    for group, base in (groups or {}).items():
        for parameter in params:
            if parameter.name in base.fields():
                parameter.group = group

    def call(**values: Any) -> int:  # noqa: ANN401 (of the types of the fields)
        return run(declared(**specified(values)))

    return Command(name, params=params, callback=call, help=run.__doc__, keys=keys)


def part(declared: type[T], options: T) -> T:
    """Return the settings that options of a command extend, without the command's own fields."""
    return declared.taken_from({**vars(options)})


def specified(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options that were given, so that the settings decide the defaults of the others."""
    return {name: value for name, value in values.items() if value is not None and value != ()}


def parameters(
    declared: type[Options],
    *names: str,
    group: OptionGroup | None = None,
    optional: bool = False,
    **appearances: Appearance,
) -> list[click.Parameter]:
    """Return the parameters that set the named fields of some settings, by default all, as a group of options.

    None of them is required if they are `optional`, because other options decide whether the settings are used.
    """
    params = _parameters(declared, names, appearances)
    for parameter in params:
        parameter.required &= not optional
        parameter.group = group
    return [*params]


def _parameters(
    declared: type[Options], names: Collection[str], appearances: Mapping[str, Appearance]
) -> list[Option | Argument]:
    fields = declared.fields()
    return [
        _parameter(name, fields[name], appearances.get(name) or annotated(fields[name], Appearance) or Appearance())
        for name in names or fields
    ]


def _parameter(name: str, field: FieldInfo, appearance: Appearance) -> Option | Argument:
    text, required = field.description or "", field.is_required()
    kinds = [*_members(field.annotation)]
    repeated = any(get_origin(kind) is tuple for kind in kinds) and appearance.type is None
    if "default" not in text and not required and field.default not in {None, ()} and bool not in kinds:
        text += f" (default: {field.default})"
    attributes: dict[str, Any] = {"help": text, "required": required}
    if bool in kinds:
        attributes |= {"is_flag": True, "default": None}
    else:
        attributes |= {"type": appearance.type or _type(kinds), "metavar": appearance.metavar or _metavar(kinds)}
    if appearance.positional:
        metavar = f"{attributes['metavar']}{'...' if repeated else ''}"
        attributes["metavar"] = metavar if required else f"[{metavar}]"
        return Argument([name], nargs=-1 if repeated else 1, **attributes)
    names = appearance.names or (option_of(name),)
    if all(part.startswith("--") for part in names):
        names = (*names, name)
    attributes |= {"hidden": appearance.hidden, "variable": appearance.variable, "envvar": appearance.variable}
    return Option([*names], multiple=repeated, **attributes)


def setting_parameters(*, moved: bool = False) -> list[click.Parameter]:
    """Return the options that override variables of the service, as `read_settings` takes them.

    If they are `moved`, only the variables remain, and the options print a notice.
    """
    kinds: Mapping[str, tuple[str, Any]] = {
        "releases": ("DIR_OR_URL", click.Path()),
        **{name: (name.upper(), kind) for name, kind in {"host": str, "port": int, "workers": int}.items()},
    }
    return [
        Option(
            [f"--{name}"],
            help=variable_help(name),
            type=kind,
            metavar=metavar,
            variable=f"TAUGATE_{name.upper()}" if moved else None,
        )
        for name, (metavar, kind) in kinds.items()
    ]


def variable_help(name: str) -> str:
    """Return the help of an option that sets a setting of the service: description, variable and default."""
    from taugate.service.settings import FIELDS  # loaded only by commands with such an option

    variable = FIELDS[name]
    default = "" if variable.default == "–" else f", default {variable.default}"
    return f"{variable.description} ({variable.setting}{default})"


def _type(kinds: list[Any]) -> Any:  # noqa: ANN401 (Click takes types of its own and Python's)
    """Return the type of an option's value by the members of its annotation."""
    if choices := [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]:
        return click.Choice(choices)
    kind = _kind(kinds)
    return click.Path(path_type=Path) if kind is Path else kind


def _metavar(kinds: list[Any]) -> str | None:
    return None if any(get_origin(kind) is Literal for kind in kinds) else _METAVARS[_kind(kinds)]


def _kind(kinds: list[Any]) -> type:
    """Return the one member that is not None; of a tuple, the type of its elements."""
    elements = (get_args(kind)[0] if get_origin(kind) is tuple else kind for kind in kinds)
    (kind,) = (element for element in elements if element is not types.NoneType)
    return kind  # type: ignore[no-any-return]  # a type, as all annotations of options


def _members(annotation: object) -> Iterator[Any]:
    """Yield the members of an annotation, through unions and Annotated."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for argument in get_args(annotation):
            yield from _members(argument)
    else:
        yield annotation


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """The options that name a language model."""

    endpoint: str | None = option(
        None,
        "base URL of an OpenAI-compatible server, without /chat/completions; the key is read from "
        f"{KEY} or from the file named by {KEY_FILE}",
        "URL",
    )
    model: str | None = option(
        None, "endpoint: name of the model there; local: path of a GGUF file (default: SmolLM2-135M-Instruct)", "M"
    )

    def language_model(self, option: str, kind: str, timeout: float | None = None) -> "LanguageModel":
        """Return the requested language model.

        Args:
            timeout: Longest wait for a reply of the endpoint, in seconds.
        """
        if kind == "endpoint":
            from taugate.data.generation.language_model import TIMEOUT_SECONDS, ModelEndpoint

            if not self.endpoint or not self.model:
                missing = "--endpoint URL" if not self.endpoint else "--model M"
                raise InputError(f"{option} endpoint: add {missing}")
            seconds = TIMEOUT_SECONDS if timeout is None else timeout
            if not 0 < seconds < float("inf"):
                raise InputError(f"--timeout {seconds}: give a number of seconds above 0")
            return ModelEndpoint(self.endpoint, self.model, _key(), seconds)
        if self.endpoint:
            raise InputError(f"--endpoint: {option} local uses no server; use {option} endpoint, or leave out the URL")
        from taugate.data.generation.language_model import LocalModel

        return LocalModel(Path(self.model) if self.model else None)

    def refuse_model(self, remedy: str) -> None:
        """Raise InputError, with a message that ends with the remedy, if an option of language models is given."""
        for name, field in type(self).fields().items():
            if field.default is None and getattr(self, name) is not None:
                raise InputError(f"{option_of(name)}: {remedy}")


def _key() -> str | None:
    """Return the key of the endpoint, or None if neither variable is set."""
    key, file = os.environ.get(KEY), os.environ.get(KEY_FILE)
    if key and file:
        raise InputError(f"{KEY} and {KEY_FILE} are both set; unset one of the two")
    if not file:
        return (key or "").strip() or None
    if read := read_secret(Path(file), KEY_FILE):
        return read
    raise InputError(f"{KEY_FILE}: {file} is empty; write the key into it")
