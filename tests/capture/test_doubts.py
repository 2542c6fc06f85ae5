"""Reasons gathered by name, in the order in which they came up."""

from __future__ import annotations

import typing

from torchlens._capture.doubts import _TEXTS, Doubts
from torchlens._records import Reason, ReasonName


def test_every_name_has_a_sentence() -> None:
    assert set(typing.get_args(ReasonName)) == set(_TEXTS)
    assert all(text[0].isupper() and text.endswith(".") for text in _TEXTS.values())


def test_reasons_come_in_the_order_of_the_rows() -> None:
    doubts = Doubts()
    doubts.add("unknown_origin", 7, row=7)
    doubts.add("owner_thread_tripwire_changed", 3)
    doubts.add("unknown_origin", 9, row=9)
    doubts.add("unexplained_write", 5, count=4)
    found = [(reason.name, reason.count, list(reason.rows)) for reason in doubts.reasons()]
    assert found == [
        ("owner_thread_tripwire_changed", 1, []),
        ("unexplained_write", 4, []),
        ("unknown_origin", 2, [7, 9]),
    ]


def test_other_words() -> None:
    doubts = Doubts()
    doubts.add("fused_prediction", 0, text="The kernel was expected and did not run.")
    assert doubts.reasons() == [Reason("fused_prediction", "The kernel was expected and did not run.", 1, [])]
