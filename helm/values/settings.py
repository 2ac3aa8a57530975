"""`settings`: every setting of the service that other values do not give, made from service/settings.py."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, create_model
from pydantic_core import PydanticUndefined

from helm.values.base import Group
from taugate.service.settings import Settings

# Given by other values, as a volume, a Secret or a port of the pod comes with each.
OWNED = (
    "releases",
    "releases_copy",
    "trusted_keys",
    "host",
    "port",
    "allowed_hosts",
    "redis_url",
    "query_log",
    "keys_file",
    "keys",
)


class _Plain(Group):
    """Settings of the service by their own names: settings.max_k is TAUGATE_MAX_K. null: the service's own default."""

    model_config = ConfigDict(alias_generator=None)


def _rows() -> dict[str, tuple[str, str]]:
    """Default and meaning of each setting, from the table in the docstring of Settings."""
    lines = [line.strip().strip("|").split("|") for line in (Settings.__doc__ or "").splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines if line[0].strip().startswith("TAUGATE_")]
    return {name.removeprefix("TAUGATE_").lower(): (default, meaning) for name, default, meaning in cells}


def plain_defaults() -> dict[str, Any]:
    """Defaults that are the same on every machine; templates reckon with some of them."""
    return {
        name: field.default
        for name, field in Settings.model_fields.items()
        if name not in OWNED and field.default is not PydanticUndefined
    }


def _model() -> type[_Plain]:
    fields: dict[str, Any] = {}
    for name, (default, meaning) in _rows().items():
        if name not in OWNED:
            field = Settings.model_fields[name]
            bounded = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
            fields[name] = (bounded | None, Field(default=None, description=f"{meaning}; null: {default}"))  # type: ignore[operator]  # an annotation is no class
    return create_model("ServiceSettings", __base__=_Plain, __doc__=_Plain.__doc__, **fields)


ServiceSettings = _model()
