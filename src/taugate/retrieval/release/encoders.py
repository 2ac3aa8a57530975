"""The encoders of a release."""

import filecmp
import shutil
from pathlib import Path
from typing import get_args

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.encoder.encoder import CONFIG, FILES, ExportedEncoder, RequestedPrecision
from taugate.retrieval.encoder.endpoint_record import EndpointAccess
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.encoder.own_vectors import OwnVectors
from taugate.retrieval.encoder.tokenizer import TOKENIZER
from taugate.retrieval.release.contents import FileNames, ReleaseFolder, disagreement
from taugate.retrieval.release.layout import ENCODER_FOLDER, ENCODER_FOLDERS, FLOAT32_FOLDER, QUERY_FOLDER
from taugate.retrieval.release.manifest import Manifest
from taugate.storage.folders import link_or_copy


class EncoderFolder(ReleaseFolder):
    """An encoder: that of documents and queries, or one of queries alone."""

    @staticmethod
    def names(manifest: Manifest) -> FileNames:
        """Return the names of the files of all encoders."""
        if not manifest.reads_texts:
            return FileNames()
        stored = {CONFIG} if manifest.encoder.runtime == "endpoint" else {*FILES}
        required = frozenset(f"{ENCODER_FOLDER}/{name}" for name in stored & {TOKENIZER, CONFIG})
        every = frozenset(f"{folder}/{name}" for folder in ENCODER_FOLDERS for name in stored)
        return FileNames(required, every - required)

    def write(self, source: Path) -> None:
        """Copy the files of an exported encoder from a folder, and no others.

        A file that another encoder of the same release has is stored once, if the file system has hard links: a
        tokenizer in several precisions, or the weights below a linear map.

        Raises:
            OSError: If a file cannot be copied.
        """
        self.path.mkdir()
        for name in FILES:
            if (source / name).exists():  # a graph or the weights of a kernel
                others = [path for folder in ENCODER_FOLDERS if (path := self.path.parent / folder / name).is_file()]
                equal = next((path for path in others if filecmp.cmp(source / name, path, shallow=False)), None)
                if equal is None:
                    shutil.copyfile(source / name, self.path / name)
                else:
                    link_or_copy(equal, self.path / name)

    def open(self, manifest: Manifest, threads: int | None, endpoint: EndpointAccess | None = None) -> ExportedEncoder:
        """Load the encoder.

        Args:
            manifest: Manifest of the release.
            threads: See `reader.load`.
            endpoint: See `reader.load`.

        Raises:
            ReleaseError: If it is not the encoder in the manifest.
            EncoderError: If it cannot be loaded.
        """
        encoder = load_encoder(self.path, threads, endpoint)
        record = ({ENCODER_FOLDER: manifest.encoder} | manifest.query_encoders).get(self.path.name)
        if record is None or encoder.sha256 != record.sha256:
            names = ", ".join(FILES)
            raise ReleaseError(f"{self.path}: its files ({names}) are not the encoder in the manifest; calibrate again")
        if encoder.config.dimension != manifest.encoder.dimension:
            dimensions = sorted({manifest.encoder.dimension, encoder.config.dimension})
            raise ReleaseError(f"{self.path}: manifest and encoder have dimensions {dimensions}; calibrate again")
        return encoder


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
        precision: See `reader.load`.

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
