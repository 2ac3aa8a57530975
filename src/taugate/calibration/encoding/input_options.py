"""What an encoder reads, and how its vectors are compared: prompts, the number of tokens, the similarity."""

import re
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from taugate.errors import EncoderError
from taugate.evidence.options import Advice, Options
from taugate.release.encoder import CONFIG, FILES, EncoderConfig, Similarity
from taugate.storage.folders import link_or_copy

# Attention takes memory by the square of the length. A chunk of `taugate import` has at most 256 tokens, most encoders
# were trained on 512 or less, and no question is longer.
DEFAULT_TOKENS = 512
_MAX_PROMPT = 2000  # characters; the longest published instructions have a few hundred


@plain_dataclass(frozen=True)
class _Family:
    """Encoders that were trained with prompts, as their model cards say."""

    name: str
    pattern: re.Pattern[str]
    query: str
    document: str = ""  # prompt of documents; empty if they have none


def _family(name: str, pattern: str, query: str, document: str = "") -> _Family:
    return _Family(name, re.compile(rf"(?:^|[/_-]){pattern}", re.IGNORECASE), query, document)


_BGE = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
# From the model cards. The first family that matches counts.
FAMILIES = (
    _family("e5-instruct", r"e5-.*instruct", _INSTRUCT),
    _family("e5", r"e5-(?:small|base|large)", "query: ", "passage: "),
    _family("bge", r"bge-(?:small|base|large)-en", _BGE),
    _family("bge-zh", r"bge-(?:small|base|large)-zh", "为这个句子生成表示以用于检索相关文章："),
    _family("nomic", r"nomic-embed-text", "search_query: ", "search_document: "),
)


def prompts_in_words(config: EncoderConfig) -> str:
    """Say how queries and documents begin."""
    query, document = config.query_prompt, config.document_prompt
    if not query and not document:
        return "the encoder reads queries and documents without a prompt"
    if query == document:
        return f"queries and documents begin with {_quoted(query)}"
    return f"queries begin with {_quoted(query)}, documents with {_quoted(document)}"


def input_warnings(config: EncoderConfig) -> list[str]:
    """Return one sentence for each thing about the encoder's input that the model does not declare."""
    warnings = []
    if config.assumed_pooling:
        warnings.append(
            f"the encoder {config.name} declares no pooling (it has no modules.json), so the mean of all tokens is its "
            "vector; if it was trained with another pooling, or not for search, its similarities mean nothing"
        )
    family = next((family for family in FAMILIES if family.pattern.search(config.name)), None)
    if family is not None and not config.query_prompt and not config.document_prompt:
        options = f"query-prompt = {_quoted(family.query)}"
        if family.document:
            options += f" and document-prompt = {_quoted(family.document)}"
        warnings.append(
            f"the encoder {config.name} looks like one of the family {family.name}, which was trained with prompts, "
            f"but its folder names none; give {options}"
        )
    return warnings


def _quoted(prompt: str) -> str:
    escaped = prompt.replace("\n", "\\n")
    return f'"{escaped}"' if prompt else "nothing"


def _printable(text: str) -> str:
    if len(text) > _MAX_PROMPT or "\0" in text:
        raise ValueError("not a prompt")
    return text


_Prompt = Annotated[
    Annotated[str, AfterValidator(_printable)] | None, Advice(f"give a text of at most {_MAX_PROMPT} characters")
]


@dataclass(frozen=True)
class InputOptions(Options):
    """Options of an encoder that users set: prompts, length in tokens, similarity.

    The constructor raises InputError for an invalid value.
    """

    query_prompt: _Prompt = Field(
        default=None, description="text before each query, with its final space (default: the one that the model names)"
    )
    document_prompt: _Prompt = Field(
        default=None, description="text before each document, with its final space (default: as for queries)"
    )
    max_length: Annotated[int | None, Advice("give a number of tokens, 8 or more")] = Field(
        default=None,
        ge=8,
        description=f"tokens that the encoder reads of a document; of a query, at most {DEFAULT_TOKENS} (default: what "
        f"the model reads, at most {DEFAULT_TOKENS})",
    )
    similarity: Similarity | None = Field(
        default=None,
        description="how queries and documents are compared (default: dot if the model's folder declares it and its "
        "vectors have different lengths, else cosine)",
    )

    def applied_to(self, config: EncoderConfig, *, exported: bool) -> EncoderConfig:
        """Return the configuration of an encoder with these options.

        Args:
            exported: Whether the user named an exported encoder, whose length is kept unless one is given.
        """
        if exported and self.similarity not in {None, config.similarity}:
            raise EncoderError(
                f"encoder {config.name!r}: was exported for --similarity {config.similarity}; leave the option out, or "
                "give the model from which it was exported"
            )
        limit, attends = config.max_length, config.special_tokens  # static embeddings have neither
        if self.max_length is not None and self.max_length > limit:
            raise EncoderError(
                f"encoder {config.name!r}: reads at most {limit:,} tokens; give --max-length {limit} or less"
            )
        length = self.max_length or (min(limit, DEFAULT_TOKENS) if attends and not exported else limit)
        changed = {
            "query_prompt": config.query_prompt if self.query_prompt is None else self.query_prompt,
            "document_prompt": config.document_prompt if self.document_prompt is None else self.document_prompt,
            "max_length": length,
        }
        if attends and not exported and length > DEFAULT_TOKENS:
            changed["max_query_length"] = DEFAULT_TOKENS
        elif config.max_query_length is not None and length <= config.max_query_length:
            changed["max_query_length"] = None
        return config.model_copy(update=changed)


def write_with_config(source: Path, config: EncoderConfig, target: Path) -> None:
    """Write an encoder that differs from another one only in its configuration, without copying its weights."""
    for name in FILES:
        if name != CONFIG and (source / name).is_file():
            link_or_copy(source / name, target / name)
    (target / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
