"""A language model judges the drawn queries (TAUGATE_JUDGE_URL), and chooses those that people judge as well."""

import logging
import re
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import orjson

from taugate.drift.drawn import DrawnLog, DrawnQuery, DrawnVerdict, append, labels_of
from taugate.drift.live_loss import by_model
from taugate.drift.sequences import Sampler
from taugate.errors import TaugateError
from taugate.retrieval.documents.store import Documents
from taugate.service.settings.groups import DriftSettings
from taugate.storage.files import read_secret
from taugate.storage.folders import EXCLUSIVE, acquire
from taugate.storage.json_endpoint import EndpointWording, JsonEndpoint, PromptRequests

_log = logging.getLogger(__name__)
_SECONDS = 60.0  # of one request
_DAY_SECONDS = 86400.0
_MAX_BYTES = 1 << 20  # of a reply, which holds a few numbers
_MAX_CHARACTERS = 2000  # of a passage
_FOR_PEOPLE = 0.3  # share of the judged queries that people judge as well
_DIGITS = re.compile(r"\d+")
_WORDING = EndpointWording(
    url="TAUGATE_JUDGE_URL",
    model="TAUGATE_JUDGE_MODEL",
    key="the key",
    key_sources="TAUGATE_JUDGE_KEY_FILE",
    path="/chat/completions",
    expected="a chat completion",
)
_TASK = (
    "A passage is relevant if it answers the question, or a part of it; the same topic alone is not enough. Reply with "
    "the numbers of the relevant passages, separated by commas, or with 0 if none is relevant. Reply with nothing else."
)


class EndpointJudge:
    """Judges drawn queries in a thread, at an even pace. One process does so for each log."""

    def __init__(
        self, log: DrawnLog, reading: threading.Lock, documents: Documents, settings: DriftSettings, limit: float
    ) -> None:
        """Start judging; `limit` is the promised loss, about which the endpoint's judgements are turned to chances."""
        key = (
            None if settings.judge_key_file is None else read_secret(settings.judge_key_file, "TAUGATE_JUDGE_KEY_FILE")
        )
        self._requests = PromptRequests(JsonEndpoint(settings.judge_url or "", key, _WORDING), _SECONDS)
        self._log, self._reading, self._documents, self._limit = log, reading, documents, limit
        self._model, self._pause = settings.judge_model, _DAY_SECONDS / settings.judge_calls_per_day
        self._people, self._rng = Sampler(_FOR_PEOPLE), np.random.default_rng()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="taugate-judge", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the present request, which is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        turn = self._log.path.with_name(f".{self._log.path.name}.judge")
        try:
            with turn.open("ab") as lock:
                while not acquire(lock.fileno(), EXCLUSIVE):  # another worker judges
                    if self._stopped.wait(self._pause):
                        return
                while not self._stopped.wait(self._pause):
                    self._judge_one()
        except OSError as error:
            _log.error("the endpoint judge has ended", extra={"fields": {"reason": str(error)}})

    def _judge_one(self) -> None:
        with self._reading:
            query = next(self._log.waiting(model=True), None)
        if query is None:
            return
        try:
            verdict = self.judge(query)
        except TaugateError as error:
            _log.warning("cannot judge a drawn query", extra={"fields": {"reason": str(error)}})
            return
        append(self._log.path, [verdict])
        with self._reading:
            self._log.follow()

    def judge(self, query: DrawnQuery) -> DrawnVerdict:
        """Ask the endpoint which results are relevant, and draw the query for people.

        Raises:
            TaugateError: If the endpoint or the engine does not reply, or the endpoint replies with something else.
        """
        passages = self._documents.at(np.array([result.position for result in query.results], dtype=np.int64))
        listed = "\n\n".join(
            f"{number}. {passage.title or ''}\n{passage.text[:_MAX_CHARACTERS]}"
            for number, passage in enumerate(passages, 1)
        )
        messages = [
            {"role": "system", "content": _TASK},
            {"role": "user", "content": f"Question: {query.query}\n\nPassages:\n\n{listed}"},
        ]
        body = {"model": self._model, "temperature": 0, "max_tokens": 64, "messages": messages}
        numbers = self._requests.post(body, _numbers, _MAX_BYTES)
        relevant = [result.id for number, result in enumerate(query.results, 1) if number in numbers]
        verdict = DrawnVerdict(
            at=time.time(), query_id=query.query_id, judge=self._model, model=True, relevant=relevant
        )
        prediction = by_model(labels_of(query, verdict), self._limit)
        propensity = self._people.propensity(prediction.interest)
        draw = self._people.offer(
            query.draw.cluster, prediction.outcomes, propensity, self._rng.random(), query.draw.scale
        )
        return replace(verdict, draw=draw)


def _numbers(content: bytes) -> set[int]:
    reply: Any = orjson.loads(content)
    text = reply["choices"][0]["message"]["content"]
    numbers = {int(digits) for digits in _DIGITS.findall(text)}
    if not numbers:
        raise ValueError("it names no passage and not 0")
    return numbers
