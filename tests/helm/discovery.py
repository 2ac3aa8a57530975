"""What kubectl asks a cluster before it looks at a file: which kinds there are. Nothing else is answered but 404."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback import LoopbackHTTPServer

_PLURALS = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}


def _answers(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    kinds: dict[str, set[str]] = {}
    for obj in objects:
        kinds.setdefault(obj["apiVersion"], set()).add(obj["kind"])
    groups = [version.split("/") for version in kinds if "/" in version]
    versions = [(name, {"groupVersion": f"{name}/{version}", "version": version}) for name, version in groups]
    listed = [{"name": name, "versions": [version], "preferredVersion": version} for name, version in versions]
    answers: dict[str, dict[str, Any]] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed},
    }
    for version, names in kinds.items():
        resources = [
            {
                "name": _PLURALS.get(kind, f"{kind.lower()}s"),
                "singularName": kind.lower(),
                "namespaced": True,
                "kind": kind,
                "verbs": ["get", "create", "patch"],
            }
            for kind in names
        ]
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        answers[path] = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
    return answers


class Discovery(LoopbackHTTPServer):
    """A server on a loopback port of its own that knows the kinds of these objects, and has none of them."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        answers = _answers(objects)
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = answers.get(self.path.split("?")[0])
                body = json.dumps(answer or missing).encode()
                self.send_response(200 if answer else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing of it is of interest."""

        super().__init__(Handler)
