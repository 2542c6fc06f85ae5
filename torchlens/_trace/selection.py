"""`trace[key]`: one thing by label, address or index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlens._terms import Selector
from torchlens._trace.lookup import missing
from torchlens.errors import AmbiguousKeyError, InputError, MissingKeyError

if TYPE_CHECKING:
    from torchlens._trace.layer import Layer
    from torchlens._trace.module import Module, ModuleCall
    from torchlens._trace.op import Op
    from torchlens._trace.views import Views


def select(views: Views, selector: Selector) -> list[Op]:
    """The ops that a selector means, in capture order."""
    return [op for op in views.every_op() if selector.matches(op)]


def find(views: Views, key: object) -> Op | Layer | Module | ModuleCall:
    """The layer (`"relu_1"`), op (`"relu_1:2"`, `7`), module (`"fc"`) or module call (`"fc:1"`) of a key.

    A key that is a label and an address raises `AmbiguousKeyError`; one that is neither `MissingKeyError`.
    """
    reader = views.reader
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise InputError(f"a trace is indexed by a label, an address or an int, not by {type(key).__name__}")
    if isinstance(key, int):
        count = len(reader.numbers.rows)
        if not -count <= key < count:
            raise MissingKeyError(f"there is no op {key}: the trace has {count} ops, 0 to {count - 1}")
        return views.op(key % count)
    labelled = reader.layer_index.get(key), reader.op_index.get(key)
    addressed = reader.module_index.get(key), reader.call_index.get(key)
    if labelled != (None, None) and addressed != (None, None):
        raise AmbiguousKeyError(
            f"{key!r} is a label and an address; write trace.layers[{key!r}] or trace.ops[{key!r}] for the "
            f"one, trace.modules[{key!r}] or trace.module_calls[{key!r}] for the other"
        )
    if labelled[0] is not None:
        return views.layer(labelled[0])
    if labelled[1] is not None:
        return views.op(labelled[1])
    if addressed[0] is not None:
        return views.module(addressed[0])
    if addressed[1] is not None:
        return views.module_call(addressed[1])
    names = dict.fromkeys([*reader.layer_index, *reader.module_index, *reader.op_index, *reader.call_index])
    raise MissingKeyError(missing(key, "layer, op or module", filter(None, names)))
