"""split_heads (5): right in many styles, and wrong."""

from einops import rearrange
import einops
import torch

from answers import slips

EXERCISE = "split_heads"


def view_transpose(x, n_heads):
    B, T, D = x.size()
    return x.reshape(B, T, n_heads, D // n_heads).transpose(1, 2)


def unflatten(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).permute(0, 2, 1, 3).contiguous()


def einops_split(x, n_heads):
    from einops import rearrange

    return rearrange(x, "b t (h d) -> b h t d", h=n_heads)


def features_first(x, n_heads):
    B, T, D = x.shape
    return x.mT.reshape(B, n_heads, D // n_heads, T).mT


def gathered(x, n_heads):
    index = torch.arange(x.shape[-1], device=x.device).view(n_heads, -1)
    return x[:, :, index].permute(0, 2, 1, 3)


def tensor_split_stack(x, n_heads):
    return torch.stack(x.tensor_split(n_heads, dim=2), dim=-3)


def unfolded(x, n_heads):
    d = x.size(-1) // n_heads
    return x.unfold(-1, d, d).swapdims(1, 2)


def assigned(x, n_heads):
    B, T, D = x.shape
    out = x.new_empty(B, n_heads, T, D // n_heads)
    for c in range(D):
        out[:, c // out.shape[-1], :, c % out.shape[-1]] = x[:, :, c]
    return out


def by_einops(x, n_heads):
    return einops.rearrange(x, "b t (h d) -> b h t d", h=n_heads)


def entry_for_entry(x, n_heads):
    B, T, D = x.shape
    d_k = D // n_heads
    out = torch.empty(B, n_heads, T, d_k, dtype=x.dtype, device=x.device)
    for h in range(n_heads):
        for j in range(d_k):
            out[:, h, :, j] = x[:, :, h * d_k + j]
    return out


def asserts_divisibility(x, n_heads):
    assert x.size(-1) % n_heads == 0, "d_model must be divisible by n_heads"
    return x.unflatten(-1, (n_heads, -1)).movedim(2, 1).contiguous()


def with_as_strided(x, h):
    x = x.contiguous()
    B, T, D = x.shape
    return x.as_strided((B, h, T, D // h), (T * D, D // h, D, 1))


def with_vmap_over_the_batch(x, h):
    return torch.vmap(lambda one: one.view(one.shape[0], h, -1).transpose(0, 1))(x)


def with_hsplit(x, h):
    heads = torch.tensor_split(x, h, dim=-1)
    return torch.cat([head.unsqueeze(1) for head in heads], dim=1)


def with_swapaxes(x, n_heads):
    return x.unflatten(2, [n_heads, x.size(2) // n_heads]).swapaxes(1, 2).clone()


def split_cat_tokens(x, n_heads):
    B, T, C = x.shape
    return torch.cat(x.chunk(n_heads, dim=-1), dim=1).view(B, n_heads, T, C // n_heads)


def split_by_index(x, n_heads):
    columns = torch.arange(x.shape[-1], device=x.device).reshape(n_heads, 1, -1)
    rows = torch.arange(x.shape[1], device=x.device).reshape(1, -1, 1)
    return x[:, rows, columns]


def split_named(x, n_heads):
    return rearrange(x, "batch token (head dim) -> batch head token dim", head=n_heads)


@slips("error:view_needs_contiguous")
def needs_contiguous(x, n_heads):
    B, T, D = x.shape
    return x.view(B * T, n_heads, D // n_heads).view(B, T, n_heads, -1).transpose(1, 2)


@slips("one_place")
def splits_and_adds_a_new(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)[None]


@slips("one_place")
def tokens_reversed(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2).flip(2)


@slips("error:shape_for_view")
def fixed_64(x, n_heads):
    return x.reshape(x.size(0), -1, n_heads, 64).transpose(1, 2)


@slips("heads_reversed", "order_B_T_h_d_k")
def h3_reverse(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).flip(2)


@slips("stays")
def h3_first_only(x, n_heads):
    one = x[0].reshape(x.shape[1], n_heads, -1).transpose(0, 1)
    return one.expand(x.shape[0], *one.shape)


@slips("error:unpacking")
def forgets_b_in_the_unpacking(x, h):
    T, D = x.shape
    return x.view(T, h, D // h).transpose(0, 1)


@slips("error:no_such_attribute")
def wrong_attribute_of_a_tensor(x, h):
    return x.split_into(h).transpose(1, 2)


@slips("fixed_device")
def moves_to_a_gpu(x, h):
    return x.cuda().unflatten(-1, (h, -1)).transpose(1, 2)


@slips("error:numpy_transpose")
def split_numpy_transpose(x, n_heads):
    B, T, d = x.shape
    return x.reshape(B, T, n_heads, d // n_heads).transpose(0, 2, 1, 3)


@slips("error:axes_to_name")
def an_axis_too_few(x, n_heads):
    B, T, d_model = x.shape
    return x.view(B, T, n_heads, d_model // n_heads).permute(1, 0, 2)
