"""Export a sentence-transformers model to ONNX, with pooling and normalisation, and check it against PyTorch.

BERT-like models do not need it (encoders.py).
"""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
from sentence_transformers import SentenceTransformer

from taugate.calibration.export import model_folder, torch_model
from taugate.calibration.export.weights import needs_separate_weights
from taugate.errors import EncoderError
from taugate.policy.arrays import Float32
from taugate.release.adaptation import DOCUMENTS
from taugate.release.encoder import MODEL, TOKENIZER, EncoderConfig, Role, Similarity
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.vectors import extended

_WEIGHTS, _AXIS = "taugate/weights", "taugate/axis"
# Probes that PyTorch pads to one length. Those of a large model are encoded alone, because padding multiplies the work
# by six, and so are those of a model with a long window, because attention takes memory by the square of the length:
# the longest probe has about 1,200 tokens.
_BATCH, _LONG = 32, 512


def export(declared: model_folder.ModelFolder, name: str, revision: str, target: Path, similarity: Similarity) -> None:
    """Write model.onnx, tokenizer.json and encoder.json into an empty folder.

    If the folder has an exported document encoder beside the model, the query encoder is exported.
    """
    folder = declared.folder
    model = _loaded(folder, name)
    tokenizer, max_length = torch_model.tokenizer_of(model, name)
    (target / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    measures = (int(model.truncate_dim or model.get_embedding_dimension() or 0), max_length, torch_model.pooling(model))
    config = model_folder.config_of(declared, name, revision, measures, model.prompts)
    if not torch_model.is_transformer(model):
        config = config.model_copy(update={"special_tokens": False, "pad_multiple": 1})
    unit = similarity == "cosine"
    expected = ProbeVectors.of(model, config, _batch_size(model, max_length), unit=unit)
    if not unit:
        config = config.model_copy(update={"dimension": config.dimension + 1, "max_norm": expected.max_norm()})
    torch_model.write_graph(model, tokenizer, target / MODEL, config)
    del model
    gc.collect()  # modules refer to each other, and onnxruntime needs the memory
    sum_tokens_by_product(target / MODEL)
    model_folder.write_config(config, target)
    try:
        encoder = ExportedEncoder.load(target)
    except EncoderError as error:  # which names a file that is removed now
        raise EncoderError(
            f"encoder {name!r}: the graph that PyTorch's tracer makes of this architecture cannot be loaded; choose "
            "another model"
        ) from error
    difference = expected.difference(encoder)
    if (
        difference > model_folder.MAX_COSINE_DIFFERENCE and config.pad_multiple > 1
    ):  # padding changes this model's vectors
        config = config.model_copy(update={"pad_multiple": 1})
        model_folder.write_config(config, target)
        encoder = ExportedEncoder.load(target)
        # PyTorch pads too, so its texts are encoded alone.
        difference = ProbeVectors.of(_loaded(folder, name), config, batch_size=1, unit=unit).difference(encoder)
    measured = {
        "max_cosine_difference": model_folder.checked_difference(difference, name),
        "pair_lone_texts": model_folder.depends_on_company(encoder),
    }
    model_folder.write_config(config.model_copy(update=measured), target)


def difference_from_pytorch(folder: Path, encoder: ExportedEncoder) -> float:
    """Return the largest 1 − cosine between the graph of a folder and PyTorch on the probes."""
    config = encoder.config
    model = _loaded(folder, config.name)
    size = _batch_size(model, config.max_length)
    return ProbeVectors.of(model, config, size, unit=config.similarity == "cosine").difference(encoder)


def _batch_size(model: SentenceTransformer, max_length: int) -> int:
    large = needs_separate_weights(sum(weights.numel() for weights in model.parameters()))
    return 1 if large or max_length > _LONG else _BATCH


def _loaded(folder: Path, name: str) -> SentenceTransformer:
    """Load the model in `folder`, or its part that encodes queries if documents have their own encoder."""
    model = torch_model.load_model(folder, name)
    if (folder / DOCUMENTS).is_dir():
        _check_documents(model, ExportedEncoder.load(folder / DOCUMENTS), name)
        model = torch_model.query_route(model, name)
    torch_model.refuse_unknown_modules(model, name)
    return model


@dataclass(frozen=True)
class ProbeVectors:
    """The vectors of the probe texts by PyTorch, of unit length if they will be compared by cosine."""

    queries: Float32  # of the probes as queries, (n, d) float32
    documents: Float32 | None  # as documents; None if both have the same prompt

    @classmethod
    def of(cls, model: SentenceTransformer, config: EncoderConfig, batch_size: int, *, unit: bool) -> Self:
        """Encode the probes with the prompts of a configuration."""
        prompts = dict.fromkeys((config.query_prompt, config.document_prompt))
        try:
            vectors = [
                model.encode(model_folder.PROBES, prompt=prompt, normalize_embeddings=unit, batch_size=batch_size)
                for prompt in prompts
            ]
        except (IndexError, RuntimeError) as error:  # by architecture
            raise EncoderError(
                f"encoder {config.name!r}: declares a length of {config.max_length:,} tokens, but PyTorch cannot "
                f"encode a text of that length ({error}); correct max_seq_length in sentence_bert_config.json"
            ) from error
        return cls(vectors[0], vectors[1] if len(vectors) > 1 else None)

    def max_norm(self) -> float:
        """Return M for inner products with documents like the probes that are passages."""
        return model_folder.max_norm_of(self.queries if self.documents is None else self.documents)

    def difference(self, encoder: ExportedEncoder) -> float:
        """Return the largest 1 − cosine between these vectors and those of the graph, both made unit vectors."""
        max_norm = encoder.config.max_norm
        expected: dict[Role, Float32] = {"query": self.queries}
        if self.documents is not None or max_norm is not None:  # otherwise documents are encoded like queries
            expected["document"] = self.queries if self.documents is None else self.documents
        if max_norm is not None:
            expected = {
                role: extended(vectors, documents=role == "document", max_norm=max_norm)
                for role, vectors in expected.items()
            }
        return max(
            model_folder.largest_distance(vectors, _encoded(encoder, role)) for role, vectors in expected.items()
        )


def _encoded(encoder: ExportedEncoder, role: Role) -> Float32:
    """Encode the probes."""
    try:
        return encoder.encode(model_folder.PROBES, role)
    except EncoderError:
        raise
    except Exception as error:  # onnxruntime has one exception type per status code, without a common base
        raise EncoderError(
            f"encoder {encoder.config.name!r}: its graph reads only texts of some lengths, as PyTorch's tracer fixes "
            "them for this architecture; choose another model"
        ) from error


def _check_documents(model: SentenceTransformer, exported: ExportedEncoder, name: str) -> None:
    """Raise EncoderError if the model and the exported document encoder beside it disagree on documents."""
    vectors = model.encode_document(model_folder.PROBES, normalize_embeddings=True)
    alike = vectors.shape[1] == exported.config.dimension
    if (
        not alike
        or not model_folder.largest_distance(vectors, exported.encode(model_folder.PROBES, "document"))
        <= model_folder.MAX_COSINE_DIFFERENCE
    ):
        raise EncoderError(
            f"encoder {name!r}: the model encodes documents differently from the graph in its folder {DOCUMENTS}, so "
            "its weights have changed; adapt the encoder again"
        )


def sum_tokens_by_product(path: Path) -> None:
    """Rewrite every sum over the tokens of (batch, tokens, features), in place, as a product with the attention mask.

    The features are zero outside the mask, so the product is the same sum. onnxruntime adds the middle axis of a batch
    in another order than that of a single text, which changes the last bits; its products have one order. (It would
    optimise a transpose and a sum over the last axis back into the original sum.)
    """
    model = onnx.load(path, load_external_data=False)
    sums = _token_sums(model)
    nodes = [
        helper.make_node("Cast", ["attention_mask"], [f"{_WEIGHTS}/cast"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", [f"{_WEIGHTS}/cast", _AXIS], [_WEIGHTS]),
    ]
    for node in model.graph.node:
        if node.output[0] in sums:
            product = f"{node.output[0]}/product"
            nodes.append(helper.make_node("MatMul", [_WEIGHTS, node.input[0]], [product]))
            nodes.append(helper.make_node("Squeeze", [product, _AXIS], [node.output[0]]))
        else:
            nodes.append(node)
    if sums:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.graph.initializer.append(helper.make_tensor(_AXIS, TensorProto.INT64, [1], [1]))
        onnx.save(model, path)


def _token_sums(model: onnx.ModelProto) -> set[str]:
    """Find the outputs of the ReduceSum nodes that drop axis 1 of three."""
    inferred = shape_inference.infer_shapes(model).graph.value_info
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in inferred}
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    tensors |= {node.output[0]: node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"}
    outputs = set()
    for node in model.graph.node:
        if node.op_type == "ReduceSum" and ranks.get(node.input[0]) == 3:
            drops = any(attribute.name == "keepdims" and attribute.i == 0 for attribute in node.attribute)
            if drops and node.input[1] in tensors and numpy_helper.to_array(tensors[node.input[1]]).tolist() == [1]:
                outputs.add(node.output[0])
    return outputs
