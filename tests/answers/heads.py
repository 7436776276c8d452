"""Splitting into heads, and merging them (5 and 6): right in many styles, and wrong."""

from einops import rearrange
import einops
import functools
import torch
import torch.nn.functional as F

from answers import right, wrong


# split_heads


@right("split_heads")
def view_transpose(x, n_heads):
    B, T, D = x.size()
    return x.reshape(B, T, n_heads, D // n_heads).transpose(1, 2)


@right("split_heads")
def stack_chunks(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


@right("split_heads")
def unflatten(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).permute(0, 2, 1, 3).contiguous()


@right("split_heads")
def einops_split(x, n_heads):
    from einops import rearrange

    return rearrange(x, "b t (h d) -> b h t d", h=n_heads)


@right("split_heads")
def loop_fill(x, n_heads):
    B, T, D = x.shape
    d = D // n_heads
    out = x.new_empty(B, n_heads, T, d)
    for i in range(n_heads):
        out[:, i] = x[:, :, i * d : (i + 1) * d]
    return out


@right("split_heads")
def features_first(x, n_heads):
    B, T, D = x.shape
    return x.mT.reshape(B, n_heads, D // n_heads, T).mT


@right("split_heads")
def gathered(x, n_heads):
    index = torch.arange(x.shape[-1], device=x.device).view(n_heads, -1)
    return x[:, :, index].permute(0, 2, 1, 3)


@right("split_heads")
def tensor_split_stack(x, n_heads):
    return torch.stack(x.tensor_split(n_heads, dim=2), dim=-3)


@right("split_heads")
def unfolded(x, n_heads):
    d = x.size(-1) // n_heads
    return x.unfold(-1, d, d).swapdims(1, 2)


@right("split_heads")
def einops_repeat_free(x, n_heads):
    return rearrange(x, "b t (h d) -> b h t d", h=n_heads)


@right("split_heads")
def assigned(x, n_heads):
    B, T, D = x.shape
    out = x.new_empty(B, n_heads, T, D // n_heads)
    for c in range(D):
        out[:, c // out.shape[-1], :, c % out.shape[-1]] = x[:, :, c]
    return out


@right("split_heads")
def view_transpose_2(x, n_heads):
    B, T, D = x.shape
    return x.view(B, T, n_heads, D // n_heads).transpose(1, 2)


@right("split_heads")
def by_slices(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[:, :, i * d_k : (i + 1) * d_k] for i in range(n_heads)], dim=1)


@right("split_heads")
def by_einops(x, n_heads):
    return einops.rearrange(x, "b t (h d) -> b h t d", h=n_heads)


@right("split_heads")
def transposed_first(x, n_heads):
    B, T, D = x.shape
    return x.mT.reshape(B, n_heads, D // n_heads, T).mT


@right("split_heads")
def entry_for_entry(x, n_heads):
    B, T, D = x.shape
    d_k = D // n_heads
    out = torch.empty(B, n_heads, T, d_k, dtype=x.dtype, device=x.device)
    for h in range(n_heads):
        for j in range(d_k):
            out[:, h, :, j] = x[:, :, h * d_k + j]
    return out


@right("split_heads")
def asserts_divisibility(x, n_heads):
    assert x.size(-1) % n_heads == 0, "d_model must be divisible by n_heads"
    return x.unflatten(-1, (n_heads, -1)).movedim(2, 1).contiguous()


@right("split_heads")
def with_as_strided(x, h):
    x = x.contiguous()
    B, T, D = x.shape
    return x.as_strided((B, h, T, D // h), (T * D, D // h, D, 1))


@right("split_heads")
def with_vmap_over_the_batch(x, h):
    return torch.vmap(lambda one: one.view(one.shape[0], h, -1).transpose(0, 1))(x)


@right("split_heads")
def with_hsplit(x, h):
    heads = torch.tensor_split(x, h, dim=-1)
    return torch.cat([head.unsqueeze(1) for head in heads], dim=1)


@right("split_heads")
def with_gather(x, h):
    B, T, D = x.shape
    index = torch.arange(D, device=x.device).view(h, D // h)
    return x[:, :, index].permute(0, 2, 1, 3)


@right("split_heads")
def with_swapaxes(x, n_heads):
    return x.unflatten(2, [n_heads, x.size(2) // n_heads]).swapaxes(1, 2).clone()


@right("split_heads")
def split_by_gather(x, n_heads):
    columns = torch.arange(x.shape[-1], device=x.device).view(n_heads, -1)
    return x[..., columns].movedim(-2, 1)


@right("split_heads")
def split_stack(x, n_heads):
    d_k = x.shape[2] // n_heads
    return torch.stack([x[:, :, i * d_k : (i + 1) * d_k] for i in range(n_heads)], dim=1)


@right("split_heads")
def split_unfold(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return x.unfold(-1, d_k, d_k).movedim(2, 1)


@right("split_heads")
def split_cat_tokens(x, n_heads):
    B, T, C = x.shape
    return torch.cat(x.chunk(n_heads, dim=-1), dim=1).view(B, n_heads, T, C // n_heads)


@right("split_heads")
def split_by_index(x, n_heads):
    columns = torch.arange(x.shape[-1], device=x.device).reshape(n_heads, 1, -1)
    rows = torch.arange(x.shape[1], device=x.device).reshape(1, -1, 1)
    return x[:, rows, columns]


@right("split_heads")
def split_unfold_2(x, n_heads):
    d_k = x.size(-1) // n_heads
    return x.unfold(-1, d_k, d_k).swapdims(1, 2)


@right("split_heads")
def split_fancy_slices(x, n_heads):
    d_k = x.shape[-1] // n_heads
    return torch.stack([x[..., i * d_k : (i + 1) * d_k] for i in range(n_heads)], 1)


@right("split_heads")
def split_by_index_2(x, n_heads):
    d_k = x.shape[-1] // n_heads
    idx = torch.arange(n_heads * d_k, device=x.device).view(n_heads, 1, d_k)
    rows = torch.arange(x.shape[1], device=x.device).view(1, -1, 1)
    return x[:, rows, idx]


@right("split_heads")
def split_stack_of_slices(x, n_heads):
    width = x.shape[2] // n_heads
    return torch.stack([x[:, :, i * width : (i + 1) * width] for i in range(n_heads)], dim=1)


@right("split_heads")
def split_named(x, n_heads):
    return rearrange(x, "batch token (head dim) -> batch head token dim", head=n_heads)


@wrong(
    "split_heads", "view fails on a non-contiguous input", slips=("error:view_needs_contiguous",)
)
def needs_contiguous(x, n_heads):
    B, T, D = x.shape
    return x.view(B * T, n_heads, D // n_heads).view(B, T, n_heads, -1).transpose(1, 2)


@wrong("split_heads", "throws the exchange away", slips=("thrown_away",))
def exchanged_for_nobody(x, n_heads):
    heads = x.unflatten(-1, (n_heads, -1))
    heads.transpose(1, 2)
    return heads


@wrong("split_heads", "float division", slips=("error:integer_needed",))
def float_division(x, h):
    B, T, D = x.shape
    return x.view(B, T, h, D / h).transpose(1, 2)


@wrong("split_heads", "splits and adds a new axis in front of everything", slips=("one_place",))
def splits_and_adds_a_new(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)[None]


@wrong("split_heads", "tokens reversed", slips=("one_place",))
def tokens_reversed(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2).flip(2)


@wrong(
    "split_heads",
    "squeeze takes away every axis of size 1: the batch of one, a single head, a single token",
    slips=("one_place",),
)
def squeezed(x, n_heads):
    B, T, D = x.shape
    return x.unflatten(-1, (n_heads, D // n_heads)).transpose(1, 2).squeeze()


@wrong(
    "split_heads",
    "two mistakes: views straight to (B, n_heads, T, d_k), and then exchanges heads and tokens: (B, T, n_heads, d_k)",
    slips=("one_place",),
)
def h3_view_then_permute(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, n_heads, T, d_model // n_heads).transpose(1, 2)


@wrong(
    "split_heads",
    "as_strided with the strides of a contiguous tensor: wrong for non-contiguous input",
    slips=("stays",),
)
def strided(x, n_heads):
    B, T, D = x.shape
    d = D // n_heads
    return torch.as_strided(x, (B, n_heads, T, d), (T * D, d, D, 1))


@wrong("split_heads", "d_k is fixed at 64", slips=("error:shape_for_view",))
def fixed_64(x, n_heads):
    return x.reshape(x.size(0), -1, n_heads, 64).transpose(1, 2)


@wrong(
    "split_heads",
    "two mistakes: cut as (d_k, n_heads), and not permuted but viewed into shape",
    slips=("stays",),
)
def h3_cut_and_view(x, n_heads):
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    return x.reshape(B, T, d_k, n_heads).transpose(2, 3).reshape(B, n_heads, T, d_k)


@wrong(
    "split_heads",
    "two mistakes: the heads are in reverse order and the axes not exchanged, (B, T, n_heads, d_k)",
    slips=("heads_reversed", "order_B_T_h_d_k"),
)
def h3_reverse(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).flip(2)


@wrong(
    "split_heads",
    "only the first sequence of the batch is split; the others repeat it",
    slips=("stays",),
)
def h3_first_only(x, n_heads):
    one = x[0].reshape(x.shape[1], n_heads, -1).transpose(0, 1)
    return one.expand(x.shape[0], *one.shape)


@wrong("split_heads", "forgets B in the unpacking", slips=("error:unpacking",))
def forgets_b_in_the_unpacking(x, h):
    T, D = x.shape
    return x.view(T, h, D // h).transpose(0, 1)


@wrong(
    "split_heads",
    "view only, and refuses what is not contiguous",
    slips=("view_only",),
)
def e2(x, n_heads):
    B, T, D = x.size()
    return x.view(B, n_heads, T, D // n_heads)


@wrong("split_heads", "interleaved, and not permuted", slips=("interleaved", "order_B_T_h_d_k"))
def interleaved_and_not_permuted(x, h):
    B, T, D = x.shape
    return x.reshape(B, T, D // h, h).transpose(2, 3)


@wrong("split_heads", "wrong attribute of a tensor", slips=("error:no_such_attribute",))
def wrong_attribute_of_a_tensor(x, h):
    return x.split_into(h).transpose(1, 2)


@wrong("split_heads", "moves to a GPU", slips=("fixed_device",))
def moves_to_a_gpu(x, h):
    return x.cuda().unflatten(-1, (h, -1)).transpose(1, 2)


h, d_k = 12, 32


h, d_k = 12, 32


@wrong(
    "split_heads",
    "splits into the notebook's twelve heads, whatever n_heads is",
    slips=("from_the_notebook", "error:shape_for_view"),
)
def split_twelve(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, h, d_model // h).permute(0, 2, 1, 3)


@wrong(
    "split_heads",
    "numpy's transpose with four axes, which torch does not know",
    slips=("error:numpy_transpose",),
)
def split_numpy_transpose(x, n_heads):
    B, T, d = x.shape
    return x.reshape(B, T, n_heads, d // n_heads).transpose(0, 2, 1, 3)


@wrong(
    "split_heads",
    "views as (d_k, n_heads); also leaves d_k before T",
    slips=("interleaved", "order_B_h_d_k_T"),
)
def split_strided_swapped(x, n_heads):
    B, T, d_model = x.shape
    d_k = int(d_model / n_heads)
    x = x.view(B, T, d_k, n_heads)
    return x.permute(0, 3, 2, 1)


# merge_heads


@right("merge_heads")
def transpose_reshape(x):
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)


@right("merge_heads")
def cat_heads(x):
    return torch.cat(list(x.unbind(1)), dim=-1)


@right("merge_heads")
def contiguous_view(x):
    b, h, t, d = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(b, t, -1)


@right("merge_heads")
def flatten_last(x):
    return x.transpose(1, 2).flatten(2)


@right("merge_heads")
def cat_unbound(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


@right("merge_heads")
def flatten_moved(x):
    return x.movedim(1, 2).flatten(start_dim=2)


@right("merge_heads")
def hstack_all(x):
    return torch.stack([torch.hstack(list(one)) for one in x])


@right("merge_heads")
def by_fold(x):
    return functools.reduce(lambda a, b: torch.concat((a, b), -1), x.swapaxes(0, 1))


@right("merge_heads")
def through_features(x):
    B, h, T, d = x.shape
    return x.transpose(2, 3).reshape(B, h * d, T).mT


@right("merge_heads")
def permute_and_reshape(x):
    B, h, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, h * d_k)


@right("merge_heads")
def contiguous_view_2(x):
    b, h, t, d = x.size()
    return x.transpose(1, 2).contiguous().view(b, t, -1)


@right("merge_heads")
def concatenated(x):
    return torch.cat([x[:, i] for i in range(x.shape[1])], dim=-1)


@right("merge_heads")
def merged_by_einops(x):
    return einops.rearrange(x, "b h t d -> b t (h d)")


@right("merge_heads")
def concatenated_below(x):
    b, h, t, d = x.shape
    return x.mT.reshape(b, h * d, t).transpose(1, 2)


@right("merge_heads")
def with_movedim(x):
    return x.movedim(1, 2).flatten(start_dim=2)


@right("merge_heads")
def with_hstack(x):
    return torch.stack([torch.hstack(list(sequence)) for sequence in x])


@right("merge_heads")
def with_einops_reduce(x):
    return einops.pack([head for head in x.unbind(1)], "b t *")[0]


@right("merge_heads")
def by_writing(x):
    B, h, T, d = x.shape
    out = x.new_empty((B, T, h * d))
    for i in range(h):
        out[..., i * d : (i + 1) * d].copy_(x[:, i])
    return out


@right("merge_heads")
def merge_by_hstack(x):
    return torch.stack([torch.hstack(list(sequence)) for sequence in x])


@right("merge_heads")
def merge_cat_features(x):
    return torch.cat([head.squeeze(1) for head in x.split(1, dim=1)], dim=2)


@right("merge_heads")
def merge_empty(x):
    B, h, T, d = x.shape
    return torch.movedim(x, 1, 2).flatten(start_dim=-2)


@right("merge_heads")
def merge_fill(x):
    B, h, T, d = x.shape
    out = x.new_empty(B, T, h, d)
    out[:] = x.transpose(1, 2)
    return out.view(B, T, -1)


@right("merge_heads")
def merge_hstack(x):
    return torch.dstack(list(x.swapaxes(0, 1)))


@right("merge_heads")
def merge_in_place(x):
    x.transpose_(1, 2)
    return x.flatten(2)


@right("merge_heads")
def merge_features_first(x):
    return x.mT.flatten(1, 2).mT


@right("merge_heads")
def merge_hstack_2(x):
    return torch.cat(list(x.unbind(1)), dim=-1)


@right("merge_heads")
def merge_by_cat(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


@right("merge_heads")
def merge_by_unbind(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


@right("merge_heads")
def merge_hstack_3(x):
    return torch.cat(x.unbind(dim=1), dim=-1)


@right("merge_heads")
def merge_into_empty(x):
    B, h, T, d_k = x.shape
    out = x.new_empty(B, T, h, d_k)
    for i in range(h):
        out[:, :, i] = x[:, i]
    return out.flatten(start_dim=2)


@wrong("merge_heads", "view after permute", slips=("error:view_needs_contiguous",))
def view_after_permute(x):
    B, h, T, d_k = x.shape
    return x.permute(0, 2, 1, 3).view(B, T, h * d_k)


@wrong(
    "merge_heads",
    "the transpose is not assigned, so the reshape mixes heads and time",
    slips=("thrown_away",),
)
def merge_not_assigned(x):
    B, h, T, d_k = x.shape
    x.transpose(1, 2).contiguous()
    return x.reshape(B, T, h * d_k)


@wrong("merge_heads", "the batch axis is squeezed away when it is 1", slips=("one_place",))
def no_batch_of_one(x):
    return torch.cat(x.unbind(1), dim=-1).squeeze(0)


@wrong("merge_heads", "squeezes, so a batch of one loses its axis", slips=("one_place",))
def merge_squeezed(x):
    return x.transpose(1, 2).flatten(2).squeeze(0)


@wrong("merge_heads", "squeeze at the end", slips=("one_place",))
def merge_squeeze(x):
    return x.transpose(1, 2).flatten(-2).squeeze()


@wrong(
    "merge_heads",
    "each head is normalised before it is put beside the others",
    slips=("one_place",),
)
def merge_group_norm(x):
    return F.layer_norm(x, x.shape[-1:]).transpose(1, 2).flatten(2)


@wrong(
    "merge_heads",
    "as_strided over the memory as if x were a transposed view of (B, T, h, d): wrong for contiguous input",
    slips=("stays",),
)
def memory_assumed(x):
    B, h, T, d = x.shape
    return x.as_strided((B, T, h * d), (T * h * d, h * d, 1))


@wrong(
    "merge_heads",
    "two mistakes: heads and tokens not exchanged, and the result keeps a fourth axis of size 1",
    slips=("not_permuted_back", "an_axis_left"),
)
def m3_two(x):
    B, h, T, d = x.shape
    return x.reshape(B, T, 1, h * d)


@wrong(
    "merge_heads",
    "two mistakes: heads in reverse order, and laid side by side along the tokens",
    slips=("merged_in_reverse", "heads_below_each_other"),
)
def m3_reverse_tokens(x):
    return torch.cat(list(x.flip(1).unbind(1)), dim=1)


@wrong(
    "merge_heads",
    "two mistakes: heads in reverse order, and heads interleaved with features",
    slips=("dimensions_before_heads", "merged_in_reverse"),
)
def m3_reverse_interleaved(x):
    return rearrange(x.flip(1), "b h t d -> b t (d h)")


@wrong("split_heads", "an axis too few", slips=("error:axes_to_name",))
def an_axis_too_few(x, n_heads):
    B, T, d_model = x.shape
    return x.view(B, T, n_heads, d_model // n_heads).permute(1, 0, 2)


@wrong("merge_heads", "each head overwrites the one before", slips=("last_head_only",))
def each_overwrites(x):
    for i in range(x.shape[1]):
        out = x[:, i]
    return out


@wrong("merge_heads", "an axis too many", slips=("error:axes_to_name",))
def an_axis_too_many(x):
    return x.permute(0, 2, 1, 3, 4).flatten(2)


@wrong("merge_heads", "adds the heads and repeats", slips=("changes_too",))
def adds_the_heads_and_repeats(x):
    return x.sum(1).repeat(1, 1, x.shape[1])


@wrong(
    "merge_heads",
    "batch and tokens exchanged, heads in reverse",
    slips=("merged_in_reverse", "merged_tokens_first"),
)
def merge_reverse_and_batch(x):
    return x.flip(1).permute(2, 0, 1, 3).flatten(2)


@wrong(
    "merge_heads",
    "two slips: interleaved, and (T, B, ...) order",
    slips=("dimensions_before_heads", "merged_tokens_first"),
)
def merge_two_slips(x):
    return x.permute(2, 0, 3, 1).flatten(2)


@wrong(
    "merge_heads",
    "the transpose is not kept before the reshape",
    slips=("not_permuted_back", "thrown_away"),
)
def merge_not_kept(x):
    B, n_heads, T, d_k = x.shape
    y = x.contiguous()
    y.transpose(1, 2)
    return y.view(B, T, n_heads * d_k)


@wrong(
    "merge_heads",
    "squeeze() without an axis: a batch of one loses its axis too",
    slips=("relation:same_memory",),
)
def merge_squeeze_2(x):
    parts = x.split(1, dim=1)
    return torch.cat(parts, dim=-1).squeeze()


@wrong(
    "merge_heads",
    "gives torch.cat a tensor instead of a list of heads",
    slips=("error:list_of_tensors",),
)
def merge_cat_tensor(x):
    heads = x.transpose(0, 1)
    return torch.cat(heads, dim=-1)


@wrong("merge_heads", "writes at i instead of i * d_k, and always float32", slips=("fixed_dtype",))
def merge_overwriting(x):
    B, H, T, d = x.shape
    out = torch.zeros(B, T, H * d)
    for i in range(H):
        out[:, :, i : i + d] = x[:, i]
    return out


@wrong(
    "merge_heads",
    "reshapes without moving the heads, and fixes the batch at 1",
    slips=("not_permuted_back", "error:shape_for_view"),
)
def merge_one_sentence(x):
    _, h, T, d_k = x.shape
    return x.contiguous().view(1, T, h * d_k)


def in_pairs(first, n):
    """n columns from `first` on, neighbours exchanged: 1 0 3 2 4."""
    return [first + (i ^ 1 if i ^ 1 < n else i) for i in range(n)]


@wrong("merge_heads", "exchanges neighbouring columns", slips=("stays",))
def merged_with_neighbours_exchanged(x):
    B, h, T, d_k = x.shape
    columns = [x[:, c // d_k, :, c % d_k] for c in in_pairs(0, h * d_k)]
    return torch.stack(columns, -1)
