"""next_token_loss (12): right in many styles, and wrong."""

from torch import nn
import math
import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "next_token_loss"


def flat_cross_entropy(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1).long())


def gathered(logits, tokens):
    logp = logits[:, :-1].log_softmax(-1)
    return -logp.gather(-1, tokens[:, 1:, None].long()).mean()


def ignoring_the_last(logits, tokens):
    answers = torch.cat((tokens[:, 1:], torch.full_like(tokens[:, :1], -100)), 1)
    return F.cross_entropy(logits.transpose(1, 2), answers)


def step_by_step(logits, tokens):
    T = tokens.shape[1]
    return sum(F.cross_entropy(logits[:, t], tokens[:, t + 1]) for t in range(T - 1)) / (T - 1)


def by_one_hot(logits, tokens):
    hot = F.one_hot(tokens[:, 1:], logits.size(-1)).to(logits.dtype)
    return -(hot * logits[:, :-1].log_softmax(-1)).sum(-1).mean()


def cross_entropy_moved(logits, tokens):
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:].to(torch.int64))


def by_loops_and_a_sum(logits, tokens):
    total, count = 0.0, 0
    for row, ids in zip(logits, tokens, strict=True):
        for t in range(len(ids) - 1):
            total = total - row[t].log_softmax(0)[ids[t + 1]]
            count += 1
    return total / count


def by_the_module(logits, tokens):
    loss = nn.CrossEntropyLoss()
    return loss(logits[:, :-1, :].flatten(0, 1), tokens[:, 1:].flatten().long())


def with_a_distribution(logits, tokens):
    predicted = torch.distributions.Categorical(logits=logits[:, :-1])
    return -predicted.log_prob(tokens[:, 1:]).mean()


def with_ignored_last(logits, tokens):
    targets = tokens.long().roll(-1, dims=1)
    targets[:, -1] = -100
    return F.cross_entropy(logits.permute(0, 2, 1), targets)


def with_take_along(logits, tokens):
    logs = logits - logits.logsumexp(-1, keepdim=True)
    hit = torch.take_along_dim(logs[:, :-1], tokens[:, 1:, None].long(), dim=-1)
    return hit.mean().neg()


def summed_and_divided(logits, tokens):
    B, T, V = logits.shape
    x, y = logits[:, : T - 1].reshape(-1, V), tokens[:, 1:].reshape(-1).to(torch.long)
    return F.nll_loss(F.log_softmax(x, dim=1), y, reduction="sum") / (B * (T - 1))


def loss_by_onehot(logits, tokens):
    logp = logits.narrow(1, 0, logits.shape[1] - 1).log_softmax(-1)
    hot = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(logp.dtype)
    return -(logp * hot).sum((-1, -2)).mean() / (logits.shape[1] - 1)


def loss_logsumexp(logits, tokens):
    here, answers = logits[:, :-1], tokens[:, 1:].long()
    hit = torch.take_along_dim(here, answers.unsqueeze(-1), dim=-1).squeeze(-1)
    return (here.logsumexp(dim=-1) - hit).mean()


def loss_logsumexp_2(logits, tokens):
    total, n = 0.0, 0
    for t in range(tokens.shape[1] - 1):
        step = logits[:, t]
        picked = step[torch.arange(len(step), device=step.device), tokens[:, t + 1]]
        total = total + (torch.logsumexp(step, dim=1) - picked).sum()
        n += len(step)
    return total / n


def loss_ignored_last(logits, tokens):
    answers = F.pad(tokens[:, 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.mT, answers)


def loss_logsumexp_3(logits, tokens):
    pred, target = logits[:, :-1].double(), tokens[:, 1:]
    picked = pred.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (pred.logsumexp(-1) - picked).mean().to(logits.dtype)


def loss_by_one_hot(logits, tokens):
    z = logits[:, :-1]
    hot = F.one_hot(tokens[:, 1:], z.shape[-1]).bool()
    return -z.log_softmax(-1)[hot].mean()


def loss_one_hot(logits, tokens):
    answers = F.one_hot(tokens, logits.shape[-1])[:, 1:]
    log_p = logits.log_softmax(dim=-1)[:, :-1]
    return -torch.where(answers == 1, log_p, 0.0).sum(dim=-1).mean()


@slips("one_place")
def l3_loop_early(logits, tokens):
    losses = [F.cross_entropy(logits[:, t], tokens[:, t + 1]) for t in range(logits.shape[1] - 2)]
    return torch.stack(losses).mean() if losses else logits.new_zeros(())


@slips("one_place")
def loss_by_log_v(logits, tokens):
    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:])
    return loss / math.log(logits.shape[-1])


@slips("error:loss_axes")
def classes_in_the_wrong_axis(logits, tokens):
    return F.cross_entropy(logits[:, :-1], tokens[:, 1:].long())


@slips("error:loss_counts")
def loss_forgot_logits(logits, tokens):
    target = tokens[:, 1:].flatten()
    return F.cross_entropy(logits.flatten(0, 1), target)


@slips("error:view_needs_contiguous")
def view_of_a_slice(logits, tokens):
    V = logits.shape[-1]
    return F.cross_entropy(logits[:, :-1].view(-1, V), tokens[:, 1:].view(-1).long())


@slips("fixed_dtype")
def hf_float(logits, labels):
    logits = logits.float()
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])


@slips("stays")
def l3_ignore_smooth(logits, tokens):
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], ignore_index=0, label_smoothing=0.1)


@slips("last_prediction_only", "total")
def l23(logits, tokens):
    return F.cross_entropy(logits[:, -2], tokens[:, -1].long(), reduction="sum")


@slips("no_shift", "error:view_needs_contiguous")
def loss_nanogpt(logits, targets):
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


@slips("error:half_not_implemented")
def loss_keras_order(y_true, y_pred):
    return F.cross_entropy(y_pred[:, 1:].flatten(), y_true[:, :-1].flatten(0, 1))
