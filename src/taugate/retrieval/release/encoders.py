"""Loads the encoders of a release."""

from pathlib import Path
from typing import get_args

from taugate.errors import (
    InputError,
    ReleaseError,
)
from taugate.retrieval.encoder.encoder import FILES, ExportedEncoder, RequestedPrecision
from taugate.retrieval.encoder.endpoint_record import EndpointAccess
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.encoder.own_vectors import OwnVectors
from taugate.retrieval.release.layout import (
    ENCODER_FOLDER,
    FLOAT32_FOLDER,
    QUERY_FOLDER,
)
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.verify import disagreement


def own_vectors(release: Path, manifest: Manifest) -> OwnVectors:
    """Return what stands for the encoder of a release that has none.

    Raises:
        ReleaseError: If the manifest names another digest.
    """
    encoder = OwnVectors(manifest.encoder.dimension, manifest.encoder.max_norm)
    if encoder.sha256 != manifest.encoder.sha256:
        raise disagreement(release, ENCODER_FOLDER)
    return encoder


def encoder_folders(release: Path, manifest: Manifest, precision: RequestedPrecision) -> list[Path]:
    """Return the folders of the encoders that may encode queries, the preferred one first.

    Args:
        release: Folder of the release.
        manifest: Manifest of the release.
        precision: See `load`.

    Raises:
        ReleaseError: If manifest and files disagree.
        InputError: If the release has no encoder of this precision.
    """
    records = manifest.query_encoders
    for folder in (QUERY_FOLDER, FLOAT32_FOLDER):
        if any(name.startswith(f"{folder}/") for name in manifest.files) != (folder in records):
            raise disagreement(release, folder)
    folders = [release / folder for folder, record in records.items() if precision in ("auto", record.precision)]
    if not folders:
        has = " and ".join(record.precision for record in records.values())
        choices = ", ".join(get_args(RequestedPrecision))
        raise InputError(f"TAUGATE_PRECISION {precision}: the release has {has} ({choices})")
    return folders


def load_release_encoder(
    folder: Path, manifest: Manifest, threads: int | None, endpoint: EndpointAccess | None = None
) -> ExportedEncoder:
    """Load one of the encoders of a release.

    Args:
        folder: One of `encoder_folders`, or the folder of the documents' encoder.
        manifest: Manifest of the release.
        threads: See `load`.
        endpoint: See `load`.

    Raises:
        ReleaseError: If it is not the encoder in the manifest.
        EncoderError: If it cannot be loaded.
    """
    encoder = load_encoder(folder, threads, endpoint)
    record = ({ENCODER_FOLDER: manifest.encoder} | manifest.query_encoders).get(folder.name)
    if record is None or encoder.sha256 != record.sha256:
        names = ", ".join(FILES)
        raise ReleaseError(f"{folder}: its files ({names}) are not the encoder in the manifest; calibrate again")
    if encoder.config.dimension != manifest.encoder.dimension:
        dimensions = sorted({manifest.encoder.dimension, encoder.config.dimension})
        raise ReleaseError(f"{folder}: manifest and encoder have dimensions {dimensions}; calibrate again")
    return encoder
