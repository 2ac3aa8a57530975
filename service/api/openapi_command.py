"""`python -m taugate.service.api.openapi_command FILE`: write docs/openapi.json."""

import sys
from pathlib import Path
from typing import Any

import orjson

from taugate.service.api.app import create_app
from taugate.service.settings import Settings


def document() -> dict[str, Any]:
    """The OpenAPI document of an application with default settings."""
    return create_app(Settings(releases=Path("releases"))).openapi()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(orjson.dumps(document(), option=orjson.OPT_INDENT_2) + b"\n")
