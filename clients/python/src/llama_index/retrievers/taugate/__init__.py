"""Taugate as a retriever for LlamaIndex: `pip install 'taugate-client[llamaindex]'`."""

from llama_index.retrievers.taugate.retriever import TaugateEmptyEvent, TaugateRetriever

__all__ = ["TaugateEmptyEvent", "TaugateRetriever"]
