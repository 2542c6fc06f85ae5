"""Which values are kept, and where the forward ends: decided op by op while the model runs.

Selectors are held against each layer once, where the layer decides; for its further ops the answer is a
look-up. Whether an op is a module's output shows when the module returns, and is decided then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

from torch import Tensor

from torchlens._capture.call_site import CallSites
from torchlens._capture.choices import Choices, Goal
from torchlens._capture.live_op import LiveModule, LiveOp
from torchlens._capture.model_state import ModelState
from torchlens._capture.ruling_out import can_be_meant
from torchlens._capture.scopes import RunningCalls, Scopes
from torchlens._keys.chains import Chains
from torchlens._keys.layers import CallKeys, LayerNumbers
from torchlens._keys.names import Speller, Written, operation_of, torch_name, type_of
from torchlens._records import EnteredPlace, Reached, Side
from torchlens._terms import (
    EVERYTHING,
    NOTHING,
    All,
    Func,
    InFunc,
    Key,
    Label,
    Line,
    ModuleOutput,
    Not,
    Selector,
    Where,
    negates_module,
)
from torchlens._unseen import unseen
from torchlens._values.store import is_tensor

_ASK: Final = object()
"""In place of an answer: the layer does not decide, each op must be asked."""
_Given: TypeAlias = tuple[int, int, Tensor]
"""(row, slot, tensor): what a row gave."""


class Keeper(Protocol):
    """Puts values by."""

    def place(self, row: int, slot: int, tensor: Tensor) -> None:
        """Keep the value as it is now."""
        ...

    def drop(self, row: int, slot: int) -> None:
        """Keep it no longer."""
        ...


class Chooser:
    """The choices of one capture."""

    def __init__(self, choices: Choices, sites: CallSites, state: ModelState, calls: RunningCalls) -> None:
        self._hush = calls.hushed
        save = choices.saved
        self.goals = choices.goals
        self._ends = choices.ends
        self.due = False
        """Whether the forward is to end now."""
        self.chains = Chains(sites.places)
        self.scopes = Scopes(state, calls)
        self.doubtful: list[int] = []
        """Rows of buffer versions kept because their labels are not known before the run is over."""
        self._selectors = [save, *(goal.selector for goal in self.goals)]
        simple = [each for selector in self._selectors for each in selector.simple()]
        self._labels = [
            each.label if isinstance(each, Label) else each.key
            for each in simple
            if isinstance(each, (Label, Key))
        ]
        self._one_pass = {name.rpartition(":")[0] for name in self._labels if ":" in name}
        self._asks = any(isinstance(each, Where) for each in simple)
        self._watched = {name for each in simple if (name := _module_name(each)) is not None}
        self._waits = negates_module(save)
        """Whether a value may turn out to be meant because no module returns it."""
        combined = bool(self._watched) and any(map(_combines_label, self._selectors))
        self._names_needed = combined or choices.disk is not None
        self._speller = Speller(self.chains, is_tensor)
        self._keys = CallKeys(self.chains, self._speller, is_tensor)
        self._layers = LayerNumbers()
        self._passes: list[int] = []
        self._asks_lines = any(isinstance(each, (Line, InFunc)) for each in simple)
        self._decided: dict[tuple[int, int, int], Sequence[object]] = {}
        """By layer, scope, and site where that matters, what each selector answers."""
        self._around: dict[int, tuple[int, int]] = {}
        """By module call, the index of its module and the number of its scope."""
        self._awaited: dict[int, bool] = {}
        """By module, whether what it returns may matter."""
        self._may_be_meant: dict[int, bool] = {}
        """By the id of a torch function."""
        self._passed_over: set[tuple[int, int, Side, tuple[int, int]]] = set()
        """Site, id of the function, side and surroundings of calls of which no op can be meant."""
        self._names: dict[tuple[int, int], tuple[str, str | None]] = {}
        self._answers: dict[tuple[int, int, int], bool] = {}
        self._returned: dict[tuple[int, int], set[str]] = {}
        self._waiting: list[tuple[int, int]] = []
        self._over = self._kept_any = False
        self._funcs = [each.name for each in simple if isinstance(each, Func)]
        self._called: set[str] = set()
        """Names of the functions that were called, where some are asked for."""
        self._places = sites.places

    def attach(self, rows: list[tuple[Any, ...]], keeper: Keeper) -> None:
        """The rows that choices are about, and what keeps the chosen values."""
        self._rows, self._keeper = rows, keeper

    def made(self, row: int, outs: Sequence[Tensor]) -> None:
        """A row was appended that gives these tensors."""
        if len(self._selectors) == 1 and self._selectors[0] is EVERYTHING and not self._names_needed:
            for slot, tensor in enumerate(outs):
                self._keeper.place(row, slot, tensor)
            return
        kind, func, site, call, _, args, _, _, _, _, side = self._rows[row]
        if kind == "call" and not self._names_needed:
            may = self._may_be_meant.get(id(func))
            if may is None:
                may = self._may_be_meant[id(func)] = can_be_meant(self._selectors, func)
                self._func_seen(func)
            if not may:
                return
        around = self._around.get(call)
        if around is None:
            around = self._around[call] = self.scopes.module_index(call), self.scopes.number(call)
        if (site, id(func), side, around) in self._passed_over:
            return
        if self._answers and not self._watched:
            self._answers.clear()
        keys: Iterator[Hashable]
        if kind in ("call", "boundary"):
            if site:
                place = self._keys.known.get((site, id(func), side))
                place = place or self._keys.place(site, func, args, side, kind)
                func_name, within = place.func_name, place.number
            else:
                written = Written(kind, func, site, args, side)
                func_name = self._speller.spelling(written).func_name
                within = self._keys.position(written, call)
            keys = ((around[0], within, slot) for slot in range(len(outs)))
        else:
            func_name, keys = kind, iter([(kind, row)])
        never = [
            self._decide((row, slot, tensor), key, func_name, around[1])
            for slot, (tensor, key) in enumerate(zip(outs, keys))
        ]
        if site and all(never) and (site, id(func), side) in self._keys.known:
            self._passed_over.add((site, id(func), side, around))

    def awaits(self, call: int) -> bool:
        """Whether it matters what a module call returns."""
        index = self.scopes.module_index(call)
        awaited = self._awaited.get(index)
        if awaited is None:
            names = {name.partition(":")[0] for name in self._watched}
            awaited = self._awaited[index] = not names.isdisjoint(self.scopes.addresses(index))
        return awaited and not self._watched.isdisjoint(self.scopes.names(call))

    def returned(self, call: int, outs: Sequence[_Given]) -> None:
        """A module call gave tensors, each with the row and slot that gave it last."""
        names = self.scopes.names(call)
        for row, slot, tensor in outs:
            known = self._returned.setdefault((row, slot), set())
            known |= names
            op = self._op((row, slot, tensor), *self._names.get((row, slot), self._unlabelled(row)))
            for at, selector in enumerate(self._selectors):
                if selector.matches(op):
                    self._take(at, (row, slot, tensor), call)
        for goal in self.goals:  # also of a module that gave no tensor
            name = _module_name(goal.selector)
            if goal.reached is None and name in names:
                self._meet(goal, Reached(-1, 0, call))

    def settle(self) -> None:
        """The run is over: drop the values that turn out not to be meant."""
        self._over = True
        for row, slot in self._waiting:
            name = self._names.get((row, slot), self._unlabelled(row))
            held: Any = self._rows[row][7]
            if type(held) is tuple:
                held = cast("tuple[Any, ...]", held)[slot]
            if not self._selectors[0].matches(self._op((row, slot, held), *name)):
                self._keeper.drop(row, slot)

    def describe(self, row: int, slot: int) -> dict[str, str | int | None]:
        """What tells an op without the trace: its label, function and module."""
        func_name, label = self._names.get((row, slot), self._unlabelled(row))
        kind, func, _, call = self._rows[row][:4]
        name = func if kind in ("buffer", "source") else None
        return {"label": label, "func_name": func_name, "name": name, "module": self.module(call).address}

    def notes(self) -> Iterator[str]:
        """Which functions were named and none is called so; whether nothing was meant at all."""
        if not self._kept_any and self._selectors[0] not in (EVERYTHING, NOTHING):
            yield f"save={self._selectors[0]} meant no op."
        entered = {torch_name(place.func) for place in self._places if isinstance(place, EnteredPlace)}
        for name in self._funcs:
            if name in entered and name not in self._called:
                yield (
                    f"func({name!r}) meant no op: torch wrote {name} in Python, and it ran as other ops, "
                    f"which in_func({name!r}) means."
                )
            elif name not in self._called:
                yield f"func({name!r}) meant no op."

    def is_output_of(self, row: int, slot: int, address: str) -> bool | None:
        if address in self._returned.get((row, slot), ()):
            return True
        return False if self._over else None

    def ask(self, op: LiveOp, predicate: Callable[[Any], object]) -> bool:
        """What a predicate says of an op; it is asked once."""
        key = (op.row, op.output_slot, id(predicate))
        if key not in self._answers:
            with unseen(), self._hush():
                self._answers[key] = bool(predicate(op))
        return self._answers[key]

    def around(self, call: int) -> frozenset[str]:
        return self.scopes.around(call)

    def module(self, call: int) -> LiveModule:
        return self.scopes.module(call)

    def _func_seen(self, func: Any) -> None:
        """A function is called, for those who ask whether one is."""
        if self._funcs:
            name = torch_name(func)
            self._called |= {name, type_of(name), operation_of(name)}

    def _decide(self, given: _Given, key: Hashable, func_name: str, scope: int) -> bool:
        """Keep the value, or end the run, if it is meant. Whether no op of the layer is in this scope."""
        row, slot, _ = given
        if self._rows[row][0] == "buffer":  # labelled only when all its versions are known
            self._decide_buffer(given)
            return False
        layer = self._layers.of.get(key)
        if layer is None:
            layer = self._layers.add(key, type_of(func_name))
            self._passes.append(0)
        self._passes[layer] += 1
        if self._names_needed:
            self._names[row, slot] = func_name, self._label(layer)
        # the passes of a recursion are one layer, though lines on the way may differ
        site = self._rows[row][2] if self._asks_lines else 0
        answers = self._decided.get((layer, scope, site))
        if answers is None:
            answers = self._decided[layer, scope, site] = self._of_layer(given, layer, func_name)
        if answers is _NEVER:
            return not self._names_needed
        for at, answer in enumerate(answers):
            if answer is _ASK:
                answer = self._selectors[at].matches(self._op(given, func_name, self._label(layer)))
            self._act(at, answer, given)
        return False

    def _decide_buffer(self, given: _Given) -> None:
        asked = any(name.startswith("buffer_") for name in self._labels)
        op = self._op(given, "buffer", None)
        self._called.add("buffer")
        for at, selector in enumerate(self._selectors):
            answer = selector.matches(op)
            if answer is None and at == 0 and asked:
                self.doubtful.append(given[0])
                self._take(0, given, None)
            self._act(at, answer, given)

    def _of_layer(self, given: _Given, layer: int, func_name: str) -> Sequence[object]:
        """What each selector says of a layer's ops in a scope."""
        op = self._op(given, func_name, self._label(layer))
        if self._funcs:
            self._called |= {op.func_name, op.type, op.operation}
        if self._asks or self._layers.labels[layer] in self._one_pass:
            return (_ASK,) * len(self._selectors)
        answers = [selector.matches(op) for selector in self._selectors]
        acts = any(answers) or (self._waits and answers[0] is None)
        return answers if acts else _NEVER

    def _act(self, at: int, answer: object, given: _Given) -> None:
        if answer:
            self._take(at, given, None)
        elif answer is None and at == 0 and self._waits:
            self._waiting.append(given[:2])
            self._take(at, given, None)

    def _take(self, at: int, given: _Given, call: int | None) -> None:
        """Selector `at` means this op's value."""
        row, slot, tensor = given
        if at == 0:
            self._kept_any = True
            self._keeper.place(row, slot, tensor)
            return
        goal = self.goals[at - 1]
        if goal.collected is not None:
            goal.collected.append(Reached(row, slot))
        if goal.reached is None:
            self._meet(goal, Reached(row, slot, call))

    def _meet(self, goal: Goal, reached: Reached) -> None:
        goal.reached = reached
        self.due = self._ends and all(each.reached is not None for each in self.goals)

    def _label(self, layer: int) -> str:
        return f"{self._layers.labels[layer]}:{self._passes[layer]}"

    def _unlabelled(self, row: int) -> tuple[str, None]:
        """The name of a row's function, as the code wrote it, where no label is asked for."""
        kind, func, site, _, _, args, _, _, _, _, side = self._rows[row]
        if kind not in ("call", "boundary"):
            return kind, None
        return self._speller.spelling(Written(kind, func, site, args, side)).func_name, None

    def _op(self, given: _Given, func_name: str, label: str | None) -> LiveOp:
        row, slot, tensor = given
        return LiveOp(self._rows[row], (row, slot), (func_name, type_of(func_name), label), tensor, self)


_NEVER: Final[Sequence[object]] = ()


def _module_name(selector: Selector) -> str | None:
    if isinstance(selector, ModuleOutput):
        return selector.address
    return selector.key if isinstance(selector, Key) else None


def _combines_label(selector: Selector, *, inside: bool = False) -> bool:
    """Whether a label must hold together with something else."""
    if isinstance(selector, (Label, Key)):
        return inside
    inside = inside or isinstance(selector, (All, Not))
    return any(_combines_label(part, inside=inside) for part in selector.parts())
