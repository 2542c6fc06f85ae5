"""Every value of a snapshot, in a directory beside its text."""

from __future__ import annotations

import shutil
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor

from torchlens._files.layout import MANIFEST
from torchlens._files.values import StoredValues
from torchlens._files.writer import ValueWriter
from torchlens._trace.reader import TraceReader
from torchlens._unseen import unseen
from torchlens._values.geometry import dtype_name
from torchlens.errors import PathTakenError, UnwritablePathError
from torchlens.report.amounts import quantity
from torchlens.testing.by_statistics import compare_statistics
from torchlens.testing.description import LayerLine, value_of
from torchlens.testing.differences import Apart, CompareValues
from torchlens.testing.statistics import Tolerance
from torchlens.testing.unfilled import find_unfilled
from torchlens.validation.comparison import difference


def write_values(reader: TraceReader, directory: Path) -> None:
    """Write the values that a trace kept, by op label, in place of what the directory held."""
    _refuse_other_directories(directory)
    unfinished = directory.with_name(directory.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    writer = ValueWriter(unfinished)
    try:
        with unseen():
            unfilled = find_unfilled(reader)
            for op, label in enumerate(reader.op_labels):
                value = None if op in unfilled else value_of(reader, op)
                if value is not None:
                    writer.put(label, value, {"label": label})
    finally:
        writer.close()
    if writer.failure is not None:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise UnwritablePathError(f"{directory} cannot be written: {writer.failure}")
    remove_values(directory)
    unfinished.rename(directory)


def remove_values(directory: Path) -> None:
    """Remove a directory of values, if there is one; `PathTakenError` for one that holds something else."""
    _refuse_other_directories(directory)
    shutil.rmtree(directory, ignore_errors=True)


def _refuse_other_directories(directory: Path) -> None:
    if directory.is_dir() and not (directory / MANIFEST).is_file() and any(directory.iterdir()):
        raise PathTakenError(
            f"{directory} holds something else than values, and is not removed; delete it, or move it away"
        )


def comparing_values(reader: TraceReader, directory: Path, tolerance: Tolerance) -> CompareValues:
    """Compares the values of two layers pass by pass: bit for bit, or within the tolerance if one is given.

    Of a layer with a value that could not be written, as a nested tensor, the statistics are compared.
    """
    stored = StoredValues(directory)
    with unseen():
        unfilled = find_unfilled(reader)

    def compare(old: LayerLine, new: LayerLine) -> Apart | None:
        ops = reader.layering.layers[reader.layer_index[new.label]].ops
        keys = [f"{old.label}:{number}" for number in range(1, old.passes + 1)]
        if any(stored.why_missing(key) is not None for key in keys):
            return compare_statistics(old, new, tolerance)
        with unseen():
            pairs = [
                (op, _apart(stored.get(key), value_of(reader, op), tolerance))
                for op, key in zip(ops, keys)
                if op not in unfilled
            ]
        differing = [(op, text) for op, text in pairs if text is not None]
        if not differing:
            return None
        op, text = differing[0]
        if len(differing) > 1:
            text += f"; {quantity(len(differing) - 1, 'later pass', 'later passes')} too"
        layer_of, layers = reader.layering.layer_of, reader.layering.layers
        read = {parent: layers[layer_of[parent]].label for parent in reader.parents[op]}
        return Apart(op, f"pass {reader.layering.pass_of[op]}: {text}" if new.passes > 1 else text, read)

    return compare


def _apart(expected: Tensor | None, found: Tensor | None, tolerance: Tolerance) -> str | None:
    """What sets two values of one shape and dtype apart; None if nothing does."""
    if expected is None or found is None:
        if expected is found:
            return None
        return "its value is not kept" if found is None else "its value is kept, and the snapshot has none"
    host = found.cpu()
    return _out_of(expected, host, tolerance) if tolerance.is_given else difference(expected, host)


def _out_of(expected: Tensor, found: Tensor, tolerance: Tolerance) -> str | None:
    """How many elements are further apart than is allowed, and how far; None if none are."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    before, now = expected.to(wide), found.to(wide)
    distances, room = (now - before).abs(), tolerance.allowed(before.abs(), dtype_name(expected.dtype))
    same = (before == now) | (before.isnan() & now.isnan())
    far = ~same & ~(before.isfinite() & (distances <= room))  # an infinity has room for everything
    if not far.any():
        return None
    worst = float(distances[far].max())
    apart = f"up to {worst:.3g} apart" if isfinite(worst) else "not all of them finite"
    return f"{int(far.sum())} of {far.numel()} elements beyond the tolerance, {apart}"
