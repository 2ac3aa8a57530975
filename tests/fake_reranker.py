"""A cross-encoder without PyTorch: its logit is the weight of the words that query and text share, less a constant.

It has the format of an exported cross-encoder, so that tests use the real code after the export.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from taugate.release.encoder import MODEL, TOKENIZER
from taugate.retrieval.rerank.cross_encoder import CONFIG, INPUTS, Activation, CrossEncoderConfig

UNKNOWN = "[UNK]"
MAX_LENGTH = 128


def write_fake_reranker(
    folder: Path, texts: Iterable[str], *, sign: float = 1.0, activation: Activation = "sigmoid"
) -> Path:
    """Write model.onnx, tokenizer.json and reranker.json; a negative sign prefers texts that share no word."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = list(texts)
    occurrences = Counter(word for text in texts for word in set(re.findall(r"\w+", text.lower())))
    words = sorted(occurrences)
    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate([UNKNOWN, *words])}, unk_token=UNKNOWN)
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / TOKENIZER))
    weights = np.array([0.0] + [sign * np.log((1 + len(texts)) / occurrences[word]) for word in words], np.float32)
    onnx.save(_shared_words(weights / 4), folder / MODEL)
    config = CrossEncoderConfig(
        name="fake-reranker", revision="0", max_length=MAX_LENGTH, activation=activation, max_difference=0
    )
    (folder / CONFIG).write_text(config.model_dump_json(), encoding="utf-8")
    return folder


def _shared_words(weights: np.ndarray) -> onnx.ModelProto:
    """Return the graph: each word of the query that the text has counts once, by its weight."""
    nodes = [
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["token_type_ids"], ["second"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["mask", "second"], ["first"]),  # 1 for tokens of the query
        helper.make_node("Unsqueeze", ["input_ids", "last"], ["column"]),
        helper.make_node("Unsqueeze", ["input_ids", "middle"], ["row"]),
        helper.make_node("Equal", ["column", "row"], ["equal"]),
        helper.make_node("Cast", ["equal"], ["same"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["second", "middle"], ["text"]),
        helper.make_node("Mul", ["same", "text"], ["matches"]),
        helper.make_node("ReduceMax", ["matches"], ["matched"], axes=[2], keepdims=0),
        helper.make_node("Gather", ["weights", "input_ids"], ["weight"]),
        helper.make_node("Mul", ["matched", "first"], ["counted"]),
        helper.make_node("Mul", ["counted", "weight"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "middle"], ["sum"], keepdims=1),
        helper.make_node("Sub", ["sum", "constant"], ["logits"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in INPUTS]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
    constants = [
        numpy_helper.from_array(weights, "weights"),
        numpy_helper.from_array(np.array([-1]), "last"),
        numpy_helper.from_array(np.array([1]), "middle"),
        numpy_helper.from_array(np.array(2.0, np.float32), "constant"),
    ]
    graph = helper.make_graph(nodes, "fake", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
