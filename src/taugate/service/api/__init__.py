"""HTTP API on FastAPI: routes, schemas, middleware and error replies."""
