"""`settings`: all settings of the service that no other value sets, from the service's own declarations."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, create_model
from pydantic_core import PydanticUndefined

from helm.values.base import Group
from taugate.service.settings import VARIABLES, Variable

# Set by other values, because they come with a volume, a Secret or a port of the pod.
OWNED = (
    "releases",
    "releases_copy",
    "trusted_keys",
    "host",
    "port",
    "allowed_hosts",
    "redis_url",
    "engine_url",
    "engine_token_file",
    "encoder_url",
    "encoder_key_file",
    "rerank_url",
    "rerank_key_file",
    "query_log",
    "keys_file",
    "keys",
)
_PLAIN = {name: variable for name, variable in VARIABLES.items() if name not in OWNED}


class _Plain(Group):
    """Settings of the service by their own names: settings.max_k is TAUGATE_MAX_K. null: the service's own default."""

    model_config = ConfigDict(alias_generator=None)


def plain_defaults() -> dict[str, Any]:
    """Return the service's defaults that do not depend on the machine; templates calculate with some of them."""
    defaults = {name: variable.info.default for name, variable in _PLAIN.items()}
    return {name: default for name, default in defaults.items() if default is not PydanticUndefined}


def _field(variable: Variable, **options: Any) -> Any:  # noqa: ANN401 (a type and pydantic's FieldInfo, as create_model takes them)
    """Return a value with the type and the bounds of a setting."""
    info = variable.info
    bounded = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    optional = bounded | None  # type: ignore[operator]  # an annotation is not a class
    return (optional, Field(default=None, description=f"{variable.description}; null: {variable.default}", **options))


def _model() -> type[_Plain]:
    """Return the group with a value for every setting; older names are accepted but not listed."""
    fields: dict[str, Any] = {}
    for name, variable in _PLAIN.items():
        fields[name] = _field(variable)
        for older in variable.names[1:]:
            fields[older] = _field(variable, deprecated=f"an older name of settings.{name}")
    return create_model("ServiceSettings", __base__=_Plain, __doc__=_Plain.__doc__, **fields)


ServiceSettings = _model()
