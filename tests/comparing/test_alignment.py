"""Which op is which: for one text under all its branches, for edited texts, for other implementations."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs import random_source
from tests.programs.examples import EXAMPLES
from tests.programs.random_source import Program
from tests.programs.reading import compiled, floats
from torchlens.comparing.alignment import Alignment, align
from torchlens.comparing.outline import Outline


def aligned(a: Any, b: Any) -> Alignment:
    """The alignment of two traces, with what holds for every one."""
    found = align(a._views, b._views)
    ours, theirs = [pair.a for pair in found.pairs], [pair.b for pair in found.pairs]
    assert sorted([*ours, *found.only_a]) == list(range(len(a.ops)))
    assert sorted([*theirs, *found.only_b]) == list(range(len(b.ops)))
    assert ours == sorted(ours)
    for pair in found.pairs:
        one, other = a.ops[pair.a], b.ops[pair.b]
        assert (one.kind, one.operation, one.output_slot) == (other.kind, other.operation, other.output_slot)
    assert_monotone(a, b, found)
    mirror = align(b._views, a._views)
    assert {(pair.b, pair.a, pair.by) for pair in mirror.pairs} == set(found.pairs)
    assert (mirror.only_b, mirror.only_a) == (found.only_a, found.only_b)
    assert {(one, other) for other, one in mirror.calls} == set(found.calls)
    return found


def assert_monotone(a: Any, b: Any, found: Alignment) -> None:
    """Within two module calls that are one another, ops keep their order."""
    partner = dict(found.calls) | {0: 0}
    call_of_a, call_of_b = a._reader.rows.call, b._reader.rows.call
    last: dict[int, int] = {}
    for pair in found.pairs:
        call = call_of_a[a._reader.numbers.rows[pair.a]]
        if partner.get(call) == call_of_b[b._reader.numbers.rows[pair.b]]:
            assert last.get(call, -1) < pair.b
            last[call] = pair.b


def labels(trace: Any, ops: Any) -> str:
    return " ".join(trace.ops[op].label for op in ops)


def pair_labels(a: Any, b: Any, found: Alignment) -> list[tuple[str, str, str]]:
    return [(a.ops[pair.a].label, b.ops[pair.b].label, pair.by) for pair in found.pairs]


def only(a: Any, b: Any) -> tuple[str, str]:
    """The labels of what stands in one run only."""
    found = aligned(a, b)
    return labels(a, found.only_a), labels(b, found.only_b)


def assert_identity(a: Any, b: Any, by: str | None = "site") -> None:
    found = aligned(a, b)
    assert [(pair.a, pair.b) for pair in found.pairs] == [(at, at) for at in range(len(a.ops))]
    assert not found.only_a and not found.only_b
    assert by is None or {pair.by for pair in found.pairs} == {by}


# ---- one text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_model_is_aligned_with_itself(name: str) -> None:
    example = EXAMPLES[name]

    def run() -> Any:
        torch.manual_seed(0)
        return tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())

    assert_identity(run(), run())


@settings(max_examples=50)
@given(program=random_source.programs(is_module=False) | random_source.programs(is_module=True))
def test_a_program_is_aligned_with_itself(program: Program) -> None:
    note(program.source)
    assert_identity(run_program(program), run_program(program))


def run_program(program: Program) -> Any:
    return tl.trace(program.build(), program.inputs(), capture=tl.options.CaptureOptions(seed=0))


class Steps(nn.Module):
    def __init__(self, count: int, start: str = "exp") -> None:
        super().__init__()
        self.count, self.start = count, start
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.exp() if self.start == "exp" else x.sin()
        for step in range(self.count):
            x = torch.tanh(self.linear(x)) * 0.5
            if self.start == "skip" and step == 2:
                continue
            x = x + 1
        return x.relu()


def test_a_loop_of_five_rounds_against_seven() -> None:
    a, b = (tl.trace(Steps(count), floats(2, 4)) for count in (5, 7))
    found = aligned(a, b)
    assert not found.only_a
    assert labels(b, found.only_b) == (
        "linear_1:6 tanh_1:6 mul_1:6 add_1:6 linear_1:7 tanh_1:7 mul_1:7 add_1:7"
    )
    assert pair_labels(a, b, found) == [(label, label, "site") for label in (op.label for op in a.ops)]


def test_a_round_that_skips_something_keeps_the_others_in_place() -> None:
    a, b = tl.trace(Steps(5, "sin"), floats(2, 4)), tl.trace(Steps(5, "skip"), floats(2, 4))
    found = aligned(a, b)
    assert (labels(a, found.only_a), labels(b, found.only_b)) == ("add_1:3", "")
    pairs = {one: other for one, other, _ in pair_labels(a, b, found)}
    assert pairs["add_1:4"] == "add_1:3" and pairs["tanh_1:4"] == "tanh_1:4"


def test_another_branch_on_one_line() -> None:
    a, b = tl.trace(Steps(2, "exp"), floats(2, 4)), tl.trace(Steps(2, "sin"), floats(2, 4))
    assert only(a, b) == ("exp_1:1", "sin_1:1")
    assert {pair.by for pair in aligned(a, b).pairs} == {"site"}


class Survives(nn.Module):
    """A submodule fails in the middle, and the forward goes on."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.thrower = models.Thrower(error)

    def forward(self, x: Tensor) -> Tensor:
        try:
            x = self.thrower(x)
        except ValueError:
            x = torch.sin(x)
        return torch.cos(x)


@pytest.mark.parametrize("name", [*EXAMPLES, "Survives"])
def test_what_ran_in_a_call_stands_together(name: str) -> None:
    if name == "Survives":
        trace = tl.trace(Survives(ValueError("no")), floats(2))
    else:
        example = EXAMPLES[name]
        trace = tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())
    outline = Outline(trace._views)

    def inside(call: int) -> list[int]:
        return [row for item in outline.items[call] for row in ([item] if item >= 0 else inside(~item))]

    for call in range(len(outline.items)):
        rows = inside(call)
        assert rows == outline.rows_in([~call]) and len(rows) == outline.size([~call])
    assert inside(0) == list(range(len(outline)))


def test_unequal_numbers_of_outputs() -> None:
    a, b = (tl.trace(lambda x: torch.stack(x.unbind(0)), floats(n, 4)) for n in (2, 3))
    assert only(a, b) == ("", "unbind_3:1")


def test_a_failed_and_a_halted_run_are_the_beginning_of_a_whole_one() -> None:
    model = models.StackedBlocks()
    whole = tl.trace(model, floats(3, 4))
    halted = tl.trace(model, floats(3, 4), stop_after="blocks.1")
    found = aligned(halted, whole)
    assert labels(halted, found.only_a) == ""
    assert labels(whole, found.only_b) == "linear_5:1 add_5:1 linear_6:1 add_6:1 output_1:1"


def test_nothing_ran_in_one() -> None:
    a, b = tl.trace(lambda: None, ()), tl.trace(torch.sin, floats(2))
    assert only(a, b) == ("", "input_1:1 sin_1:1 output_1:1")


# ---- edited texts --------------------------------------------------------------------------------

HEAD = "def run(x):\n"
BODY = """    x = torch.sin(x)
    x = torch.sin(x)
    x = torch.exp(x)
    x = torch.sin(x)
    return torch.sin(x)
"""


def run_text(text: str, x: Tensor | None = None) -> Any:
    return tl.trace(compiled(text, "model.py")["run"], floats(2, 4) if x is None else x)


def edited(*lines: str, at: int) -> str:
    body = BODY.splitlines(keepends=True)
    return HEAD + "".join([*body[:at], *(f"    {line}\n" for line in lines), *body[at:]])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n\n" + HEAD + BODY, id="moved as a whole"),
        *(pytest.param(edited("# a remark", at=at), id=f"a remark before line {at}") for at in range(5)),
    ],
)
def test_remarks_change_nothing(text: str) -> None:
    assert_identity(run_text(HEAD + BODY), run_text(text), by=None)


def test_a_function_that_moved_is_aligned_by_place() -> None:
    assert_identity(run_text(HEAD + BODY), run_text("\n\n" + HEAD + BODY))


@pytest.mark.parametrize("at", range(5))
def test_a_new_line_is_all_that_is_in_one_only(at: int) -> None:
    a, b = run_text(HEAD + BODY), run_text(edited("torch.cos(x)", at=at))
    assert only(a, b) == ("", "cos_1:1")


def test_a_view_spelled_otherwise_throws_nothing_off() -> None:
    a = run_text("def run(x):\n    x = x.view(-1)\n    x = x + 1\n    return x * 2\n")
    b = run_text("def run(x):\n    x = x.reshape(-1)\n    x = torch.add(x, 1)\n    return torch.mul(x, 2)\n")
    assert only(a, b) == ("view_1:1", "reshape_1:1")


def line_of(program: Program, at: int, statement: str) -> Program:
    """The program with one more line, indented as the one that it comes before."""
    at %= len(program.lines) + 1
    after = program.lines[at] if at < len(program.lines) else ""
    indent = after[: len(after) - len(after.lstrip())]
    lines = [*program.lines[:at], indent + statement, *program.lines[at:]]
    return Program(program.setting, lines, program.names)


@settings(max_examples=50)
@given(
    program=random_source.programs(is_module=False) | random_source.programs(is_module=True),
    at=st.integers(0, 20),
    statement=st.sampled_from(
        ["torch.erf(x)", "torch.erf(x), torch.erf(y)", "# a remark", "[torch.erf(x)] * 2"]
    ),
)
def test_what_is_written_into_a_program_is_all_that_is_in_one_only(
    program: Program, at: int, statement: str
) -> None:
    longer = line_of(program, at, statement)
    note(longer.source)
    a, b = run_program(program), run_program(longer)
    found = aligned(a, b)
    assert not found.only_a
    assert {b.ops[op].type for op in found.only_b} <= {"erf"}
    assert len(b.ops) - len(a.ops) == len(found.only_b)
    kept = [op for op in range(len(b.ops)) if op not in set(found.only_b)]
    assert [pair.b for pair in found.pairs] == kept


@settings(max_examples=50)
@given(
    program=random_source.programs(is_module=False),
    at=st.integers(0, 20),
    statement=st.sampled_from(
        ["torch.sin(x)", "torch.cat([x, x])", "x * x", "x.T", "torch.stack([x, x, x])"]
    ),
)
def test_one_more_of_calls_that_are_there_leaves_as_many_over(
    program: Program, at: int, statement: str
) -> None:
    """Which of two like calls is the new one cannot be told; that everything else is aligned can."""
    two = line_of(line_of(program, at, statement), at + 5, statement)
    three = line_of(two, at, statement)
    note(three.source)
    a, b = run_program(two), run_program(three)
    found = aligned(a, b)
    assert not found.only_a
    assert {b.ops[op].operation for op in found.only_b} <= {"sin", "cat", "mul", "T", "stack"}
    assert len(b.ops) - len(a.ops) == len(found.only_b)


# ---- other implementations -----------------------------------------------------------------------


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class MixerModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Mixer() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class PortedMixer(nn.Module):
    """Other names, the middle as a module of its own, the activation as a module, `torch.add` for `+`."""

    def __init__(self) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(4)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.add(hidden, self.mlp(self.ln(hidden)))


class Ported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"first": PortedMixer(), "second": PortedMixer()})

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


def as_function(model: MixerModel) -> Callable[[Tensor], Tensor]:
    """The same without a module."""

    def run(x: Tensor) -> Tensor:
        for block in model.blocks:
            h = F.layer_norm(x, (4,), block.norm.weight, block.norm.bias)
            h = F.gelu(F.linear(h, block.up.weight, block.up.bias))
            x = x + F.linear(h, block.down.weight, block.down.bias)
        return x

    return run


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda model: Ported(), id="other modules"),
        pytest.param(as_function, id="no modules"),
        pytest.param(models.Wrapper, id="inside another module"),
        pytest.param(lambda model: nn.Sequential(models.Wrapper(model)), id="inside two others"),
        pytest.param(lambda model: model.to(torch.float64), id="another dtype"),
    ],
)
def test_every_op_of_a_port_is_found(build: Callable[[MixerModel], Any]) -> None:
    model, x = MixerModel(), floats(2, 4)
    a = tl.trace(model, x)
    ported = build(model)
    b = tl.trace(ported, x.to(model.blocks[0].up.weight.dtype) if ported is model else x)
    found = aligned(a, b)
    assert labels(a, found.only_a) == ""
    assert {b.ops[op].kind for op in found.only_b} <= {"source"}, "the weights of a plain function"
    assert len(found.pairs) == 12


def test_a_renamed_module_is_aligned_by_order_and_the_others_by_place() -> None:
    model = nn.Sequential()
    for name in ("one", "two", "three"):
        model.add_module(name, nn.Linear(4, 4))
    renamed = nn.Sequential()
    for name in ("one", "second", "three"):
        renamed.add_module(name, nn.Linear(4, 4))
    a, b = tl.trace(model, floats(2, 4)), tl.trace(renamed, floats(2, 4))
    assert [by for *_, by in pair_labels(a, b, aligned(a, b))] == ["site", "site", "order", "site", "site"]


def test_a_module_put_into_a_sequence_shifts_the_numbers_of_the_others() -> None:
    a = tl.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)), floats(2, 4))
    b = tl.trace(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.ReLU(), nn.Linear(4, 3)), floats(2, 4))
    assert only(a, b) == ("", "tanh_1:1")


class NormFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear, self.out = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cos(self.out(torch.sin(self.linear(self.norm(x)))))


class NormLast(nn.Module):
    """What is called `norm` is another thing, in another place."""

    def __init__(self) -> None:
        super().__init__()
        self.ln, self.fc, self.proj, self.norm = (
            nn.LayerNorm(4),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.LayerNorm(4),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(torch.cos(self.proj(torch.sin(self.fc(self.ln(x))))))


def test_a_name_that_means_another_thing_does_not_mislead() -> None:
    a, b = tl.trace(NormFirst(), floats(2, 4)), tl.trace(NormLast(), floats(2, 4))
    assert only(a, b) == ("", "layer_norm_2:1")


def test_other_sizes_throughout() -> None:
    a, b = tl.trace(MixerModel(), floats(2, 4)), tl.trace(Ported(), floats(3, 4))
    assert only(a, b) == ("", "")
    c = tl.trace(MixerModel(), floats(3, 4))
    assert only(a, c) == ("", "")


def test_another_activation_in_the_same_module() -> None:
    a, b = (
        tl.trace(nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4)), floats(2, 4))
        for act in (nn.ReLU(), nn.GELU())
    )
    assert only(a, b) == ("relu_1:1", "gelu_1:1")


# ---- sizes and processes -------------------------------------------------------------------------


def test_a_trace_of_another_process(tmp_path: Path) -> None:
    """Nothing of a process, such as an address in memory, takes part: two runs of one file print the same."""
    script = tmp_path / "model.py"
    script.write_text(
        "import torch, torchlens as tl\n"
        "from torchlens.comparing.outline import Outline\n"
        "def run(x):\n"
        "    for _ in range(2):\n"
        "        x = torch.tanh(x) * 2\n"
        "    return x\n"
        "outline = Outline(tl.trace(run, torch.ones(2))._views)\n"
        "print(outline.operations, outline.items, outline.sites, outline.names(0))\n",
        encoding="utf-8",
    )
    root = Path(__file__).parents[2]
    runs = [
        subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True,
            cwd=tmp_path, env={"PYTHONPATH": str(root), "PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert "model.py" in runs[0] and str(tmp_path) not in runs[0]


def test_deep_nesting_needs_no_deep_recursion() -> None:
    a, b = (tl.trace(models.CallsItself(), (floats(2, 4), depth)) for depth in (150, 151))
    found = aligned(a, b)
    assert not found.only_a and len(found.only_b) == 2
