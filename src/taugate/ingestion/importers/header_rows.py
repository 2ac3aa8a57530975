"""Headers of several rows with merged cells, as in price lists, become one row that names each column in full."""

from collections.abc import Mapping, MutableSequence, Sequence

from taugate.ingestion.importers.sheet_cells import Place
from taugate.ingestion.importers.table_rows import cell_text, count_filled, is_name

Row = Sequence[object]


def join_header_rows(rows: MutableSequence[Row], merged: Sequence[tuple[Place, Place]]) -> None:
    """Join the rows of each header that has merged cells: `Pressure` above `lowest` becomes `Pressure lowest`.

    Args:
        rows: The rows of a sheet, merged cells filled from the top down.
        merged: The first and the last place of all merged cells.
    """
    starts: dict[int, list[tuple[Place, Place]]] = {}
    for area in merged:
        starts.setdefault(area[0][0], []).append(area)
    for top in sorted(starts, reverse=True):
        if _begins_table(rows, top) and (end := _end(rows, top, starts)) > top:
            rows[top : end + 1] = [_joined(rows[top : end + 1], top, starts)]


def _begins_table(rows: Sequence[Row], top: int) -> bool:
    """Return whether a row is the first of a table; there may be a title above it, which is one cell."""
    filled = [[place for place, cell in enumerate(row) if cell_text(cell)] for row in rows[max(top - 1, 0) : top + 2]]
    above, first, below = ([] if top == 0 else filled.pop(0)), filled[0], [*filled[1:], []][0]
    is_title = len(first) == 1 and first[:1] <= below[:1]
    return len(above) < 2 and bool(first) and not is_title


def _end(rows: Sequence[Row], top: int, starts: Mapping[int, Sequence[tuple[Place, Place]]]) -> int:
    """Return the last row of the header that begins at a row."""
    end = row = top
    while row <= end:
        for (_, left), (bottom, right) in starts.get(row, ()):
            below = rows[bottom + 1][left : right + 1] if right > left and bottom + 1 < len(rows) else ()
            end = max(end, bottom + (count_filled(below) > 1 and all(map(is_name, below))))
        row += 1
    last, following = rows[end], rows[end + 1] if end + 1 < len(rows) else ()
    if not following or not all(map(is_name, filter(cell_text, last))):
        return top
    is_covered = any(bottom == end > row for row in range(top, end) for _, (bottom, _) in starts.get(row, ()))
    has_gap = any(cell_text(above) and not cell_text(cell) for above, cell in zip(rows[top], last, strict=False))
    is_unlike = any(cell_text(cell) and not is_name(below) for cell, below in zip(last, following, strict=False))
    return end if is_covered or has_gap or is_unlike else top


def _joined(header: Sequence[Row], top: int, starts: Mapping[int, Sequence[tuple[Place, Place]]]) -> list[str]:
    names = [[cell_text(cell) for cell in row] for row in header]
    for row in range(top, top + len(header)):
        for (_, left), (bottom, right) in starts.get(row, ()):
            for line in names[row - top : bottom + 1 - top]:
                line[left : right + 1] = [names[row - top][left]] * len(line[left : right + 1])
    return [" ".join(dict.fromkeys(filter(None, column))) for column in zip(*names, strict=True)]
