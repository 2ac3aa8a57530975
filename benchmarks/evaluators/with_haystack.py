"""Haystack's DocumentNDCGEvaluator on what its retriever of Taugate returns."""

import os

from benchmarks.evaluators.labelled import LabelledSet, Scores


def ndcg(data: LabelledSet, url: str, k: int) -> tuple[float, Scores]:
    """Evaluate through a pipeline's components.

    Returns:
        Haystack's figure, and NDCG@K of each query.
    """
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when haystack is imported
    from haystack import Document
    from haystack.components.evaluators import DocumentNDCGEvaluator

    from haystack_integrations.components.retrievers.taugate import TaugateRetriever

    retriever = TaugateRetriever(url, k=k)
    found = DocumentNDCGEvaluator(document_comparison_field="id").run(
        ground_truth_documents=[
            [Document(id=name, score=grade) for name, grade in data.qrels[query].items()] for query in data.queries
        ],
        retrieved_documents=[retriever.run(text)["documents"] for text in data.queries.values()],
    )
    return float(found["score"]), dict(zip(data.queries, found["individual_scores"], strict=True))
