"""What inputs and outputs go by: where they stand in what root calls received and returned."""

from __future__ import annotations

from collections.abc import Iterator

from torchlens._records import ModuleCallEntry, Record
from torchlens._values.ghost import Recorded
from torchlens._values.paths import paths_in


def input_names(record: Record) -> dict[int, str]:
    """By row of the input: parameter and path, `batch["image"]`, as the capture wrote them down."""
    if not record.input_names:
        return _found_in_calls(record)
    return {row: name for row, name in zip(record.inputs, record.input_names) if name is not None}


def _found_in_calls(record: Record) -> dict[int, str]:
    """The same of a file that has no names of parameters: `args[0]`, or a keyword."""
    roots = _root_calls(record)
    if not record.is_block and [call.module for call in roots] != [0]:
        return {}  # a function was called, whose arguments are not written down
    names: dict[int, str] = {}
    for call in roots:
        for name, tensor in _arguments(call):
            names.setdefault(id(tensor), name)
    found = ((row, names.get(id(record.rows.out[row]))) for row in record.inputs)
    return {row: name for row, name in found if name is not None}


def _arguments(call: ModuleCallEntry) -> Iterator[tuple[str, Recorded]]:
    for path, tensor in paths_in(call.args):
        yield f"args{path}", tensor
    for keyword, value in call.kwargs.items():
        for path, tensor in paths_in(value):
            yield f"{keyword}{path}", tensor


def output_names(record: Record) -> dict[int, str]:
    """By row of the output: `logits`, `["loss"]`, `[1][0]`; none for a tensor that was returned by itself."""
    returned = [call.output for call in _root_calls(record) if call.end is not None]
    paths = [
        path for value in (returned if record.is_block else [record.output]) for path, _ in paths_in(value)
    ]
    if len(paths) != len(record.outputs):
        return {}
    return {row: path.removeprefix(".") for row, path in zip(record.outputs, paths) if path}


def _root_calls(record: Record) -> list[ModuleCallEntry]:
    return [record.module_calls[call] for call in record.root_calls]
