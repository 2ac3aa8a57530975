"""How attention is traced, so that the graph reads texts of any length, and long ones in little memory.

The scores of all pairs of 8,192 tokens take 268 MB per head, and onnxruntime holds several copies of them. In the graph
of a model for long texts, a loop computes them for some queries at a time, with all keys (Rabe and Staats,
"Self-attention does not need O(n²) memory", 2021). Vectors are those of the whole matrix within 1e-6, and no length of
text is slower.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from taugate.calibration.export import weights

_LEAST = torch.finfo(torch.float32).min  # instead of -inf: the mean of all values for a query without any key, not NaN


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, block: int, least: float
) -> torch.Tensor:
    """Return softmax(query · keyᵀ) · value in blocks of queries; tensors are (batch, heads, tokens, dimension)."""
    transposed = key.transpose(2, 3)
    parts: list[torch.Tensor] = []
    for start in range(0, query.size(2), block):
        rows = min(block, query.size(2) - start)  # narrow copies these rows, and a slice of axis 2 the whole tensor
        scores = torch.matmul(query.narrow(2, start, rows), transposed)
        scores = scores.masked_fill(mask.narrow(2, start, rows).logical_not(), least)
        parts.append(torch.matmul(torch.softmax(scores, 3), value))
    return torch.cat(parts, 2)


@contextmanager
def traceable_attention(max_length: int) -> Iterator[None]:
    """Make transformers compute attention such that PyTorch's tracer gets a graph for texts of all lengths.

    Only scaled_dot_product_attention with a mask of Booleans gets the loop, so not attention with learned biases of
    positions.
    """
    long = max_length > weights.LONG_TEXT
    masks = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "eager")}
    attend = functional.scaled_dot_product_attention
    for name, function in masks.items():
        ALL_MASK_ATTENTION_FUNCTIONS[name] = _by_index(function, small=long)
    if long:
        functional.scaled_dot_product_attention = _in_blocks(attend)
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = attend
        for name, function in masks.items():
            ALL_MASK_ATTENTION_FUNCTIONS[name] = function


def _by_index(function: Callable[..., Any], *, small: bool) -> Callable[..., Any]:
    """Make a function of masks compute them from indices of tokens, not with torch.vmap, which cannot be traced.

    transformers uses vmap for masks with functions of the model's own, such as those of bidirectional Gemma 3. If such
    a function did not work on indices, the graph would differ from PyTorch, which the export checks.

    Args:
        small: Whether indices are in float32, not in int64, because their differences are as many as pairs of
            tokens.
    """

    def masks(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 (those of the function)
        pattern = options.get("mask_function")
        if small and pattern is not None:
            options["mask_function"] = lambda batch, head, query, key: pattern(batch, head, query.float(), key.float())
        return function(*arguments, **options | {"use_vmap": False})

    return masks


def _in_blocks(attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return scaled_dot_product_attention with a loop over blocks of queries if there is a mask of Booleans."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, like the tracer, which knows no other loops
        loop = torch.jit.script(_attend)

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        *more: float,  # dropout and causality
        **options: Any,  # noqa: ANN401 (those of the function)
    ) -> torch.Tensor:
        special = any(more) or options.get("is_causal") or options.get("enable_gqa")
        if attn_mask is None or attn_mask.dtype != torch.bool or query.dim() != 4 or special:
            return attend(query, key, value, attn_mask, *more, **options)
        scale = options.get("scale") or int(query.shape[-1]) ** -0.5
        mask = attn_mask.expand(-1, -1, query.shape[2], -1) if attn_mask.shape[2] == 1 else attn_mask
        attended: torch.Tensor = loop(query * scale, key, value, mask, weights.QUERY_BLOCK, _LEAST)
        return attended

    return attention
