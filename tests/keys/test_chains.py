"""When two call chains are one place, told by running small pieces of code, and against the rule written out.

`mark()` notes the chain of frames it was called through, up to where the snippet was started; the notes are
written as letters, one a place.
"""

import contextlib
import functools
import gc
import os
import random
import sys
import weakref
from types import CodeType

import pytest

from torchlens._keys.chains import Chains, Frame
from torchlens._keys.instructions import instruction_key
from torchlens._records import BoundaryPlace, EnteredPlace, FramePlace, HookedPlace

HAS_COLUMNS = sys.version_info >= (3, 11)


def function_of(frame):
    """What makes two frames of equal code the same function: the objects behind the free variables."""
    code = frame.f_code
    return code, tuple(id(frame.f_locals[name]) for name in code.co_freevars)


class Recorder:
    """Writes chains down as a capture does, innermost frame first, each place once."""

    def __init__(self) -> None:
        self.places: list = [None]
        self.numbers: dict = {}
        self.sites: list[int] = []

    def place(self, place, *identity) -> int:
        number = self.numbers.setdefault((type(place), *identity), len(self.places))
        if number == len(self.places):
            self.places.append(place)
        return number

    def walk(self, frame, until, inner=0) -> int:
        met = set()
        while frame.f_code is not until:
            function = function_of(frame)
            place = FramePlace(inner, frame.f_code, frame.f_lasti, function in met)
            met.add(function)
            inner = self.place(place, inner, id(frame.f_code), frame.f_lasti, place.recursive)
            frame = frame.f_back
        return inner

    def mark(self, value=None):
        self.sites.append(self.walk(sys._getframe(1), Recorder.run.__code__))
        return value

    def run(self, source, **names):
        code = source if isinstance(source, CodeType) else compile(source, "<snippet>", "exec")
        exec(code, {"mark": self.mark, **names})
        return self.letters()

    def letters(self) -> str:
        chains, keys = Chains(self.places), {}
        return "".join(keys.setdefault(chains.key(site), chr(65 + len(keys))) for site in self.sites)


@pytest.fixture
def recorder():
    return Recorder()


SNIPPETS = {
    "loop": ("for _ in range(3): mark()", "AAA"),
    "helper called from one line": (
        """
def helper(): mark()
for _ in range(3): helper()
""",
        "AAA",
    ),
    "helper called from two lines": (
        """
def helper(): mark()
for _ in range(2):
    helper()
    helper()
""",
        "ABAB",
    ),
    "helper called twice on one line": ("f = lambda: mark()\nfor _ in 0, 1: f(), f()", "ABAB"),
    "helper in a while condition": (
        """
def smaller(a, b):
    mark()
    return a < b
i = 0
while smaller(i, 2): i += 1
""",
        "AAA",
    ),
    "two identical functions": (
        """
def f(): mark()
def g(): mark()
f(); g()
""",
        "AB",
    ),
    "list comprehension": ("[mark() for _ in range(3)]", "AAA"),
    "two comprehensions on one line": ("[mark() for _ in '12'], [mark() for _ in '12']", "AABB"),
    "generator expression": ("sum(mark(1) for _ in range(3))", "AAA"),
    "generator resumed from two lines": (
        """
def each():
    while True: yield mark()
steps = each()
next(steps)
for _ in range(2):
    next(steps)
""",
        "ABB",
    ),
    "map": ("list(map(mark, range(3)))", "AAA"),
    "map of a lambda": ("list(map(lambda i: mark(i), range(3)))", "AAA"),
    "decorator that calls on two lines": (
        """
def twice(f):
    def wrapper():
        f()
        f()
    return wrapper
@twice
def helper(): mark()
for _ in 0, 1: helper()
""",
        "ABAB",
    ),
    "recursion of depth 3": (
        """
def f(depth):
    mark()
    if depth > 1: f(depth - 1)
f(3)
""",
        "AAA",
    ),
    "marks before and after the recursion": (
        """
def f(depth):
    mark()
    if depth > 1: f(depth - 1)
    mark()
f(3)
""",
        "AAABBB",
    ),
    "recursion entered from two lines": (
        """
def f(depth):
    mark()
    if depth > 1: f(depth - 1)
f(2)
f(2)
""",
        "AABB",
    ),
    "recursion through two lines": (
        """
def f(depth):
    mark()
    if depth == 3: f(2)
    if depth == 2: f(1)
f(3)
""",
        "AAA",
    ),
    "mutual recursion": (
        """
def even(n):
    mark()
    if n: odd(n - 1)
def odd(n):
    mark()
    if n: even(n - 1)
even(4)
""",
        "ABABA",
    ),
    "mutual recursion with a helper at every depth": (
        """
def helper(): mark()
def even(n):
    helper()
    if n: odd(n - 1)
def odd(n):
    helper()
    if n: even(n - 1)
even(3)
""",
        "ABAB",
    ),
    "recursion of two functions entered at either": (
        """
def f(n):
    mark()
    if n: g(n - 1)
def g(n):
    f(n)
g(3)
f(3)
""",
        "AAAABBBB",
    ),
    "recursive closure": (
        """
def make(mark):
    def f(n):
        mark()
        if n: f(n - 1)
    return f
make(mark)(3)
""",
        "AAAA",
    ),
}


@pytest.mark.parametrize(("source", "letters"), SNIPPETS.values(), ids=SNIPPETS.keys())
def test_places(recorder, source, letters):
    assert recorder.run(source) == letters


def test_a_function_built_with_exec_in_a_loop_is_one_function(recorder):
    source = """
for _ in range(3):
    built = {"mark": mark}
    exec("def f(): mark()", built)
    built["f"]()
"""
    assert recorder.run(source) == "AAA"


def test_equal_text_in_two_files_is_two_functions(recorder):
    built = []
    for name in ("a.py", "b.py"):
        names = {"mark": recorder.mark}
        exec(compile("def f(): mark()", name, "exec"), names)
        built.append(names["f"])
    assert built[0].__code__ == built[1].__code__
    assert recorder.run("for _ in 0, 1:\n    for f in built: f()", built=built) == "ABAB"


def guarded(function):
    """A decorator of the kind of `torch.no_grad`: every function it wraps runs through the same code."""

    @functools.wraps(function)
    def wrapper(*args):
        with contextlib.nullcontext():
            return function(*args)

    return wrapper


def test_two_decorated_helpers_inside_each_other_stay_apart(recorder):
    source = """
@guarded
def inner(): mark()
@guarded
def outer():
    mark()
    inner()
outer()
inner()
"""
    assert recorder.run(source, guarded=guarded) == "ABC"
    chains = Chains(recorder.places)
    assert len(chains.frames(recorder.sites[1])) == 5


def test_mutual_recursion_of_decorated_functions_folds(recorder):
    source = """
@guarded
def even(n):
    mark()
    if n: odd(n - 1)
@guarded
def odd(n):
    mark()
    if n: even(n - 1)
even(5)
"""
    assert recorder.run(source, guarded=guarded) == "ABABAB"


def test_a_deep_recursion_is_folded_in_a_loop(recorder):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        source = "def f(n):\n    if n: f(n - 1)\n    else: mark()\nf(5_000)\nf(4_000)\nf(3)"
        assert recorder.run(source) == "ABC"
        chains = Chains(recorder.places)
    finally:
        sys.setrecursionlimit(limit)
    deep = recorder.sites[0]
    assert len(chains.frames(deep)) == 5_002
    assert chains.caller(deep) == chains.caller(recorder.sites[2])


# The rule as it is written down, on chains made up at random


def flat(places, site):
    """The elements of a chain, outermost first: ("frame", function, instruction) or something else."""
    place = places[site]
    if place is None:
        return []
    if isinstance(place, EnteredPlace):
        return flat(places, place.outer) + flat(places, place.inner)
    if isinstance(place, BoundaryPlace):
        return [*flat(places, place.outer), ("boundary", place.func), *flat(places, place.inner)]
    if isinstance(place, HookedPlace):
        return [("hook", place.module, place.offset), *flat(places, place.inner)]
    element = ("frame", (place.code, place.code.co_filename), instruction_key(place.code, place.offset))
    return [element, *flat(places, place.inner)]


def folded(elements):
    """Going inwards, a frame of a function met before drops back to that function's frame."""
    kept: list = []
    for element in elements:
        if element[0] == "frame":
            functions = [other[1] if other[0] == "frame" else None for other in kept]
            if element[1] in functions:
                del kept[functions.index(element[1]) :]
        kept.append(element)
    return tuple(kept)


def made_up_places(dice):
    codes = [compile("f(1)\ng(2)", f"{name}.py", "exec") for name in "abcd"]
    codes.append(compile("f(1)\ng(2)", "a.py", "exec"))
    offsets = [k for k in range(0, len(codes[0].co_code), 2) if dice.random() < 0.2] or [2]
    places: list = [None]
    linear = [0]  # chains of frames and hooks, which may stand inside or outside
    for _ in range(40):
        number, kind = len(places), dice.random()
        if kind < 0.8:
            places.append(FramePlace(dice.choice(linear), dice.choice(codes), dice.choice(offsets), False))
            linear.append(number)
        elif kind < 0.85:
            places.append(HookedPlace(dice.choice(linear), dice.randrange(2), 0))
            linear.append(number)
        else:
            kind = EnteredPlace if kind < 0.95 else BoundaryPlace
            places.append(kind(dice.choice(linear), dice.randrange(number), dice.choice([len, abs])))
    return places


@pytest.mark.parametrize("seed", range(60))
def test_keys_are_equal_exactly_where_the_rule_says(seed):
    dice = random.Random(seed)
    places = made_up_places(dice)
    chains = Chains(places)
    sites = dice.sample(range(len(places)), len(places))
    keys = {site: chains.key(site) for site in sites}
    rule = {site: folded(flat(places, site)) for site in sites}
    for a in sites:
        assert [keys[a] == keys[b] for b in sites] == [rule[a] == rule[b] for b in sites]


def test_places_may_be_added_after_a_key_was_asked():
    code = compile("f(1)\ng(2)", "a.py", "exec")
    places: list = [None, FramePlace(0, code, 2, False)]
    chains = Chains(places)
    first = chains.key(1)
    places.append(FramePlace(1, code, 2, True))
    assert chains.key(2) == first


def test_hooks_of_two_modules_are_two_places():
    code = compile("f(1)", "hook.py", "exec")
    hooks = [HookedPlace(1, 5, 0), HookedPlace(1, 6, 0), HookedPlace(1, 5, 2), HookedPlace(1, 5, 0)]
    chains = Chains([None, FramePlace(0, code, 2, False), *hooks])
    assert len({chains.key(site) for site in range(1, 5)}) == 4
    assert chains.key(2) == chains.key(5)
    assert chains.frames(2) == chains.frames(1)


def test_an_entered_function_only_joins_the_two_halves():
    inside, outside = compile("f(1)", "torch.py", "exec"), compile("g(2)", "user.py", "exec")
    places = [
        None,
        FramePlace(0, inside, 2, False),
        FramePlace(0, outside, 2, False),
        EnteredPlace(1, 2, abs),
        FramePlace(1, outside, 2, False),
        EnteredPlace(0, 3, len),
    ]
    chains = Chains(places)
    assert chains.key(3) == chains.key(4)
    assert [frame.file for frame in chains.frames(3)] == ["user.py", "torch.py"]
    assert chains.composites(5) == (abs, len)
    assert chains.composites(4) == ()
    assert chains.caller(5) == (inside, 2)
    assert chains.caller(0) is None


def test_a_boundary_is_told_by_its_function():
    code = compile("f(1)", "user.py", "exec")
    outside = FramePlace(0, code, 2, False)
    places = [None, outside, *(BoundaryPlace(0, 1, func) for func in (len, abs, len))]
    chains = Chains(places)
    assert chains.key(2) == chains.key(4) != chains.key(3)
    assert chains.caller(2) == (code, 2)
    assert chains.composites(2) == ()


def test_the_empty_chain_is_a_place():
    chains = Chains([None])
    assert chains.key(0) == chains.key(0)
    assert chains.frames(0) == ()


def test_a_malformed_chain_is_refused():
    code = compile("f(1)", "user.py", "exec")
    places = [None, EnteredPlace(0, 0, len), FramePlace(1, code, 2, False)]
    with pytest.raises(ValueError, match=r"place 1 is EnteredPlace.* with frames outside it"):
        Chains(places).key(2)


def test_frames_read_as_the_code_stands():
    recorder = Recorder()
    source = "class Model:\n    def forward(self):\n        return [\n            mark()]\nModel().forward()"
    recorder.run(compile(source, os.path.join("some", "model.py"), "exec"))
    outer, *_, inner = Chains(recorder.places).frames(recorder.sites[0])
    function = "Model.forward" if HAS_COLUMNS else "forward"
    assert str(inner) == f"model.py:4 in {function}"
    assert str(outer) == "model.py:5 in <module>"
    place = (4, 12, 18) if HAS_COLUMNS else (None, None, None)
    assert inner == Frame(os.path.join("some", "model.py"), function, 4, *place)


def test_a_frame_without_a_line_says_so():
    assert str(Frame("model.py", "forward", None, None, None, None)) == "model.py in forward"


def test_chains_are_freed_without_the_collector(recorder):
    recorder.run("def f(n):\n    mark()\n    if n: f(n - 1)\nf(3)")
    chains = Chains(recorder.places)
    assert [chains.key(site) for site in recorder.sites]
    assert chains.frames(recorder.sites[0])
    alive = weakref.ref(chains)
    gc.disable()
    try:
        del chains
        assert alive() is None
    finally:
        gc.enable()
