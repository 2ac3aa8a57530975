"""How fast this machine encodes questions in each precision, which decides what the gate judges, and in what order."""

import statistics
import time
from collections.abc import Mapping, Sequence

from taugate.release.encoder import Precision
from taugate.retrieval.encoder.bert import processor_path
from taugate.retrieval.encoder.encoder import ExportedEncoder

TOGETHER = 16  # questions, as a busy service encodes them
_ALTERNATIONS, _QUESTIONS = 5, 160


def encoding_rates(encoders: Mapping[Precision, ExportedEncoder], questions: Sequence[str]) -> dict[Precision, float]:
    """Return how many questions a second of processor time each encoder encodes, 16 together.

    It is the median of five rounds in which the encoders take turns on one thread, so that other work on the machine
    hardly matters.
    """
    timed = [questions[at : at + TOGETHER] for at in range(0, min(len(questions), _QUESTIONS), TOGETHER)]
    alone = {precision: encoder.single_threaded() for precision, encoder in encoders.items()}
    for encoder in alone.values():
        encoder.encode(timed[0], "query")  # the first batch allocates memory
    spent: dict[Precision, list[float]] = {precision: [] for precision in alone}
    for _ in range(_ALTERNATIONS):
        for precision, encoder in alone.items():
            began = time.process_time()
            for batch in timed:
                encoder.encode(batch, "query")
            spent[precision].append(time.process_time() - began)
    count = sum(len(batch) for batch in timed)
    return {precision: count / max(statistics.median(times), 1e-9) for precision, times in spent.items()}


def speed_line(encoder: ExportedEncoder, rate: float, float32: float) -> str:
    """Return the progress line for the speed of a candidate beside that of float32, in questions a second."""
    precision = encoder.config.precision
    path = processor_path(precision) if encoder.config.runtime == "kernel" else None
    return (
        f"gate: {precision}: {rate:.0f} questions a second here, {TOGETHER} together on one thread, "
        f"{rate / float32:.2f} times float32 ({encoder.config.runtime if path is None else path})"
    )
