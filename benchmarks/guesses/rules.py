"""The rules that people cut their results by, each with the place where it is written down."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.guesses.autocut import autocut
from taugate.policy.arrays import Float32
from taugate.policy.policy import keep


@dataclass(frozen=True)
class GuessedRule:
    """A rule that was set without looking at the data.

    Attributes:
        name: As in the tables.
        keeps: Takes (n, K) similarities, best first, and returns which results are passed on.
        source: Markdown that says who sets it, and where.
    """

    name: str
    keeps: Callable[[Float32], NDArray[np.bool_]]
    source: str


def _threshold(tau: float) -> Callable[[Float32], NDArray[np.bool_]]:
    return lambda scores: keep(scores, np.float32(tau))


_LANGCHAIN = "https://github.com/langchain-ai/langchain/blob"
_LLAMA_INDEX = "https://github.com/run-llama/llama_index/blob"
_WEAVIATE = "https://github.com/weaviate/weaviate/blob"

GUESSES = (
    GuessedRule(
        "none: all of the top 5", lambda scores: keep(scores, None), "The default of all of these projects but RAGFlow."
    ),
    GuessedRule(
        "similarity ≥ .2",
        _threshold(0.2),
        "RAGFlow's default, [Retrieval component](https://ragflow.io/docs/v0.18.0/retrieval_component). RAGFlow compares "
        "it with a blend of keyword and cosine similarity; here it is compared with cosine alone.",
    ),
    GuessedRule(
        "similarity ≥ .5",
        _threshold(0.5),
        "LangChain's guide [How to use a vectorstore as a retriever]"
        f"({_LANGCHAIN}/037615b1e98bdb4654d0684f85acf8bc15df52fa/docs/docs/how_to/vectorstore_retriever.ipynb).",
    ),
    GuessedRule(
        "similarity ≥ .7",
        _threshold(0.7),
        "LlamaIndex's guide [Querying]"
        f"({_LLAMA_INDEX}/574f373f402589b643275a08355b5d2553b6ffa5/docs/docs/understanding/querying/querying.md).",
    ),
    GuessedRule(
        "similarity ≥ .8",
        _threshold(0.8),
        "LangChain's example for [`VectorStore.as_retriever`]"
        f"({_LANGCHAIN}/026de908ebd48b235175be45f55a93b363638c15/libs/core/langchain_core/vectorstores/base.py).",
    ),
    GuessedRule(
        "Weaviate's autocut, 1 jump",
        autocut,
        "Weaviate's [documentation](https://docs.weaviate.io/weaviate/api/graphql/additional-operators#autocut) and "
        f"[code]({_WEAVIATE}/e3ab5815253a267365a0fe004662524162a04afd/entities/autocut/autocut.go).",
    ),
)
CERTIFIED = "certified: `--max-loss 0.02 --refuse off`"
DEFAULT = "default, τ and ρ: `taugate calibrate`"
