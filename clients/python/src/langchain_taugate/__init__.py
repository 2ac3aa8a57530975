"""Taugate for LangChain, as a retriever and as a compressor: `pip install 'taugate-client[langchain]'`."""

from langchain_taugate.compressor import TaugateCompressor
from langchain_taugate.retriever import TaugateRetriever

__all__ = ["TaugateCompressor", "TaugateRetriever"]
