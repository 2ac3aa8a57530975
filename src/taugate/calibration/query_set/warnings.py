"""Compares the words of queries and documents, and warns about a query set in sentences that say what to do.

Compares the words of queries and documents: finds queries that copy their answer, and answers that are repeated. Both
make figures wrong. A query that copies its document, as crops do, is easier than a question in a person's own words, so
accuracy is overestimated. If the corpus holds a document twice and only one copy is labelled, the other copy is a right
answer that counts as wrong.

Texts are compared by their shingles, their sequences of three words (Broder, "On the resemblance and containment of
documents", 1997; sequences of three words separate copied from independent text in Lyon, Malcolm and Dickerson,
"Detecting short passages of similar text in large document collections", EMNLP 2001). Omitting one word in ten, as
crops do, changes three shingles in ten, while a longest common sequence would end at the first omission.

Limits were chosen on the public sets pubmedqa_labelled, covidqa_chunks, squad_v2_dev, cosqa and scifact (train and
test), with all-MiniLM-L6-v2, K = 5. In brackets: a weaker encoder of 384 dimensions, on all sets but scifact.
"""

import shlex
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import regex
from numpy.typing import NDArray
from scipy import stats

from taugate.calibration.encoding.corpus import EncodedTexts
from taugate.calibration.encoding.encoder_options import DEFAULT_TOKENS
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.metrics.inputs import relevant_passages
from taugate.calibration.progress import percent
from taugate.data.beir import Dataset
from taugate.data.labelled_queries import LabelledQuery
from taugate.release.records import MIN_QUERIES
from taugate.retrieval.index.hybrid import vector_index
from taugate.retrieval.index.top_k import Index
from taugate.retrieval.index.words import UNSPACED

Shingles = NDArray[np.uint64]

# A query copies its document if this share of its shingles occurs in it. On the public sets on which it was chosen, it
# is reached by 94 % of the crops of six words or more, and by 7 % of the human queries at most
# (benchmarks/decisions.md).
COPIED = 0.6
# Fewer words are a name or a phrase that any person would take from the document.
MIN_WORDS = 6
# Two documents repeat each other if they share so much of all their shingles. It is the limit of near-duplicates in
# Lee et al., "Deduplicating Training Data Makes Language Models Better", ACL 2022, §4.2.
REPEATED_TEXT = 0.8
_WORDS = 3  # words in a shingle
# Nearest neighbours that are compared word for word, in addition to the document itself.
_NEIGHBOURS = 5
# If a text has a smaller share of the other's bytes, they cannot share so many shingles unless the words are unusual.
_MIN_LENGTH_RATIO = 0.7
_MAX_CACHED = 20_000  # texts whose shingles are kept in memory, about a kilobyte each
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ divided by the golden ratio, as in Fibonacci hashing
# Words as in crops: in a script without spaces between words, every letter is a word.
_WORD = regex.compile(rf"(?V1){UNSPACED}\p{{M}}*|[\w--{UNSPACED}]+")

# The papers' bootstrap draws samples of 100 queries (thresholds paper, after Table 1). If there are fewer queries, the
# samples are larger than the query set, and the interval is too narrow.
SAMPLE = 100
# Above this accuracy a perfect encoder is less than .01 better, which is within the 95 % interval of fewer than 380
# queries (1.96·√(.99·.01 / 380) = .01), and only one query in a hundred shows a miss. pubmedqa has .991.
EASY = 0.99
# Cosine distance of the relevant documents over that of the corpus: distances alone depend on the encoder. Whole sets:
# .94 (.97) or more; 30 random relevant documents: .84 (.82) or more in 200 draws; one article of SQuAD: .47 to .69
# (.28 to .71); two articles: .65 to .84 (.57 to .94), so not every narrow set is detected.
ONE_TOPIC = 0.75
# A smaller share of repeats moves accuracy, or any mean of values in 0…1, by less than .01. Public sets: .0175 or less.
REPEATED = 0.01
# Share of queries that `overtaken` counts. Labels as published: .015 or less (.001, but .094 on covidqa, for which the
# encoder's accuracy is .12); labels of a fifth of the queries moved to random documents: .11 or more (.017 to .13).
OVERTAKEN = 0.05
# Share of queries that copy their document. Human queries: .066 or less; crops: .637 or more, because short ones do not
# count. The limit is nearer to the former, so that a mixed set gets a warning.
COPYING = 0.1
# Fewer can be chance: of 30 queries with good labels, 3 are overtaken once in a hundred times.
MIN_OVERTAKEN = 3
# Fewer queries with a repeated answer need no warning.
MIN_REPEATED = 3


@dataclass(frozen=True)
class RepeatedAnswer:
    """A query whose relevant document has a near-duplicate in the corpus."""

    row: int
    passage: int
    copy: int  # position of its near-duplicate
    labelled: bool


@dataclass(frozen=True)
class Wording:
    """Copied and repeated texts in a query set."""

    copies: NDArray[np.int64]  # (c,) rows of the answerable queries that copy a relevant passage, ascending
    # One entry for each query whose relevant passage has a near-duplicate in another document, an unlabelled
    # near-duplicate if there is one
    repeated: list[RepeatedAnswer]

    @property
    def unlabelled(self) -> list[RepeatedAnswer]:
        """Repeated answers of which the copy is not labelled."""
        return [answer for answer in self.repeated if not answer.labelled]


def compare_wording(dataset: Dataset, encoded: EncodedTexts, index: Index) -> Wording:
    """Find the queries that copy a relevant passage, and those whose relevant passage the corpus repeats."""

    @lru_cache(maxsize=_MAX_CACHED)
    def passage(position: int) -> Shingles:
        return shingles(dataset.documents[position].encoded_text)

    relevant = [passages.tolist() for passages in relevant_passages(dataset.answerable, dataset.documents.parents)]
    copies = []
    for row, (query, passages) in enumerate(zip(dataset.answerable, relevant, strict=True)):
        if len(compared_words(query.text)) < MIN_WORDS:
            continue
        query_shingles = shingles(query.text)
        if any(containment(query_shingles, passage(position)) >= COPIED for position in passages):
            copies.append(row)
    return Wording(np.array(copies, dtype=np.int64), _repeated(dataset, encoded, index, relevant, passage))


def _repeated(
    dataset: Dataset, encoded: EncodedTexts, index: Index, relevant: list[list[int]], passage: Callable[[int], Shingles]
) -> list[RepeatedAnswer]:
    distinct = sorted({position for passages in relevant for position in passages})
    vectors = encoded.documents[np.array(distinct, dtype=np.int64)]
    nearest = vector_index(index).search(vectors, min(1 + _NEIGHBOURS, len(dataset.documents))).positions
    parents = dataset.documents.parents
    compared = np.union1d(distinct, nearest)
    lengths = dict(zip(compared.tolist(), encoded.lengths[compared].tolist(), strict=True))
    documents = np.arange(len(dataset.documents)) if parents is None else parents
    copies: dict[int, list[int]] = {}
    for position, neighbours in zip(distinct, nearest.tolist(), strict=True):
        candidates = [
            neighbour
            for neighbour in neighbours
            if documents[neighbour] != documents[position]
            and min(lengths[neighbour], lengths[position])
            >= _MIN_LENGTH_RATIO * max(lengths[neighbour], lengths[position])
        ]
        same = [
            candidate for candidate in candidates if resemblance(passage(position), passage(candidate)) >= REPEATED_TEXT
        ]
        if same:
            copies[position] = same
    repeated = []
    for row, passages in enumerate(relevant):
        labelled = {int(documents[position]) for position in passages}
        pairs = [
            RepeatedAnswer(row, position, copy, int(documents[copy]) in labelled)
            for position in passages
            for copy in copies.get(position, [])
        ]
        if pairs:
            repeated.append(min(pairs, key=lambda pair: pair.labelled))
    return repeated


def compared_words(text: str) -> list[str]:
    """Split a text into words, without marks and in one case (NFKC and case folding)."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> Shingles:
    """Return the distinct shingles of a text, (s,) uint64 hashes, ascending; none for fewer than three words."""
    tokens = compared_words(text)
    if len(tokens) < _WORDS:
        return np.empty(0, np.uint64)
    hashes = (zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in tokens)
    numbers = np.fromiter(hashes, np.uint64, len(tokens))
    return np.unique((numbers[:-2] * _ODD + numbers[1:-1]) * _ODD + numbers[2:])


def containment(part: Shingles, text: Shingles) -> float:
    """Return the share of the shingles of `part` that are in `text`; 0 if `part` has none."""
    return _common(part, text) / len(part) if len(part) else 0.0


def resemblance(left: Shingles, right: Shingles) -> float:
    """Return the share of the shingles of two texts that both have (Jaccard's index); 0 if neither has any."""
    common = _common(left, right)
    return common / (len(left) + len(right) - common) if common else 0.0


def _common(left: Shingles, right: Shingles) -> int:
    return len(np.intersect1d(left, right, assume_unique=True))


@dataclass(frozen=True)
class QuerySetSigns:
    """Measurements of the answerable queries on which warnings are based."""

    queries: int
    accuracy: float
    clusters: int
    effective: float
    # Cosine distance of relevant documents over that of the corpus, None if there are too few
    relative_distance: float | None
    duplicates: int
    overtaken: int  # number of queries whose labelled document scores far below an unlabelled one

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Clopper and Pearson's 95 % interval of the accuracy for the effective sample size.

        That is the interval of Korn and Graubard (Survey Methodology 24, 1998).
        """
        hits, misses = self.accuracy * self.effective, (1 - self.accuracy) * self.effective
        lower = float(stats.beta.ppf(0.025, hits, misses + 1)) if hits > 0 else 0.0
        upper = float(stats.beta.ppf(0.975, hits + 1, misses)) if misses > 0 else 1.0
        return lower, upper


def query_set_warnings(signs: QuerySetSigns) -> list[str]:
    """Return a sentence for each defect of a query set, none for a good set."""
    n = signs.queries
    warnings = []
    if n < SAMPLE:
        warnings.append(_few(signs))
    if signs.accuracy >= EASY:
        warnings.append(
            f"the queries are too easy: accuracy {signs.accuracy:.3f} leaves next to no misses to learn from, and no "
            "encoder can be shown to be better; add queries in your users' own words"
        )
    if signs.relative_distance is not None and signs.relative_distance < ONE_TOPIC:
        warnings.append(
            f"the queries are all of one topic: their documents are {signs.relative_distance:.2f} times as far apart "
            f"as the corpus's (below {ONE_TOPIC}); add queries on what else the corpus holds"
        )
    if signs.duplicates >= REPEATED * n and signs.duplicates:
        warnings.append(
            f"{signs.duplicates} of {n} queries repeat the text of another and count twice; keep one of each"
        )
    if signs.effective < n / 2:
        groups = f"{signs.clusters} {'group' if signs.clusters == 1 else 'groups'}"
        warnings.append(
            f"the {n} queries share relevant documents in {groups} and are worth {signs.effective:.0f} "
            "on documents of their own; read the intervals by document, and label queries about other documents"
        )
    if signs.overtaken >= max(MIN_OVERTAKEN, OVERTAKEN * n):
        warnings.append(
            f"labels look wrong or incomplete: for {signs.overtaken} of {n} queries an unlabelled document is far more "
            "similar than the labelled one; judge the top results of these, and if the labels are right, the encoder "
            "does not suit the texts"
        )
    return warnings


def wording_warnings(wording: Wording, queries: Sequence[LabelledQuery], accuracy: NDArray[np.float64]) -> list[str]:
    """Warn of queries that copy their document, and of answers that the corpus repeats, unless they are few.

    Args:
        accuracy: (n,) accuracy of each query.
    """
    n, warnings = len(queries), []
    copies, unlabelled = wording.copies, wording.unlabelled
    if len(copies) and len(copies) >= COPYING * n:
        remaining = np.delete(accuracy, copies)
        comparison = (
            f" (accuracy {accuracy[copies].mean():.2f}, others {remaining.mean():.2f})" if len(remaining) else ""
        )
        warnings.append(
            f"{len(copies)} of {n} queries copy sentences of their document, such as query "
            f"{shlex.quote(queries[copies[0]].id)}, and are easier than questions in people's own words{comparison}; "
            "add queries as your users write them"
        )
    if len(unlabelled) >= max(MIN_REPEATED, REPEATED * n):
        warnings.append(
            f"{len(unlabelled)} of {n} queries have an answer that another document repeats nearly word for word, such "
            f"as query {shlex.quote(queries[unlabelled[0].row].id)}, and the other document counts as wrong; label "
            "both, or remove one"
        )
    return warnings


def truncation_warning(truncated: int, documents: int, window: int, encoder: str) -> str:
    """State how many documents the encoder truncates, and which command cuts them into chunks."""
    verb, pronoun = ("is", "it") if truncated == 1 else ("are", "them")
    longer = "let it read more by max-length, if it can, or " if window == DEFAULT_TOKENS else ""
    option = "" if encoder == DEFAULT_ENCODER else f" --encoder {shlex.quote(encoder)}"
    return (
        f"{truncated:,} of {documents:,} documents ({percent(truncated / documents)}) {verb} longer than the encoder's "
        f"{window:,} tokens, and it does not read what comes after; {longer}cut {pronoun} with: "
        f"taugate import DATA --to NEW{option}"
    )


def _few(signs: QuerySetSigns) -> str:
    n, (lower, upper) = signs.queries, signs.accuracy_interval
    accuracy_interval = f"accuracy {signs.accuracy:.2f} may be anything from {lower:.2f} to {upper:.2f} (95 % interval)"
    queries = f"only {n} answerable {'query' if n == 1 else 'queries'}"
    if n < MIN_QUERIES:
        return f"{queries}: {accuracy_interval}; label {MIN_QUERIES} or more"
    return (
        f"{queries}: {accuracy_interval}; the papers' rule draws samples of {SAMPLE}, so its own interval is "
        f"too narrow and its threshold too bold; label {SAMPLE} or more, or ask for a certified cut (--max-loss)"
    )
