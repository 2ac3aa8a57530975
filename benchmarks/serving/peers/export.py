"""Export the model for the encoders of peers/usual.py that need that. Arguments: model, target folder.

Writes a folder `onnx`, which fastembed reads as well, and a folder `openvino`; what is not installed is said and left out.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from sentence_transformers import SentenceTransformer

if __name__ == "__main__":
    model, target = sys.argv[1], Path(sys.argv[2])
    target.mkdir()
    for backend in ("onnx", "openvino"):
        try:
            SentenceTransformer(model, device="cpu", backend=backend).save_pretrained(str(target / backend))
        except Exception as error:  # noqa: BLE001 (whatever versions that do not fit together raise)
            print(f"{backend} is left out: {error}")
    if find_spec("fastembed") is not None and (target / "onnx").is_dir():
        (target / "fastembed").symlink_to("onnx")
