"""The HTTP API on FastAPI: routes, schemas, middleware and errors."""
