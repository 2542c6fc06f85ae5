"""Rows of the grouping page about plain functions: loops, helpers, recursion, branches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.programs.page import row
from tests.programs.reading import computed, floats, run_labels, traced


@row("`for _ in range(3): x = torch.tanh(x)`")
def loop_of_one_op() -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(x)
        return x

    assert run_labels(run) == "tanh_1:1 tanh_1:2 tanh_1:3"


@row("`torch.tanh(torch.tanh(torch.tanh(x)))` on one line")
def nested_calls() -> None:
    assert run_labels(lambda x: torch.tanh(torch.tanh(torch.tanh(x)))) == "tanh_1:1 tanh_2:1 tanh_3:1"


@row("`relu(relu(x))` written on two lines")
def two_lines() -> None:
    def statements(x: Tensor) -> Tensor:
        x = torch.relu(x)
        return torch.relu(x)

    # fmt: off
    def expression(x: Tensor) -> Tensor:
        return torch.relu(
            torch.relu(x))
    # fmt: on

    assert run_labels(statements) == run_labels(expression) == "relu_1:1 relu_2:1"


@row("A helper function called from two lines")
def helper_on_two_lines() -> None:
    def shifted(x: Tensor) -> Tensor:
        return torch.sin(x) + 1

    def run(x: Tensor) -> Tensor:
        x = shifted(x)
        return shifted(x)

    assert run_labels(run) == "sin_1:1 add_1:1 sin_2:1 add_2:1"


@row("A helper called from one loop line")
def helper_in_loop() -> None:
    def shifted(x: Tensor) -> Tensor:
        return torch.sin(x) + 1

    def run(x: Tensor) -> Tensor:
        for _ in range(2):
            x = shifted(x)
        return x

    assert run_labels(run) == "sin_1:1 add_1:1 sin_1:2 add_1:2"


@row("A helper called from two different loops (2 and 3 iterations)")
def helper_in_two_loops() -> None:
    def run(x: Tensor) -> Tensor:
        def wave(x: Tensor) -> Tensor:
            return torch.sin(x)

        for _ in range(2):
            x = wave(x)
        for _ in range(3):
            x = wave(x)
        return x

    assert run_labels(run) == "sin_1:1 sin_1:2 sin_2:1 sin_2:2 sin_2:3"


@row("Two same-type ops on one line, inside a loop")
def one_line_in_loop() -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.sin(x) * torch.sin(x * 2)
        return x

    assert run_labels(run) == "sin_1:1 mul_1:1 sin_2:1 mul_2:1 sin_1:2 mul_1:2 sin_2:2 mul_2:2"


@row("`[torch.exp(c) for c in cs]`")
def comprehension() -> None:
    def run(*cs: Tensor) -> list[Tensor]:
        return [torch.exp(c) for c in cs]

    assert run_labels(run, *floats(3, 4)) == "exp_1:1 exp_1:2 exp_1:3"


@row("`map(torch.sin, xs)`, `map(lambda t: torch.sin(t), xs)`")
def mapped() -> None:
    assert run_labels(lambda *xs: list(map(torch.sin, xs)), *floats(3, 4)) == "sin_1:1 sin_1:2 sin_1:3"
    assert (
        run_labels(lambda *xs: list(map(lambda t: torch.sin(t), xs)), *floats(3, 4))
        == "sin_1:1 sin_1:2 sin_1:3"
    )


@row("`torch.func.vmap` or `torch.func.grad` in a loop")
def transforms_in_loop() -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.func.vmap(lambda row: torch.tanh(row) * row.sum())(x)
            x = torch.func.grad(lambda t: (t**2).sum())(x)
        return x

    assert run_labels(run) == "vmap_1:1 grad_1:1 vmap_1:2 grad_1:2"
    assert [op.kind for op in computed(traced(run))] == ["boundary"] * 4


@row("Nested loops, 2 outer by 3 inner, no module")
def nested_loops() -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.cos(x)
            for _ in range(3):
                x = torch.sin(x)
        return x

    inner = [" ".join(f"sin_1:{3 * outer + k}" for k in (1, 2, 3)) for outer in (0, 1)]
    assert run_labels(run) == f"cos_1:1 {inner[0]} cos_1:2 {inner[1]}"


@row("`break` partway through a loop")
def broken_loop() -> None:
    def run(x: Tensor) -> Tensor:
        for k in range(5):
            x = torch.sin(x)
            if k == 2:
                break
            x = torch.cos(x)
        return x

    assert run_labels(run) == "sin_1:1 cos_1:1 sin_1:2 cos_1:2 sin_1:3"


@row("A branch taken on some iterations")
def branch_in_loop() -> None:
    def run(x: Tensor) -> Tensor:
        for k in range(3):
            x = torch.cos(x) if k == 1 else torch.sin(x)
        return x

    assert run_labels(run) == "sin_1:1 cos_1:1 sin_1:2"


@row("A tensor op in a `while` condition, body runs N times")
def while_condition() -> None:
    def run(x: Tensor) -> Tensor:
        while x.sum() < 16:
            x = x + 1
        return x

    rounds = [f"sum_1:{k} lt_1:{k} add_1:{k}" for k in (1, 2)]
    assert run_labels(run) == " ".join([*rounds, "sum_1:3 lt_1:3"])


@row("Recursion of depth 3")
def recursion() -> None:
    def descend(x: Tensor, depth: int) -> Tensor:
        return torch.sin(x if depth == 1 else descend(x * 2, depth - 1))

    assert run_labels(lambda x: descend(x, 3)) == "mul_1:1 mul_1:2 sin_1:1 sin_1:2 sin_1:3"


@row("Recursion entered from two places")
def recursion_from_two_places() -> None:
    def descend(x: Tensor, depth: int) -> Tensor:
        x = torch.sin(x)
        return x if depth == 1 else descend(x, depth - 1)

    def run(x: Tensor) -> Tensor:
        x = descend(x, 2)
        return descend(x, 3)

    assert run_labels(run) == "sin_1:1 sin_1:2 sin_2:1 sin_2:2 sin_2:3"


@row("`x * i` with a varying scalar, or a growing `cat`, in a loop")
def varying_arguments() -> None:
    def run(x: Tensor) -> Tensor:
        grown = x
        for i in range(3):
            x = x * i
            grown = torch.cat([grown, x])
        return grown

    assert run_labels(run) == "mul_1:1 cat_1:1 mul_1:2 cat_1:2 mul_1:3 cat_1:3"


@row("A function built with `exec` and called in a loop")
def exec_in_loop() -> None:
    namespace: dict[str, Callable[[Tensor], Tensor]] = {}
    exec("import torch\ndef wave(x):\n    return torch.sin(torch.sin(x))", namespace)

    def run(x: Tensor) -> Tensor:
        for _ in range(2):
            x = namespace["wave"](x)
        return x

    assert run_labels(run) == "sin_1:1 sin_2:1 sin_1:2 sin_2:2"


@row("Two separately written identical functions")
def identical_functions() -> None:
    def wave(x: Tensor) -> Tensor:
        return torch.sin(x)

    first = wave

    def wave(x: Tensor) -> Tensor:
        return torch.sin(x)

    def run(x: Tensor) -> Tensor:
        for function in (first, wave, first):
            x = function(x)
        return x

    assert run_labels(run) == "sin_1:1 sin_2:1 sin_1:2"


@row("A decorator whose wrapper calls `f(x)` on two lines")
def decorator() -> None:
    def twice(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def wrapper(x: Tensor) -> Tensor:
            x = f(x)
            return f(x)

        return wrapper

    @twice
    def shifted(x: Tensor) -> Tensor:
        return torch.sin(x) + 1

    assert run_labels(shifted) == "sin_1:1 add_1:1 sin_2:1 add_2:1"
