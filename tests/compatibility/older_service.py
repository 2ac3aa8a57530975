"""`taugate serve` as the version before the latest schema: it refuses releases of that schema."""

import sys
from pathlib import Path

from taugate.__main__ import main
from taugate.errors import ReleaseError
from taugate.release import verify
from taugate.release.manifest import SCHEMA_VERSION
from taugate.storage.files import Json

_read = verify._migrated


def _older(release: Path, raw: dict[str, Json]) -> dict[str, Json]:
    if raw.get("schema_version") == SCHEMA_VERSION:
        raise ReleaseError(f"{release}: schema version {SCHEMA_VERSION}, this taugate reads {SCHEMA_VERSION - 1}")
    return _read(release, raw)


verify._migrated = _older

if __name__ == "__main__":
    sys.exit(main())
