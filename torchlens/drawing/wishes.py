"""What a caller says about modules, by depth, class, address or predicate, as boxes of a scene."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

from torch import nn

from torchlens._trace.lookup import missing
from torchlens._trace.module import Module
from torchlens._trace.views import Views
from torchlens.drawing.opening import IsClosed, nothing_closed
from torchlens.drawing.scene import Box, Scene
from torchlens.errors import IncompleteError, InputError, MissingKeyError, OptionError

Modules: TypeAlias = int | str | type[nn.Module] | Callable[[Module], object]
"""All modules so many levels below the root; an address, a call's label or the name of a class; a class; a
predicate."""


def closed_by(views: Views, collapse: Modules | Sequence[Modules] | None) -> IsClosed:
    """Which boxes stay closed; raises for an address or class that the run does not have."""
    if collapse is None:
        return nothing_closed
    if isinstance(collapse, Sequence) and not isinstance(collapse, str):
        tests = [_test(views, each) for each in cast("Sequence[object]", collapse)]
    else:
        tests = [_test(views, collapse)]
    return lambda box, level: any(test(box, level) for test in tests)


def focused_by(scene: Scene, views: Views, focus: str | None) -> frozenset[Box]:
    """The boxes of a module, or of one call of it; empty for None."""
    if focus is None:
        return frozenset()
    if not isinstance(cast("object", focus), str):
        raise InputError(f"focus={focus!r} names no module; give a module's address, or the label of a call")
    names = {**views.reader.module_index, **views.reader.call_index}
    if focus not in names:
        hint = "; it is a layer or op, and focus takes a module" if _is_label(views, focus) else ""
        raise MissingKeyError(missing(focus, "module", filter(None, names)) + hint)
    of_call = focus in views.reader.call_index
    known = views.reader.call_index if of_call else views.reader.module_index
    found = {
        box
        for box in scene.top.boxes()
        if box.status != "added"
        and (known[focus] in box.calls if of_call else views.reader.module_index[box.address] == known[focus])
    }
    if not found:
        raise IncompleteError(
            f"there is nothing of {focus!r} to draw: "
            "it was not called, no op ran in it that is not hidden, or a rolled picture has its ops in "
            "another module, which called the same one before; trace.module_calls lists the calls"
        )
    return frozenset(found)


def _is_label(views: Views, name: str) -> bool:
    return name in views.reader.layer_index or name in views.reader.op_index


def _test(views: Views, given: object) -> IsClosed:
    if isinstance(given, bool) or given is None:
        raise InputError(f"collapse={given!r} names no module; {_WAYS}")
    if isinstance(given, int):
        if given < 0:
            raise OptionError(f"collapse={given}: no module is {given} levels below the root; give 0 or more")
        return lambda box, level: level >= given
    if isinstance(given, str):
        return _by_name(views, given)
    if isinstance(given, type):
        return _by_class(views, given.__name__)
    if callable(given):
        return _by_predicate(given)
    raise InputError(f"collapse has a {type(given).__name__}; {_WAYS}")


_WAYS = (
    "give a number of levels, a module's address, the name of a class, a class, a function of a module, or a "
    "list of these"
)


def _by_name(views: Views, name: str) -> IsClosed:
    classes = _classes(views)
    modules, calls = views.reader.module_index, views.reader.call_index
    if name not in classes and name not in modules and name not in calls:
        raise MissingKeyError(missing(name, "module", _once((*modules, *classes))))
    module, call = modules.get(name), calls.get(name)

    def is_closed(box: Box, level: int) -> bool:
        return (
            box.type_name == name
            or (module is not None and modules.get(box.address) == module)
            or (call is not None and call in box.calls and box.status != "added")
        )

    return is_closed


def _by_class(views: Views, name: str) -> IsClosed:
    classes = _classes(views)
    if name not in classes:
        raise MissingKeyError(missing(name, "class of modules", _once(classes)))
    return lambda box, level: box.type_name == name


def _by_predicate(given: Callable[..., object]) -> IsClosed:
    answers: dict[Box, bool] = {}
    """A picture asks again for each depth that it is tried with."""

    def is_closed(box: Box, level: int) -> bool:
        if box not in answers:
            views = box.views
            answers[box] = views is not None and bool(given(_module(views, box)))
        return answers[box]

    return is_closed


def _classes(views: Views) -> Sequence[str]:
    return list(dict.fromkeys(entry.type_name for entry in views.reader.record.modules))


def _once(names: Iterable[str]) -> Sequence[str]:
    return list(dict.fromkeys(filter(None, names)))


def _module(views: Views, box: Box) -> Module:
    return views.module(views.reader.module_index[box.address])
