"""Stand-ins for a model and its inputs: the same objects, with tensors that have no elements.

Torch's fake tensors say that they lie on the device that the real ones lie on, so that code which asks for it
takes its usual way, and their operators know shapes, strides and storages.
"""

from __future__ import annotations

import copy
from collections import ChainMap, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import CellType, FunctionType
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from torchlens._capture.unwrapping import root_of
from torchlens._values.plain import tensors_in
from torchlens.errors import PlanError


class StandInMode(FakeTensorMode):
    """What is on while stand-ins run: no operator computes, and no real tensor is written."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if type(func) is OpOverload:
            _refuse_writing(func, args, kwargs)
        with torch._C.DisableTorchFunction():  # TorchScript calls operators with the capture's mode on
            out: Any = super().__torch_dispatch__(func, types, args, kwargs)
        if func is _ATTENTION and not _argument(func, args, kwargs, "need_weights"):
            return out[0], None  # torch's rule for shapes has an empty tensor here, its kernel has none
        return out


_ATTENTION: Final = torch.ops.aten._native_multi_head_attention.default


def _argument(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Any:
    """An argument of an operator, or its default."""
    for at, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return args[at] if at < len(args) else kwargs.get(name, argument.default_value)
    return None


def _refuse_writing(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Stop before an operator raises the version counter of a tensor that is no stand-in."""
    for argument in func._schema.arguments if func._schema.is_mutable else ():
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        for tensor in tensors_in(_argument(func, args, kwargs, argument.name)):
            if not isinstance(tensor, FakeTensor):
                raise PlanError(
                    f"`{func._schema.name.partition('::')[2]}` would write into a real tensor of shape "
                    f"{tuple(tensor.shape)} that is not part of the model or its inputs"
                )


class StandIns:
    """Stand-ins for one run. The same tensor, module or container has one stand-in wherever it is met.

    Tensors on the meta device stand for tensors on the device of the inputs, so that a model that was built
    without memory is planned as it would run.
    """

    def __init__(self, inputs: Iterable[Tensor]) -> None:
        self.mode = StandInMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        devices = [tensor.device for tensor in inputs if not tensor.is_meta]
        self._device = devices[0] if devices else torch.device("cpu")
        self._memo: dict[int, Any] = {}
        self._copied_from: list[object] = []
        """What was copied, so that no id in the memo comes to mean another object."""
        """By the id of an original, as `copy.deepcopy` has it."""
        self._cells: list[tuple[CellType, Any]] = []
        """Variables of copied functions, and what they hold in the originals."""

    def of_model(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """A copy of a module, or of what a callable calls with the modules that it names."""
        root = root_of(model)
        if root is not None:
            self._take_in(root)
        function: object = model
        while isinstance(function, partial):
            function = cast("partial[Any]", function).func
        if isinstance(function, FunctionType):
            self._take_in_function(function)
        return self.of_value(model)

    def of_value(self, value: Any) -> Any:
        """A copy of a value and of everything in it."""
        with _MakingStandIns(self._of_tensor):
            copied = self._copy(value)
            while self._cells:
                cell, held = self._cells.pop()
                cell.cell_contents = self._copy(held)
        # torch exchanges parameters, as `module.to` does, only where no weak reference leads to them
        self.mode.fake_tensor_converter.tensor_memo.clear()
        return copied

    def _copy(self, value: Any) -> Any:
        added: dict[int, Any] = {}
        try:
            # where it fails half-way, what it had begun to copy is forgotten
            memo = ChainMap(added, self._memo)
            copied = copy.deepcopy(value, cast("dict[int, Any]", memo))
        except PlanError:
            raise
        except Exception:  # noqa: BLE001  objects that cannot be copied raise anything
            return self._copy_parts(value)
        # `deepcopy` keeps what it copied in a list under the memo's own id, which may be another's soon
        self._copied_from.append(added.pop(id(memo), None))
        self._memo.update(added)
        return copied

    def _copy_parts(self, value: Any) -> Any:
        """A copy of a value that holds something that cannot be copied; that is shared."""
        if isinstance(value, nn.Module):
            made = self._memo[id(value)] = value.__class__.__new__(value.__class__)
            for name, held in vars(value).items():
                vars(made)[name] = self._copy(held)
            return made
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value)
            copied = self._memo[id(items)] = copy.copy(items)
            copied.update({key: self._copy(item) for key, item in items.items()})
            return copied
        build = _BUILDERS.get(cast("type[object]", type(value)))
        made = value if build is None else build([self._copy(item) for item in value])
        self._memo[id(value)] = made
        return made

    def _take_in(self, root: nn.Module) -> None:
        """Make the stand-ins of what would copy bytes: parameters and TorchScript modules copy themselves."""
        for module in root.modules():
            if isinstance(module, torch.jit.ScriptModule):
                self._memo[id(module)] = module
                continue
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    self._memo[id(tensor)] = self._of_tensor(tensor)
            for value in _callables_of(module):
                if isinstance(value, FunctionType):
                    self._take_in_function(value)

    def _take_in_function(self, function: FunctionType) -> None:
        """Make a copy of a function that closes over, or names, modules, tensors or containers."""
        if id(function) in self._memo:
            return
        cells = {name: cell for name, cell in _cells_of(function) if isinstance(cell.cell_contents, _OWN)}
        scope = function.__globals__
        named = {
            name: scope[name]
            for name in function.__code__.co_names
            if isinstance(scope.get(name), (nn.Module, Tensor))
        }
        if not cells and not named:
            return
        copied = {name: CellType() for name in cells}
        closure = tuple(
            copied.get(name, cell)
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())
        )
        within = scope if not named else dict(scope)
        twin = FunctionType(
            function.__code__, within, function.__name__, function.__defaults__, closure or None
        )
        twin.__kwdefaults__ = function.__kwdefaults__
        twin.__qualname__ = function.__qualname__
        self._memo[id(function)] = twin
        for value in (*named.values(), *(cell.cell_contents for cell in cells.values())):
            if isinstance(value, nn.Module):
                self._take_in(value)
            elif isinstance(value, FunctionType):
                self._take_in_function(value)
        self._cells += [(copied[name], cell.cell_contents) for name, cell in cells.items()]
        if named:
            with _MakingStandIns(self._of_tensor):
                within.update({name: self._copy(value) for name, value in named.items()})

    def _of_tensor(self, tensor: Tensor) -> Tensor:
        if is_lazy(tensor):
            raise PlanError(
                "the model has a lazy module, whose parameters have no size before it has run once"
            )
        if not (tensor.is_meta or isinstance(tensor, FakeTensor)):
            try:
                return self.mode.from_tensor(tensor)
            except (UnsupportedFakeTensorException, NotImplementedError, RuntimeError) as error:
                raise PlanError(
                    f"the model or its inputs hold a {type(tensor).__name__} of shape {tuple(tensor.shape)}, "
                    f"{tensor.dtype} and {tensor.layout}, for which torch has no tensor without elements"
                ) from error
        device = self._device if tensor.is_meta else tensor.device
        with self.mode:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(made, tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad)


_BUILDERS: Final[Mapping[type[object], Callable[[list[Any]], Any]]] = {list: list, tuple: tuple, set: set}
_OWN: Final = (nn.Module, Tensor, list, dict, set, FunctionType)
"""What a function may close over that it could change, or that has parameters."""


def _cells_of(function: FunctionType) -> Iterator[tuple[str, CellType]]:
    """The variables that a function closes over, those without a value left out."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with suppress(ValueError):
            _ = cell.cell_contents
            yield name, cell


def _callables_of(module: nn.Module) -> Iterator[object]:
    """What a module holds itself, and its hooks."""
    for value in vars(module).values():
        if type(value) is OrderedDict:
            yield from cast("dict[object, object]", value).values()
        else:
            yield value


class _MakingStandIns(TorchFunctionMode):
    """While a copy is made: a tensor's copy is its stand-in, so that no element is read."""

    def __init__(self, of_tensor: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._of_tensor = of_tensor

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = self._of_tensor(tensor)
            return memo[id(tensor)]
        if func is Tensor.clone:  # how parameters and classes of others copy themselves
            return self._of_tensor(args[0])
        return func(*args, **(kwargs or {}))
