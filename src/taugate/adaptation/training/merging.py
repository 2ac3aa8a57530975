"""Merging: the weights of a trained encoder, moved back towards those of its base.

Weights that were fine-tuned from the same start can be averaged (Wortsman et al., "Robust fine-tuning of zero-shot
models", CVPR 2022, eq. 1). What was learned stays for the most part, and what was forgotten comes back.
"""

import torch
from sentence_transformers import SentenceTransformer


def merge(base: SentenceTransformer, trained: SentenceTransformer, weight: float) -> None:
    """Replace the weights of a trained model by (1 − w)·base + w·trained, in place.

    Args:
        base: Of the same modules.
        trained: Of the same modules.
        weight: w, in 0…1.
    """
    originals = dict(base.named_parameters())
    with torch.no_grad():
        for name, each in trained.named_parameters():
            each.copy_(torch.lerp(originals[name], each, weight))
