"""Write the index that txtai's API serves. Arguments: folder with documents.jsonl and vectors.npy, model, target.

The document vectors are those that all services search, given to txtai in place of what its model would compute: that
takes an hour for a large corpus, and the queries are encoded by its model all the same.
"""

import json
import sys
from pathlib import Path

import numpy as np
from txtai import Embeddings


def main() -> None:
    """Index and save."""
    corpus, model, target = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    vectors = np.load(corpus / "vectors.npy")
    with (corpus / "documents.jsonl").open(encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    texts = [
        f"{document['title']} {document['text']}" if document["title"] else document["text"] for document in documents
    ]
    ids = [each["id"] for each in documents]
    embeddings = Embeddings(path=model, content=True, gpu=False)
    position = 0

    def known(data: list[str], category: str | None = None) -> np.ndarray:
        nonlocal position
        position += len(data)
        found: np.ndarray = vectors[position - len(data) : position].copy()
        return found

    embeddings.model = embeddings.loadvectors()
    embeddings.model.encode = known
    # Its own default asks for vectors in the order of the documents, which is what is given.
    embeddings.loadvectors = lambda: embeddings.model
    embeddings.index(zip(ids, texts, [None] * len(ids), strict=True))
    if position != len(vectors):
        raise SystemExit(f"txtai asked for {position} vectors, not {len(vectors)}")
    embeddings.save(target)


if __name__ == "__main__":
    main()
