"""The rows of the grouping page's table, which are the ids of the tests that hold them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

ROWS = tuple(
    inspect.cleandoc(r"""
    `for _ in range(3): x = torch.tanh(x) * 0.5`
    `for _ in range(3): x = torch.tanh(x)`
    The two-op statement written out twice by hand
    `torch.tanh(torch.tanh(torch.tanh(x)))` on one line
    `nn.RNNCell` or `nn.LSTMCell` applied per time step, with `x[:, t]`
    Two residual adds in a block called once
    That block called 3 times from a loop
    A `ModuleList` of 3 such blocks (a transformer decoder)
    `relu(relu(x))` written on two lines
    A helper function called from two lines
    A helper called from one loop line
    A helper called from two different loops (2 and 3 iterations)
    Two same-type ops on one line, inside a loop
    One raw weight used on two lines, `x @ W` twice
    Embedding and output head with tied weights
    One module called 3 times from a loop
    One module instance called from 3 different lines
    One `nn.ReLU` instance reused on 3 lines, with other ops between
    One module instance shared by two parent modules
    A `ModuleList` of distinct but identical modules
    Siamese encoder (one encoder on two inputs)
    `[torch.exp(c) for c in cs]`
    `sum(h(x) for h in self.heads)` over a `ModuleList`
    `map(torch.sin, xs)`, `map(lambda t: torch.sin(t), xs)`
    `torch.func.vmap` or `torch.func.grad` in a loop
    Greedy generation calling a model from one line
    Nested loops, 2 outer by 3 inner, no module
    `break` partway through a loop
    A branch taken on some iterations
    A tensor op in a `while` condition, body runs N times
    Recursion of depth 3
    Recursion entered from two places
    A buffer updated in place in a loop
    A buffer updated on two different lines
    `x * i` with a varying scalar, or a growing `cat`, in a loop
    A loop over a `ParameterList`, `x = torch.tanh(x @ w)`
    Root `ModuleList` loop with glue `x = x + blk(x)`
    `torch.utils.checkpoint` of one block from two lines
    A forward hook on a module called in a loop
    One hook on two distinct modules called from one loop line
    A loop over a `ParameterList`: which weights does the layer list?
    A special first step before a loop that uses the same weight
    A function built with `exec` and called in a loop
    Two separately written identical functions
    A decorator whose wrapper calls `f(x)` on two lines
    A TorchScript submodule called in a loop
    `nn.MultiheadAttention` (many `linear` calls inside torch's code)
    Two separate traces of one model
    """).splitlines()
)

CHECKS: dict[str, Callable[[], None]] = {}


def row(text: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Make the function the test of this row."""

    def register(check: Callable[[], None]) -> Callable[[], None]:
        assert text not in CHECKS, f"two tests for the row {text!r}"
        CHECKS[text] = check
        return check

    return register
