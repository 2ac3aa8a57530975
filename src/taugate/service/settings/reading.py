"""Reading of settings from flags and the environment, with their sources, and messages for invalid values."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from taugate.errors import InputError
from taugate.service.settings.groups import REFUSED
from taugate.service.settings.settings import PREFIX, VARIABLES, Settings, Variable

# Variables that other parts of Taugate read, and those that Kubernetes sets in pods if a Service is named "taugate".
_OTHER_VARIABLES = frozenset({"TAUGATE_CACHE", "TAUGATE_DATA", "TAUGATE_HOST_PORT", "TAUGATE_SIGNING_PASSPHRASE"})
_OF_KUBERNETES = ("TAUGATE_PORT_", "TAUGATE_SERVICE_")
_NAMES = frozenset(name for variable in VARIABLES.values() for name in variable.names)
_MAX_SHOWN = 60  # characters of a value in an error


@dataclass(frozen=True)
class SettingInForce:
    """A setting with the value that the service would use.

    `set_by` is the flag or variable that set the value, None for a default.
    """

    variable: Variable
    value: object
    source: Literal["flag", "environment", "default"]
    set_by: str | None

    def shown(self) -> object:
        """Return the value for display as JSON, with secrets hidden."""
        if isinstance(self.value, SecretStr):
            return "(hidden)"
        return str(self.value) if isinstance(self.value, Path) else self.value


def read_settings(**flags: Any) -> Settings:  # noqa: ANN401 (a value for any of the settings)
    """Read the settings from flags, named as in `Settings`, and from the environment for those that are None or absent.

    Raises:
        InputError: If a value is invalid. The message names the flag or variable, and the allowed values.
    """
    set_flags = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**set_flags)
    except ValidationError as error:
        raise InputError(_message(error.errors(), set_flags)) from error


def settings_in_force(**flags: Any) -> list[SettingInForce]:  # noqa: ANN401 (a value for any of the settings)
    """List all settings with their values and sources, in the order of their declarations; flags as in `read_settings`.

    The releases directory is None if it is not set: the service could not start, but the other settings can be shown.

    Raises:
        InputError: If a value is invalid.
    """
    environment = {name.upper(): name for name in os.environ}
    releases_named = flags.get("releases") is not None or f"{PREFIX}RELEASES" in environment
    settings = read_settings(**(flags if releases_named else flags | {"releases": Path()}))
    in_force = []
    for name, value in settings.by_variable().items():
        variable = VARIABLES[name]
        set_by = next((environment[spelling] for spelling in _spellings(variable) if spelling in environment), None)
        if flags.get(name) is not None:
            in_force.append(SettingInForce(variable, value, "flag", _flag(name)))
        elif set_by is not None:
            in_force.append(SettingInForce(variable, value, "environment", set_by))
        else:
            in_force.append(SettingInForce(variable, value if name != "releases" else None, "default", None))
    return in_force


def unknown_variables(names: Iterable[str]) -> dict[str, str | None]:
    """Return the environment variables that look like settings of the service but are not.

    Each has the most similar setting, None if none is similar.
    """
    spellings = [spelling for variable in VARIABLES.values() for spelling in _spellings(variable)]
    expected = {*spellings, *_OTHER_VARIABLES}
    unknown: dict[str, str | None] = {}
    for name in sorted(names):
        upper = name.upper()
        if upper.startswith(PREFIX) and upper not in expected and not upper.startswith(_OF_KUBERNETES):
            unknown[name] = next(iter(get_close_matches(upper, spellings, n=1, cutoff=0.8)), None)
    return unknown


def _spellings(variable: Variable) -> list[str]:
    """Return the names of a variable in the environment: the current one, then older ones."""
    return [f"{PREFIX}{name.upper()}" for name in variable.names]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _message(details: Sequence[ErrorDetails], flags: Mapping[str, object]) -> str:
    """Return a one-line message that says what is wrong with a setting, and which values are allowed.

    Of pydantic's errors the first setting's are told; `flags` are values that did not come from the environment.
    """
    first = details[0]
    if not first["loc"]:  # a rule between two settings, whose message names both
        return first["msg"]
    setting = first["loc"][:2]  # group and name; further parts say which member of a union failed
    name = str(setting[-1])
    if first["type"] == "missing":
        return f"no {name} directory given: use {_flag(name)} DIR or {PREFIX}{name.upper()}"
    if name not in _NAMES:
        return f"{name}: {first['msg']}"
    source = _flag(name) if name in flags else f"{PREFIX}{name.upper()}"
    if first["type"] == REFUSED:  # a URL, which may contain a password
        return f"{source}: {first['msg']}"
    value = str(first["input"])
    shown = value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…"
    allowed = [
        detail["msg"].removeprefix("Input should be ").split(", unable")[0]
        for detail in details
        if detail["loc"][:2] == setting
    ]
    return f"{source}={shown}: must be {' or '.join(allowed)}"
