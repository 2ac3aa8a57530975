"""Merging: averages the weights of a trained encoder and its base.

Weights that were fine-tuned from the same start can be averaged (Wortsman et al., "Robust fine-tuning of zero-shot
models", CVPR 2022, eq. 1). Most of the learned gain is kept, and most of the forgotten knowledge is restored.
"""

import torch
from sentence_transformers import SentenceTransformer


def merge(base: SentenceTransformer, trained: SentenceTransformer, weight: float) -> None:
    """Replace the weights of a trained model by (1 − w)·base + w·trained, in place.

    Args:
        base: Base model.
        trained: Trained model of the same modules.
        weight: w, in 0…1.
    """
    originals = dict(base.named_parameters())
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            parameter.copy_(torch.lerp(originals[name], parameter, weight))
