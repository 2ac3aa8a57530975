"""Every table of docs/benchmarks/judged-traffic.md: thresholds from what users say of what they are shown.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

from benchmarks.experiment import experiment_page, measure
from benchmarks.traffic import promise

PAGE = experiment_page(
    file="judged-traffic.md",
    module="benchmarks.traffic.tables",
    title="# Labels from judged traffic",
    introduction="""\
Users judge only what they are shown, and mostly what stands first. What the threshold drops is seen only through exploration, so a
few judgements of it have to speak for all the others: each weighs the inverse of the probability that its result was shown and judged.
This page measures whether a threshold from such labels keeps its promise, and what happens without the weights.

- **Users** are simulated. They send 20,000 requests with the queries of half of a public set's documents, some queries often and most
  of them seldom (Zipf's law). Each of 100 users has an API key.
- **Position bias**: a user judges the first result with a probability of .4, and the one at place i with .4 / √i.
- **Noise**: every tenth judgement says the opposite of what is true.
- **The service** is the retriever with exploration. Its log lines go through `taugate traffic`, and the labels through
  `calibration/labels`.

No choice was made on these sets.""",
    sections={"promise": promise},
    splits=10,
)

if __name__ == "__main__":
    measure(PAGE, __doc__)
