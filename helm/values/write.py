"""Generates the chart's values.yaml, its schema, the table in its README, and defaults for templates."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from helm.values.chart import ChartValues
from helm.values.moved import MOVED
from helm.values.settings import plain_defaults

BEGIN, END = "<!-- values: make chart -->", "<!-- end of values -->"
_HEAD = "# Values of the chart and their defaults. Made by `make chart` from helm/values; change them there.\n"


def values_yaml() -> str:
    """Return values.yaml: every value with its default, below a comment that describes it."""
    return _HEAD + "".join(_lines(ChartValues(), ""))


def schema_json() -> str:
    """Return the JSON Schema by which Helm checks a user's values."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | ChartValues.model_json_schema()
    for group in _groups(ChartValues()):
        part = schema["$defs"].get(type(group).__name__, schema)
        part["required"] = [
            name for name, inner in part["properties"].items() if {"type": "null"} not in inner.get("anyOf", [])
        ]
    plain = _plain(schema)
    for path, use in MOVED.items():
        _let_in(plain, path.split("."), f"no longer a value: {use}")
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _let_in(schema: dict[str, Any], path: list[str], text: str) -> None:
    """Allow a value that went, for a template that refuses it with its successor's name."""
    properties = schema["properties"]
    for name in path[:-1]:
        inner = properties.setdefault(name, {"anyOf": [{"type": "object", "additionalProperties": True}]})
        reference = inner.get("$ref", "")
        if not reference:  # the group is now a single value
            if "object" not in str(inner.get("anyOf")):
                properties[name] = {"anyOf": [inner, {"type": "object", "additionalProperties": True}]}
            return
        properties = schema["$defs"][reference.rpartition("/")[2]]["properties"]
    properties[path[-1]] = {"deprecated": True, "description": text}


def moved_json() -> str:
    """Return the values that went, with what to use, for the template that refuses them."""
    return json.dumps(MOVED, indent=2) + "\n"


def settings_json() -> str:
    """Return the service's own defaults as JSON for templates."""
    return json.dumps(plain_defaults(), indent=2) + "\n"


def readme(before: str) -> str:
    """Return the chart's README with a new table of all values between its two marks."""
    rows = [
        f"| **{path}** | | {text} |"
        if isinstance(default, BaseModel)
        else f"| `{path}` | `{_flow(default)}` | {text} |"
        for path, default, text in _rows(ChartValues())
    ]
    table = "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])
    head, tail = before.split(BEGIN)
    return f"{head}{BEGIN}\n{table}\n{END}{tail.split(END)[1]}"


def leaves(values: BaseModel) -> Iterator[tuple[str, Any, str]]:
    """Yield the path, default and description of all values except groups."""
    return (row for row in _rows(values) if not isinstance(row[1], BaseModel))


def _rows(values: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the path, default and description of all values and groups, groups before their values."""
    for name, default, text in _fields(values):
        yield f"{prefix}{name}", default, text
        if isinstance(default, BaseModel):
            yield from _rows(default, f"{prefix}{name}.")


def _fields(values: BaseModel) -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and description of all fields except older names, which only the schema allows."""
    for name, field in type(values).model_fields.items():
        if not field.deprecated:
            yield field.alias or name, getattr(values, name), field.description or ""


def _groups(values: BaseModel) -> Iterator[BaseModel]:
    """Yield the groups of values.yaml, whose values are required unless they may be null.

    Helm removes a value if a user sets it to null, and templates do not expect that. Groups inside lists are excluded,
    because Helm adds no defaults to them.
    """
    yield values
    for _, default, _ in _fields(values):
        if isinstance(default, BaseModel):
            yield from _groups(default)


def _lines(values: BaseModel, indent: str) -> Iterator[str]:
    for name, default, text in _fields(values):
        blank = "\n" if not indent else ""
        yield (
            blank
            + textwrap.indent(textwrap.fill(text, 118 - len(indent), break_on_hyphens=False), f"{indent}# ")
            + "\n"
        )
        if isinstance(default, BaseModel):
            yield f"{indent}{name}:\n"
            yield from _lines(default, indent + "  ")
        else:
            yield f"{indent}{name}: {_flow(default)}\n"


def _flow(default: Any) -> str:  # noqa: ANN401 (any YAML value)
    if isinstance(default, list):
        default = [item.model_dump(by_alias=True) if isinstance(item, BaseModel) else item for item in default]
    written: str = yaml.safe_dump(default, default_flow_style=True, width=10_000)
    return written.removesuffix("\n").removesuffix("\n...")


def _plain(schema: Any) -> Any:  # noqa: ANN401 (any part of a schema)
    """Drop pydantic's titles and the defaults of groups, and turn "T or null" into one list of types."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: {name: _plain(part) for name, part in inner.items()} if key in {"properties", "$defs"} else _plain(inner)
        for key, inner in schema.items()
        if key != "title" and not (key == "default" and (inner is None or isinstance(inner, dict)))
    }
    match kept.get("anyOf"):
        case [{"type": str(kind), **keywords}, {"type": "null"}]:
            del kept["anyOf"]
            allowed: Any = keywords.get("enum")  # a list, as JSON Schema has it
            choices = {"enum": [*allowed, None]} if "enum" in keywords else {}
            kept = {"type": [kind, "null"], **keywords, **choices, **kept}
    return kept
