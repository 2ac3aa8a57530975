"""What is wrong with a query set.

Every warning is a sentence that says what to do. Limits were chosen on the public sets pubmedqa_labelled,
covidqa_chunks, squad_v2_dev, cosqa and scifact (train and test), with all-MiniLM-L6-v2, K = 5. In brackets: a weaker
encoder of 384 dimensions, on all of them but scifact.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from taugate.calibration.charts.numbers import percent
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.query_set.wording import Wording
from taugate.ingestion.dataset.beir import LabelledQuery
from taugate.retrieval.release.records import MIN_QUERIES

# The papers' bootstrap draws samples of 100 queries (thresholds paper, after Table 1). From fewer it draws more than
# there are, and its interval is narrower than what they know.
SAMPLE = 100
# Above it a perfect encoder is less than .01 better, which is within the 95 % interval of fewer than 380 queries
# (1.96·√(.99·.01 / 380) = .01), and what a miss looks like is learned from one query in a hundred. pubmedqa has .991.
EASY = 0.99
# Cosine distance of the relevant documents over that of the corpus: distances alone depend on the encoder. Whole sets:
# .94 (.97) or more; 30 random relevant documents: .84 (.82) or more in 200 draws; one article of SQuAD: .47 to .69
# (.28 to .71); two articles: .65 to .84 (.57 to .94), so that not every narrow set is caught.
ONE_TOPIC = 0.75
# Repeats below it move accuracy, or any mean of values in 0…1, by less than .01. Public sets: .0175 or less.
REPEATED = 0.01
# Share of queries that `overtaken` counts. Labels as published: .015 or less (.001, but .094 on covidqa, where the
# encoder's accuracy is .12); labels of a fifth of the queries moved to random documents: .11 or more (.017 to .13).
OVERTAKEN = 0.05
# Share of queries that copy their document. Human queries: .066 or less; crops: .637 or more, as short ones do not
# count. Nearer to the former, so that a mixed set is warned of.
COPYING = 0.1
# Fewer are chance: of 30 queries with good labels, 3 are overtaken once in a hundred times.
MIN_OVERTAKEN = 3
# Fewer queries with a repeated answer than this are a slip, and not worth a warning.
MIN_REPEATED = 3


@dataclass(frozen=True)
class QuerySetSigns:
    """Measurements of the answerable queries that warnings go by.

    Attributes:
        queries: How many.
        accuracy: Without a cut.
        clusters: Groups that share documents.
        effective: Effective sample size.
        spread: Cosine distance of relevant documents over that of the corpus, None for too few.
        duplicates: Queries that repeat another.
        overtaken: Queries whose labelled document is far below an unlabelled one.
    """

    queries: int
    accuracy: float
    clusters: int
    effective: float
    spread: float | None
    duplicates: int
    overtaken: int

    @property
    def known(self) -> tuple[float, float]:
        """Range of the accuracy: Clopper and Pearson's 95 % interval for the independent queries that these are worth.

        With an effective sample size it is the interval of Korn and Graubard (Survey Methodology 24, 1998).
        """
        hits, misses = self.accuracy * self.effective, (1 - self.accuracy) * self.effective
        lower = float(stats.beta.ppf(0.025, hits, misses + 1)) if hits > 0 else 0.0
        upper = float(stats.beta.ppf(0.975, hits + 1, misses)) if misses > 0 else 1.0
        return lower, upper


def query_set_warnings(signs: QuerySetSigns) -> list[str]:
    """Return one sentence for each thing to put right, none for a set to calibrate on.

    Args:
        signs: Measurements of the set.
    """
    n = signs.queries
    found = []
    if n < SAMPLE:
        found.append(_few(signs))
    if signs.accuracy >= EASY:
        found.append(
            f"the queries are too easy: accuracy {signs.accuracy:.3f} leaves next to no misses to learn from, and no "
            "encoder can be shown to be better; add queries in your users' own words"
        )
    if signs.spread is not None and signs.spread < ONE_TOPIC:
        found.append(
            f"the queries are all of one topic: their documents are {signs.spread:.2f} times as far apart as the "
            f"corpus's (below {ONE_TOPIC}); add queries on what else the corpus holds"
        )
    if signs.duplicates >= REPEATED * n and signs.duplicates:
        found.append(f"{signs.duplicates} of {n} queries repeat the text of another and count twice; keep one of each")
    if signs.effective < n / 2:
        groups = f"{signs.clusters} {'group' if signs.clusters == 1 else 'groups'}"
        found.append(
            f"the {n} queries share relevant documents in {groups} and are worth {signs.effective:.0f} "
            "on documents of their own; read the intervals by document, and label queries about other documents"
        )
    if signs.overtaken >= max(MIN_OVERTAKEN, OVERTAKEN * n):
        found.append(
            f"labels look wrong or incomplete: for {signs.overtaken} of {n} queries an unlabelled document is far more "
            "similar than the labelled one; judge the top results of these, and if the labels are right, the encoder "
            "does not suit the texts"
        )
    return found


def wording_warnings(wording: Wording, queries: Sequence[LabelledQuery], accuracy: NDArray[np.float64]) -> list[str]:
    """Warn of queries that copy their document, and of answers that the corpus repeats; none where they are few.

    Args:
        wording: What the words of the queries say.
        queries: The answerable ones, n of them.
        accuracy: (n,) of each.
    """
    n, found = len(queries), []
    copies, unlabelled = wording.copies, wording.unlabelled
    if len(copies) and len(copies) >= COPYING * n:
        others = np.delete(accuracy, copies)
        flattered = f" (accuracy {accuracy[copies].mean():.2f}, others {others.mean():.2f})" if len(others) else ""
        found.append(
            f"{len(copies)} of {n} queries copy sentences of their document, such as query "
            f"{shlex.quote(queries[copies[0]].id)}, and are easier than questions in people's own words{flattered}; "
            "add queries as your users write them"
        )
    if len(unlabelled) >= max(MIN_REPEATED, REPEATED * n):
        found.append(
            f"{len(unlabelled)} of {n} queries have an answer that another document repeats nearly word for word, such "
            f"as query {shlex.quote(queries[unlabelled[0].row].id)}, and the other document counts as wrong; label "
            "both, or remove one"
        )
    return found


def truncation_warning(truncated: int, documents: int, window: int, encoder: str) -> str:
    """Say how many documents the encoder does not read to their end, and which command cuts them.

    Args:
        truncated: How many of the `documents` are longer than the window.
        window: Tokens that the encoder reads.
        encoder: Its name.
    """
    verb, those = ("is", "it") if truncated == 1 else ("are", "them")
    named = "" if encoder == DEFAULT_ENCODER else f" --encoder {shlex.quote(encoder)}"
    return (
        f"{truncated:,} of {documents:,} documents ({percent(truncated / documents)}) {verb} longer than the encoder's "
        f"{window:,} tokens, and what comes after is not searched; cut {those} with: "
        f"taugate import DATA --to NEW{named}"
    )


def _few(signs: QuerySetSigns) -> str:
    n, (lower, upper) = signs.queries, signs.known
    known = f"accuracy {signs.accuracy:.2f} may be anything from {lower:.2f} to {upper:.2f} (95 % interval)"
    queries = f"only {n} answerable {'query' if n == 1 else 'queries'}"
    if n < MIN_QUERIES:
        return f"{queries}: {known}; label {MIN_QUERIES} or more"
    return (
        f"{queries}: {known}; the papers' rule draws samples of {SAMPLE}, so its own interval is too narrow and its "
        f"threshold too bold; label {SAMPLE} or more, or ask for a certified cut (--max-loss)"
    )
