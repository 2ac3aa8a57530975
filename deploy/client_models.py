"""Writes the models of the Python client from docs/openapi.json: `python -m deploy.client_models` (`make openapi`).

datamodel-code-generator writes 600 lines for the same document, with a StrEnum for each list of values, two classes for
a request with alternatives, and no Google docstrings.
"""

import json
import re
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OPENAPI = ROOT / "docs" / "openapi.json"
MODELS = ROOT / "clients" / "python" / "src" / "taugate_client" / "models.py"
Schema = dict[str, Any]

# In an order in which each model comes after those within it.
_REPLIES = (
    "Parts", "Result", "CertifiedLoss", "Refusal", "LossBounds", "Drift", "SearchResponse", "BatchResponse",
    "ExplainResponse", "FeedbackResponse", "KeptResultFields", "GateResponse", "Interval", "LiveDrift",
    "ReleaseResponse",
)  # fmt: skip
_NAMES = {"FilterObject": "Filter", "KeptResultFields": "KeptResult"}  # of schemas that the client calls otherwise
_OMITTED_BY_EARLIER_SERVICES = {"ReleaseResponse": {"drift"}}
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_WORDS = {"null": "None", "; absent if false": "", "absent if": "None if"}  # of JSON, in Python
_WIDTH = 120  # as in pyproject.toml
# Methods of the replies: what a person sees of one in an interpreter, and loops over the one list in it.
_METHODS = {
    "Result": """
    def __repr__(self) -> str:
        return f"Result(rank={self.rank}, score={self.score}, id={self.id!r}, title={self.title!r})"
""",
    "SearchResponse": """
    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __repr__(self) -> str:
        why = "" if self.reason is None else f", reason={self.reason!r}"
        kept = f"{len(self)} of {self.considered} results"
        return f"<SearchResponse: {kept}, threshold={self.threshold}, best_score={self.best_score}{why}>"
""",
    "ExplainResponse": """
    def __repr__(self) -> str:
        return f"<ExplainResponse: {self.why}>"
""",
    "ReleaseResponse": """
    def __repr__(self) -> str:
        return f"<ReleaseResponse: {self.release}, {self.calibration}, loaded at {self.loaded_at}>"
""",
}
_HEAD = '''"""Models of requests and replies. Generated from docs/openapi.json by `make openapi`; do not edit.

Replies are frozen. A newer service may send further fields, which are ignored, and further values of a Literal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from taugate_client.filters import Filter
'''


def models(schemas: dict[str, Schema]) -> str:
    """Return the source of the client's models, given `components.schemas` of the OpenAPI document."""
    return "\n\n".join([_HEAD, *_options(schemas), *(_reply(name, schemas[name]) for name in _REPLIES)])


def _options(schemas: dict[str, Schema]) -> Iterator[str]:
    """Yield the options of /explain and of /search, and a query of a batch, each based on the one before."""
    explain, search = (schemas[name]["properties"] for name in ("ExplainRequest", "SearchRequest"))
    shared = {name: schema for name, schema in search.items() if name in explain and name != "query"}
    further = {name: schema for name, schema in search.items() if name not in explain}
    summary = "The options that decide which results a search returns. Omitted ones have the service's defaults."
    yield _source("ExplainOptions(TypedDict, total=False)", summary, shared)
    yield _source("SearchOptions(ExplainOptions, total=False)", "The options of a search.", further)
    summary = '"""A query of a batch, with options."""'
    yield f"class SearchRequest(SearchOptions, total=False):\n    {summary}\n\n    query: str | None\n"


def _reply(name: str, schema: Schema) -> str:
    """Return a frozen dataclass. Fields that a reply may omit come last, with a default."""
    fields: dict[str, Schema] = schema["properties"]
    required = {*schema["required"]} - _OMITTED_BY_EARLIER_SERVICES.get(name, set())
    ordered = {field: fields[field] for field in sorted(fields, key=lambda field: field not in required)}
    source = _source(_NAMES.get(name, name), schema["description"], ordered, required)
    return f"@dataclass(frozen=True, slots=True)\n{source}{_METHODS.get(name, '')}"


def _source(head: str, text: str, fields: dict[str, Schema], required: Collection[str] | None = None) -> str:
    """Return the source of a class described by `text`. Fields beside the required ones have a default."""
    paragraphs = [textwrap.fill(_in_python(part), _WIDTH - 4) for part in text.split("\n\n")]
    described = {name: schema["description"] for name, schema in fields.items() if "description" in schema}
    if described:
        paragraphs.append("\n".join(["Attributes:", *(_described(*item) for item in described.items())]))
    quoted = "\n\n".join(paragraphs)
    docstring = textwrap.indent(f'"""{quoted}{chr(10) if len(paragraphs) > 1 else ""}"""', "    ")
    lines = [_field(name, schema, required is None or name in required) for name, schema in fields.items()]
    return "\n".join([f"class {head}:", docstring, "", *lines, ""])


def _in_python(text: str) -> str:
    return re.sub("|".join(_WORDS), lambda word: _WORDS[word[0]], text)


def _described(name: str, description: str) -> str:
    text = _in_python(description)
    text = f"{name}: {text[0].upper()}{text[1:]}."
    return textwrap.fill(text, _WIDTH - 4, initial_indent=" " * 4, subsequent_indent=" " * 8)


def _field(name: str, schema: Schema, required: bool) -> str:
    line = f"    {name}: {_type(schema)}" + ("" if required else f" = {schema.get('default')}")
    if len(line) <= _WIDTH:
        return line
    start, _, values = line.removesuffix("]").partition("[")  # a Literal, formatted as ruff does
    return "\n".join([f"{start}[", *(f"        {value}," for value in values.split(", ")), "    ]"])


def _type(schema: Schema) -> str:
    """Return the annotation of a schema."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _NAMES.get(name, name)
    if "anyOf" in schema:
        return " | ".join(_type(alternative) for alternative in schema["anyOf"])
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return f"Literal[{', '.join(json.dumps(value) for value in values)}]"
    match schema["type"]:
        case "array":
            return f"Sequence[{_type(schema['items'])}]"
        case "object":
            values = schema["additionalProperties"]
            return f"Mapping[str, {'Any' if values is True else _type(values)}]"
    return _SCALARS[schema["type"]]


if __name__ == "__main__":
    schemas = json.loads(OPENAPI.read_text(encoding="utf-8"))["components"]["schemas"]
    MODELS.write_text(models(schemas), encoding="utf-8")
