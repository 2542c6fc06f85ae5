"""Arguments as JSON and back: numbers, names and containers by value, tensors by number.

A tuple is a JSON list. Whatever JSON has no word for is an object of one field, whose name says what it is:
`{"t": 3}` is tensor 3, `{"slice": [0, null, null]}` a slice. Reading knows these words and no others.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import keyword
import math
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import make_dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import torch
from torch.nn.utils.rnn import PackedSequence

from torchlens._files.sealed import Json, as_list, as_object
from torchlens._records import Opaque
from torchlens._values.ghost import RECORDED, Recorded
from torchlens._values.plain import opaque
from torchlens.saving.checks import as_integer, as_items, as_text

Number: TypeAlias = Callable[[Recorded], int]
"""Gives a tensor its number in the file."""
TensorOf: TypeAlias = Callable[[int], Recorded]
_Read: TypeAlias = Callable[[object], Any]

DTYPES: Final = {
    str(found).removeprefix("torch."): found
    for found in cast("dict[str, object]", vars(torch)).values()
    if isinstance(found, torch.dtype)
}
"""Every dtype of this torch, the quantized too, by name."""
LAYOUTS: Final = {
    str(found).removeprefix("torch."): found
    for found in cast("dict[str, object]", vars(torch)).values()
    if isinstance(found, torch.layout)
}
_MEMORY_FORMATS: Final = {
    str(found): found
    for found in (torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)
}
_TYPES: Final[dict[str, type[object]]] = {"bool": bool, "int": int, "float": float, "complex": complex}
_MOST_DEPTH: Final = 100
"""Deeper than any arguments are recorded; a file that nests more is not ours."""
_LARGE: Final = 2**61 - 1
"""Numbers from here on may have one hash, and a dict of many of them takes for ever to build."""
_MOST_LARGE: Final = 1000
_MOST_LETTERS: Final = 200
"""Of the name of a field or class."""


def encode(value: Any, number: Number) -> Json:
    """A recorded value as JSON."""
    kind = cast("type[Any]", type(value))
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if -_LARGE < value < _LARGE else {"int": hex(value)}
    if issubclass(kind, RECORDED):
        return {"t": number(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind is tuple:
        return [encode(item, number) for item in value]
    writer = _WRITERS.get(kind)
    if writer is not None:
        return writer(value, number)
    if issubclass(kind, tuple):
        return _encode_named(value, number)
    if hasattr(kind, "__dataclass_fields__"):
        return _encode_dataclass(value, number)
    stands = opaque(value)  # a generator of random numbers
    return {"opaque": [stands.type_name, stands.text]}


def _encode_named(value: Any, number: Number) -> Json:
    """A named tuple; a plain one where its names could not be read again."""
    items = [encode(item, number) for item in value]
    fields: list[str] = list(value._fields)
    fit = len(fields) == len(items) and all(is_field(field) and field[0] != "_" for field in fields)
    return {"named": [_class_name(value), fields, items]} if fit else items


def _encode_dataclass(value: Any, number: Number) -> Json:
    """Its fields, and which of them are items too, as in a dict of its fields."""
    held: dict[str, Any] = {}
    for at, field in enumerate(dataclasses.fields(value)):
        with suppress(AttributeError):  # it was deleted, or never set
            name = field.name if is_field(field.name) else f"field_{at}"
            held[name] = object.__getattribute__(value, field.name)
    fields: list[Json] = [[name, encode(item, number)] for name, item in held.items()]
    if not isinstance(value, dict):
        return {"dataclass": [_class_name(value), "object", fields, []]}
    keys = cast("dict[str, object]", value)
    items: list[Json] = [key for key in held if dict.__contains__(keys, key)]
    base = "ordered" if isinstance(value, OrderedDict) else "dict"
    return {"dataclass": [_class_name(cast("object", value)), base, fields, items]}


def _encode_items(value: Mapping[Any, Any], number: Number) -> list[Json]:
    return [[encode(key, number), encode(item, number)] for key, item in value.items()]


_WRITERS: Final[dict[type[Any], Callable[[Any, Number], Json]]] = {
    list: lambda value, number: {"list": [encode(item, number) for item in value]},
    dict: lambda value, number: {"dict": _encode_items(value, number)},
    OrderedDict: lambda value, number: {"ordered": _encode_items(value, number)},
    slice: lambda value, number: {
        "slice": [encode(part, number) for part in (value.start, value.stop, value.step)]
    },
    complex: lambda value, number: {"complex": [str(value.real), str(value.imag)]},
    bytes: lambda value, number: {"bytes": base64.b64encode(value).decode()},
    type(Ellipsis): lambda value, number: {"ellipsis": None},
    torch.dtype: lambda value, number: {"dtype": str(value).removeprefix("torch.")},
    torch.device: lambda value, number: {"device": str(value)},
    torch.layout: lambda value, number: {"layout": str(value).removeprefix("torch.")},
    torch.memory_format: lambda value, number: {"memory_format": str(value)},
    torch.Size: lambda value, number: {"size": list(value)},
    type: lambda value, number: {"type": value.__name__},
    Opaque: lambda value, number: {"opaque": [value.type_name, value.text]},
}


def decode(found: object, tensor_of: TensorOf) -> Any:
    """The value that a JSON text said; a `ValueError` for what `encode` does not write."""
    return _decode(found, tensor_of, 0)


def _decode(found: object, tensor_of: TensorOf, depth: int) -> Any:
    if found is None or type(found) in (str, int, float, bool):
        return found
    if depth > _MOST_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(found, list):
        return tuple([_decode(item, tensor_of, depth + 1) for item in cast("list[object]", found)])
    fields = as_object(found)
    if len(fields) != 1:
        raise ValueError(f"{str(found)[:60]!r} is no argument")
    ((word, content),) = fields.items()
    if word == "t":
        return tensor_of(as_integer(content))
    reader = _READERS.get(word)
    if reader is None:
        raise ValueError(f"{word[:40]!r} is no kind of argument")
    return reader(content, lambda item: _decode(item, tensor_of, depth + 1))


def _items(content: object, read: _Read) -> list[Any]:
    return [read(item) for item in as_list(content, "items")]


def _pairs(content: object, read: _Read) -> list[tuple[Any, Any]]:
    pairs: list[tuple[Any, Any]] = []
    for pair in as_list(content, "pairs"):
        key, item = as_items(pair, 2)
        made = read(key)
        hash(made)
        pairs.append((made, read(item)))
    if sum(isinstance(key, (int, float)) and abs(key) >= _LARGE for key, _ in pairs) > _MOST_LARGE:
        raise ValueError("a dict has keys that were made to collide")
    return pairs


def _slice(content: object, read: _Read) -> slice[Any, Any, Any]:
    start, stop, step = map(read, as_items(content, 3))
    return slice(start, stop, step)


def _opaque(content: object, read: _Read) -> Opaque:
    type_name, text = map(as_text, as_items(content, 2))
    return Opaque(type_name, text)


def _complex(content: object, read: _Read) -> complex:
    real, imaginary = map(as_text, as_items(content, 2))
    return complex(float(real), float(imaginary))


def _named(content: object, read: _Read) -> Any:
    name, fields, items = as_items(content, 3)
    values = _items(items, read)
    kind = _tuple_class(_identifier(name), tuple(map(_identifier, as_list(fields, "fields"))))
    make = cast("Callable[[Any, list[Any]], Any]", getattr(tuple, "__new__"))  # noqa: B009 - typed by hand
    if len(values) != len(cast("Any", kind)._fields):
        raise ValueError(f"a {name} has {len(values)} items")
    return make(kind, values)


def _dataclass(content: object, read: _Read) -> Any:
    name, base, fields, items = as_items(content, 4)
    pairs = [as_items(field, 2) for field in as_list(fields, "fields")]
    held = {_identifier(key): read(item) for key, item in pairs}
    if as_text(base) not in _BASES:
        raise ValueError(f"{as_text(base)[:40]!r} is no base of a dataclass")
    keys = [*map(_identifier, as_list(items, "items"))]
    if set(keys) - held.keys() or (keys and base == "object"):
        raise ValueError(f"a {as_text(name)[:60]} has items that are none of its fields")
    value = object_of_fields(as_text(name), _BASES[as_text(base)], held)
    for key in keys:
        value[key] = held[key]
    return value


def object_of_fields(name: str, base: type[Any], held: Mapping[str, Any]) -> Any:
    """An object with these attributes, of a dataclass made for it: the one of the run is the user's code."""
    kind = _dataclass_of(_identifier(name), base, tuple(held))
    make = cast("Callable[[type[Any]], Any]", kind.__new__)
    value = make(kind)
    for key, item in held.items():
        object.__setattr__(value, key, item)
    return value


_BASES: Final[dict[str, type[Any]]] = {"object": object, "dict": dict, "ordered": OrderedDict}
_READERS: Final[dict[str, Callable[[object, _Read], Any]]] = {
    "list": _items,
    "dict": lambda content, read: dict(_pairs(content, read)),
    "ordered": lambda content, read: OrderedDict(_pairs(content, read)),
    "slice": _slice,
    "complex": _complex,
    "float": lambda content, read: float(_word(content, {"nan": "nan", "inf": "inf", "-inf": "-inf"})),
    "int": lambda content, read: int(as_text(content), 16),
    "bytes": lambda content, read: base64.b64decode(as_text(content), validate=True),
    "ellipsis": lambda content, read: ...,
    "dtype": lambda content, read: _word(content, DTYPES),
    "device": lambda content, read: device_of(as_text(content)),
    "layout": lambda content, read: _word(content, LAYOUTS),
    "memory_format": lambda content, read: _word(content, _MEMORY_FORMATS),
    "size": lambda content, read: torch.Size([as_integer(size) for size in as_list(content, "sizes")]),
    "type": lambda content, read: _word(content, _TYPES),
    "named": _named,
    "dataclass": _dataclass,
    "opaque": _opaque,
}


_untyped_tuple = cast("Callable[[str, tuple[str, ...]], type[Any]]", vars(collections)["namedtuple"])


@lru_cache(256)
def _tuple_class(name: str, fields: tuple[str, ...]) -> type[Any]:
    """Torch's class of packed sequences, or a class made for the name: the user's is code."""
    if (name, fields) == (PackedSequence.__name__, PackedSequence._fields):
        return PackedSequence
    return _untyped_tuple(name, fields)


@lru_cache(256)
def _dataclass_of(name: str, base: type[Any], fields: tuple[str, ...]) -> type[Any]:
    bases = () if base is object else (base,)
    return make_dataclass(name, fields, bases=bases, init=False, eq=False)


def is_field(name: object) -> bool:
    """Whether a file may name a field or a class so."""
    if (
        not isinstance(name, str)
        or len(name) > _MOST_LETTERS
        or (name.startswith("__") and name.endswith("__"))
    ):
        return False
    plain = unicodedata.normalize("NFKC", name)  # as Python reads it: two spellings may be one name
    return plain == name and name.isidentifier() and not keyword.iskeyword(name)


def _class_name(value: object) -> str:
    name = type(value).__name__
    return name if is_field(name) else "Anonymous"


def _identifier(found: object) -> str:
    name = as_text(found)
    if not is_field(name):
        raise ValueError(f"{name[:60]!r} is no name of a field")
    return name


def device_of(text: str) -> torch.device:
    """A device by name; a `ValueError` if torch knows none of it."""
    try:
        return torch.device(text)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{text[:40]!r} is no device") from error


def _word(found: object, known: Mapping[str, Any]) -> Any:
    """What a word stands for."""
    name = as_text(found)
    if name not in known:
        raise ValueError(f"torch {torch.__version__} has no {name[:60]!r}")
    return known[name]
