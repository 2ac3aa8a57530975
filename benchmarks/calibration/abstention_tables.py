"""Every table of benchmarks/results/abstention.md, by one command: whether the limits on refusals hold.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

from benchmarks.calibration import abstention_both_ways, default_refusal, refusal_price
from benchmarks.experiment import experiment_page, measure

PAGE = experiment_page(
    file="abstention.md",
    module="benchmarks.calibration.abstention_tables",
    title="# Refusing questions: whether the limits hold",
    introduction="""\
A service that refuses questions makes two errors. β is the share of unanswerable queries that it answers; γ is the share of answerable
ones that it refuses. Figures are of public data sets and cosine similarity with all-MiniLM-L6-v2, exported to ONNX in float32. The line
under each heading repeats the measurement.""",
    sections={"limits": abstention_both_ways, "default": default_refusal, "price": refusal_price},
    splits=500,
)

if __name__ == "__main__":
    measure(PAGE, __doc__)
