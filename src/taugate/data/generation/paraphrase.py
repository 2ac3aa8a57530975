"""Paraphrases of queries: the same question in other words, by rules or by a language model.

The query embeddings paper (§6.2) measures the stability of an encoder under paraphrases, without naming their author.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import orjson

from taugate.data.generation.generate import normalized
from taugate.data.generation.prompt import LanguageModel, ReplyCache, ask, query_in
from taugate.data.questions import QuestionRule
from taugate.errors import InputError

# Two ways to put the same question more politely, {} being the question.
_FRAMES = {
    "English": ("I would like to know: {}", "Could somebody help me with this? {}"),
    "German": ("Ich möchte wissen: {}", "Kann mir jemand dabei helfen? {}"),
    "French": ("J'aimerais savoir : {}", "Quelqu'un peut-il m'aider ? {}"),
    "Spanish": ("Me gustaría saber: {}", "¿Alguien me puede ayudar con esto? {}"),
    "Italian": ("Vorrei sapere: {}", "Qualcuno può aiutarmi? {}"),
    "Portuguese": ("Gostaria de saber: {}", "Alguém me pode ajudar com isto? {}"),
    "Dutch": ("Ik wil graag weten: {}", "Kan iemand mij hierbij helpen? {}"),
    "Chinese": ("我想知道：{}", "请帮我解答一下：{}"),
    "Japanese": ("知りたいのですが、{}", "教えてください。{}"),
    "Korean": ("알고 싶습니다: {}", "도와주세요. {}"),
}
_UNKNOWN = ("– {}", "« {} »")  # for a language without frames: signs without words
_MARKS = " ?？!.¿。؟"
_TRIES = 2  # prompts per paraphrase: a small model often repeats the question


def paraphrases_by_rules(query: str, rule: QuestionRule) -> tuple[str, str, str]:
    """Write three paraphrases of a query: two that ask more politely, and one of key words alone."""
    # They keep nearly all of its words, so that an encoder looks more stable than under a person's paraphrases: figures
    # by rules can be compared with each other, but not with the paper's.
    first, second = _FRAMES.get(rule.language or "", _UNKNOWN)
    line = " ".join(query.split())
    words = " ".join(rule.content_words(line.strip(_MARKS)))
    return first.format(line), second.format(line), words or line.strip(_MARKS) or line


@dataclass(frozen=True)
class ParaphrasePrompt:
    """A prompt that asks for the same query in other words."""

    query: str
    seed: int  # seed of the model's sampling, 0 ≤ seed < 2^31; each prompt has one of its own

    def completion(self) -> str:
        """Return the prompt as text that a model continues with the paraphrase."""
        parts = [
            f"Question: {question}\nThe same in other words: {paraphrase}\n\n" for question, paraphrase in _EXAMPLES
        ]
        return f"{''.join(parts)}Question: {self.query}\nThe same in other words:"

    def messages(self) -> list[dict[str, str]]:
        """Return the prompt as messages of a chat."""
        messages = [{"role": "system", "content": _INSTRUCTION}]
        for question, paraphrase in _EXAMPLES:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": paraphrase}]
        return [*messages, {"role": "user", "content": self.query}]


_INSTRUCTION = (
    "You say a question again in other words. Keep its meaning and its language. Write one line and nothing else."
)
_EXAMPLES = (
    ("How often do I have to feed a sourdough starter?", "At what intervals does a sourdough culture need new flour?"),
    ("Which bird sleeps while it flies?", "What kind of bird is able to rest on the wing?"),
    ("bicycle on regional train price", "What does it cost to take a bike along on a local train?"),
)


def paraphrases_by_model(
    queries: Sequence[str], count: int, seed: int, model: LanguageModel, advance: Callable[[], None]
) -> list[tuple[str, ...]]:
    """Let a language model write paraphrases, and cache its replies, as `taugate queries` does.

    Returns `count` distinct paraphrases of every query, none of them the query itself.

    Args:
        count: Number of paraphrases per query.
        model: Model to ask; it is closed at the end.
        advance: Called after each reply.
    """
    prompts_by_query = [[_prompt(query, seed, number) for number in range(_TRIES * count)] for query in queries]
    with ReplyCache(model) as cache:
        prompts = [prompt for row in prompts_by_query for prompt in row]
        cached = {prompt: reply for prompt in prompts if (reply := cache.get(prompt)) is not None}
        replies = cached | ask([prompt for prompt in prompts if prompt not in cached], model, cache, advance)
    written = []
    for query, row in zip(queries, prompts_by_query, strict=True):
        distinct = {normalized(text): text for prompt in row if (text := query_in(replies[prompt].text))}
        distinct.pop(normalized(query), None)
        if len(distinct) < count:
            raise InputError(
                f"{model.name}: wrote {len(distinct)} paraphrases of {query!r}, and {count} are needed; use a larger "
                "model, or --paraphrases rules"
            )
        written.append(tuple(distinct.values())[:count])
    return written


def _prompt(query: str, seed: int, number: int) -> ParaphrasePrompt:
    """Make one of several prompts about a query, each with a seed of its own."""
    line = " ".join(query.split())
    digest = sha256(orjson.dumps([seed, number, line])).digest()
    return ParaphrasePrompt(line, int.from_bytes(digest[:4], "big") >> 1)
