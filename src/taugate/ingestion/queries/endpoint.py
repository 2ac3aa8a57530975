"""A language model behind an OpenAI-compatible HTTP endpoint: POST {url}/chat/completions."""

import time
from typing import Any

import orjson

from taugate.ingestion.queries.prompt import MAX_REPLY, TEMPERATURE, TOP_P, Prompt
from taugate.ingestion.queries.replies import Completion
from taugate.storage.json_endpoint import EndpointWording, JsonEndpoint
from taugate.storage.retries import PatientRequests

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


class ModelEndpoint:
    """A model of an OpenAI-compatible server, such as vLLM, llama.cpp, Ollama or a provider.

    It honours Retry-After, waits longer after each failure, and gives up a request after TRIES attempts.

    Attributes:
        url: Base URL of the API, such as http://localhost:8080/v1.
        model: Name of the model on the server.
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
        """Return the reply to a prompt, see `LanguageModel.ask`.

        Raises:
            ConnectionError: If TRIES attempts fail in a row.
        """
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
