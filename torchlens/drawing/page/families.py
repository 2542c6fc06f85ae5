"""Families of functions, by which a page colors ops."""

from __future__ import annotations

from typing import Final

_PRODUCTS: Final = """
linear bilinear matmul rmatmul imatmul mm bmm mv dot vdot inner outer ger addmm addmv addbmm baddbmm addr
einsum tensordot chain_matmul multi_dot kron cdist cross matrix_power spmm conv1d conv2d conv3d
conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc convolution lstm gru rnn_tanh rnn_relu lstm_cell
gru_cell rnn_tanh_cell rnn_relu_cell
"""
_ATTENTION: Final = "scaled_dot_product_attention multi_head_attention_forward flex_attention"
_NORMALIZATION: Final = """
batch_norm layer_norm group_norm instance_norm local_response_norm rms_norm normalize renorm weight_norm
native_batch_norm native_layer_norm native_group_norm
"""
_ACTIVATION: Final = """
relu relu6 leaky_relu prelu rrelu elu selu celu gelu silu mish tanh sigmoid logsigmoid log_sigmoid hardtanh
hardswish hardsigmoid hardshrink softshrink tanhshrink threshold softmax log_softmax gumbel_softmax softmin
softplus softsign glu dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout
feature_alpha_dropout
"""
_REDUCTION: Final = """
sum mean max min amax amin aminmax std var std_mean var_mean prod argmax argmin topk median nanmedian nansum
nanmean mode norm vector_norm matrix_norm logsumexp all any count_nonzero quantile nanquantile kthvalue
max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d lp_pool1d lp_pool2d
lp_pool3d fractional_max_pool2d fractional_max_pool3d max_pool1d_with_indices max_pool2d_with_indices
max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d interpolate upsample upsample_nearest
upsample_bilinear upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d
upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
"""
_ARITHMETIC: Final = """
add radd iadd sub rsub isub subtract mul rmul imul multiply div rdiv idiv truediv rtruediv itruediv divide
true_divide floordiv rfloordiv ifloordiv floor_divide mod rmod imod remainder fmod pow rpow ipow float_power
addcmul addcdiv sqrt rsqrt square exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 logit neg
negative positive pos abs absolute invert sign sgn reciprocal floor ceil round trunc frac clamp clip
clamp_min clamp_max maximum minimum fmax fmin sin cos tan asin acos atan arcsin arccos arctan atan2 arctan2
sinh cosh asinh acosh atanh erf erfc erfinv lerp where masked_fill hypot sinc eq ne lt le gt ge equal
isclose isnan isinf isfinite logical_and logical_or logical_xor logical_not bitwise_and bitwise_or
bitwise_xor bitwise_not and or xor less greater less_equal greater_equal not_equal isin conj angle copysign
xlogy heaviside ror rxor iand ior ixor cumsum cumprod cummax cummin logcumsumexp diff nan_to_num polygamma
digamma lgamma
"""
_SHAPING: Final = """
view view_as reshape reshape_as unflatten flatten ravel transpose swapaxes swapdims permute movedim moveaxis
t T mT H mH adjoint cat concat concatenate stack hstack vstack dstack column_stack split split_with_sizes
tensor_split hsplit vsplit dsplit chunk unsafe_chunk unsafe_split getitem setitem expand expand_as
broadcast_to broadcast_tensors squeeze unsqueeze slice select narrow unbind unfold fold gather take
take_along_dim scatter scatter_add scatter_reduce index_select index_add index_copy index_fill index_put
masked_select masked_scatter nonzero pad repeat repeat_interleave tile roll flip fliplr flipud rot90 sort
argsort contiguous to type type_as float double half bfloat16 int long short bool cpu cuda clone detach copy
embedding embedding_bag one_hot tril triu diag diagonal diag_embed pixel_shuffle pixel_unshuffle
channel_shuffle constant_pad_nd atleast_1d atleast_2d atleast_3d meshgrid as_strided real imag view_as_real
view_as_complex
"""
_TABLE: Final = {
    "matrix products, convolutions": _PRODUCTS,
    "attention": _ATTENTION,
    "normalization": _NORMALIZATION,
    "activation": _ACTIVATION,
    "pooling and reduction": _REDUCTION,
    "arithmetic": _ARITHMETIC,
    "shape and indexing": _SHAPING,
}
FAMILIES: Final = (*_TABLE, "other")
_FAMILY_OF: Final = {name: at for at, names in enumerate(_TABLE.values()) for name in names.split()}


def family_of(type_name: str) -> str:
    """The family of a layer type."""
    return FAMILIES[family_number(type_name)]


def family_number(type_name: str) -> int:
    """Its place in `FAMILIES`."""
    return _FAMILY_OF.get(type_name, len(_TABLE))
