"""What the doctor looks for in a model's modules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from torchlens._capture.fused import FUSING, _may_fuse
from torchlens._capture.refusals import refusals
from torchlens.report.amounts import listed
from torchlens.report.doctor_subject import NamedModule, Sign, Subject

_NOT_TESTED: Final = ("colossalai", "deepspeed", "fairscale", "megatron", "torchao", "torchrec", "xformers")
"""Packages whose modules run in several processes or in kernels of their own."""
_QUANTIZED: Final = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def refused(subject: Subject) -> Iterator[Sign]:
    """Everything that a capture would refuse, and what cannot be called."""
    found = [refusal for refusal in refusals(subject.model) if refusal.kind != "DataLoader worker"]
    for refusal in found:
        yield Sign("refused", f"{refusal.found} {refusal.reason}", refusal.instead)
    if not found and not callable(subject.model):
        name = type(subject.model).__name__
        yield Sign("refused", f"{name} cannot be called", "give an nn.Module or a callable")


def wrappers(subject: Subject) -> Iterator[Sign]:
    """What stands around the model or a part of it."""
    if subject.model is not subject.given:
        name = type(subject.given).__name__
        yield Sign("ok", f"{name} is taken off: the module inside is captured as one model")
    for address, module in subject.modules:
        name = type(module).__name__
        if isinstance(module, nn.parallel.DistributedDataParallel):
            yield Sign(
                "limited",
                f"{name}: one rank is captured, addresses begin with 'module.'; buffers that rank 0 sends "
                "before the forward come unseen: their initial_value is what came",
                "capture on each rank; broadcast_buffers=False where it matters",
            )
        elif isinstance(module, nn.DataParallel) and address:
            yield Sign("ok", f"{name} at {address!r} is a module like others: it has one device or none")


def compiled_parts(subject: Subject) -> Iterator[Sign]:
    """Modules that torch.compile has been applied to."""
    found = [named for named in subject.modules if _is_compiled(named.module)]
    if not found:
        return
    if hasattr(torch.compiler, "set_stance"):
        yield Sign("ok", f"{_named(found)}: runs eagerly during the capture, and keeps its caches")
    else:
        yield Sign(
            "limited", f"{_named(found)}: skipped by the capture", "trace the model before it is compiled"
        )


def script_parts(subject: Subject) -> Iterator[Sign]:
    """TorchScript modules inside the model."""
    found = [named for named in subject.modules[1:] if isinstance(named.module, torch.jit.ScriptModule)]
    if found:
        yield Sign("limited", f"{_named(found)}: one op for each call", "put the eager module in its place")


def fused_kernels(subject: Subject) -> Iterator[Sign]:
    """Encoder layers whose fused kernel a capture keeps."""
    found = [named for named in subject.modules if isinstance(named.module, FUSING)]
    fusing = [named for named in found if _may_fuse(named.module)]
    if fusing:
        yield Sign(
            "limited",
            f"{_named(fusing)}: may run as one fused kernel, which is one op; the modules it replaces are "
            "not called then",
            "to see inside, capture with CaptureOptions(fused='expand')",
        )


def hooks(subject: Subject) -> Iterator[Sign]:
    """Hooks that the model has of its own."""
    found = [
        named
        for named in subject.modules
        if any(_table(named.module, name) for name in _HOOKS) and not _is_uninitialized(named.module)
    ]
    if found:
        yield Sign("limited", f"{_named(found)}: hooks run as always; their ops belong to the caller's scope")


def offloading(subject: Subject) -> Iterator[Sign]:
    """accelerate's hooks, which move weights before and after each call."""
    found = [named for named in subject.modules if "_hf_hook" in vars(named.module)]
    if found:
        yield Sign(
            "limited",
            f"{_named(found)}: accelerate brings weights in for each call and takes them away after it, so "
            "param.value is what is left; op.args has what was read",
        )


def parametrizations(subject: Subject) -> Iterator[Sign]:
    """Parameters that are computed when they are read."""
    found = [named for named in subject.modules if _has_parametrizations(named.module)]
    if found:
        yield Sign("ok", f"{_named(found)}: weights are computed in modules of their own (parametrizations)")


def lazy_modules(subject: Subject) -> Iterator[Sign]:
    """Modules whose parameters the first forward makes."""
    found = [named for named in subject.modules if _is_uninitialized(named.module)]
    if found:
        yield Sign(
            "limited",
            f"{_named(found)}: the first forward makes its parameters, under trace from the trace's seed",
            "run the model once before",
        )


def training_mode(subject: Subject) -> Iterator[Sign]:
    """What makes a forward random, or change the model."""
    training = [named for named in subject.modules if vars(named.module).get("training")]
    norms = [n for n in training if isinstance(n.module, _NormBase) and n.module.track_running_stats]
    drops = [n for n in training if isinstance(n.module, _DropoutNd) and n.module.p]
    if norms:
        yield Sign("limited", f"{_named(norms)}: each forward changes its running statistics", "model.eval()")
    if drops:
        yield Sign("limited", f"{_named(drops)}: random values, drawn from the trace's seed", "model.eval()")


def quantized_modules(subject: Subject) -> Iterator[Sign]:
    """Layers with quantised weights."""
    ours = [named for named in subject.modules if _home(named.module).startswith("bitsandbytes")]
    eight = [named for named in ours if type(named.module).__name__ == "Linear8bitLt"]
    if eight:
        yield Sign(
            "limited",
            f"{_named(eight)}: with a threshold the CPU kernel writes outliers of its input and puts them "
            "back; the trace is then unverified (unexplained_write)",
        )
    elif ours:
        yield Sign("ok", f"{_named(ours)}: each matrix product is one op of bitsandbytes")
    packed = [named for named in subject.modules if _home(named.module).startswith(_QUANTIZED)]
    if packed:
        yield Sign("limited", f"{_named(packed)}: packed weights are no parameters, FLOPs are not counted")


def untested_packages(subject: Subject) -> Iterator[Sign]:
    """Modules of packages that the tests do not cover."""
    for package in _NOT_TESTED:
        found = [n for n in subject.modules if _home(n.module).partition(".")[0] == package]
        if found:
            yield Sign(
                "not tested", f"{_named(found)}: from {package}", "tl.validate(model, x) checks the trace"
            )


def _is_compiled(module: nn.Module) -> bool:
    kind = type(module)
    if kind.__name__ == "OptimizedModule" and kind.__module__.startswith("torch._dynamo"):
        return True
    return vars(module).get("_compiled_call_impl") is not None


def _is_uninitialized(module: nn.Module) -> bool:
    """Whether the first forward makes its parameters; until then it has hooks for that."""
    held = _table(module, "_parameters").values()
    return isinstance(module, LazyModuleMixin) and any(is_lazy(cast("Tensor", tensor)) for tensor in held)


def _has_parametrizations(module: nn.Module) -> bool:
    parametrize = sys.modules.get("torch.nn.utils.parametrize")
    if parametrize is None:
        return False
    return cast("Callable[[nn.Module], bool]", parametrize.is_parametrized)(module)


def _table(module: nn.Module, name: str) -> dict[object, object]:
    return cast("dict[object, object]", vars(module).get(name) or {})


def _home(module: nn.Module) -> str:
    return type(module).__module__


def _named(found: Iterable[NamedModule]) -> str:
    return listed(list(map(str, found)))
