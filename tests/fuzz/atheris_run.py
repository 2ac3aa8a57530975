"""`python -m tests.fuzz.atheris_run READER RELEASES WORK [libFuzzer's flags]`: one reader under atheris.

Inputs with findings are left in WORK, a folder with the folders `scratch` and `corpus`.
"""

import random
import sys
from pathlib import Path

import atheris

from tests.fuzz.mutations import mutated

with atheris.instrument_imports(include=["taugate", "tests.fuzz"]):
    from tests.fuzz.readers import readers


def main() -> None:
    """Write seeds and dictionary, and fuzz; does not return."""
    name, releases, work = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    reader = readers(releases, work / "scratch")[name]
    for number, seed in enumerate(reader.seeds):
        (work / "corpus" / f"seed-{number}").write_bytes(seed)
    words = "\n".join(f'"{_escaped(word)}"' for word in reader.words)
    (work / "words").write_text(f"{words}\n", encoding="ascii")
    flags = [f"-dict={work / 'words'}", f"-artifact_prefix={work}/", "-print_final_stats=1", *sys.argv[4:]]

    def mutate(content: bytes, max_bytes: int, seed: int) -> bytes:
        """Change an input as libFuzzer does or, in half of the cases, by words and JSON values."""
        rng = random.Random(seed)  # noqa: S311 (nothing secret)
        by_hand = content and rng.random() < 0.5
        return mutated(content, reader.words, rng)[:max_bytes] if by_hand else atheris.Mutate(content, max_bytes)

    atheris.Setup([sys.argv[0], *flags, str(work / "corpus")], reader, custom_mutator=mutate)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    """Return a word as libFuzzer's dictionaries write it."""
    return "".join("\\x" + f"{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
