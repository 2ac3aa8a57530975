"""Whether an engine finds what exact search finds, with the same bits, and how long one query takes."""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.engines.plan import EnginePlan
from benchmarks.markdown import table
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode_dataset
from taugate.calibration.encoding.source import exported_encoder
from taugate.calibration.progress import Stopwatch
from taugate.calibration.settings.settings import DEFAULT_ENCODER
from taugate.ingestion.dataset.beir import read_dataset
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.engines.engine import Engine, Rows
from taugate.retrieval.engines.index import EngineIndex
from taugate.retrieval.engines.verify import EngineRecord, SampleDigest, open_verified, sampled_positions, shard_digest
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.index.top_k import TopK
from taugate.retrieval.vectors.similarity import Float32
from tests.retrieval.engines.servers import NAMES, running

HEADING = "What is found, and how fast"
K = 10
_SECONDS = 1800.0  # for what is not measured
_NAMES = {"milvus-lite": "milvus-lite 3.2", "pgvector": "PostgreSQL 18 with pgvector 0.8", "at-url": "the server at TAUGATE_ENGINE_URL"}
