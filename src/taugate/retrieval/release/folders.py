"""All kinds of content of a release: with a corpus, or of a run."""

from collections.abc import Sequence

from taugate.retrieval.release import golden
from taugate.retrieval.release.contents import FileNames, ReleaseFolder
from taugate.retrieval.release.corpus import CorpusFolder
from taugate.retrieval.release.decisions import ModelsFolder, RerankerFolder
from taugate.retrieval.release.encoders import EncoderFolder
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import (
    ABSTENTION,
    GOLDEN,
    OUTCOMES,
    PROJECTION,
    QUESTIONS,
    REFERENCE,
    RELEVANCE,
    REPORT,
)
from taugate.retrieval.release.manifest import Manifest, ReleaseManifest


class MeasuredFolder(ReleaseFolder):
    """What a calibration measured: queries, their scores and outcomes, a projection, and the report."""

    @staticmethod
    def names(manifest: Manifest) -> FileNames:
        """Return the names of its files: QUESTIONS is not in a release with erased documents, which it may quote."""
        return FileNames(
            frozenset({GOLDEN, REFERENCE, REPORT}),
            frozenset({OUTCOMES, QUESTIONS, PROJECTION}),  # 0.1 wrote neither of the first two
            {PROJECTION: manifest.projection is not None},
        )

    def write(self, queries: Sequence[GoldenQuery], report: str) -> None:
        """Write the golden queries and the report; raises OSError if that fails."""
        golden.write_golden(self.path / GOLDEN, queries)
        (self.path / REPORT).write_text(report, encoding="utf-8")


class RunFolder(ReleaseFolder):
    """What a release of a run has; it has no corpus."""

    @staticmethod
    def names(manifest: ReleaseManifest) -> FileNames:
        """Return the names of its files."""
        recorded = {RELEVANCE: manifest.relevance is not None}
        return FileNames(frozenset({REFERENCE, OUTCOMES, REPORT}), frozenset({ABSTENTION, GOLDEN, RELEVANCE}), recorded)


KINDS = (CorpusFolder, EncoderFolder, ModelsFolder, RerankerFolder, MeasuredFolder)


def names_of(manifest: ReleaseManifest) -> FileNames:
    """Return the names of all files that a release has, or may have, by its manifest."""
    searched = manifest.searchable
    if searched is None:
        return RunFolder.names(manifest)
    kinds = [kind.names(searched) for kind in KINDS]
    recorded = {name: expected for kind in kinds for name, expected in kind.recorded.items()}
    return FileNames(
        frozenset[str]().union(*(kind.required for kind in kinds)),
        frozenset[str]().union(*(kind.optional for kind in kinds)),
        recorded,
    )
