"""Verifies a release together with its collection, if its vectors and documents are in an engine."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.engines.connect import engine_from_environment
from taugate.retrieval.engines.verify import open_verified
from taugate.retrieval.release.manifest import ReleaseManifest
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify

_SECONDS = 120.0  # for all requests to the engine, which read 4,096 rows


def verify_with_collection(
    release: Path, trusted: TrustedKeys | None = None, environ: Mapping[str, str] = os.environ
) -> ReleaseManifest:
    """Verify a release and, if it has an engine record, its collection in the engine that the environment names.

    Args:
        release: Folder of the release, named by its id.
        trusted: See `verify`.
        environ: Environment variables.

    Returns:
        The manifest.

    Raises:
        ReleaseError: If anything differs; names the first difference.
        EngineUnavailable: If the engine does not respond.
    """
    manifest = verify(release, trusted)
    searched = manifest.searchable
    if searched is not None and searched.engine is not None:
        try:
            engine = engine_from_environment(searched.engine.kind, environ)
        except InputError as error:
            raise ReleaseError(f"{release.name}: {error}") from error
        open_verified(engine, searched.engine, searched.dimension, time.monotonic() + _SECONDS)
    return manifest
