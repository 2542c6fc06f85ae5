"""Compiled code runs as Python during a capture, and is compiled afterwards as before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.agreement import assert_same_bits
from tests.programs.reading import floats, lint, op_labels
from torchlens._capture.compiled import compiled_code_eager

# what torch says of any module hook; a capture has two
pytestmark = pytest.mark.filterwarnings("ignore:Using `torch.compile")


class Compiler:
    """Compiles, and counts how often it did."""

    def __init__(self) -> None:
        self.compilations = 0

    def __call__(self, program: Any, **options: Any) -> Any:
        return torch.compile(program, backend=self.backend, **options)

    def backend(self, graph: Any, inputs: Any) -> Any:
        self.compilations += 1
        return graph.forward


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    torch._dynamo.reset()
    yield Compiler()
    torch._dynamo.reset()


def doubled(x: Tensor) -> Tensor:
    return torch.relu(x) * 2


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


class Holding(nn.Module):
    """Holds a part that was compiled in some way, and calls a compiled function."""

    def __init__(self, part: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.part = part
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x) + self.function(x)


def compiled_in_place(compiler: Compiler, part: nn.Module) -> nn.Module:
    part.compile(backend=compiler.backend)
    return part


def compiled_forward(compiler: Compiler, part: nn.Module) -> nn.Module:
    part.forward = compiler(part.forward)
    return part


WAYS: dict[str, Callable[[Compiler, nn.Module], nn.Module]] = {
    "torch.compile": lambda compiler, part: compiler(part),
    "fullgraph": lambda compiler, part: compiler(part, fullgraph=True),
    "dynamic": lambda compiler, part: compiler(part, dynamic=True),
    "module.compile": compiled_in_place,
    "forward": compiled_forward,
}


@pytest.mark.parametrize("used_before", [False, True], ids=["new", "used before"])
@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_part_is_seen_op_by_op_and_keeps_its_caches(
    way: str, used_before: bool, compiler: Compiler
) -> None:
    torch.manual_seed(0)
    model = Holding(WAYS[way](compiler, Part()), compiler(doubled))
    x = floats(2, 3)
    if used_before:
        model(x)
    before = compiler.compilations
    traces = [tl.trace(model, x), tl.trace(model, x)]  # twice: the first leaves nothing behind
    assert compiler.compilations == before
    after = model(x)
    assert compiler.compilations == (before if used_before else 2)
    for trace in traces:
        lint(trace)
        assert trace.provenance.verified and trace.check()
        assert op_labels(trace) == "linear_1:1 relu_1:1 relu_2:1 mul_1:1 add_1:1"
        assert_same_bits(trace.output, after)
        assert trace["linear_1:1"].module.type == "Linear"


ROOTS: dict[str, Callable[[Compiler], Any]] = {
    "module": lambda compiler: compiler(Part()),
    "module in place": lambda compiler: compiled_in_place(compiler, Part()),
    "function": lambda compiler: compiler(doubled),
    "function, fullgraph": lambda compiler: compiler(doubled, fullgraph=True),
}


@pytest.mark.parametrize("root", ROOTS)
def test_a_compiled_root(root: str, compiler: Compiler) -> None:
    model = ROOTS[root](compiler)
    expected = model(floats(2, 3))
    before = compiler.compilations
    trace = tl.trace(model, floats(2, 3))
    assert_same_bits(trace.output, expected)
    assert "relu_1:1" in op_labels(trace)
    assert compiler.compilations == before
    model(floats(2, 3))
    assert compiler.compilations == before


def test_guards_are_what_they_were(compiler: Compiler) -> None:
    function = compiler(doubled)
    function(floats(3))
    tl.trace(lambda x: function(x), floats(2, 2, 2))
    function(floats(3))
    assert compiler.compilations == 1
    function(floats(2, 2, 2))  # another number of dimensions compiles again, as without a capture
    assert compiler.compilations == 2


def test_a_compiled_module_is_traced_as_the_module_it_wraps(compiler: Compiler) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    trace = tl.trace(compiler(model), floats(2, 3))
    assert [module.address for module in trace.modules] == ["", "0", "1"]


def test_a_compiled_call_in_a_block(compiler: Compiler) -> None:
    model = Part()
    compiled, x = compiler(model), floats(2, 3)
    with tl.capture(model) as trace:
        compiled(x)
    assert op_labels(trace) == "linear_1:1 relu_1:1"
    assert trace.modules[""].num_calls == 1


def test_overlapping_captures_give_the_stance_back(compiler: Compiler) -> None:
    stance = torch._dynamo.eval_frame._stance
    with compiled_code_eager():
        with compiled_code_eager():
            pass
        assert torch._dynamo.eval_frame._stance.stance == "force_eager"
    assert torch._dynamo.eval_frame._stance == stance


@pytest.mark.parametrize("stance", ["default", "force_eager", "eager_on_recompile"])
def test_the_stance_of_the_user_stays(stance: str, compiler: Compiler) -> None:
    with torch.compiler.set_stance(stance):
        tl.trace(compiler(doubled), floats(3))
        assert torch._dynamo.eval_frame._stance.stance == stance


def test_a_capture_that_raises_gives_the_stance_back(compiler: Compiler) -> None:
    def fails(x: Tensor) -> Tensor:
        raise ValueError(str(x.shape))

    with pytest.raises(ValueError, match="Size"):
        tl.trace(compiler(fails), floats(3))
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_captures_on_two_threads(compiler: Compiler) -> None:
    function = compiler(doubled)
    barrier = threading.Barrier(2)
    labels: list[str] = []

    def work() -> None:
        def model(x: Tensor) -> Tensor:
            barrier.wait(60)
            return function(x)

        labels.append(op_labels(tl.trace(model, floats(3))))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert labels == ["relu_1:1 mul_1:1"] * 2
    assert torch._dynamo.eval_frame._stance.stance == "default"


# ---- torch before 2.6, which cannot run compiled code eagerly ------------------------------------


@pytest.fixture
def without_stance(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as torchlens can tell, this torch has no stance."""
    monkeypatch.delattr(torch.compiler, "set_stance")


@pytest.mark.filterwarnings("ignore:Dynamo d")
@pytest.mark.parametrize("way", ["function", "module.compile", "forward"])
def test_a_compiled_region_that_may_be_skipped_is_named(
    way: str, compiler: Compiler, without_stance: None
) -> None:
    function = compiler(doubled) if way == "function" else doubled
    part = Part() if way == "function" else WAYS[way](compiler, Part())
    model = Holding(part, function)
    expected = model(floats(2, 3))
    trace = tl.trace(model, floats(2, 3))
    assert_same_bits(trace.output, expected)
    assert trace.provenance.verification_reason == "compiled_region_skipped"
    assert "cannot run eagerly" in str(trace.provenance)


def test_a_wrapped_module_runs_eagerly_all_the_same(compiler: Compiler, without_stance: None) -> None:
    model = Holding(compiler(Part()), doubled)
    expected = model(floats(2, 3))
    trace = tl.trace(model, floats(2, 3))
    assert_same_bits(trace.output, expected)
    assert op_labels(trace) == "linear_1:1 relu_1:1 relu_2:1 mul_1:1 add_1:1"
    assert trace.provenance.verified
    assert compiler.compilations == 1


def test_without_compiled_code_nothing_is_doubted(without_stance: None) -> None:
    assert tl.trace(Part(), floats(2, 3)).provenance.verified
