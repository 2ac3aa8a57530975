"""Releases whose queries got what a test says."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from taugate.release.layout import OUTCOMES
from taugate.release.queries import Outcomes
from tests.release.clones import clone

K = 5


def outcomes(hits: np.ndarray, kept: int = 3, first: int = 0, unanswerable: int = 0) -> Outcomes:
    """Queries numbered from `first`, each of a cluster of its own, that keep so many results."""
    queries = len(hits)
    return Outcomes(
        query=np.arange(first, first + queries, dtype=np.uint64),
        cluster=np.arange(queries),
        hit=hits.astype(bool),
        hit_kept=hits.astype(bool),
        ndcg=0.5 * hits,
        ndcg_kept=0.5 * hits,
        kept=np.full(queries, kept),
        unanswerable=np.arange(unanswerable, dtype=np.uint64),
        unanswerable_kept=np.arange(unanswerable) % 2,
    )


def share(of: float, queries: int) -> np.ndarray:
    """So many hits, spread evenly."""
    return (np.arange(queries) * of % 1 + of >= 1 - 1e-9).astype(float)


def release_with(
    source: Path,
    minute: int,
    found: Callable[[Outcomes], Outcomes],
    change: Callable[[dict], None] = lambda manifest: None,
) -> str:
    """A clone of a release with other outcomes; returns its id."""
    scratch = source.parent / ".outcomes"
    found(Outcomes.load(source / OUTCOMES, K)).save(scratch)
    content = scratch.read_bytes()
    scratch.unlink()

    def with_its_digest(manifest: dict) -> None:
        manifest["files"][OUTCOMES] = {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
        change(manifest)

    name = clone(source, minute, with_its_digest)
    (source.parent / name / OUTCOMES).unlink()  # a hard link
    (source.parent / name / OUTCOMES).write_bytes(content)
    return name


def hits(of: float, queries: int, kept: int = 3) -> Callable[[Outcomes], Outcomes]:
    """So many queries of a known share of hits, in place of those of the release."""
    return lambda _: outcomes(share(of, queries), kept)


def other_queries(found: Outcomes) -> Outcomes:
    """What it was, of queries by other texts."""
    return replace(found, query=found.query + np.uint64(1))
