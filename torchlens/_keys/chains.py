"""Call chains: when two are the same place by the grouping rule, and how one reads.

A chain is written outermost frame first. Going inwards, a function met before takes the place of its
earlier frame and of all between them, so every depth of a recursion is one place. Seen from any frame this
means: the chain from it on is the chain from the innermost frame of the same function on. That is how it is
computed, once a place, from the inside out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

from torchlens._keys.instructions import instruction_key, span
from torchlens._records import BoundaryPlace, EnteredPlace, FramePlace, HookedPlace, Place


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame of a call site: lines count from 1, columns from 0 in UTF-8 bytes; None: not known."""

    file: str
    function: str
    line: int | None
    end_line: int | None
    column: int | None
    end_column: int | None

    def __str__(self) -> str:
        name = os.path.basename(self.file)
        return (
            f"{name}:{self.line} in {self.function}"
            if self.line is not None
            else f"{name} in {self.function}"
        )


class _Tail(NamedTuple):
    """What follows inside an entered function or a boundary, which hangs at the end of another chain."""

    inner: int
    """The first place of it."""
    rest: int
    """The tail that follows in turn; 0 is the empty one."""
    key: int
    functions: int
    """Every function in it, one bit each."""


class Chains:
    """The call chains of one record; a *site* is the index of a chain's outermost place, 0 the empty chain.

    `places` may grow afterwards; a place once there must stay as it is.
    """

    def __init__(self, places: Sequence[Place | None]) -> None:
        self._places = places
        self._site_keys: dict[int, int] = {}
        self._keys: dict[tuple[int, int], int] = {(0, 0): 0}
        self._links: dict[tuple[Hashable, int], int] = {}
        self._tails: list[_Tail] = [_Tail(0, 0, 0, 0)]
        self._tail_numbers: dict[tuple[int, int, int], int] = {}
        self._functions: list[int] = [0]
        self._repeats: dict[int, int] = {}
        self._code_numbers: dict[int, int] = {}
        self._equal_codes: dict[tuple[CodeType, str], int] = {}
        self._callers: dict[int, tuple[CodeType, int] | None] = {0: None}
        self._frames: dict[tuple[int, int], Frame] = {}

    def key(self, site: int) -> int:
        """A number that two sites share exactly if they are the same place by the grouping rule."""
        key = self._site_keys.get(site)
        if key is not None:
            return key
        tail, outermost, place = 0, site, self._places[site]
        while isinstance(place, (EnteredPlace, BoundaryPlace)):
            tail = self._tail(place, tail)
            outermost = place.outer
            place = self._places[outermost]
        key = self._site_keys[site] = self._fold(outermost, tail)
        return key

    def frames(self, site: int) -> tuple[Frame, ...]:
        """The frames of a site as they were, outermost first."""
        found: list[Frame] = []
        for segment in self._segments(site):
            while segment:
                place = self._inside(segment)
                if isinstance(place, FramePlace):
                    found.append(self._frame(place))
                segment = place.inner
        return tuple(found)

    def composites(self, site: int) -> tuple[Callable[..., Any], ...]:
        """The Python-written torch functions that were entered on the way, outermost first."""
        found: list[Callable[..., Any]] = []
        place = self._places[site]
        while isinstance(place, (EnteredPlace, BoundaryPlace)):
            if isinstance(place, EnteredPlace):
                found.append(place.func)
            place = self._places[place.outer]
        return tuple(reversed(found))

    def caller(self, site: int) -> tuple[CodeType, int] | None:
        """Code and offset of the innermost frame, the one that called torch; None where no frame is."""
        for segment in reversed(self._segments(site)):
            found = self._innermost(segment)
            if found is not None:
                return found
        return None

    def _segments(self, site: int) -> list[int]:
        """The runs of frames that a chain is made of, each by its outermost place, outermost run first."""
        found: list[int] = []
        place = self._places[site]
        while isinstance(place, (EnteredPlace, BoundaryPlace)):
            found.append(place.inner)
            site = place.outer
            place = self._places[site]
        return [site, *reversed(found)]

    def _inside(self, index: int) -> FramePlace | HookedPlace:
        place = self._places[index]
        if isinstance(place, (FramePlace, HookedPlace)):
            return place
        raise ValueError(
            f"place {index} is {place!r}, with frames outside it; "
            "entered functions and boundaries begin a chain, their callers are in `outer`"
        )

    def _fold(self, site: int, tail: int) -> int:
        """The key of a run of frames followed by a tail. Chains get deep: a loop, not a recursion."""
        keys, path, index = self._keys, list[int](), site
        while index and (index, tail) not in keys:
            path.append(index)
            index = self._inside(index).inner
        key = keys[index, tail] if index else self._tails[tail].key
        for index in reversed(path):
            key = keys[index, tail] = self._extend(index, key, tail)
        return key

    def _extend(self, index: int, inner_key: int, tail: int) -> int:
        place = self._inside(index)
        if isinstance(place, HookedPlace):
            self._note(index, place, 0)
            return self._link(("hook", place.module, place.offset), inner_key)
        number = self._code_number(place.code)
        self._note(index, place, 1 << number)
        repeat = self._repeats.get(index)
        if repeat is None:
            repeat = self._repeats[index] = self._innermost_repeat(place, number)
        if repeat:
            return self._keys[repeat, tail]
        if self._tails[tail].functions >> number & 1 and not place.code.co_freevars:
            return self._repeat_in_tail(number, tail)
        return self._link((number, instruction_key(place.code, place.offset)), inner_key)

    def _link(self, element: Hashable, inner_key: int) -> int:
        return self._links.setdefault((element, inner_key), len(self._links) + 1)

    def _note(self, index: int, place: FramePlace | HookedPlace, function: int) -> None:
        """Remember which functions occur from a place inwards."""
        if index >= len(self._functions):
            self._functions.extend([0] * (len(self._places) - len(self._functions)))
        self._functions[index] = self._functions[place.inner] | function

    def _code_number(self, code: CodeType) -> int:
        """One number for equal code of one file; equal code in two files compares equal in Python."""
        number = self._code_numbers.get(id(code))
        if number is None:
            number = self._equal_codes.setdefault((code, code.co_filename), len(self._equal_codes))
            self._code_numbers[id(code)] = number
        return number

    def _innermost_repeat(self, place: FramePlace, number: int) -> int:
        """The innermost place further in, in the same run, with the same function; 0 if there is none."""
        if not self._functions[place.inner] >> number & 1:
            return 0
        if not place.code.co_freevars:
            return self._find(place.inner, number)
        return self._find_closure(place, number) if place.recursive else 0

    def _find(self, index: int, number: int) -> int:
        """A place with this function, from `index` inwards, where there is one."""
        while index:
            place = self._inside(index)
            if isinstance(place, FramePlace) and self._code_number(place.code) == number:
                return self._repeats[index] or index
            jump = self._repeats.get(index, 0)
            index = jump if self._functions[jump] >> number & 1 else place.inner
        return 0

    def _find_closure(self, place: FramePlace, number: int) -> int:
        """The same for code with free variables, of which several functions may be in the chain.

        That the frame repeats one of them is known, not which: the nearest that calls the same code, else
        the nearest.
        """
        wanted, nearest, index = self._code_of(place.inner), 0, place.inner
        while index:
            inner = self._inside(index)
            if isinstance(inner, FramePlace) and self._code_number(inner.code) == number:
                if self._code_of(inner.inner) == wanted:
                    return self._repeats[index] or index
                nearest = nearest or index
            index = inner.inner
        return self._repeats[nearest] or nearest

    def _code_of(self, index: int) -> int | None:
        place = self._places[index]
        return self._code_number(place.code) if isinstance(place, FramePlace) else None

    def _tail(self, place: EnteredPlace | BoundaryPlace, rest: int) -> int:
        boundary = id(place.func) if isinstance(place, BoundaryPlace) else 0
        known = self._tail_numbers.get((place.inner, rest, boundary))
        if known is not None:
            return known
        key = self._fold(place.inner, rest)
        if boundary:
            key = self._link(("boundary", boundary), key)
        functions = self._tails[rest].functions
        if place.inner:
            functions |= self._functions[place.inner]
        self._tails.append(_Tail(place.inner, rest, key, functions))
        number = self._tail_numbers[place.inner, rest, boundary] = len(self._tails) - 1
        return number

    def _repeat_in_tail(self, number: int, tail: int) -> int:
        """The key from the innermost frame of this function on, in the innermost tail that has one."""
        found = tail
        while self._tails[self._tails[found].rest].functions >> number & 1:
            found = self._tails[found].rest
        inner, rest, _, _ = self._tails[found]
        return self._keys[self._find(inner, number), rest]

    def _innermost(self, index: int) -> tuple[CodeType, int] | None:
        path: list[int] = []
        while index not in self._callers:
            path.append(index)
            index = self._inside(index).inner
        found = self._callers[index]
        for index in reversed(path):
            place = self._places[index]
            if found is None and isinstance(place, FramePlace):
                found = place.code, place.offset
            self._callers[index] = found
        return found

    def _frame(self, place: FramePlace) -> Frame:
        code = place.code
        frame = self._frames.get((id(code), place.offset))
        if frame is None:
            name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
            frame = Frame(code.co_filename, name, *span(code, place.offset))
            self._frames[id(code), place.offset] = frame
        return frame
