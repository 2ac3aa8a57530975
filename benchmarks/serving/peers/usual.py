"""The usual retrieval service: FastAPI, SentenceTransformer, faiss.IndexFlatIP, in the form that guides teach it.

USUAL_ENCODER names another encoder: a backend of SentenceTransformer, onnx or openvino, or fastembed.

Written as well as that form allows: vectors of the corpus are computed beforehand, embeddings are normalised, inference
mode, no progress bar, a plain `def` endpoint that FastAPI runs in its thread pool, replies checked once, no access log.
USUAL_CORPUS names a folder with documents.jsonl and vectors.npy, USUAL_MODEL the folder of the model.
"""

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import faiss
import numpy as np
import torch
from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from sentence_transformers import SentenceTransformer


class SearchRequest(BaseModel):
    """One query."""

    query: str = Field(min_length=1, max_length=8192)
    k: int = Field(default=5, ge=1, le=100)


class Result(BaseModel):
    """One document found."""

    id: str
    rank: int
    score: float
    title: str | None
    text: str


class SearchResponse(BaseModel):
    """The documents nearest to the query."""

    results: list[Result]


def encoder(kind: Any, model: str) -> Callable[[str], Any]:  # noqa: ANN401 (a setting)
    """Load an encoder; the function encodes a query, (1, d) float32 of unit length."""
    if kind == "fastembed":
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        source, graph = ModelSource(hf="usual/model"), "onnx/model.onnx"  # exported by SentenceTransformer
        TextEmbedding.add_custom_model("usual/model", PoolingType.MEAN, True, source, dim=384, model_file=graph)
        fast = TextEmbedding("usual/model", specific_model_path=model)
        return lambda text: np.stack(list(fast.embed([text])))
    transformer = SentenceTransformer(model, device="cpu", backend=kind)
    # OpenVINO refuses a second thread while it encodes; the others take turns by themselves.
    turn = Lock() if kind == "openvino" else nullcontext()

    def encode(text: str) -> Any:  # noqa: ANN401 (a union, of which this call returns an array)
        with turn:
            return transformer.encode([text], normalize_embeddings=True, show_progress_bar=False)

    return encode


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load model, index and texts."""
    corpus = Path(os.environ["USUAL_CORPUS"])
    with (corpus / "documents.jsonl").open(encoding="utf-8") as lines:
        app.state.documents = [json.loads(line) for line in lines]
    vectors = np.load(corpus / "vectors.npy")
    app.state.index = faiss.IndexFlatIP(vectors.shape[1])
    app.state.index.add(vectors)
    app.state.encode = encoder(os.environ.get("USUAL_ENCODER", "torch"), os.environ["USUAL_MODEL"])
    app.state.encode("warm up")
    yield


app = FastAPI(lifespan=lifespan)


@app.post("/search")
def search(body: SearchRequest, request: Request) -> SearchResponse:
    """The top-K of a query."""
    state: Any = request.app.state
    with torch.inference_mode():
        vector = state.encode(body.query)
    scores, positions = state.index.search(vector, body.k)
    found = zip(positions[0].tolist(), scores[0].tolist(), strict=True)
    results = [Result(rank=rank, score=score, **state.documents[at]) for rank, (at, score) in enumerate(found, 1)]
    return SearchResponse(results=results)
