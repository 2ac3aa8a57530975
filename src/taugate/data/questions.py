"""Rules that decide whether a text is a question, and off-topic questions, which most corpora do not answer.

A query need not be a question. But a model that was asked for a question and wrote something else has failed: it
continued the document, or gave an answer. The rule has to be lenient in unknown languages.

Off-topic questions are everyday questions and short requests to an assistant, in ten languages and from many fields.
There are two halves, written apart: one chooses ρ, and the other states how many questions ρ refuses. Questions of one
author resemble each other, and so do those of one field.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import regex

# Question marks: ASCII, full width, Greek, Arabic, Armenian, Ethiopic, Vai, the interrobang, and double ones.
_MARKS = "?？\u037e؟՞፧꘏‽⁇⁈⁉"
_CLOSING = "\"'”’»)]」』 .!"  # may follow a question mark
_WORD = regex.compile(r"[\p{L}\p{M}'’]+")
_SAMPLED_WORDS = 20_000
_MIN_SHARE = 0.1  # of a text's words that are function words of its language; real texts have 0.2 to 0.5

_FILES = ("off_topic_choosing.tsv", "off_topic_stating.tsv")
# Of all languages together, for queries in a language that the table lacks, every fourth question is about as many as
# there are in English.
_ALL_LANGUAGES_STEP = 4
# So many are sent to a store at 10 a second in half a minute.
_MAX_SENT = 300


class _Language(NamedTuple):
    """A language written with spaces."""

    function: frozenset[str]  # the most frequent words of the language
    question: frozenset[str]


def _language(function: str, question: str) -> _Language:
    return _Language(frozenset(function.split()), frozenset(question.split()))


_LANGUAGES = {
    "English": _language(
        "the of and to in is that it was for on are with as be at by this from or an which",
        "what what's who who's whom whose which when where where's why how how's is are am was were do does did can "
        "could will would shall should may might must has have had isn't aren't wasn't don't "
        "doesn't didn't can't won't",
    ),
    "German": _language(
        "der die und das den dem ist nicht ein eine zu von mit sich auf für im des auch werden wird",
        "was wer wen wem wessen welche welcher welches welchen welchem wann wo woher wohin warum wieso weshalb wie "
        "wodurch womit wofür worin wozu ist sind war waren hat haben kann können darf dürfen muss müssen soll sollen "
        "wird werden gibt",
    ),
    "French": _language(
        "le la les des et est du une que dans pour pas qui sur au par plus avec ce il sont",
        "que qu'est-ce qu'est qui quoi quel quelle quels quelles quand où pourquoi comment combien est-ce est sont "
        "peut-on faut-il y lequel laquelle",
    ),
    "Spanish": _language(
        "el la los las de y que en es un una por con para del se no al lo su como",
        "qué que quién quien quiénes cuál cual cuáles cuándo cuando dónde donde por cómo como cuánto cuántos cuántas "
        "cuánta es son puede pueden se hay",
    ),
    "Italian": _language(
        "il la di e che un una per è non con del della si le dei al sono nel anche",
        "che cosa cos'è chi qual quale quali quando dove dov'è perché come quanto quanti quante quanta è sono può si",
    ),
    "Portuguese": _language(
        "o a os as de e que em um uma para com não do da se no na por mais são",
        "que quê quem qual quais quando onde por porque como quanto quantos quantas é são pode há",
    ),
    "Dutch": _language(
        "de het een en van is in dat op te niet met voor zijn aan er die ook als bij",
        "wat wie wiens welke welk wanneer waar waarom hoe hoeveel is zijn was kan kunnen mag moet heeft hebben wordt",
    ),
}
# Chinese, Japanese and Korean ask by words and particles that need not stand first.
_ANYWHERE = {
    "Chinese": regex.compile(r"[什谁誰哪几幾吗嗎呢]|怎|为何|為何|多少|是否|如何|能否|可否"),
    "Japanese": regex.compile(r"何|誰|どこ|どの|どれ|どう|どん|いつ|なぜ|いくつ|いくら|ですか|ますか|[かの]$"),
    "Korean": regex.compile(r"무엇|무슨|누가|누구|언제|어디|왜|어떻|어떤|어느|얼마|몇|[까나]$"),
}
_SCRIPTS = {
    "Japanese": regex.compile(r"[\p{Hiragana}\p{Katakana}]"),
    "Korean": regex.compile(r"\p{Hangul}"),
    "Chinese": regex.compile(r"\p{Han}"),
}


class QuestionRule(NamedTuple):
    """Decides whether a text is a question."""

    language: str | None  # language of the rule, None for an unknown one

    @classmethod
    def for_texts(cls, texts: Iterable[str]) -> "QuestionRule":
        """Choose the rule of the language that documents are written in."""
        counts: Counter[str] = Counter()
        scripts: Counter[str] = Counter()
        words = 0
        for text in texts:
            for language, script in _SCRIPTS.items():
                scripts[language] += len(script.findall(text[:1000]))
            scripts["letters"] += len(regex.findall(r"\p{L}", text[:1000]))
            for word in _WORD.findall(text.casefold()):
                words += 1
                for language, (function, _) in _LANGUAGES.items():
                    counts[language] += word in function
            if words >= _SAMPLED_WORDS:
                break
        for language in _SCRIPTS:  # Japanese first: it has Chinese letters too
            if scripts[language] > 0.2 * max(1, scripts["letters"]):
                return cls(language)
        language, count = counts.most_common(1)[0] if counts else ("", 0)
        return cls(language if count > _MIN_SHARE * words else None)

    @property
    def name(self) -> str:
        """Description of the rule."""
        if self.language is None:
            return "unknown language: any text"
        question_word = "a question word" if self.language in _ANYWHERE else "a question word at its start"
        return f"{self.language}: a question mark, or {question_word}"

    def holds(self, text: str) -> bool:
        """Return whether a text on one line is a question."""
        if self.language is None or text.rstrip(_CLOSING)[-1:] in {*_MARKS} or text.startswith("¿"):
            return True
        if self.language in _ANYWHERE:
            return _ANYWHERE[self.language].search(text.rstrip("。 ")) is not None
        first = text.casefold().replace("’", "'").split(maxsplit=1)[:1]
        return bool(first) and first[0].strip("¿,") in _LANGUAGES[self.language].question

    def content_words(self, text: str) -> list[str]:
        """Return the words of a text without the most frequent words and the question words of the language."""
        words = _WORD.findall(text) if self.language in _LANGUAGES else text.split()
        if self.language not in _LANGUAGES:
            return words
        frequent, asking = _LANGUAGES[self.language]
        return [word for word in words if word.casefold().replace("’", "'") not in frequent | asking]


class OffTopicQuestion(NamedTuple):
    """An off-topic question."""

    language: str
    kind: str  # "question" about another subject, or "request"
    field: str  # field of knowledge, or group of requests
    text: str
    chooses: bool  # whether it is in the half that chooses ρ

    @property
    def is_request(self) -> bool:
        """Whether it is a short request to an assistant."""
        return self.kind == "request"


@cache
def off_topic_table() -> tuple[OffTopicQuestion, ...]:
    """Return all off-topic questions, those that choose first, grouped by language; English comes first."""
    return tuple(
        OffTopicQuestion(language, kind, field, text, chooses=file == _FILES[0])
        for file in _FILES
        for line in Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
        for language, kind, field, text in [line.split("\t")]
    )


def off_topic_questions(queries: Iterable[str]) -> tuple[OffTopicQuestion, ...]:
    """Return the off-topic questions in the language of queries, or some in all languages if the table lacks it."""
    # An encoder of one language gives foreign questions low scores, so these would hide how many of the users' own are
    # answered.
    table, language = off_topic_table(), QuestionRule.for_texts(queries).language
    return tuple(question for question in table if question.language == language) or table[::_ALL_LANGUAGES_STEP]


def off_topic_sent(queries: Iterable[str]) -> tuple[OffTopicQuestion, ...]:
    """Return at most 300 of these questions, evenly spaced, to send to a store."""
    questions = off_topic_questions(queries)
    return questions[:: -(-len(questions) // _MAX_SENT)]


def off_topic_example(language: str | None) -> str:
    """Return an off-topic question in a language, in any language if the table lacks it, or if it is None."""
    questions = [question for question in off_topic_table() if not question.is_request]
    return next((question.text for question in questions if question.language == language), questions[0].text)
