"""Finding things by name or number, and saying what was near when there is nothing."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar, overload

from torchlens.errors import MissingKeyError


class _Titled(Protocol):
    @property
    def title(self) -> str: ...


T = TypeVar("T", bound=_Titled)


class Named(Sequence[T], Generic[T]):
    """A sequence whose items can also be asked for by name (`trace.layers["relu_1"]`).

    Items are made when asked for. A missing name raises `MissingKeyError` with the nearest ones.
    """

    def __init__(
        self,
        indices: Sequence[int],
        make: Callable[[int], T],
        names: Callable[[], Mapping[str, int]],
        noun: str,
    ) -> None:
        self._indices = indices
        self._make = make
        self._names = names
        self._noun = noun

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, key: int | str) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[T]: ...
    def __getitem__(self, key: int | str | slice) -> T | Sequence[T]:
        if isinstance(key, slice):
            return [self._make(index) for index in self._indices[key]]
        if isinstance(key, str):
            return self._make(self._named(key))
        if not -len(self) <= key < len(self):
            raise IndexError(
                f"there {'is' if len(self) == 1 else 'are'} {self._amount()}; {key} is not one of them"
            )
        return self._make(self._indices[key])

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._indices)

    def __contains__(self, value: object) -> bool:
        if isinstance(value, str):
            return self._names().get(value) in self._indices
        return any(item == value for item in self)

    def __repr__(self) -> str:
        shown = ", ".join(item.title for item in self[:6])
        return f"[{shown}{', ...' if len(self) > 6 else ''}]  ({self._amount()})"

    def _amount(self) -> str:
        return f"{len(self)} {self._noun}{'' if len(self) == 1 else 's'}"

    def _named(self, key: str) -> int:
        names = self._names()
        index = names.get(key)
        if index is None or index not in self._indices:
            here = [name for name, at in names.items() if at in self._indices]
            raise MissingKeyError(missing(key, self._noun, here))
        return index


def missing(key: str, noun: str, names: Iterable[str]) -> str:
    """What to say about a name that nothing has."""
    known = list(names)
    near = difflib.get_close_matches(key, known, n=4, cutoff=0.4) or known[:4]
    hint = f"; nearest: {', '.join(map(repr, near))}" if near else f"; there are no {noun}s here"
    return f"no {noun} is called {key!r}{hint}"
