"""The sites that a caller names: read before the run, and held against what ran afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from torch import nn

from torchlens._capture.choosing import Choices, Goal
from torchlens._capture.unwrapping import root_of, unwrapped
from torchlens._terms import LABEL, Func, InModule, Key, Label, ModuleOutput, Not, Selector
from torchlens._trace.lookup import missing
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


def refuse_undecidable(selector: Selector) -> None:
    """Raise for a place to stop that is known only when all has run."""
    for each in selector.simple():
        name = each.label if isinstance(each, Label) else each.key if isinstance(each, Key) else ""
        if name.startswith("buffer_"):
            raise InputError(
                f"{name!r} is a version of a buffer, which are labelled when all have been seen; name the op "
                "that writes it"
            )
    if _negates(selector):
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
        if name not in known and not (":" in name and name.rpartition(":")[0] in known):
            noun = "layer or module" if isinstance(each, Key) else "module"
            raise MissingKeyError(f"{each}: {missing(name, noun, known)}")


def refuse_missing(views: Views, selectors: Iterable[Selector]) -> None:
    """Raise for a label that no op has, and for a key that is both a label and an address."""
    simple = [each for selector in selectors for each in selector.simple()]
    if not any(isinstance(each, (Key, Label)) for each in simple):
        return
    reader = views.reader
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
        if name is not None and name not in labels:
            raise MissingKeyError(f"in this run {missing(name, 'layer or op', reader.layer_index)}")


def refuse_not_reached(views: Views, goals: Iterable[Goal]) -> None:
    """Raise for a site at which the run was to end, or whose value was asked for, and that never ran."""
    goals = list(goals)
    refuse_missing(views, [goal.selector for goal in goals])
    for goal in goals:
        if goal.reached is None:
            hint = next(_hints(views, goal.selector), "look at the summary of a full trace for what runs")
            raise NotReachedError(f"the forward never came to {goal.selector}: {hint}")


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
    names = cast("Iterable[tuple[str, object]]", root.named_modules(remove_duplicate=False))
    return {name for name, _ in names}


def _negates(selector: Selector, *, inside: bool = False) -> bool:
    if isinstance(selector, (ModuleOutput, Key)):
        return inside
    inside = inside != isinstance(selector, Not)
    return any(_negates(part, inside=inside) for part in selector.parts())
