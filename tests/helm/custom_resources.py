"""The parts of the Prometheus operator's CustomResourceDefinitions that the chart uses, written from its API reference.

The definitions themselves are 1 MB of YAML; a field that is not here is one that nobody has looked up.
"""

from typing import Any

import jsonschema


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_DURATION = {"type": "string", "pattern": "^(0|([0-9]+[smhdwy])+)$"}

_RULE = _closed(
    ["expr"], alert=_TEXT, record=_TEXT, expr=_TEXT, labels=_TEXTS, annotations=_TEXTS, **{"for": _DURATION}
) | {"oneOf": [{"required": ["alert"]}, {"required": ["record"]}]}

_SPECS = {
    "PrometheusRule": _closed(
        ["groups"],
        groups={
            "type": "array",
            "minItems": 1,
            "items": _closed(["name"], name=_TEXT, rules={"type": "array", "items": _RULE}),
        },
    ),
    "ServiceMonitor": _closed(
        ["selector", "endpoints"],
        selector=_closed([], matchLabels=_TEXTS),
        endpoints={
            "type": "array",
            "minItems": 1,
            "items": _closed(
                [],
                port=_TEXT,
                path=_TEXT,
                interval=_DURATION,
                authorization=_closed([], type=_TEXT, credentials=_closed(["key"], name=_TEXT, key=_TEXT)),
                relabelings={"type": "array", "items": _closed([], targetLabel=_TEXT, replacement=_TEXT)},
            ),
        },
    ),
}


def is_custom(resource: dict[str, Any]) -> bool:
    return bool(resource["apiVersion"] == "monitoring.coreos.com/v1")


def check_custom(resource: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError."""
    jsonschema.validate(resource["spec"], _SPECS[resource["kind"]])
