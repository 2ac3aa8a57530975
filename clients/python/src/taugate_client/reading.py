"""Builds the models of replies from parsed JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_origin, get_type_hints

from taugate_client.errors import UnexpectedReply


class Model(Protocol):
    """Any dataclass of taugate_client.models."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # Any: as in typeshed


M = TypeVar("M", bound=Model)


def read(model: type[M], body: object) -> M:
    """Build a model, and those within it, from parsed JSON. Unknown fields are ignored.

    Raises:
        UnexpectedReply: If an object or a list is expected and `body` holds something else, or if a field is missing.
    """
    if not isinstance(body, Mapping):
        raise UnexpectedReply(f"expected a JSON object for {model.__name__}, got {type(body).__name__}")
    missing = [field.name for field in fields(model) if field.default is MISSING and field.name not in body]
    if missing:
        raise UnexpectedReply(f"the reply lacks {', '.join(missing)}: is this the URL of a Taugate service?")
    return model(**{name: _read_value(name, kind, body[name]) for name, kind in _kinds(model).items() if name in body})


@cache
def _kinds(model: type[Model]) -> dict[str, object]:
    return get_type_hints(model)


def _read_value(name: str, kind: object, value: object) -> object:
    """Build the models in a field, whose type may be a model, a model or None, or a sequence of models."""
    models = [part for part in (kind, *get_args(kind)) if isinstance(part, type) and is_dataclass(part)]
    if not models or (value is None and type(None) in get_args(kind)):
        return value
    (model,) = models
    if get_origin(kind) is not Sequence:
        return read(model, value)
    if not isinstance(value, list):
        raise UnexpectedReply(f"{name} is not a list: is this the URL of a Taugate service?")
    return tuple(read(model, item) for item in value)
