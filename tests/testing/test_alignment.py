"""Which layer is which, when layers were put in, taken out, replaced and moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchlens.testing.alignment import Pair, align
from torchlens.testing.description import LayerLine

KINDS = st.lists(
    st.tuples(st.sampled_from("relu tanh add".split()), st.sampled_from(["", "a", "b"])), max_size=12
)


def lines(kinds: list[tuple[str, str]]) -> list[LayerLine]:
    counts: dict[str, int] = {}
    found = []
    for kind, module in kinds:
        counts[kind] = counts.get(kind, 0) + 1
        found.append(LayerLine(f"{kind}_{counts[kind]}", 1, "2 float32", module, {}, {}))
    return found


@given(KINDS, KINDS)
def test_each_layer_stands_in_one_pair_in_order(
    old: list[tuple[str, str]], new: list[tuple[str, str]]
) -> None:
    pairs = align(lines(old), lines(new))
    assert [pair.old for pair in pairs if pair.old is not None] == list(range(len(old)))
    assert [pair.new for pair in pairs if pair.new is not None] == list(range(len(new)))
    assert Pair(None, None) not in pairs


@given(KINDS)
def test_like_lists_are_paired_one_by_one(kinds: list[tuple[str, str]]) -> None:
    assert align(lines(kinds), lines(kinds)) == [Pair(at, at) for at in range(len(kinds))]


@given(KINDS, st.data())
def test_a_type_that_is_new_is_found(kinds: list[tuple[str, str]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(kinds)))
    longer = [*kinds[:at], ("gelu", ""), *kinds[at:]]
    assert Pair(None, at) in align(lines(kinds), lines(longer))
    assert Pair(at, None) in align(lines(longer), lines(kinds))


def test_long_lists_take_no_quadratic_time() -> None:
    """The ends are alike; between them nothing is, and every type occurs often."""
    ends = [("relu", "a")] * 20_000
    one, other = ([*ends, *[(kind, "")] * 3000, *ends] for kind in ("tanh", "add"))
    pairs = align(lines(one), lines(other))
    assert pairs[:20_000] == [Pair(at, at) for at in range(20_000)]
    assert pairs[20_000] == Pair(20_000, 20_000), "as many of another type stand in place of these"
