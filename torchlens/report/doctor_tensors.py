"""What the doctor looks for in parameters, buffers and inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from torchlens._capture.origins import attributes_of
from torchlens._values.plain import tensors_in
from torchlens.report.amounts import listed, quantity
from torchlens.report.doctor_subject import NamedTensor, Sign, Subject

_TORCHS: Final = (Tensor, nn.Parameter, UninitializedParameter, UninitializedBuffer)


def state_on_meta(subject: Subject) -> Iterator[Sign]:
    """Parameters and buffers without values."""
    state = [*subject.params, *subject.buffers]
    found = [held for held in state if held.tensor.is_meta]
    if found:
        yield Sign(
            "limited",
            f"{_share(found, state)} on meta: shapes, FLOPs and bytes are known, values are not",
            "model.to_empty(device=...) and load weights, where values matter",
        )


def state_devices(subject: Subject) -> Iterator[Sign]:
    """A model on other devices than the CPU, or on several."""
    found = _devices(subject)
    if len(found) > 1:
        yield Sign(
            "not tested",
            f"parameters and buffers on {listed(found)}: models over several devices are not in the tests",
            "tl.validate(model, x) checks this one",
        )
    elif found and found != ["cpu"]:
        yield Sign(
            "not tested",
            f"{found[0]}: the tests run on the CPU; durations of ops are the time it took to queue them",
            "tl.validate(model, x) checks this model there",
        )


def state_subclasses(subject: Subject) -> Iterator[Sign]:
    """Parameters and buffers of tensor subclasses."""
    yield from _subclasses([*subject.params, *subject.buffers])


def tied_parameters(subject: Subject) -> Iterator[Sign]:
    """Parameters that have several addresses."""
    addresses: dict[int, list[str]] = defaultdict(list)
    for address, tensor in subject.params:
        addresses[id(tensor)].append(address)
    found = [" = ".join(names) for names in addresses.values() if len(names) > 1]
    if found:
        yield Sign("ok", f"{listed(found)}: listed once, found under each address")


def input_devices(subject: Subject) -> Iterator[Sign]:
    """Inputs that are not where the model is."""
    homes = _devices(subject)
    for name, tensor in subject.inputs or ():
        if not homes or tensor.device.type == "meta" or str(tensor.device) in homes:
            continue
        yield Sign(
            "limited",
            f"input {name} is on {tensor.device}, the model on {listed(homes)}",
            f"move it: x.to({homes[0]!r})",
        )


def input_dtypes(subject: Subject) -> Iterator[Sign]:
    """Floating inputs of another dtype than the model's parameters."""
    dtypes = {str(p.tensor.dtype) for p in subject.params if p.tensor.is_floating_point()}
    for name, tensor in subject.inputs or ():
        if dtypes and tensor.is_floating_point() and str(tensor.dtype) not in dtypes:
            wanted = listed(sorted(dtypes))
            yield Sign(
                "limited",
                f"input {name} is {tensor.dtype}, the parameters {wanted}: most layers raise",
                f"x.to({sorted(dtypes)[0]})",
            )


def meta_inputs(subject: Subject) -> Iterator[Sign]:
    """Inputs that have no values."""
    inputs = subject.inputs or ()
    found = [held for held in inputs if held.tensor.is_meta]
    if found:
        yield Sign("limited", f"{_share(found, inputs, 'input ')} on meta: shapes are known, values are not")


def inference_inputs(subject: Subject) -> Iterator[Sign]:
    """Inputs whose values can't be told from later ones."""
    inputs = subject.inputs or ()
    found = [held for held in inputs if held.tensor.is_inference()]
    if found:
        yield Sign(
            "limited",
            f"{_share(found, inputs, 'input ')} made in inference mode: a later change can't be told",
            "x.clone() outside of inference mode",
        )


def input_subclasses(subject: Subject) -> Iterator[Sign]:
    """Inputs of tensor subclasses."""
    yield from _subclasses(list(subject.inputs or ()), "input ")


def input_gradients(subject: Subject) -> Iterator[Sign]:
    """Inputs that gradients are wanted for."""
    found = [held for held in subject.inputs or () if held.tensor.requires_grad]
    if found:
        yield Sign(
            "ok", f"{_share(found, subject.inputs or (), 'input ')} with gradients: they flow as without"
        )


def opaque_inputs(subject: Subject) -> Iterator[Sign]:
    """Inputs of classes that a capture does not look into."""
    arrays = sum(issubclass(type(value), np.ndarray) for value in subject.objects)
    if arrays:
        yield Sign(
            "limited",
            f"{quantity(arrays, 'numpy array')} among the inputs: a tensor made of one in the forward is no "
            "input, but a source or of unknown origin",
            "torch.from_numpy(array) before the call",
        )
    others = [value for value in subject.objects if not issubclass(type(value), np.ndarray)]
    holding = sorted({type(value).__name__ for value in others if _holds_tensors(value)})
    if holding:
        yield Sign(
            "limited",
            f"{listed(holding)}: not looked into; tensors in it are sources, not inputs",
            "pass the tensors themselves, or a dict or dataclass of them",
        )


def _holds_tensors(value: object) -> bool:
    return bool(tensors_in(attributes_of(value)))


def _subclasses(held: list[NamedTensor], prefix: str = "") -> Iterator[Sign]:
    found: dict[type[object], list[NamedTensor]] = defaultdict(list)
    for item in held:
        if type(item.tensor) not in _TORCHS:
            found[type(item.tensor)].append(item)
    for kind, items in found.items():
        share = f"{_share(items, items, prefix)} of type {kind.__name__}"
        if _overrides_functions(kind):
            yield Sign("limited", f"{share}: torch's Python functions are one op each where they take part")
        else:
            yield Sign("not tested", f"{share}", "tl.validate(model, x) checks the trace")


def _overrides_functions(kind: type[object]) -> bool:
    """Whether a subclass has a `__torch_function__` of its own."""
    own = next(held for base in kind.__mro__ if (held := vars(base).get("__torch_function__")) is not None)
    return own is not vars(Tensor)["__torch_function__"] and own is not torch._C._disabled_torch_function_impl


def _devices(subject: Subject) -> list[str]:
    """The devices of parameters and buffers, those without values left out."""
    found = {str(held.tensor.device) for held in (*subject.params, *subject.buffers)}
    return sorted(found - {"meta"})


def _share(found: Iterable[NamedTensor], among: Iterable[NamedTensor], prefix: str = "") -> str:
    names = [f"{prefix}{held.address}" for held in found]
    everything = len(names) == len(list(among)) > 3
    return f"all {quantity(len(names), 'tensor')}" if everything else listed(names)
