"""Run the application of docs/how-to/rag-application.md with SmolLM2-135M, and show what it prints."""

import os
import tempfile
from pathlib import Path

from benchmarks.checkout import ROOT
from benchmarks.rag.model import SmallModel
from tests.docs.code_blocks import code_blocks, page_run

PAGE = ROOT / "docs" / "how-to" / "rag-application.md"


def main() -> None:
    """Run the page up to the end of its application; a block that fails ends the program."""
    model = SmallModel()  # serves as long as it is referred to
    os.environ["MODEL_URL"] = model.url
    with tempfile.TemporaryDirectory(prefix="taugate-rag-") as folder, page_run(Path(folder)) as reader:
        for block in code_blocks(PAGE.read_text(encoding="utf-8")):
            reader.run(block)
            if "MODEL_URL" in block.text:
                print(reader.printed)
                return


if __name__ == "__main__":
    main()
