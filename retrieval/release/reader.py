"""A verified release, opened: encoder, index, documents and policy, ready to answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from taugate.errors import InputError, ReleaseError
from taugate.retrieval.documents.filters import key
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import TEXTS, DocumentStore
from taugate.retrieval.encoder.encoder import FILES, MODEL, OnnxEncoder
from taugate.retrieval.index import files
from taugate.retrieval.index.build import AnyIndex
from taugate.retrieval.index.files import INDEX, VECTORS
from taugate.retrieval.policy.abstention import AnswerRule, AnswerScore
from taugate.retrieval.policy.policy import Policy, Strata
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.release import golden
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    ABSTENTION,
    ENCODER_FOLDER,
    FLOAT32_FOLDER,
    GOLDEN,
    MANIFEST,
    METADATA,
    PROJECTION,
    REFERENCE,
    RELEVANCE,
)
from taugate.retrieval.release.manifest import EncoderRecord, Manifest
from taugate.retrieval.release.reference import Reference
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify
from taugate.retrieval.retriever import Retriever
from taugate.retrieval.vectors.projection import Projection

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


class Closable(Protocol):
    """What is let go of once."""

    def close(self) -> None:
        """Let go of it; a second time does nothing."""
        ...


@dataclass(frozen=True)
class Release:
    """What serves. The retriever's positions are positions in `documents`; precision: of the encoder that answers.

    holds: what keeps it where it is while it is open.
    """

    manifest: Manifest
    retriever: Retriever
    documents: DocumentStore
    precision: Literal["float32", "int8"]
    golden: Sequence[GoldenQuery]
    reference: Reference
    holds: Sequence[Closable] = ()

    def close(self) -> None:
        """It may be removed from now on; what is mapped stays readable. Takes a disk's time."""
        for hold in self.holds:
            hold.close()

    @property
    def metadata(self) -> Metadata:
        """What filters are about."""
        return self.retriever.metadata


def load(
    release: Path,
    threads: int | None = None,
    precision: AskedPrecision = "auto",
    trusted: TrustedKeys | None = None,
) -> Release:
    """Verify and open a release, then ask it its golden queries.

    threads: for the encoder, by default the processors this process may use; precision: of the encoder, by default that
    of the calibration, and where it does not answer as recorded here, the float32 one that the release may have beside
    it; trusted: one of these keys must have signed it, where given. Raises ReleaseError or EncoderError with one
    message when anything is not as it was written, InputError when the release has no such encoder.
    """
    manifest = verify(release, trusted)
    index = _index(release, manifest)
    documents = DocumentStore(release)
    _agree(release, manifest, index, documents)
    metadata = Metadata.load(release / METADATA, documents) if METADATA in manifest.files else Metadata()
    projection = _projection(release, manifest, index)
    relevance = _relevance(release, manifest, index)
    abstention = _abstention(release, manifest, index)
    record, provisional = manifest.policy, manifest.state == "provisional"
    policy = Policy(record.kind, record.tau, record.k, record.metric, provisional, _strata(manifest))
    reference = Reference.load(release / REFERENCE)
    if reference.top.shape[1] != min(policy.k, len(index)):
        raise ReleaseError(f"{release / REFERENCE}: is of another K than the policy; calibrate again")
    asked = golden.read(release / GOLDEN)
    *others, last = encoder_folders(release, manifest, precision)
    for folder in (*others, last):
        encoder = open_encoder(folder, manifest, threads)
        retriever = Retriever(encoder, index, policy, relevance, projection, metadata, abstention)
        try:
            _answers(retriever, asked, release, folder, manifest.golden_tolerance)
            break
        except ReleaseError:
            if folder is last:
                raise
    return Release(manifest, retriever, documents, encoder.config.precision, asked, reference)


def _answers(retriever: Retriever, queries: Sequence[GoldenQuery], release: Path, encoder: Path, most: float) -> None:
    """As recorded, but for `most`. Raises ReleaseError: each library has types of its own for parts that do not fit."""
    try:
        golden.check(retriever, queries, most)
    except ReleaseError as error:
        raise ReleaseError(f"{release / GOLDEN}: {error}") from error
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise ReleaseError(
            f"{release}: {encoder.name}/{MODEL} or {INDEX} cannot answer the golden queries ({said}); calibrate again"
        ) from error


def _index(release: Path, manifest: Manifest) -> AnyIndex:
    if (manifest.index.kind == "ivf-pq") != (VECTORS in manifest.files):
        raise ReleaseError(f"{release}: the manifest and its files disagree on {VECTORS}; calibrate again")
    return files.load(release, manifest.index.kind, _searched(manifest))


def _searched(manifest: Manifest) -> int:
    """Dimension of what is searched."""
    return manifest.encoder.dimension if manifest.projection is None else manifest.projection.dimension


def _projection(release: Path, manifest: Manifest, index: AnyIndex) -> Projection | None:
    if (manifest.projection is None) != (PROJECTION not in manifest.files):
        raise ReleaseError(f"{release}: the manifest and its files disagree on {PROJECTION}; calibrate again")
    if manifest.projection is None:
        return None
    return Projection.load(release / PROJECTION, manifest.encoder.dimension, index.dimension)


def _relevance(release: Path, manifest: Manifest, index: AnyIndex) -> Relevance | None:
    if (manifest.relevance is None) != (RELEVANCE not in manifest.files):
        raise ReleaseError(f"{release}: the manifest and its files disagree on {RELEVANCE}; calibrate again")
    if manifest.relevance is None:
        if manifest.policy.kind == "probability":
            raise ReleaseError(f"{release}: the policy is probability, but there is no {RELEVANCE}; calibrate again")
        return None
    return Relevance.load(release / RELEVANCE, index.dimension, len(index))


def _strata(manifest: Manifest) -> Strata | None:
    if manifest.strata is None:
        return None
    taus = {key(each.value): each.tau for each in manifest.strata.strata if each.value is not None}
    return Strata(manifest.strata.field, {value: tau for value, tau in taus.items() if tau is not None})


def _abstention(release: Path, manifest: Manifest, index: AnyIndex) -> AnswerRule | None:
    record = manifest.abstention
    if (record is None) != (ABSTENTION not in manifest.files):
        raise ReleaseError(f"{release}: the manifest and its files disagree on {ABSTENTION}; calibrate again")
    if record is None:
        return None
    return AnswerRule(AnswerScore.load(release / ABSTENTION, record.score, index.dimension, len(index)), record.tau)


def _agree(release: Path, manifest: Manifest, index: AnyIndex, documents: DocumentStore) -> None:
    counts = {manifest.data.documents, manifest.index.documents, len(index), len(documents)}
    if len(counts) != 1:
        raise ReleaseError(
            f"{release}: {MANIFEST}, {INDEX} and {TEXTS} count {sorted(counts)} documents; calibrate again"
        )
