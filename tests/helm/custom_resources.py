"""Those parts of the definitions of the Prometheus operator and the Gateway API that the chart uses.

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

_ENDPOINTS = {
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
}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_MATCH = _closed(["path"], path=_closed(["type", "value"], type={"enum": ["PathPrefix", "Exact"]}, value=_TEXT))
_BACKEND = _closed(["name"], name=_TEXT, port=_PORT, weight={"type": "integer"})

_SPECS = {
    "HTTPRoute": _closed(
        ["parentRefs", "rules"],
        parentRefs={"type": "array", "minItems": 1, "items": _closed(["name"], name=_TEXT, namespace=_TEXT)},
        hostnames={"type": "array", "items": _TEXT},
        rules={
            "type": "array",
            "minItems": 1,
            "items": _closed(
                [],
                matches={"type": "array", "items": _MATCH},
                backendRefs={"type": "array", "items": _BACKEND},
                timeouts=_closed([], request=_TEXT),
            ),
        },
    ),
    "PodMonitor": _closed(
        ["selector", "podMetricsEndpoints"], selector=_closed([], matchLabels=_TEXTS), podMetricsEndpoints=_ENDPOINTS
    ),
    "PrometheusRule": _closed(
        ["groups"],
        groups={
            "type": "array",
            "minItems": 1,
            "items": _closed(["name"], name=_TEXT, rules={"type": "array", "items": _RULE}),
        },
    ),
    "ServiceMonitor": _closed(
        ["selector", "endpoints"], selector=_closed([], matchLabels=_TEXTS), endpoints=_ENDPOINTS
    ),
}


def is_custom(resource: dict[str, Any]) -> bool:
    return resource["apiVersion"] in {"monitoring.coreos.com/v1", "gateway.networking.k8s.io/v1"}


def check_custom(resource: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError."""
    jsonschema.validate(resource["spec"], _SPECS[resource["kind"]])
