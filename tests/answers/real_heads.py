"""Heads of a real model, silenced or asked (13 and the short ones): right in many styles, and wrong."""

import math
import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong


# previous_token_score


@right("previous_token_score")
def offset_diagonal(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1)


@right("previous_token_score")
def indexed(weights):
    i = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, i, i - 1].mean(dim=1)


@right("previous_token_score")
def looped(weights):
    h, T, _ = weights.shape
    return torch.stack([sum(weights[k, t, t - 1] for t in range(1, T)) / (T - 1) for k in range(h)])


@right("previous_token_score")
def by_index(weights):
    i = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, i, i - 1].mean(1)


@right("previous_token_score")
def by_trace(weights):
    return torch.einsum("hii->h", weights[:, 1:, :-1]) / (weights.shape[1] - 1)


@right("previous_token_score")
def by_shifted_eye(w):
    T = w.size(-1)
    eye = torch.ones(T - 1, dtype=w.dtype, device=w.device).diag(-1)
    return (w * eye).sum((1, 2)).div(T - 1)


@right("previous_token_score")
def diagonal_mean(weights):
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1)


@right("previous_token_score")
def by_indexing(weights):
    t = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, t, t - 1].mean(dim=1)


@right("previous_token_score")
def a_loop_of_heads(A):
    T = A.shape[-1]
    return torch.stack([sum(a[t, t - 1] for t in range(1, T)) / (T - 1) for a in A])


@right("previous_token_score")
def by_trace_2(weights):
    lower = weights[:, 1:, :-1]
    return torch.einsum("htt->h", lower) / lower.shape[-1]


@right("previous_token_score")
def with_a_shifted_identity(weights):
    T = weights.shape[-1]
    where = torch.diag_embed(torch.ones(T - 1), offset=-1).to(weights)
    return (weights * where).sum((-2, -1)) / (T - 1)


@right("previous_token_score")
def with_diag_of_each(weights):
    return torch.stack([torch.diag(w, -1).mean() for w in weights])


@right("previous_token_score")
def with_gathering(weights):
    T = weights.size(-1)
    index = torch.arange(T - 1, device=weights.device).view(1, -1, 1).expand(len(weights), -1, 1)
    return weights[:, 1:].gather(-1, index).squeeze(-1).mean(-1)


@right("previous_token_score")
def previous_by_einsum(weights):
    below = weights[:, 1:, :-1]
    return torch.einsum("hii->h", below) / below.shape[-1]


@right("previous_token_score")
def previous_loop(weights):
    T = weights.shape[-1]
    return torch.stack([weights[:, t, t - 1] for t in range(1, T)]).mean(dim=0)


@right("previous_token_score")
def previous_flat(weights):
    h, T, _ = weights.shape
    return weights.flatten(1)[:, T :: T + 1].mean(-1)


@right("previous_token_score")
def previous_trace(weights):
    shifted = weights[:, 1:, :-1]
    return torch.einsum("htt->h", shifted) / shifted.shape[-1]


@right("previous_token_score")
def previous_masked_sum(weights):
    T = weights.shape[-1]
    below = torch.eye(T, device=weights.device, dtype=weights.dtype).roll(1, 0)
    below[0] = 0
    return (weights * below).sum(dim=(1, 2)) / (T - 1)


@right("previous_token_score")
def previous_in_place(weights):
    weights[:, 0] = 0
    return weights.diagonal(offset=-1, dim1=1, dim2=2).mean(-1)


@right("previous_token_score")
def previous_einsum(weights):
    return torch.einsum("hii->h", weights[:, 1:, :-1]) / (weights.shape[1] - 1)


@right("previous_token_score")
def previous_trace_2(weights):
    T = weights.size(-1)
    return torch.stack([head[1:, :-1].trace() / (T - 1) for head in weights])


@right("previous_token_score")
def previous_gather(weights):
    query = torch.arange(1, weights.shape[-1], device=weights.device)
    return weights[:, query, query - 1].mean(dim=1)


@wrong(
    "previous_token_score",
    "two mistakes: the token after, not before, and divided by T",
    slips=("next_token", "divided_by_t"),
)
def v3_next_t(weights):
    return torch.stack([w.diagonal(1).sum() / w.shape[-1] for w in weights])


@wrong(
    "previous_token_score",
    "two mistakes: two tokens back, and a sum (0 for T = 2)",
    slips=("two_before", "added_up"),
)
def v3_two_back(weights):
    return weights.diagonal(-2, 1, 2).sum(-1)


@wrong("previous_token_score", "a fresh tensor on the CPU", slips=("fixed_device",))
def a_fresh_tensor_on_the(weights):
    return torch.tensor([float(a.diagonal(-1).mean()) for a in weights], dtype=weights.dtype)


@wrong("previous_token_score", "next, and a sum", slips=("next_token", "added_up"))
def next_and_a_sum(weights):
    return torch.stack([a.diagonal(1).sum() for a in weights])


@wrong("previous_token_score", "two before", slips=("two_before", "error:list_of_tensors"))
def two_before(weights):
    T = weights.shape[-1]
    return torch.stack([weights[:, t, t - 2] for t in range(2, T)]).mean(0)


@wrong("previous_token_score", "offset −2: the token two before", slips=("one_place",))
def previous_two(w):
    return w.diagonal(-2, 1, 2).mean(-1) if w.shape[-1] > 2 else w.diagonal(-1, 1, 2).mean(-1)


@wrong("previous_token_score", "the smallest of them", slips=("stays",))
def previous_smallest(weights):
    return weights.diagonal(-1, -2, -1).amin(-1)


@wrong("previous_token_score", "keepdim, and an argument named input", slips=("one_place",))
def previous_keepdim_of_input(input):
    return input.diagonal(-1, -2, -1).mean(-1, keepdim=True)


@wrong("previous_token_score", "keepdim: (n_heads, 1)", slips=("one_place",))
def previous_keepdim(weights):
    return weights.diagonal(-1, -2, -1).mean(-1, keepdim=True)


@wrong(
    "previous_token_score",
    "as a share of what a query gives to other tokens than itself",
    slips=("one_place",),
)
def previous_of_others(weights):
    own = weights.diagonal(dim1=1, dim2=2)[:, 1:]
    before = weights.diagonal(-1, 1, 2)
    return (before / (1 - own)).mean(dim=-1)


@wrong(
    "previous_token_score",
    "itself counts too: own weight and the one before, halved",
    slips=("one_place",),
)
def previous_and_itself(weights):
    own = weights.diagonal(dim1=1, dim2=2)[:, 1:].mean(-1)
    before = weights.diagonal(-1, 1, 2).mean(-1)
    return (own + before) / 2


@wrong(
    "previous_token_score",
    "two slips: own token, and over the heads",
    slips=("itself", "over_heads"),
)
def previous_own_over_heads(weights):
    return weights.diagonal(0, 1, 2).mean(0)


@wrong(
    "previous_token_score",
    "fetches numbers into a new tensor: always float32, no gradient",
    slips=("fixed_dtype",),
)
def previous_items(weights):
    h, T, _ = weights.shape
    scores = []
    for n in range(h):
        scores.append(np.mean([weights[n, t, t - 1].item() for t in range(1, T)]))
    return torch.tensor([float(s) for s in scores])


@wrong(
    "previous_token_score",
    "two slips: the main diagonal, and the mean of all heads",
    slips=("itself", "heads_averaged"),
)
def previous_two_slips(weights):
    return weights.diagonal(dim1=-2, dim2=-1).mean()


@wrong(
    "previous_token_score",
    "reads the diagonal of the next token, and averages over heads too",
    slips=("next_token", "heads_averaged"),
)
def prev_trace_next(weights):
    T = weights.size(-1)
    scores = [torch.trace(w[:-1, 1:]) / (T - 1) for w in weights]
    return torch.stack(scores).mean()


# silence


@right("silence")
def by_factor(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device).ne(i).to(heads.dtype)
    return torch.einsum("bhtd,h->bhtd", heads, keep)


@right("silence")
def by_index_fill(heads, i):
    return heads.index_fill(1, torch.tensor([i], device=heads.device), 0.0)


@right("silence")
def cloned(heads, i):
    out = heads.clone()
    out[:, i] = 0
    return out


@right("silence")
def by_a_mask(heads, i):
    keep = torch.ones(heads.shape[1], dtype=heads.dtype, device=heads.device)
    keep[i] = 0
    return heads * keep[:, None, None]


@right("silence")
def joined_anew(heads, i):
    return torch.cat([heads[:, :i], torch.zeros_like(heads[:, i : i + 1]), heads[:, i + 1 :]], 1)


@right("silence")
def silence_by_onehot(heads, i):
    keep = 1 - F.one_hot(torch.tensor(i, device=heads.device), heads.shape[1])
    return heads * keep.to(heads.dtype)[:, None, None]


@right("silence")
def silence_stack(heads, i):
    parts = list(heads.unbind(dim=1))
    parts[i] = torch.zeros_like(parts[i])
    return torch.stack(parts, dim=1)


@right("silence")
def silence_where(heads, i):
    hit = torch.arange(heads.shape[1], device=heads.device).view(1, -1, 1, 1) == i
    return torch.where(hit, torch.zeros_like(heads), heads)


@right("silence")
def silence_index_fill(heads, i):
    return heads.index_fill(1, torch.tensor([i], device=heads.device), 0.0)


@right("silence")
def silence_scatter(heads, i):
    return torch.select_scatter(heads, torch.zeros_like(heads[:, i]), 1, i)


@right("silence")
def silence_where_2(heads, i):
    here = torch.arange(heads.shape[1], device=heads.device).view(-1, 1, 1) == i
    return torch.where(here, 0.0, heads)


@right("silence")
def silence_from_parts(heads, i):
    parts = list(heads.unbind(dim=1))
    parts[i] = torch.zeros_like(parts[i])
    return torch.stack(parts, dim=1)


@wrong("silence", "in place", slips=("writes_into_input",))
def in_place_zero(heads, i):
    heads[:, i] = 0
    return heads


@wrong(
    "silence",
    "detach shares the memory: the caller's tensor is changed all the same",
    slips=("no_gradient", "writes_into_input"),
)
def detach_is_no_copy(heads, i):
    quiet = heads.detach()
    quiet[:, i].zero_()
    return quiet


@wrong("silence", "counts heads from 1", slips=("one_place",))
def silence_from_one(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device) != i - 1
    return heads * keep[:, None, None]


@wrong("silence", "minus infinity for zero, as in a mask", slips=("one_place",))
def silence_infinity(heads, i):
    out = heads.clone()
    out[:, i] = -math.inf
    return out


@wrong("silence", "halved, not silenced", slips=("one_place",))
def silence_halved(heads, i):
    out = heads.clone()
    out[:, i] *= 0.5
    return out


@wrong("silence", "minus infinity", slips=("one_place",))
def silence_minus_infinity(heads, i):
    out = heads.clone()
    out[:, i] = float("-inf")
    return out


@wrong(
    "silence",
    "two mistakes: the caller's tensor is changed, and it is sequence i that is silenced",
    slips=("sequence_silenced", "writes_into_input"),
)
def q3_two(heads, i):
    heads[i % heads.shape[0]] = 0
    return heads


@wrong(
    "silence",
    "the mask of the heads is laid along the last axis: feature i of all heads is zeroed (raises where d_k is not h)",
    slips=("error:broadcast_shapes",),
)
def q3_axis(heads, i):
    keep = torch.arange(heads.shape[1], device=heads.device) != i
    return heads * keep


@wrong("silence", "copies by detach().clone(): no gradient gets through", slips=("no_gradient",))
def silence_detached(heads, i):
    quiet = heads.detach().clone()
    quiet[:, i] = 0
    return quiet


@wrong(
    "silence", "throws the result away: index_fill without an underscore", slips=("thrown_away",)
)
def silence_thrown_away(heads, i):
    quiet = heads.clone()
    quiet.index_fill(1, torch.tensor([i], device=heads.device), 0)
    return quiet


@wrong(
    "silence", "in place, and on the tokens' axis", slips=("token_silenced", "writes_into_input")
)
def silence_in_place_tokens(heads, i):
    heads[:, :, i] = 0
    return heads


@wrong("silence", "a factor for head i of the wrong axis, and head 0 as well", slips=("stays",))
def silence_two(heads, i):
    keep = torch.ones_like(heads)
    keep[:, :, i - 1] = 0
    return heads * keep


@wrong("silence", "gives a numpy array", slips=("returns_ndarray",))
def silence_numpy(heads, i):
    quiet = heads.numpy().copy()
    quiet[:, i] = 0
    return quiet


@wrong(
    "silence", "heads are put first and left there: (h, B, T, d_k)", slips=("relation:moved_axes",)
)
def silence_heads_first(heads, i):
    quiet = heads.swapaxes(0, 1).clone()
    quiet[i] = 0
    return quiet


@wrong(
    "silence",
    "the clone is returned, the original is zeroed",
    slips=("not_at_all", "writes_into_input"),
)
def silence_wrong_variable(heads, i):
    quiet = heads.clone()
    heads[:, i] = 0
    return quiet


@wrong("silence", "two slips: mul_ in place, and by 0.1", slips=("one_place", "writes_into_input"))
def silence_two_slips(heads, i):
    heads[:, i].mul_(0.1)
    return heads


# solved


@right("solved")
def by_sign(weights, query, right, wrong):
    return torch.sub(weights[:, query, right], weights[:, query, wrong]).sign() == 1


@right("solved")
def by_tensor_of_bools(weights, query, right, wrong):
    return torch.stack([w[query, wrong] < w[query, right] for w in weights])


@right("solved")
def compared(weights, query, right, wrong):
    return weights[:, query, right] > weights[:, query, wrong]


@right("solved")
def one_head_at_a_time(A, q, r, w):
    return torch.tensor([bool(a[q, r] > a[q, w]) for a in A], device=A.device)


@right("solved")
def solved_by_sign(weights, query, right, wrong):
    pair = weights[:, query][:, [right, wrong]]
    return pair.diff(dim=1).squeeze(1).signbit()


@right("solved")
def solved_loop(weights, query, right, wrong):
    return torch.tensor(
        [bool(w[query, right] > w[query, wrong]) for w in weights], device=weights.device
    )


@right("solved")
def solved_index_select(weights, query, right, wrong):
    row = weights.select(1, query)
    pair = row.index_select(1, torch.tensor([right, wrong], device=row.device))
    return pair.diff(dim=1).squeeze(1) < 0


@right("solved")
def solved_sign(weights, query, right, wrong):
    row = weights[:, query]
    return torch.sign(row[:, right] - row[:, wrong]).eq(1)


@right("solved")
def solved_sorted(weights, query, right, wrong):
    pair = weights[:, query][:, [right, wrong]]
    return pair.diff(dim=-1).squeeze(-1).lt(0)


@right("solved")
def solved_by_sign_2(weights, query, right, wrong):
    pair = weights[:, query][:, [right, wrong]]
    return pair.diff(dim=1).squeeze(1).signbit()


@right("solved")
def solved_loop_2(weights, query, right, wrong):
    return torch.stack([head[query, right].gt(head[query, wrong]) for head in weights])


@wrong("solved", "the number of heads that solve it, not a bool for each", slips=("one_place",))
def how_many(weights, query, right, wrong):
    return (weights[:, query, right] > weights[:, query, wrong]).sum()


@wrong("solved", "asks for a margin of 0.1", slips=("one_place",))
def solved_margin(weights, query, right, wrong):
    return weights[:, query, right] - weights[:, query, wrong] > 0.1


@wrong(
    "solved",
    "gives the names of the solved heads: their numbers, not a bool for each",
    slips=("one_place",),
)
def solved_numbers(w, q, r, x):
    return (w[:, q, r] > w[:, q, x]).nonzero().flatten()


@wrong("solved", "any: one answer, whether some head solves it", slips=("one_place",))
def solved_any(w, q, r, x):
    return (w[:, q, r] > w[:, q, x]).any()


@wrong(
    "solved",
    "two mistakes: rows and columns exchanged, and int64 instead of bool",
    slips=("column", "as_integers"),
)
def z3_two_more(weights, query, right, wrong):
    return (weights[:, right, query] > weights[:, wrong, query]).long()


@wrong("solved", "arguments in the order right, wrong, query", slips=("arguments_exchanged",))
def solved_argument_order(attn, correct, incorrect, position):
    return attn[:, position, correct] > attn[:, position, incorrect]


@wrong("solved", "`and`: asks for the truth of all heads at once", slips=("truth_of_a_tensor",))
def solved_and(weights, query, right, wrong):
    best = weights[:, query].max(dim=-1).values
    return weights[:, query, right] == best and weights[:, query, wrong] < best


@wrong("solved", "two slips: ties count, and a list of bools", slips=("ties_too", "as_list"))
def solved_two_slips(weights, query, right, wrong):
    return [bool(w[query, right] >= w[query, wrong]) for w in weights]


@wrong("solved", "two slips: query last, and compared the wrong way", slips=("column", "less_than"))
def solved_column_less(weights, query, right, wrong):
    return weights[:, right, query] < weights[:, wrong, query]


@wrong("solved", "two slips: majority of heads, and a Python bool", slips=("returns_bool",))
def solved_majority(weights, query, right, wrong):
    return bool((weights[:, query, right] > weights[:, query, wrong]).float().mean() > 0.5)


@wrong("solved", "np.sign of the difference: numbers, not bool", slips=("not_bool",))
def solved_sign_2(weights, query, right, wrong):
    row = weights[:, query]
    return torch.sign(row[:, right] - row[:, wrong])


@wrong("solved", "two slips: >= for >, and as floats", slips=("ties_too", "as_numbers"))
def solved_two_slips_2(weights, query, right, wrong):
    return (weights[:, query, right] >= weights[:, query, wrong]).float()


@wrong(
    "solved", "the right key needs more than a fair share, 1 / T", slips=("relation:partly_right",)
)
def solved_fair_share(weights, query, right, wrong):
    return weights[:, query, right] > 1 / weights.shape[-1]


@wrong("solved", "one answer for all heads", slips=("relation:a_slice",))
def of_the_first_head(weights, query, right, wrong):
    return weights[0, query, right] > weights[0, query, wrong]
