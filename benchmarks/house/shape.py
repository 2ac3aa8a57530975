"""The shape of the house: how long files are, who imports whom, and which names are defined twice.

`python -m benchmarks.house.shape` prints one table. Imports are read by grimp, which import-linter stands on.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import grimp

from benchmarks.checkout import ROOT
from benchmarks.markdown import table

ROOMS = ("storage", "retrieval", "registry", "drift", "ingestion", "calibration", "service", "cli")
Edges = dict[str, set[str]]


def main() -> None:
    """Print the table."""
    files = [path for room in ROOMS for path in sorted((ROOT / "src" / "taugate" / room).rglob("*.py"))]
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in files if path.name != "__init__.py"]
    modules = module_imports()
    folders = folder_imports(modules)
    flat = {
        room: len([*(ROOT / "src" / "taugate" / room).glob("*.py")]) for room in ("service", "calibration", "retrieval")
    }
    rows: list[list[object]] = [
        ["files; median lines; longest", f"{len(lines)}; {median(lines):g}; {max(lines)}"],
        ["flat files in service, calibration, retrieval", " / ".join(str(count) for count in flat.values())],
        ["folders that import each other", sum(a in folders[b] for a, beyond in folders.items() for b in beyond) // 2],
        ["folders in circles", len(in_circles(folders))],
        ["longest chain of imports", longest_chain(modules)],
        ["class names defined more than once", len(defined_twice(files))],
    ]
    print(table(["the house", "now"], rows))


def module_imports() -> Edges:
    """Return the modules that each module of taugate imports, but for `__main__`, which nothing imports."""
    graph = grimp.build_graph("taugate")
    names = {name for name in graph.modules if not name.endswith("__main__")}
    return {name: graph.find_modules_directly_imported_by(name) & names for name in sorted(names)}


def folder_imports(modules: Edges) -> Edges:
    """Return the folders that each folder imports; a module belongs to the folder that its file is in."""
    folders: Edges = defaultdict(set)
    for module, imported in modules.items():
        folders[_folder(module)] |= {_folder(each) for each in imported} - {_folder(module)}
    return {folder: {each for each in beyond if each in folders} for folder, beyond in folders.items()}


def in_circles(edges: Edges) -> set[str]:
    """Return the nodes from which imports lead back to themselves."""
    return {node for node in edges if node in _reached(edges, edges[node])}


def longest_chain(edges: Edges) -> int:
    """Count the modules of the longest chain in which each imports the next.

    Args:
        edges: Without circles.
    """
    length: dict[str, int] = {}

    def measure(node: str) -> int:
        if node not in length:
            length[node] = 1 + max((measure(each) for each in edges[node]), default=0)
        return length[node]

    return max(measure(node) for node in edges)


def defined_twice(files: Iterable[Path]) -> set[str]:
    """Return the names that more than one class of these files has."""
    seen: dict[str, int] = defaultdict(int)
    for path in files:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            seen[node.name if isinstance(node, ast.ClassDef) else ""] += 1
    return {name for name, count in seen.items() if name and count > 1}


def _folder(module: str) -> str:
    path = ROOT.joinpath("src", *module.split("."))
    return module if path.is_dir() else module.rpartition(".")[0]


def _reached(edges: Edges, start: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    waiting = [*start]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += edges[node]
    return seen


if __name__ == "__main__":
    main()
