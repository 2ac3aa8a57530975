"""What is left after an erasure: the promises that still hold, and files that still contain erased texts.

Scores of the remaining documents do not change, so the best score of a query can only fall. That keeps a limit on
questions that get a result although no document answers them. But a document may move up into the results that was not
counted, and the score by which a query is refused may fall below the threshold.
"""

import html
import json
import mmap
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from taugate.errors import ReleaseError
from taugate.release.evidence import StrataRecord, StratumRecord
from taugate.release.layout import KNOWN_PAIRS
from taugate.release.manifest import Manifest
from taugate.release.outcome_records import PolicyRecord
from taugate.release.promises import all_withdrawn, ask_first_stage, ask_promises, inherited_calibration, stated
from taugate.release.refusal_records import ErrorLimit, RefusalRecord, RequestedLimits
from taugate.release.search_records import read_pairs
from taugate.release.summary import summary_of

# Fields that name documents: in the lines of texts, of golden queries, and of judgements in a query log.
_ID_FIELDS = ("_id", "document_id", "relevant", "documents")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz")


@dataclass(frozen=True)
class RemovalEvidence:
    """What a removal cannot break; see `Evidence`."""

    best_scores_fall: bool  # whether the score by which queries are refused can only fall
    silence: str = "documents were removed, and no labelled query was asked"

    def losses(self, policy: PolicyRecord) -> None:
        """Return None: another document may be among the results."""

    def stratum(self, policy: PolicyRecord, strata: StrataRecord, stratum: StratumRecord) -> None:
        """Return None, as for all queries."""

    def errors(self, limits: RequestedLimits) -> tuple[ErrorLimit | None, None]:
        """Return the limit of answers if scores can only fall; more queries may be refused."""
        return limits.answered if self.best_scores_fall else None, None

    def refusal(self, record: RefusalRecord) -> RefusalRecord | None:
        """Return the counts of before, if scores can only fall; more right answers may be refused."""
        return record.model_copy(update={"lost": None}) if self.best_scores_fall else None


def kept_promises(before: Manifest, strata: StrataRecord | None, *, scores_fall: bool) -> Manifest:
    """Return the manifest without the promises that a removal may break."""
    second = before.second_stage
    records, withdrawn = ask_promises(stated(before, strata), RemovalEvidence(scores_fall and second is None))
    if second is not None:
        second, of_first = ask_first_stage(second, RemovalEvidence(scores_fall), second)
        withdrawn += of_first
    changes = vars(records) | {"second_stage": second}
    if named := all_withdrawn(before, withdrawn):
        changes |= {"withdrawn": named, "calibration": inherited_calibration(before)}
    after = before.model_copy(update=changes)
    # The summary of before states what is withdrawn.
    return after.model_copy(update={"summary": summary_of(after)}) if withdrawn else after


@dataclass(frozen=True)
class Remnants:
    """The result of a search for remnants."""

    matches: Sequence[str]
    files: int


def find_remnants(places: Sequence[Path], ids: Collection[str], texts: Sequence[str]) -> Remnants:
    """Search files, and all files below folders; links are not followed."""
    # A compressed file counts as a match, because it may contain anything.
    matches, count = [], 0
    for path in _files(places):
        count += 1
        matches += [f"{path}: {match}" for match in _search_file(path, ids, texts)]
    return Remnants(matches, count)


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if not stat.S_ISDIR(place.stat().st_mode):
            yield place
            continue
        for folder, _, names in os.walk(place, onerror=_raise):
            for name in sorted(names):
                if stat.S_ISREG(Path(folder, name).lstat().st_mode):
                    yield Path(folder, name)


def _raise(error: OSError) -> None:
    raise error


def _search_file(path: Path, ids: Collection[str], texts: Sequence[str]) -> Iterator[str]:
    if path.name.endswith(_COMPRESSED):
        yield "compressed; unpack it and search again"
        return
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for text in texts:
                if any(content.find(encoded) >= 0 for encoded in _encodings(text)):
                    yield f"contains the text {text!r}"
            if ".jsonl" in path.name:
                for name in sorted(_named_ids(content, ids)):
                    yield f"names the document {name!r}"
    if path.name == KNOWN_PAIRS:
        with suppress(ReleaseError):  # another file of this name
            for name in sorted({pair.document for pair in read_pairs(path)}.intersection(ids)):
                yield f"names the document {name!r}"


def _encodings(text: str) -> set[bytes]:
    """Return a text as UTF-8, as JSON with and without escapes, and as HTML."""
    return {text.encode(), orjson.dumps(text)[1:-1], json.dumps(text)[1:-1].encode(), html.escape(text).encode()}


def _named_ids(content: mmap.mmap, ids: Collection[str]) -> set[str]:
    """Return the ids of documents that lines name; only lines that contain an id, as JSON encodes it, are parsed."""
    named: set[str] = set()
    for name in ids:
        token, place = orjson.dumps(name), -1
        while name not in named and (place := content.find(token, place + 1)) >= 0:
            begin = content.rfind(b"\n", 0, place) + 1
            end = content.find(b"\n", place)
            if name in _ids_of_line(content[begin : end if end >= 0 else len(content)]):
                named.add(name)
            place = end if end >= 0 else len(content)
    return named


def _ids_of_line(line: bytes) -> set[Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:  # an incomplete line
        return set()
    named: set[Any] = set()
    for value in map(record.get, _ID_FIELDS) if isinstance(record, dict) else ():
        named |= {name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str)}
    return named
