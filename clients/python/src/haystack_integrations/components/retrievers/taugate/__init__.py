"""Taugate for Haystack, as a retriever and as a gate behind another one: `pip install 'taugate-client[haystack]'`."""

from haystack_integrations.components.retrievers.taugate.gate import TaugateGate
from haystack_integrations.components.retrievers.taugate.retriever import TaugateRetriever

__all__ = ["TaugateGate", "TaugateRetriever"]
