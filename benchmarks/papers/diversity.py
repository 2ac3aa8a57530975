"""Table 2 of the diversity paper: how varied the documents are that questions are about."""

import numpy as np

from benchmarks.markdown import table
from benchmarks.papers.plan import Plan, spread
from benchmarks.papers.thresholds import NOT_RUN
from taugate.calibration.query_set.measure import TopicClusters, cosine_distance, topic_clusters
from taugate.policy.arrays import Float32

HEADING = "Diversity paper: topics of two sets (Table 2)"
SETS = ("pubmedqa_labelled", "covidqa_chunks")
_PUBLISHED = {
    "mean cosine distance": ("0.2321", "0.2579"),
    "clusters": ("20", "19"),
    "silhouette": ("0.1030", "0.0791"),
    "topic entropy": ("0.9577", "0.9765"),
}


def section(plan: Plan) -> str:
    """Measure the relevant documents of both sets, with every seed of the clustering."""
    columns: list[list[str]] = []
    accuracies = []
    for name in SETS:
        _, encoder, at_hand = next(plan.pairs([name]))
        if not at_hand:
            columns.append([NOT_RUN] * len(_PUBLISHED))
            continue
        encoded = plan.encoded(name, encoder)
        relevant = sorted({position for query in encoded.queries for position in query.relevant})
        columns.append(_cells(encoded.vectors.documents[np.array(relevant)], plan.seeds))
        accuracies.append(f"{100 * plan.measured(name, encoder)[0].accuracy:.1f} % on `{name}`")
    rows = [(what, *_PUBLISHED[what], *cells) for what, *cells in zip(_PUBLISHED, *columns, strict=True)]
    return f"""\
Documents with a labelled question, by MiniLM. The paper's two sets (environmental impact statements) and its encoder are not at hand. The seeds are those of
k-means, which takes the best silhouette of 2 to 20 clusters.

{table(("", "`NQ-SME-LLM`, published", "`NQ-LLM`, published", *(f"`{name}`, measured" for name in SETS)), rows)}

**What does not reproduce.** The paper finds the set with the lower silhouette to be the harder one. Here accuracy@5 is {" and ".join(accuracies) or NOT_RUN}: two sets of unlike documents are no pair
that differs in its topics alone."""


def _cells(documents: Float32, seeds: int) -> list[str]:
    runs = [topic_clusters(documents, seed) for seed in range(seeds)]
    topics: list[TopicClusters] = [each for each in runs if each is not None]
    distance = cosine_distance(documents)
    return [
        NOT_RUN if distance is None else f"{distance:.4f}",
        spread([each.topics for each in topics], 0, 1),
        spread([each.silhouette for each in topics], 4, 1),
        spread([each.topic_entropy for each in topics], 4, 1),
    ]
