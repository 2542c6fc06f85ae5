"""How a call is spelt, told by running the expression on a stand-in that passes on what torch passes on.

The names under which `Tensor` notes its operators are those of torch 2.13: `1 - x` is `__rsub__`, `1 + x` is
`add`.
"""

import functools
import math
import operator
import sys
import weakref
from types import ModuleType, SimpleNamespace

import pytest

from torchlens._keys.sides import needs_side, side_of_tensor
from torchlens._keys.spelling import Spelling, spell

notes: list[Spelling] = []


def is_tensor(value):
    return issubclass(type(value), Tensor)


def note(name, arguments, is_method=True):
    """What a capture does with a call: ask for the side while the frame runs, spell afterwards."""
    frame = sys._getframe(2)
    second = "none" if len(arguments) < 2 else "tensor" if is_tensor(arguments[1]) else "other"
    asked = is_method and needs_side(name) and second == "other"
    side = side_of_tensor(frame, is_tensor) if asked else None
    notes.append(spell(name, frame.f_code, frame.f_lasti, side, is_method, second))
    return arguments[0] if is_tensor(arguments[0]) else Tensor()


def method(name):
    def call(*arguments, **_):
        return note(name, arguments)

    return call


class Tensor:
    """Stands in for `torch.Tensor`."""

    def __bool__(self):
        return True


ARRIVES = {
    "add": "__add__ __radd__ add",
    "sub": "__sub__ sub",
    "mul": "__mul__ __rmul__ mul",
    "div": "__truediv__ div",
    "remainder": "__mod__ remainder",
    "pow": "__pow__ pow",
    "matmul": "__matmul__ matmul",
    "bitwise_and": "__rand__ bitwise_and",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "add_": "__iadd__ add_",
    "sub_": "__isub__",
    "mul_": "__imul__ mul_",
    "div_": "__itruediv__",
    "floor_divide_": "__ifloordiv__",
    "remainder_": "__imod__",
    "pow_": "__ipow__",
    "lt": "__lt__ lt",
    "le": "__le__",
    "gt": "__gt__",
    "ge": "__ge__",
    "ne": "__ne__ ne",
    "neg": "__neg__ neg",
    "positive": "__pos__ positive",
    "abs": "__abs__ abs",
    "__rdiv__": "__rtruediv__",
    "negative": "negative",
}
for _name, _methods in ARRIVES.items():
    for _method in _methods.split():
        setattr(Tensor, _method, method(_name))
AS_THEY_ARE = """
__rsub__ __floordiv__ __rfloordiv__ __rmod__ __rpow__ __rmatmul__
__lshift__ __rlshift__ __rshift__ __rrshift__
__and__ __or__ __xor__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__
__eq__ __getitem__ __setitem__ __invert__
"""
for _name in AS_THEY_ARE.split():
    setattr(Tensor, _name, method(_name))

torch = ModuleType("torch")
torch.Tensor = Tensor
for _name in ("add", "mul", "abs"):
    setattr(
        torch, _name, (lambda name: lambda *arguments, **_: note(name, arguments, is_method=False))(_name)
    )


def spelt(source, **names):
    notes.clear()
    known = {"x": Tensor(), "y": Tensor(), "one": 1.0, "torch": torch, "operator": operator, "math": math}
    exec(compile(source, "<snippet>", "exec"), {**known, "functools": functools, **names})
    return " ".join(spelling.func_name + ("" if spelling.known else "?") for spelling in notes)


def inside(source, **names):
    """The same with the code in a function, where names are local variables."""
    known = ["x", "y", *names]
    lines = "\n".join("    " + line for line in source.split("\n"))
    return spelt(f"def f({', '.join(known)}):\n{lines}\nf({', '.join(known)})", **names)


OPERATORS = """
x + y                  __add__
x + 1                  __add__
1 + x                  __radd__
x - 1                  __sub__
1 - x                  __rsub__
x * 2                  __mul__
2 * x                  __rmul__
-2.0 * x               __rmul__
x / 2                  __truediv__
2 / x                  __rtruediv__
x // 2                 __floordiv__
2 // x                 __rfloordiv__
x % 2                  __mod__
2 % x                  __rmod__
x ** 2                 __pow__
2 ** x                 __rpow__
x @ y                  __matmul__
x & y                  __and__
x & 1                  __and__
1 & x                  __rand__
1 | x                  __ror__
1 ^ x                  __rxor__
x << 1                 __lshift__
1 << x                 __rlshift__
x >> 1                 __rshift__
-x                     __neg__
+x                     __pos__
~x                     __invert__
x < 1                  __lt__
1 < x                  __gt__
x <= y                 __le__
x >= 1                 __ge__
x == 1                 __eq__
1 == x                 __eq__
x != 1                 __ne__
1 < x < 3              __gt__ __lt__
x in [y]               __eq__
x[0]                   __getitem__
x[0] = 1               __setitem__
x += 1                 __iadd__
x += y                 __iadd__
x -= 1                 __isub__
x *= 2                 __imul__
x /= 2                 __itruediv__
x //= 2                __ifloordiv__
x %= 2                 __imod__
x **= 2                __ipow__
x &= 1                 __iand__
x @= y                 __matmul__
x[0] += 1              __getitem__ __iadd__ __setitem__
a = 0; a += x          __radd__
a = 2; a *= x          __rmul__
a = [0]; a[0] += x     __radd__
a = 1; a &= x          __rand__
x + 1 + 2 * x          __add__ __rmul__ __add__
""".strip()

CALLS = """
x.add(1)                          add
x.add(y)                          add
x.add(y, alpha=2)                 add
x.add(other=1)                    add
x.add_(1)                         add_
x.mul(2).add(1)                   mul add
x.abs()                           abs
x.neg()                           neg
x.negative()                      negative
x.positive()                      positive
x.pow(2)                          pow
x.matmul(y)                       matmul
x.lt(1)                           lt
torch.add(x, 1)                   add
torch.add(1, x)                   add
torch.abs(x)                      abs
torch.Tensor.add(x, 1)            add
torch.Tensor.abs(x)               abs
x.__add__(1)                      __add__
x.__radd__(1)                     __radd__
x.__iadd__(1)                     __iadd__
x.__rand__(1)                     __rand__
x.__neg__()                       __neg__
torch.Tensor.__add__(x, 1)        __add__
abs(x)                            __abs__
pow(x, 2)                         __pow__
pow(2, x)                         __rpow__
operator.add(x, y)                __add__
operator.add(x, 1)                __add__
operator.add(1, x)                __radd__
operator.add(one, x)              __radd__
operator.__add__(1, x)            __radd__
operator.iadd(x, 1)               __iadd__
operator.iadd(1, x)               __radd__
operator.sub(x, 1)                __sub__
operator.truediv(x, 1)            __truediv__
operator.mod(x, 1)                __mod__
operator.and_(1, x)               __rand__
operator.neg(x)                   __neg__
operator.pos(x)                   __pos__
operator.lt(x, 1)                 __lt__
functools.reduce(operator.add, [x, y, x])      __add__ __add__
functools.reduce(operator.mul, [x, y])         __mul__
functools.reduce(torch.add, [x, y])            add
functools.reduce(torch.Tensor.add, [x, y])     add
functools.reduce(lambda a, b: a + b, [x, y])   __add__
sum([x, y, x])                    __radd__ __add__ __add__
sum([x, y], x)                    __add__ __add__
sum(t for t in [x, y])            __radd__ __add__
math.prod([x, y])                 __rmul__ __mul__
max(x, y)                         __gt__
min([x, y])                       __lt__
sorted([x, y])                    __lt__
abs(x.add(1) * 2)                 add __mul__ __abs__
""".strip()

UNTOLD = """
functools.reduce(operator.add, [x, 1])         add?
f = x.add; f(1)                                add?
f = operator.add; f(x, y)                      add?
getattr(x, 'add')(1)                           add?
a = (x, 1); operator.add(*a)                   add?
list(map(operator.add, [x], [y]))              add?
list(map(abs, [x]))                            abs?
x.add(1 if one else 2)                         add?
""".strip()


def rows(table):
    lines = (line.partition("  ") for line in table.split("\n"))
    return [pytest.param(source, expected.strip(), id=source) for source, _, expected in lines]


@pytest.mark.parametrize("run", [spelt, inside])
@pytest.mark.parametrize(("source", "expected"), [*rows(OPERATORS), *rows(CALLS)])
def test_spelling(run, source, expected):
    assert run(source) == expected


@pytest.mark.parametrize("run", [spelt, inside])
@pytest.mark.parametrize(("source", "expected"), rows(UNTOLD))
def test_what_cannot_be_told_keeps_its_plain_name(run, source, expected):
    assert run(source) == expected


def test_other_names_are_not_looked_at():
    assert spell("linear", spelt.__code__, -1, None, True, "tensor") == Spelling("linear", True)


class Holder:
    """Attributes of every kind: some can be read without running code, some cannot."""

    __slots__ = ("__dict__", "slot")
    in_class = 2.0

    def __init__(self):
        self.own, self.slot = 2.0, 2.0
        self._parameters = {"weight": Tensor()}
        self._buffers = {"scale": Tensor()}
        self.inner = SimpleNamespace(number=2.0, tensor=Tensor())
        self.text, self.runs = "text", []

    def __getattr__(self, name):
        self.runs.append(name)
        for store in (self._parameters, self._buffers):
            if name in store:
                return store[name]
        return 2.0

    @property
    def computed(self):
        self.runs.append("computed")
        return 2.0

    def same(self, value):
        return value


class Odd:
    """Every attribute read is the object's own code."""

    own = 2.0

    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


NAMES = """
t * h.own                           __mul__
h.own * t                           __rmul__
h.same(t) * one                     __mul__
one * h.same(t)                     __rmul__
h.same(t) * h.own                   __mul__
h.own * h.same(t)                   __rmul__
h.slot * h.same(t)                  __rmul__
h.in_class * h.same(t)              __rmul__
h.inner.number * h.same(t)          __rmul__
h.inner.tensor * h.same(one)        __mul__
h.weight * h.same(one)              __mul__
h.same(one) * h.scale               __rmul__
math.pi * h.same(t)                 __rmul__
h.same(t) * math.pi                 __mul__
(t if one else 1) * 2               __mul__
(h.same(t) if one else 1) * one     __mul__
h.same(t) * -one                    __mul__
-h.same(t) * one                    __neg__ __mul__
one / 2 * h.same(t)                 __rmul__
h.same(t) * (h.own + one)           __mul__
h.inner.tensor ** 2 * h.same(one)   __pow__ __mul__
float(one) * h.same(t)              __rmul__
h.same(t) * len([one])              __mul__
math.sqrt(2.0 / math.pi) * h.same(t)       __rmul__
math.pow(2.0, one) * h.same(t)      __rmul__
h.same(t) * h.same(one)             mul?
h.same(t) * (h.text + h.text)       mul?
h.same(t) * math.prod([one])        mul?
h.same(t) * h.computed              mul?
h.computed * h.same(t)              mul?
h.same(t) * h.missing               mul?
h.same(t) * o.own                   mul?
h.same(t) * (one if one else 2)     mul?
h.same(t) * (h.same(one) or 2)      mul?
(h.same(t) if one else 1) * h.same(one)    mul?
""".strip()


@pytest.mark.parametrize("run", [spelt, inside])
@pytest.mark.parametrize(("source", "expected"), rows(NAMES))
def test_the_side_of_names(run, source, expected):
    names = {"h": Holder(), "t": Tensor(), "o": Odd(), "one": 1.0}
    # a short way out of a function would be copied into both branches of a conditional expression
    assert run(f"a = {source}; one + one + one + one", **names) == expected


@pytest.mark.parametrize("attribute", ["computed", "missing"])
def test_no_code_of_an_object_is_run(attribute):
    holder = Holder()
    assert inside(f"h.same(x) * h.{attribute}", h=holder) == "mul?"
    assert holder.runs == [attribute]


def test_the_two_sides_of_one_instruction():
    source = """
def product(a, b): return a * b
product(x, 2); product(2, x); product(x, 2)
"""
    assert spelt(source) == "__mul__ __rmul__ __mul__"


def test_a_variable_of_an_enclosing_function():
    source = """
def outer(a):
    b = 2.0
    def right(): return a() * b
    def left(): return b * a()
    def changed():
        nonlocal b
        b = 3.0
        return a() * b
    right(); left(); changed()
outer(lambda: x)
"""
    assert spelt(source) == "__mul__ __rmul__ __mul__"


def test_a_name_in_a_class_body():
    source = """
class Model:
    scale = 2.0
    a = scale * abs(x)
    b = abs(x) * scale
    c = abs(x) * one
"""
    assert spelt(source) == "__abs__ __rmul__ __abs__ __mul__ __abs__ __mul__"


def test_a_comprehension_variable():
    assert inside("[abs(x) * c for c in (1.0, 2.0)]") == "__abs__ __mul__ __abs__ __mul__"


def test_a_generator():
    source = """
def products(a, numbers):
    for c in numbers: yield c * abs(a)
list(products(x, [1.0]))
"""
    assert spelt(source) == "__abs__ __rmul__"


def test_looking_a_name_up_keeps_no_value_alive():
    """Before 3.13 a frame whose locals were read keeps a copy of them."""
    source = """
def f(a, b):
    thing = Odd()
    gone = weakref.ref(thing)
    abs(a) * b
    del thing
    assert gone() is None
f(x, one)
"""
    assert spelt(source, weakref=weakref, Odd=Odd) == "__abs__ __mul__"


@pytest.mark.parametrize("traced", [False, True], ids=["specialized", "instrumented for a tracer"])
def test_instructions_that_the_interpreter_rewrote(traced):
    source = """
for _ in range(50):
    x + 1; 1 + x; x.add(y); abs(x); 1 < x < 3; sum([x, y])
"""
    before = sys.gettrace()
    if traced:
        sys.settrace(lambda *event: lambda *event: None)
    try:
        names = spelt(source).split()
    finally:
        sys.settrace(before)
    assert names == "__add__ __radd__ add __abs__ __gt__ __lt__ __radd__ __add__".split() * 50


def test_a_dictionary_from_locals_is_left_alone():
    source = """
def f(a, b):
    before = locals()
    c = 1
    abs(a) * b
    assert "c" not in before
f(x, one)
"""
    expected = "__abs__ __mul__" if sys.version_info >= (3, 13) else "__abs__ mul?"
    assert spelt(source) == expected
