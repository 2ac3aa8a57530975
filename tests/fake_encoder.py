"""A deterministic encoder without PyTorch: every word has a random direction, and a text is the mean of its words,
weighted by inverse document frequency.

It has the format of an exported encoder folder, so that tests use the real code after the export.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from taugate.release.encoder import CONFIG, MODEL, TOKENIZER, EncoderConfig

DIMENSION = 128
MAX_LENGTH = 64
UNKNOWN = "[UNK]"


def write_fake_encoder(folder: Path, texts: Iterable[str], seed: int = 0, max_norm: float | None = None) -> Path:
    """Write model.onnx, tokenizer.json and encoder.json; words that are in no text share one direction.

    With `max_norm`, texts are compared by the dot product, so that vectors keep their lengths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = list(texts)
    total = 1 + len(texts)
    occurrences = Counter(word for text in texts for word in set(re.findall(r"\w+", text.lower())))
    words = sorted(occurrences)
    vocabulary = {word: position for position, word in enumerate([UNKNOWN, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / TOKENIZER))
    weights = np.random.default_rng(seed).standard_normal((len(vocabulary), DIMENSION)).astype(np.float32)
    weights[1:] *= np.log(total / np.array([[occurrences[word]] for word in words], dtype=np.float32))
    model = _mean_of_words(weights)
    if max_norm is not None:
        del model.graph.node[-1]
        model.graph.node[-1].output[0] = "sentence_embedding"
    onnx.save(model, folder / MODEL)
    config = EncoderConfig(
        name="fake",
        revision=str(seed),
        dimension=DIMENSION if max_norm is None else DIMENSION + 1,
        max_length=MAX_LENGTH,
        pooling="mean",
        max_norm=max_norm,
        max_cosine_difference=0,
    )
    (folder / CONFIG).write_text(config.model_dump_json(), encoding="utf-8")
    return folder


def _mean_of_words(weights: np.ndarray) -> onnx.ModelProto:
    """Return the graph of a static embedding: (input_ids, attention_mask) → unit vectors."""
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["words", "column"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "tokens"], ["sum"], keepdims=0),
        helper.make_node("LpNormalization", ["sum"], ["sentence_embedding"], axis=-1, p=2),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", weights.shape[1]])
    constants = [
        numpy_helper.from_array(weights, "weights"),
        numpy_helper.from_array(np.array([-1]), "last"),
        numpy_helper.from_array(np.array([1]), "tokens"),
    ]
    graph = helper.make_graph(nodes, "fake", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
