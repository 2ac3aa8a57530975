"""Checks that a service replies as its release was measured, and keeps what its manifest says."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import taugate
from taugate.release.layout import OUTCOMES
from taugate.release.queries import Outcomes
from taugate.service.app import create_app
from taugate.service.settings import Settings
from tests.pairs.data import Workshop, lines
from tests.pairs.factors import Row
from tests.service.access.files import bearer, entry
from tests.service.inprocess import serving

_FILTERS: Mapping[str, dict[str, Any]] = {
    "part": {"part": "a"},
    "year": {"year": {"gte": 2005, "lt": 2015}},
    "nothing": {"part": "z"},
}
_KEYS = [entry("all", "all", "search", "feedback"), entry("some", "some", "search", filter={"part": "a"})]
_ALL = 12  # queries that are searched in every way
_SIGMAS = 3.0  # by which a measured share may be above a promised one
_PATIENCE_MS = 120_000


@dataclass
class Served:
    """One release behind a service.

    Attributes:
        row: The row.
        shop: Models and servers.
        releases: The releases directory.
        data: The data set that its documents are of.
        problems: What is wrong, in words.
    """

    row: Row
    shop: Workshop
    releases: Path
    data: Path
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.release = self.releases / (self.releases / "current").read_text("ascii").strip()
        self.manifest = json.loads((self.release / "manifest.json").read_bytes())
        self.k = self.manifest["policy"]["k"]
        self.log = self.releases / "queries.jsonl.log"
        from_grade = self.manifest["data"].get("relevant_from") or 1
        labels = self.manifest.get("labels") or {}
        self.texts = {row["_id"]: row["text"] for row in lines(self.data / "queries.jsonl")}
        self.relevant: dict[str, set[str]] = {}
        for split in labels.get("splits") or [self.manifest["data"]["split"]]:
            for line in (self.data / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()[1:]:
                query, document, grade = line.split("\t")[:3]
                found = self.relevant.setdefault(query, set())
                if int(grade) >= from_grade:
                    found.add(document)
        self.vectors: dict[str, list[float]] = {}
        if (self.data / "queries.npy").exists():
            self.vectors = dict(zip(self.texts, np.load(self.data / "queries.npy").tolist(), strict=True))

    @property
    def second(self) -> dict[str, Any] | None:
        """The record of the second stage."""
        second: dict[str, Any] | None = self.manifest.get("second_stage")
        return second

    @property
    def falls_back(self) -> bool:
        """Whether the second stage cannot be in time."""
        if self.second is None:
            return False
        return self.row["rerank_deadline_ms"] is not None or (
            self.second["kind"] == "endpoint" and self.row["rerank_url"] is not None
        )

    @property
    def as_measured(self) -> bool:
        """Whether the service searches as the calibration did."""
        encoder = self.manifest.get("query_encoder") or self.manifest["encoder"]
        return not self.falls_back and not (
            self.row["encoder_precision"] is not None and encoder["precision"] != "float32"
        )

    def settings(self) -> Settings:
        """Return the settings of the row."""
        row, dead = self.row, self.shop.models["nobody"]
        given: dict[str, Any] = {
            name: row[name]
            for name in ("encoder_threads", "search_threads", "cache_bytes", "explore_share", "drift")
            if row[name] is not None
        }
        return Settings(
            releases=self.releases,
            precision=row["encoder_precision"] or "auto",
            keys=json.dumps(_KEYS) if row["keys"] else None,
            rerank_deadline_ms=row["rerank_deadline_ms"] or _PATIENCE_MS,
            rerank_url=dead if row["rerank_url"] else self.shop.reranker.url,
            deadline_ms=_PATIENCE_MS,
            encoder_timeout_ms=_PATIENCE_MS,
            max_batch=1000,
            queue_limit=2000,
            canary_seconds=1e6,
            query_log=self.log,
            query_log_texts=True,
            playground="on",
            **given,
        )

    def check(self, *, judged: bool = True) -> None:
        """Start the service in this process, and look for what is wrong."""
        asyncio.run(self._run(judged=judged))

    async def _run(self, *, judged: bool) -> None:
        async with serving(create_app(self.settings())) as http:
            http.headers.update(bearer("all") if self.row["keys"] else {})
            http.timeout = httpx.Timeout(120)
            for _ in range(3000):
                if (await http.get("/readyz")).status_code == 200:
                    break
                await asyncio.sleep(0.02)
            else:
                self.problems.append(f"the service is not ready: {(await http.get('/readyz')).text[:300]}")
                return
            await self._screens(http)
            await self._outcomes(http)
            await self._promises(http)
            await self._replies(http)
            if judged:
                await self._judgements(http)

    def wrong(self, condition: object, text: str) -> None:
        """Note a problem if the condition is true, each sentence once."""
        if condition and text not in self.problems:
            self.problems.append(text)

    def body(self, query: str, **more: Any) -> dict[str, Any]:
        """Return the body of a search for a query, by its id."""
        body = {"query": self.texts[query], "explore": False, **more}
        return body | ({"vector": self.vectors[query]} if query in self.vectors else {})

    async def _search(self, http: httpx.AsyncClient, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        replies: list[dict[str, Any]] = []
        for start in range(0, len(bodies), 40):
            reply = await http.post("/search/batch", json={"queries": bodies[start : start + 40]})
            if reply.status_code != 200:
                self.wrong(True, f"/search/batch: {reply.status_code} {reply.text[:200]}")
                return []
            replies += reply.json()["responses"]
        return replies

    async def _screens(self, http: httpx.AsyncClient) -> None:
        """The manifest is the same everywhere, and so is the state."""
        shown = (await http.get("/release")).json()
        self.wrong(shown["release"] != self.release.name, "/release names another release")
        self.wrong(shown["manifest"]["policy"] != self.manifest["policy"], "/release has another policy")
        self.wrong(shown["manifest"].get("summary") != self.manifest.get("summary"), "/release has another summary")
        query = next(iter(self.relevant))
        replies = await self._search(http, [self.body(query)])
        states = {shown.get("calibration"), *(reply["calibration"] for reply in replies)}
        self.wrong(len(states) > 1, f"/release and replies have different states: {states}")

    def _hits(self, query: str, results: Iterable[Mapping[str, Any]]) -> bool:
        found = {name for result in results for name in (result["id"], result["document_id"])}
        return bool(found & self.relevant[query])

    async def _outcomes(self, http: httpx.AsyncClient) -> None:
        """Each measured query keeps as many results as it did offline, the right one among them or not."""
        if not self.as_measured or not (self.release / OUTCOMES).exists():
            return
        outcomes = Outcomes.load(self.release / OUTCOMES, self.k)
        measured = dict(zip(outcomes.query.tolist(), zip(outcomes.kept, outcomes.hit_kept, strict=True), strict=True))
        measured |= {
            digest: (kept, None)
            for digest, kept in zip(outcomes.unanswerable.tolist(), outcomes.unanswerable_kept, strict=True)
        }
        ids = [*self.relevant]
        digests = [int.from_bytes(sha256(self.texts[query].encode()).digest()[:8], "little") for query in ids]
        asked = [(query, measured[digest]) for query, digest in zip(ids, digests, strict=True) if digest in measured]
        replies = await self._search(http, [self.body(query) for query, _ in asked])
        kept_differs = [
            query
            for (query, (kept, _)), reply in zip(asked, replies, strict=True)
            if len(reply["results"]) != kept and reply["reason"] != "unreadable"
        ]
        hit_differs = [
            query
            for (query, (_, hit)), reply in zip(asked, replies, strict=True)
            if hit is not None and self._hits(query, reply["results"]) != hit and reply["reason"] != "unreadable"
        ]
        self.wrong(not asked, "no measured query is in the data set")
        self.wrong(kept_differs, f"offline ≠ online: {len(kept_differs)} of {len(asked)} queries keep another number")
        self.wrong(hit_differs, f"offline ≠ online: {len(hit_differs)} of {len(asked)} right answers differ")

    async def _promises(self, http: httpx.AsyncClient) -> None:
        """Of the replies that are said to be calibrated, no more lose their answer than the manifest says."""
        policy = self.manifest["policy"]
        limit = policy.get("max_loss")
        if (
            not policy.get("certificates")
            or policy["metric"] != "accuracy"
            or limit is None
            or policy.get("tau") is None
        ):
            return
        filters: list[dict[str, Any] | None] = [None]
        if self.manifest.get("strata"):
            filters += [{"part": "a"}, {"part": "b"}]
        refused = (self.manifest.get("refusal") or {}).get("rho") is not None
        margin = (self.manifest.get("update") or {}).get("margin") or 0.0
        for query_filter in filters:
            more = {} if query_filter is None else {"filter": query_filter}
            queries = [query for query, answers in self.relevant.items() if answers]
            replies = await self._search(http, [self.body(query, **more) for query in queries])
            everything = await self._search(http, [self.body(query, min_results=self.k, **more) for query in queries])
            lost = 0
            for query, reply, every in zip(queries, replies, everything, strict=True):
                by_the_cut = not refused or reply["reason"] != "unanswerable"
                if reply["calibrated"] and by_the_cut and self._hits(query, every["results"]):
                    lost += not self._hits(query, reply["results"])
            total = len(queries)  # those that find no answer cannot lose it
            allowed = limit + margin + _SIGMAS * sqrt(limit * (1 - limit) / max(1, total))
            self.wrong(
                lost > allowed * total,
                f"promised: at most {limit:g} lose their answer; {lost} of {total} do within {query_filter}",
            )

    def _request(self) -> dict[str, Any]:
        """Return the fields of the row's request, beside the query."""
        row, more = self.row, dict[str, Any]()
        if row["k of the request"]:
            more["k"] = int(row["k of the request"])
        if row["filter"]:
            more["filter"] = _FILTERS[row["filter"]]
        if row["group_by"]:
            more["group_by"] = row["group_by"]
        if row["threshold"]:
            more["threshold"] = float(row["threshold"])
        if row["min_results"]:
            more["min_results"] = min(3, more.get("k", self.k))
        return more

    async def _replies(self, http: httpx.AsyncClient) -> None:
        """One reply, alone, in a batch, again, from Python, and explained; and what a key with a filter gets."""
        queries, more = [*self.relevant][:_ALL], self._request()
        shown = {} if self.row["include_text"] is None else {"include_text": False}
        if self.row["explain"]:
            shown["explain"] = True
        explored = {} if self.row["explore"] is None else {"explore": False}
        vectors = {}
        if self.row["vector"] and self.manifest.get("accepts_vectors"):
            encoded = self.shop.encoder.encode([self.texts[query] for query in queries], "query")
            if encoded.shape[1] == self.manifest["encoder"]["dimension"]:
                vectors = dict(zip(queries, encoded.tolist(), strict=True))
        bodies = []
        for query in queries:
            body = {name: value for name, value in self.body(query, **more, **shown).items() if name != "explore"}
            bodies.append(body | explored | ({"vector": vectors[query]} if query in vectors else {}))
        together = await self._search(http, bodies)
        with taugate.open(self.releases) as local:
            for query, body, batched in zip(queries, bodies, together, strict=True):
                for _ in range(2):
                    reply = await http.post("/search", json=body)
                    if reply.status_code != 200:
                        self.wrong(True, f"/search: {reply.status_code} {reply.text[:200]}")
                        return
                    same_stage = reply.json().get("stage") == batched.get("stage")  # always, but for a deadline of 1 ms
                    self.wrong(
                        compared(reply.json()) != compared(batched) and (same_stage or not self.falls_back),
                        "alone ≠ in a batch, or again",
                    )
                if self.as_measured:
                    fields = {n: v for n, v in body.items() if n not in {"explore", "include_text", "query"}}
                    offline = local.search(body["query"], **fields).model_dump()
                    self.wrong(compared(offline) != compared(batched), "Python ≠ HTTP")
                await self._one(http, query, body, batched)

    async def _one(self, http: httpx.AsyncClient, query: str, body: dict[str, Any], reply: dict[str, Any]) -> None:
        """Check one reply: its explanation, its filter, and whether it may be called calibrated."""
        results, scope = reply["results"], body.get("filter")
        tau = self.manifest["policy"].get("tau")
        if self.falls_back and reply.get("stage") == "first" and self.second is not None and not scope:
            tau = self.second["first"]["policy"].get("tau")
            self.wrong(reply["threshold"] != _float32(tau), "a fallback has another threshold than the first stage's")
        elif "threshold" in body and not self.falls_back:
            self.wrong(reply["calibrated"], "a threshold of the request is called calibrated")
        elif not scope and not self.falls_back:
            self.wrong(reply["threshold"] != _float32(tau), "another threshold than the manifest's is in force")
        if not self.as_measured and not self.falls_back:
            self.wrong(reply["calibrated"], "another precision than the calibrated one is called calibrated")
        if scope and not self.manifest.get("strata"):
            self.wrong(reply["calibrated"], "a filtered reply is called calibrated")
        if self.row["rerank_deadline_ms"] is not None and self.falls_back:
            return  # an explanation has no deadline
        asked = {n: v for n, v in body.items() if n not in {"explore", "include_text", "explain"}}
        names = {result["id"] for result in results if not result.get("explored")}
        parents = {result["document_id"] for result in results if not result.get("explored")}
        for name in [*sorted(names)[:2], *sorted(parents)[:1], *sorted(self.relevant[query])[:1]]:
            answer = await http.post("/explain", json=asked | {"document_id": name})
            if answer.status_code != 200:
                self.wrong(answer.status_code not in {404, 422}, f"/explain: {answer.status_code} {answer.text[:200]}")
                continue
            explored = {result["id"] for result in results if result.get("explored")}
            explained = answer.json()
            kept = name in names or name in parents
            self.wrong(
                explained["kept"] != kept and explained["id"] not in explored,
                f"/explain: kept is {explained['kept']} ({explained['rule']}) of a document that search "
                f"{'returns' if kept else 'does not return'}",
            )
        if self.row["keys"]:
            allowed = await http.post("/search", json=body, headers=bearer("some"))
            parts = {result["metadata"]["part"] for result in allowed.json().get("results", ())}
            self.wrong(parts - {"a"}, "a key with a filter gets other documents")

    async def _judgements(self, http: httpx.AsyncClient) -> None:
        """Judge replies that cannot be compared with the calibration; `judged_texts` are those queries."""
        queries = [query for query in self.relevant if query not in self.vectors][-8:]
        ways: list[dict[str, Any]] = [
            {"threshold": -2.0},
            {"filter": {"part": "a"}},
            {"k": 2 if self.k == 1 else 1},
            {},
        ]
        self.judged_texts: set[str] = set()
        for query, way in zip(queries, ways, strict=False):
            text = self.texts[query]
            if not way:
                text = f"{text} " * 200  # longer than any encoder of the tests reads
            body = {"query": text, "explore": False, **way}
            reply = await http.post("/search", json=body)
            if reply.status_code != 200 or not reply.json()["results"]:
                continue
            self.judged_texts.add(text.strip())
            for result in reply.json()["results"]:
                judgement = {"query_id": reply.json()["query_id"], "document_id": result["id"], "relevant": False}
                await http.post("/feedback", json=judgement)


def compared(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a reply must be the same everywhere; results that are only explored are left out."""
    kept = [result for result in reply["results"] if not result.get("explored")]
    fields = ("threshold", "policy", "considered", "best_score", "stage", "release")
    return {name: reply.get(name) for name in fields} | {
        "calibrated": reply["calibrated"] or len(kept) < len(reply["results"]),
        "results": [
            (result["id"], result["rank"], round(result["score"], 5), result["below_threshold"]) for result in kept
        ],
    }


def _float32(value: float | None) -> float | None:
    return None if value is None else float(str(np.float32(value)))
