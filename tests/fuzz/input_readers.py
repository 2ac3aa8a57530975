"""Readers of untrusted input: data sets, query logs, requests, and entries in Redis."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError

from taugate.calibration.replay import read_log
from taugate.data.beir import read_dataset
from taugate.drift.monitor import Monitor
from taugate.drift.signals import MIN_IN_BLOCK, Rules, theta_of
from taugate.errors import InputError
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document
from taugate.service.api.schemas import BatchRequest, SearchRequest
from taugate.service.api.search import FeedbackRequest
from taugate.service.http.bodies import describe_faults
from taugate.service.pipeline.record import ShownReply
from tests.drift.similarities import reference, traffic
from tests.fuzz.reader import JSON_WORDS, TENSOR_WORDS, Reader, of_file
from tests.service.records import packed

DATA = {
    "corpus.jsonl": b'{"_id":"a","text":"first","title":"A","metadata":{"year":1,"open":true}}\n'
    b'{"_id":"b","text":"second"}\n',
    "queries.jsonl": b'{"_id":"1","text":"one"}\n{"_id":"2","text":"two"}\n',
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\n1\ta\t1\n2\tb\t0\n",
}
RELEASE, K = "20260101T000000Z-0123456789ab", 2
LOG = (
    b'{"v":2,"at":1.5,"query_id":"%s","query":"0123456789abcdef","key":null,"collection":"set","release":"%s",'
    b'"filter":{"year":1},"k":2,"threshold":null,"group_by":null,"kept":1,"topk":[0.5,0.25],"random":[0.0],'
    b'"shown":[{"id":"d","rank":1,"score":0.5,"propensity":1.0}]}\n'
    % (b"0" * 32, RELEASE.encode())
    + b'{"v":2,"at":2,"query_id":"%s","query":null,"document_id":"d","relevant":true,"rank":null,"score":0.5,'
    b'"key":"app","collection":"set","release":"%s"}\n' % (b"0" * 32, RELEASE.encode())
)
SHOWN = packed([3, 1])
SEARCHES = (
    b'{"query":"q","k":3,"threshold":0.5,"min_results":1,"include_text":false,"filter":{"year":{"gt":1,"lte":2.5}}}',
    b'{"query":"q","k":3.0,"filter":{"open":true,"name":["a","b",1]}}',
)


def input_readers(scratch: Path) -> list[Reader]:
    """Return the readers; they write in `scratch`, an empty folder."""
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
        Reader("shown", _shown, (SHOWN,), (ValueError,)),
        Reader("drift-state", _state, (_monitor(seen=60).pack(),), (ValueError,), TENSOR_WORDS),
    ]


def _data(scratch: Path, name: str) -> Callable[[bytes], object]:
    """Return a reader of a data set, one file of which has any content."""
    folder = scratch / name.replace("/", "-")
    (folder / "qrels").mkdir(parents=True)
    for file, content in DATA.items():
        (folder / file).write_bytes(content)

    def read(path: Path) -> None:
        documents = read_dataset(folder, "test", scratch / "spool").documents
        Metadata.of(documents)
        assert all(isinstance(document.encoded_text, str) for document in documents)

    return of_file(folder / name, read)


def _request(model: type[BaseModel]) -> Callable[[bytes], object]:
    def read(content: bytes) -> None:
        try:
            model.model_validate_json(content)
        except ValidationError as error:
            message = describe_faults(error.errors(include_url=False), model)
            assert len(orjson.dumps(message)) < 2000, "the message repeats the input"
            raise

    return read


_COLUMNS = Metadata.of([Document("a", "t", None, {"year": 2, "open": True, "name": "a"}), Document("b", "t")])


def _filter(content: bytes) -> None:
    query_filter: Any = SearchRequest.model_validate_json(b'{"query":"q","filter":%s}' % content).filter
    hash(query_filter)
    if query_filter:
        try:
            assert _COLUMNS.where(query_filter).shape == (2,)
        except InputError as error:
            assert len(str(error)) < 1000


def _shown(content: bytes) -> None:
    """Read an entry of Redis, of a release with ten documents."""
    shown = ShownReply.read(content, 10, 1.0).results
    assert len(shown) == len({*shown["position"].tolist()} & {*range(10)})
    assert all(abs(score) <= 2 for score in shown["score"].tolist())


_RNG = np.random.default_rng(0)
_CALIBRATION, _TRAFFIC = reference(_RNG, 200), traffic(_RNG, 120)


def _monitor(seen: int = 0) -> Monitor:
    """Return a monitor with small blocks, so that reading is fast."""
    monitor = Monitor(_CALIBRATION, theta_of(_CALIBRATION, 5), Rules(block=MIN_IN_BLOCK))
    monitor.update(_TRAFFIC.take(slice(seen)))
    return monitor


_OWN, _OTHER = _monitor(), _monitor()  # restored again and again, as in a service, also after a state that is refused


def _state(content: bytes) -> None:
    """Restore a shared state, continue with it, and check that others can restore the result."""
    _OWN.restore(content)
    _OWN.update(_TRAFFIC)
    for alarm in _OWN.alarms:
        assert 0 <= alarm.share_of_threshold <= 2
    try:
        _OTHER.restore(_OWN.pack())
    except ValueError as error:
        raise AssertionError("the continued state cannot be restored") from error
