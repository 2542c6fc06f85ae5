"""Reading values back: by key, memory-mapped, when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from torchlens._files.contents import about_of, find_contents
from torchlens._files.dtypes import DTYPES
from torchlens._files.layout import About, Status, ValueLine
from torchlens._files.mapping import MappedShard, check_hash
from torchlens._unseen import unseen
from torchlens.errors import DamagedFileError, FileFormatError, MissingKeyError, MissingValueError


class StoredValues(Mapping[str, Tensor]):
    """The values in a directory, by key: those that can be read; `missing` has the reasons for the others.

    Opening reads the manifest and the index. A value's shard is mapped when the first one in it is read, and
    nothing is copied: a tensor reads the file when its elements are touched, and stays valid without this
    object. Tensors are on the CPU and need no gradient. Writing into one changes neither the file nor what
    is read later, except through numpy, where torch can't tell.

    A file that is not as it was written raises `DamagedFileError`; a flipped bit among the elements is found
    only by `verify`, which reads everything. A file that is cut off while it is mapped ends the process, as
    for every mapping: don't write to the directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._found = find_contents(self.path)
        self._mapped: dict[int, MappedShard] = {}
        self._bases: dict[int, tuple[Tensor, int]] = {}
        self._lock = Lock()

    @property
    def status(self) -> Status:
        """Whether the writer was closed with everything on the disk; else `missing` says what is not."""
        return self._found.status

    @property
    def failure(self) -> str | None:
        """What ended the writing before its time, such as a full disk."""
        return self._found.failure

    @property
    def missing(self) -> Mapping[str, str]:
        """Reasons by key of the values that were put and can't be read."""
        return {key: line.reason for key, line in self._found.missing.items()}

    def why_missing(self, key: str) -> str | None:
        """The reason for which a value that was put can't be read; None for one that can, or was not put."""
        line = self._found.missing.get(key)
        return None if line is None else line.reason

    def about(self, key: str) -> About:
        """What was noted beside a value when it was put, also for a missing one."""
        try:
            return about_of(self._found, key)
        except KeyError:
            raise self._unknown(key) from None

    def verify(self) -> None:
        """Read every shard whole and raise `DamagedFileError` unless each is what was written."""
        for shard in self._found.shards:
            check_hash(self.path, shard)

    def __getitem__(self, key: str) -> Tensor:
        if key in self._found.missing:
            reason = self._found.missing[key].reason
            raise MissingValueError(f"value {key!r} is not on the disk: {reason}")
        if key not in self._found.values:
            raise self._unknown(key)
        line, shard = self._found.values[key]
        if line.dtype not in DTYPES:
            raise FileFormatError(
                f"value {key!r} has dtype {line.dtype[:40]!r}, which torch {torch.__version__} lacks; "
                "read it with the torch that wrote it"
            )
        with unseen(), torch.inference_mode(False), torch.no_grad():
            return self._tensor(line, shard)

    def __contains__(self, key: object) -> bool:
        return key in self._found.values

    def __iter__(self) -> Iterator[str]:
        return iter(self._found.values)

    def __len__(self) -> int:
        return len(self._found.values)

    def __repr__(self) -> str:
        count, missing = len(self._found.values), len(self._found.missing)
        return f"<{count} values, {missing} missing, {self.status}: {str(self.path)!r}>"

    def _unknown(self, key: str) -> MissingKeyError:
        return MissingKeyError(f"{self.path} has no value {key!r}; list() and .missing show those it has")

    def _tensor(self, line: ValueLine, shard: int | None) -> Tensor:
        dtype = DTYPES[line.dtype]
        if line.blob is None or shard is None:
            base = torch.empty(0, dtype=torch.uint8, device="cpu")
        else:
            with self._lock:
                base = self._base(line.blob, shard)
        _check_geometry(self.path, line, base.nbytes, dtype.itemsize)
        elements = base.detach()[: base.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
        tensor = elements.as_strided(line.shape, line.stride, line.offset).detach()
        tensor = tensor.conj() if line.conj else tensor
        return tensor._neg_view() if line.neg else tensor

    def _base(self, blob: int, shard: int) -> Tensor:
        """The bytes of a blob, as in the file.

        What is handed out shares the version counter of this tensor. If it moved, somebody wrote into the
        mapped memory, and the file is mapped anew.
        """
        if blob in self._bases:
            base, version = self._bases[blob]
            if base._version == version:
                return base
            del self._mapped[shard]
        if shard not in self._mapped:
            self._mapped[shard] = MappedShard(self.path, self._found.shards[shard])
        storage = self._mapped[shard].blob(blob)
        base = torch.empty(0, dtype=torch.uint8, device="cpu")
        base.set_(storage, 0, (storage.nbytes(),), (1,))
        self._bases[blob] = base, base._version
        return base


def _check_geometry(path: Path, line: ValueLine, nbytes: int, itemsize: int) -> None:
    """Raise unless all elements lie in the blob and torch can count them."""
    last = line.offset + sum((size - 1) * step for size, step in zip(line.shape, line.stride))
    empty = 0 in line.shape
    numel = prod(size for size in line.shape if size)
    if len(line.shape) > 64 or numel >= 2**62 or (not empty and (last + 1) * itemsize > nbytes):
        raise DamagedFileError(
            f"value {line.key!r} in {path} has shape {list(line.shape)}, strides {list(line.stride)} and "
            f"offset {line.offset}, which do not fit its {nbytes} bytes; copy the index again"
        )
