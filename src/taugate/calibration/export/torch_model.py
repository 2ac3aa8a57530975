"""PyTorch models as they are exported: loaded, traced to ONNX, with attention that ONNX Runtime computes fast."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from torch.nn import functional
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.utils.logging import disable_progress_bar

from taugate.calibration.export import weights
from taugate.calibration.export.model_folder import check_modules, custom_code
from taugate.calibration.export.weights import needs_separate_weights, separate_weights
from taugate.errors import EncoderError
from taugate.release.encoder import EncoderConfig
from taugate.release.golden import TOLERANCE

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


_NO_LIMIT = 2**31 - 1  # tokens; StaticEmbedding reads texts of any length
_TRACED_ROWS = 4096  # of an embedding; tracing reads the token with id 1, and some twenty positions
OPSET = 17  # the first with LayerNormalization as one operator


def load_model(folder: Path, name: str) -> SentenceTransformer:
    """Load the model in `folder` on the CPU, in float32 whatever the type in which its weights are stored.

    Raises:
        EncoderError: If the folder has no model.
    """
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # for loading and saving one small file of weights
    try:
        stored = {"dtype": torch.float32}  # of the transformer; other modules are converted below
        return SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=stored).float().eval()
    except Exception as error:  # a damaged model folder raises whatever its loader happens to hit first
        if (reason := custom_code(error)) is not None:
            raise EncoderError(f"encoder {name!r}: {reason}") from error
        raise EncoderError(f"encoder {name!r}: {folder} is not a sentence-transformers model ({error})") from error


def query_route(model: SentenceTransformer, name: str) -> SentenceTransformer:
    """Return the modules on the query route as a model of their own.

    Args:
        model: A model with one Router, as `taugate adapt --keep-documents` writes it.
    """
    routes = getattr(model[0], "sub_modules", {})
    if len(model) != 1 or "query" not in routes:
        raise EncoderError(
            f"encoder {name!r}: has no query route, unlike what taugate adapt --keep-documents writes; adapt the base "
            "encoder again"
        )
    return of_modules(routes["query"], model, model.truncate_dim)


def of_modules(
    modules: Iterable[torch.nn.Module], model: SentenceTransformer, truncate_dim: int | None
) -> SentenceTransformer:
    """Return a model of other modules with the prompts and the similarity of a given one.

    Args:
        truncate_dim: Number of vector components to keep, None for all.
    """
    prompts: Any = model.prompts  # declared with values that may be None, which the constructor takes as well
    return SentenceTransformer(
        modules=[*modules],
        device="cpu",
        prompts=prompts,
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        truncate_dim=truncate_dim,
    ).eval()


def refuse_unknown_modules(model: SentenceTransformer, name: str) -> None:
    """Raise EncoderError, naming the module, if a module of the model cannot be exported."""
    check_modules([kind(module) for module in model], name)
    for position, module in enumerate(model):
        if kind(module) == "Pooling" and not module.include_prompt and any(model.prompts.values()):
            raise EncoderError(
                f"encoder {name!r}: module {position} (Pooling) leaves the prompt out of the mean, which "
                "depends on its length and cannot be exported; choose a model with include_prompt"
            )


def check_difference(difference: float, name: str) -> None:
    """Check the largest difference between the scores of an exported reranker and those of its library."""
    if not difference <= TOLERANCE:
        raise EncoderError(
            f"reranker {name!r}: the exported graph and PyTorch differ by {difference:.2g} on the probe texts, more "
            f"than {TOLERANCE:g}; this model cannot be served; choose another one"
        )


def tokenizer_of(model: SentenceTransformer, name: str) -> tuple[Tokenizer, int]:
    """Return the fast tokenizer with the model's truncation, and the maximum length in tokens."""
    fast = getattr(model.tokenizer, "backend_tokenizer", model.tokenizer)
    if not isinstance(fast, Tokenizer):
        kind = type(model.tokenizer).__name__
        raise EncoderError(f"encoder {name!r}: module 0 has a {kind} without tokenizer.json; convert it to a fast one")
    tokenizer = Tokenizer.from_str(fast.to_str())
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    if tokenizer.get_vocab().keys() <= special:  # transformers returns this for a folder without tokenizer files
        raise EncoderError(f"encoder {name!r}: has no tokenizer of its own; add its tokenizer.json to the folder")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if not is_transformer(model):
        return tokenizer, _NO_LIMIT
    first: Any = model[0]
    declared = model.max_seq_length or getattr(first.config, "max_position_embeddings", None)
    max_length = min(int(declared or _NO_LIMIT), _NO_LIMIT)  # tokenizers without a limit declare 10³⁰
    tokenizer.enable_truncation(max_length)
    return tokenizer, max_length


def pooling(model: SentenceTransformer) -> str:
    """Return the pooling of token vectors into one; a static embedding takes their mean."""
    modules: list[Any] = list(model)
    modes = next((module.pooling_mode for module in modules if kind(module) == "Pooling"), "mean")
    return modes if isinstance(modes, str) else "+".join(modes)


def is_transformer(model: SentenceTransformer) -> bool:
    """Return whether the model is a transformer, not a mean of static token embeddings."""
    return kind(model[0]) == "Transformer"


def kind(module: object) -> str:
    """Return the class name of a module; unlike its path, the name is stable across sentence-transformers versions."""
    return type(module).__name__


def write_graph(model: SentenceTransformer, tokenizer: Tokenizer, path: Path, config: EncoderConfig) -> None:
    """Trace the model into an ONNX file.

    Args:
        config: Its configuration: vectors get length 1 if they are compared by cosine.
    """
    lengths = [len(ids) for ids in (encoding.ids for encoding in tokenizer.encode_batch(["a short text", "b"]))]
    ids = torch.ones((2, max(lengths)), dtype=torch.long)
    mask = torch.tensor([[1] * length + [0] * (max(lengths) - length) for length in lengths])
    architecture = type(getattr(model[0], "auto_model", model[0])).__name__
    trace(
        _SentenceEmbedding(model, unit=config.similarity == "cosine"),
        {"input_ids": ids, "attention_mask": mask},
        {"sentence_embedding": {0: "batch"}},
        path,
        f"encoder {config.name!r}: module 0 ({architecture})",
        max_length=config.max_length,
    )


def trace(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    output: Mapping[str, Mapping[int, str]],
    path: Path,
    subject: str,
    *,
    max_length: int,
) -> None:
    """Trace a module into an ONNX file; the weights of a large one get a file of their own, beside it.

    Args:
        inputs: Examples of its inputs by name, (batch, tokens).
        output: Name of its output, with the names of the output's variable axes.
    """
    axes = {name: {0: "batch", 1: "tokens"} for name in inputs} | dict(output)
    separate = needs_separate_weights(sum(weights.numel() for weights in module.parameters()))
    try:
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            stack.enter_context(traceable_attention(max_length))
            stack.enter_context(quiet_tracer())
            if separate:
                stack.enter_context(_short_embeddings(module))
            warnings.simplefilter("ignore")  # tracer warnings about shapes, which the check of the graph covers
            torch.onnx.export(
                module,
                tuple(inputs.values()),
                str(path),
                input_names=[*inputs],
                output_names=[*output],
                dynamic_axes=axes,
                opset_version=OPSET,
                export_params=not separate,
                do_constant_folding=not separate,  # which copies weights
                dynamo=False,  # with dynamo=True onnxruntime rejects the graph (torch 2.13, onnxscript of 2026-11)
            )
    except OSError:  # the file cannot be written
        raise
    except Exception as error:  # the tracer and the operators raise many different types
        reason = str(error).splitlines()[0]
        raise EncoderError(f"{subject} cannot be exported to ONNX: {reason}; choose another model") from error
    if separate:
        separate_weights(path, module.state_dict())


@contextmanager
def quiet_tracer() -> Iterator[None]:
    """Keep the tracer from printing the whole graph on an error; its own switch for that is always on (torch 2.13)."""
    backend: Any = torch._C  # prints from C++, so that sys.stdout cannot be redirected
    log = backend._jit_onnx_log
    backend._jit_onnx_log = lambda *_: None
    try:
        yield
    finally:
        backend._jit_onnx_log = log


@contextmanager
def _short_embeddings(model: torch.nn.Module) -> Iterator[None]:
    """Show the tracer the first rows of large embeddings, of which it would make two copies, though it writes none."""
    large = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding) and module.num_embeddings > _TRACED_ROWS
    ]
    whole = [(module, module.weight, module.padding_idx) for module in large]
    for module in large:
        module.weight = torch.nn.Parameter(module.weight[:_TRACED_ROWS], requires_grad=False)
        module.padding_idx = None  # which may be a later row
    try:
        yield
    finally:
        for module, weight, padding in whole:
            module.weight, module.padding_idx = weight, padding


class _SentenceEmbedding(torch.nn.Module):
    """(input_ids, attention_mask) → vectors, as SentenceTransformer.encode computes them for a padded batch."""

    def __init__(self, model: SentenceTransformer, *, unit: bool) -> None:
        super().__init__()
        self.unit = unit
        self.steps: Any = torch.nn.ModuleList(model)  # modules with untyped attributes
        self.truncate_dim: int | None = model.truncate_dim

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        first, *later = self.steps
        if kind(first) == "StaticEmbedding":
            features = {"sentence_embedding": _bag_mean(first.embedding.weight, input_ids, attention_mask)}
        else:
            features = first({"input_ids": input_ids, "attention_mask": attention_mask})
        for module in later:
            features = module(features)
        vector: torch.Tensor = features["sentence_embedding"][:, : self.truncate_dim]
        already = kind(self.steps[-1]) == "Normalize" and self.truncate_dim is None
        return vector if already or not self.unit else torch.nn.functional.normalize(vector, dim=-1)


def _bag_mean(weight: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean of token vectors under the mask: EmbeddingBag without its offsets, which ONNX cannot batch."""
    weights = mask.unsqueeze(-1).to(weight.dtype)
    return (weight[ids] * weights).sum(1) / weights.sum(1).clamp(min=1)
