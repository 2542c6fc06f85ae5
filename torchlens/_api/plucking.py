"""`pluck` and `extract`: values of a forward that ends as soon as they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchlens._api.running import Given, checked, run
from torchlens._api.sites import goal_of, refuse_missing, refuse_not_reached, refuse_unknown
from torchlens._api.trace import Trace
from torchlens._capture.choosing import Choices, Goal
from torchlens._capture.session import refuse_nested
from torchlens._records import Reached
from torchlens._terms import AnyOf, Selector
from torchlens._trace.selection import select
from torchlens._trace.views import Views
from torchlens.errors import InputError
from torchlens.selectors import Sites, selector_of


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
    come, so that all runs. Otherwise as `pluck`.

    >>> import torch, torchlens as tl
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> list(tl.extract(model, torch.zeros(1, 3), ["0", tl.func("relu")]))
    ['0', 'relu_1:1']
    """
    listed = [sites] if isinstance(sites, (str, Selector)) else list(sites)
    goals = {site: goal_of(site, "sites") for site in listed if isinstance(site, str)}
    selectors = [site for site in listed if not isinstance(site, str)]
    meant = AnyOf(tuple(selector_of(site, "sites") for site in selectors))
    if not listed:
        raise InputError("sites is empty; name at least one label, address or selector")
    save = AnyOf((*(goal.selector for goal in goals.values()), meant))
    choices = Choices(save, list(goals.values()), ends=not selectors)
    views = _run(model, Given.of(x, input_kwargs), choices)
    refuse_not_reached(views, goals.values())
    refuse_missing(views, [meant])
    found: dict[str, Any] = {}
    for site in listed:
        if isinstance(site, str):
            reached = goals[site].reached
            assert reached is not None
            found[site] = _value(views, reached)
        else:
            found.update((op.label, op.out) for op in _met(views, site))
    return found


def _met(views: Views, selector: Selector) -> Iterable[Any]:
    goal = Goal(selector)
    ops = select(views, selector)
    if ops:
        goal.reached = Reached(0, 0)
    refuse_not_reached(views, [goal])
    return ops


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
    return views.op(views.reader.numbers.first[reached.row] + reached.slot).out
