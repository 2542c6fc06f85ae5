"""`save` and `load`: traces in files."""

from __future__ import annotations

import os

from torchlens._api.features import AllFeatures
from torchlens._api.trace import Trace
from torchlens._trace.reader import TraceReader
from torchlens.errors import InputError
from torchlens.saving.reading import read_trace
from torchlens.saving.writing import write_trace
from torchlens.storage.disk import path_of


def save(trace: Trace, path: str | os.PathLike[str], *, params: bool = False) -> None:
    """Write a trace to a file or directory that `load` reads again.

    A path that ends in `.tlens` becomes one file (a zip that stores its parts as they are), any other a
    directory: JSON, Arrow tables and safetensors, no pickle. Every storage is written once, however many
    values share it. Parameters are not written unless `params=True`; without them a loaded trace has their
    shapes, and `check` says which calls it cannot make again. Nothing is overwritten: `PathTakenError` if
    anything is at the path, `UnwritablePathError` if it cannot be written, and then nothing is left there.

    >>> import tempfile, torch, torchlens as tl
    >>> path = tempfile.mkdtemp() + "/run.tlens"
    >>> tl.save(tl.trace(torch.nn.ReLU(), torch.tensor([-1.0, 2.0])), path)
    >>> tl.load(path)["relu_1"].out
    tensor([0., 2.])
    """
    write_trace(_reader_of(trace), path_of(path), params=params)


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `save` wrote. It answers what the saved one answered, and needs no model.

    Values are mapped, not read: their bytes are read, and checked against their hash, when they are asked
    for. They are on the CPU, whatever device the run was on, and have no autograd graph. Nothing in the file
    is run: a function is torch's own of that name, or a name.

    `PathNotFoundError` if there is nothing, `FileFormatError` if it is no saved trace or one that another
    version of the format describes, `DamagedFileError` if it is not as it was written.
    """
    result = Trace()
    result._read_from(read_trace(path_of(path), AllFeatures()))
    return result


def _reader_of(given: object) -> TraceReader:
    if not isinstance(given, Trace):
        raise InputError(f"tl.save writes a trace, not a {type(given).__name__}; give what tl.trace returned")
    return given._reader
