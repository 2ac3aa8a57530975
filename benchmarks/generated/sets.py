"""The public data sets, each with its human queries in one split."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taugate.ingestion.dataset.beir import CORPUS, QUERIES
from taugate.ingestion.dataset.judgements import HEADER, HUMAN, qrels_of


@dataclass(frozen=True)
class PublicSet:
    """A data set of which the human queries are known.

    Attributes:
        name: In the tables.
        folder: In TAUGATE_DATA.
        part: The prefix of its ids, where the folder holds several sets.
        large: Measured with the first encoder alone, as the documents take half an hour to encode.
    """

    name: str
    folder: str
    part: str | None = None
    large: bool = False

    def copy(self, data: Path, to: Path) -> Path:
        """Copy the set to where queries may be added to it; the judgements of all its splits become the split `human`.

        Args:
            data: Folder of the data sets.
            to: An existing folder.

        Returns:
            The folder of the copy.
        """
        source, copy = data / self.folder, to / self.name
        (copy / "qrels").mkdir(parents=True)
        rows = [row for file in sorted(source.glob("qrels/*.tsv")) for row in file.read_text().splitlines()[1:]]
        if self.part is None:
            for name in (CORPUS, QUERIES):
                shutil.copyfile(source / name, copy / name)
        else:
            rows = self._copy_part(source, copy, rows)
        (copy / qrels_of(HUMAN)).write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
        return copy

    def _copy_part(self, source: Path, copy: Path, rows: list[str]) -> list[str]:
        """Copy the documents of the part and the queries that one of them answers; returns their judgements."""
        documents = {record["_id"]: line for line, record in _records(source / CORPUS) if self._owns(record["_id"])}
        kept = [row for row in rows if row.split("\t")[1] in documents and self._owns(row)]
        asked = {row.split("\t")[0] for row in kept if not row.endswith("\t0")}
        queries = [line for line, record in _records(source / QUERIES) if record["_id"] in asked]
        (copy / CORPUS).write_text("".join(documents.values()), encoding="utf-8")
        (copy / QUERIES).write_text("".join(queries), encoding="utf-8")
        return [row for row in kept if row.split("\t")[0] in asked]

    def _owns(self, identifier: str) -> bool:
        return identifier.startswith(f"{self.part}:")


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield line, json.loads(line)


# mixed_large holds several sets, most of which have a folder of their own. The others count as sets here; the whole of it
# would count the first ones twice. squad_v1_dev is left out: squad_v2_dev has its documents. squadshifts_amazon and
# policyqa have documents there, but no queries.
SETS = (
    *(
        PublicSet(name, name)
        for name in (
            "cosqa",
            "covidqa_chunks",
            "pubmedqa_labelled",
            "scifact",
            "squad_v2_dev",
            "squadshifts_new_wiki",
            "squadshifts_reddit",
        )
    ),
    *(
        PublicSet(part, "mixed_large", part, large=part == "medquad")
        for part in ("cranfield", "emanual", "medquad", "msmarco_dl_mini", "vaswani_npl")
    ),
)
