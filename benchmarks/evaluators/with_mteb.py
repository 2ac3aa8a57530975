"""mteb's own evaluation of a retrieval task, on a data set of ours: nothing is downloaded."""

import logging
from typing import Any

from benchmarks.evaluators.labelled import LabelledSet, Scores
from benchmarks.evaluators.search import HttpSearch, Run

VERSION = "2.26.24"  # whose evaluation benchmarks/results/evaluators.md explains


def model_meta() -> object:
    """Return what mteb asks of a model: its name, and that nothing else is known."""
    from mteb.models import ModelMeta  # pyright: ignore[reportMissingImports] (comes with the extra `evaluators`)

    return ModelMeta.create_empty({"name": "taugate/http", "revision": "1"})


def ndcg(data: LabelledSet, search: HttpSearch, k: int) -> tuple[float, Scores, Run]:
    """Evaluate with `mteb.evaluate`.

    Returns:
        mteb's figure, which it rounds to five digits, NDCG@K of each query, and what was found.
    """
    import datasets  # pyright: ignore[reportMissingImports] (mteb brings it)
    import mteb  # pyright: ignore[reportMissingImports]
    from mteb.abstasks.retrieval import AbsTaskRetrieval  # pyright: ignore[reportMissingImports]
    from mteb.abstasks.task_metadata import TaskMetadata  # pyright: ignore[reportMissingImports]

    datasets.disable_progress_bars()
    logging.getLogger("mteb").setLevel(logging.ERROR)
    seen: dict[str, Any] = {}

    class Task(AbsTaskRetrieval):  # type: ignore[misc]  # mypy does not read mteb
        """The data set as a task."""

        metadata = TaskMetadata(
            name=f"Taugate{data.name.title().replace('_', '')}",
            description=f"{data.name}, searched over HTTP",
            dataset={"path": data.name, "revision": "1"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score=f"ndcg_at_{k}",
        )
        k_values = (1, k)

        def load_data(self, *_: object, **__: object) -> None:
            """Take the data set as it was read."""
            self.dataset = {
                "default": {
                    "test": {
                        "corpus": datasets.Dataset.from_list(
                            [{"id": name, "title": title, "text": text} for name, (title, text) in data.corpus.items()]
                        ),
                        "queries": datasets.Dataset.from_list(
                            [{"id": name, "text": text} for name, text in data.queries.items()]
                        ),
                        "relevant_docs": data.qrels,
                        "top_ranked": None,
                    }
                }
            }
            self.data_loaded = True

        def task_specific_scores(
            self, scores: object, qrels: object, results: object, hf_split: str, hf_subset: str
        ) -> dict[str, float]:
            """Keep what mteb rounds afterwards."""
            seen.update(scores=scores, results=results)
            return {}

    model: Any = search  # its signature is that of the SearchProtocol, with what it ignores left open
    (result,) = mteb.evaluate(model, Task(), cache=None, co2_tracker=False, show_progress_bar=False).task_results
    return (
        float(result.scores["test"][0][f"ndcg_at_{k}"]),
        {query: float(each[f"ndcg_cut_{k}"]) for query, each in seen["scores"].items()},
        seen["results"],
    )
