"""Readers of what users and strangers send: data sets, query logs, requests, and what Redis holds."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError

from calibration.data.dataset import read_dataset
from calibration.replay.log import read_log
from retrieval.documents import Document
from retrieval.drift.blocks import FEWEST
from retrieval.drift.monitor import Monitor, Rules, theta_of
from retrieval.drift.observations import Judgements, Observations
from retrieval.drift.sample import Sample, merged
from retrieval.errors import InputError
from retrieval.filters.metadata import Metadata
from retrieval.retriever import Reason
from service.drift.seen import Seen, comparable, observations
from service.drift.verdict import NOT_WATCHED
from service.errors import _explain
from service.reply import Reply, similarities_of
from service.schemas import BatchRequest, FeedbackRequest, SearchRequest
from tests.fuzz.reader import JSON_WORDS, TENSOR_WORDS, Reader, of_file
from tests.retrieval.drift.similarities import reference, traffic

DATA = {
    "corpus.jsonl": b'{"_id":"a","text":"first","title":"A","metadata":{"year":1,"open":true}}\n'
    b'{"_id":"b","text":"second"}\n',
    "queries.jsonl": b'{"_id":"1","text":"one"}\n{"_id":"2","text":"two"}\n',
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t0\n",
}
RELEASE, K = "20260101T000000Z-0123456789ab", 2
LOG = (
    b'{"at":1.5,"query":"0123456789abcdef","release":"%s","kept":1,"topk":[0.5,0.25],"random":[0.0]}\n'
    % RELEASE.encode()
    + b'{"at":2,"document_id":"d","release":"%s","correct":0.5}\n' % RELEASE.encode()
)
REPLY = Reply(
    b'{"results":[],"threshold":0.5}',
    0,
    2,
    "all_below_threshold",
    np.zeros(5, dtype=np.float32).tobytes(),
    b'{"a":0.5}',
)
LIKE = Observations(
    np.zeros(2),
    np.zeros(2, dtype=np.uint64),
    *(np.zeros((2, n), dtype=np.float32) for n in (2, 1)),
    np.zeros(2, dtype=np.float32),
)
SEARCHES = (
    b'{"query":"q","k":3,"threshold":0.5,"min_results":1,"include_text":false,"filter":{"year":{"gt":1,"lte":2.5}}}',
    b'{"query":"q","k":3.0,"filter":{"open":true,"name":["a","b",1]}}',
)


def input_readers(scratch: Path) -> list[Reader]:
    """scratch: an empty folder."""
    (scratch / "spool").mkdir(parents=True)
    read_from_log = of_file(scratch / "log", lambda path: read_log([path], RELEASE, K))
    invalid = (ValidationError,)
    words = JSON_WORDS
    return [
        *(Reader(name.partition(".")[0], _data(scratch, name), (seed,), words=words) for name, seed in DATA.items()),
        Reader("query-log", read_from_log, (LOG,), words=words),
        Reader("search", _request(SearchRequest), SEARCHES, invalid, words),
        Reader("batch", _request(BatchRequest), (b'{"queries":["a",%s]}' % SEARCHES[0],), invalid, words),
        Reader(
            "feedback", _request(FeedbackRequest), (b'{"query_id":"a","document_id":"b","relevant":true}',), invalid
        ),
        Reader(
            "filter", _filter, tuple(orjson.dumps(orjson.loads(each)["filter"]) for each in SEARCHES), invalid, words
        ),
        Reader("cached-reply", _reply, (REPLY.pack(),), (ValueError,), words),
        Reader("shown", _shown, (REPLY.shown,), (ValueError,), words),
        Reader("drift-state", _state, (_monitor(seen=60).pack(),), (ValueError,), TENSOR_WORDS),
        Reader(
            "drift-sample", _sample, (Sample.of(LIKE, np.random.default_rng(0)).pack(),), (ValueError,), TENSOR_WORDS
        ),
    ]


def _data(scratch: Path, name: str) -> Callable[[bytes], object]:
    """A data set of which one file is anything."""
    folder = scratch / name.replace("/", "-")
    (folder / "qrels").mkdir(parents=True)
    for other, content in DATA.items():
        (folder / other).write_bytes(content)

    def read(path: Path) -> None:
        documents = read_dataset(folder, "test", scratch / "spool").documents
        Metadata.of(documents)
        assert all(isinstance(each.encoded_text, str) for each in documents)

    return of_file(folder / name, read)


def _request(model: type[BaseModel]) -> Callable[[bytes], object]:
    def read(content: bytes) -> None:
        try:
            model.model_validate_json(content)
        except ValidationError as error:
            said = _explain([each | {"loc": ("body", *each["loc"])} for each in error.errors(include_url=False)])
            assert len(orjson.dumps(said)) < 2000, "a message that repeats what the client sent"
            raise

    return read


_COLUMNS = Metadata.of([Document("a", "t", None, {"year": 2, "open": True, "name": "a"}), Document("b", "t")])


def _filter(content: bytes) -> None:
    wanted: Any = SearchRequest.model_validate_json(b'{"query":"q","filter":%s}' % content).filter
    hash(wanted)
    if wanted:
        try:
            assert _COLUMNS.where(wanted).shape == (2,)
        except InputError as error:
            assert len(str(error)) < 1000


def _reply(content: bytes) -> None:
    """As it is answered, counted, watched and kept."""
    reply = Reply.unpack_strange(content)
    assert isinstance(orjson.loads(reply.named("0" * 32, NOT_WATCHED)), dict)
    assert 0 <= reply.kept <= reply.considered
    assert reply.reason is None or reply.reason in get_args(Reason)
    seen = comparable([Seen(0.0, "", "", reply.observed, reply.shown)], 3, 1)
    assert len(observations(seen, 3, 1)) == len(seen)
    assert Reply.unpack(reply.pack()) == reply


def _shown(content: bytes) -> None:
    assert all(isinstance(each, float) for each in similarities_of(content).values())


def _sample(content: bytes) -> None:
    sample = Sample.unpack(content, LIKE)
    if len(sample.rows):
        merged([sample, Sample.of(LIKE, np.random.default_rng(0))])
    judged = Judgements(np.zeros(1), np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.float32))
    with suppress(ValueError):
        Sample.unpack(content, judged)


_RNG = np.random.default_rng(0)
_CALIBRATION, _TRAFFIC = reference(_RNG, 200), traffic(_RNG, 120)


def _monitor(seen: int = 0) -> Monitor:
    """With blocks that are small, as reading them should be fast."""
    monitor = Monitor(_CALIBRATION, theta_of(_CALIBRATION, 5), Rules(block=FEWEST))
    monitor.update(_TRAFFIC.take(slice(seen)))
    return monitor


def _state(content: bytes) -> None:
    """As replicas share it: it goes on with what was read, and others can read it again."""
    monitor = _monitor()
    monitor.restore(content)
    monitor.update(_TRAFFIC)
    for alarm in monitor.alarms:
        assert 0 <= alarm.share_of_threshold <= 2
    try:
        _monitor().restore(monitor.pack())
    except ValueError as error:
        raise AssertionError("what it has become is no state") from error
