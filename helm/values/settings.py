"""`settings`: a map of the settings of the service that no other value sets, from the service's own declarations."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import ConfigDict, Field, create_model
from pydantic_core import PydanticUndefined

from helm.values.base import Group
from taugate.service.settings import VARIABLES, Variable

# Set by other values, because they come with a volume, a Secret or a port of the pod.
OWNED = (
    "releases",
    "trusted_keys",
    "host",
    "port",
    "allowed_hosts",
    "redis_url",
    "engine_url",
    "engine_token_file",
    "encoder_url",
    "rerank_url",
    "query_log",
    "keys_file",
    "keys",
)
_PLAIN = {name: variable for name, variable in VARIABLES.items() if name not in OWNED}


class _Plain(Group):
    """Settings of the service by their own names (docs/settings.md): settings.max_k is TAUGATE_MAX_K."""

    model_config = ConfigDict(alias_generator=None)


def plain_defaults() -> dict[str, Any]:
    """Return the service's defaults that do not depend on the machine; templates calculate with some of them."""
    fields = {name: field for variable in _PLAIN.values() for name, field in _fields_of(variable)}
    defaults = {name: field.info.default for name, field in fields.items()}
    return {name: default for name, default in defaults.items() if default is not PydanticUndefined}


def _fields_of(variable: Variable) -> Iterator[tuple[str, Variable]]:
    """Yield a setting and the former settings that its options set, by name."""
    yield from ((one.names[0], one) for one in (variable, *variable.options.values()))


def _field(variable: Variable, **options: Any) -> Any:  # noqa: ANN401 (a type and pydantic's FieldInfo, as create_model takes them)
    """Return a value with the type and the bounds of a setting, or a text with options."""
    info = variable.info
    bounded = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    optional = bounded | None  # type: ignore[operator]  # an annotation is not a class
    if variable.options:
        option = f"({'|'.join(variable.options)})=[^,=]+"
        optional |= Annotated[str, Field(pattern=f"^([^,=]+,)?{option}(,{option})*$")]
    return (optional, Field(default=None, description=f"{variable.description}; null: {variable.default}", **options))


def _model() -> type[_Plain]:
    """Return the group with a value for every setting; older names are accepted but not listed."""
    fields: dict[str, Any] = {}
    for name, variable in _PLAIN.items():
        fields[name] = _field(variable)
        for _, one in _fields_of(variable):
            for former in one.names[one is variable :]:
                fields[former] = _field(one, deprecated=f"a former name, now part of settings.{name}")
    return create_model("ServiceSettings", __base__=_Plain, __doc__=_Plain.__doc__, **fields)


ServiceSettings = _model()
