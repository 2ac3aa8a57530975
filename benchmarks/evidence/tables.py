"""Every table of docs/benchmarks/evidence.md, by one command: what the evidence by document promises, and what it costs.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "calibration"))  # data sets, workers, Markdown

import labels
import power
import realised
import size
import stakes
import two_samples
from sections import Page

SECTIONS = {
    "size": size,
    "samples": two_samples,
    "power": power,
    "labels": labels,
    "realised": realised,
    "stakes": stakes,
}
TITLE = "# Evidence by document: how often it errs, what it can show"
INTRODUCTION = """\
Where queries share documents, gate, promotion and certificates count documents ([gate](../gate.md), `calibration/risk/e_values.py`).
A document here is a cluster: the queries that share a relevant document, and those they share others with in turn.
The line under each heading says how to measure it again."""

if __name__ == "__main__":
    Page("evidence.md", "benchmarks/evidence/tables.py", TITLE, INTRODUCTION, SECTIONS, splits=1000).measure(__doc__)
