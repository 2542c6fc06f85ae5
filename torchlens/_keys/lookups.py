"""Names read from a running frame without running any code of the objects on the way."""

from __future__ import annotations

import sys
from types import FrameType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import cast

from torchlens._keys.expressions import Name

_OPTIMIZED = 1  # co_flags: the locals of the frame are no dictionary
_UNSHARED = 3  # references to a dictionary that only the frame, a variable here and the question itself hold
_ATTRIBUTE_READERS = tuple(kind.__getattribute__ for kind in (object, ModuleType, SimpleNamespace))
_MODULE_STORES = ("_parameters", "_buffers", "_modules")


class Missing:
    """Stands for a value that cannot be read without running code, or is not there."""


MISSING = Missing()


def read(frame: FrameType, name: Name) -> object:
    """The value of a name in a running frame, or MISSING."""
    value = _variable(frame, name)
    for attribute in name.attributes:
        value = MISSING if value is MISSING else _attribute(value, attribute)
    return value


def variables(frame: FrameType) -> dict[str, object]:
    """A copy of a frame's variables, which the frame itself does not keep."""
    names = frame.f_locals
    found = dict(names)
    optimized = frame.f_code.co_flags & _OPTIMIZED
    if sys.version_info < (3, 13) and optimized and sys.getrefcount(names) <= _UNSHARED:
        names.clear()  # what the user drops would live in it until the frame ends
    return found


def _variable(frame: FrameType, name: Name) -> object:
    if name.scope == "local":
        return _local(frame, name.name)
    if name.scope == "class":
        names = frame.f_locals  # the class body's own dictionary, or whatever its metaclass prepared
        if type(names) is not dict:
            return MISSING
        if name.name in names:
            return names[name.name]
    found: object = frame.f_globals.get(name.name, MISSING)
    return frame.f_builtins.get(name.name, MISSING) if found is MISSING else found


def _local(frame: FrameType, name: str) -> object:
    if not frame.f_code.co_flags & _OPTIMIZED:
        return MISSING  # a cell of a class body, which its frame does not show
    names = frame.f_locals
    value: object = names.get(name, MISSING)
    if sys.version_info < (3, 13) and sys.getrefcount(names) <= _UNSHARED:
        names.clear()  # the frame would keep this copy, and with it every value in it, until it ends
    return value


def _attribute(value: object, name: str) -> object:
    """An attribute that is plain data: no property, no `__getattr__`, nothing that runs the object's code."""
    kind = type(value)
    if kind.__getattribute__ not in _ATTRIBUTE_READERS:
        return MISSING
    in_class = _in_class(kind, name)
    if in_class is not MISSING:
        if isinstance(in_class, MemberDescriptorType):
            return _slot(in_class, value)
        if _is_descriptor(in_class, "__set__") or _is_descriptor(in_class, "__delete__"):
            return MISSING
    own = _own_attributes(value)
    if name in own:
        return own[name]
    if in_class is not MISSING:
        return MISSING if _is_descriptor(in_class, "__get__") else in_class
    return _registered(own, name)


def _in_class(kind: type, name: str) -> object:
    for base in kind.__mro__:
        attributes = base.__dict__
        if name in attributes:
            return attributes[name]
    return MISSING


def _is_descriptor(value: object, special: str) -> bool:
    return _in_class(type(value), special) is not MISSING


def _slot(slot: MemberDescriptorType, value: object) -> object:
    try:
        return slot.__get__(value)
    except AttributeError:
        return MISSING


def _own_attributes(value: object) -> dict[str, object]:
    if not type(value).__dictoffset__:
        return {}
    own: object = value.__dict__
    return cast("dict[str, object]", own) if type(own) is dict else {}


def _registered(own: dict[str, object], name: str) -> object:
    """A parameter, buffer or child of a `torch.nn.Module`, where its `__getattr__` looks."""
    for store in _MODULE_STORES:
        kept = own.get(store)
        if type(kept) is dict and name in kept:
            return cast("dict[str, object]", kept)[name]
    return MISSING
