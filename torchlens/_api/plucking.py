"""`pluck` and `extract`: values of a forward that ends as soon as they are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from torchlens._api.running import Given, checked, run
from torchlens._api.sites import goal_of, refuse_not_reached, refuse_unknown
from torchlens._api.trace import Trace
from torchlens._capture.choices import Choices
from torchlens._capture.session import refuse_nested
from torchlens._records import Reached
from torchlens._terms import AnyOf, Selector
from torchlens._trace.op import Op
from torchlens._trace.views import Views
from torchlens.errors import InputError
from torchlens.selectors import Sites


def pluck(
    model: Callable[..., Any], x: Any, site: str | Selector, *, input_kwargs: Mapping[str, Any] | None = None
) -> Any:
    """The value at one site: a label, a module's address, or a selector, whose first op counts.

    Of several passes it is the first, unless one is named (`"relu_1:3"`). A module's value is what its caller
    received. The forward ends right there. Raises `NotReachedError` or `MissingKeyError` for a site that
    never ran.

    >>> import torch, torchlens as tl
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> tl.pluck(model, torch.zeros(1, 3), "relu_1").shape
    torch.Size([1, 2])
    """
    goal = goal_of(site, "site")
    views = _run(model, Given.of(x, input_kwargs), Choices(goal.selector, [goal]))
    refuse_not_reached(views, [goal])
    assert goal.reached is not None
    return _value(views, goal.reached)


def extract(
    model: Callable[..., Any], x: Any, sites: Sites, *, input_kwargs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The values at several sites: by the keys that were given, and by op label for what selectors mean.

    With labels and addresses alone, the forward ends when the last is there; a selector may mean an op yet to
    come, so that all runs. A selector cannot ask for what is no module's output. Otherwise as `pluck`.

    >>> import torch, torchlens as tl
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> list(tl.extract(model, torch.zeros(1, 3), ["0", tl.func("relu")]))
    ['0', 'relu_1:1']
    """
    goals = {site: goal_of(site, "sites") for site in _listed(sites)}
    save = AnyOf(tuple(goal.selector for goal in goals.values()))
    several = [goal for site, goal in goals.items() if not isinstance(site, str)]
    for goal in several:
        goal.collected = []
    choices = Choices(save, list(goals.values()), ends=not several)
    views = _run(model, Given.of(x, input_kwargs), choices)
    refuse_not_reached(views, goals.values())
    found: dict[str, Any] = {}
    for site, goal in goals.items():
        assert goal.reached is not None
        if isinstance(site, str):
            found[site] = _value(views, goal.reached)
        else:
            ops = sorted(_op(views, reached).index for reached in goal.collected or ())
            found.update((op.label, op.out) for op in map(views.op, dict.fromkeys(ops)))
    return found


def _listed(sites: object) -> list[str | Selector]:
    listed = [sites] if isinstance(sites, (str, Selector)) else sites
    if not isinstance(listed, (list, tuple, set, frozenset)) or not listed:
        raise InputError(
            f"sites={sites!r} names nothing; give a label, an address or a selector, or a list of these"
        )
    return cast("list[str | Selector]", list(cast("list[object]", listed)))


def _op(views: Views, reached: Reached) -> Op:
    return views.op(views.reader.numbers.first[reached.row] + reached.slot)


def _run(model: Callable[..., Any], given: Given, choices: Choices) -> Views:
    refuse_nested()
    assert choices.save is not None
    refuse_unknown(model, [choices.save])
    captured = run(model, given, checked(None), choices)
    result = Trace()
    result._finish(captured.record, captured.ledger)
    return result._views


def _value(views: Views, reached: Reached) -> Any:
    if reached.call is not None:
        return views.module_call(reached.call).output
    return _op(views, reached).out
