"""The table of endpoints, which authorization, limits, rates, routing and openapi.json read: only it names paths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from taugate.service.access.keys import KeyScope
from taugate.service.settings import Part

BodyLimit = Literal["max_body_bytes", "max_batch_bytes"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path of the service with its method.

    Attributes:
        name: Operation id.
        method: HTTP method; HEAD is supported wherever GET is.
        path: Request path, or a template if a part of the path varies.
        tag: Group in openapi.json, None to leave the endpoint out.
        scope: Scope that the API key needs, None if any key will do.
        public: True if no key is needed.
        filtered: True if replies are limited to documents within the key's filter. A key with a filter may use only
            such endpoints.
        cost: What a request is charged to the rate of its key: `one` query, the `queries` of its body, which count more
            with many results, or None.
        lists: Lists that may make the body large, see `read_large_json`; empty if it has the size of a single query.
        part: Part of the service that must be on for the path to exist, None if the path always exists.
        status: Status of a successful reply.
        errors: Statuses of errors that only this handler replies, for openapi.json.
    """

    name: str
    method: Literal["GET", "POST"]
    path: str
    tag: str | None
    scope: KeyScope | None = None
    public: bool = False
    filtered: bool = False
    cost: Literal["one", "queries"] | None = None
    lists: tuple[str, ...] = ()
    part: Part | None = None
    status: int = 200
    errors: tuple[int, ...] = ()

    @property
    def body_limit(self) -> BodyLimit:
        """Setting with the largest size of the body in bytes. Bodies of GET requests are ignored."""
        return "max_batch_bytes" if self.lists else "max_body_bytes"


# Columns: name, method, path, tag, scope; then what differs from the defaults.
# fmt: off
_ROWS = (
    Endpoint("search", "POST", "/search", "search", "search", filtered=True, cost="one", errors=(409,)),
    Endpoint("search_batch", "POST", "/search/batch", "search", "search", filtered=True, cost="queries",
             lists=("queries",), errors=(409,)),
    Endpoint("search_vector_store", "POST", "/v1/vector_stores/{vector_store_id}/search", "dialects", "search",
             filtered=True, cost="queries", part="openai", errors=(404, 409)),
    Endpoint("dify_retrieval", "POST", "/dify/retrieval", "dialects", "search", filtered=True, cost="one", part="dify",
             errors=(409,)),
    Endpoint("gate", "POST", "/gate", "gate", "search", cost="queries", lists=("results",), errors=(409,)),
    Endpoint("gate_batch", "POST", "/gate/batch", "gate", "search", cost="queries", lists=("queries", "results"),
             errors=(409,)),
    Endpoint("golden", "GET", "/gate/golden", "gate", "search", errors=(404, 409)),
    Endpoint("golden_check", "POST", "/gate/golden", "gate", "search", cost="queries", lists=("queries", "results"),
             errors=(404, 409)),
    Endpoint("explain", "POST", "/explain", "search", "search", filtered=True, cost="one", errors=(404, 409)),
    Endpoint("feedback", "POST", "/feedback", "search", "feedback", filtered=True, cost="one", errors=(404, 409),
             status=202),
    Endpoint("livez", "GET", "/livez", "operations", public=True),
    Endpoint("readyz", "GET", "/readyz", "operations", public=True),
    Endpoint("release", "GET", "/release", "operations"),
    Endpoint("reference", "GET", "/release/reference", "operations", "search"),
    Endpoint("metrics", "GET", "/metrics", "operations", "metrics"),
    Endpoint("reload", "POST", "/admin/reload", "operations", "admin", errors=(409,)),
    Endpoint("playground", "GET", "/playground", "playground", public=True, part="playground"),
    Endpoint("playground_style", "GET", "/playground/app.css", "playground", public=True, part="playground"),
    Endpoint("playground_script", "GET", "/playground/app.js", "playground", public=True, part="playground"),
    # For the page alone, and not in openapi.json: they change with it.
    Endpoint("playground_questions", "GET", "/playground/questions", None, "search", part="playground"),
    Endpoint("playground_new_questions", "GET", "/playground/new-questions", None, "metrics", part="playground"),
    Endpoint("playground_documents", "POST", "/playground/documents", None, "search", cost="one", part="playground"),
    Endpoint("playground_shadow", "POST", "/playground/shadow", None, "search", cost="one", part="playground"),
    Endpoint("openapi", "GET", "/openapi.json", None, public=True),
    Endpoint("docs", "GET", "/docs", None, public=True),
    Endpoint("home", "GET", "/", None, public=True),
)
# fmt: on
ENDPOINTS: Mapping[str, Endpoint] = {endpoint.name: endpoint for endpoint in _ROWS}
