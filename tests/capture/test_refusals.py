"""What is refused before anything runs: by a typed error that says what was found and what to do instead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import floats
from torchlens._capture.refusals import REFUSED, refusals
from torchlens.errors import InputError, NestedCaptureError, TorchLensError, UnsupportedModelError

pytestmark = pytest.mark.filterwarnings("ignore")  # deprecations of what is refused
dist = pytest.importorskip("torch.distributed", reason="this torch is built without torch.distributed")


@pytest.fixture(scope="module")
def alone() -> Iterator[Any]:
    """A mesh of one process, without a network."""
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


class Counts(nn.Module):
    """A model that counts how often it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self.body = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return self.body(x)


def scripted(mesh: Any) -> Any:
    return torch.jit.script(nn.Linear(4, 4))


def jit_traced(mesh: Any) -> Any:
    return torch.jit.trace(nn.Linear(4, 4), floats(2, 4))


def exported(mesh: Any) -> Any:
    return torch.export.export(nn.Linear(4, 4), (floats(2, 4),))


def exported_module(mesh: Any) -> Any:
    return exported(mesh).module()


def unflattened(mesh: Any) -> Any:
    return torch.export.unflatten(exported(mesh))


def fsdp1(mesh: Any) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))


def fsdp2(mesh: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 4)
    fully_shard(model, mesh=mesh)
    return model


def colwise(mesh: Any) -> Any:
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    return parallelize_module(nn.Linear(4, 4), mesh, ColwiseParallel())


def distributed_buffer(mesh: Any) -> Any:
    from torch.distributed.tensor import distribute_tensor

    model = nn.Identity()
    model.register_buffer("table", distribute_tensor(floats(4), mesh))
    return model


def distributed_inputs(mesh: Any) -> Any:
    """No parameter of its own is split, but what reaches it is."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import PrepareModuleInput, parallelize_module

    plan = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
    return parallelize_module(nn.ReLU(), mesh, plan)


def pipe(mesh: Any) -> Any:
    from torch.distributed.pipelining import SplitPoint, pipeline

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    return pipeline(model, mb_args=(floats(2, 4),), split_spec={"1": SplitPoint.BEGINNING})


def stage(mesh: Any) -> Any:
    from torch.distributed.pipelining import PipelineStage

    return PipelineStage(nn.Linear(4, 4), 0, 1, torch.device("cpu"))


def schedule(mesh: Any) -> Any:
    from torch.distributed.pipelining import ScheduleGPipe

    return ScheduleGPipe(stage(mesh), n_microbatches=1)


def schedule_step(mesh: Any) -> Any:
    return schedule(mesh).step


def two_devices(mesh: Any) -> Any:
    wrapper = nn.DataParallel(nn.Linear(4, 4))
    wrapper.device_ids = [0, 1]  # as on a machine with two GPUs
    return nn.Sequential(wrapper)


class Forgets(nn.Module):
    def __init__(self) -> None:
        pass


SCRIPT = "in TorchScript's interpreter, not as Python, so its ops cannot be seen; trace the eager nn.Module"
EXPORT = "does not run as the Python it was written in; trace the eager nn.Module before exporting it"
FSDP = "gathers the rest while it runs; trace a copy that is not sharded"
TENSOR = "would see a part of each value only; trace a copy to which neither parallelize_module nor"
PIPE = "several processes on parts of the batch; trace one stage's own module (stage.submod), or the model"

MODELS = [
    pytest.param(fsdp1, f"FullyShardedDataParallel{{}} is sharded by FSDP.*{FSDP}", id="FSDP1"),
    pytest.param(fsdp2, f"FSDPLinear{{}} is sharded by FSDP.*{FSDP}", id="FSDP2"),
    pytest.param(colwise, f"Linear{{}} is split over a device mesh.*{TENSOR}", id="tensor parallel"),
    pytest.param(distributed_buffer, f"Identity{{}} is split over a device mesh.*{TENSOR}", id="buffer"),
    pytest.param(distributed_inputs, f"ReLU{{}} is split over a device mesh.*{TENSOR}", id="inputs"),
    pytest.param(
        exported_module, f"GraphModule\\w*{{}} comes from torch.export.*{EXPORT}", id="export module"
    ),
    pytest.param(unflattened, f"UnflattenedModule{{}} comes from torch.export.*{EXPORT}", id="unflattened"),
    pytest.param(lambda mesh: Forgets(), r"Forgets{} has an __init__ .*; call super\(\)", id="no super"),
    pytest.param(pipe, f"Pipe{{}} belongs to a pipeline.*{PIPE}", id="pipe"),
]
ROOTS = [
    *MODELS,
    pytest.param(scripted, f"RecursiveScriptModule{{}} runs {SCRIPT}", id="scripted"),
    pytest.param(jit_traced, f"TopLevelTracedModule{{}} runs {SCRIPT}", id="jit traced"),
]  # fmt: skip
CALLABLES = [
    pytest.param(exported, f"ExportedProgram{{}} comes from torch.export.*{EXPORT}", id="exported program"),
    pytest.param(stage, f"PipelineStage{{}} belongs to a pipeline.*{PIPE}", id="stage"),
    pytest.param(schedule, f"ScheduleGPipe{{}} belongs to a pipeline.*{PIPE}", id="schedule"),
    pytest.param(schedule_step, f"ScheduleGPipe{{}} belongs to a pipeline.*{PIPE}", id="step"),
    pytest.param(
        lambda mesh: torch.jit.script(doubled), f"ScriptFunction{{}} runs {SCRIPT}", id="script function"
    ),
    pytest.param(lambda mesh: scripted(mesh).forward, f"ScriptMethod{{}} runs {SCRIPT}", id="script method"),
    pytest.param(two_devices, "DataParallel at '0'{} runs copies of its module on threads", id="two devices"),
]  # fmt: skip
Build = Callable[[Any], Any]
NOT_CALLABLE = (stage, schedule)


def doubled(x: Tensor) -> Tensor:
    return x * 2


def pattern(text: str, where: str = "", address: str = "") -> str:
    """The message as a pattern: `{}` in it stands for an address within the model."""
    text = text.replace("(stage.submod)", r"\(stage\.submod\)")
    return f"^{where}{text.format(f' at {address!r}' if address else '')}"


@pytest.mark.parametrize(("build", "text"), ROOTS + CALLABLES)
def test_refused(alone: Any, build: Build, text: str) -> None:
    model = build(alone)
    x = floats(2, 4)
    with pytest.raises(UnsupportedModelError, match=pattern(text)):
        tl.trace(model, x)
    with pytest.raises(UnsupportedModelError, match=pattern(text)), tl.capture(model):
        pytest.fail("the block was entered")


@pytest.mark.parametrize(("build", "text"), MODELS)
def test_refused_as_a_part_of_a_model_that_then_does_not_run(alone: Any, build: Build, text: str) -> None:
    model = Counts()
    model.body = nn.ModuleDict({"part": build(alone)})
    with pytest.raises(UnsupportedModelError, match=pattern(text, address="body.part")):
        tl.trace(model, floats(2, 4))
    assert model.runs == 0


@pytest.mark.parametrize(
    ("build", "text"), [case for case in ROOTS + CALLABLES if case.values[0] not in NOT_CALLABLE]
)
def test_refused_inside_a_partial(alone: Any, build: Build, text: str) -> None:
    with pytest.raises(UnsupportedModelError, match=pattern(text)):
        tl.trace(partial(partial(build(alone)), flag=True), floats(2, 4))


@pytest.mark.parametrize(("build", "text"), MODELS)
def test_refused_by_a_bound_method(alone: Any, build: Build, text: str) -> None:
    with pytest.raises(UnsupportedModelError, match=pattern(text)):
        tl.trace(build(alone).forward, floats(2, 4))


@pytest.mark.parametrize(("build", "text"), ROOTS + CALLABLES)
def test_refused_in_a_dict_of_models(alone: Any, build: Build, text: str) -> None:
    where = r"model\['second'\]: "
    models = {"first": nn.Linear(4, 4), "second": build(alone)}
    with pytest.raises(UnsupportedModelError, match=pattern(text, where=where)), tl.capture(models):
        pytest.fail("the block was entered")


@pytest.mark.parametrize(("build", "text"), MODELS + CALLABLES[:4])
def test_refused_where_a_function_uses_it(alone: Any, build: Build, text: str) -> None:
    model = build(alone)
    with pytest.raises(UnsupportedModelError, match=pattern(text, where="<lambda> uses model: ")):
        tl.trace(lambda x: model(x), floats(2, 4))
    with pytest.raises(UnsupportedModelError, match=pattern(text, where="the partial's argument 'using': ")):
        tl.trace(partial(lambda x, using: using(x), using=model), floats(2, 4))
    with pytest.raises(UnsupportedModelError, match=pattern(text, where="its attribute model: ")):
        tl.trace(Holds(model), floats(2, 4))


class Holds:
    """A callable that is no module."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, x: Tensor) -> Tensor:
        return self.model(x)


part_of_a_program: Any = None


def test_refused_where_a_function_reads_a_global(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "part_of_a_program", fsdp2(alone))
    with pytest.raises(
        UnsupportedModelError, match=r"^<lambda> uses part_of_a_program: FSDPLinear is sharded"
    ):
        tl.trace(lambda x: part_of_a_program(x), floats(2, 4))
    held = Holds(nn.Linear(4, 4))
    held.part_of_a_program = torch.neg
    assert tl.trace(lambda x: held.part_of_a_program(x), floats(2)).provenance.verified


def test_a_script_module_inside_a_model_or_a_function_is_one_op() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.ReLU())
    assert [op.type for op in tl.trace(model, floats(2, 4)).ops] == "input torchscript relu output".split()
    inner = model[0]
    assert "torchscript" in {op.type for op in tl.trace(lambda x: inner(x), floats(2, 4)).ops}


def test_the_module_of_one_stage_is_traced(alone: Any) -> None:
    model = stage(alone).submod
    assert tl.trace(model, floats(2, 4)).provenance.verified
    cut_out = pipe(alone).get_stage_module(1)
    trace = tl.trace(cut_out, floats(2, 4))
    assert torch.equal(trace.output, cut_out(floats(2, 4)))
    assert "linear" in {op.type for op in trace.ops}


def test_all_that_is_refused_is_listed_outermost_only(alone: Any) -> None:
    model = nn.ModuleDict({"a": fsdp1(alone), "b": nn.Sequential(nn.Linear(4, 4), colwise(alone))})
    found = [(refusal.kind, refusal.found) for refusal in refusals(model)]
    assert found == [("FSDP", "FullyShardedDataParallel at 'a'"), ("tensor parallel", "Linear at 'b.1'")]


@pytest.mark.parametrize("build", [exported, stage, schedule, schedule_step, pipe, exported_module])
def test_what_a_refused_object_holds_is_not_listed(alone: Any, build: Build) -> None:
    assert len(list(refusals(build(alone)))) == 1


def test_every_kind_is_met_by_a_test_above(alone: Any) -> None:
    builds = [case.values[0] for case in ROOTS + CALLABLES]
    met = {refusal.kind for build in builds for refusal in refusals(build(alone))}
    assert met == {kind.name for kind in REFUSED}


def test_models_that_only_look_like_it_are_not_refused() -> None:
    class FSDPModule(nn.Linear):
        """A class of one's own that has the name."""

    hooked = nn.Linear(4, 4)
    hooked.register_forward_pre_hook(lambda module, args: None)
    shared = nn.Linear(4, 4)
    loop = nn.Sequential(shared, shared, torch.fx.symbolic_trace(nn.ReLU()), FSDPModule(4, 4), hooked)
    assert list(refusals(loop)) == []
    assert list(refusals(torch.relu)) == list(refusals(doubled)) == list(refusals(None)) == []


def test_a_capture_inside_another_is_refused() -> None:
    text = "a capture is already open on this thread; end it before the next one starts"
    model = nn.Linear(4, 4)
    with tl.capture(model):
        with pytest.raises(NestedCaptureError, match=text):
            tl.trace(model, floats(2, 4))
        with pytest.raises(NestedCaptureError, match=text), tl.capture(model):
            pytest.fail("the block was entered")
    with pytest.raises(NestedCaptureError, match=text):
        tl.trace(lambda x: tl.trace(model, x).output, floats(2, 4))


class TracesItems(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, at: int) -> str:
        for capture in (tl.trace, lambda model, x: tl.capture(model).__enter__()):
            with pytest.raises(NestedCaptureError) as refused:
                capture(nn.Linear(4, 4), torch.ones(2, 4))
        return str(refused.value)


@pytest.mark.skipif(
    sys.platform != "linux", reason="the worker must be forked: the test module is no package"
)
def test_a_capture_in_a_data_loader_worker_is_refused() -> None:
    (text,) = torch.utils.data.DataLoader(
        TracesItems(), num_workers=1, batch_size=None, multiprocessing_context="fork"
    )
    assert text == (
        "this is a DataLoader worker process, whose results the main process would not see; "
        "trace the model in the main process"
    )


def test_what_cannot_be_called_and_is_no_known_kind_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"model is a int, which cannot be called; give an nn.Module"):
        tl.trace(3, floats(2))
    with pytest.raises(InputError, match=r"model\['a'\] is a int; a dict of models maps names to nn.Modules"):
        with tl.capture({"a": 3}):
            pytest.fail("the block was entered")
    assert issubclass(UnsupportedModelError, TorchLensError)


def test_looking_for_refusals_imports_nothing() -> None:
    code = """
import sys, torch
from torch import nn
import torchlens as tl
model = nn.Sequential(nn.Linear(2, 2), nn.DataParallel(nn.ReLU()), torch.jit.script(nn.Tanh()))
from torchlens._capture import refusals
slow = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor", "torch.distributed.pipelining")
before = {name for name in slow if name in sys.modules}
assert list(refusals.refusals(model)) == list(refusals.refusals(lambda x: model(x))) == []
print(sorted({name for name in slow if name in sys.modules} - before), "torch._dynamo" in sys.modules)
"""
    words = [sys.executable, "-W", "ignore", "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert result.stdout == "[] False\n", result.stderr
