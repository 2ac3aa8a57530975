"""Every table of benchmarks/results/few-labels.md: what 25 to 100 human labels say, with and without a machine.

Needs TAUGATE_DATA and the extras calibration, sample and test. Embeddings come through the project's own cache.
"""

from benchmarks.experiment import experiment_page, measure
from benchmarks.labels import sampled, thresholds

PAGE = experiment_page(
    file="few-labels.md",
    module="benchmarks.labels.tables",
    title="# Few human labels, with and without a machine",
    introduction="""\
Fifty human labels give an accuracy to within about 15 points. A machine can score thousands of other queries: the model of relevance
estimates how likely each result is relevant, or a language model judges it. The machine alone may be wrong by any amount. *Both*
together is prediction-powered inference: the machine's scores of many queries, corrected by how wrong they are on the labelled ones
(`evidence/few_labels`). This page measures whether the 95 % intervals hold, and how much shorter they are.

- **R²** is the share of the variance of hits that the machine's scores explain. At best, the ratio of widths is √(1 − R²).
- **The model** is fitted on 1,000 crops of the set's documents, and on no label.
- **The judge** is simulated: it knows which results are relevant, and is wrong about 3, 6 or 10 % of them. No language model was run.
- **A resample** draws documents with replacement, with all of their queries. People judge 25, 50 or 100 of these queries at random,
  and at most 2,000 others are scored by the machine.

Everything was chosen on [simulated queries](../decisions.md#few-human-labels). No public set had a say, so each one tests the choice.
Generated queries train the model. They never enter an estimate.""",
    sections={"thresholds": thresholds, "sampled": sampled},
    splits=500,
)

if __name__ == "__main__":
    measure(PAGE, __doc__)
