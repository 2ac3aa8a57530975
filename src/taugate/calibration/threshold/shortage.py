"""What is missing if nothing could be certified: queries about further documents, or a corpus with more documents.

All queries about one document may be lost together. If document d is lost with probability p, with Σ n·p = δ·Σ n for n
queries per document, nothing is lost with probability Π (1 − p). A test that certifies δ if nothing is lost errs at
least with the largest such probability. So −ln of it is the evidence, in nats, that no test can exceed; if it is below
ln 1/α, nothing can be certified. It depends on the proportions of n alone: more queries about the same documents do not
raise it.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from taugate.calibration.metrics.clusters import MAX_DESIGN_EFFECT
from taugate.calibration.metrics.splits import held_out
from taugate.calibration.risk import words
from taugate.calibration.risk.cheapest import RuleVariant
from taugate.calibration.risk.e_values import DocumentBets, log_e
from taugate.calibration.settings.settings import CalibrationSettings
from taugate.calibration.threshold.calibration_queries import CalibrationQueries
from taugate.ingestion.dataset.beir import Dataset
from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.release.evidence import Shortage
from taugate.retrieval.release.manifest import PolicyRecord

Sizes = NDArray[np.int64]

_CHANCE = 0.8  # the usual power of a planned study (Cohen, Statistical Power Analysis, 2nd ed., 1988, §2.4)
_DIVISIONS = 40  # random divisions that estimate a chance, which is then known to √(.8·.2/40) = .06
_MAX_NAMED = 20  # queries whose labels a person checks in a few minutes


@dataclass(frozen=True)
class LabelledDocuments:
    """The labelled queries by document, and the documents that could get some.

    Attributes:
        sizes: (d,) number of answerable queries about each document.
        certifying: (c,) the same of the calibration queries.
        unlabelled: Number of documents in the corpus without a query.
        cap: Largest number of queries that a document counts for, None without a limit.
        usual_cap: The cap of `--count-at-most auto`.
    """

    sizes: Sizes
    certifying: Sizes
    unlabelled: int
    cap: int | None
    usual_cap: int

    @classmethod
    def of(cls, dataset: Dataset, evidence: CalibrationQueries) -> Self:
        """Count the queries of a data set by document."""
        about = {document for query in dataset.answerable for document in query.relevant}
        parents = dataset.documents.parents
        documents = len(dataset.documents) if parents is None else len(np.unique(parents))
        units = evidence.units
        certifying = units.take(evidence.calibration).sizes()
        return cls(units.sizes(), certifying, documents - len(about), units.cap, units.usual_cap())

    @property
    def per_document(self) -> int:
        """Mean number of queries about a labelled document, rounded up."""
        return math.ceil(float(self.sizes.mean()))

    def with_queries(self, documents: int, queries: int) -> Sizes:
        """Return the sizes after `queries` queries were labelled about so many of the other documents."""
        return np.append(self.sizes, np.full(documents, queries))

    def counted(self, sizes: Sizes) -> Sizes:
        """Return the number of queries that documents of these sizes count for."""
        return sizes if self.cap is None else np.minimum(sizes, self.cap)

    def corpus(self) -> Sizes:
        """Return the sizes if every document of the corpus had queries, the others as many as the labelled ones."""
        return self.with_queries(self.unlabelled, self.per_document)

    def evidence(self, sizes: Sizes, delta: float, certifying: Sizes | None = None) -> float:
        """Return the evidence of the product's own test, in nats, if nothing is lost.

        Args:
            sizes: (d,) number of queries about each labelled document, which decide on the unit.
            delta: δ, in 0…1.
            certifying: (c,) the same of the documents that certify; None if all of them do.
        """
        certifying = sizes if certifying is None else certifying
        if sizes @ sizes <= MAX_DESIGN_EFFECT * sizes.sum():
            return -float(certifying.sum()) * math.log1p(-delta)
        worst = DocumentBets.against(delta, self.counted(certifying)).log_worst(delta)
        return float(log_e(np.zeros(len(worst)), worst))

    def options(self, delta: float, nats: float) -> list[str]:
        """Return the options with which these labels certify δ: no holdout, a cap, or only both together.

        Args:
            delta: δ, in 0…1.
            nats: Evidence that is enough.
        """
        tried = {"--holdout 0": self.evidence(self.sizes, delta)}
        if self.cap is None:
            capped = replace(self, cap=self.usual_cap)
            tried[f"--count-at-most {capped.cap}"] = capped.evidence(self.sizes, delta, self.certifying)
            tried[" ".join(tried)] = capped.evidence(self.sizes, delta)
        certified = [option for option, evidence in tried.items() if evidence >= nats]
        return certified if len(certified) < len(tried) or self.cap is not None else certified[:-1]

    def needed(self, queries: int, delta: float, nats: float, settings: CalibrationSettings) -> int | None:
        """Return how many further documents give a chance of 8 in 10 to certify δ; None if all are too few.

        A cut that loses nothing is certified as soon as the certifying documents are enough, so the chance depends on
        their random division alone.

        Args:
            queries: Number of queries about each further document.
            delta: δ, in 0…1.
            nats: Evidence that is enough.
            settings: Settings with the shares of queries that do not certify, and the seed.
        """
        aside = 1 - (1 - settings.holdout) * (1 - sum(RuleVariant(settings.holdout, settings.rule).set_aside))

        def is_likely(documents: int) -> bool:
            labelled, passed = self.with_queries(documents, queries), 0
            for division in range(_DIVISIONS):
                order = np.random.default_rng([settings.seed, division]).permutation(labelled)
                out = held_out(int(labelled.sum()), aside)
                first = int(np.searchsorted(np.cumsum(order), out)) + 1 if out else 0
                passed += first < len(order) and self.evidence(labelled, delta, order[first:]) >= nats
            return passed >= _CHANCE * _DIVISIONS

        if not is_likely(self.unlabelled):
            return None
        low, high = 0, self.unlabelled
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_likely(middle) else (middle, high)
        return high


def with_shortage(
    policy: PolicyRecord, dataset: Dataset, evidence: CalibrationQueries, settings: CalibrationSettings
) -> PolicyRecord:
    """Return the policy with a record of what is missing, if it is `none` for lack of evidence.

    Args:
        policy: Policy in force.
        dataset: Labelled queries and documents.
        evidence: The queries.
        settings: Settings with the rule and the holdout.
    """
    rule, units = settings.rule, evidence.units
    if policy.kind != "none" or policy.statement != "high-probability":
        return policy
    nats = -math.log((1 - rule.confidence) / (1 + len(rule.further_losses)))
    delta = min(certificate.most for certificate in policy.certificates)
    documents = LabelledDocuments.of(dataset, evidence)
    missing: dict[str, object] = {"lowest": _lowest(dataset, evidence, settings)}
    if units.unit == "document" and not RuleVariant(settings.holdout, rule).set_aside:
        missing["options"] = documents.options(delta, nats)
    guarantee, corpus = policy.guarantee, documents.corpus()
    if units.drawn != "queries" and documents.evidence(corpus, delta) < nats:
        missing["min_loss"] = optimize.brentq(lambda loss: documents.evidence(corpus, loss) - nats, 1e-9, 1 - 1e-9)
        counted, equal = documents.counted(corpus), np.full_like(corpus, documents.per_document)
        largest = None if documents.evidence(equal, delta) < nats else counted.max() / counted.sum()
        by_any_test = evidence_bound(counted, delta) < nats
        guarantee = words.impossible(rule, policy.certificates, len(corpus), largest, by_any_test=by_any_test)
    elif units.unit == "document":
        for queries in (1, documents.per_document):  # about each further document, as few as are enough
            if "queries" not in missing and (further := documents.needed(queries, delta, nats, settings)) is not None:
                missing |= {"queries": further * queries, "documents": further}
    return policy.model_copy(update={"shortage": Shortage.model_validate(missing), "guarantee": guarantee})


def evidence_bound(sizes: Sizes, delta: float) -> float:
    """Return the evidence against a loss of δ, in nats, that no test by document can exceed.

    The largest Π (1 − p) has 1 − p = min(1, κ / n), with κ from Σ n·p = δ·Σ n (Lagrange).

    Args:
        sizes: (d,) number of queries about each document.
        delta: δ, in 0…1.
    """
    n, counts = np.unique(sizes.astype(np.float64), return_counts=True)
    breaks = np.append(0.0, n)
    lost = np.maximum(n - breaks[:, None], 0.0) @ counts
    kappa = np.interp(delta * (n @ counts), lost[::-1], breaks[::-1])
    return float(-np.log(np.minimum(1.0, kappa / n)) @ counts)


def _lowest(dataset: Dataset, evidence: CalibrationQueries, settings: CalibrationSettings) -> list[str]:
    """Return the ids of the calibration queries that a rising threshold loses first, by their best relevant result."""
    kind: PolicyKind = "relative" if settings.rule.policy == "auto" else settings.rule.policy
    scored = evidence.scored.take(evidence.calibration)
    relevant = scored.judged.relevant
    best, hits = np.where(relevant, scored.decisions(kind), -np.inf).max(axis=1), np.flatnonzero(relevant.any(axis=1))
    first = hits[np.argsort(best[hits], kind="stable")[:_MAX_NAMED]]
    return [dataset.answerable[row].id for row in evidence.calibration[first].tolist()]
