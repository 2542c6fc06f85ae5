"""The sites that a caller names: read before the run, and held against what ran afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from torch import nn

from torchlens._capture.choices import Choices, Goal
from torchlens._capture.unwrapping import root_of, unwrapped
from torchlens._structure import addresses_of
from torchlens._terms import LABEL, Func, InModule, Key, Label, ModuleOutput, Selector, negates_module
from torchlens._trace.lookup import missing
from torchlens._trace.op import Op
from torchlens._trace.selection import select
from torchlens._trace.views import Views
from torchlens.errors import AmbiguousKeyError, InputError, MissingKeyError, NotReachedError, OptionError
from torchlens.selectors import Sites, selector_of
from torchlens.storage import ToDisk


def choices_of(
    model: object, save: Sites | None, stop_after: str | Selector | None, storage: ToDisk | None = None
) -> Choices:
    """What a capture is to keep and where it ends; raises for what the model cannot have."""
    if storage is not None and type(storage) is not ToDisk:
        raise OptionError(
            f"storage={storage!r} is a {type(storage).__name__}; give tl.to_disk(path), or None"
        )
    kept = None if save is None else selector_of(save, "save")
    goals = [] if stop_after is None else [goal_of(stop_after, "stop_after")]
    refuse_unknown(model, [*([] if kept is None else [kept]), *(goal.selector for goal in goals)])
    return Choices(kept, goals, disk=storage)


def goal_of(site: object, argument: str) -> Goal:
    """One site after which a forward may end."""
    if not isinstance(site, (str, Selector)):
        raise InputError(
            f"{argument}={site!r} is a {type(site).__name__}; give a label, an address or a selector"
        )
    goal = Goal(selector_of(site, argument))
    refuse_undecidable(goal.selector)
    return goal


def find_ops(views: Views, sites: Sites) -> list[Op]:
    """The ops of a finished trace that sites mean."""
    selector = selector_of(sites, "sites")
    refuse_missing(views, [selector])
    return select(views, selector)


def refuse_undecidable(selector: Selector) -> None:
    """Raise for a place to stop that is known only when all has run."""
    for each in selector.simple():
        name = each.label if isinstance(each, Label) else each.key if isinstance(each, Key) else ""
        if name.startswith("buffer_"):
            raise InputError(
                f"{name!r} is a version of a buffer, which are labelled when all have been seen; name the op "
                "that writes it"
            )
    if negates_module(selector):
        raise InputError(
            f"{selector} asks for what is no module's output, which is known only when the forward is over; "
            "name the op to stop after"
        )


def refuse_unknown(model: object, selectors: Iterable[Selector]) -> None:
    """Raise for an address that the model does not have, before anything runs."""
    known: set[str] | None = None
    for each in (simple for selector in selectors for simple in selector.simple()):
        name = each.key if isinstance(each, Key) else None
        if isinstance(each, (ModuleOutput, InModule)):
            name = each.address
        if name is None or LABEL.fullmatch(name.partition(".")[0]):
            continue  # modules met outside the model are called by class and number, as layers are
        known = _addresses(model) if known is None else known
        of_call = not isinstance(each, InModule) and ":" in name and name.rpartition(":")[0] in known
        if name not in known and not of_call:
            noun = "layer or module" if isinstance(each, Key) else "module"
            hint = ""
            if isinstance(each, Key):
                hint = f"; a label is a type and a number ('relu_1'), a function is tl.func({name!r})"
            raise MissingKeyError(missing(name, noun, filter(None, known)) + hint)


def refuse_missing(views: Views, selectors: Iterable[Selector]) -> None:
    """Raise for a label that no op has, and for a key that is both a label and an address."""
    simple = [each for selector in selectors for each in selector.simple()]
    reader = views.reader
    asked = [each for each in simple if isinstance(each, (Key, Label, ModuleOutput))]
    if all(_is_plain_address(each, reader.module_index) for each in asked):  # no label need be read for these
        return
    labels = reader.layer_index.keys() | reader.op_index.keys()
    addresses = reader.module_index.keys() | reader.call_index.keys()
    for each in simple:
        if isinstance(each, Key) and each.key in labels and each.key in addresses:
            raise AmbiguousKeyError(
                f"{each.key!r} is a label and an address; write tl.label({each.key!r}) for the one, "
                f"tl.module({each.key!r}) for the other"
            )
        name = each.key if isinstance(each, Key) and each.key not in addresses else None
        if isinstance(each, Label):
            name = each.label
        if isinstance(each, ModuleOutput) and ":" in each.address and each.address not in addresses:
            raise MissingKeyError(f"in this run {missing(each.address, 'module call', reader.call_index)}")
        if name is not None and name not in labels:
            hint = f"; a function is tl.func({name!r})" if isinstance(each, Key) else ""
            raise MissingKeyError(f"in this run {missing(name, 'layer or op', reader.layer_index)}{hint}")


def refuse_not_reached(views: Views, goals: Iterable[Goal]) -> None:
    """Raise for a site at which the run was to end, or whose value was asked for, and that never ran."""
    goals = list(goals)
    refuse_missing(views, [goal.selector for goal in goals])
    for goal in goals:
        if goal.reached is None:
            hint = next(_hints(views, goal.selector), "look at the summary of a full trace for what runs")
            raise NotReachedError(f"the forward never came to {goal.selector}: {hint}")


def _is_plain_address(site: Key | Label | ModuleOutput, addresses: Mapping[str, int]) -> bool:
    """Whether a site is a module of the run and cannot be anything else."""
    if isinstance(site, Label):
        return False
    name = site.key if isinstance(site, Key) else site.address
    return name in addresses and not LABEL.fullmatch(name)


def _hints(views: Views, selector: Selector) -> Iterator[str]:
    """Why a selector meant nothing."""
    for each in selector.simple():
        if isinstance(each, Func) and any(each.name in op.composites for op in views.every_op()):
            yield (
                f"{each.name} is written in Python by torch and runs as other ops; write "
                f"tl.in_func({each.name!r}) for these"
            )
        if isinstance(each, (ModuleOutput, InModule)):
            yield f"the module {each.address!r} was not called"


def _addresses(model: object) -> set[str]:
    """The addresses of every module."""
    if isinstance(model, Mapping):
        named = cast("Mapping[str, object]", model).items()
        inner = ((name, unwrapped(cast("nn.Module", part))) for name, part in named)
        found = {f"{name}.{address}".rstrip(".") for name, part in inner for address in _addresses(part)}
        return {"", *found}
    root = root_of(unwrapped(cast("nn.Module", model)))
    if root is None:
        return {""}
    modules = list(root.modules())
    index = {id(module): at for at, module in enumerate(modules)}
    places: list[list[tuple[int | None, str]]] = [[] for _ in modules]
    places[0].append((None, ""))
    for at, module in enumerate(modules):
        for name, child in module._modules.items():
            if child is not None:
                places[index[id(child)]].append((at, name))
    return {address for addresses in addresses_of(places) for address in addresses}
