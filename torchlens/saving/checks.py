"""What numbers and texts of a file must be: each check gives the value with its type, or a `ValueError`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from torchlens._files.sealed import as_list

_Word = TypeVar("_Word")
_MOST_DIGITS = 1000


def as_text(found: object) -> str:
    """A string."""
    if type(found) is not str:
        raise ValueError(f"{str(found)[:60]!r} is no text")
    return found


def as_integer(found: object) -> int:
    """An integer, which a boolean is not."""
    if type(found) is not int:
        raise ValueError(f"{str(found)[:60]!r} is no integer")
    return found


def as_integer_or_none(found: object) -> int | None:
    """An integer, or nothing."""
    return None if found is None else as_integer(found)


def as_number(found: object) -> int:
    """The number of something: an integer from 0 to what 63 bits hold."""
    number = as_integer(found)
    if not 0 <= number < 2**63:
        raise ValueError(f"{number} is no count")
    return number


def as_count(found: object) -> int:
    """A count in decimal, of whatever size."""
    digits = as_text(found)
    if not digits.isdecimal() or not digits.isascii() or len(digits) > _MOST_DIGITS:
        raise ValueError(f"{digits[:40]!r} is no count")
    return int(digits)


def as_items(found: object, length: int) -> tuple[object, ...]:
    """A list of so many items."""
    items = as_list(found, "items")
    if len(items) != length:
        raise ValueError(f"{length} items are needed, {len(items)} are there")
    return items


def as_rows(found: object, length: int) -> list[tuple[object, ...]]:
    """A list of lists of so many items each."""
    return [as_items(item, length) for item in as_list(found, "lists")]


def as_one_of(found: object, known: Sequence[_Word]) -> _Word:
    """One of the words that are known."""
    for word in known:
        if word == found:
            return word
    raise ValueError(f"{str(found)[:60]!r} is no word that is known here")


def check_below(numbers: Iterable[object], limit: int, what: str) -> None:
    """Raise unless all are numbers of one of `limit` things."""
    wrong = next((n for n in numbers if not (type(n) is int and 0 <= n < limit)), None)
    if wrong is not None:
        raise ValueError(f"it names {what} {str(wrong)[:40]} of {limit}")
