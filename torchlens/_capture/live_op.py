"""An op as selectors see it while the model runs: what is known right after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor

from torchlens._keys.chains import Chains, Frame
from torchlens._keys.names import operation_of, torch_name
from torchlens._values.geometry import bytes_of, shape_of
from torchlens.errors import UnreadableError


class LiveModule(NamedTuple):
    """The innermost module that was running."""

    address: str
    type: str


class Surroundings(Protocol):
    """What an op's row does not tell by itself."""

    chains: Chains

    def around(self, call: int) -> frozenset[str]: ...
    def module(self, call: int) -> LiveModule: ...
    def is_output_of(self, row: int, slot: int, address: str) -> bool | None: ...
    def ask(self, op: LiveOp, predicate: Callable[[Any], object]) -> bool: ...


class LiveOp:
    """An op of the running forward, with the attributes of `Op` that are known by now."""

    def __init__(
        self, row: tuple[Any, ...], place: tuple[int, int], name: tuple[str, str, str | None], out: Tensor,
        around: Surroundings,
    ) -> None:  # fmt: skip
        self.kind: str = row[0]
        self.func: Any = row[1]
        self.row, self.output_slot = place
        self.func_name, self.type, self.label = name
        self.out = out
        self._site: int = row[2]
        self._call: int = row[3]
        self._around = around

    def __getattr__(self, name: str) -> NoReturn:
        known = [each for each in (*vars(self), *vars(LiveOp)) if not each.startswith("_")]
        raise UnreadableError(
            f"an op has no {name!r} while the model runs; what is known by then: {', '.join(sorted(known))}"
        )

    @property
    def operation(self) -> str:
        return operation_of(torch_name(self.func)) if self.kind in ("call", "boundary") else self.kind

    @property
    def composites(self) -> tuple[str, ...]:
        return tuple(map(torch_name, self._around.chains.composites(self._site)))

    @property
    def call_site(self) -> tuple[Frame, ...]:
        return self._around.chains.frames(self._site)

    @property
    def scopes(self) -> frozenset[str]:
        return self._around.around(self._call)

    @property
    def module(self) -> LiveModule:
        return self._around.module(self._call)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.out)

    @property
    def dtype(self) -> torch.dtype:
        return self.out.dtype

    @property
    def device(self) -> torch.device:
        return self.out.device

    @property
    def nbytes(self) -> int:
        return bytes_of(self.out)

    @property
    def requires_grad(self) -> bool:
        return self.out.requires_grad

    def is_output_of(self, address: str) -> bool | None:
        return self._around.is_output_of(self.row, self.output_slot, address)

    def ask(self, predicate: Callable[[Any], object]) -> bool:
        return self._around.ask(self, predicate)
