"""Every table of docs/benchmarks/calibration.md, by one command: what the calibration promises and what comes true.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import auto_and_named
import expected_loss
import kept_share
import labelled_queries
import models_tried
import papers
import parts_tried
import recalibrations_tried
import relevance_reliability
import relevance_shift
import speed
from sections import Page

SECTIONS = {
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
}
TITLE = "# Calibration: what is promised, what comes true, what it costs"
INTRODUCTION = """\
Public data sets, all-MiniLM-L6-v2 exported to ONNX in float32, cosine, unless a table says otherwise. Loss is the share of
queries that had a relevant document among their top K and lost every one of them to the cut. Kept is the share of the top-K
results that is passed on: lower is better. Every figure is of queries that had no say in what they measure, and is made
by the functions that `taugate calibrate` calls. The line under each heading says how to measure it again."""
SCRIPT = "benchmarks/calibration/tables.py"

if __name__ == "__main__":
    Page("calibration.md", SCRIPT, TITLE, INTRODUCTION, SECTIONS, splits=1000).measure(__doc__)
