"""Reads the settings from flags and the environment, and says where each came from and which cannot be used."""

import os
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from taugate.errors import InputError
from taugate.service.settings.groups import REFUSED
from taugate.service.settings.settings import PREFIX, VARIABLES, Settings, Variable

# Variables that other parts of Taugate read, and those that Kubernetes sets in a pod beside a Service named "taugate".
_OTHER_VARIABLES = frozenset({"TAUGATE_CACHE", "TAUGATE_DATA", "TAUGATE_HOST_PORT", "TAUGATE_SIGNING_PASSPHRASE"})
_OF_KUBERNETES = ("TAUGATE_PORT_", "TAUGATE_SERVICE_")
_BY_NAME = {name: variable for variable in VARIABLES.values() for name in variable.names}
_MAX_SHOWN = 60  # characters of a value in an error


@dataclass(frozen=True)
class SettingInForce:
    """One setting as the service would use it.

    Attributes:
        variable: Its declaration.
        value: As in `Settings`.
        source: Where the value came from.
        set_by: The flag or the variable that set it, None for a default.
    """

    variable: Variable
    value: object
    source: Literal["flag", "environment", "default"]
    set_by: str | None

    def shown(self) -> object:
        """Return the value as JSON has it, a secret hidden."""
        if isinstance(self.value, SecretStr):
            return "(hidden)"
        return str(self.value) if isinstance(self.value, Path) else self.value


def read_settings(**flags: Any) -> Settings:  # noqa: ANN401 (a value for any of the settings)
    """Read the settings from flags, and from the environment where no flag is given.

    Args:
        flags: Values by the variable's name, as in `Settings`; None stands for a flag that was not given.

    Raises:
        InputError: For a value that cannot be used; the message names the flag or variable and the values that are
            allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise InputError(_message(error.errors()[0], given)) from error


def settings_in_force(**flags: Any) -> list[SettingInForce]:  # noqa: ANN401 (a value for any of the settings)
    """List every setting with its value and its source, in the order of the declarations.

    The releases directory is None where it is not named: nothing can be served then, and the rest can still be shown.

    Args:
        flags: As in `read_settings`, which raises InputError for a value that cannot be used.
    """
    environment = {name.upper(): name for name in os.environ}
    releases_named = flags.get("releases") is not None or f"{PREFIX}RELEASES" in environment
    settings = read_settings(**(flags if releases_named else flags | {"releases": Path()}))
    found = []
    for name, value in settings.by_variable().items():
        variable = VARIABLES[name]
        set_by = next((environment[each] for each in _spellings(variable) if each in environment), None)
        if flags.get(name) is not None:
            found.append(SettingInForce(variable, value, "flag", _flag(name)))
        elif set_by is not None:
            found.append(SettingInForce(variable, value, "environment", set_by))
        else:
            found.append(SettingInForce(variable, value if name != "releases" else None, "default", None))
    return found


def unknown_variables(names: Iterable[str]) -> dict[str, str | None]:
    """Find variables that look like settings of the service and are not.

    Args:
        names: Of environment variables.

    Returns:
        The nearest setting for each unknown TAUGATE_* name, None where none is near.
    """
    known = [spelling for variable in VARIABLES.values() for spelling in _spellings(variable)]
    expected = {*known, *_OTHER_VARIABLES}
    unknown: dict[str, str | None] = {}
    for name in sorted(names):
        upper = name.upper()
        if upper.startswith(PREFIX) and upper not in expected and not upper.startswith(_OF_KUBERNETES):
            unknown[name] = next(iter(get_close_matches(upper, known, n=1, cutoff=0.8)), None)
    return unknown


def _spellings(variable: Variable) -> list[str]:
    """The names of a variable in the environment: the current one, then older ones."""
    return [f"{PREFIX}{name.upper()}" for name in variable.names]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _message(detail: ErrorDetails, flags: Mapping[str, object]) -> str:
    """Say in one line what is wrong with a setting, and which values it takes.

    Args:
        detail: The first error of pydantic.
        flags: The values that did not come from the environment.
    """
    if not detail["loc"]:  # a rule between two settings, which names them itself
        return detail["msg"]
    name = str(detail["loc"][:2][-1])  # group and name; what comes behind says which part of a union failed
    if detail["type"] == "missing":
        return f"no {name} directory given: use {_flag(name)} DIR or {PREFIX}{name.upper()}"
    if name not in _BY_NAME:
        return f"{name}: {detail['msg']}"
    where = _flag(name) if name in flags else f"{PREFIX}{name.upper()}"
    if detail["type"] == REFUSED:  # a URL, which may hold a password
        return f"{where}: {detail['msg']}"
    value = str(detail["input"])
    shown = value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…"
    return f"{where}={shown}: must be {allowed_values(_BY_NAME[name].info)}"


def allowed_values(info: FieldInfo) -> str:
    """Say which values a setting takes, such as "a whole number from 0 to 65535".

    Args:
        info: The declaration of the setting.
    """
    return _allowed(info.annotation, info.metadata)


def _allowed(annotation: object, metadata: Iterable[object]) -> str:
    """Say the same of a type and its bounds, through unions and Annotated."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _allowed(inner, [*more, *metadata])
    if get_origin(annotation) in {Union, types.UnionType}:
        members = [each for each in get_args(annotation) if each is not types.NoneType]
        return " or ".join(dict.fromkeys(_allowed(each, metadata) for each in members))
    if get_origin(annotation) is Literal:
        *others, last = get_args(annotation)
        return f"{', '.join(others)} or {last}" if others else last
    if annotation is bool:
        return "true or false"
    words = {int: "a whole number", float: "a number", Path: "a path"}
    return words.get(annotation, "text") + _range(metadata) if isinstance(annotation, type) else "text"


def _range(metadata: Iterable[object]) -> str:
    """The bounds of a number in words, with a space in front; empty where there are none."""
    flat = [part for each in metadata for part in (each.metadata if isinstance(each, FieldInfo) else [each])]
    low = next((each for each in flat if isinstance(each, Ge | Gt)), None)
    high = next((each for each in flat if isinstance(each, Le | Lt)), None)
    if isinstance(low, Ge) and isinstance(high, Le):
        return f" from {low.ge} to {high.le}"
    parts = []
    if low is not None:
        parts.append(f" of {low.ge} or more" if isinstance(low, Ge) else f" above {low.gt}")
    if high is not None:
        parts.append(f" of {high.le} or less" if isinstance(high, Le) else f" below {high.lt}")
    return " and".join(parts)
