"""Random tensor programs as Python source, made from lists of small numbers so that they shrink well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

MAKE = """
{n} = {a} + 1
{n} = {a} * {b}
{n} = torch.sin({a})
{n} = {a}.clone()
{n} = {a}.sum(0)
{n} = 1 - {a}
{n} = 2 * {a} - {b}
{n} = torch.cat([{a}, {b}])
{n} = torch.stack([{a}, {b}, {a}])
{n} = torch.where({a} > 0, {a}, {b})
{n} = F.softmax({a}, -1)
{n} = F.relu({a})
{n} = F.dropout({a}, 0.5, True)
{n} = F.dropout({a}, 0.5, False)
{n} = {a}.contiguous()
{n} = {a} @ {b}.T
{n} = {a} * {a}.sum().item()
{n} = {a}.cumsum(0)
{n} = shifted({a})
{n} = [torch.exp(t) for t in ({a}, {b})][1]
{n} = sum(t * 2 for t in ({a}, {b}))
""".strip().splitlines()

VIEW = """
{n} = {a}[0]
{n} = {a}[1:]
{n} = {a}[..., ::2]
{n} = {a}[:, 1]
{n} = {a}[-1:]
{n} = {a}.T
{n} = {a}.t()
{n} = {a}.unsqueeze(0)
{n} = {a}.squeeze()
{n} = {a}.transpose(0, -1)
{n} = {a}.view(-1)
{n} = {a}.reshape(-1)
{n} = {a}.flatten()
{n} = {a}.expand(2, *{a}.shape)
{n} = {a}.detach()
{n} = {a}.data
{n} = {a}.narrow(0, 0, 1)
{n} = {a}.diagonal()
{n} = {a}.unfold(0, 2, 1)
{n} = {a}.real
{n} = {a}[torch.tensor([1, 0])]
{n} = {a}[{a} > 0]
{n} = head({a})
{n}, {m} = {a}.split([1, len({a}) - 1])
{n}, {m} = {a}.chunk(2)
{n}, {m} = torch.max({a}, -1)
{n}, {m} = {a}.sort(0)
{n}, *{m} = {a}.unbind(0)
{n}, {m} = torch.topk({a}, 1)
""".strip().splitlines()

NEW = """
{n} = torch.zeros(3, 4)
{n} = torch.ones_like({a})
{n} = torch.arange(4.0)
{n} = torch.randn(3, 4)
{n} = torch.tensor([1.0, 2.0, 3.0])
{n} = {a}.new_full((2, 4), 0.5)
{n} = torch.eye(4)
""".strip().splitlines()

WRITE = """
{a}.add_(1)
{a}.mul_({b})
{a} += {b}
{a}[0].add_(1)
{a}[1:].mul_(2)
{a}[0] = 1
{a}[1:] = {b}[:-1]
{a}[..., :-1] = {b}[..., 1:]
{a}[torch.tensor([0, 1])] = 0.5
{a}[{a} > 0] = 3
{a}[:] = {b}
{a}[:, 0] += 1
{a}.copy_({b})
{a}.zero_()
{a}.relu_()
{a}.T.add_(1)
{a}.detach().add_(1)
{a}.data.mul_(2)
{a}.masked_fill_({a} < 0, 0.25)
{a}.clamp_(max=0.75)
{a}.view(-1)[:2] = 7
{a}.unbind(0)[1].add_(1)
F.relu({a}, inplace=True)
F.dropout({a}, 0.5, True, inplace=True)
torch.add({a}, {b}, out={b})
torch.mul({a}, 2, out={b})
bumped({a})
{n} = swept({a}, {b})
{n} = {a}.add_(1)
{n} = {a}[0].mul_(2)
""".strip().splitlines()

RESHAPE = """
{a}.t_()
{a}.unsqueeze_(0)
{a}.squeeze_()
{a}.transpose_(0, -1)
""".strip().splitlines()

ASSIGN = """
self.h = {a}
self.h = {a} * 2
self.h = self.h + {a}
self.h.add_(1)
self.h[0] = {a}[0]
""".strip().splitlines()

BLOCKS = """
for _ in range(2):
for {a} in ({a}, {b}):
if {a}.sum() > 0:
while next(fuel) and {a}.abs().sum() < 20:
with torch.no_grad():
""".strip().splitlines()

FUNCTIONS = """
fuel = iter([True] * 4 + [False] * 100)  # so that every loop ends

def shifted(a):
    return torch.sin(a) + 1

def head(a):
    return a[0]

def bumped(a):
    a.add_(1)
    return a

def swept(a, b):
    for t in range(len(a)):
        a[t] = b[t] * 2
    return a[:1]
"""


@dataclass(frozen=True)
class Step:
    """One statement: a template and which of the names at hand fill it."""

    template: str
    a: int
    b: int


@dataclass(frozen=True)
class Block:
    header: Step
    body: list[Step]


@dataclass(frozen=True)
class Setting:
    """What kind of program runs: where its tensors come from."""

    is_module: bool = False
    requires_grad: bool = False
    inputs_share_memory: bool = False


def steps(templates: list[str]) -> st.SearchStrategy[Step]:
    numbers = st.integers(0, 6)
    return st.builds(Step, st.sampled_from(templates), numbers, numbers)


MAY_GIVE_ITS_INPUT = {
    "{n} = {a}.contiguous()",
    "{n} = F.dropout({a}, 0.5, False)",
    "{n} = {a}.real",
    "{n} = {a}.flatten()",
    "{n} = {a}.reshape(-1)",
}
"""Who made a parameter or buffer then is another question than the one asked here."""

STATEMENTS = MAKE + VIEW + WRITE + VIEW + WRITE + NEW + RESHAPE
"""Views and writes come twice: they are what the test is about."""


def step_lists(setting: Setting) -> st.SearchStrategy[list[Step | Block]]:
    templates = STATEMENTS + (ASSIGN if setting.is_module else [])
    block = st.builds(Block, steps(BLOCKS), st.lists(steps(templates), min_size=1, max_size=3))
    return st.lists(st.one_of(steps(templates), steps(templates), steps(templates), block), max_size=10)


class Host(nn.Module):
    """Has the parameter and the buffer that a program may use, and the program as its forward."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-2, 1, 12).reshape(3, 4))
        self.register_buffer("h", torch.linspace(0, 2, 12).reshape(3, 4))
        self.run = run

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.run(self, x, y)


@dataclass(repr=False)
class Program:
    setting: Setting
    lines: list[str]
    names: list[str]
    """The tensors the program returns."""

    def __repr__(self) -> str:
        return f"{self.setting}\n{self.source}"

    @property
    def source(self) -> str:
        """The program's text, its functions left out."""
        header = "def run(self, x, y):" if self.setting.is_module else "def run(x, y):"
        start = ["x, y = x * 1, y * 1"] if self.setting.requires_grad else []
        body = [*start, *self.lines, f"return [{', '.join(self.names)}]"]
        return "\n".join([header, *[f"    {line}" for line in body]])

    def build(self) -> Callable[..., Any]:
        namespace: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(f"{FUNCTIONS}\n{self.source}", "<random program>", "exec"), namespace)
        return Host(namespace["run"]) if self.setting.is_module else namespace["run"]

    def inputs(self) -> tuple[Tensor, Tensor]:
        x = torch.linspace(-1, 1, 12).reshape(3, 4)
        y = x.T if self.setting.inputs_share_memory else torch.linspace(1, -2, 12).reshape(3, 4)
        if self.setting.requires_grad and not self.setting.inputs_share_memory:
            return x.requires_grad_(), y.requires_grad_()
        return x, y

    def with_lines(self, *added: str) -> Program:
        return Program(self.setting, self.lines + list(added), self.names)

    def variables(self) -> dict[str, Tensor] | None:
        """The tensors in reach after the program, by name; None where it fails or makes an empty tensor."""
        empty_body = ["    pass"] if self.lines and self.lines[-1].endswith(":") else []
        probe = Program(self.setting, [*self.lines, *empty_body, "return dict(locals())"], self.names)
        torch.manual_seed(0)
        try:
            found = probe.build()(*self.inputs())
        except (RuntimeError, IndexError, TypeError, ValueError, UnboundLocalError):
            return None
        tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
        if any(t.numel() == 0 or t.numel() > 100 for t in tensors.values()):
            return None
        if self.setting.is_module:
            tensors |= {"self.h": found["self"].h, "self.w": found["self"].w}
        return tensors


def may_use(name: str, template: str) -> bool:
    if template in MAY_GIVE_ITS_INPUT or template in RESHAPE or template in BLOCKS:
        return not name.startswith("self.")
    # a view of the parameter could be written, and a parameter's older values are not kept
    return name != "self.w" or template in MAKE


def fill(step: Step, tensors: dict[str, Tensor], number: int) -> str:
    """The statement, its names chosen among the tensors at hand: b has the shape of a where one has."""
    floating = [name for name, t in tensors.items() if t.is_floating_point()]
    usable = [name for name in floating if may_use(name, step.template)]
    a = usable[step.a % len(usable)]
    alike = [name for name in usable if tensors[name].shape == tensors[a].shape]
    b = alike[step.b % len(alike)]
    return step.template.format(a=a, b=b, n=f"v{number}", m=f"u{number}")


def extended(program: Program, added: list[Step], indent: str, lines: list[str]) -> list[str]:
    """The lines and one for each step that runs; a step that fails is left out."""
    for step in added:
        tensors = program.with_lines(*lines).variables() or {}
        line = indent + fill(step, tensors, len(program.lines) + len(lines))
        if program.with_lines(*lines, line).variables() is not None:
            lines = [*lines, line]
    return lines


def written_program(setting: Setting, added: list[Step | Block]) -> Program:
    program = Program(setting, [], [])
    for item in added:
        if isinstance(item, Step):
            program = program.with_lines(*extended(program, [item], "", []))
            continue
        header = extended(program, [item.header], "", [])
        body = extended(program, item.body, "    ", header)
        if len(body) > len(header):
            program = program.with_lines(*body)
    tensors = program.variables() or {}
    distinct = {id(t): name for name, t in tensors.items() if not name.startswith("self.")}
    program.names = list(distinct.values())
    return program


@st.composite
def programs(draw: st.DrawFn, is_module: bool) -> Program:
    setting = Setting(is_module, draw(st.booleans()), draw(st.booleans()))
    return written_program(setting, draw(step_lists(setting)))
