from __future__ import annotations

import pytest

from torchlens.report.amounts import (
    ShapeRange,
    byte_count,
    duration,
    listed,
    quantity,
    shape_text,
    short_count,
    spaced_count,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (9_999, "9,999"),
        (10_000, "10.0K"),
        (37_632, "37.6K"),
        (999_499, "999K"),
        (999_500, "1.00M"),
        (1_000_000, "1.00M"),
        (11_689_512, "11.7M"),
        (3_635_522_560, "3.64G"),
        (10**15, "1.00P"),
    ],
)
def test_counts_have_three_digits_and_a_prefix(number: int, text: str) -> None:
    assert short_count(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 FLOPs"), (512, "512 FLOPs"), (12_300, "12.3 KFLOPs"), (1_814_073_344, "1.81 GFLOPs")],
)
def test_counts_with_a_unit(number: int, text: str) -> None:
    assert spaced_count(number, "FLOPs") == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (46_758_048, "46.8 MB")]
)
def test_bytes(number: int, text: str) -> None:
    assert byte_count(number) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0ns"),
        (999, "999ns"),
        (1_000, "1.00us"),
        (45_678, "45.7us"),
        (999_499, "999us"),
        (999_500, "1.00ms"),
        (123_456_789, "123ms"),
        (1_234_567_890, "1.23s"),
        (600_000_000_000, "600s"),
    ],
)
def test_durations(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        pytest.param([], "", id="none"),
        pytest.param([(3, 4)], "3×4", id="one"),
        pytest.param([()], "scalar", id="without dimensions"),
        pytest.param([(0, 2)], "0×2", id="without elements"),
        pytest.param([(1, 5, 8), (1, 9, 8), (1, 7, 8)], "1×5..9×8", id="one size varies"),
        pytest.param([(2,), (2, 2)], "varies", id="other numbers of dimensions"),
        pytest.param([None], "varies", id="a tensor without one shape"),
    ],
)
def test_shapes_of_one_place(shapes: list[tuple[int, ...] | None], text: str) -> None:
    seen = ShapeRange()
    for shape in shapes:
        seen.add(shape)
    assert str(seen) == text


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        pytest.param([(2, 3)], [(2, 5)], "2×3..5", id="both"),
        pytest.param([], [(2, 5)], "2×5", id="the first is empty"),
        pytest.param([(2, 5)], [], "2×5", id="the second is empty"),
        pytest.param([(2, 3), (4, 3)], [(1, 3)], "1..4×3", id="a range"),
        pytest.param([(2, 3)], [None], "varies", id="the second varies"),
    ],
)
def test_shapes_of_two_places(
    first: list[tuple[int, ...]], second: list[tuple[int, ...] | None], text: str
) -> None:
    one, other = ShapeRange(), ShapeRange()
    for shape in first:
        one.add(shape)
    for shape in second:
        other.add(shape)
    one.merge(other)
    assert str(one) == text


def test_shape_text() -> None:
    assert shape_text((1, 64, 112, 112)) == "1×64×112×112"


def test_quantities() -> None:
    assert [quantity(n, "call") for n in (0, 1, 2, 1500)] == ["0 calls", "1 call", "2 calls", "1,500 calls"]
    assert quantity(3, "pass", "passes") == "3 passes"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a", "b", "c"], "a, b, c"),
        (["a", "b", "c", "d"], "a, b, c and 1 more"),
    ],
)
def test_lists(names: list[str], text: str) -> None:
    assert listed(names) == text
