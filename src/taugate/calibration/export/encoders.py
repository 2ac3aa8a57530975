"""Exports an encoder to ONNX: a BERT-like one from its weights, any other by PyTorch."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import numpy as np

from taugate.calibration.export import model_folder
from taugate.calibration.export.bert import BertFolder, NeedsPyTorchError
from taugate.errors import EncoderError
from taugate.release.encoder import TOKENIZER, Similarity
from taugate.retrieval.encoder.encoder import ExportedEncoder

# PyTorch's vectors of some probes by the default encoder, and the digest of the folder that it was run on.
GOLDEN = Path(__file__).with_name("golden.npy")
GOLDEN_PROBES = model_folder.PROBES[::3]
GOLDEN_REVISION = "43901a645f4d8500a762f1ef9674608b19d3c56538ec475ff04598ba4956d231"
_PYTORCH = ("torch", "transformers", "sentence-transformers")


@dataclass(frozen=True)
class EncoderExport:
    """How a folder is exported."""

    declared: model_folder.ModelFolder
    name: str
    bert: BertFolder | None  # the folder if its graph is written from its weights; None if PyTorch exports it
    versions: list[str]

    @classmethod
    def of(cls, folder: Path, name: str) -> Self:
        """Choose how to export a folder."""
        declared = model_folder.ModelFolder.read(folder, name)
        try:
            return cls(declared, name, BertFolder.read(declared, name), [version("onnx")])
        except NeedsPyTorchError as reason:
            return cls(declared, name, None, [*pytorch_versions(f"encoder {name!r}: {reason}"), version("onnx")])

    def write(self, revision: str, target: Path, similarity: Similarity = "cosine") -> None:
        """Write model.onnx, tokenizer.json and encoder.json into an empty folder."""
        if self.bert is not None:
            _write_bert(self.bert, revision, target, similarity)
            return
        from taugate.calibration.export.onnx_export import export  # imports PyTorch

        export(self.declared, self.name, revision, target, similarity)


def pytorch_versions(reason: str) -> list[str]:
    """Return the versions of the packages that export by PyTorch."""
    try:
        return [version(package) for package in _PYTORCH]
    except PackageNotFoundError as error:
        raise EncoderError(
            f"{reason}, so that only PyTorch can export it, but {error.name} is not installed; run "
            "pip install '.[torch]', or name the folder of an earlier release"
        ) from error


def _write_bert(model: BertFolder, revision: str, target: Path, similarity: Similarity) -> None:
    from taugate.calibration.export.bert_onnx import write_bert  # imports onnx

    tokenizer = model.tokenizer()
    (target / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    write_bert(model, target, unit=similarity == "cosine")
    measures = (model.dimension, model.max_length, model.pooling)
    config = model_folder.config_of(model.declared, model.name, revision, measures, model.prompts)
    model_folder.write_config(config, target)
    encoder = ExportedEncoder.load(target)
    if similarity == "dot":
        longest = model_folder.max_norm_of(encoder.encode(model_folder.PROBES, "document"))
        config = config.model_copy(update={"dimension": config.dimension + 1, "max_norm": longest})
        model_folder.write_config(config, target)
        encoder = ExportedEncoder.load(target)
    difference = None  # that of PyTorch is not recorded, so that the files are the same without it
    if revision == GOLDEN_REVISION:
        golden = model_folder.largest_distance(np.load(GOLDEN), encoder.encode(GOLDEN_PROBES, "query"))
        difference = model_folder.checked_difference(golden, model.name)
    elif all(find_spec(package.replace("-", "_")) for package in _PYTORCH):
        from taugate.calibration.export.onnx_export import difference_from_pytorch

        model_folder.checked_difference(difference_from_pytorch(model.declared.folder, encoder), model.name)
    measured = {"max_cosine_difference": difference, "pair_lone_texts": model_folder.depends_on_company(encoder)}
    model_folder.write_config(config.model_copy(update=measured), target)
