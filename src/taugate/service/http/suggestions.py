"""What a client may have meant by an unknown path or field: "did you mean …", for error messages."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache

from pydantic import BaseModel

# A longer name is no misspelling, and comparing it would take long. The longest path and field have half as many.
_MAX_CHARS = 60
# Names that other services use: probes of Kubernetes and load balancers, and the search of vector stores.
_PATHS = {
    "/health": "/livez",
    "/healthz": "/livez",
    "/ping": "/livez",
    "/alive": "/livez",
    "/ready": "/readyz",
    "/status": "/readyz",
    "/query": "/search",
    "/retrieve": "/search",
    "/batch": "/search/batch",
    "/reload": "/admin/reload",
    "/swagger": "/docs",
    "/redoc": "/docs",
    "/ui": "/playground",
}
# Fields of other search APIs: those of Qdrant, Milvus, Weaviate, Pinecone, OpenAI, Dify and Elasticsearch.
_FIELDS = {
    "q": "query",
    "question": "query",
    "text": "query",
    "input": "query",
    "top_k": "k",
    "topk": "k",
    "limit": "k",
    "size": "k",
    "n_results": "k",
    "max_num_results": "k",
    "where": "filter",
    "filters": "filter",
    "expr": "filter",
    "tau": "threshold",
    "min_score": "threshold",
    "score_threshold": "threshold",
    "id": "document_id",
    "doc_id": "document_id",
}


def suggest_path(path: str, paths: Collection[str]) -> str:
    """Return "; did you mean PATH?" with the path of the service that is most like an unknown one, or ""."""
    return _sentence(path.rstrip("/").lower(), paths, _PATHS)


def suggest_field(name: str, model: type[BaseModel]) -> str:
    """Return "; did you mean FIELD?" with the field of a request that is most like an unknown one, or ""."""
    return _sentence(name, _fields(model), _FIELDS)


@cache
def _fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of all fields of a request, those of the objects in it included."""
    schema = model.model_json_schema()
    objects = [schema, *schema.get("$defs", {}).values()]
    return frozenset(name for described in objects for name in described.get("properties", ()))


def _sentence(name: str, known: Collection[str], others: Mapping[str, str]) -> str:
    if len(name) > _MAX_CHARS:
        return ""
    other = others.get(name)
    matches = [other] if other in known else get_close_matches(name, known, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
