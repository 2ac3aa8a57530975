"""The prompts of an encoder in words, and families of encoders that need prompts which their folders do not name."""

import re
from dataclasses import dataclass

from taugate.retrieval.encoder.encoder import EncoderConfig


@dataclass(frozen=True)
class _Family:
    """Encoders that were trained with prompts, as their model cards say.

    Attributes:
        name: Name of the family.
        pattern: Pattern of the names of its models.
        query: Prompt of queries.
        document: Prompt of documents; empty if they have none.
    """

    name: str
    pattern: re.Pattern[str]
    query: str
    document: str = ""


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
    """Say how queries and documents begin.

    Args:
        config: Configuration of the encoder.
    """
    query, document = config.query_prompt, config.document_prompt
    if not query and not document:
        return "the encoder reads queries and documents without a prompt"
    if query == document:
        return f"queries and documents begin with {_quoted(query)}"
    return f"queries begin with {_quoted(query)}, documents with {_quoted(document)}"


def input_warnings(config: EncoderConfig) -> list[str]:
    """Return one sentence for each thing about the encoder's input that the model does not declare.

    Args:
        config: Configuration of the encoder.
    """
    warnings = []
    if config.assumed_pooling:
        warnings.append(
            f"the encoder {config.name} declares no pooling (it has no modules.json), so the mean of all tokens is its "
            "vector; if it was trained with another pooling, or not for search, its similarities mean nothing"
        )
    family = next((family for family in FAMILIES if family.pattern.search(config.name)), None)
    if family is not None and not config.query_prompt and not config.document_prompt:
        options = f"--query-prompt {_quoted(family.query)}"
        if family.document:
            options += f" --document-prompt {_quoted(family.document)}"
        warnings.append(
            f"the encoder {config.name} looks like one of the family {family.name}, which was trained with prompts, "
            f"but its folder names none; give {options}"
        )
    return warnings


def _quoted(prompt: str) -> str:
    escaped = prompt.replace("\n", "\\n")
    return f'"{escaped}"' if prompt else "nothing"
