"""Every table of benchmarks/results/hybrid.md, by one command.

Needs TAUGATE_DATA and the extras calibration, sample and test, and PyStemmer for the stems. Embeddings come through the project's own
cache.
"""

from benchmarks.experiment import experiment_page, measure
from benchmarks.hybrid import provisional, rankings, rule, words

PAGE = experiment_page(
    file="hybrid.md",
    module="benchmarks.hybrid.tables",
    title="# Hybrid search: the lexical share",
    introduction="""\
The score of a release with a lexical part is cosine + w · share, where the share is BM25 over the largest BM25 that any document could
reach for the query. These tables say what the share gives on public data sets, which weight suits which set, and how often the gate
accepts one. All figures are of all-MiniLM-L6-v2 in float32 with exact search.""",
    sections={"rankings": rankings, "provisional": provisional, "rule": rule, "words": words},
    splits=200,
)

if __name__ == "__main__":
    measure(PAGE, __doc__)
