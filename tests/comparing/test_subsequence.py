"""The longest common subsequence: as long as a plain table finds it, and as early as can be."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlens.comparing.subsequence import common_subsequence

Keys = list[str | None]


def longest(left: Keys, right: Keys) -> int:
    """The length by the textbook's table."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = 0
        for at, other in enumerate(right, 1):
            above = row[at]
            row[at] = before + 1 if one == other and one is not None else max(above, row[at - 1])
            before = above
    return row[-1]


keys = st.lists(st.sampled_from(["a", "b", "c", "d", None]), max_size=40)


@given(left=keys, right=keys)
def test_it_is_common_in_order_and_as_long_as_any(left: Keys, right: Keys) -> None:
    found = common_subsequence(left, right)
    assert all(left[one] == right[other] is not None for one, other in found)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))
    assert len(found) == longest(left, right)


@given(sequence=st.lists(st.sampled_from("abc")), extra=st.lists(st.integers(0, 30)))
def test_what_is_put_in_is_all_that_is_left_over(sequence: list[str], extra: list[int]) -> None:
    longer = list(sequence)
    for at in extra:
        longer.insert(at % (len(longer) + 1), "new")
    found = common_subsequence(sequence, longer)
    assert [one for one, _ in found] == list(range(len(sequence)))
    assert [longer[at] for at in range(len(longer)) if at not in {other for _, other in found}] == [
        "new"
    ] * len(extra)


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        pytest.param("tmtmr", "tmtmtmr", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 6)], id="the first rounds"),
        pytest.param("Ptmtmr", "Qtmtmtmr", [(1, 1), (2, 2), (3, 3), (4, 4), (5, 7)], id="after a difference"),
        pytest.param("tt", "t", [(0, 0)], id="the first of two"),
        pytest.param("", "abc", [], id="nothing"),
    ],
)
def test_of_several_it_takes_the_early_one(left: str, right: str, pairs: list[tuple[int, int]]) -> None:
    assert common_subsequence(left, right) == pairs
    assert common_subsequence(right, left) == [(other, one) for one, other in pairs]


def test_twenty_thousand_items_of_few_kinds_that_differ_everywhere() -> None:
    left = [f"{at * at % 97}" for at in range(20_000)]
    right = [f"{at * at * at % 89}" for at in range(20_000)]
    start = time.process_time()
    found = common_subsequence(left, right)
    assert time.process_time() - start < 10  # 0.3 s here; a table in Python takes minutes
    assert len(found) > 2_000
