"""Taugate for LlamaIndex, as a retriever and as a node postprocessor: `pip install 'taugate-client[llamaindex]'`."""

from llama_index.retrievers.taugate.postprocessor import TaugatePostprocessor
from llama_index.retrievers.taugate.retriever import TaugateEmptyEvent, TaugateRetriever

__all__ = ["TaugateEmptyEvent", "TaugatePostprocessor", "TaugateRetriever"]
