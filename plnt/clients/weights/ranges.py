"""Sets of byte ranges: which parts of a file are there."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""First byte and the byte after the last."""


class Ranges:
    """Disjoint ranges in order, merged where they touch. Not thread-safe."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._items: list[Range] = []
        for first, end in ranges:
            self.add(first, end)

    def __iter__(self) -> Iterator[Range]:
        return iter(self._items)

    @property
    def total(self) -> int:
        """Bytes covered."""
        return sum(end - first for first, end in self._items)

    def add(self, first: int, end: int) -> None:
        """Cover the bytes from ``first`` to before ``end``."""
        if first >= end:
            return
        apart = [item for item in self._items if item[1] < first or item[0] > end]
        joined = [item for item in self._items if not (item[1] < first or item[0] > end)]
        merged = (min([first, *(a for a, _ in joined)]), max([end, *(b for _, b in joined)]))
        apart.insert(bisect_right(apart, merged), merged)
        self._items = apart

    def reach(self, position: int) -> int:
        """Give the end of the range that holds ``position``, or ``position`` itself."""
        return next((end for first, end in self._items if first <= position < end), position)

    def gaps(self, size: int) -> list[Range]:
        """Give what is missing of ``size`` bytes."""
        edges = [0, *(edge for item in self._items for edge in item), size]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(first, end) for first, end in pairs if first < end]
