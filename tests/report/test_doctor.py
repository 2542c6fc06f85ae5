"""The doctor: what each check finds, what it leaves alone, and how the page looks."""

from __future__ import annotations

import cProfile
import dataclasses
import os
import platform
import sys
import threading
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations
from torch.utils._python_dispatch import TorchDispatchMode

import torchlens as tl
from tests.programs.reading import floats
from torchlens.report import doctor_environment
from torchlens.report.doctor_checks import CHECKS
from torchlens.report.doctor_page import Diagnosis, Row
from torchlens.report.text import as_html, as_text

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


def found(page: Diagnosis, check: str) -> list[tuple[str, str, str]]:
    return [(row.status, row.found, row.advice) for row in page.rows if row.check == check]


def of_the_model(page: Diagnosis) -> Diagnosis:
    """The page without what it says about this machine."""
    names = {check.name for check in CHECKS if check.about != "environment"}
    return dataclasses.replace(page, rows=tuple(row for row in page.rows if row.check in names))


# ---- the page ------------------------------------------------------------------------------------


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), torch.jit.script(nn.ReLU()))


def test_the_page() -> None:
    page = of_the_model(tl.report.doctor(nn.DataParallel(tiny()), (floats(2, 4).double(), {"mask": [1]})))
    assert (
        as_text(page, 80)
        == """\
Sequential · nothing refused, 4 limited

limited
  TorchScript parts  3 (RecursiveScriptModule): one op for each call
                     do: put the eager module in its place
  training mode      1 (BatchNorm1d): each forward changes its running
                     statistics
                     do: model.eval()
                     2 (Dropout): random values, drawn from the trace's seed
                     do: model.eval()
  other input dtypes input 0 is torch.float64, the parameters torch.float32:
                     most layers raise
                     do: x.to(torch.float32)

ok
  wrappers           DataParallel is taken off: the module inside is captured as
                     one model

not found: refused kinds, compiled parts, fused kernels, hooks, offloading,
parametrizations, lazy modules, quantized weights, untested packages, state on
meta, other devices, tensor subclasses, tied parameters, inputs elsewhere, meta
inputs, inference inputs, input subclasses, input gradients, opaque inputs"""
    )


def test_the_page_of_what_is_refused() -> None:
    page = of_the_model(tl.report.doctor(torch.jit.script(nn.ReLU())))
    refused, _, clear = as_text(page, 80).partition("\nnot found: ")
    assert (
        refused
        == """\
RecursiveScriptModule · 1 refused

refused
  refused kinds      RecursiveScriptModule runs in TorchScript's interpreter,
                     not as Python, so its ops cannot be seen
                     do: trace the eager nn.Module it was made from
"""
    )
    assert clear.startswith("wrappers, compiled parts")


def test_the_page_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "python_version", lambda: "3.11.7")
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    monkeypatch.setattr(np, "__version__", "2.1.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(sys, "getprofile", lambda: None)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])
    assert (
        as_text(tl.report.doctor(), 80)
        == """\
environment · nothing refused, 1 not tested

not tested
  torch              2.9.1; the tests run on torch 2.13
                     do: tl.validate(model, x) checks what holds for this model
                     here

ok
  Python             3.11.7
  numpy              2.1.0
  devices            cpu
  compiler           dynamo is loaded; compiled code of the whole process runs
                     eagerly during a capture

not found: open captures, DataLoader worker, function modes, dispatch modes,
inference mode, profilers, other threads, global hooks"""
    )


def test_markdown() -> None:
    page = Diagnosis(
        "Net",
        (
            Row("hooks", "limited", "a | b\nc", ""),
            Row("wrappers", "refused", "no", "yes"),
            Row("threads", "ok", "", ""),
        ),
    )
    assert (
        page.to_markdown()
        == """\
### torchlens doctor: Net

1 refused, 1 limited.

| | check | found | what to do |
|---|---|---|---|
| refused | wrappers | no | yes |
| limited | hooks | a \\| b c |  |

Not found: threads."""
    )


def test_a_page_is_true_when_nothing_is_refused_prints_in_color_and_as_html() -> None:
    good, bad = tl.report.doctor(nn.ReLU()), tl.report.doctor(torch.jit.script(nn.ReLU()))
    assert good and not bad
    assert [row.check for row in bad.of("refused")] == ["refused kinds"]
    assert str(good).startswith("ReLU · nothing refused") and repr(good) == str(good)
    assert "<pre" in good._repr_html_() and as_html(good) == good._repr_html_()
    assert max(map(len, as_text(bad, 60, encoding="ascii").splitlines())) <= 60


def test_every_check_has_its_own_name_and_is_listed_once() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    page = tl.report.doctor(nn.Linear(4, 4), floats(2, 4))
    assert {row.check for row in page.rows} == set(names)
    assert {row.check for row in tl.report.doctor().rows} == {
        check.name for check in CHECKS if check.about == "environment"
    }


# ---- the environment -----------------------------------------------------------------------------


class Passes(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("the doctor ran something")


@contextmanager
def profiling() -> Iterator[None]:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()


@contextmanager
def another_thread() -> Iterator[None]:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait, name="feeder")
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@contextmanager
def a_hook_on_every_module() -> Iterator[None]:
    handle = register_module_forward_hook(lambda module, args, output: None)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize(
    ("context", "check", "status", "text"),
    [
        (Passes, "function modes", "limited", "Passes on: torch's Python functions are one op each"),
        (Dispatches, "dispatch modes", "not tested", "Dispatches on"),
        (profiling, "profilers", "limited", "a profiler (Profile"),
        (another_thread, "other threads", "limited", "feeder"),
        (torch.inference_mode, "inference mode", "limited", "inference mode is on"),
        (a_hook_on_every_module, "global hooks", "limited", "1 hook on every module: their ops belong"),
        (partial(tl.capture, nn.ReLU()), "open captures", "refused", "a capture is open on this thread"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_what_is_on_is_found(
    context: Callable[[], AbstractContextManager[Any]], check: str, status: str, text: str
) -> None:
    before = found(tl.report.doctor(), check)
    assert all(text not in row[1] for row in before)
    with context():
        page = tl.report.doctor()
    ((now, words, _),) = found(page, check)
    assert now == status and text in words
    assert bool(page) == (status != "refused")


def test_a_default_device_is_no_mode_of_others() -> None:
    torch.set_default_device("meta")
    try:
        assert found(tl.report.doctor(), "function modes") == [("ok", "", "")]
    finally:
        torch.set_default_device(None)


def test_other_pythons_are_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_environment, "TESTED_PYTHONS", ((3, 8), (3, 9)))
    ((status, text, _),) = found(tl.report.doctor(), "Python")
    assert status == "not tested" and text.endswith("tested are 3.8 to 3.9")


def test_code_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "PYTHONNODEBUGRANGES", "1")
    ((status, text, advice),) = found(tl.report.doctor(), "Python")
    assert status == "limited" and "call sites have no columns" in text and "no_debug_ranges" in advice


def test_a_torch_that_cannot_run_compiled_code_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.compiler, "set_stance")
    page = tl.report.doctor(compiled_inside())
    assert [row[0] for row in found(page, "compiler")] == ["limited"]
    assert found(page, "compiled parts") == [
        ("limited", "0 (OptimizedModule): skipped by the capture", "trace the model before it is compiled")
    ]


def test_a_data_loader_worker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: SimpleNamespace(id=0))
    page = tl.report.doctor(nn.ReLU())
    ((status, text, advice),) = found(page, "DataLoader worker")
    assert status == "refused" and "DataLoader worker process" in text and "main process" in advice
    assert found(page, "refused kinds") == [("ok", "", "")]


# ---- the model -----------------------------------------------------------------------------------


def compiled_inside() -> nn.Module:
    return nn.Sequential(torch.compile(nn.ReLU(), backend="eager"))


def compiled_in_place() -> nn.Module:
    model = nn.Sequential(nn.ReLU())
    model[0].compile(backend="eager")
    return model


def hooked() -> nn.Module:
    model = nn.Sequential(nn.ReLU(), nn.ReLU())
    model[1].register_forward_hook(lambda module, args, output: None)
    return model


def offloaded() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2))
    model[0]._hf_hook = object()  # as accelerate's add_hook_to_module leaves it
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    return model


class Labelled(Tensor):
    """A subclass with a `__torch_function__` of its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("the doctor ran something")


class Bare(Tensor):
    """A subclass without one."""


def holding(tensor: Tensor) -> nn.Module:
    model = nn.Identity()
    model.register_buffer("table", tensor)
    return model


def of_package(name: str, kind: str = "Layer") -> nn.Module:
    return nn.Sequential(type(kind, (nn.Identity,), {"__module__": f"{name}.layers"})())


def three_on_meta() -> nn.Module:
    return nn.Sequential(*(nn.Linear(2, 2, device="meta") for _ in range(3)))


def data_parallel_inside() -> nn.Module:
    return nn.Sequential(nn.DataParallel(nn.ReLU()))


def encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval().requires_grad_(False)


def quantized() -> nn.Module:
    return nn.Sequential(torch.ao.nn.quantized.ReLU6())


Build = Callable[[], Any]
FIRES: list[tuple[Build, str, str, str]] = [
    (lambda: torch.jit.script(nn.ReLU()), "refused kinds", "refused", "in TorchScript's interpreter"),
    (lambda: 3, "refused kinds", "refused", "int cannot be called"),
    (lambda: nn.DataParallel(nn.ReLU()), "wrappers", "ok", "DataParallel is taken off"),
    (data_parallel_inside, "wrappers", "ok", "DataParallel at '0' is a module like others"),
    (compiled_inside, "compiled parts", "ok", "0 (OptimizedModule): runs eagerly"),
    (compiled_in_place, "compiled parts", "ok", "0 (ReLU): runs eagerly"),
    (lambda: nn.Sequential(torch.jit.script(nn.ReLU())), "TorchScript parts", "limited", "one op for each"),
    (encoder_layer, "fused kernels", "limited", "TransformerEncoderLayer, self_attn (MultiheadAttention)"),
    (hooked, "hooks", "limited", "1 (ReLU): hooks run as always"),
    (offloaded, "offloading", "limited", "0 (Linear): accelerate brings weights in"),
    (lambda: parametrizations.weight_norm(nn.Linear(2, 2)), "parametrizations", "ok", "ParametrizedLinear"),
    (lambda: nn.Sequential(nn.LazyLinear(2)), "lazy modules", "limited", "0 (LazyLinear): the first forward"),
    (lambda: nn.BatchNorm1d(2), "training mode", "limited", "changes its running statistics"),
    (lambda: nn.Dropout(0.1), "training mode", "limited", "Dropout: random values"),
    (quantized, "quantized weights", "limited", "0 (ReLU6): packed weights are no parameters"),
    (partial(of_package, "bitsandbytes"), "quantized weights", "ok", "one op of bitsandbytes"),
    (partial(of_package, "bitsandbytes", "Linear8bitLt"), "quantized weights", "limited", "writes outliers"),
    (partial(of_package, "deepspeed"), "untested packages", "not tested", "0 (Layer): from deepspeed"),
    (lambda: nn.Linear(2, 2, device="meta"), "state on meta", "limited", "weight, bias on meta"),
    (three_on_meta, "state on meta", "limited", "all 6 tensors on meta"),
    (lambda: holding(floats(2).as_subclass(Labelled)), "tensor subclasses", "limited", "table of type Lab"),
    (lambda: holding(floats(2).as_subclass(Bare)), "tensor subclasses", "not tested", "table of type Bare"),
    (tied, "tied parameters", "ok", "0.weight = 1.weight: listed once"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "check", "status", "text"), FIRES, ids=[f"{c}-{t[:20]}" for _, c, _, t in FIRES]
)
def test_what_a_model_has_is_found(build: Build, check: str, status: str, text: str) -> None:
    page = tl.report.doctor(build())
    rows = found(page, check)
    assert [row for row in rows if row[0] == status and text in row[1]], rows
    assert bool(page) == (status != "refused")


QUIET: list[tuple[Build, str]] = [
    (lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU()), ""),
    (lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5)).eval(), "training mode"),
    (lambda: nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False), nn.Dropout(0.0)), "training mode"),
    (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), "fused kernels"),
    (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).eval(), "fused kernels"),
    (lambda: nn.Sequential(nn.LazyLinear(2)), "hooks"),
    (lambda: holding(floats(2)), "tensor subclasses"),
    (lambda: nn.LazyBatchNorm1d(), "tensor subclasses"),
    (lambda: nn.Linear(2, 2), "tied parameters"),
    (lambda: torch.relu, ""),
    (lambda: lambda x: x, ""),
    (lambda: partial(nn.Linear(2, 2)), ""),
]  # fmt: skip


@pytest.mark.parametrize(("build", "check"), QUIET)
def test_what_a_model_has_not_is_not_found(build: Build, check: str) -> None:
    page = of_the_model(tl.report.doctor(build()))
    if check:
        assert found(page, check) == [("ok", "", "")]
    else:
        assert page.verdict == "nothing refused" and len(page.clear) == len(page.rows)


def test_a_model_that_was_not_initialised_is_looked_at_all_the_same() -> None:
    class Forgets(nn.Module):
        def __init__(self) -> None:
            pass

    page = tl.report.doctor(nn.Sequential(Forgets()))
    ((status, text, _),) = found(page, "refused kinds")
    assert status == "refused" and text.startswith("Forgets at '0' has an __init__ that does not call super")


def test_other_devices() -> None:
    on_meta = nn.Linear(2, 2, device="meta")
    assert found(tl.report.doctor(on_meta), "other devices") == [("ok", "", "")]
    from torchlens.report.doctor_subject import NamedTensor, examine
    from torchlens.report.doctor_tensors import input_devices, state_devices

    def on(*devices: str) -> Any:
        held = [NamedTensor(str(at), SimpleNamespace(device=torch.device(d))) for at, d in enumerate(devices)]
        return dataclasses.replace(examine(nn.ReLU(), floats(2)), params=tuple(held))

    assert [(s.status, s.found.split(":")[0]) for s in state_devices(on("cuda:0"))] == [
        ("not tested", "cuda")
    ]
    (sign,) = state_devices(on("cuda:0", "cpu", "cuda:1"))
    assert sign.found.startswith("parameters and buffers on cpu, cuda:0, cuda:1: models over several devices")
    (sign,) = input_devices(on("cuda:0"))
    assert (sign.found, sign.advice) == ("input 0 is on cpu, the model on cuda:0", "move it: x.to('cuda:0')")
    assert list(input_devices(on("cpu", "cuda:0"))) == list(input_devices(on())) == []


# ---- the inputs ----------------------------------------------------------------------------------


class Batch:
    def __init__(self) -> None:
        self.x = floats(2)


@dataclasses.dataclass
class Fields:
    x: Any


def in_inference_mode() -> Tensor:
    with torch.inference_mode():
        return torch.ones(2)


INPUTS: list[tuple[Build, str, str, str]] = [
    (lambda: floats(2, 2).double(), "other input dtypes", "limited", "input 0 is torch.float64, the"),
    (lambda: (floats(2, 2), floats(2).half()), "other input dtypes", "limited", "input 1 is torch.float16"),
    (lambda: torch.ones(2, device="meta"), "meta inputs", "limited", "input 0 on meta"),
    (in_inference_mode, "inference inputs", "limited", "input 0 made in inference mode"),
    (lambda: floats(2).as_subclass(Labelled), "input subclasses", "limited", "input 0 of type Labelled"),
    (lambda: {"a": [floats(2).requires_grad_()]}, "input gradients", "ok", "input 0.a.0 with gradients"),
    (lambda: (Fields(floats(2).requires_grad_()),), "input gradients", "ok", "input 0.x with gradients"),
    (lambda: np.ones(2), "opaque inputs", "limited", "1 numpy array among the inputs"),
    (lambda: [np.ones(2), {"b": np.ones(2)}], "opaque inputs", "limited", "2 numpy arrays"),
    (Batch, "opaque inputs", "limited", "Batch: not looked into"),
    (lambda: SimpleNamespace(inner=[floats(2)]), "opaque inputs", "limited", "SimpleNamespace: not looked"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "check", "status", "text"), INPUTS, ids=[f"{c}-{t[:20]}" for _, c, _, t in INPUTS]
)
def test_what_inputs_have_is_found(build: Build, check: str, status: str, text: str) -> None:
    rows = found(tl.report.doctor(nn.Linear(2, 2), build()), check)
    assert [row for row in rows if row[0] == status and text in row[1]], rows


Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    "inputs",
    [
        (),
        floats(2, 2),
        (floats(2, 2), 3, "text", None, [1.5, torch.float32]),
        {"ids": torch.tensor([1, 2]), "mask": torch.tensor([True])},
        Pair(floats(2), floats(2)),
        Fields(floats(2)),
        (SimpleNamespace(width=3), object(), nn.ReLU),
        nn.utils.rnn.pack_sequence([floats(2, 2)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_inputs_have_nothing_to_be_found(inputs: Any) -> None:
    page = tl.report.doctor(nn.Linear(2, 2), inputs)
    asked = {check.name for check in CHECKS if check.about == "inputs"}
    assert [row for row in page.rows if row.check in asked and row.found] == []
    assert asked <= set(page.clear)


def test_nothing_is_run_and_nothing_recorded() -> None:
    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("the doctor ran the model")

    model, inputs = Raises(), (floats(2).as_subclass(Labelled), floats(2))
    state = torch.get_rng_state()
    with tl.capture(nn.ReLU()) as trace:
        tl.report.doctor(model, inputs)
    assert len(trace.ops) == 0
    assert torch.equal(torch.get_rng_state(), state)


def test_report_has_the_doctor_only() -> None:
    with pytest.raises(AttributeError, match=r"torchlens.report has no 'nurse'; it has doctor"):
        tl.report.nurse


class Hostile:
    """Every question asked of an object of this class is an error."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise AssertionError("the class was asked for")

    def __call__(self, x: Tensor) -> Tensor:
        return x


class HostileList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it was walked")


def test_no_code_of_the_user_runs() -> None:
    page = tl.report.doctor(nn.ReLU(), (HostileList([torch.ones(2)]), {"more": Hostile()}))
    assert page


def test_keyword_inputs_and_mappings_are_looked_into() -> None:
    batch = UserDict(ids=torch.ones(2, dtype=torch.float64))
    page = tl.report.doctor(nn.Linear(2, 2), batch, input_kwargs={"mask": torch.ones(2, dtype=torch.float64)})
    ((_, words, _), *more) = found(page, "other input dtypes")
    assert {"0.ids", "mask"} <= set(" ".join([words, *(row[1] for row in more)]).replace(",", " ").split())
    assert found(page, "opaque inputs") == [("ok", "", "")]
