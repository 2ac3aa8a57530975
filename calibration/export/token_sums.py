"""What is changed in an exported graph so that a text's vector does not depend on how many share its batch."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

_WEIGHTS, _AXIS = "taugate/weights", "taugate/axis"


def sum_tokens_by_product(path: Path) -> None:
    """Rewrite every sum over the tokens of (batch, tokens, features), in place, as a product with the attention mask.

    What is summed there is zero outside the mask, so the product is the same sum. onnxruntime adds the middle axis of a
    batch in another order than that of a single text, which shows in the last bits; its products have one order. (It
    would turn a transpose and a sum over the last axis back into what was there.)
    """
    model = onnx.load(path)
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
    """Outputs of the ReduceSum nodes that drop axis 1 of three."""
    inferred = shape_inference.infer_shapes(model).graph.value_info
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in inferred}
    tensors = {each.name: each for each in model.graph.initializer}
    tensors |= {node.output[0]: node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"}
    found = set()
    for node in model.graph.node:
        if node.op_type == "ReduceSum" and ranks.get(node.input[0]) == 3:
            drops = any(attribute.name == "keepdims" and attribute.i == 0 for attribute in node.attribute)
            if drops and node.input[1] in tensors and numpy_helper.to_array(tensors[node.input[1]]).tolist() == [1]:
                found.add(node.output[0])
    return found
