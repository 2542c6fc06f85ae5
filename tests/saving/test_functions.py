"""The closed list: what a file may name is torch's own computation, and every name leads back to itself."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchlens.saving.functions import Unresolved, _listed, name_of, resolve

SPELLED = {
    torch.add: ("torch", "add"),
    torch.einsum: ("torch.functional", "einsum"),
    torch.zeros: ("torch", "zeros"),
    torch.from_numpy: ("torch", "from_numpy"),
    torch.Tensor.add_: ("torch.Tensor", "add_"),
    torch.Tensor.__rsub__: ("torch.Tensor", "__rsub__"),
    torch.Tensor.T.__get__: ("torch.Tensor.get", "T"),
    torch.Tensor.grad.__get__: ("torch.Tensor.get", "grad"),
    torch.Tensor.data.__set__: ("torch.Tensor.set", "data"),
    F.relu: ("torch.nn.functional", "relu"),
    F.scaled_dot_product_attention: ("torch.nn.functional", "scaled_dot_product_attention"),
    torch._C._nn.gelu: ("torch.nn.functional", "gelu"),
    torch.linalg.norm: ("torch.linalg", "norm"),
    torch.fft.fft: ("torch.fft", "fft"),
    torch.special.expit: ("torch.special", "expit"),
    torch.nn.init.normal_: ("torch.nn.init", "normal_"),
    torch.ops.aten.add.Tensor: ("torch.ops.aten", "add.Tensor"),
    torch.ops.aten.relu: ("torch.ops.aten", "relu"),
}


@pytest.mark.parametrize("func", SPELLED, ids=lambda func: ".".join(SPELLED[func]))
def test_a_function_of_torch_is_named_and_found(func: Any) -> None:
    assert name_of(func) == SPELLED[func]
    assert resolve(SPELLED[func]) == func


def test_every_listed_name_leads_to_one_function() -> None:
    for name, func in _listed().items():
        found = name_of(func)
        assert not isinstance(found, Unresolved), name
        assert resolve(found) == func


def test_nothing_listed_is_a_class_or_a_module_or_loads() -> None:
    for (namespace, name), func in _listed().items():
        assert callable(func) and not isinstance(func, (type, types.ModuleType)), (namespace, name)
        module = str(func.__module__) if hasattr(func, "__module__") else ""
        where = f"{namespace}.{name} of {module}"
        assert not any(word in name for word in ("pickle", "reduce_ex", "setstate", "from_file")), where
        assert name not in ("load", "save", "compile", "eval", "exec", "fork", "import_ir_module"), where
        assert not module.startswith(("torch.serialization", "torch.hub", "torch.jit", "torch.package")), (
            where
        )


@pytest.mark.parametrize(
    "name",
    [
        ("torch", "load"),
        ("torch", "Generator"),
        ("torch.ops.aten", "add.Tensor.more"),
        ("torch.ops.aten", "add.__class__"),
        ("torch.ops.aten", ""),
        ("torch.ops", "aten"),
        ("torch.Tensor.get", "__class__"),
        ("torch.Tensor.get", "__dict__"),
        ("", ""),
        ("builtins", "print"),
    ],
)
def test_other_names_lead_nowhere(name: tuple[str, str]) -> None:
    assert resolve(name) is None


def test_a_function_that_is_not_listed_keeps_its_name() -> None:
    def mine(x: Any) -> Any:
        return x

    assert name_of(mine) == Unresolved(__name__, "mine")
    assert name_of(name_of(mine)) == Unresolved(__name__, "mine")
