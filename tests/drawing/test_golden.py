"""Pictures of tiny models: their DOT text is as it was, and shows what the graph has, each thing once."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import networkx as nx
import pytest

from tests.drawing.golden_pictures import FOLDER, GOLDEN, Golden, difference, masked
from tests.drawing.hidden_ops import edges_past
from tests.drawing.reading_dot import Drawn, read_dot, words

AGAIN = "python -m tests.drawing.golden_pictures writes it anew"


@pytest.mark.parametrize("name", GOLDEN)
def test_the_text_is_as_it_was_and_shows_the_graph(name: str) -> None:
    golden = GOLDEN[name]
    trace, picture = golden.draw()
    assert masked(picture.dot) == (FOLDER / f"{name}.dot").read_text(encoding="utf-8"), AGAIN
    assert_shows(golden, trace, read_dot(picture.dot))


def assert_shows(golden: Golden, trace: Any, drawn: Drawn) -> None:
    """Every op in one node, every edge in one arrow or within a node, and no arrow besides."""
    hidden = set(trace.select(golden.options["hide"])) if "hide" in golden.options else set()
    shown = [op for op in trace.ops if op not in hidden and not (op.kind == "buffer" and not op.parents)]
    left_out = {op.label for op in trace.ops} - {op.label for op in shown}
    edges = edges_past(trace.graph, left_out)
    node_of = {op.label: node for op in shown if (node := node_showing(golden, trace, op, drawn))}
    if "focus" in golden.options:
        inside = {op.label for op in shown if is_within(op.module.address, golden.options["focus"])}
        edges = {edge for edge in edges if inside & set(edge)}
        assert set(node_of) >= inside
    else:
        assert set(node_of) == {op.label for op in shown}
    assert set(node_of.values()) == set(drawn.nodes)
    arrows = Counter((arrow.source, arrow.target) for arrow in drawn.arrows)
    assert set(arrows.values()) <= {1}
    expected = {
        (node_of[a], node_of[b])
        for a, b in edges
        if node_of[a] != node_of[b] or not in_one_call(golden, trace.ops[a], trace.ops[b])
    }
    assert set(arrows) == expected
    calls = [(node, trace.ops[label].call_index) for label, node in node_of.items()]
    first = {name: min(call for node, call in calls if node == name) for name in drawn.nodes}
    for arrow in drawn.arrows:
        assert arrow.returns is (first[arrow.target] <= first[arrow.source])


def node_showing(golden: Golden, trace: Any, op: Any, drawn: Drawn) -> str | None:
    """The name of the only node that tells of an op, by its label, that of its layer or its module."""
    for other, drawn_one in golden.like.items():
        if is_within(op.module.address, other):
            address = op.module.address.replace(other, drawn_one, 1)
            place = op.module.ops.index(op)
            op = trace.modules[address].ops[place]
    closed = next((each for each in golden.closed if is_within(op.module.address, each)), None)
    names = {closed} if closed else {op.label, op.layer.layer_label}
    found = [name for name, lines in drawn.nodes.items() if names & words(lines)]
    assert len(found) == 1 or (not found and "focus" in golden.options), (op, found)
    return found[0] if found else None


def is_within(address: str, around: str) -> bool:
    return address == around or address.startswith(f"{around}.")


def in_one_call(golden: Golden, a: Any, b: Any) -> bool:
    """Whether two ops ran in one call of a module that is closed."""

    def call_of(op: Any) -> Any:
        call = op.module_call
        while call is not None and call.module.address not in {*golden.closed, *golden.like}:
            call = call.parent
        return call

    return bool(golden.closed) and call_of(a) is not None and call_of(a) == call_of(b)


def test_the_text_of_two_runs_is_as_it_was_and_shows_both() -> None:
    first, second, picture = difference()
    assert masked(picture.dot) == (FOLDER / "difference.dot").read_text(encoding="utf-8"), AGAIN
    drawn = read_dot(picture.dot)
    assert sorted(lines[0] for lines in drawn.nodes.values()) == [
        "add_1",
        "input_1",
        "output_1",
        "relu_1",
        "tanh_1",
        "truediv_1",
    ]
    added = {name for name, lines in drawn.nodes.items() if "+ added" in lines}
    assert {drawn.nodes[name][0] for name in added} == {"add_1", "tanh_1"}
    by_title = {drawn.nodes[name][0]: name for name in drawn.nodes}
    edges = {
        (by_title[a.split(":")[0]], by_title[b.split(":")[0]])
        for trace in (first, second)
        for a, b in trace.graph.edges
    }
    assert Counter((arrow.source, arrow.target) for arrow in drawn.arrows) == Counter(edges)


def test_every_file_has_its_picture() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {*GOLDEN, "difference"}


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_no_folder_of_this_machine_is_told(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert os.sep + "home" not in text and str(FOLDER.parent.parent.parent) not in text
    assert all("/" not in word for word in text.split() if ".py:" in word)


def test_the_oracle_of_hidden_ops_leads_past_them() -> None:
    graph = nx.DiGraph([("a", "h"), ("h", "g"), ("g", "b"), ("h", "c"), ("a", "c")])
    assert edges_past(graph, {"h", "g"}) == {("a", "b"), ("a", "c")}
