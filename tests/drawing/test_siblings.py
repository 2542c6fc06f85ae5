"""Which of the blocks that are drawn as one an arrow leads from and to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.traces import Runs, drawn


class Adds(nn.Module):
    """A block of five ops, to which something may be given."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(4, 4)

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        y = torch.tanh(self.part(x).relu() * 2)
        return y if more is None else y + more


class Blocks(nn.Module):
    def __init__(self, count: int, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Adds() for _ in range(count))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.blocks, x)


def arrows(function: Callable[[Any, Tensor], Any], count: int = 5) -> dict[tuple[str, str], str]:
    """The words on the arrows that do not lead back."""
    picture = drawn(tl.trace(Blocks(count, function), torch.ones(3, 4)))
    pairs = zip(picture.ends(), picture.arrows)
    return {ends: arrow.label for ends, arrow in pairs if not arrow.returns}


def test_an_arrow_leads_into_the_first_and_out_of_the_last_without_a_word() -> None:
    def chained(blocks: Any, x: Tensor) -> Tensor:
        for block in blocks:
            x = block(x)
        return x.sin()

    found = arrows(chained)
    assert found["input_1", "part"] == "3×4"
    assert found["tanh_1", "sin_1"] == "3×4"


def test_what_all_blocks_read_says_so() -> None:
    def mixed(blocks: Any, x: Tensor) -> Tensor:
        memory = x.sin()
        for block in blocks:
            x = block(x, memory)
        return x

    assert arrows(mixed)["sin_1", "add_1"] == "other 3×4 to each"


def test_what_some_blocks_read_names_them() -> None:
    def two_memories(blocks: Any, x: Tensor) -> Tensor:
        early, late = x.sin(), x.cos()
        for at, block in enumerate(blocks):
            x = block(x, early if at < 3 else late)
        return x

    found = arrows(two_memories)
    assert found["sin_1", "add_1"] == "other 3×4\nto blocks.0, blocks.1 and 1 more"
    assert found["cos_1", "add_1"] == "other 3×4\nto blocks.3, blocks.4"


def test_what_leaves_the_middle_names_the_blocks() -> None:
    def tapped(blocks: Any, x: Tensor) -> Any:
        states = [x := block(x) for block in blocks]
        return x, states[1].sin(), torch.stack(states[::2]), torch.cat(states)

    found = arrows(tapped)
    assert found["tanh_1", "output_1"] == "3×4"
    assert found["tanh_1", "sin_1"] == "3×4 from blocks.1"
    assert found["tanh_1", "stack_1"].endswith(" ×3\nfrom blocks.0, blocks.2 and 1 more")
    assert found["tanh_1", "cat_1"].endswith("\n3×4 ×5")


def test_skips_from_each_block_to_each_block_are_counted() -> None:
    def u_net(blocks: Any, x: Tensor) -> Tensor:
        states: list[Tensor] = []
        for block in blocks[:4]:
            states.append(x := block(x))
        for block in blocks[4:]:
            x = block(x, states.pop())
        return x

    assert arrows(u_net, 8)["tanh_1", "add_1"] == "other 3×4 ×4 to each"


def test_what_goes_to_a_later_op_of_the_next_block_is_dashed() -> None:
    class Passes(nn.Module):
        def forward(self, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
            now = x.sin()
            return torch.tanh(now * 2) + before, now

    def passed_on(self: Any, x: Tensor) -> Tensor:
        before = x
        for block in self.children():
            x, before = block(x, before)
        return x

    model = Runs(passed_on, **{f"b{at}": Passes() for at in range(5)})
    picture = drawn(tl.trace(model, torch.ones(3, 4)))
    found = {ends: arrow for ends, arrow in zip(picture.ends(), picture.arrows)}
    assert (found["sin_1", "mul_1"].label, found["sin_1", "mul_1"].style) == ("3×4", "solid")
    later = found["sin_1", "add_1"]
    assert (later.label, later.style, later.returns) == ("other 3×4 ×4", "dashed", False)


def test_what_goes_to_a_later_op_of_the_next_pass_is_dashed_and_what_stays_in_one_is_not() -> None:
    def steps(x: Tensor) -> Tensor:
        before, mask = torch.zeros_like(x), torch.ones_like(x)
        for _ in range(3):
            now = torch.relu(x)
            x = now + torch.cos(before) * mask
            before = now
        return x

    trace = tl.trace(steps, torch.ones(3, 4))
    picture = drawn(trace, rolled=True)
    dashed = {ends for ends, arrow in zip(picture.ends(), picture.arrows) if arrow.style == "dashed"}
    assert dashed == {("relu_1", "cos_1"), ("add_1", "relu_1")}
    assert set(dashed) == {
        (parent.layer.layer_label, child.layer.layer_label)
        for child in trace.ops
        for parent in child.parents
        if "zeros_like_1" != parent.layer.layer_label
        and (child.layer.num_passes, parent.layer.num_passes) == (3, 3)
        and child.pass_number > parent.pass_number
    }


def test_convolutions_of_other_dilations_are_drawn_apart() -> None:
    def stack(dilations: list[int]) -> list[str]:
        layers = [
            nn.Sequential(nn.Conv1d(4, 4, 3, padding=each, dilation=each), nn.ReLU(), nn.Tanh())
            for each in dilations
        ]
        picture = drawn(tl.trace(nn.Sequential(*layers), torch.ones(1, 4, 9)))
        return [lines[0] for lines in picture.clusters.values() if "×" in lines[0]]

    assert stack([2] * 4) == ["0 ... 3 ×4"]
    assert stack([1, 2, 3, 4]) == []
    assert stack([1, 2, 4] * 3) == ["0 ... 8 ×3"]
