"""Which rule counts a function, by its name in torch's operator library.

Torch's own metadata decides where it can: an overload tagged pointwise or reduction, a schema that returns
an alias of its argument, one that takes no tensor. The tables hold what these do not tell.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, TypeAlias

import torch

from torchlens.flops.direct import FORMULAS, DirectRule
from torchlens.flops.operators import is_composite, is_view, overloads, takes_tensor

Rule: TypeAlias = DirectRule | Literal["run", "operator", "custom", "none"]
"""Beside the direct rules, `run`: made of operators, so run on meta tensors; `operator`, `custom`: a single
operator, counted if torch's counter has a formula for it; `none`: no operator at all.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FREE: Final = _names(
    # conversions and views that are methods only, or whose schema does not show the alias
    "type float double half bfloat16 bool byte char short int long cfloat cdouble chalf type_as to_mkldnn "
    "cpu cuda xpu ipu mtia numpy tolist item _to_copy clone _unsafe_view requires_grad_ share_memory_ "
    "set_ resize resize_ resize_as resize_as_ detach_ broadcast_tensors meshgrid atleast_1d atleast_2d "
    "atleast_3d unsafe_chunk unsafe_split unsafe_split_with_sizes pin_memory _pin_memory "
    # moved, joined, repeated
    "cat concat concatenate stack hstack vstack dstack column_stack row_stack block_diag repeat tile "
    "repeat_interleave flip fliplr flipud roll rot90 pad constant_pad_nd _pad_circular _pad_enum "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col diag "
    "diag_embed diagflat max_unpool1d max_unpool2d max_unpool3d upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    # read and written by index
    "index _unsafe_index index_select gather take take_along_dim masked_select embedding one_hot "
    "index_copy index_fill masked_scatter fill_diagonal copy fill zero slice_scatter select_scatter "
    "diagonal_scatter as_strided_scatter "
    # made from nothing, or overwritten with random numbers
    "tensor as_tensor asarray from_file frombuffer linspace logspace normal_ uniform_ exponential_ "
    "geometric_ cauchy_ log_normal_ random_ bernoulli_"
)
_OUTPUT: Final = _names(
    "softmax log_softmax softmin _softmax _log_softmax _safe_softmax special_softmax special_log_softmax "
    "layer_norm native_layer_norm group_norm native_group_norm instance_norm rms_norm _fused_rms_norm "
    "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update "
    "_batch_norm_impl_index cudnn_batch_norm miopen_batch_norm batch_norm_elemt native_dropout "
    "_fused_dropout glu prelu _prelu_kernel log_sigmoid log_sigmoid_forward rrelu_with_noise hardswish "
    "softsign tanhshrink special_ndtr floor_divide outer ger kron renorm polar complex isclose tril triu "
    "bernoulli normal fake_quantize_per_tensor_affine fake_quantize_per_channel_affine quantize_per_tensor "
    "quantize_per_channel dequantize"
)
_INPUT: Final = _names(
    "sum nansum mean nanmean prod all any amax amin aminmax argmax argmin count_nonzero var var_mean std "
    "std_mean norm native_norm frobenius_norm linalg_vector_norm logsumexp special_logsumexp dist "
    "sum_to_size norm_except_dim cumsum cumprod logcumsumexp cummax cummin _cummax_helper _cummin_helper "
    "bincount histc col2im l1_loss smooth_l1_loss huber_loss mse_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits kl_div nll_loss nll_loss_nd nll_loss2d nll_loss_forward "
    "nll_loss2d_forward cross_entropy cross_entropy_loss soft_margin_loss multi_margin_loss "
    "poisson_nll_loss hinge_embedding_loss margin_ranking_loss"
)
_LARGER: Final = frozenset({"max", "min"})  # of one tensor a reduction, of two elementwise
_OPERATORS: Final = _names(
    "add sub mul div truediv floordiv mod pow eq ne lt le gt ge and or xor invert neg abs lshift rshift"
)
_WHOLE: Final = _names(  # made of themselves, in another overload
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa "
    "_upsample_bicubic2d_aa"
)
_FREE_LISTS: Final = frozenset({"copy", "zero", "clone"})
_REDUCTION: Final = torch.Tag.__members__.get("reduction")  # a tag that older releases lack


@lru_cache(maxsize=4096)
def rule_for(namespace: str, name: str) -> Rule:
    """The rule for `namespace::name`; namespace `torch` is that of functions that torch writes in Python."""
    if namespace == "attribute":
        return "free"
    if namespace not in ("aten", "torch"):
        return _rule_from_metadata(namespace, name) or "custom"
    if name.startswith("__") and name.endswith("__"):
        return _rule_of_operator(name[2:-2])
    if name.startswith("_foreach_"):
        return "free" if name.removeprefix("_foreach_").rstrip("_") in _FREE_LISTS else "list"
    for form in (name, name.rstrip("_")):  # in-place forms carry fewer tags
        rule = _rule_from_tables(namespace, form) or _rule_from_metadata("aten", form)
        if rule is not None:
            return rule
    operators = overloads("aten", name)
    if namespace == "torch" or any(map(is_composite, operators)):
        return "operator" if name in _WHOLE else "run"
    return "operator" if operators else "none"


def _rule_from_tables(namespace: str, name: str) -> DirectRule | None:
    if name in _FREE or name.startswith("new_") or name.endswith("_like"):
        return "free"
    if name in FORMULAS and (namespace, name) != (
        "torch",
        "embedding_bag",
    ):  # its arguments stand in another order
        return "formula"
    if name in _OUTPUT:
        return "output"
    if name in _INPUT:
        return "input"
    return "larger" if name in _LARGER else None


def _rule_from_metadata(namespace: str, name: str) -> DirectRule | None:
    operators = overloads(namespace, name)
    tags = {tag for operator in operators for tag in operator.tags}
    if torch.Tag.inplace_view in tags or torch.Tag.view_copy in tags or any(map(is_view, operators)):
        return "free"
    if torch.Tag.pointwise in tags:
        return "output"
    if _REDUCTION in tags:
        return "input"
    return "free" if operators and not any(map(takes_tensor, operators)) else None


def _rule_of_operator(operator: str) -> Rule:
    """The rule of `__operator__`, in its plain, reflected or in-place form."""
    forms = {operator, operator[1:]} if operator[0] in "ri" else {operator}
    if forms & _OPERATORS:
        return "output"
    if "matmul" in forms:
        return "run"
    return "free" if operator in ("getitem", "setitem", "pos") else "none"
