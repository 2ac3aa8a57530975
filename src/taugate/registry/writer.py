"""Writes releases: the files that depend on documents, and the folder, which appears complete or not at all."""

import filecmp
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import orjson

from taugate.errors import ReleaseError
from taugate.registry.catalog import current_id, release_ids
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.encoder import encoder
from taugate.retrieval.index import files
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.index.hybrid import HybridIndex
from taugate.retrieval.index.lexical import LexicalIndex
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.policy.abstention import AnswerScore
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.policy.score_relevance import ScoreRelevance
from taugate.retrieval.release import golden
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    ABSTENTION,
    ENCODER_FOLDERS,
    FIRST_STAGE_FOLDER,
    GOLDEN,
    KNOWN_PAIRS,
    LEXICAL,
    MANIFEST,
    METADATA,
    RELEVANCE,
    REPORT,
    RERANKER_FOLDER,
    STAGING_PREFIX,
    content_digest,
    digest_of,
    release_id,
    stored_files,
)
from taugate.retrieval.release.manifest import FileRecord, ReleaseManifest
from taugate.retrieval.release.second_stage import write_pairs
from taugate.retrieval.release.verify import verify
from taugate.retrieval.rerank import cross_encoder, token_encoder
from taugate.retrieval.rerank.late_interaction import TOKEN_VECTORS, TokenVectors
from taugate.retrieval.rerank.reranker import KnownPair
from taugate.storage.files import set_mode, sha256_file, sync, sync_folder
from taugate.storage.folders import link_or_copy, publish_folder, staging_folder

M = TypeVar("M", bound=ReleaseManifest)
# What a report has in the places of the release's id and time, which are known once all other files are written.
RELEASE_ID, CREATED_AT = "@RELEASE_ID@", "@CREATED_AT@"


def write(releases: Path, draft: M, fill: Callable[[Path], None], *, parent: str | None = None) -> M:
    """Add a release to a releases directory and return its manifest; nothing is promoted.

    The release is staged beside the others, synced, then renamed.

    Args:
        releases: The releases directory, created if needed.
        draft: The manifest; its release_id, created_at, parent and files are replaced.
        fill: Writes every file of the release into the empty folder passed to it; RELEASE_ID and CREATED_AT in the
            report are replaced then.
        parent: Id of the previous release; by default the current one.

    Raises:
        OSError: If the release cannot be written; partial files are removed.
    """
    try:
        with staging_folder(releases, STAGING_PREFIX) as staging:
            fill(staging)
            manifest = _manifest(staging, draft, parent or _current_or_none(releases), _free_second(releases))
            (staging / MANIFEST).write_bytes(orjson.dumps(manifest.model_dump(), option=orjson.OPT_INDENT_2) + b"\n")
            _make_readable_and_sync(staging)
            publish_folder(staging, releases / manifest.release_id)
            sync_folder(releases)
    except OSError as error:
        raise OSError(f"{releases}: cannot write a release there ({error}); partial files were removed") from error
    return manifest


def without_equal(releases: Path, manifest: ReleaseManifest) -> ReleaseManifest:
    """Remove a new release if the current one has the same content, and return the manifest of the one that is kept."""
    current = _current_or_none(releases)
    if current is None or current == manifest.release_id or digest_of(current) != digest_of(manifest.release_id):
        return manifest
    try:
        kept = verify(releases / current)
    except ReleaseError:  # damaged, so the new one is needed
        return manifest
    shutil.rmtree(releases / manifest.release_id)
    return kept


@dataclass(frozen=True)
class CorpusContents:
    """The files of a release that depend on its documents, except the documents' texts.

    Calibration and erasure both write them.

    Attributes:
        index: Index of the documents' vectors, None if they are in an engine.
        metadata: Metadata of the documents; without columns it has no file.
        relevance: Model of the probability that a result is relevant, None without one.
        answer_score: Score by which queries are refused as a whole, None if none are.
        golden: The golden queries.
        report: The HTML report.
    """

    index: Index | None
    metadata: Metadata
    relevance: Relevance | ScoreRelevance | None
    answer_score: AnswerScore | None
    golden: Sequence[GoldenQuery]
    report: str

    @property
    def lexical(self) -> LexicalIndex | None:
        """The index of the documents' words, None if neither the search nor the refusals need it."""
        if isinstance(self.index, HybridIndex):
            return self.index.lexical
        words = None if self.answer_score is None else self.answer_score.signals.words
        return None if words is None else words.index

    def write(self, release: Path) -> None:
        """Write the files into the folder of a release.

        Raises:
            OSError: If a file cannot be written.
        """
        if self.index is not None:
            index = self.index
            if isinstance(index, HybridIndex):
                index = index.vectors
            files.save(_built(index), release)
        if self.metadata.columns:
            self.metadata.save(release / METADATA)
        if self.relevance is not None:
            self.relevance.save(release / RELEVANCE)
        if self.answer_score is not None:
            self.answer_score.save(release / ABSTENTION)
        if self.lexical is not None:
            self.lexical.save(release / LEXICAL)
        golden.write_golden(release / GOLDEN, self.golden)
        (release / REPORT).write_text(self.report, encoding="utf-8")


@dataclass(frozen=True)
class SecondStageContents:
    """The files that only a release with two stages has; the models beside them, in CorpusContents, are the second's.

    Attributes:
        reranker: Folder from which the files of a reranker are copied; None for an endpoint.
        known: Pairs to check the reranker.
        relevance: The first stage's model of relevance, None without one.
        answer_score: Score by which the first stage refuses queries, None if it refuses none.
        token_vectors: Token vectors of late interaction, None of other kinds.
        documents: Positions of the documents whose token vectors are kept; None for all.
    """

    reranker: Path | None
    known: list[KnownPair]
    relevance: Relevance | ScoreRelevance | None
    answer_score: AnswerScore | None
    token_vectors: TokenVectors | None
    documents: Sequence[int] | None = None

    def write(self, release: Path) -> None:
        """Write the files beside those of CorpusContents.

        Raises:
            OSError: If a file cannot be written.
        """
        target, alone = release / RERANKER_FOLDER, release / FIRST_STAGE_FOLDER
        target.mkdir()
        if self.reranker is not None:
            for name in {*cross_encoder.FILES, *token_encoder.FILES}:
                if (self.reranker / name).exists():  # there is one model of several kinds
                    shutil.copyfile(self.reranker / name, target / name)
        if self.token_vectors is not None:
            self.token_vectors.save(target / TOKEN_VECTORS, self.documents)
        write_pairs(target / KNOWN_PAIRS, self.known)
        if self.relevance is not None or self.answer_score is not None:
            alone.mkdir()
        if self.relevance is not None:
            self.relevance.save(alone / RELEVANCE)
        if self.answer_score is not None:
            self.answer_score.save(alone / ABSTENTION)
            words = self.answer_score.signals.words
            if words is not None and not (release / LEXICAL).exists():
                words.index.save(release / LEXICAL)


def _built(index: Index) -> AnyIndex:
    """Return an index with its type: only an index that Taugate built has files."""
    if not isinstance(index, AnyIndex):
        raise TypeError(f"{type(index).__name__} has no files")
    return index


def copy_encoder(source: Path, target: Path) -> None:
    """Copy the files of an exported encoder from `source` into `target`, a new folder, and no others.

    A file that another encoder of the same release has is stored once, if the file system has hard links: a tokenizer
    in several precisions, or the weights below a linear map.

    Raises:
        OSError: If a file cannot be copied.
    """
    target.mkdir()
    for name in encoder.FILES:
        if (source / name).exists():  # a graph or the weights of a kernel
            others = [other for folder in ENCODER_FOLDERS if (other := target.parent / folder / name).is_file()]
            equal = next((other for other in others if filecmp.cmp(source / name, other, shallow=False)), None)
            if equal is None:
                shutil.copyfile(source / name, target / name)
            else:
                link_or_copy(equal, target / name)


def _manifest(staging: Path, draft: M, parent: str | None, created_at: datetime) -> M:
    records = {name: _record(staging / name) for name in sorted(stored_files(staging))}
    draft = draft.model_copy(update={"created_at": created_at.isoformat(), "parent": parent, "files": records})
    identifier = release_id(created_at, content_digest(draft.model_dump()))
    report = (staging / REPORT).read_bytes()
    for placeholder, value in ((RELEASE_ID, identifier), (CREATED_AT, f"{created_at:%Y-%m-%d %H:%M} UTC")):
        report = report.replace(placeholder.encode(), value.encode())
    (staging / REPORT).write_bytes(report)
    return draft.model_copy(update={"release_id": identifier, "files": records | {REPORT: _record(staging / REPORT)}})


def _record(path: Path) -> FileRecord:
    return FileRecord(sha256=sha256_file(path), bytes=path.stat().st_size)


def _current_or_none(releases: Path) -> str | None:
    """Return the current release's id, or None, so that a broken pointer does not prevent writing a release."""
    try:
        return current_id(releases)
    except ReleaseError:
        return None


def _free_second(releases: Path) -> datetime:
    """Return the first second from now on, UTC, that is in no id of the directory.

    Ids sort by time. Two ids of the same second would sort by digest, which says nothing about their order.
    """
    names = release_ids(releases)
    second = datetime.now(UTC).replace(microsecond=0)
    while any(name.startswith(release_id(second, "")) for name in names):
        second += timedelta(seconds=1)
    return second


def _make_readable_and_sync(folder: Path) -> None:
    """Make the folder readable for the service's user, and sync it: libraries that wrote files did neither."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            set_mode(path, 0o644)
            with path.open("rb") as file:
                sync(file.fileno())
        else:
            sync_folder(path)
    set_mode(folder, 0o755)
    sync_folder(folder)
