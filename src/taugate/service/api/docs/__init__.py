"""The page that describes the HTTP API, drawn from the OpenAPI document, and what a browser gets at /."""
