"""`python -m taugate.service.api docs/openapi.json` writes the OpenAPI document."""

import sys
from pathlib import Path

import orjson

from taugate.service.api.app import openapi_document

if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(orjson.dumps(openapi_document(), option=orjson.OPT_INDENT_2) + b"\n")
