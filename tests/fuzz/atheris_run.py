"""`python -m tests.fuzz.atheris_run READER RELEASES WORK [libFuzzer's flags]`: one reader under atheris.

Inputs that found something are left in WORK, a folder with the folders `scratch` and `corpus`.
"""

import random
import sys
from pathlib import Path

import atheris

from tests.fuzz.mutations import mutated

with atheris.instrument_imports(include=["taugate", "tests.fuzz"]):
    from tests.fuzz.readers import readers


def main() -> None:
    """Write seeds and dictionary, and fuzz; never returns."""
    name, releases, work = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    reader = readers(releases, work / "scratch")[name]
    for number, seed in enumerate(reader.seeds):
        (work / "corpus" / f"seed-{number}").write_bytes(seed)
    words = "\n".join(f'"{_escaped(word)}"' for word in reader.words)
    (work / "words").write_text(f"{words}\n", encoding="ascii")
    flags = [f"-dict={work / 'words'}", f"-artifact_prefix={work}/", "-print_final_stats=1", *sys.argv[4:]]

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        """By turns as libFuzzer does, and as somebody does who knows what a JSON value is."""
        rng = random.Random(seed)  # noqa: S311 (nothing secret)
        by_hand = content and rng.random() < 0.5
        return mutated(content, reader.words, rng)[:most] if by_hand else atheris.Mutate(content, most)

    atheris.Setup([sys.argv[0], *flags, str(work / "corpus")], reader, custom_mutator=mutate)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    """As libFuzzer reads it."""
    return "".join("\\x" + f"{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
