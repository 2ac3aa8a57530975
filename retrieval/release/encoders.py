"""The encoders of a release, the one that is to answer first.

A release in int8 carries the float32 encoder that it was made of, too. Rounding moves a score by no more than int8 on
another kind of processor does (docs/gate.md), so that the threshold holds for either.
"""

from pathlib import Path
from typing import Literal, get_args

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.encoder.encoder import FILES, OnnxEncoder
from taugate.retrieval.release.layout import ENCODER_FOLDER, FLOAT32_FOLDER
from taugate.retrieval.release.manifest import EncoderRecord, Manifest

AskedPrecision = Literal["auto", "float32", "int8"]


def encoder_folders(release: Path, manifest: Manifest, precision: AskedPrecision) -> list[Path]:
    """Folders of the encoders that may answer, the first that does is to be taken.

    auto: the one that the release was calibrated with, then the other. Raises ReleaseError when manifest and files
    disagree, InputError when the release has no encoder of the precision asked for.
    """
    records = {release / ENCODER_FOLDER: manifest.encoder}
    if manifest.float32_encoder is not None:
        records[release / FLOAT32_FOLDER] = manifest.float32_encoder
    if any(name.startswith(f"{FLOAT32_FOLDER}/") for name in manifest.files) != (len(records) == 2):
        raise ReleaseError(f"{release}: the manifest and its files disagree on {FLOAT32_FOLDER}; calibrate again")
    found = [folder for folder, record in records.items() if precision in ("auto", record.precision)]
    if not found:
        has = " and ".join(record.precision for record in records.values())
        choices = ", ".join(get_args(AskedPrecision))
        raise InputError(f"TAUGATE_PRECISION {precision}: the release has {has} ({choices})")
    return found


def open_encoder(folder: Path, manifest: Manifest, threads: int | None) -> OnnxEncoder:
    """Load one of them. Raises ReleaseError when it is not the one in the manifest, EncoderError when it is none."""
    encoder = OnnxEncoder.load(folder, threads)
    record: EncoderRecord | None = manifest.encoder if folder.name == ENCODER_FOLDER else manifest.float32_encoder
    if record is None or encoder.sha256 != record.sha256:
        names = ", ".join(FILES)
        raise ReleaseError(f"{folder}: its files ({names}) are not the encoder in the manifest; calibrate again")
    if encoder.config.dimension != manifest.encoder.dimension:
        dimensions = sorted({manifest.encoder.dimension, encoder.config.dimension})
        raise ReleaseError(f"{folder}: manifest and encoder have dimensions {dimensions}; calibrate again")
    return encoder
