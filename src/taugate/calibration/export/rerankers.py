"""Exports a cross-encoder or a model of late interaction to ONNX, and checks it against sentence-transformers.

Exports a model of late interaction to ONNX, and checks it against sentence-transformers. MultiVectorEncoder reads its
own folders, those of PyLate, and checkpoints of ColBERT with their artifact.metadata.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder as TorchCrossEncoder
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Normalize
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from transformers.utils.logging import disable_progress_bar

from taugate.calibration.export import torch_model
from taugate.calibration.export.model_folder import PROBES, prompt_of
from taugate.errors import EncoderError
from taugate.policy.arrays import Float32
from taugate.release.adaptation import read_reranker_adaptation
from taugate.release.encoder import MODEL, TOKENIZER, Role
from taugate.retrieval.rerank.cross_encoder import CONFIG, INPUTS, Activation, CrossEncoder, CrossEncoderConfig
from taugate.retrieval.rerank.late_interaction import CONFIG as TOKEN_ENCODER_CONFIG
from taugate.retrieval.rerank.late_interaction import Expansion, TokenEncoder, TokenEncoderConfig

_STEPS = (0, 1, 5)  # from a probe to the probes that it is paired with: itself, a neighbour, and one of another length
_ACTIVATIONS: dict[str, Activation] = {"Sigmoid": "sigmoid", "Identity": "identity"}

# Weight of the first stage's score beside an encoder's own token vectors, which were not trained to rank. Chosen on
# squad_v2_dev, from .1 to 3: NDCG@10 is .939 without it and .941 with it, AUROC .623 and .632 (first stage .631).
OWN_WEIGHT = 0.3
_MASK = "MultiVectorMask"  # which vectors count, for which `TokenEncoder.encode` has its own code
_MODULES = frozenset({"Transformer", "Dense", "Dropout", "Normalize", _MASK})


def export_cross_encoder(folder: Path, name: str, revision: str, target: Path) -> None:
    """Write model.onnx, tokenizer.json and reranker.json into an empty folder.

    Raises:
        EncoderError: If the model is no cross-encoder of one label, cannot be exported, or if the graph's scores differ
            from PyTorch's by more than golden queries allow on pairs of the probe texts.
    """
    model = _loaded(folder, name)
    activation = _ACTIVATIONS.get(type(model.activation_fn).__name__)
    if model.num_labels != 1 or activation is None:
        function = type(model.activation_fn).__name__
        raise EncoderError(
            f"reranker {name!r}: has {model.num_labels} labels and the activation {function}; choose a "
            "cross-encoder with one label and Sigmoid or Identity"
        )
    adaptation = read_reranker_adaptation(folder)
    pair_model: Any = model  # has what `tokenizer_of` reads of an encoder
    tokenizer, max_length = torch_model.tokenizer_of(pair_model, name)
    (target / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    _write_graph(model, target / MODEL, name, max_length)
    config = CrossEncoderConfig(
        name=name,
        revision=revision,
        max_length=max_length,
        activation=activation,
        max_difference=0.0,
        first_stage_weight=0.0 if adaptation is None else adaptation.first_stage_weight,
    )
    _write_config(config, target)
    texts = [[PROBES[(place + step) % len(PROBES)] for step in _STEPS] for place in range(len(PROBES))]
    expected = [_scores(model, query, own) for query, own in zip(PROBES, texts, strict=True)]
    exported = CrossEncoder(target)
    difference = max(
        float(np.abs(scores - exported.score(query, own)).max())
        for query, own, scores in zip(PROBES, texts, expected, strict=True)
    )
    torch_model.check_difference(difference, name)
    _write_config(config.model_copy(update={"max_difference": difference}), target)


def _loaded(folder: Path, name: str) -> TorchCrossEncoder:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # for loading one file of weights
    try:
        stored = {"dtype": torch.float32}
        model: TorchCrossEncoder = TorchCrossEncoder(
            str(folder), device="cpu", local_files_only=True, model_kwargs=stored
        )
    except Exception as error:  # a damaged model folder raises whatever its loader happens to hit first
        raise EncoderError(f"reranker {name!r}: {folder} is not a cross-encoder ({error})") from error
    model.float().eval()
    return model


def _scores(model: TorchCrossEncoder, query: str, texts: list[str]) -> Float32:
    pairs: list[Any] = [[query, text] for text in texts]
    return np.asarray(model.predict(pairs, batch_size=len(_STEPS), show_progress_bar=False), dtype=np.float32)


class _Logits(torch.nn.Module):
    """(input_ids, attention_mask, token_type_ids) → the score of each pair before the activation, (n, 1)."""

    def __init__(self, model: TorchCrossEncoder, inputs: list[str]) -> None:
        super().__init__()
        self.model: Any = model
        self.names = inputs

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(dict(zip(self.names, tensors, strict=True)))["scores"]
        return scores.reshape(-1, 1)


def _write_graph(model: TorchCrossEncoder, path: Path, name: str, max_length: int) -> None:
    """Trace the model with the inputs that its tokenizer gives; raises EncoderError if it cannot be traced."""
    features = model.tokenizer([("a query", "a text"), ("b", "c")], padding=True, return_tensors="pt")
    inputs = [name for name in INPUTS if name in features]
    torch_model.trace(
        _Logits(model, inputs),
        {name: features[name] for name in inputs},
        {"logits": {0: "batch"}},
        path,
        f"reranker {name!r}:",
        max_length=max_length,
    )


def _write_config(config: CrossEncoderConfig, target: Path) -> None:
    (target / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")


def export_token_encoder(folder: Path, name: str, revision: str, target: Path, *, of_encoder: bool = False) -> None:
    """Write model.onnx, tokenizer.json and late-interaction.json into an empty folder.

    Args:
        of_encoder: Whether the model is an encoder, of which the token vectors before pooling are exported.
    """
    if of_encoder:
        export_token_vectors(encoder_tokens(folder, name), name, revision, target, OWN_WEIGHT)
        return
    trained = read_reranker_adaptation(folder)
    weight = None if trained is None else trained.first_stage_weight
    export_token_vectors(_loaded_encoder(folder, name), name, revision, target, weight)


def export_token_vectors(
    model: MultiVectorEncoder, name: str, revision: str, target: Path, first_stage_weight: float | None
) -> None:
    """Export a model in memory; otherwise like `export_token_encoder`.

    Args:
        first_stage_weight: Weight of the first stage's score beside the token vectors of an encoder. A query's
            tokens count by their rarity then, because such vectors do not tell which tokens matter. None for a
            model that was published for late interaction.
    """
    modules = _modules(model, name)
    borrowed: Any = model  # has what these functions read of an encoder
    tokenizer, max_length = torch_model.tokenizer_of(borrowed, name)
    (target / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    lengths, expansion = _lengths(model, max_length)
    config = TokenEncoderConfig(
        name=name,
        revision=revision,
        dimension=int(model.get_embedding_dimension() or 0),
        prompts={
            "query": prompt_of(model.prompts, "query"),
            "document": prompt_of(model.prompts, "document", "passage", "corpus"),
        },
        lengths=lengths,
        skipped=_skipped(model),
        expansion=expansion,
        weighted=first_stage_weight is not None,
        first_stage_weight=first_stage_weight or 0.0,
        max_difference=0.0,
    )
    torch_model.trace(
        _TokenVectors(modules),
        {name: torch.ones((2, 4), dtype=torch.long) for name in ("input_ids", "attention_mask")},
        {"token_embeddings": {0: "batch", 1: "tokens"}},
        target / MODEL,
        f"reranker {name!r}:",
        max_length=max(lengths.values()),
    )
    _write_encoder_config(config, target)
    exported = TokenEncoder(target)
    difference = float(np.abs(_exported_scores(exported) - _late_scores(model)).max())
    torch_model.check_difference(difference, name)
    _write_encoder_config(config.model_copy(update={"max_difference": difference}), target)


def _loaded_encoder(folder: Path, name: str) -> MultiVectorEncoder:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # for loading one file of weights
    try:
        stored = {"dtype": torch.float32}
        model = MultiVectorEncoder(str(folder), device="cpu", local_files_only=True, model_kwargs=stored)
    except Exception as error:  # a damaged model folder raises whatever its loader happens to hit first
        raise EncoderError(f"reranker {name!r}: {folder} is not a model of late interaction ({error})") from error
    return model.float().eval()


def encoder_tokens(folder: Path, name: str) -> MultiVectorEncoder:
    """Return the transformer of an encoder with unit vectors of its tokens.

    Raises:
        EncoderError: If it has no vectors of tokens in context.
    """
    encoder = torch_model.load_model(folder, name)
    if not torch_model.is_transformer(encoder):
        raise EncoderError(
            f"late interaction: the encoder {name!r} has no vectors of tokens in context; choose another one"
        )
    prompts: Any = encoder.prompts  # declared with values that may be None, which the constructor takes as well
    modules = [encoder[0], MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
    return MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts).eval()


def _modules(model: MultiVectorEncoder, name: str) -> list[torch.nn.Module]:
    """Return the modules that compute vectors; raises EncoderError, naming the module, if one cannot be exported."""
    modules: list[Any] = [*model]
    for position, module in enumerate(modules):
        if torch_model.kind(module) not in _MODULES or getattr(module, "keep_only_token_ids", None):
            raise EncoderError(
                f"reranker {name!r}: module {position} ({torch_model.kind(module)}) cannot be exported, or keeps the "
                "tokens of images only; choose a model of texts without pooling of tokens"
            )
    if torch_model.kind(modules[-1]) not in {"Normalize", _MASK} or "Normalize" not in map(torch_model.kind, modules):
        raise EncoderError(f"reranker {name!r}: does not normalize its vectors; append a Normalize module")
    return [module for module in modules if torch_model.kind(module) != _MASK]


def _lengths(model: MultiVectorEncoder, max_length: int) -> tuple[dict[Role, int], Expansion | None]:
    """Return the longest query and document in tokens, and how queries are extended."""
    transformer: Any = model[0]
    document, query = transformer.document_length or max_length, transformer.query_length or max_length
    requested = transformer.query_expansion
    if requested is None:
        return {"query": query, "document": document}, None
    tokenizer, length = model.tokenizer, requested["length"]
    named = requested["token"]
    token = tokenizer.mask_token_id if named is None else tokenizer.convert_tokens_to_ids(named)
    if token is None:
        token = tokenizer.eos_token_id
    query = length if requested["strategy"] == "fixed" else max(query, length)
    expansion = Expansion(token=token, length=length, attended=requested["attend"])
    return {"query": query, "document": document}, expansion


def _skipped(model: MultiVectorEncoder) -> dict[Role, list[int]]:
    """Return the ids of tokens whose vectors do not count, of queries and of documents."""
    masks: list[Any] = [module for module in model if torch_model.kind(module) == _MASK]
    skipped: dict[Role, list[int]] = {"query": [], "document": []}
    for mask in masks:
        ids = model.tokenizer.convert_tokens_to_ids(mask.skiplist_words)
        for role, tokens in skipped.items():
            if role in mask.skiplist_tasks:
                tokens.extend(token for token in ids if token not in {None, model.tokenizer.unk_token_id, *tokens})
    return skipped


def _late_scores(model: MultiVectorEncoder) -> Float32:
    """Return the library's scores of all pairs of probes, (n, n), divided by the numbers of the queries' vectors."""
    queries, documents = model.encode_query(PROBES), model.encode_document(PROBES)
    counts = np.array([[len(query)] for query in queries], dtype=np.float32)
    scores = model.similarity(queries, documents, length_normalize=False).numpy() / counts
    return np.asarray(scores, dtype=np.float32)


def _exported_scores(exported: TokenEncoder) -> Float32:
    """Return the graph's scores of all pairs of probes, (n, n), from vectors in float32."""
    documents = exported.encode(PROBES, "document")
    scores = [
        [(document.vectors @ query.vectors.T).max(axis=0).mean() for document in documents]
        for query in exported.encode(PROBES, "query")
    ]
    return np.array(scores, dtype=np.float32)


class _TokenVectors(torch.nn.Module):
    """(input_ids, attention_mask) → the vector of every token, (n, tokens, d)."""

    def __init__(self, modules: list[torch.nn.Module]) -> None:
        super().__init__()
        self.steps: Any = torch.nn.ModuleList(modules)  # modules with untyped attributes

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        features: Any = {"input_ids": input_ids, "attention_mask": attention_mask}
        for module in self.steps:
            features = module(features)
        vectors: torch.Tensor = features["token_embeddings"]
        return vectors


def _write_encoder_config(config: TokenEncoderConfig, target: Path) -> None:
    (target / TOKEN_ENCODER_CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
