"""Generates the chart's values.yaml, schema, table in the README, and the defaults that templates calculate with."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from helm.values.chart import ChartValues
from helm.values.settings import plain_defaults

BEGIN, END = "<!-- values: make chart -->", "<!-- end of values -->"
_HEAD = "# Values of the chart and their defaults. Made by `make chart` from helm/values; change them there.\n"


def values_yaml() -> str:
    """The text of values.yaml: every value with its default, below a comment that describes it."""
    return _HEAD + "".join(_lines(ChartValues(), ""))


def schema_json() -> str:
    """The JSON Schema that Helm checks a user's values against."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | ChartValues.model_json_schema()
    for each in _groups(ChartValues()):
        part = schema["$defs"].get(type(each).__name__, schema)
        part["required"] = [
            name for name, inner in part["properties"].items() if {"type": "null"} not in inner.get("anyOf", [])
        ]
    return json.dumps(_plain(schema), indent=2, ensure_ascii=False) + "\n"


def settings_json() -> str:
    """The service's own defaults, as JSON that templates read."""
    return json.dumps(plain_defaults(), indent=2) + "\n"


def readme(before: str) -> str:
    """The chart's README with the table of all values between its two marks.

    Args:
        before: The README as it is.
    """
    rows = [
        f"| **{path}** | | {text} |"
        if isinstance(default, BaseModel)
        else f"| `{path}` | `{_flow(default)}` | {text} |"
        for path, default, text in _rows(ChartValues())
    ]
    table = "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])
    head, rest = before.split(BEGIN)
    return f"{head}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}"


def leaves(values: BaseModel) -> Iterator[tuple[str, Any, str]]:
    """Yield the path, default and description of each value that is not a group."""
    return (row for row in _rows(values) if not isinstance(row[1], BaseModel))


def _rows(values: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the path, default and description of each value and group, a group before its own values."""
    for name, default, text in _fields(values):
        yield f"{prefix}{name}", default, text
        if isinstance(default, BaseModel):
            yield from _rows(default, f"{prefix}{name}.")


def _fields(values: BaseModel) -> Iterator[tuple[str, Any, str]]:
    """Name, value and description of each field; older names, which the schema lets through, are left out."""
    for name, field in type(values).model_fields.items():
        if not field.deprecated:
            yield field.alias or name, getattr(values, name), field.description or ""


def _groups(values: BaseModel) -> Iterator[BaseModel]:
    """The groups that values.yaml has, in which every value is required that may not be null.

    Helm takes a value away where a user gives null, and no template expects that. Groups inside lists are not among
    these: Helm puts no defaults into them.
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


def _flow(default: Any) -> str:  # noqa: ANN401 (whatever YAML can hold)
    if isinstance(default, list):
        default = [each.model_dump(by_alias=True) if isinstance(each, BaseModel) else each for each in default]
    written: str = yaml.safe_dump(default, default_flow_style=True, width=10_000)
    return written.removesuffix("\n").removesuffix("\n...")


def _plain(schema: Any) -> Any:  # noqa: ANN401 (any part of a schema)
    """Drop pydantic's titles and the defaults of groups, and turn "T or null" into one list of types."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: {name: _plain(each) for name, each in inner.items()} if key in {"properties", "$defs"} else _plain(inner)
        for key, inner in schema.items()
        if key != "title" and not (key == "default" and (inner is None or isinstance(inner, dict)))
    }
    match kept.get("anyOf"):
        case [{"type": str(kind), **rest}, {"type": "null"}]:
            del kept["anyOf"]
            allowed: Any = rest.get("enum")  # a list, as JSON Schema has it
            choices = {"enum": [*allowed, None]} if "enum" in rest else {}
            kept = {"type": [kind, "null"], **rest, **choices, **kept}
    return kept
