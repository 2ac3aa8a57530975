"""Taugate as a retriever for Haystack: `pip install 'taugate-client[haystack]'`."""

from haystack_integrations.components.retrievers.taugate.retriever import TaugateRetriever

__all__ = ["TaugateRetriever"]
