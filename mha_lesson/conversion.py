"""The taught class from PyTorch's, and back: what stands behind `from_torch` and `to_torch`."""

from operator import attrgetter
from typing import Any

from torch import Tensor, nn

from mha_lesson.refusals import describe, say
from mha_lesson.refusals.of_attention import require_copied

# PyTorch's name of a parameter → ours.
_OUR_NAMES = {
    "in_proj_weight": "w_qkv.weight",
    "in_proj_bias": "w_qkv.bias",
    "out_proj.weight": "w_o.weight",
    "out_proj.bias": "w_o.bias",
}


def from_torch(cls: type, other: Any) -> Any:
    """A `cls` with the weights of `other`; see `MultiHeadAttention.from_torch`."""
    if not isinstance(other, nn.MultiheadAttention):
        raise TypeError(f"other must be an nn.MultiheadAttention; got {describe(other)}.")
    if other.in_proj_weight is None:
        raise ValueError(
            f"other must have one width for query, key and value; got embed_dim = "
            f"{other.embed_dim}, kdim = {other.kdim}, vdim = {other.vdim}."
        )
    if other.bias_k is not None or other.add_zero_attn:
        raise ValueError("other must be without add_bias_kv and add_zero_attn; it has one.")
    extra = other.state_dict().keys() - _OUR_NAMES.keys()
    if extra and type(other).forward is not nn.MultiheadAttention.forward:
        raise ValueError(
            f"other must have no weights but those of nn.MultiheadAttention; got one with "
            f"{say(sorted(extra))}."
        )
    has_bias = other.in_proj_bias is not None
    mha = cls(other.embed_dim, other.num_heads, bias=has_bias, dropout=other.dropout)
    mha.to(other.in_proj_weight).train(other.training)
    mha.load_state_dict(_renamed(other, {ours: name for name, ours in _OUR_NAMES.items()}))
    return mha


def to_torch(mha: Any) -> nn.MultiheadAttention:
    """A copy of a `MultiHeadAttention`; see its `to_torch`."""
    require_copied(w_qkv=mha.w_qkv, w_o=mha.w_o)
    if mha.n_heads * mha.d_k != mha.d_model:
        raise ValueError(
            f"nn.MultiheadAttention needs n_heads * d_k = d_model; this module has "
            f"{mha.n_heads} * {mha.d_k} and d_model = {mha.d_model}."
        )
    has_bias = mha.w_o.bias is not None
    other = nn.MultiheadAttention(
        mha.d_model, mha.n_heads, dropout=mha.dropout, bias=has_bias, batch_first=True
    )
    other.to(mha.w_o.weight).train(mha.training)
    other.load_state_dict(_renamed(mha, _OUR_NAMES))
    return other


def _renamed(module: nn.Module, names: dict[str, str]) -> dict[str, Tensor]:
    """The weights in use by `module` under new names, `names` being new → own; biases if any."""
    tensors = {new: attrgetter(own)(module) for new, own in names.items()}
    return {new: x for new, x in tensors.items() if x is not None}
