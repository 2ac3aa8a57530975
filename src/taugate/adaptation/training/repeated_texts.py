"""The contrastive loss of sentence-transformers over batches in which many queries share a document.

A document is ten times as long as a query, and in many data sets several queries ask about a document. A document that
is repeated in a batch is encoded once, and is not a negative of its own queries.
"""

from collections.abc import Iterable

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim

REPEATS = "repeats"  # feature of a column, (b,): for each text its line among the encoded texts
TEXTS = "texts"  # feature of a column, (u,): a number for each encoded text, the same in all columns


class RepeatedTextsLoss(MultipleNegativesRankingLoss):
    """The contrastive loss for features of distinct texts, with REPEATS and TEXTS."""

    def forward(self, sentence_features: Iterable[dict[str, torch.Tensor]], labels: torch.Tensor) -> torch.Tensor:
        """Return the loss for the features of anchors, positives and negatives; `labels` is not used."""
        columns = [dict(features) for features in sentence_features]
        repeats = [features.pop(REPEATS) for features in columns]
        texts = [features.pop(TEXTS)[lines] for features, lines in zip(columns, repeats, strict=True)]
        embedded = embed_columns(self.model, columns)
        same = own_documents(texts[1], torch.cat(texts[1:]))

        def similarities(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
            return cos_sim(queries, documents).masked_fill(same, -torch.inf)

        self.similarity_fct = similarities
        repeated = [vectors[lines] for vectors, lines in zip(embedded, repeats, strict=True)]
        loss: torch.Tensor = self.compute_loss_from_embeddings(repeated, labels)
        return loss


def own_documents(positives: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Mark the further copies of the positive of each query, (b, n) bool.

    Args:
        positives: (b,) number of the text that answers each query.
        documents: (n,) numbers of all documents, the positives first.
    """
    same = documents[None, :] == positives[:, None]
    return same.fill_diagonal_(False)
