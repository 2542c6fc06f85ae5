"""Which like siblings are drawn once, and which are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.traces import Runs, drawn


def chained(self: Any, x: Tensor) -> Tensor:
    for part in self.children():
        x = part(x)
    return x


def block(width: int = 4, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), act(), nn.Linear(width, 4), act())


def folds(model: nn.Module, **options: Any) -> list[str]:
    """The titles of all that stands for several, clusters first."""
    picture = drawn(tl.trace(model, torch.ones(3, 4)), **options)
    titles = [lines[0] for lines in (*picture.clusters.values(), *picture.nodes.values())]
    return [title for title in titles if " ... " in title]


def chain(*parts: nn.Module) -> nn.Module:
    return Runs(chained, **{f"b{at}": part for at, part in enumerate(parts)})


def swapped(self: Any, x: Tensor) -> Tensor:
    first, act, second, last = self.children()
    return last(second(act(first(x))) * 2)


def doubled(self: Any, x: Tensor) -> Tensor:
    first, act, second, last = self.children()
    return last(second(act(first(x * 2))))


def skipping(self: Any, x: Tensor) -> Tensor:
    first, act, second, last = self.children()
    return last(first(act(x)) + second(x))


def wired(self: Any, x: Tensor) -> Tensor:
    first, act, second, last = self.children()
    y = first(x)
    return last(y + second(act(y)))


def wired_otherwise(self: Any, x: Tensor) -> Tensor:
    first, act, second, last = self.children()
    y = first(x)
    z = second(act(y))
    return last(z + z)


def with_forward(function: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    parts = (nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    return Runs(function, **{f"p{at}": part for at, part in enumerate(parts)})


@pytest.mark.parametrize("count", [2, 3, 12])
def test_blocks_that_are_alike_are_drawn_once(count: int) -> None:
    assert folds(chain(*(block() for _ in range(count)))) == [f"b0 ... b{count - 1} ×{count}"]


OTHERS = {
    "another weight shape": (block(), block(width=5)),
    "another activation": (block(), block(act=nn.Tanh)),
    "another wiring": (with_forward(wired), with_forward(wired_otherwise)),
    "another order": (with_forward(swapped), with_forward(doubled)),
    "one op more": (with_forward(chained), with_forward(swapped)),
    "another class": (block(), with_forward(chained)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_differs_is_drawn_apart(what: str) -> None:
    one, other = OTHERS[what]
    assert folds(chain(one, other)) == []


@pytest.mark.parametrize("at", range(5))
def test_one_block_that_differs_parts_the_others(at: int) -> None:
    model = chain(*(block(width=5 if number == at else 4) for number in range(5)))
    runs = [range(at), range(at + 1, 5)]
    assert folds(model) == [f"b{run[0]} ... b{run[-1]} ×{len(run)}" for run in runs if len(run) > 1]


def test_alternating_blocks_repeat_as_pairs() -> None:
    model = chain(*(part for _ in range(4) for part in (block(), block(act=nn.Tanh))))
    assert folds(model) == ["b0 ... b7 ×4"]
    picture = drawn(tl.trace(model, torch.ones(3, 4)))
    (group,) = [name for name, lines in picture.clusters.items() if lines[0] == "b0 ... b7 ×4"]
    inside = [picture.clusters[name][0] for name, around in picture.cluster_of.items() if around == group]
    assert inside == ["b0", "b1"]


def test_ops_between_blocks_repeat_with_them() -> None:
    def spaced(self: Any, x: Tensor) -> Tensor:
        for part in self.children():
            x = torch.sin(part(x)) + 1
        return x

    model = Runs(spaced, **{f"b{at}": block() for at in range(5)})
    (title,) = folds(model)
    assert title == "b0 ... add_1:5 ×5"


def test_repeats_within_repeats_fold_as_well() -> None:
    model = chain(*(chain(*(block() for _ in range(3))) for _ in range(4)))
    assert folds(model) == ["b0 ... b3 ×4", "b0 ... b2 ×3"]
    picture = drawn(tl.trace(model, torch.ones(3, 4)), color_by=lambda op: "one")
    assert len(picture.nodes) == 6
    returning = [arrow for arrow in picture.arrows if arrow.returns]
    assert [arrow.label for arrow in returning] == ["3×4 ×11"]  # from each of 12 inner blocks to the next


@pytest.mark.parametrize(("count", "folded"), [(4, False), (5, True)])
def test_what_saves_fewer_than_four_nodes_is_not_folded(count: int, folded: bool) -> None:
    model = chain(*(nn.ReLU() for _ in range(count)))
    assert folds(model) == ([f"b0 ... b{count - 1} ReLU ×{count}"] if folded else [])


def test_closed_modules_count_as_one_node_each() -> None:
    blocks = [block() for _ in range(3)]
    assert folds(chain(*blocks), depth=1) == []
    assert folds(chain(*blocks, block(), block()), depth=1) == ["b0 ... b4 Sequential ×5"]


def test_fold_can_be_turned_off() -> None:
    picture = drawn(tl.trace(chain(*(block() for _ in range(5))), torch.ones(3, 4)), fold=False)
    assert len(picture.nodes) == 22
    assert not any(arrow.returns for arrow in picture.arrows)


def test_open_and_closed_blocks_are_not_drawn_as_one() -> None:
    model = chain(*(block() for _ in range(6)))
    assert folds(model, collapse="b2") == ["b0 ... b1 ×2", "b3 ... b5 ×3"]
    assert folds(model, collapse="b0") == ["b1 ... b5 ×5"]


def repeated(self: Any, x: Tensor) -> Tensor:
    for _ in range(self.times):
        x = self.part(x)
    return x


def called_again(times: int) -> nn.Module:
    model = Runs(repeated, part=block())
    model.times = times  # type: ignore[assignment]
    return model


def test_passes_are_drawn_each_while_they_fit() -> None:
    picture = drawn(tl.trace(called_again(4), torch.ones(3, 4)))
    assert len(picture.nodes) == 18
    assert len(picture.below) == 1


def test_passes_are_drawn_once_where_they_would_be_too_many() -> None:
    model = called_again(20)
    assert folds(model) == ["part:1 ... part:20 ×20"]
    picture = drawn(tl.trace(model, torch.ones(3, 4)))
    assert any("like passes are drawn once: rolled=True" in line for line in picture.below)


def test_modules_that_are_called_in_turns_are_not_counted_as_more_modules() -> None:
    def in_turns(self: Any, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.b(self.a(x))
        return x

    assert folds(Runs(in_turns, a=block(), b=block())) == [
        "a:1 ... b:1 ×2",
        "a:2 ... b:2 ×2",
        "a:3 ... b:3 ×2",
    ]


def test_arrows_of_folded_blocks_say_how_many_values_go_on_to_the_next() -> None:
    picture = drawn(tl.trace(chain(*(block() for _ in range(5))), torch.ones(3, 4)))
    (returning,) = [arrow for arrow in picture.arrows if arrow.returns]
    assert (returning.label, returning.style) == ("3×4 ×4", "dashed")
    assert all("×5" not in arrow.label for arrow in picture.arrows)


def test_parallel_branches_fold_and_say_how_often_the_input_is_read() -> None:
    def branches(self: Any, x: Tensor) -> Tensor:
        return torch.stack([part(x) for part in self.children()])

    model = Runs(branches, **{f"b{at}": block() for at in range(5)})
    picture = drawn(tl.trace(model, torch.ones(3, 4)))
    assert not any(arrow.returns for arrow in picture.arrows)
    (into,) = [arrow for arrow in picture.arrows if arrow.target == picture.node("stack_1")]
    assert into.label == "tensors[0], tensors[1], tensors[2] and 2 more\n3×4 ×5"
