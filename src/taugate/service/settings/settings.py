"""All settings of the service, read from flags and TAUGATE_* variables at startup and then frozen."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError, PydanticUndefined

from taugate.errors import InputError
from taugate.service.settings.groups import (
    REFUSED,
    AccessSettings,
    AdmissionSettings,
    CacheSettings,
    ComputedDefault,
    ComputeSettings,
    ConnectionSettings,
    DriftSettings,
    EndpointSettings,
    EngineSettings,
    FormerVariable,
    LifecycleSettings,
    ListenSettings,
    ReleaseSettings,
    RequestSettings,
    RerankSettings,
    SettingGroup,
    TelemetrySettings,
)
from taugate.storage.files import Json

PREFIX = "TAUGATE_"

# Variables that other parts of Taugate read, and those that Kubernetes sets in pods if a Service is named "taugate".
_OTHER_VARIABLES = frozenset(
    {
        *("TAUGATE_BY", "TAUGATE_CACHE", "TAUGATE_DATA", "TAUGATE_HOST_PORT"),
        *("TAUGATE_SIGNING_KEY", "TAUGATE_SIGNING_PASSPHRASE"),
    }
)
_OF_KUBERNETES = ("TAUGATE_PORT_", "TAUGATE_SERVICE_")
_MAX_SHOWN = 60  # characters of a value in an error


class Settings(BaseModel):
    """Settings of the service in groups: TAUGATE_REDIS_URL is `settings.cache.redis_url`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    releases: ReleaseSettings
    listen: ListenSettings
    compute: ComputeSettings
    requests: RequestSettings
    admission: AdmissionSettings
    engine: EngineSettings
    endpoint: EndpointSettings
    rerank: RerankSettings
    cache: CacheSettings
    drift: DriftSettings
    lifecycle: LifecycleSettings
    access: AccessSettings
    connections: ConnectionSettings
    telemetry: TelemetrySettings

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 (a value for any of the variables)
        """Read the variables.

        Args:
            values: Settings that override the environment, by name of the variable in lower case and without TAUGATE_,
                as in `Settings(releases=Path("releases"), redis_url=…)`.

        Raises:
            pydantic.ValidationError: If a value is invalid or missing.
        """
        super().__init__(**_with_options(_environment()) | _with_options(values))

    @model_validator(mode="before")
    @classmethod
    def _into_groups(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Put each value into its group. An unknown name is left at the top level, where validation rejects it."""
        for variable in FIELDS.values():
            present = [name for name in variable.names if name in values]
            if len(present) > 1:
                new, old = (f"{PREFIX}{name.upper()}" for name in present[:2])
                raise PydanticCustomError(
                    "set_twice", "{new} and its older name {old} are both set; unset {old}", {"new": new, "old": old}
                )
        grouped: dict[str, Any] = {group: {} for group in cls.model_fields}
        for name, value in values.items():
            grouped.get(_GROUPS.get(name, ""), grouped)[name] = value
        return grouped

    @model_validator(mode="after")
    def _batch_fits_the_queue(self) -> Self:
        if self.requests.max_batch > self.admission.queue_limit:
            message = "TAUGATE_MAX_BATCH is over TAUGATE_QUEUE_LIMIT, so a full batch would never fit; lower it"
            raise PydanticCustomError("batch_over_queue", message)
        return self

    @model_validator(mode="after")
    def _drawn_queries_can_be_judged(self) -> Self:
        drift = self.drift
        if drift.judge_share and (drift.query_log is None or not drift.query_log_texts):
            message = "TAUGATE_JUDGE_SHARE stores texts: set TAUGATE_QUERY_LOG, and TAUGATE_QUERY_LOG_TEXTS to true"
            raise PydanticCustomError("judge_without_log", message)
        if drift.judge_url is not None and not (drift.judge_share and drift.judge_model):
            message = "TAUGATE_JUDGE_URL needs TAUGATE_JUDGE_MODEL, and TAUGATE_JUDGE_SHARE above 0"
            raise PydanticCustomError("judge_without_share", message)
        return self

    @model_validator(mode="after")
    def _chained_log_has_no_texts(self) -> Self:
        if self.drift.query_log_chain and (self.drift.query_log is None or self.drift.query_log_texts):
            message = "TAUGATE_QUERY_LOG_CHAIN needs TAUGATE_QUERY_LOG, and no TAUGATE_QUERY_LOG_TEXTS, whose texts go"
            raise PydanticCustomError("chain", message)
        return self

    @model_validator(mode="after")
    def _engine_is_given_up_before_the_request(self) -> Self:
        if self.engine.timeout_ms >= self.admission.deadline_ms and self.engine.url is not None:
            message = "engine_ms must be below TAUGATE_DEADLINE_MS, whose option it is, or every failure would be a 504"
            raise PydanticCustomError("engine_over_deadline", message)
        return self

    @classmethod
    def groups(cls) -> dict[str, type[SettingGroup]]:
        """Return the model of each group by the group's name."""
        return {name: cast("type[SettingGroup]", field.annotation) for name, field in cls.model_fields.items()}

    def by_variable(self) -> dict[str, Any]:
        """Return the values by variable, former ones included, named in lower case and without TAUGATE_."""
        return {name: getattr(getattr(self, setting.group), setting.field) for name, setting in FIELDS.items()}

    def for_log(self) -> dict[str, Any]:
        """Return the values as JSON with secrets masked, by current and older names of the variables."""
        groups = self.model_dump(mode="json")
        return {name: groups[setting.group][setting.field] for setting in FIELDS.values() for name in setting.names}

    def export(self, environment: MutableMapping[str, str]) -> None:
        """Write the settings to an environment, from which another process then reads the same values.

        An option is written as its former variable. Settings without a value, and older names, are removed.
        """
        for variable in [name for name in environment if name.lower().removeprefix(PREFIX.lower()) in _GROUPS]:
            del environment[variable]
        for name, value in self.by_variable().items():
            if value is not None:
                text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
                environment[f"{PREFIX}{name.upper()}"] = text


def _environment() -> dict[str, str]:
    """Return the variables of this process that are settings, by name in lower case and without TAUGATE_."""
    prefix = PREFIX.lower()
    lower = {name.lower(): value for name, value in os.environ.items()}
    return {name: lower[f"{prefix}{name}"] for name in _GROUPS if f"{prefix}{name}" in lower}


def _with_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by variable, with each text of the form VALUE,option=VALUE taken apart."""
    parts: dict[str, Any] = {}
    for name, value in values.items():
        options = VARIABLES[name].options if name in VARIABLES and isinstance(value, str) else {}
        if not options:
            parts[name] = value
            continue
        first, *rest = value.split(",")
        main = [] if first.partition("=")[0].strip() in options else [first]
        for text in rest if main else [first, *rest]:
            option, equals, option_value = (part.strip() for part in text.partition("="))
            if not (equals and re.fullmatch("[a-z_]+", option)):
                main.append(text)  # a comma of the value itself
                continue
            variable = f"{PREFIX}{name.upper()}"
            if option not in options:
                raise InputError(f"{variable} has no option {option!r}; it has {', '.join(options)}")
            field = options[option]
            if field.names[0] in parts or any(former in values for former in field.names):
                raise InputError(f"{option} is set twice, in {variable} and {field.name}; unset {field.name}")
            parts[field.names[0]] = option_value
        if main:
            parts[name] = ",".join(main)
    return parts


@dataclass(frozen=True)
class Variable:
    """An environment variable and the field of a group of `Settings` that it sets.

    `names` are those of the variable, in lower case and without TAUGATE_: the current one, then its older names.
    """

    group: str
    field: str
    names: tuple[str, ...]
    info: FieldInfo

    @property
    def name(self) -> str:
        """Name of the variable in the environment, such as TAUGATE_MAX_K."""
        return f"{PREFIX}{self.names[0].upper()}"

    @property
    def former(self) -> FormerVariable | None:
        """What succeeds a former variable; None for a current one."""
        return next((annotation for annotation in self.info.metadata if isinstance(annotation, FormerVariable)), None)

    @property
    def options(self) -> "dict[str, Variable]":
        """The fields that options of this variable set, by name of the option."""
        return {
            field.former.key: field
            for field in FIELDS.values()
            if field.former is not None and field.former.key and field.former.successor == self.names[0]
        }

    @property
    def setting(self) -> str:
        """The variable, or the option of one, that sets the field."""
        former = self.former
        return f"{former.key} of {PREFIX}{former.successor.upper()}" if former and former.key else self.name

    @property
    def description(self) -> str:
        """The description on one line."""
        return " ".join((self.info.description or "").split())

    @property
    def default(self) -> str:
        """The default in words; – if there is none."""
        for annotation in self.info.metadata:
            if isinstance(annotation, ComputedDefault):
                return annotation.text
        return "–" if self.info.default in {None, "", PydanticUndefined} else str(self.info.default)


def _variables() -> Iterator[tuple[str, Variable]]:
    for group, model in Settings.groups().items():
        for field, info in model.model_fields.items():
            alias = info.validation_alias
            names = alias.choices if isinstance(alias, AliasChoices) else [alias or field]
            yield str(names[0]), Variable(group, field, tuple(map(str, names)), info)


# Of every field, by its current or former name, in the order of the declarations; then those that are current.
FIELDS: Mapping[str, Variable] = MappingProxyType(dict(_variables()))
VARIABLES: Mapping[str, Variable] = MappingProxyType({name: one for name, one in FIELDS.items() if one.former is None})
_GROUPS = {name: variable.group for variable in FIELDS.values() for name in variable.names}
FORMER_NAMES: Mapping[str, str] = MappingProxyType(
    {f"{PREFIX}{name.upper()}": one.former.use for one in FIELDS.values() if one.former for name in one.names}
    | {f"{PREFIX}{older.upper()}": one.name for one in VARIABLES.values() for older in one.names[1:]}
)  # former variables, which still work, with what to use instead


@dataclass(frozen=True)
class SettingInForce:
    """A setting with the value that the service would use.

    `set_by` is the flag or variable that set the value or an option of it, None for defaults.
    """

    variable: Variable
    value: Json
    options: dict[str, Json]
    source: Literal["flag", "environment", "default"]
    set_by: str | None


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
    values = settings.by_variable() | ({} if releases_named else {"releases": None})
    in_force = []
    for name, variable in VARIABLES.items():
        spellings = [spelling for one in (variable, *variable.options.values()) for spelling in _spellings(one)]
        set_by = next((environment[spelling] for spelling in spellings if spelling in environment), None)
        source: Literal["flag", "environment", "default"] = "default" if set_by is None else "environment"
        if flags.get(name) is not None:
            source, set_by = "flag", _flag(name)
        options = {key: _shown(values[option.names[0]]) for key, option in variable.options.items()}
        in_force.append(SettingInForce(variable, _shown(values[name]), options, source, set_by))
    return in_force


def _shown(value: Any) -> Json:  # noqa: ANN401 (a value of any of the settings)
    """Return a value for display as JSON, with secrets hidden."""
    if isinstance(value, SecretStr):
        return "(hidden)"
    return str(value) if isinstance(value, Path) else cast("Json", value)


def former_variables(names: Iterable[str]) -> dict[str, str]:
    """Return the former variables among these of the environment, each with what to use instead."""
    return {name: FORMER_NAMES[name.upper()] for name in sorted(names) if name.upper() in FORMER_NAMES}


def unknown_variables(names: Iterable[str]) -> dict[str, str | None]:
    """Return the environment variables that look like settings of the service but are not.

    Each has the most similar setting, None if none is similar.
    """
    spellings = [spelling for variable in VARIABLES.values() for spelling in _spellings(variable)]
    expected = {*spellings, *FORMER_NAMES, *_OTHER_VARIABLES}
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
    if name not in _GROUPS:
        return f"{name}: {first['msg']}"
    source = _flag(name) if name in flags else f"{PREFIX}{name.upper()}"
    former = FIELDS[name].former if name in FIELDS else None
    if former is not None and former.key and source not in {variable.upper() for variable in os.environ}:
        source = f"{PREFIX}{former.successor.upper()}: {former.key}"
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
