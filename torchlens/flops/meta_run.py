"""Running a function once on meta tensors, to add up the operators it dispatches.

Torch's `FlopCounterMode` is not entered itself: it registers global module hooks, which other threads' models
would run, and its dispatch mode imports the compiler. The formulas asked here are those of its table. Torch's
meta kernels of elementwise operators import the compiler too, so few functions come here that run any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import torch
from torch import Tensor
from torch._C import _DisableTorchDispatch
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode

from torchlens._records import Opaque
from torchlens.flops.cost import FREE, Cost, UncountedError, element_cost, product_cost, unknown
from torchlens.flops.direct import direct_cost, tensors_in
from torchlens.flops.operators import Operator, operator_name
from torchlens.flops.rules import rule_for

_SCALARS: Final = (int, float, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format)


class _Blank(NamedTuple):
    """A tensor without its elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class _Scalar(NamedTuple):
    type: type
    value: object


class _Sequence(NamedTuple):
    type: type
    items: tuple[object, ...]


_META: Final = _Scalar(torch.device, torch.device("meta"))


def run_cost(
    name: str, func: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Cost:
    """Cost of a torch function by the operators it is made of, worked out once for like arguments.

    Where there are matrix products, convolutions or attention among them, those alone are counted.
    """
    named = tuple([(key, _META if key == "device" else _freeze(value)) for key, value in kwargs.items()])
    return _cost(name, func, _freeze(args), named)


@lru_cache(maxsize=4096)
def _cost(
    name: str, func: Callable[..., object], args: object, kwargs: tuple[tuple[str, object], ...]
) -> Cost:
    try:
        try:
            tally = _run(func, args, kwargs, {})
        except (RuntimeError, TypeError):
            # Autocast let the call mix types; a count does not depend on them.
            tally = _run(func, args, kwargs, _WIDE)
        return tally.cost()
    except UncountedError as error:
        return unknown(str(error))
    except Exception as error:  # noqa: BLE001  functions raise anything without data
        return unknown(f"`{name}` cannot be run without data, it raises {type(error).__name__}.")


def _run(
    func: Callable[..., object],
    args: object,
    kwargs: tuple[tuple[str, object], ...],
    dtypes: Mapping[torch.dtype, torch.dtype],
) -> _Tally:
    tally = _Tally()
    # Composite functions are dispatched whole, not as what they are made of, if given inference tensors.
    with torch.inference_mode(False), torch.no_grad():
        with _DisableTorchDispatch():
            thawed: Any = _thaw(args, dtypes)
            named = {key: _thaw(value, dtypes) for key, value in kwargs}
        with tally:
            result = func(*thawed, **named)
    if not tally.operators and not isinstance(result, Tensor):
        raise UncountedError("It runs no operator of torch's, so what it does is not known.")
    return tally


_WIDE: Final = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float64: torch.float32,
    torch.complex32: torch.complex64,
    torch.complex128: torch.complex64,
}


class _Tally(TorchDispatchMode):
    """Adds up the operators dispatched under it."""

    def __init__(self) -> None:
        super().__init__()
        self.products = 0
        self.elements = 0
        self.operators = 0
        self.computes = False
        self.uncounted: dict[str, None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports the compiler, which takes two seconds

    def __torch_dispatch__(
        self,
        func: Operator,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        _refuse_drawing(func, args, kwargs)
        with _DisableTorchDispatch():  # modes of the caller see none of this
            out = func(*args, **kwargs)
        self.operators += 1
        self._add(func, args, kwargs, out)
        return out

    def _add(self, op: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: object) -> None:
        formula = flop_counter.flop_registry.get(op.overloadpacket)
        if formula is not None:
            self.products += int(formula(*args, **kwargs, out_val=out))
            self.computes = True
            return
        namespace, name = operator_name(op)
        rule = rule_for(namespace, name)
        if rule in ("run", "operator", "custom", "none"):
            self.uncounted[name] = None
            return
        cost = direct_cost(rule, name, args, kwargs, out)
        if cost.macs:
            self.products += cost.flops or 0
        else:
            self.elements += cost.flops or 0
        self.computes |= cost is not FREE

    def cost(self) -> Cost:
        """Of all that was dispatched."""
        if self.uncounted:
            names = ", ".join(f"`{name}`" for name in self.uncounted)
            raise UncountedError(f"It runs {names}, for which no count is known.")
        if self.products:
            return product_cost(self.products)
        return element_cost(self.elements) if self.computes else FREE


def _refuse_drawing(op: Operator, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Stop before a random generator would move: a meta tensor has none, the other devices do."""
    if torch.Tag.nondeterministic_seeded not in op.tags:
        return
    devices = [tensor.device for tensor in tensors_in(args)] or [kwargs.get("device")]
    if any(device != torch.device("meta") for device in devices):
        raise UncountedError(f"It draws random numbers with `{operator_name(op)[1]}` on its way.")


def _freeze(value: object) -> object:
    """An argument as something hashable that holds no tensor."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_nested:
            raise UncountedError("It works on a sparse or nested tensor, whose shape does not tell the work.")
        return _Blank(tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (tuple, list)):
        items = cast("tuple[object, ...] | list[object]", value)
        return _Sequence(list if isinstance(value, list) else tuple, tuple([_freeze(item) for item in items]))
    if isinstance(value, torch.device):
        return _META
    if isinstance(value, _SCALARS):
        return _Scalar(type(value), value)
    what = value.type_name if isinstance(value, Opaque) else type(value).__name__
    raise UncountedError(f"It has an argument of type `{what}`, which a run without data cannot be given.")


def _thaw(frozen: object, dtypes: Mapping[torch.dtype, torch.dtype]) -> object:
    if isinstance(frozen, _Blank):
        dtype = dtypes.get(frozen.dtype, frozen.dtype)
        return torch.empty_strided(frozen.shape, frozen.stride, dtype=dtype, device="meta")
    if isinstance(frozen, _Sequence):
        return frozen.type(_thaw(item, dtypes) for item in frozen.items)
    assert isinstance(frozen, _Scalar)
    return frozen.value
