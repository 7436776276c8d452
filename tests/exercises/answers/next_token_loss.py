"""next_token_loss (12): right in many styles, and wrong."""

import torch
import torch.nn.functional as F

from answers import slips

EXERCISE = "next_token_loss"


def by_loops_and_a_sum(logits, tokens):
    total, count = 0.0, 0
    for row, ids in zip(logits, tokens, strict=True):
        for t in range(len(ids) - 1):
            total = total - row[t].log_softmax(0)[ids[t + 1]]
            count += 1
    return total / count


def summed_and_divided(logits, tokens):
    B, T, V = logits.shape
    x, y = logits[:, : T - 1].reshape(-1, V), tokens[:, 1:].reshape(-1).to(torch.long)
    return F.nll_loss(F.log_softmax(x, dim=1), y, reduction="sum") / (B * (T - 1))


def loss_by_onehot(logits, tokens):
    logp = logits.narrow(1, 0, logits.shape[1] - 1).log_softmax(-1)
    hot = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(logp.dtype)
    return -(logp * hot).sum((-1, -2)).mean() / (logits.shape[1] - 1)


def loss_logsumexp_2(logits, tokens):
    total, n = 0.0, 0
    for t in range(tokens.shape[1] - 1):
        step = logits[:, t]
        picked = step[torch.arange(len(step), device=step.device), tokens[:, t + 1]]
        total = total + (torch.logsumexp(step, dim=1) - picked).sum()
        n += len(step)
    return total / n


def loss_logsumexp_3(logits, tokens):
    pred, target = logits[:, :-1].double(), tokens[:, 1:]
    picked = pred.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (pred.logsumexp(-1) - picked).mean().to(logits.dtype)


@slips("one_place")
def l3_loop_early(logits, tokens):
    losses = [F.cross_entropy(logits[:, t], tokens[:, t + 1]) for t in range(logits.shape[1] - 2)]
    return torch.stack(losses).mean() if losses else logits.new_zeros(())
