"""Checks the structure of src/taugate: no two files import each other, and what makes code hard to change stays rare.

`python -m benchmarks.structure.limits` ends with 1 if a figure is above its limit, and says where it counted;
`--all` prints every place. A change that lowers a figure lowers its limit.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from pathlib import Path

from benchmarks.checkout import ROOT

_SOURCE = ROOT / "src" / "taugate"
# A record with as many equal fields as another one repeats it.
_EQUAL_FIELDS = 8
_UNTYPED = re.compile(r"\b(?:dict|Mapping|MutableMapping)\[str, (?:Any|object)\]")
_ALIAS = re.compile(rf"^(?:type )?(\w+)(?:: TypeAlias)? = {_UNTYPED.pattern}", re.MULTILINE)
LIMITS = {
    "files that import each other": 0,
    "untyped dictionaries": 53,
    "isinstance or match on own classes": 60,
    "public names that are defined twice": 4,
    "records that repeat another one": 3,
}


def main() -> int:
    """Print what is above its limit; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="print every place that is counted")
    parser.add_argument("source", type=Path, nargs="?", default=_SOURCE, help="folder of a package (src/taugate)")
    arguments = parser.parse_args()
    exceeded = False
    for figure, places in measure(arguments.source).items():
        above = len(places) > LIMITS[figure]
        exceeded |= above
        if above or arguments.all:
            sys.stdout.write("".join(f"  {place}\n" for place in places))
            sys.stdout.write(f"{figure}: {len(places)}, the limit is {LIMITS[figure]}\n")
    return int(exceeded)


def measure(source: Path) -> dict[str, list[str]]:
    """List the places that each figure counts in a package.

    Args:
        source: Folder of the package.
    """
    texts = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in sorted(source.rglob("*.py"))}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    return dict(
        zip(
            LIMITS,
            (
                circles(imports(source.name, trees)),
                [name for name, text in texts.items() for _ in range(_untyped(text))],
                list(_asked_classes(trees)),
                list(_defined_twice(trees)),
                list(_mirrored(trees)),
            ),
            strict=True,
        )
    )


def imports(package: str, trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return the modules of a package that each of its modules imports, in functions and for types as well.

    Args:
        package: Name of the package.
        trees: Its files by path.
    """
    modules = {_module(package, name): tree for name, tree in trees.items()}
    edges: dict[str, set[str]] = {}
    for module, tree in modules.items():
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        edges[module] = (names & modules.keys()) - {module}
    return edges


def circles(edges: Mapping[str, set[str]]) -> list[str]:
    """List circles of modules, one for each edge that has to go until there is none."""
    circles, left = [], {module: set(imported) for module, imported in edges.items()}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]  # each module is imported by the next
            circles.append(" <- ".join(circle))
            left[circle[1]].discard(circle[0])
        else:
            return circles


def _module(package: str, name: str) -> str:
    parts = (package, *Path(name).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _untyped(text: str) -> int:
    aliases = sum(len(re.findall(rf"\b{alias}\b", text)) - 1 for alias in _ALIAS.findall(text))
    return len(_UNTYPED.findall(text)) + aliases


def _asked_classes(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    own = {node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]) | ast.MatchClass(cls=classes):
                    if any(isinstance(each, ast.Name) and each.id in own for each in ast.walk(classes)):
                        yield f"{name}:{classes.lineno}"


def _defined_twice(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    files: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees.items():
        for definition in {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}:
            files[definition].append(name)
    for definition, names in sorted(files.items()):
        if len(names) > 1 and not definition.startswith("_") and definition != "main":
            yield f"{definition}: {', '.join(names)}"


def _mirrored(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    records = {
        f"{name}:{node.name}": {
            field.target.id
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        }
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    for one, other in combinations(records, 2):
        if len(records[one] & records[other]) >= _EQUAL_FIELDS:
            yield f"{one}, {other}"


if __name__ == "__main__":
    sys.exit(main())
