"""The search of an updated corpus in memory: an index of the release's kind, with its encoders."""

from dataclasses import replace
from pathlib import Path

from taugate.calibration.acceptance.accept import accept_updated_index
from taugate.calibration.acceptance.accepted import AcceptedSearch, LexicalPart, RecordedProjection
from taugate.calibration.acceptance.baseline import GateState, SearchTrial
from taugate.calibration.encoding.corpus import EncodedTexts, with_words
from taugate.calibration.encoding.source import Encoders
from taugate.calibration.metrics.inputs import CalibrationInputs
from taugate.errors import ReleaseError
from taugate.retrieval.index.hybrid import words_of
from taugate.retrieval.release.encoders import EncoderFolder
from taugate.retrieval.release.layout import ENCODER_FOLDER
from taugate.retrieval.release.reader import Release
from taugate.retrieval.vectors.similarity import require_in_memory


def release_encoders(folder: Path, release: Release) -> Encoders:
    """Load the encoders that a release was calibrated with.

    Args:
        folder: Folder of the release.
        release: The open release.

    Raises:
        ReleaseError: If they give other results on this machine.
    """
    manifest = release.manifest
    if release.precision != manifest.answering.precision:
        raise ReleaseError(
            f"{folder}: on this machine its {manifest.answering.precision} encoder does not give the recorded results; "
            "update it on the kind of machine that it was calibrated on"
        )
    if not manifest.reads_texts:
        return Encoders.of_vectors(manifest.encoder.dimension, manifest.encoder.max_norm)
    queries, *exact = [EncoderFolder(folder / name).open(manifest, None) for name in manifest.query_encoders]
    float32 = exact[0] if exact else None
    if manifest.query_encoder is not None:
        return Encoders(queries, EncoderFolder(folder / ENCODER_FOLDER).open(manifest, None), float32)
    return Encoders(queries, float32 or queries, float32)


def accept_index(
    inputs: CalibrationInputs, release: Release, encoders: Encoders, encoded: EncodedTexts
) -> AcceptedSearch:
    """Build the index of the release's kind: exact, or approximate and tested by the gate again.

    A lexical part keeps its weight, k1 and b, and is computed from the words of the updated corpus.

    Args:
        inputs: The updated corpus with its queries, and the settings of the update.
        release: The open release.
        encoders: Its encoders.
        encoded: Vectors of the updated corpus, by these encoders.
    """
    manifest = release.manifest
    dataset, lexical, before = inputs.dataset, None, words_of(release.retriever.index)
    with inputs.job.stage("index"):
        if before is not None:
            texts = (document.encoded_text for document in dataset.documents)
            lexical = LexicalPart(before.lexical.of_other_texts(texts), before.weight)
            encoded = with_words(encoded, dataset, lexical.words.statistics.rule)
        trial = SearchTrial.build(
            dataset.answerable,
            encoded.answerable,
            require_in_memory(encoded.documents),
            inputs.settings.k,
            dataset.documents.parents,
            lexical,
        )
    projection = None
    if manifest.projection is not None and release.retriever.projection is not None:
        projection = RecordedProjection(release.retriever.projection, manifest.projection)
    exact = GateState.exact(encoders.queries, encoded, trial)
    inherited = replace(
        exact.accepted,
        projection=projection,
        float32=encoders.float32,
        documents=None if manifest.query_encoder is None else encoders.documents,
        golden_tolerance=manifest.golden_tolerance,
    )
    return accept_updated_index(inputs, replace(exact, accepted=inherited))
