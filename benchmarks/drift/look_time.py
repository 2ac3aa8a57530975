"""Processor time of the looks themselves, in a process that does nothing else."""

import time

import numpy as np
from prometheus_client import CollectorRegistry
from traffic import Pool

from retrieval.release.reader import Release
from service.drift.look import Look
from service.drift.seen import Seen
from service.engine import Engine, Threads
from service.ids import new_id
from service.settings import Settings

_LOOKS, _SHOWS = 60, 10


def share_of_a_processor(release: Release, ordinary: Pool, rate: int) -> tuple[float, float, float]:
    """Milliseconds of weighing the queries of 5 s, and of showing the window; the share of a processor of both."""
    engine = Engine(release, Threads(1), lambda *_: None, lambda _: None)
    look = Look(engine, Settings(releases=release.manifest.release_id), CollectorRegistry(), None)
    rng = np.random.default_rng(0)
    look.look([], [])  # the first asks the golden queries
    looks = [_timed(look, _second(ordinary, 5 * rate, rng)) for _ in range(_LOOKS)]
    shows = []
    for _ in range(_SHOWS):
        look._shown_at = -np.inf
        shows.append(_timed(look, []))
    engine.close()
    a_look, a_show = float(np.median(looks)), float(np.median(shows))
    return a_look, a_show, (a_look / 5 + a_show / 15) / 1000


def _second(ordinary: Pool, rate: int, rng: np.random.Generator) -> list[Seen]:
    seen = ordinary.draw(rate, rng)
    rows = np.concatenate([seen.kept[:, None], seen.top, seen.random], axis=1)
    now = time.time()
    return [Seen(now, new_id(), "a query", row.tobytes(), b"{}") for row in rows]


def _timed(look: Look, seen: list[Seen]) -> float:
    look._weighed_at = -np.inf
    began = time.thread_time()
    look.look(seen, [])
    return 1000 * (time.thread_time() - began)
