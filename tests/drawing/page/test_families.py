"""Which family of functions a page counts an op to."""

from __future__ import annotations

import pytest

from torchlens.drawing.page import families
from torchlens.drawing.page.families import FAMILIES, family_of


@pytest.mark.parametrize(
    ("names", "family"),
    [
        ("linear matmul bmm einsum conv2d conv_transpose1d lstm", "matrix products, convolutions"),
        ("scaled_dot_product_attention", "attention"),
        ("batch_norm layer_norm rms_norm", "normalization"),
        ("relu gelu leaky_relu softmax log_softmax sigmoid", "activation"),
        ("max mean sum max_pool2d upsample_bilinear2d interpolate norm logsumexp", "pooling and reduction"),
        ("add iadd rsub maximum minimum exp log where masked_fill cumsum", "arithmetic"),
        ("expand expand_as cat getitem view transpose embedding to float split", "shape and indexing"),
        ("input some_function addition", "other"),
    ],
)
def test_family_of_a_function(names: str, family: str) -> None:
    assert {name: family_of(name) for name in names.split()} == dict.fromkeys(names.split(), family)


def test_no_function_is_of_two_families() -> None:
    names = [name for text in families._TABLE.values() for name in text.split()]
    assert len(names) == len(set(names))
    assert len(FAMILIES) == 8
