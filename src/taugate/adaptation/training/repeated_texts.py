"""The contrastive loss of sentence-transformers over batches in which many queries share a document.

A document is ten times as long as a query, and in many data sets several queries ask about each. One that stands in a
batch more than once is encoded once, and is a negative of none of its own queries.
"""

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim

REPEATS = "repeats"  # of the features of a column, (b,): the line of each of its texts among those that are encoded
TEXTS = "texts"  # of the features of a column, (u,): a number of each text that is encoded, the same in all columns


class RepeatedTextsLoss(MultipleNegativesRankingLoss):
    """That loss for features of texts that stand there once, with REPEATS and TEXTS."""

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: torch.Tensor) -> torch.Tensor:
        """Return the loss.

        Args:
            sentence_features: Of anchors, positives and negatives.
            labels: Not used.
        """
        columns = [dict(features) for features in sentence_features]
        repeats = [features.pop(REPEATS) for features in columns]
        texts = [features.pop(TEXTS)[each] for features, each in zip(columns, repeats, strict=True)]
        embedded = embed_columns(self.model, columns)
        same = own_documents(texts[1], torch.cat(texts[1:]))

        def similarities(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
            return cos_sim(queries, documents).masked_fill(same, -torch.inf)

        self.similarity_fct = similarities
        each_one = [found[each] for found, each in zip(embedded, repeats, strict=True)]
        loss: torch.Tensor = self.compute_loss_from_embeddings(each_one, labels)
        return loss


def own_documents(positives: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Mark the further copies of the positive of each query, (b, n) bool.

    Args:
        positives: (b,) number of the text that answers each query.
        documents: (n,) numbers of all, which begin with those.
    """
    same = documents[None, :] == positives[:, None]
    return same.fill_diagonal_(False)
