"""A small language model that answers from passages, as a server on a loopback port that speaks OpenAI's API.

The same server answers the program of docs/how-to/rag-application.md: `python -m benchmarks.rag.model` starts it.
"""

import argparse
import os
import re
import time
from contextlib import suppress
from typing import Any

from taugate.ingestion.queries.local import packaged_model

INSTRUCTION = (
    "You answer questions from the passages that you are given, in one short sentence. "
    "If the passages do not answer the question, reply: I don't know."
)
_CONTEXT = 4096  # tokens: five passages of 256 and more
_LONGEST = 40  # tokens of an answer
_DECLINES = re.compile(
    r"\b(don't|do not|doesn't|does not|cannot|can't|not) (know|say|mention|answer|provide|specif|state|contain|appear)"
    r"|\bno (information|answer|mention)|\bnot (mentioned|stated|specified|provided|possible to)|\bunknown\b",
    re.IGNORECASE,
)


class SmallModel:
    """SmolLM2-135M-Instruct by llama.cpp. Its answers are the most probable ones: no sampling, so no seed.

    url: of the server, which serves as long as somebody refers to this object.
    """

    def __init__(self, port: int | None = None) -> None:
        """port: to listen on; a free one where None. Raises InputError where the model's package is not installed."""
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait do not spin: other programs run too
        import xllamacpp  # pyright: ignore[reportMissingImports] (comes with the extra `generate`)

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(packaged_model())
        parameters.n_ctx, parameters.n_parallel, parameters.verbosity = _CONTEXT, 1, -1
        if port is not None:
            parameters.port = port
        for processor in (parameters.cpuparams, parameters.cpuparams_batch):
            processor.n_threads, processor.poll = len(os.sched_getaffinity(0)), 0
        self._server = xllamacpp.Server(parameters)
        self.url = f"{self._server.listening_address}/v1"

    def answer(self, question: str, passages: tuple[str, ...]) -> str:
        """Answer a question from passages."""
        reply: dict[str, Any] = self._server.handle_chat_completions(
            {
                "messages": [
                    {"role": "system", "content": INSTRUCTION},
                    {"role": "user", "content": "\n\n".join((*passages, f"Question: {question}"))},
                ],
                "max_tokens": _LONGEST,
                "temperature": 0.0,
                "cache_prompt": False,
            }
        )
        return str(reply["choices"][0]["message"]["content"]).strip()


def declines(answer: str) -> bool:
    """Tell whether a model says that it has no answer, in whatever words these small ones find."""
    return not answer or _DECLINES.search(answer) is not None


def main() -> None:
    """Serve until the process is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    model = SmallModel(parser.parse_args().port)
    print(f"SmolLM2-135M answers at {model.url}", flush=True)
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
