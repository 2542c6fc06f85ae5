"""The doctor: every check in one list, and the page of what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from torchlens.report import doctor_environment as environment
from torchlens.report import doctor_model as modules
from torchlens.report import doctor_tensors as tensors
from torchlens.report.doctor_page import Diagnosis, Row
from torchlens.report.doctor_subject import Sign, Subject, examine


@dataclass(frozen=True)
class Check:
    """One thing that the doctor looks at."""

    name: str
    about: Literal["environment", "model", "inputs"]
    look: Callable[[Subject], Iterator[Sign]]


CHECKS: Final = (
    Check("Python", "environment", environment.python_version),
    Check("torch", "environment", environment.torch_version),
    Check("numpy", "environment", environment.numpy_version),
    Check("devices", "environment", environment.devices),
    Check("compiler", "environment", environment.compiler),
    Check("open captures", "environment", environment.open_captures),
    Check("DataLoader worker", "environment", environment.data_loader_worker),
    Check("function modes", "environment", environment.function_modes),
    Check("dispatch modes", "environment", environment.dispatch_modes),
    Check("inference mode", "environment", environment.inference_mode),
    Check("profilers", "environment", environment.profilers),
    Check("other threads", "environment", environment.other_threads),
    Check("global hooks", "environment", environment.global_hooks),
    Check("refused kinds", "model", modules.refused),
    Check("wrappers", "model", modules.wrappers),
    Check("compiled parts", "model", modules.compiled_parts),
    Check("TorchScript parts", "model", modules.script_parts),
    Check("fused kernels", "model", modules.fused_kernels),
    Check("hooks", "model", modules.hooks),
    Check("offloading", "model", modules.offloading),
    Check("parametrizations", "model", modules.parametrizations),
    Check("lazy modules", "model", modules.lazy_modules),
    Check("training mode", "model", modules.training_mode),
    Check("quantized weights", "model", modules.quantized_modules),
    Check("untested packages", "model", modules.untested_packages),
    Check("state on meta", "model", tensors.state_on_meta),
    Check("other devices", "model", tensors.state_devices),
    Check("tensor subclasses", "model", tensors.state_subclasses),
    Check("tied parameters", "model", tensors.tied_parameters),
    Check("inputs elsewhere", "inputs", tensors.input_devices),
    Check("other input dtypes", "inputs", tensors.input_dtypes),
    Check("meta inputs", "inputs", tensors.meta_inputs),
    Check("inference inputs", "inputs", tensors.inference_inputs),
    Check("input subclasses", "inputs", tensors.input_subclasses),
    Check("input gradients", "inputs", tensors.input_gradients),
    Check("opaque inputs", "inputs", tensors.opaque_inputs),
)
"""In the order of the page. A check that finds nothing is listed as clear."""


def doctor(
    model: object = None, inputs: Any = None, *, input_kwargs: Mapping[str, Any] | None = None
) -> Diagnosis:
    """What about a model, its inputs and this environment is known to break, is limited, or was not tested.

    Nothing of the model is run and nothing is changed. `inputs` is what `tl.trace` would be given as `x`,
    `input_kwargs` what it takes by that name; without a model the environment alone is looked at. The result
    prints as a page, has `rows`, and is true when nothing is refused.

    >>> import torch, torchlens as tl
    >>> page = tl.report.doctor(torch.nn.BatchNorm1d(3), torch.zeros(2, 3))
    >>> [row.check for row in page.of("limited") if "BatchNorm1d" in row.found]
    ['training mode']
    """
    has_inputs = inputs is not None or bool(input_kwargs)
    given = {"environment": True, "model": model is not None, "inputs": has_inputs}
    with torch._C.DisableTorchFunction():  # reading a tensor's attributes runs code of its subclass
        subject = examine(model, inputs, input_kwargs)
        rows = [row for check in CHECKS if given[check.about] for row in _rows(check, subject)]
    return Diagnosis(subject.name, tuple(rows))


def _rows(check: Check, subject: Subject) -> Iterator[Row]:
    signs = list(check.look(subject)) or [Sign("ok", "")]
    return (Row(check.name, *sign) for sign in signs)
