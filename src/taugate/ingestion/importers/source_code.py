"""Source code and configuration as text: every line as it is written, in blocks that chunks keep whole."""

from collections.abc import Iterator, Sequence

from taugate.ingestion.importers.plain_text import decode_text
from taugate.ingestion.parsed import ParsedFile, TextBuilder

_NAMES = """
py pyi js mjs cjs jsx ts tsx java kt kts scala groovy gradle c h cc cpp cxx hh hpp cs fs vb go rs rb php swift m mm r jl
lua pl pm dart ex exs erl hrl hs ml mli clj cljs el lisp scm nim zig v vhd sv asm s f f90 pas d cu cl glsl hlsl sol
sh bash zsh fish ps1 psm1 bat cmd sql graphql gql proto thrift tf hcl yaml yml toml ini cfg conf properties cmake mk
make dockerfile tex sty bib css scss sass less vue svelte diff patch log
"""
SUFFIXES = tuple(f".{name}" for name in _NAMES.split())
"""Suffixes of files that are read as source code. A file without a suffix, such as Makefile, is read as text."""


def parse_code(raw: bytes) -> ParsedFile:
    """Read source code.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    decoded = decode_text(raw)
    builder = TextBuilder()
    for block in _blocks(decoded.text.replace("\f", "\n").split("\n")):
        builder.add("\n".join(block), "code")
    return ParsedFile([builder.document("")], decoded.text, decoded.notes)


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield functions and other parts, which end at an empty line before a new part that is not indented."""
    block: list[str] = []
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        if block and not before.strip() and line.strip() and not line[:1].isspace() and line[:1] not in "})]":
            yield block
            block = []
        block.append(line)
    yield block
