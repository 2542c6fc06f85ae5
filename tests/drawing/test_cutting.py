"""What is left out of long rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlens.drawing.cutting import middles_of

ROWS = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=60)


@pytest.mark.parametrize(
    ("sizes", "kept", "most", "left_out"),
    [
        ([1] * 5, [], 5, []),
        ([1] * 100, [], 10, [(8, 98)]),
        ([12] * 10, [], 30, [(2, 10)]),
        ([1] * 101, [0], 10, [(9, 99)]),
        ([1] * 101, [50], 20, [(8, 48), (59, 99)]),
        ([1] * 4, [1, 2], 1, [(0, 1), (3, 4)]),
        ([1] * 4, [0, 1, 2, 3], 1, []),
    ],
)
def test_the_middle_is_left_out_on_each_side_of_what_stays(
    sizes: list[int], kept: list[int], most: int, left_out: list[tuple[int, int]]
) -> None:
    found = middles_of(sizes, [at in kept for at in range(len(sizes))], most)
    assert [(each.start, each.stop) for each in found] == left_out


@given(ROWS, st.integers(1, 40))
def test_what_is_shown_is_few_enough_or_has_to_stay(rows: list[tuple[int, bool]], most: int) -> None:
    sizes, kept = [size for size, _ in rows], [is_kept for _, is_kept in rows]
    left_out = {at for each in middles_of(sizes, kept, most) for at in each}
    assert not any(kept[at] for at in left_out)
    may_go = {at: size for at, (size, is_kept) in enumerate(rows) if not is_kept}
    assert sum(may_go.values()) > most or not left_out
    assert sum(size for at, size in may_go.items() if at not in left_out) <= most
