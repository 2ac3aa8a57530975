"""Every table of docs/benchmarks/calibration.md, by one command: what the calibration promises and what comes true.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

from benchmarks.calibration import (
    auto_and_named,
    expected_loss,
    kept_share,
    labelled_queries,
    models_tried,
    papers,
    parts_tried,
    recalibrations_tried,
    relevance_reliability,
    relevance_shift,
    speed,
)
from benchmarks.experiment import experiment_page, measure

PAGE = experiment_page(
    file="calibration.md",
    module="benchmarks.calibration.tables",
    title="# Calibration: what is promised, what comes true, what it costs",
    introduction="""\
Public data sets, all-MiniLM-L6-v2 exported to ONNX in float32, cosine, unless a table says otherwise. Loss is the share of
queries that had a relevant document among their top K and lost every one of them to the cut. Kept is the share of the top-K
results that is passed on: lower is better. Every figure is of queries that had no say in what they measure, and is made
by the functions that `taugate calibrate` calls. The line under each heading says how to measure it again.""",
    sections={
        "expected": expected_loss,
        "kept": kept_share,
        "auto": auto_and_named,
        "labels": labelled_queries,
        "reliability": relevance_reliability,
        "shift": relevance_shift,
        "recalibrations": recalibrations_tried,
        "speed": speed,
        "models": models_tried,
        "parts": parts_tried,
        "papers": papers,
    },
    splits=1000,
)

if __name__ == "__main__":
    measure(PAGE, __doc__)
