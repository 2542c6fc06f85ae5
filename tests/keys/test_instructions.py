"""Which instructions are one written place, told by running small pieces of code.

`mark()` notes where it was called; the notes are written as letters, one a place: "AAB" is one place twice,
then another.
"""

import ast
import gc
import subprocess
import sys
import weakref
from types import CodeType

import pytest

from torchlens._keys.bytecode import ByCode
from torchlens._keys.instructions import Span, instruction_key, span

COPIES_HAVE_SPANS = sys.version_info >= (3, 11)


class Places:
    """Notes the place of every call of `mark` and of every comparison with `Number`."""

    def __init__(self) -> None:
        self.seen: list[tuple[CodeType, int]] = []

    def mark(self, value=None):
        frame = sys._getframe(1)
        self.seen.append((frame.f_code, frame.f_lasti))
        return value

    def number(self, value):
        return Number(value, self.seen)

    def run(self, source, **names):
        code = source if isinstance(source, CodeType) else compile(source, "<snippet>", "exec")
        exec(code, {"mark": self.mark, "number": self.number, **names})
        return self.letters()

    def letters(self) -> str:
        keys: dict[object, str] = {}
        return "".join(
            keys.setdefault((id(code), instruction_key(code, offset)), chr(ord("A") + len(keys)))
            for code, offset in self.seen
        )


class Number:
    def __init__(self, value, seen):
        self.value, self.seen = value, seen

    def __lt__(self, other):
        frame = sys._getframe(1)
        self.seen.append((frame.f_code, frame.f_lasti))
        return self.value < getattr(other, "value", other)

    def __abs__(self):
        frame = sys._getframe(1)
        self.seen.append((frame.f_code, frame.f_lasti))
        return self


@pytest.fixture
def places():
    return Places()


SNIPPETS = {
    "loop body": ("for _ in range(3): mark()", "AAA"),
    "two lines": ("mark()\nmark()", "AB"),
    "two calls on one line": ("mark(); mark()", "AB"),
    "nested calls on one line": ("mark(mark(mark()))", "ABC"),
    "two calls in one expression, in a loop": ("for _ in range(2): mark(1) + mark(2)", "ABAB"),
    "expression over several lines": ("for _ in range(2):\n    (mark(1) +\n     mark(\n         2))", "ABAB"),
    "while condition": ("i = 0\nwhile mark(i) < 2:\n    i += 1", "AAA"),
    "negated while condition": ("i = 0\nwhile not mark(i) >= 2:\n    i += 1", "AAA"),
    "while condition without a body": ("i = iter([1, 1, 0])\nwhile mark(next(i)): pass", "AAA"),
    "while condition over two lines": (
        "i = 0\nwhile (mark(i) < 2 and\n       mark(1)):\n    i += 1",
        "ABABA",
    ),
    "while with and, or": ("i = 0\nwhile mark(i) < 2 and mark(1) or mark(0):\n    i += 1", "ABABAC"),
    "two calls in a while condition": ("i = 0\nwhile mark(i) < mark(2):\n    i += 1", "ABABAB"),
    "while in a loop": ("for _ in 0, 1:\n    i = 0\n    while mark(i) < 1:\n        i += 1", "AAAA"),
    "continue in a while": ("i = 0\nwhile mark(i) < 2:\n    i += 1\n    if i == 1: continue", "AAA"),
    "while with else and break": ("i = 0\nwhile mark(i) < 2:\n    i += 1\nelse:\n    mark()", "AAAB"),
    "two whiles alike": ("i = 0\nwhile mark(i) < 1: i += 1\nwhile mark(i) < 2: i += 1", "AABB"),
    "chained comparison": ("for _ in range(2): number(0) < number(1) < number(2)", "ABAB"),
    "longer chained comparison": ("a = number(0)\na < number(1) < number(2) < 3", "ABC"),
    "chained comparison of conditionals": (
        "a, b = number(0), number(1)\nfor i in 0, 1: a < (b if i else number(1)) < number(2)",
        "ABAB",
    ),
    "chained comparison of comprehensions": (
        "def f(a, b):\n    return a < [b for _ in range(3)][0] < 3\nfor _ in 0, 1: f(number(0), number(1))",
        "ABAB",
    ),
    "chained comparison in a while": (
        "a = [number(1), number(2), number(9)]\nwhile number(0) < a[0] < 5:\n    a.pop(0)",
        "ABABAB",
    ),
    "chained comparison in a while without a body": (
        "a = iter([number(1), number(2), number(9)])\nwhile number(0) < next(a) < 5: pass",
        "ABABAB",
    ),
    "chained comparison in a while that ends a function": (
        "def f(a):\n    while number(0) < a[0] < 5: a.pop(0)\nf([number(1), number(2), number(9)])",
        "ABABAB",
    ),
    "negated chained comparison in a while": (
        "a = [number(9), number(8), number(1)]\nwhile not number(0) < a[0] < 5:\n    a.pop(0)",
        "ABABAB",
    ),
    "list comprehension": ("[mark() for _ in range(3)]", "AAA"),
    "filtered comprehension": ("[mark(i) for i in range(2) if mark(1)]", "ABAB"),
    "generator expression": ("list(mark() for _ in range(3))", "AAA"),
    "lambda": ("f = lambda: mark()\nf(); f()", "AA"),
    "two lambdas on two lines": ("f = lambda: mark()\ng = lambda: mark()\nf(); g()", "AB"),
    "conditional expression": ("for i in 0, 1, 0: mark() if i else mark()", "ABA"),
}


@pytest.mark.parametrize(("source", "letters"), SNIPPETS.values(), ids=SNIPPETS.keys())
def test_places(places, source, letters):
    assert places.run(source) == letters


FINALLY = {
    "after success and after an exception": (
        """
for i in 1, 0:
    try:
        try: 1 / i
        finally: mark()
    except ZeroDivisionError: pass
""",
        "AA",
    ),
    "after a return": (
        """
def f(i):
    try:
        if i: return
    finally:
        mark()
f(0); f(1)
""",
        "AA",
    ),
    "after a break": (
        """
for i in 1, 2:
    try:
        if i == 2: break
    finally: mark()
""",
        "AA",
    ),
    "two calls": (
        """
def f(i):
    try:
        if i: return
    finally:
        mark() or mark()
f(0); f(1)
""",
        "ABAB",
    ),
    "chained comparison": (
        """
def f(i, a):
    try:
        if i: return
    finally:
        a < number(1) < 2
f(0, number(0)); f(1, number(0))
""",
        "ABAB",
    ),
}


@pytest.mark.skipif(
    not COPIES_HAVE_SPANS, reason="3.10 keeps no columns, copies of a finally body stay apart"
)
@pytest.mark.parametrize(("source", "letters"), FINALLY.values(), ids=FINALLY.keys())
def test_copies_of_a_finally_body(places, source, letters):
    assert places.run(source) == letters


@pytest.mark.skipif(not COPIES_HAVE_SPANS, reason="3.10 keeps no columns, the exits of a with stay apart")
def test_every_way_out_of_a_with_is_one_place(places):
    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            frame = sys._getframe(1)
            places.seen.append((frame.f_code, frame.f_lasti))
            return True

    source = (
        "for i in range(4):\n    with Manager():\n        if i == 1: continue\n        if i == 2: break\n"
    )
    assert places.run(source, Manager=Manager) == "AAA"


def test_an_offset_in_the_fillers_is_the_instruction_before():
    code = compile("f(1)\ng(2)", "<snippet>", "exec")
    keys = [instruction_key(code, offset) for offset in range(0, len(code.co_code), 2)]
    runs = [key for k, key in enumerate(keys) if not k or key != keys[k - 1]]
    assert len(runs) == len(set(runs))


def test_a_while_whose_instructions_have_long_arguments(places):
    many = "\n".join(f"n{k} = 0" for k in range(300))
    assert places.run(f"{many}\nwhile mark(n299) < 2:\n    n299 = n299 + 1\n    n298 = n299") == "AAA"


@pytest.mark.parametrize("traced", [False, True], ids=["specialized", "instrumented"])
@pytest.mark.parametrize("located", [False, True], ids=["empty span", "span"])
def test_the_place_stays_when_the_interpreter_rewrites_the_code(places, traced, located):
    tree = ast.parse("for _ in range(50): abs(number(0)); number(0) < number(1) < 2; mark(1)")
    for node in () if located else ast.walk(tree):
        node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = 1, 1, 0, 0
    before = sys.gettrace()
    if traced:
        sys.settrace(lambda *event: lambda *event: None)
    try:
        letters = places.run(compile(tree, "<snippet>", "exec"))
    finally:
        sys.settrace(before)
    assert letters == "ABCD" * 50


@pytest.mark.parametrize("end", [0, 5], ids=["empty span", "one span for everything"])
def test_generated_code_that_shares_one_span_stays_apart(places, end):
    tree = ast.parse("for _ in range(2): mark(); mark()")
    for node in ast.walk(tree):
        node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = 1, 1, 0, end
    assert places.run(compile(tree, "<generated>", "exec")) == "ABAB"


@pytest.mark.skipif(not COPIES_HAVE_SPANS, reason="3.10 keeps no columns anyway")
def test_without_columns_the_offset_is_the_key():
    program = (
        "from torchlens._keys.instructions import instruction_key, span\n"
        "code = compile('f(1)', 's', 'exec')\n"
        "print(span(code, 2)[2:], instruction_key(code, 2))"
    )
    run = [sys.executable, "-X", "no_debug_ranges", "-c", program]
    result = subprocess.run(run, capture_output=True, text=True, check=True)
    assert result.stdout.split("\n")[0] == "(None, None) 2"


def test_span_of_a_call(places):
    places.run("x = 1\ny = mark(\n  x)")
    code, offset = places.seen[0]
    expected = Span(2, 3, 4, 4) if COPIES_HAVE_SPANS else Span(2, None, None, None)
    assert span(code, offset) == expected


def test_equal_code_objects_are_looked_at_one_by_one():
    first, second = (compile("f()\n", name, "exec") for name in ("a.py", "b.py"))
    assert first == second and first is not second
    assert instruction_key(first, 4) == instruction_key(second, 4)
    assert span(first, 4) == span(second, 4)


def test_nothing_keeps_a_code_object_alive():
    code = compile("f(1) < 2 < 3", "<snippet>", "exec")
    for offset in range(0, len(code.co_code), 2):
        instruction_key(code, offset)
    alive = weakref.ref(code)
    del code
    gc.collect()
    assert alive() is None


def test_a_limited_memory_forgets_the_oldest_and_asks_again():
    codes = [compile(f"x = {n}", "<snippet>", "exec") for n in range(10)]
    asked: list[str] = []

    def name_of(code: CodeType) -> str:
        asked.append(str(code.co_consts[0]))
        return asked[-1]

    names = ByCode(name_of, limit=4)
    assert [names(code) for code in codes] == [str(n) for n in range(10)]
    assert len(names) <= 4
    assert names(codes[9]) == "9" and asked.count("9") == 1
    assert names(codes[0]) == "0" and asked.count("0") == 2
