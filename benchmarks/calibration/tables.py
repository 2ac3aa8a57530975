"""Every table of benchmarks/results/calibration.md, by one command: what the calibration promises and what comes true.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

from benchmarks.calibration import agent_memory, expected_loss, relevance_reliability
from benchmarks.experiment import experiment_page, measure

PAGE = experiment_page(
    file="calibration.md",
    module="benchmarks.calibration.tables",
    title="# Calibration: what is promised, what comes true, what it costs",
    introduction="""\
Unless a table says otherwise, these are public data sets and cosine similarity with all-MiniLM-L6-v2, exported to ONNX in float32.
*Loss* is the share of queries that had a relevant document among their top K results and lost all of them to the cut. *Kept* is
the share of the top K results that the cut passes on: lower is better. δ is the largest loss that a cut is certified for. Every
figure comes from queries that had no say in the cut, and from the functions that `taugate calibrate` calls. The line under each
heading repeats the measurement.""",
    sections={"expected": expected_loss, "reliability": relevance_reliability, "memory": agent_memory},
    splits=1000,
)

if __name__ == "__main__":
    measure(PAGE, __doc__)
