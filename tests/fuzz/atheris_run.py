"""`python -m tests.fuzz.atheris_run READER RELEASES WORK [libFuzzer's flags]`: one reader under atheris.

Inputs that found something are left in WORK, a folder with the folders `scratch` and `corpus`.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["retrieval", "service", "calibration"]):
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
    atheris.Setup([sys.argv[0], *flags, str(work / "corpus")], reader)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    """As libFuzzer reads it."""
    return "".join("\\x" + f"{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
