"""The cost of one call of a torch function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._C import DisableTorchFunction
from torch._ops import OpOverload
from torch.utils import flop_counter

from torchlens.flops.cost import FREE, Cost, UncountedError, product_cost, unknown
from torchlens.flops.direct import direct_cost
from torchlens.flops.meta_run import run_cost
from torchlens.flops.operators import qualified_name
from torchlens.flops.rules import rule_for


def count(func: object, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, out: object) -> Cost:
    """FLOPs and MACs of the call `func(*args, **kwargs)` that returned `out`.

    Matrix products, convolutions, recurrent layers and attention: 2 FLOPs a multiply-add, without bias, and
    without halving for a causal mask. Elementwise operations one FLOP an element of the output, softmax and
    normalisation among them; reductions one an element that enters. Views, copies, indexing, factories 0.
    A composition of these costs what it is made of, its matrix products alone where it has some.
    Everything else, and work on no elements, has None and the reason. Reads shapes only; never raises.
    """
    try:
        # A mode of the caller would see what is done here.
        with DisableTorchFunction():
            cost = _count(func, args, kwargs or {}, out)
    except UncountedError as error:
        return unknown(str(error))
    except Exception as error:  # noqa: BLE001  reading a trace must not fail for want of a count
        return unknown(f"Its arguments are not of the form that is known: {type(error).__name__}: {error}.")
    if cost.flops == 0 and cost is not FREE:
        return unknown("Its tensors hold no elements, so nothing was computed.")
    return cost


def _count(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: object) -> Cost:
    qualified = qualified_name(func)
    if qualified is None:
        raise UncountedError(f"`{getattr(func, '__name__', type(func).__name__)}` is no function of torch's.")
    name = qualified[1]
    rule = rule_for(*qualified)
    if rule == "operator" and getattr(torch.ops.aten, name) not in flop_counter.flop_registry:
        raise UncountedError(f"No count is known for `{name}`.")
    if rule in ("run", "operator"):
        return run_cost(name, func, args, kwargs)
    if rule == "custom":
        return _custom_cost(func, args, kwargs, out)
    if rule == "none":
        raise UncountedError(f"`{name}` is no tensor operation of torch's.")
    return direct_cost(rule, name, args, kwargs, out)


def _custom_cost(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: object) -> Cost:
    """By the formula that someone registered with torch for a custom operator."""
    packet = func.overloadpacket if isinstance(func, OpOverload) else func
    formula = flop_counter.flop_registry.get(packet)
    if formula is None:
        raise UncountedError(
            f"`{packet}` is a custom operator for which `torch.utils.flop_counter` has no registered formula."
        )
    with torch.no_grad():
        return product_cost(int(formula(*args, **kwargs, out_val=out)))
