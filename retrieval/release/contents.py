"""What a release holds of its documents: written alike by a calibration, and by an erasure that leaves some out."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.encoder import encoder
from taugate.retrieval.index import files
from taugate.retrieval.index.approximate import AnyIndex
from taugate.retrieval.policy.abstention import AnswerScore
from taugate.retrieval.policy.relevance import Relevance
from taugate.retrieval.release import golden
from taugate.retrieval.release.golden import GoldenQuery
from taugate.retrieval.release.layout import ABSTENTION, GOLDEN, METADATA, RELEVANCE, REPORT


@dataclass(frozen=True)
class CorpusContents:
    """The files of a release that depend on its documents, less their texts.

    index: of the documents' vectors. metadata: of the documents; without columns it has no file. relevance: the model
    behind the probability that a result is relevant; None for no model. answer_score: by which queries are refused as
    a whole; None where none are. golden: the golden queries. report: the HTML page for people.
    """

    index: AnyIndex
    metadata: Metadata
    relevance: Relevance | None
    answer_score: AnswerScore | None
    golden: Sequence[GoldenQuery]
    report: str

    def write(self, release: Path) -> None:
        """Write the files into the folder of a release. Raises OSError."""
        files.save(self.index, release)
        if self.metadata.columns:
            self.metadata.save(release / METADATA)
        if self.relevance is not None:
            self.relevance.save(release / RELEVANCE)
        if self.answer_score is not None:
            self.answer_score.save(release / ABSTENTION)
        golden.write(release / GOLDEN, self.golden)
        (release / REPORT).write_text(self.report, encoding="utf-8")


def copy_encoder(source: Path, target: Path) -> None:
    """Copy the files of an exported encoder, and nothing else.

    source: the encoder's folder. target: the folder to make. Raises OSError.
    """
    target.mkdir()
    for name in encoder.FILES:
        shutil.copyfile(source / name, target / name)
