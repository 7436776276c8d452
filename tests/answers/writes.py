"""What the heads write (10): right in many styles, and wrong."""

from einops import rearrange
import einops
import math
import torch
import torch.nn.functional as F

from answers import right, wrong


# sum_of_head_writes


@right("sum_of_head_writes")
def loop_slabs(heads, W_o):
    B, h, T, d = heads.shape
    return sum(heads[:, i] @ W_o[:, i * d : (i + 1) * d].T for i in range(h))


@right("sum_of_head_writes")
def einsum_slabs(heads, W_o):
    B, h, T, d = heads.shape
    return torch.einsum("bhtd,ohd->bto", heads, W_o.reshape(-1, h, d))


@right("sum_of_head_writes")
def concat_after_all(heads, W_o):
    return heads.transpose(1, 2).flatten(2) @ W_o.T


@right("sum_of_head_writes")
def einops_einsum(heads, W_o):
    return einops.einsum(
        heads, rearrange(W_o, "m (h d) -> m h d", h=heads.shape[1]), "b h t d, m h d -> b t m"
    )


@right("sum_of_head_writes")
def accumulated(heads, W_o):
    B, h, T, d = heads.shape
    out = heads.new_zeros(B, T, len(W_o))
    for i, head in enumerate(heads.unbind(1)):
        out += F.linear(head, W_o.narrow(1, i * d, d))
    return out


@right("sum_of_head_writes")
def summed_after_matmul(heads, W_o):
    slabs = W_o.T.unflatten(0, (heads.shape[1], heads.shape[3]))
    return einops.reduce(heads @ slabs, "b h t m -> b t m", "sum")


@right("sum_of_head_writes")
def a_loop(heads, W_o):
    B, h, T, d_k = heads.shape
    out = torch.zeros(B, T, W_o.shape[0], dtype=heads.dtype, device=heads.device)
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


@right("sum_of_head_writes")
def concatenated_after_all(heads, W_o):
    B, h, T, d_k = heads.shape
    return heads.transpose(1, 2).reshape(B, T, h * d_k) @ W_o.T


@right("sum_of_head_writes")
def one_einsum(heads, W_o):
    slabs = W_o.reshape(W_o.shape[0], heads.shape[1], heads.shape[-1])
    return torch.einsum("bhtk,mhk->btm", heads, slabs)


@right("sum_of_head_writes")
def stacked_sum(heads, W_o):
    slabs = torch.stack(W_o.chunk(heads.shape[1], dim=1))
    return (heads @ slabs.mT).sum(dim=1)


@right("sum_of_head_writes")
def linear_per_head(heads, W_o):
    parts = zip(heads.unbind(1), W_o.split(heads.shape[-1], dim=1), strict=True)
    return sum(F.linear(x, w) for x, w in parts)


@right("sum_of_head_writes")
def with_tensordot(heads, W_o):
    B, h, T, d = heads.shape
    return torch.tensordot(heads, W_o.view(-1, h, d), dims=([1, 3], [1, 2]))


@right("sum_of_head_writes")
def with_padding_instead_of_slabs(heads, W_o):
    B, h, T, d = heads.shape
    out = None
    for i in range(h):
        wide = F.pad(heads[:, i], (i * d, (h - 1 - i) * d))
        write = F.linear(wide, W_o)
        out = write if out is None else out + write
    return out


@right("sum_of_head_writes")
def writes_tensordot(heads, W_o):
    W = W_o.T.reshape(heads.shape[1], heads.shape[3], -1)
    return torch.tensordot(heads, W, dims=([1, 3], [0, 1]))


@right("sum_of_head_writes")
def writes_concat(heads, W_o):
    B, h, T, d = heads.shape
    return heads.transpose(1, 2).contiguous().view(B, T, h * d) @ W_o.t()


@right("sum_of_head_writes")
def writes_plus(heads, W_o):
    B, h, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0], dtype=heads.dtype, device=heads.device)
    for i in range(h):
        out = out + F.linear(heads[:, i], W_o[:, i * d : i * d + d])
    return out


@right("sum_of_head_writes")
def writes_einsum(heads, W_o):
    h, d = heads.shape[1], heads.shape[3]
    return torch.einsum("bhtd,mhd->btm", heads, W_o.unflatten(1, (h, d)))


@right("sum_of_head_writes")
def writes_matmul(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    slabs = W_o.T.reshape(h, d, W_o.shape[0])
    return torch.matmul(heads, slabs).sum(dim=1)


@right("sum_of_head_writes")
def writes_backwards(heads, W_o):
    d_k, h = heads.shape[-1], heads.shape[1]
    out = None
    for i in reversed(range(h)):
        write = F.linear(heads[:, i], W_o[:, d_k * i :][:, :d_k])
        out = write if out is None else write.add_(out)
    return out


@right("sum_of_head_writes")
def writes_tensordot_2(heads, W_o):
    B, h, T, d_k = heads.shape
    slabs = W_o.reshape(-1, h, d_k)
    return torch.tensordot(heads, slabs, dims=([1, 3], [1, 2]))


@right("sum_of_head_writes")
def writes_functional(heads, W_o):
    blocks = W_o.chunk(heads.shape[1], dim=1)
    return torch.stack([F.linear(z, w) for z, w in zip(heads.unbind(1), blocks)]).sum(0)


@right("sum_of_head_writes")
def writes_reduce(heads, W_o):
    blocks = einops.rearrange(W_o, "m (h d) -> h d m", h=heads.shape[1])
    return einops.reduce(heads @ blocks, "b h t m -> b t m", "sum")


@right("sum_of_head_writes")
def writes_broadcast(heads, W_o):
    W = rearrange(W_o, "m (h d) -> h d m", h=heads.shape[1])
    return sum((heads @ W).unbind(1))


@right("sum_of_head_writes")
def writes_plain(heads, W_o):
    return F.linear(heads.transpose(1, 2).flatten(2), W_o)


@right("sum_of_head_writes")
def writes_named(heads, W_o):
    slabs = rearrange(W_o, "m (h d) -> h m d", h=heads.shape[1])
    return einops.reduce(
        einops.einsum(heads, slabs, "b h t d, h m d -> b h t m"), "b h t m -> b t m", "sum"
    )


@wrong(
    "sum_of_head_writes",
    "the running sum is float32, whatever the input's dtype",
    slips=("fixed_dtype",),
)
def writes_float32(heads, W_o):
    B, h, T, d_k = heads.shape
    out = torch.zeros((B, T, W_o.shape[0]))
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T
    return out


@wrong(
    "sum_of_head_writes",
    "two mistakes: the slabs come in reverse order, and the sum is divided by the number of heads",
    slips=("averaged", "slabs_reversed"),
)
def o3_reverse_mean(heads, W_o):
    slabs = W_o.split(heads.shape[-1], dim=1)[::-1]
    return sum(h @ s.T for h, s in zip(heads.unbind(1), slabs)) / heads.shape[1]


@wrong(
    "sum_of_head_writes",
    "two mistakes: only the last head's write, and by a slab that starts at i instead of i * d_k",
    slips=("steps_of_one", "last_only"),
)
def o3_last_offset(heads, W_o):
    d_k = heads.shape[-1]
    for i in range(heads.size(1)):
        write = heads[:, i] @ W_o[:, i : i + d_k].T
    return write


@wrong("sum_of_head_writes", "no transpose", slips=("error:matrix_shapes",))
def no_transpose(heads, W_o):
    B, h, T, d = heads.shape
    return heads.transpose(1, 2).reshape(B, T, h * d) @ W_o[:, :1]


@wrong("sum_of_head_writes", "view of what is transposed", slips=("error:view_needs_contiguous",))
def view_of_what_is_transposed(heads, W_o):
    B, h, T, d = heads.shape
    return heads.transpose(1, 2).view(B, T, h * d) @ W_o.T


@wrong("sum_of_head_writes", "a buffer on the CPU", slips=("fixed_device",))
def a_buffer_on_the_cpu(heads, W_o):
    B, h, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0], dtype=heads.dtype)
    for i in range(h):
        out += heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out


@wrong("sum_of_head_writes", "mean of interleaved slabs", slips=("columns_dealt", "averaged"))
def mean_of_interleaved_slabs(heads, W_o):
    h = heads.shape[1]
    return sum(heads[:, i] @ W_o[:, i::h].T for i in range(h)) / h


@wrong("sum_of_head_writes", "adds W_o's mean", slips=("one_place",))
def adds_w_o_s_mean(heads, W_o):
    return heads.transpose(1, 2).flatten(2) @ W_o.T + W_o.mean()


@wrong(
    "sum_of_head_writes", "of all writes the largest wins, number by number", slips=("one_place",)
)
def writes_max(heads, W_o):
    W = W_o.unflatten(1, (heads.shape[1], -1))
    return torch.einsum("bhtk,mhk->bhtm", heads, W).amax(dim=1)


@wrong("sum_of_head_writes", "divides by the root of the number of heads", slips=("one_place",))
def writes_scaled(heads, W_o):
    h, d = heads.shape[1], heads.shape[-1]
    out = torch.einsum("bhtd,mhd->btm", heads, W_o.view(-1, h, d))
    return out / math.sqrt(h)


@wrong("sum_of_head_writes", "sums over the batch instead of the heads", slips=("one_place",))
def writes_sum_batch(heads, W_o):
    d_k = heads.shape[-1]
    parts = [heads[:, i] @ W_o[:, i * d_k : (i + 1) * d_k].T for i in range(heads.shape[1])]
    return torch.stack(parts).sum(axis=1)


@wrong(
    "sum_of_head_writes",
    "enumerate over the batch and not over the heads",
    slips=("error:index_out_of_range",),
)
def writes_over_batch(heads, W_o):
    slabs = W_o.split(heads.shape[-1], dim=1)
    return sum(heads[i] @ slab.T for i, slab in enumerate(slabs))


@wrong(
    "sum_of_head_writes",
    "a mean over heads, and a view without the exchange of the axes",
    slips=("averaged", "torn_apart"),
)
def writes_mean_reshaped(heads, W_o):
    B, n, T, d = heads.shape
    return heads.reshape(B, T, n * d) @ W_o.T / n


@wrong(
    "sum_of_head_writes",
    "first head left out, and the mean of the rest",
    slips=("one_place", "averaged"),
)
def writes_first_and_mean(heads, W_o):
    B, h, T, d = heads.shape
    out = 0
    for i in range(1, h):
        out = out + heads[:, i] @ W_o[:, i * d : (i + 1) * d].T
    return out / h


@wrong(
    "sum_of_head_writes",
    "takes rows of W_o for the heads, not columns",
    slips=("error:broadcast_shapes",),
)
def writes_rows(heads, W_o):
    d_k = heads.shape[-1]
    out = 0
    for i in range(heads.shape[1]):
        out = out + heads[:, i] @ W_o[i * d_k : (i + 1) * d_k, :d_k].T
    return out


@wrong(
    "sum_of_head_writes",
    "two slips: every head's slab is 0, and the mean",
    slips=("first_slab_for_all", "averaged"),
)
def writes_first_mean(heads, W_o):
    return heads.mean(dim=1) @ W_o[:, : heads.shape[-1]].T


@wrong("sum_of_head_writes", "each head writes only into its own part of d_model", slips=("stays",))
def writes_own_part(heads, W_o):
    B, h, T, d_k = heads.shape
    out = heads.new_zeros(B, T, W_o.shape[0])
    rows = torch.arange(W_o.shape[0], device=heads.device).chunk(h)
    for i, r in enumerate(rows):
        out[..., r] = heads[:, i] @ W_o[r, i * d_k : (i + 1) * d_k].T
    return out


@wrong(
    "sum_of_head_writes",
    "sums up in a float32 buffer on the CPU, whatever dtype and device",
    slips=("fixed_dtype", "fixed_device"),
)
def writes_zeros_cpu(heads, W_o):
    B, n, T, d = heads.shape
    out = torch.zeros(B, T, W_o.shape[0])
    for i in range(n):
        out = out + F.linear(heads[:, i], W_o[:, i * d : (i + 1) * d])
    return out
