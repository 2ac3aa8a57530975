"""`taugate run`: sends queries to the user's own search engine and writes the results as a run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import orjson
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.cli.terminal.display import ProgressDisplay
from taugate.cli.terminal.options import Appearance, AsJson, command_of, option
from taugate.cli.terminal.output import print_result, say, say_labelled
from taugate.data.generation.generate import generate_crops
from taugate.data.judgements import GENERATED, qrels_of
from taugate.data.runs.exchange import recorded_in, write_exchanged
from taugate.data.runs.presets import Names, open_store, preset
from taugate.data.runs.recording import (
    RunFile,
    add_documents,
    add_run,
    off_topic_fields,
    off_topic_run,
    read_run_queries,
    record_run,
)
from taugate.data.runs.search_request import ExternalStore, Fields, StoreRequest, StoreSearch
from taugate.errors import InputError
from taugate.evidence.options import Advice, Options
from taugate.retrieval.engines.engine import TOKEN_FILE
from taugate.storage.files import Json, read_secret, sha256_json

if TYPE_CHECKING:
    from taugate.retrieval.encoder.encoder import ExportedEncoder

_Rate = Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)], Advice("give a number above 0")]
_Count = Annotated[Annotated[int, Field(ge=1, le=10_000)], Advice("give a number from 1 to 10,000")]


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """The options of `taugate run`."""

    queries: Annotated[
        str,
        Appearance("QUERIES", positional=True),
        Field(description='queries.jsonl, or a folder with it; "generated": make queries from texts in the store'),
    ]
    store: Annotated[
        str,
        Appearance(names=("--as",)),
        Field(description="what kind of store it is: qdrant, elasticsearch, weaviate, pgvector, milvus, or http"),
    ]
    url: Annotated[
        str, Appearance("URL"), Field(description=f"URL of the store; {TOKEN_FILE} names a file with a key or password")
    ]
    to: Annotated[
        Path,
        Appearance("RUN"),
        Field(description="run to write, or to continue: .jsonl; .trec or .json: of TREC or ranx"),
    ]
    collection: str | None = option(None, "collection, index, class or table")
    id_field: str | None = option(None, "field with a document's id (default: the store's own id)")
    vector_field: str | None = option(None, "field with the vectors, if they have a name")
    text_field: str = option("text", "field with the text")
    request: Path | None = option(None, "file with a request of your own, in place of the built-in one")
    encoder: str | None = option(
        None, "encoder of the queries (default: the field vector of each query)", "NAME_OR_PATH"
    )
    depth: _Count = option(20, "results to request per query")
    rate: _Rate = option(10.0, "queries a second, at most")
    texts: Path | None = option(None, "also write a data set of the queries and the returned texts, to judge", "DATA")
    max: _Count = option(300, "generated: number of documents to make queries from")
    seed: int = option(0, "generated: seed of every random choice")
    as_json: AsJson = False


def run(options: RunOptions) -> int:
    """Send queries to your own search engine, and write the results as a run for calibrate-run.

    Nothing is written to the engine. Repeat the command to resume it, or to send queries that changed.
    """
    generated = options.queries == GENERATED
    if generated and options.texts is None:
        raise InputError("QUERIES generated: add --texts DATA, the data set that the queries are written to")
    queries: list[dict[str, Json]] = [] if generated else read_run_queries(Path(options.queries))
    has_vectors = options.encoder is not None or any("vector" in fields for fields in queries)
    request = _request(options, has_vectors=has_vectors)
    search = StoreSearch(request, _store(options))
    if generated and options.texts is not None:
        queries = _generated(options, options.texts, search)
    settings = {name: str(getattr(options, name)) for name in ("store", "url", "encoder", "depth")}
    digest = sha256_json({**settings, "request": request.model_dump_json()})[:12]
    encoder = None if options.encoder is None else _encoder(options.encoder)
    recorded_to = recorded_in(options.to)
    used = {*request.placeholders()} - {"query", "query_id", "depth"} - ({"vector"} if encoder else set())
    off_topic = None if used else off_topic_run(recorded_to)  # its questions have only a text and a vector
    with ProgressDisplay() as job:

        def send(to: Path, fields: Sequence[Fields]) -> tuple[RunFile, int]:
            file = RunFile(to, digest, fields, used, encoder.sha256 if encoder else None)
            pending = _with_vectors(file.pending, encoder) if encoder else file.pending
            with job.task("sending queries", len(pending)) as task:
                return file, record_run(pending, search, file, options.depth, options.rate, task.advance)

        file, recorded = send(recorded_to, queries)
        if off_topic is not None:
            send(off_topic, off_topic_fields(str(query["query"]) for query in queries))
    numbers = {"sent": len(file.pending), "earlier": len(queries) - len(file.pending)}
    numbers |= {"changed": file.changed, "removed": file.removed}
    outcomes = ("{:,} queries sent", "{:,} sent earlier", "{:,} sent again because they changed", "{:,} removed")
    value: dict[str, Json] = {"run": str(options.to), **numbers, "short": recorded}
    value["off_topic"] = None if off_topic is None else str(off_topic)
    parts = [
        text.format(number)
        for text, number in zip(outcomes, numbers.values(), strict=True)
        if number or text is outcomes[0]
    ]
    rows = {"Run": f"{', '.join(parts)}; {options.to}"}
    if off_topic is None:
        rows["Off topic"] = (
            f"not sent, as the request uses {', '.join(sorted(used))} of a query; without them nothing is refused"
        )
    else:
        rows["Off topic"] = f"questions and requests about other subjects sent as well; {off_topic}"
    if recorded:
        rows["Short"] = f"{recorded:,} queries have fewer than {options.depth} results"
    if options.texts is not None:
        value["documents"], missing = add_run(options.texts, recorded_to, queries)
        without = f"; {missing:,} results have no text at {request.text}" if missing else ""
        rows["Texts"] = f"{value['documents']:,} documents in {options.texts}{without}"
    if recorded_to != options.to:
        qrels = write_exchanged(options.to, Path(options.queries))
        value["qrels"] = None if qrels is None else str(qrels)
        rows["Recorded"] = f"{recorded_to}; repeat the command to resume it"
        if qrels is not None:
            rows["Judgements"] = str(qrels)
    print_result(value if options.as_json else options.to)
    say_labelled(rows | {"Next": "\n".join(_next(options, generated=generated))})
    return 0


def _next(options: RunOptions, *, generated: bool) -> list[str]:
    """Return the commands that follow."""
    run = quote(str(recorded_in(options.to)))
    if options.texts is None:
        return [f"taugate calibrate-run {run} QRELS --releases gates"]
    if generated:
        return [f"taugate calibrate-run {run} {quote(str(options.texts / qrels_of(GENERATED)))} --releases gates"]
    return [f"taugate judge {quote(str(options.texts))} --run {run}"]


def _request(options: RunOptions, *, has_vectors: bool) -> StoreRequest:
    """Return the built-in request with the parts that the user replaces."""
    fields = (options.id_field, options.vector_field, options.text_field)
    names = Names(options.collection, *fields, reads_texts=options.texts is not None)
    replaced = {} if options.request is None else _request_of_user(options.request)
    builtin: dict[str, Json] = {}
    if not replaced or options.collection is not None:
        names.check(options.store)
        builtin = preset(options.store, names, has_vectors=has_vectors)
    return StoreRequest.parse({**builtin, **replaced}, str(options.request or f"--as {options.store}"))


def _request_of_user(path: Path) -> dict[str, Json]:
    """Read a request: JSON, or a SELECT."""
    try:
        content = path.read_text(encoding="utf-8")
        if not content.lstrip().startswith("{"):
            places = {"results": "rows", "id": "id", "score": "score", "scores": "scores", "text": "text"}
            return {"body": content.strip().removesuffix(";"), **places}
        request: dict[str, Json] = orjson.loads(content)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a request ({error}); write JSON, or a SELECT") from error
    return request


def _store(options: RunOptions) -> ExternalStore:
    token_file = os.environ.get(TOKEN_FILE)
    token = read_secret(Path(token_file), TOKEN_FILE) if token_file else ""
    return open_store(options.store, options.url, token)


def _generated(options: RunOptions, data: Path, search: StoreSearch) -> list[dict[str, Json]]:
    """Make queries from texts in the store, unless the data set has some, such as questions of a language model."""
    if not (data / qrels_of(GENERATED)).exists():
        documents = add_documents(data, search.sample(options.max))
        crops = generate_crops(data, options.max, options.seed)
        say(f"{data}: {crops.kept:,} queries cropped from {documents:,} documents of the store")
    return read_run_queries(data)


def _encoder(name: str) -> "ExportedEncoder":
    from taugate.calibration.encoding.source import exported_encoder
    from taugate.retrieval.encoder.loading import load_encoder

    return load_encoder(exported_encoder(name))


def _with_vectors(queries: Sequence[Mapping[str, Json]], encoder: "ExportedEncoder") -> list[Mapping[str, Json]]:
    """Add the vector of each query to its fields."""
    vectors = encoder.encode([str(fields["query"]) for fields in queries], "query")
    return [{**fields, "vector": vector.tolist()} for fields, vector in zip(queries, vectors, strict=True)]


command = command_of(
    "run", run, RunOptions, keys=("id_field", "vector_field", "text_field", "depth", "rate", "texts", "max", "seed")
)
