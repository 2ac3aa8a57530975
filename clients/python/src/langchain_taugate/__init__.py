"""Taugate as a retriever for LangChain: `pip install 'taugate-client[langchain]'`."""

from langchain_taugate.retriever import TaugateRetriever

__all__ = ["TaugateRetriever"]
