"""One calibration from data set to release. `calibrate` reads top to bottom in the order in which it happens."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from calibration.admit import admit
from calibration.artifact.contents import Contents, golden_queries
from calibration.artifact.facts import manifest_facts
from calibration.artifact.outcomes import outcomes
from calibration.data.dataset import read_dataset
from calibration.data.location import local_folder
from calibration.encoding.asked import AskedEncoder
from calibration.encoding.cache import EmbeddingCache
from calibration.encoding.corpus import encode_dataset
from calibration.encoding.source import exported_encoder
from calibration.report.page import render
from calibration.settings import CalibrationSettings
from calibration.sizes import check_sizes
from calibration.stopwatch import Stopwatch
from calibration.study import study
from retrieval.encoder import OnnxEncoder
from retrieval.errors import EncoderError, InputError, ReleaseError
from retrieval.release import writer
from retrieval.release.catalog import current_id
from retrieval.release.layout import FLOAT32_FOLDER
from retrieval.release.lock import calibrating
from retrieval.release.manifest import Manifest
from retrieval.release.verify import verify


def calibrate(
    data: str,
    releases: Path,
    asked: AskedEncoder,
    settings: CalibrationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> Manifest:
    """Read a data set, measure, choose a threshold and write a release into `releases`; it is not promoted.

    data: a folder or a URL; say: told one line of progress or warning at a time. Raises InputError, EncoderError or
    ReleaseError; then nothing has been written. One calibration at a time in a directory.
    """
    _check_releases(releases, say)
    asked.check_name(releases)
    with calibrating(releases), tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with watch.stage("read"), local_folder(data, settings.split) as folder:
            dataset = read_dataset(folder, settings.split, Path(spool))
        check_sizes(dataset, settings)
        with watch.stage("export"):
            encoder = _baseline(OnnxEncoder.load(exported_encoder(asked.name)), asked.name)
        asked.check(releases, encoder)
        cache = EmbeddingCache.of(encoder.sha256, encoder.config.dimension)
        encoded = encode_dataset(dataset, encoder, cache, say, watch)
        admitted = admit(dataset, encoded, encoder, settings, say, watch)
        found = study(dataset, admitted.encoded, admitted.index, settings, watch)
        for warning in found.query_set.warnings:
            say(f"warning: {warning}")
        with watch.stage("write"):
            facts = manifest_facts(dataset, admitted, found, settings)
            report = render(dataset, facts, found, _parent(releases))
            contents = Contents(
                admitted.encoder.folder,
                None if admitted.float32 is None else admitted.float32.folder,
                Path(spool),
                golden_queries(dataset, found),
                outcomes(dataset, found),
                found,
                admitted.projection,
                report,
            )
            return writer.write(releases, facts, contents.fill)


def _baseline(encoder: OnnxEncoder, name: str) -> OnnxEncoder:
    if encoder.config.precision != "float32":
        raise EncoderError(
            f"encoder {name!r}: has {encoder.config.precision} weights, which encode queries only; give the one it "
            f"was made of, the folder {FLOAT32_FOLDER} beside it in the release, and --precision"
        )
    return encoder


def _parent(releases: Path) -> Manifest | None:
    """The promoted release's manifest, for the report; a broken one must not keep a new release from being written."""
    try:
        name = current_id(releases)
        return None if name is None else verify(releases / name)
    except (ReleaseError, OSError):
        return None


def _check_releases(releases: Path, say: Callable[[str], None]) -> None:
    """Find out now, and not after the work, what would keep a release from being written."""
    existing = next(path for path in (releases.absolute(), *releases.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(f"{existing}: is a file; name a directory for releases")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{existing}: cannot be written to; name another directory, or mend its permissions")
    try:
        current_id(releases)
    except ReleaseError as error:
        say(f"warning: {error}")
