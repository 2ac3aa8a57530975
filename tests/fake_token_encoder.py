"""A model of late interaction without PyTorch: every word has a random unit vector, so MaxSim counts shared words.

It has the format of an exported model, so that tests use the real code after the export.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from taugate.release.encoder import MODEL, TOKENIZER
from taugate.retrieval.rerank.late_interaction import CONFIG, Expansion, TokenEncoderConfig

SPECIAL = ["[UNK]", "[MASK]", "[Q]", "[D]", "?", "."]
DIMENSION = 64  # as the kernel needs


def write_fake_token_encoder(folder: Path, texts: Iterable[str]) -> Path:
    """Write model.onnx, tokenizer.json and late-interaction.json."""
    folder.mkdir(parents=True, exist_ok=True)
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[0]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(SPECIAL[:4])
    tokenizer.save(str(folder / TOKENIZER))
    vectors = np.random.default_rng(0).normal(size=(len(vocabulary), DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[0] = 0  # unknown words match nothing
    nodes = [helper.make_node("Gather", ["vectors", "input_ids"], ["token_embeddings"])]
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])]
    output = helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, ["batch", "tokens", DIMENSION])
    graph = helper.make_graph(nodes, "fake", inputs, [output], [numpy_helper.from_array(vectors, "vectors")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / MODEL)
    config = TokenEncoderConfig(
        name="fake-colbert",
        revision="0",
        dimension=DIMENSION,
        prompts={"query": "[Q] ", "document": "[D] "},
        lengths={"query": 32, "document": 128},
        skipped={"query": [], "document": [vocabulary["?"], vocabulary["."]]},
        expansion=Expansion(token=vocabulary["[MASK]"], length=8, attended=False),
        max_difference=0,
    )
    (folder / CONFIG).write_text(config.model_dump_json(), encoding="utf-8")
    return folder
