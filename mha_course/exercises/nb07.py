"""Exercise 12, notebook 07: predicting each token from the ones before it."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from mha_course.engine.inputs import normal, strided
from mha_course.exercises import WHOLE, Case, exercise


def logits_and_tokens() -> Iterator[Case]:
    rows = ((2, 5, 7), (1, 3, 5), (3, 2, 5), (2, 7, 3), (3, 3, 3), (1, 2, 2), (5, 7, 7))
    for seed, (B, T, V) in enumerate(rows):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, V, (B, T), generator=generator)
        tokens[0, -1] = tokens[-1, 0] = 0  # token 0 is an ordinary token
        logits = normal(B, T, V, seed=seed, std=2)
        sizes = {"B": B, "T": T, "V": V}
        yield Case((logits, tokens), sizes)
        if seed == 0:
            yield Case((strided(logits), strided(tokens)), sizes, "with inputs not contiguous")
            # Sixteenths, so that an answer that computes in float32 sees the very same logits.
            wide = (logits * 2500 * 16).round() / 16
            yield Case((wide, tokens), sizes, "where logits go up to ±1e4", 1e-4, True)


@exercise(12, "07", reread="The repeat task", make_cases=logits_and_tokens, gives=("loss ()",))
def next_token_loss(logits, tokens, *, shift, normalise, pick, reduce):
    """Mean cross-entropy of logits[:, t] against tokens[:, t + 1]."""
    predictions, targets = shift(logits, tokens)
    return reduce(pick(normalise(predictions), targets), targets)


@next_token_loss.step
def shift(logits, tokens):
    """The logits at position 0 have seen token 0 only. Which token should they predict?"""
    no_shift = (logits, tokens)
    "There is no shift: each position is asked to predict the token that it has just read."
    shift_backwards = (logits[:, 1:], tokens[:, :-1])
    "The shift goes the wrong way: each position is asked for the token *before* it."
    last_dropped = (logits[:, :-1], tokens[:, :-1])
    "The last position is dropped on both sides, and nothing is shifted."
    shift_by_two = (logits[:, :-2], tokens[:, 2:])
    "The shift is by two: each position is asked for the token after the next."
    rolled = (logits, tokens.roll(-1, 1))
    """The tokens are rolled round: the last position is asked to predict token 0 of its sequence. |
    Which token follows the last one? How many predictions can be judged?"""
    shifted_across_sequences = (logits.reshape(-1, logits.shape[-1])[:-1], tokens.reshape(-1)[1:])
    """All sequences are laid end to end before the shift: the last position of each is asked for
    the first token of the next sequence. | Along which axis must the shift happen, and is it still
    there after flattening?"""
    shift_along_batch = (logits[:-1], tokens[1:])
    """The shift goes along the batch (axis 0): sequence 0 is asked for the tokens of sequence 1. |
    Which axis of (B, T) runs along a sequence?"""
    last_prediction_only = (logits[:, -2:-1], tokens[:, -1:])
    """Only the last prediction of each sequence is judged. | From how many positions is a next
    token known?"""
    first_sequence_only = (logits[:1, :-1], tokens[:1, 1:])
    "Only the first sequence of the batch is judged. | What about the other sequences?"
    B, T, V = logits.shape
    late, targets = logits[:, :-1], tokens[:, 1:]
    vocabulary_mixed = (late.reshape(B, V, T - 1).mT, targets)
    """The logits are pressed into (B, V, T) by `view` or `reshape`: that keeps memory's order and
    mixes vocabulary and positions. | Which call exchanges two axes instead of refilling a shape?"""
    return late, targets


@next_token_loss.step
def normalise(logits):
    """Which function takes exp, sum and log at once, and safely?"""
    softmax_twice = logits.softmax(-1).log_softmax(-1)
    """A softmax comes before the cross-entropy, which takes one itself: it is applied twice. | What
    does `cross_entropy` expect, logits or probabilities?"""
    probabilities = logits.softmax(-1)
    """The loss takes probabilities (a softmax) where it needs their logarithms: `nll_loss` does not
    take the logarithm for you. | Cross-entropy is −log p. Where is the log?"""
    raw_logits = logits
    """The loss takes the raw logits for logarithms of probabilities: no softmax has made
    probabilities of them. | What has to happen to logits before −log p means anything?"""
    softmax_over_positions = logits.log_softmax(-2)
    """The softmax runs over the positions, not over the vocabulary. | Among what does the model
    choose, tokens of the vocabulary or places in the sequence?"""
    log_of_softmax = logits.softmax(-1).log()
    """For large logits the loss is ∞: written separately, exp, sum and log leave the range of
    floats. (A softmax becomes exactly 0, and its log −∞; or `exp` overflows.)"""
    naive_probabilities = (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()
    "For large logits the loss is NaN: `exp` of the logits as they are overflows, and ∞/∞ is NaN."
    in_bits = logits.log_softmax(-1) / math.log(2)
    """The logarithm is taken to the base 2: the loss is in bits, 1.44 times too large. |
    Cross-entropy in PyTorch is in nats. Which base is that?"""
    log_of_guarded_softmax = ((logits.softmax(-1) + 10.0**-n).log() for n in range(5, 13))
    """The probabilities are kept away from 0 by a small number before the log: for large logits the
    loss is cut off."""
    log_of_clamped_softmax = (logits.softmax(-1).clamp(10.0**-n).log() for n in range(5, 13))
    "= log_of_guarded_softmax"
    return logits.log_softmax(-1)


@next_token_loss.step
def pick(logs, targets):
    """What does cross-entropy take of the probability of the right token?"""
    right_one = logs.gather(-1, targets[..., None])[..., 0]
    sign_missing = right_one
    """The sign is missing: a log-probability is negative, and a loss should fall as the model
    improves. | Cross-entropy is −log p. Where is the minus?"""
    one_minus_p = 1 - right_one.exp()
    "Each prediction gives 1 − p, where cross-entropy takes −log p."
    accuracy = (logs.argmax(-1) == targets).to(logs.dtype)
    "The share of right guesses (the accuracy) is counted: it has no gradient, and is not a loss."
    return -right_one


@next_token_loss.step
def reduce(losses, targets):
    """By how many predictions should the sum be divided?"""
    total = losses.sum()
    "The losses are added up, not averaged: the loss grows with batch and length."
    per_sequence = losses.sum() / len(targets)
    "The sum is divided by B only: the loss grows with the length."
    divided_by_all = losses.sum() / (targets.shape[0] * (targets.shape[-1] + 1))
    """The sum is divided by B·T, and there are only B·(T−1) predictions. | How many positions have
    a next token?"""
    not_reduced = losses
    """The losses are returned one by one, (B, T−1): they are not averaged. | The exercise asks for
    a scalar. Which call makes one number of them?"""
    zero_is_padding = losses[targets != 0].mean()
    """Targets with token 0 are left out as if they were padding: token 0 is an ordinary token here.
    | Which tokens does the exercise want to be predicted?"""
    kept = targets != 0
    zero_is_guarded = (losses * kept).sum() / kept.sum().clamp(min=1)
    "= zero_is_padding"
    log_of_mean = -losses.neg().exp().mean().log()
    """Mean and logarithm are exchanged: the probabilities are averaged first. | Of what should the
    mean be taken?"""
    perplexity = losses.mean().exp()
    "exp of the loss is returned: that is the perplexity. | Which of the two is asked for?"
    number_only = losses.mean().item()
    """The loss is a Python number (`.item()`, `float` and `tolist` give one): nothing can be
    trained by it, since its gradient is cut off. | On what is `backward()` called afterwards?"""
    return losses.mean()


@next_token_loss.step(at=WHOLE)
def another_loss(logits, tokens):
    """Which function lets them compete?"""
    late, targets = logits[:, :-1], tokens[:, 1:]
    hot = F.one_hot(targets, logits.shape[-1]).to(logits.dtype)
    squared_error = F.mse_loss(late.softmax(-1), hot)
    """The loss is the squared difference between probabilities and one-hot targets: that is a
    regression. | What does cross-entropy take of the probability of the right token?"""
    each_on_its_own = F.binary_cross_entropy_with_logits(late, hot)
    "Every token of the vocabulary is judged on its own, as true or false (binary cross-entropy)."
    averaged_over_vocabulary = -(late.log_softmax(-1) * hot).mean()
    """The losses are averaged over the vocabulary as well: the result is V times too small. | Which
    axis should be summed, and which averaged?"""
    smoothed = F.cross_entropy(late.flatten(0, 1), targets.flatten(), label_smoothing=0.1)
    """The targets are smoothed (`label_smoothing`): the exercise asks for the plain cross-entropy.
    | Which argument of `cross_entropy` does that?"""
