"""`taugate encode`: encode a corpus into files of vectors, in one process or many."""

from shlex import quote
from typing import Annotated

import click
import orjson
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.encoding.encoder_options import EndpointOptions, InputOptions
from taugate.calibration.encoding.source import DEFAULT_ENCODER, RequestedEncoder
from taugate.cli.terminal.display import ProgressDisplay
from taugate.cli.terminal.options import Appearance, AsJson, command_of, option, part
from taugate.cli.terminal.output import print_result, say_labelled
from taugate.storage.files import Json


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(InputOptions, EndpointOptions):
    """The options of `taugate encode`."""

    data: Annotated[str, Appearance("DATA", type=click.Path(), positional=True)] = Field(
        description="folder, or URL in object storage, with corpus.jsonl"
    )
    to: Annotated[str, Appearance("URL", type=click.Path())] = Field(
        description="folder, or URL in object storage, to write the vectors to"
    )
    encoder: str = option(
        DEFAULT_ENCODER,
        "sentence-transformers model, exported encoder, or openai:URL or tei:URL of an endpoint",
        "NAME_OR_PATH",
    )
    workers: int | None = option(
        None, "number of Ray processes, one processor each (default: encode in this process, on all processors)"
    )
    ray_address: str | None = option(None, "Ray cluster to encode on (default: this machine); needs --workers", "ADDR")
    as_json: AsJson = False


def run(options: EncodeOptions) -> int:
    """Encode the documents of a data set into shards that calibration reads with --embeddings.

    If the command was killed, repeat it to resume.
    """
    from taugate_engines.encoding.encode import Workers, encode_corpus

    workers = Workers(options.workers, options.ray_address)
    with ProgressDisplay(confirmed=options.yes) as job:
        reads, endpoint = part(InputOptions, options), part(EndpointOptions, options)
        encoder = RequestedEncoder(options.encoder, new=True, input_options=reads, endpoint_options=endpoint)
        encoded = encode_corpus(options.data, options.to, encoder, workers, job)
    record = encoded.record
    value: dict[str, Json] = {
        "location": options.to,
        "digest": record.digest,
        "documents": record.rows,
        "shards": len(record.shards),
        "encoded": encoded.encoded,
    }
    print_result(value if options.as_json else record.digest)
    rows = {
        "Encoded": f"{record.rows:,} documents in {len(record.shards):,} shards, {encoded.encoded:,} of them now, in "
        f"{job.total:.0f} s",
        "Next": f"taugate calibrate {quote(options.data)} --releases releases --engine pgvector --encoder "
        f"{quote(options.encoder)} --settings FILE.toml, with {_keys(options.to, reads, endpoint)}",
    }
    say_labelled(rows)
    return 0


def _keys(embeddings: str, *groups: InputOptions | EndpointOptions) -> str:
    """Return what the settings file of the calibration needs: the vectors, and how the encoder was set."""
    values = {name: getattr(group, name) for group in groups for name in group.fields() if name != "yes"}
    return ", ".join(
        f"{name.replace('_', '-')} = {value if isinstance(value, int) else orjson.dumps(str(value)).decode()}"
        for name, value in {"embeddings": embeddings, **values}.items()
        if value is not None
    )


_KEYS = (*InputOptions.fields(), "model", "dimensions", "encoder_key_file", "ray_address")
command = command_of("encode", run, EncodeOptions, keys=_KEYS, max_length=Appearance("TOKENS"))
