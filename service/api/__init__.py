"""HTTP: routes, schemas, guards and errors, on FastAPI."""
