"""All settings of the service, read from TAUGATE_* variables at startup and then frozen."""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, SecretStr, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticUndefined

from taugate.service.settings.groups import (
    AccessSettings,
    AdmissionSettings,
    CacheSettings,
    ComputedDefault,
    ComputeSettings,
    ConnectionSettings,
    DriftSettings,
    EndpointSettings,
    EngineSettings,
    LifecycleSettings,
    ListenSettings,
    Part,
    ReleaseSettings,
    RequestSettings,
    RerankSettings,
    SettingGroup,
    TelemetrySettings,
)

PREFIX = "TAUGATE_"


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
        super().__init__(**_environment() | values)

    @model_validator(mode="before")
    @classmethod
    def _into_groups(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Put each value into its group. An unknown name is left at the top level, where validation rejects it."""
        for variable in VARIABLES.values():
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
    def _engine_is_given_up_before_the_request(self) -> Self:
        if self.engine.timeout_ms >= self.admission.deadline_ms and self.engine.url is not None:
            message = "TAUGATE_ENGINE_TIMEOUT_MS must be below TAUGATE_DEADLINE_MS, or every failure would be a 504"
            raise PydanticCustomError("engine_over_deadline", message)
        return self

    @classmethod
    def groups(cls) -> dict[str, type[SettingGroup]]:
        """Return the model of each group by the group's name."""
        return {name: cast("type[SettingGroup]", field.annotation) for name, field in cls.model_fields.items()}

    @property
    def parts(self) -> frozenset[Part]:
        """The optional parts of the service that are on."""
        playground: frozenset[Part] = frozenset({"playground"} if self.listen.has_playground else ())
        return playground.union(self.requests.dialect_names)

    def by_variable(self) -> dict[str, Any]:
        """Return the values by variable, named in lower case and without TAUGATE_."""
        return {name: getattr(getattr(self, setting.group), setting.field) for name, setting in VARIABLES.items()}

    def for_log(self) -> dict[str, Any]:
        """Return the values as JSON with secrets masked, by current and older names of the variables."""
        groups = self.model_dump(mode="json")
        return {name: groups[setting.group][setting.field] for setting in VARIABLES.values() for name in setting.names}

    def export(self, environment: MutableMapping[str, str]) -> None:
        """Write the settings to an environment, from which another process then reads the same values.

        Variables are written under their current names. Settings without a value, and older names, are removed.
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


VARIABLES: Mapping[str, Variable] = MappingProxyType(dict(_variables()))  # by name, in the order of the declarations
_GROUPS = {name: variable.group for variable in VARIABLES.values() for name in variable.names}
