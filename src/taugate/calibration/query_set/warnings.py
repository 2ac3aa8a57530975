"""Warnings about a query set, in sentences that say what to do; the manifest holds them.

Limits were chosen on the public sets pubmedqa_labelled, covidqa_chunks, squad_v2_dev, cosqa and scifact (train and
test), with all-MiniLM-L6-v2, K = 5. In brackets: a weaker encoder of 384 dimensions, on all sets but scifact.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from taugate.calibration.charts.numbers import percent
from taugate.calibration.encoding.input_options import DEFAULT_TOKENS
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.query_set.wording import Wording
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.release.records import MIN_QUERIES

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
class QuerySetSigns:
    """Measurements of the answerable queries on which warnings are based.

    Attributes:
        queries: Number of queries.
        accuracy: Accuracy without a cut.
        clusters: Number of groups that share documents.
        effective: Effective sample size.
        relative_distance: Cosine distance of relevant documents over that of the corpus, None if there are too few.
        duplicates: Number of queries that repeat another one.
        overtaken: Number of queries whose labelled document scores far below an unlabelled one.
    """

    queries: int
    accuracy: float
    clusters: int
    effective: float
    relative_distance: float | None
    duplicates: int
    overtaken: int

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
        wording: Copied and repeated texts.
        queries: n answerable queries.
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
    """State how many documents the encoder truncates, and which command cuts them into chunks.

    Args:
        truncated: Number of documents longer than the window.
        documents: Number of documents.
        window: Number of tokens that the encoder reads.
        encoder: Name of the encoder.
    """
    verb, pronoun = ("is", "it") if truncated == 1 else ("are", "them")
    longer = "let it read more with --max-length, if it can, or " if window == DEFAULT_TOKENS else ""
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
