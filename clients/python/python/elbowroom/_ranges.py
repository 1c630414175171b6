"""Which bytes of a file a lock covers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Union

from ._native import Footprint

U64_MAX = 2**64 - 1


class Strided(NamedTuple):
    """A regular pattern of ranges, never expanded: `length` bytes at `start + i1*stride1 + i2*stride2 + ...`.

    `dims` has a (count, stride) for each vector, from the outermost to the innermost; strides are in bytes.

    >>> Strided.selection((100, 100), 4, (slice(0, 25), slice(50, 75)))
    Strided(start=200, dims=((25, 400), (25, 4)), length=4)
    """

    start: int
    dims: Sequence[tuple[int, int]] = ()
    length: int = 1

    @classmethod
    def selection(cls, shape: Sequence[int], itemsize: int, index: Sequence[slice | int], offset: int = 0) -> Strided:
        """What `array[index]` covers of the file of a C-ordered array that begins at byte `offset`, as `numpy.memmap` maps it.

        `index` has slices with positive steps and integers; axes that it does not name are covered whole. Raises
        ValueError when nothing is selected.
        """
        if len(index) > len(shape):
            raise ValueError(f"{len(index)} indices for an array of {len(shape)} axes")
        index = (*index, *[slice(None)] * (len(shape) - len(index)))
        start, dims = offset, []
        for axis, (size, selected) in enumerate(zip(shape, index)):
            bytes_per_step = itemsize * math.prod(shape[axis + 1 :])
            if isinstance(selected, slice):
                steps = range(*selected.indices(size))
                if not steps or steps.step < 0:
                    raise ValueError(f"{selected} selects nothing of an axis of {size}, or goes backwards")
                dims.append((len(steps), steps.step * bytes_per_step))
                start += steps.start * bytes_per_step
            else:
                start += range(size)[selected] * bytes_per_step
        return cls(start, tuple(dims), itemsize)


#: What `hold` takes as ranges.
Ranges = Union[None, slice, Strided, Iterable[Union[tuple[int, int], Strided]], Any]


def footprint(ranges: Ranges) -> Footprint:
    """What some ranges cover."""
    if ranges is None:
        return Footprint.whole()
    if isinstance(ranges, slice):
        return Footprint.pairs([_extent(ranges)])
    if isinstance(ranges, Strided):
        return Footprint.patterns([ranges])
    if hasattr(ranges, "__array__"):
        return Footprint.packed(_packed(ranges))
    return _mixed(list(ranges))


def _extent(selected: slice) -> tuple[int, int]:
    if selected.step not in (None, 1):
        raise ValueError("a slice of a file has no step; use Strided")
    start = selected.start or 0
    stop = U64_MAX if selected.stop is None else selected.stop
    if not 0 <= start < stop:
        raise ValueError(f"slice({start}, {stop}) covers nothing of a file")
    return start, stop - start


def _packed(ranges: Any) -> bytes:
    import numpy

    array = numpy.asarray(ranges)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise ValueError(f"an array of ranges has shape (n, 2) and integers, not {array.shape} and {array.dtype}")
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise ValueError("an offset or a length is negative")
    return array.astype("=u8", order="C").tobytes()


def _mixed(ranges: list[Any]) -> Footprint:
    patterns = [each for each in ranges if isinstance(each, Strided)]
    pairs = [tuple(each) for each in ranges if not isinstance(each, Strided)]
    if not patterns:
        return Footprint.pairs(pairs)
    covered = Footprint.patterns(patterns)
    return covered.union(Footprint.pairs(pairs)) if pairs else covered
