"""Every table of benchmarks/results/evidence.md, by one command: what the evidence by document promises, and what it costs.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

from benchmarks.evidence import accepting, admitted, labels, power, realised, size, two_samples
from benchmarks.experiment import experiment_page, measure

PAGE = experiment_page(
    file="evidence.md",
    module="benchmarks.evidence.tables",
    title="# Evidence by document: how often it errs, what it can show",
    introduction="""\
Queries about one document are won and lost together. So if queries share documents, the gate, promotions and certificates count
documents ([gate.md](../../docs/gate.md), `evidence/risk/losses.py`). A "document" here is a cluster: the queries that share a relevant
document, and the queries linked to them through other documents. The line under each heading repeats the measurement. Comparisons measured before
2026-11-30 used a mixture of bets, which one planned bet replaced; cuts still use it.""",
    sections={
        "size": size,
        "samples": two_samples,
        "admitted": admitted,
        "accepting": accepting,
        "power": power,
        "labels": labels,
        "realised": realised,
    },
    splits=1000,
)

if __name__ == "__main__":
    measure(PAGE, __doc__)
