"""What stands in a saved trace: its files, and the columns of its tables.

`manifest.json` says what the file is and has the size and hash of every other part. `record.json` has what
there is once: the model's structure, options, how the run ended. The tables have what there is many times.
Tensors are parts of storages; the storages' bytes are in safetensors files. Everything refers to other things
by number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from torchlens._arrow import Column

FORMAT: Final = "torchlens trace"
VERSION: Final = 1
SUFFIX: Final = ".tlens"
"""Of a trace in one file; without it, it is a directory."""
MANIFEST: Final = "manifest.json"
RECORD: Final = "record.json"
SHARD_NAME: Final = re.compile(r"values-[0-9]{5}\.safetensors")

TABLES: Final[Mapping[str, Sequence[Column]]] = {
    "rows": (
        Column("kind", "string", "input, call, boundary, buffer, source or output"),
        Column("function", "int64", "number in the list of functions"),
        Column("site", "int64", "number in the table of sites"),
        Column("call", "int64", "number of the innermost module call"),
        Column("context", "int64", "number in the list of contexts"),
        Column("args", "string", "positional arguments as JSON"),
        Column("kwargs", "string", "keyword arguments as JSON", nullable=True),
        Column("outs", "list<int64>", "tensors that the call gave"),
        Column("is_tuple", "bool", "whether it gave them in a tuple"),
        Column("versions", "list<int64>", "torch's version counter of each; -1: it has none"),
        Column("duration", "int64", "nanoseconds", nullable=True),
        Column("side", "string", "where the tensor stood beside a binary operator", nullable=True),
        Column("name", "string", "torch's name of the function"),
        Column("known", "bool", "whether the spelling in the code was told"),
        Column("reshaped", "bool", "whether the call changed a tensor's shape in place"),
        Column("positions", "list<string>", "argument positions of parameters"),
        Column("params", "list<int64>", "the parameters there"),
        Column("flops", "string", "floating-point operations, in decimal", nullable=True),
        Column("macs", "string", "multiply-adds, in decimal", nullable=True),
        Column("flops_reason", "string", "why there are no flops", nullable=True),
    ),
    "ops": (
        Column("layer", "int64", "number in the table of layers"),
        Column("requires_grad", "bool", "whether the value needed a gradient"),
        Column("inplace", "bool", "whether the call wrote into the tensor"),
        Column("positions", "list<string>", "argument positions of parents"),
        Column("parents", "list<int64>", "the ops there"),
    ),
    "layers": (
        Column("label", "string", "type and number"),
        Column("type", "string", "the name without outer underscores"),
        Column("func_name", "string", "the call as the code wrote it"),
        Column("module", "int64", "number of the module"),
    ),
    "sites": (
        Column("frames", "list<int64>", "numbers in the table of frames, outermost first"),
        Column("composites", "list<string>", "Python-written torch functions on the way"),
    ),
    "frames": (
        Column("file", "string", "source file"),
        Column("function", "string", "qualified name"),
        Column("line", "int64", "from 1", nullable=True),
        Column("end_line", "int64", "from 1", nullable=True),
        Column("column", "int64", "from 0, in UTF-8 bytes", nullable=True),
        Column("end_column", "int64", "from 0, in UTF-8 bytes", nullable=True),
    ),
    "module_calls": (
        Column("module", "int64", "number of the module"),
        Column("parent", "int64", "number of the call around it"),
        Column("number", "int64", "1 for the module's first call"),
        Column("start", "int64", "first row"),
        Column("end", "int64", "one past the last row", nullable=True),
        Column("args", "string", "positional arguments as JSON"),
        Column("kwargs", "string", "keyword arguments as JSON"),
        Column("output", "string", "what the caller received, as JSON"),
    ),
    "tensors": (
        Column("storage", "int64", "number in the table of storages"),
        Column("dtype", "string", "element type"),
        Column("device", "string", "where it was"),
        Column("layout", "string", "how its elements lie"),
        Column("shape", "list<int64>", "size of each dimension; -1 where parts differ"),
        Column("offset", "int64", "elements from the storage's start"),
        Column("size", "list<int64>", "sizes of the region of the storage that it covers"),
        Column("stride", "list<int64>", "strides of that region, in elements"),
        Column("itemsize", "int64", "bytes of an element of that region"),
        Column("nbytes", "string", "bytes of its elements, in decimal"),
        Column("requires_grad", "bool", "whether it needed a gradient"),
        Column("is_nested", "bool", "whether it is a nested tensor"),
        Column("is_conj", "bool", "whether it shows the conjugate of its elements"),
        Column("is_neg", "bool", "whether it shows the negative of its elements"),
        Column("parts", "string", "what a composite tensor consists of, as JSON", nullable=True),
        Column("row", "int64", "the row that gave it, where only its looks were kept", nullable=True),
        Column("before", "int64", "what the same tensor was before that row", nullable=True),
        Column("kept", "int64", "the tensor that holds its value", nullable=True),
        Column("kept_row", "int64", "the row after which that was put by", nullable=True),
        Column("reason", "string", "why its value can't be read", nullable=True),
    ),
    "storages": (
        Column("shard", "int64", "number of the safetensors file; null: it has no bytes", nullable=True),
        Column("begin", "int64", "first byte in that file"),
        Column("nbytes", "int64", "bytes from the first to the last that a tensor shows"),
        Column("low", "int64", "which byte of the storage the first one is"),
        Column("sha256", "string", "of the bytes"),
    ),
    "writes": (
        Column("storage", "int64", "number of the storage"),
        Column("row", "int64", "the row that wrote"),
        Column("slot", "int64", "which of its outputs; null: the call failed", nullable=True),
        Column("tensor", "int64", "what was written"),
        Column("region", "int64", "where the saved elements belong"),
        Column("index", "string", "where in that region, as JSON", nullable=True),
        Column("saved", "int64", "the elements that were overwritten", nullable=True),
        Column("lost", "string", "why they were not saved", nullable=True),
        Column("bumps", "int64", "by how much it raised the version counter"),
    ),
}


def shard_name(number: int) -> str:
    """The file that holds the n-th part of the storages."""
    return f"values-{number:05d}.safetensors"


def table_name(table: str) -> str:
    """The file of a table."""
    return f"{table}.arrow"
