"""The loss (12): right in many styles, and wrong."""

from torch import nn
import math
import torch
import torch.nn.functional as F

from answers import right, wrong


# next_token_loss


@right("next_token_loss")
def flat_cross_entropy(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1).long())


@right("next_token_loss")
def channels_second(logits, tokens):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:].long())


@right("next_token_loss")
def gathered(logits, tokens):
    logp = logits[:, :-1].log_softmax(-1)
    return -logp.gather(-1, tokens[:, 1:, None].long()).mean()


@right("next_token_loss")
def by_logsumexp_and_gather(logits, tokens):
    lg = logits[:, :-1].double()
    own = lg.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return (lg.logsumexp(-1) - own).mean().to(logits.dtype)


@right("next_token_loss")
def ignoring_the_last(logits, tokens):
    answers = torch.cat((tokens[:, 1:], torch.full_like(tokens[:, :1], -100)), 1)
    return F.cross_entropy(logits.transpose(1, 2), answers)


@right("next_token_loss")
def step_by_step(logits, tokens):
    T = tokens.shape[1]
    return sum(F.cross_entropy(logits[:, t], tokens[:, t + 1]) for t in range(T - 1)) / (T - 1)


@right("next_token_loss")
def by_one_hot(logits, tokens):
    hot = F.one_hot(tokens[:, 1:], logits.size(-1)).to(logits.dtype)
    return -(hot * logits[:, :-1].log_softmax(-1)).sum(-1).mean()


@right("next_token_loss")
def cross_entropy_flat(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1).long())


@right("next_token_loss")
def cross_entropy_moved(logits, tokens):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:].to(torch.int64))


@right("next_token_loss")
def by_log_softmax(logits, tokens):
    logs = torch.log_softmax(logits[:, :-1], dim=-1)
    return -logs.gather(-1, tokens[:, 1:, None].long()).mean()


@right("next_token_loss")
def by_logsumexp(logits, tokens):
    x, y = logits[:, :-1], tokens[:, 1:].long()
    hit = F.one_hot(y, x.shape[-1]).to(x.dtype)
    return (x.logsumexp(-1) - (x * hit).sum(-1)).mean()


@right("next_token_loss")
def by_loops_and_a_sum(logits, tokens):
    total, count = 0.0, 0
    for row, ids in zip(logits, tokens, strict=True):
        for t in range(len(ids) - 1):
            total = total - row[t].log_softmax(0)[ids[t + 1]]
            count += 1
    return total / count


@right("next_token_loss")
def by_the_module(logits, tokens):
    loss = nn.CrossEntropyLoss()
    return loss(logits[:, :-1, :].flatten(0, 1), tokens[:, 1:].flatten().long())


@right("next_token_loss")
def next_token_loss_again(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@right("next_token_loss")
def with_a_distribution(logits, tokens):
    predicted = torch.distributions.Categorical(logits=logits[:, :-1])
    return -predicted.log_prob(tokens[:, 1:]).mean()


@right("next_token_loss")
def with_ignored_last(logits, tokens):
    targets = tokens.long().roll(-1, dims=1)
    targets[:, -1] = -100
    return F.cross_entropy(logits.permute(0, 2, 1), targets)


@right("next_token_loss")
def with_take_along(logits, tokens):
    logs = logits - logits.logsumexp(-1, keepdim=True)
    hit = torch.take_along_dim(logs[:, :-1], tokens[:, 1:, None].long(), dim=-1)
    return hit.mean().neg()


@right("next_token_loss")
def summed_and_divided(logits, tokens):
    B, T, V = logits.shape
    x, y = logits[:, : T - 1].reshape(-1, V), tokens[:, 1:].reshape(-1).to(torch.long)
    return F.nll_loss(F.log_softmax(x, dim=1), y, reduction="sum") / (B * (T - 1))


@right("next_token_loss")
def loss_by_onehot(logits, tokens):
    logp = logits.narrow(1, 0, logits.shape[1] - 1).log_softmax(-1)
    hot = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(logp.dtype)
    return -(logp * hot).sum((-1, -2)).mean() / (logits.shape[1] - 1)


@right("next_token_loss")
def loss_transposed(logits, tokens):
    return nn.CrossEntropyLoss()(logits[:, :-1].transpose(1, 2), tokens[:, 1:].long())


@right("next_token_loss")
def loss_gather(logits, tokens):
    logp = logits[:, :-1].log_softmax(dim=-1)
    picked = logp.gather(-1, tokens[:, 1:, None].long())
    return -picked.mean()


@right("next_token_loss")
def loss_logsumexp(logits, tokens):
    here, answers = logits[:, :-1], tokens[:, 1:].long()
    hit = torch.take_along_dim(here, answers.unsqueeze(-1), dim=-1).squeeze(-1)
    return (here.logsumexp(dim=-1) - hit).mean()


@right("next_token_loss")
def loss_logsumexp_2(logits, tokens):
    total, n = 0.0, 0
    for t in range(tokens.shape[1] - 1):
        step = logits[:, t]
        picked = step[torch.arange(len(step), device=step.device), tokens[:, t + 1]]
        total = total + (torch.logsumexp(step, dim=1) - picked).sum()
        n += len(step)
    return total / n


@right("next_token_loss")
def loss_ignored_last(logits, tokens):
    answers = F.pad(tokens[:, 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.mT, answers)


@right("next_token_loss")
def loss_by_logsumexp(logits, tokens):
    z, t = logits[:, :-1], tokens[:, 1:, None]
    return (z.logsumexp(-1) - z.gather(2, t)[..., 0]).mean()


@right("next_token_loss")
def loss_logsumexp_3(logits, tokens):
    pred, target = logits[:, :-1].double(), tokens[:, 1:]
    picked = pred.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (pred.logsumexp(-1) - picked).mean().to(logits.dtype)


@right("next_token_loss")
def loss_by_one_hot(logits, tokens):
    z = logits[:, :-1]
    hot = F.one_hot(tokens[:, 1:], z.shape[-1]).bool()
    return -z.log_softmax(-1)[hot].mean()


@right("next_token_loss")
def loss_logsumexp_4(logits, tokens):
    predictions, answers = logits[:, :-1], tokens[:, 1:].unsqueeze(-1)
    given = predictions.gather(-1, answers).squeeze(-1)
    return (predictions.logsumexp(dim=-1) - given).mean()


@right("next_token_loss")
def loss_one_hot(logits, tokens):
    answers = F.one_hot(tokens, logits.shape[-1])[:, 1:]
    log_p = logits.log_softmax(dim=-1)[:, :-1]
    return -torch.where(answers == 1, log_p, 0.0).sum(dim=-1).mean()


@right("next_token_loss")
def loss_marked(logits, tokens):
    answers = F.pad(tokens[:, 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.mT, answers)


@wrong("next_token_loss", "one loss per sequence, (B,), not a scalar", slips=("one_place",))
def per_sequence(logits, tokens):
    nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return nll.mean(dim=1)


@wrong(
    "next_token_loss",
    "the loop over time ends one too early: the last prediction is left out",
    slips=("one_place",),
)
def l3_loop_early(logits, tokens):
    losses = [F.cross_entropy(logits[:, t], tokens[:, t + 1]) for t in range(logits.shape[1] - 2)]
    return torch.stack(losses).mean() if losses else logits.new_zeros(())


@wrong(
    "next_token_loss",
    "log_softmax over the positions, not over the V classes",
    slips=("one_place",),
)
def loss_softmax_positions(logits, tokens):
    log_p = logits.log_softmax(dim=1)[:, :-1]
    return -log_p.gather(-1, tokens[:, 1:, None]).mean()


@wrong("next_token_loss", "divided by log V, so that guessing costs 1", slips=("one_place",))
def loss_by_log_v(logits, tokens):
    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:])
    return loss / math.log(logits.shape[-1])


@wrong("next_token_loss", "classes in the wrong axis", slips=("error:loss_axes",))
def classes_in_the_wrong_axis(logits, tokens):
    return F.cross_entropy(logits[:, :-1], tokens[:, 1:].long())


@wrong(
    "next_token_loss",
    "the logits are not cut, so there are more predictions than answers (raises)",
    slips=("error:loss_counts",),
)
def loss_forgot_logits(logits, tokens):
    target = tokens[:, 1:].flatten()
    return F.cross_entropy(logits.flatten(0, 1), target)


@wrong("next_token_loss", "view of a slice", slips=("error:view_needs_contiguous",))
def view_of_a_slice(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(logits[:, :-1].view(-1, V), tokens[:, 1:].view(-1).long())


@wrong(
    "next_token_loss",
    "the loss is computed in float32 and stays there: the dtype is not the input's",
    slips=("fixed_dtype",),
)
def hf_float(logits, labels):
    logits = logits.float()
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])


@wrong("next_token_loss", "no shift, and a sum", slips=("no_shift", "total"))
def no_shift_and_a_sum(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten().long(), reduction="sum")


@wrong("next_token_loss", "argmax of the logits against the tokens", slips=("stays",))
def argmax_of_the_logits_against(logits, tokens):
    guess = logits[:, :-1].argmax(-1)
    return (guess - tokens[:, 1:]).to(logits.dtype).pow(2).mean()


@wrong(
    "next_token_loss",
    "two mistakes: the softmax runs over time (dim=1), and the sign is lost",
    slips=("softmax_over_positions", "sign_missing"),
)
def l3_dim_sign(logits, tokens):
    logp = F.log_softmax(logits[:, :-1], dim=1)
    return torch.take_along_dim(logp, tokens[:, 1:, None], dim=-1).mean()


@wrong(
    "next_token_loss",
    "two mistakes: shifted the wrong way, and summed",
    slips=("shift_backwards", "total"),
)
def l3_backwards_sum(logits, tokens):
    return F.cross_entropy(logits[:, 1:].transpose(1, 2), tokens[:, :-1], reduction="sum")


@wrong(
    "next_token_loss",
    "two mistakes: token 0 is ignored, and a label smoothing of 0.1",
    slips=("stays",),
)
def l3_ignore_smooth(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], ignore_index=0, label_smoothing=0.1)


@wrong("next_token_loss", "wrong way, softmax twice", slips=("shift_backwards", "softmax_twice"))
def wrong_way_softmax_twice(logits, tokens):
    p = logits.softmax(-1)
    return F.cross_entropy(p[:, 1:].flatten(0, 1), tokens[:, :-1].flatten().long())


@wrong(
    "next_token_loss",
    "loss of the last prediction of every row, summed",
    slips=("last_prediction_only", "total"),
)
def l23(logits, tokens):
    return F.cross_entropy(logits[:, -2], tokens[:, -1].long(), reduction="sum")


@wrong("next_token_loss", "token 0 ignored, and no shift", slips=("no_shift", "zero_is_padding"))
def token_ignored_and_no_shift(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten().long(), ignore_index=0)


@wrong("next_token_loss", "shift by two, sum", slips=("shift_by_two", "total"))
def shift_by_two_sum(logits, tokens):
    x, y = logits[:, :-2].mT, tokens[:, 2:].long()
    return F.cross_entropy(x, y, reduction="sum")


@wrong(
    "next_token_loss",
    "nanoGPT's loss, whose targets had been shifted by the loader",
    slips=("no_shift", "error:view_needs_contiguous"),
)
def loss_nanogpt(logits, targets):
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


@wrong(
    "next_token_loss",
    "Keras order: targets first, then predictions",
    slips=("error:half_not_implemented",),
)
def loss_keras_order(y_true, y_pred):
    return F.cross_entropy(y_pred[:, 1:].flatten(), y_true[:, :-1].flatten(0, 1))


@wrong(
    "next_token_loss",
    "bits: the loss divided by log 2, and the last prediction wraps round",
    slips=("rolled", "in_bits"),
)
def loss_bits_rolled(logits, tokens):
    targets = torch.roll(tokens, -1, dims=1)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / math.log(2)


@wrong("next_token_loss", "no shift, and softmax twice", slips=("no_shift", "softmax_twice"))
def loss_no_shift_softmax(logits, tokens):
    p = logits.softmax(-1)
    return nn.CrossEntropyLoss()(p.transpose(1, 2), tokens)


@wrong(
    "next_token_loss",
    "two slips: shifted backwards, and bits",
    slips=("shift_backwards", "in_bits"),
)
def loss_backwards_bits(logits, tokens):
    return F.cross_entropy(logits[:, 1:].mT, tokens[:, :-1]) / math.log(2)


@wrong(
    "next_token_loss",
    "two slips: shifted by two, and ignores token 0",
    slips=("one_place", "zero_is_padding"),
)
def loss_two_ahead(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens.roll(-2, 1)[:, :-1], ignore_index=0)


@wrong(
    "next_token_loss",
    "two slips: softmax before cross_entropy, and summed",
    slips=("softmax_twice", "total"),
)
def loss_two_slips(logits, tokens):
    p = logits[:, :-1].softmax(-1)
    return F.cross_entropy(p.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


@wrong(
    "next_token_loss",
    "one minus the right token's probability, no logarithm",
    slips=("one_place", "probabilities"),
)
def loss_probability(logits, tokens):
    p = logits[:, :-1].softmax(dim=-1)
    return 1 - p.gather(-1, tokens[:, 1:, None]).mean()


@wrong(
    "next_token_loss",
    "no shift; also the minus sign is missing",
    slips=("no_shift", "sign_missing"),
)
def loss_no_shift_positive(logits, tokens):
    logp = F.log_softmax(logits, dim=-1)
    picked = torch.gather(logp, 2, tokens[..., None]).squeeze(-1)
    return picked.mean()


@wrong(
    "next_token_loss",
    "nll_loss on softmax probabilities that are not logged, summed",
    slips=("probabilities", "total"),
)
def loss_nll_probs(logits, tokens):
    probs = torch.softmax(logits[:, :-1], dim=-1)
    return F.nll_loss(probs.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


@wrong(
    "next_token_loss",
    "shifts logits instead of tokens, and sums over time",
    slips=("shift_backwards", "per_sequence"),
)
def loss_backwards_sum(logits, tokens):
    B = logits.size(0)
    pred = logits[:, 1:].reshape(-1, logits.size(-1))
    past = tokens[:, :-1].reshape(-1)
    return F.cross_entropy(pred, past, reduction="sum") / B
