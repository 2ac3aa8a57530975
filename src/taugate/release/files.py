"""The names of the files of a release, by its manifest: one function for each kind of content."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from taugate.policy.abstention import needs_words
from taugate.release.encoder import CONFIG, DATA, FILES, MODEL, TOKENIZER, WEIGHTS
from taugate.release.golden import GoldenQuery, write_golden
from taugate.release.layout import (
    ABSTENTION,
    ENCODER_FOLDER,
    ENCODER_FOLDERS,
    EVIDENCE,
    FIRST_STAGE_FOLDER,
    GOLDEN,
    KNOWN_PAIRS,
    LEXICAL,
    METADATA,
    OFFSETS,
    OUTCOMES,
    PROJECTION,
    QUESTIONS,
    REFERENCE,
    RELEVANCE,
    REPORT,
    RERANKER_CONFIGS,
    RERANKER_FOLDER,
    TEXTS,
    TOKEN_VECTORS,
)
from taugate.release.manifest import Manifest, ReleaseManifest
from taugate.release.names import INDEX, INDEX_KINDS, VECTORS, ReleaseFolder

_NONE: frozenset[str] = frozenset()


class FileNames(NamedTuple):
    """The names of the files of one kind of content, by a manifest."""

    required: frozenset[str] = _NONE  # files that must be there
    optional: frozenset[str] = _NONE  # files that may be there
    recorded: Mapping[str, bool] = {}  # optional files that must be there, or must not, by the records of the manifest


# Files whose contents are in the engine, if there is one.
IN_ENGINE = frozenset({INDEX, VECTORS, TEXTS, OFFSETS, METADATA})
RERANKER_FILES = (MODEL, DATA, WEIGHTS, TOKENIZER, *RERANKER_CONFIGS.values())


def encoder_files(manifest: Manifest) -> FileNames:
    """Return the names of the files of all encoders."""
    if not manifest.reads_texts:
        return FileNames()
    stored = {CONFIG} if manifest.encoder.runtime == "endpoint" else {*FILES}
    required = frozenset(f"{ENCODER_FOLDER}/{name}" for name in stored & {TOKENIZER, CONFIG})
    every = frozenset(f"{folder}/{name}" for folder in ENCODER_FOLDERS for name in stored)
    return FileNames(required, every - required)


def corpus_files(manifest: Manifest) -> FileNames:
    """Return the names of the files of vectors, texts, metadata and words."""
    refusing, recorded = manifest.first_stage.answer_threshold, {LEXICAL: manifest.lexical is not None}
    if refusing is not None and needs_words(refusing[0]) and LEXICAL in manifest.files:
        recorded = {}  # words for the score of refusals, which has them in its own file in earlier releases
    if manifest.engine is not None:
        return FileNames(optional=frozenset({LEXICAL}), recorded=recorded)
    has_vectors = VECTORS in manifest.files
    recorded[VECTORS] = has_vectors == (has_vectors in INDEX_KINDS[manifest.index.kind].vectors_beside)
    optional = frozenset({VECTORS, METADATA})
    return FileNames(IN_ENGINE - optional, optional | {LEXICAL}, recorded)


def model_files(manifest: Manifest) -> FileNames:
    """Return the names of the files of the models of all stages."""
    recorded = {}
    for folder, stage in (("", manifest), (f"{FIRST_STAGE_FOLDER}/", manifest.first_stage)):
        is_there = not folder or stage is not manifest
        recorded[folder + RELEVANCE] = is_there and stage.relevance is not None
        recorded[folder + ABSTENTION] = is_there and stage.answer_threshold is not None
    return FileNames(optional=frozenset(recorded), recorded=recorded)


def reranker_files(manifest: Manifest) -> FileNames:
    """Return the names of the files of a second stage."""
    second = manifest.second_stage
    recorded = {
        f"{RERANKER_FOLDER}/{KNOWN_PAIRS}": second is not None,
        f"{RERANKER_FOLDER}/{TOKEN_VECTORS}": second is not None and second.token_vectors is not None,
    }
    models = frozenset(f"{RERANKER_FOLDER}/{name}" for name in RERANKER_FILES)
    return FileNames(optional=models | frozenset(recorded), recorded=recorded)


def measured_files(manifest: Manifest) -> FileNames:
    """Return the names of what was measured; erased documents remove QUESTIONS, which may quote them."""
    return FileNames(
        frozenset({GOLDEN, REFERENCE, REPORT}),
        frozenset({OUTCOMES, QUESTIONS, EVIDENCE, PROJECTION}),  # earlier versions did not write the first three
        {PROJECTION: manifest.projection is not None},
    )


def run_files(manifest: ReleaseManifest) -> FileNames:
    """Return the names of the files of a release of a run, which has no corpus."""
    recorded = {RELEVANCE: manifest.relevance is not None}
    optional = frozenset({ABSTENTION, EVIDENCE, GOLDEN, RELEVANCE})
    return FileNames(frozenset({REFERENCE, OUTCOMES, REPORT}), optional, recorded)


KINDS = (corpus_files, encoder_files, model_files, reranker_files, measured_files)


def names_of(manifest: ReleaseManifest) -> FileNames:
    """Return the names of all files that a release has, or may have, by its manifest."""
    searched = manifest.searchable
    if searched is None:
        return run_files(manifest)
    kinds = [kind(searched) for kind in KINDS]
    recorded = {name: expected for kind in kinds for name, expected in kind.recorded.items()}
    return FileNames(
        frozenset[str]().union(*(kind.required for kind in kinds)),
        frozenset[str]().union(*(kind.optional for kind in kinds)),
        recorded,
    )


class MeasuredFolder(ReleaseFolder):
    """What a calibration measured: queries, their scores and outcomes, a projection, and the report."""

    def write(self, queries: Sequence[GoldenQuery], report: str) -> None:
        """Write the golden queries and the report; raises OSError if that fails."""
        write_golden(self.path / GOLDEN, queries)
        (self.path / REPORT).write_text(report, encoding="utf-8")
