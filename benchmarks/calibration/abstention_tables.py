"""Every table of docs/benchmarks/abstention.md, by one command: which score refuses, and whether its limits hold.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import abstention_both_ways
import abstention_scores
from sections import Page

SECTIONS = {"scores": abstention_scores, "limits": abstention_both_ways}
TITLE = "# Answering with nothing: what tells an unanswerable query, and what is certified of it"
INTRODUCTION = """\
Public data sets, all-MiniLM-L6-v2 exported to ONNX in float32, cosine. β is the share of unanswerable queries that are answered,
γ the share of answerable ones that are refused. The line under each heading says how to measure it again."""
SCRIPT = "benchmarks/calibration/abstention_tables.py"

if __name__ == "__main__":
    Page("abstention.md", SCRIPT, TITLE, INTRODUCTION, SECTIONS, splits=500).measure(__doc__)
