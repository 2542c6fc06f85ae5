"""`Bundle`: traces by name, to be compared. It forwards and holds no logic."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from torchlens._api.trace import Trace
from torchlens._trace.lookup import missing
from torchlens.comparing.comparison import Comparison, compare
from torchlens.comparing.divergence import Divergence, NoDivergence, first_divergence
from torchlens.drawing.choices import DrawOptions
from torchlens.drawing.dot import Direction
from torchlens.drawing.drawing import draw_difference
from torchlens.drawing.picture import Page, Picture
from torchlens.drawing.rendering import Program
from torchlens.drawing.wishes import Modules
from torchlens.errors import InputError, MissingKeyError

if TYPE_CHECKING:
    from torchlens._trace.views import Views


class Bundle(Mapping[str, Trace]):
    """Two or more traces under names of your choice, read-only.

    >>> import torch, torchlens as tl
    >>> x, relu = torch.tensor([-1.0, 2.0]), torch.nn.ReLU()
    >>> bundle = tl.Bundle({"once": tl.trace(relu, x), "again": tl.trace(relu, x)})
    >>> bundle.compare("once", "again").equal
    True
    """

    def __init__(self, traces: Mapping[str, Trace]) -> None:
        self._traces = _checked(traces)

    def __getitem__(self, name: str) -> Trace:
        if name not in self._traces:
            raise MissingKeyError(missing(str(name), "trace", self._traces))
        return self._traces[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._traces)

    def __len__(self) -> int:
        return len(self._traces)

    def __repr__(self) -> str:
        return f"<Bundle of {len(self)} traces: {', '.join(map(repr, self))}>"

    def compare(self, a: str, b: str) -> Comparison:
        """Two traces op by op: a row for each op of both, and the ops of one only; true when all are equal.

        Ops are aligned by module call, place in the code and pass, and by order where the code differs.
        """
        return compare(self._views(a), self._views(b), (a, b))

    def first_divergence(
        self, a: str, b: str, *, tolerance: float | tuple[float, float] | None = None
    ) -> Divergence | NoDivergence:
        """The first op, in the order of `a`, whose values differ by more than a tolerance.

        An element may be off by `absolute + relative * max(|a|, |b|)`; a number is taken for both, a pair is
        (relative, absolute), and None means what the coarser of the two dtypes can tell. Where no value
        differs the result is false and says how many were compared.
        """
        return first_divergence(self._views(a), self._views(b), (a, b), tolerance)

    def draw(  # noqa: PLR0913  those of `Trace.draw`
        self,
        path: str | os.PathLike[str] | None = None,
        a: str | None = None,
        b: str | None = None,
        *,
        depth: int | None = None,
        collapse: Modules | Sequence[Modules] | None = None,
        focus: str | None = None,
        direction: Direction = "down",
        fold: bool = True,
        program: Program = "graphviz-pure",
        time_limit: float = 60.0,
        statistics: bool = True,
    ) -> Picture | Page:
        """Two runs in one picture or page: colored by how far values are apart, added and removed ops marked.

        `a` is the run before, `b` the one after; a bundle of two needs no names. The rest is as for
        `Trace.draw`, which has its errors too; addresses are those of `a`. Each pass is drawn.

        >>> import torch, torchlens as tl
        >>> x = torch.tensor([-1.0, 2.0])
        >>> bundle = tl.Bundle({"relu": tl.trace(torch.nn.ReLU(), x), "gelu": tl.trace(torch.nn.GELU(), x)})
        >>> "removed" in bundle.draw().dot
        True
        """
        names = self._pair(a, b)
        options = DrawOptions(
            depth=depth,
            collapse=collapse,
            focus=focus,
            direction=direction,
            fold=fold,
            program=program,
            time_limit=time_limit,
            statistics=statistics,
        )
        return draw_difference((self._views(names[0]), self._views(names[1])), names, path, options)

    def _pair(self, a: str | None, b: str | None) -> tuple[str, str]:
        """The names that are given, or those of the two there are."""
        if a is not None and b is not None:
            return a, b
        names = ", ".join(map(repr, self))
        if a is not None or b is not None:
            raise InputError(
                f"only one run is named; name both of {names}: bundle.draw(path, 'before', 'after'), where "
                "path=None writes nothing"
            )
        if len(self) != 2:
            raise InputError(
                f"two runs are drawn, and this bundle has {len(self)}: {names}; "
                "name two, bundle.draw(path, 'before', 'after')"
            )
        first, second = self
        return first, second

    def _views(self, name: str) -> Views:
        return self[name]._views


def _checked(traces: object) -> dict[str, Trace]:
    """The traces in a dict of their own."""
    if not isinstance(traces, Mapping):
        raise InputError(
            f"a bundle takes a dict of names to traces, not {type(traces).__name__}; "
            'write tl.Bundle({"before": one, "after": other})'
        )
    given = dict(cast("Mapping[object, object]", traces))
    for name, trace in given.items():
        if not isinstance(name, str):
            raise InputError(f"a name in a bundle is a string, not {name!r}")
        if not isinstance(trace, Trace):
            raise InputError(
                f"{name!r} is {type(trace).__name__}, not a trace; tl.trace, tl.load and "
                "recording.to_trace() give one"
            )
    if len(given) < 2:
        raise InputError(f"a bundle is of two traces or more, this one has {len(given)}; add the other run")
    return cast("dict[str, Trace]", given)
