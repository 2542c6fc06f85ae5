"""Element types by name, and what a safetensors file calls them."""

from __future__ import annotations

from typing import Final, cast

import torch

QUANTIZED: Final = ("qint8", "qint32", "quint8", "quint4x2", "quint2x4")
"""They mean nothing without a scale."""

DTYPES: Final = {
    str(found).removeprefix("torch."): found
    for found in cast("dict[str, object]", vars(torch)).values()
    if isinstance(found, torch.dtype) and str(found).removeprefix("torch.") not in QUANTIZED
}
"""Those that this torch has, by the name in the index."""

NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}

_CODES: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_PAIRS: Final = {"complex128": "F64", "complex64": "F32", "complex32": "F16"}
WIDTHS: Final = {code: DTYPES[name].itemsize for name, code in _CODES.items() if name in DTYPES}
"""Bytes of an element, by code."""


def code_of(dtype: torch.dtype) -> tuple[str, int]:
    """What safetensors calls the elements, and how many of those make one: 2 for real and imaginary part.

    Types that the format has no name for are bytes there; the index has their name.
    """
    name = NAMES[dtype]
    if name in _PAIRS:
        return _PAIRS[name], 2
    return (_CODES[name], 1) if name in _CODES else ("U8", dtype.itemsize)
