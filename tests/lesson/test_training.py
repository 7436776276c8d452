"""The loop, what it keeps, and what the trained heads can and cannot do."""

import copy
import math
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import parametrizations, prune

from mha_lesson import MultiHeadAttention, causal_mask
from mha_lesson.models import LanguageModel, RepeatModel, TwoSidesModel
from mha_lesson.tasks import both_sides, letter_batches, repeat_batches, text_batches
from mha_lesson.training import (
    next_token_loss,
    predict_next,
    side_accuracy,
    silence_head,
    train,
    two_sides_loss,
    two_sides_runs,
    weight_by_offset,
    with_uniform_attention,
)

LETTERS = next(letter_batches(500, seed=99))


def short_run(n_steps=5, seed=0, **settings):
    torch.manual_seed(seed)
    model = RepeatModel(7, 5, 6, 2)
    batches = repeat_batches(3, 5, 7, seed=seed)
    return train(model, batches, predict_next, n_steps=n_steps, learning_rate=1e-2, **settings)


def interrupted(loss, call):
    """The loss, but for its nth call, which is interrupted."""
    calls = iter(range(call - 1))

    def stopped(*args):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return loss(*args)

    return stopped


class TestTrain:
    @pytest.mark.parametrize("decay", [True, False])
    def test_equals_adam_written_out(self, decay):
        """In float64, where the key bias, whose gradient is zero, does not learn from noise."""
        torch.manual_seed(0)
        model, losses = RepeatModel(7, 5, 6, 2).double(), []
        settings = {"n_steps": 5, "learning_rate": 1e-2, "decay": decay}
        run = train(copy.deepcopy(model), repeat_batches(3, 5, 7), predict_next, **settings)
        moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
        for step, batch in zip(range(5), repeat_batches(3, 5, 7), strict=False):
            value = predict_next(model, batch)
            losses.append(value.item())
            gradients = torch.autograd.grad(value, list(model.parameters()))
            rate = 1e-2 * (1 - step / 5 if decay else 1)
            for p, g, (m, v) in zip(model.parameters(), gradients, moments, strict=True):
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                mean, square = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
                p.data -= rate * mean / (square.sqrt() + 1e-8)
        assert run.losses == pytest.approx(losses, rel=1e-9)
        for ours, theirs in zip(run.model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)

    def test_snapshots_are_the_run_as_it_was(self):
        run = short_run(7, snapshot_every=3)
        assert sorted(run.snapshots) == [0, 3, 6, 7]
        torch.manual_seed(0)
        for ours, fresh in zip(
            run.at(0).parameters(), RepeatModel(7, 5, 6, 2).parameters(), strict=True
        ):
            assert torch.equal(ours, fresh)
        for ours, last in zip(run.at(7).parameters(), run.model.parameters(), strict=True):
            assert torch.equal(ours, last)
        before = [
            predict_next(run.at(step), batch).item()
            for step, batch in enumerate(islice(repeat_batches(3, 5, 7), 7))
            if step in run.snapshots
        ]
        assert before == pytest.approx([run.losses[step] for step in (0, 3, 6)])

    def test_an_interrupt_keeps_the_run(self, capsys):
        torch.manual_seed(0)
        model, batches = RepeatModel(7, 5, 6, 2), repeat_batches(3, 5, 7)
        how = {"n_steps": 9, "learning_rate": 1e-2, "decay": False, "snapshot_every": 2}
        run = train(model, batches, interrupted(predict_next, 4), **how)
        assert not run.finished and run.losses == short_run(3, decay=False).losses
        assert sorted(run.snapshots) == [0, 2, 3]
        assert "Stopped after 3 of 9 steps" in capsys.readouterr().out

    def test_an_error_is_not_swallowed(self):
        with pytest.raises(ZeroDivisionError):
            train(RepeatModel(), repeat_batches(), lambda *_: 1 / 0, n_steps=2, learning_rate=1)

    def test_the_same_on_every_device(self, device):
        """Weights and data are drawn on the CPU: only the arithmetic differs."""
        torch.manual_seed(0)
        model = RepeatModel(7, 5, 6, 2).to(device)
        run = train(model, repeat_batches(3, 5, 7), predict_next, n_steps=5, learning_rate=1e-2)
        assert run.losses == pytest.approx(short_run().losses, abs=1e-4)

    @pytest.mark.plain
    def test_a_loss_of_several_numbers_is_refused(self):
        model, batches = torch.nn.Linear(2, 2), [torch.zeros(3, 2)]
        with pytest.raises(TypeError, match=r"scalar tensor .* shape \(3, 2\)"):
            train(model, batches, lambda model, x: model(x), n_steps=1, learning_rate=1e-2)


def test_next_token_loss_against_a_loop():
    logits, tokens = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    losses = [-logits[b, t].log_softmax(-1)[tokens[b, t + 1]] for b in range(3) for t in range(4)]
    torch.testing.assert_close(next_token_loss(logits, tokens), torch.stack(losses).mean())
    torch.testing.assert_close(
        next_token_loss(logits, tokens.int()), next_token_loss(logits, tokens)
    )


class TestTwoSides:
    @pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
    def test_loss_against_a_loop(self, sides):
        model = TwoSidesModel(2, n_letters=7, n_tokens=5, d_model=6)
        letters = torch.randint(7, (3, 5))
        log_p = model(letters).log_softmax(-1)
        losses = [
            -log_p[b, t, side, letters[b, t + (-1, 1)[side]]]
            for b in range(3)
            for t in range(1, 4)
            for side in sides
        ]
        for given in (letters, letters.int()):
            loss = two_sides_loss(model, given, sides)
            torch.testing.assert_close(loss, torch.stack(losses).mean())

    def test_accuracy_of_a_model_that_always_repeats_the_left_letter(self):
        class Left(torch.nn.Linear):  # whose parameters play no part
            def forward(self, letters):
                scores = F.one_hot(letters.roll(1, dims=1), 16).float()
                return torch.stack([scores, scores], dim=2)

        answers = both_sides(LETTERS)
        same = (answers[..., 0] == answers[..., 1]).float().mean().item()
        assert side_accuracy(Left(1, 1), LETTERS) == pytest.approx((1.0, same, 0.0))

    def test_an_interrupt_keeps_the_finished_runs(self, monkeypatch, capsys):
        monkeypatch.setattr("mha_lesson.training.two_sides_loss", interrupted(two_sides_loss, 8))
        runs = two_sides_runs(1, range(5), n_steps=3)
        assert len(runs) == 2 and all(run.finished for run in runs)
        assert "Stopped after 1 of 3" in capsys.readouterr().out

    def test_weights_and_letters_are_drawn_from_the_seed(self):
        for seed, run in zip((5, 7), two_sides_runs(2, (5, 7), n_steps=1), strict=True):
            torch.manual_seed(seed)
            fresh = TwoSidesModel(2)
            first = two_sides_loss(fresh, next(letter_batches(seed=seed))).item()
            assert run.losses == pytest.approx([first])

    def test_another_default_device_changes_nothing_and_no_random_number_is_taken(self):
        state = torch.random.get_rng_state()
        [run] = two_sides_runs(2, [7], n_steps=2)
        with torch.device("meta"):
            [elsewhere] = two_sides_runs(2, [7], n_steps=2)
        assert elsewhere.losses == run.losses
        assert torch.equal(state, torch.random.get_rng_state())


class TestAskingTheHeads:
    def test_uniform_attention_is_uniform_and_leaves_the_rest(self):
        model = LanguageModel(7, 5, 6, 3)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        before = copy.deepcopy(model.state_dict())
        uniform = with_uniform_attention(model)
        ids = torch.randint(7, (2, 5))
        expected = (~causal_mask(5)).float()
        expected /= expected.sum(-1, keepdim=True)
        torch.testing.assert_close(uniform.weights(ids), expected.expand(2, 3, 5, 5))
        assert not torch.allclose(model.weights(ids), uniform.weights(ids))
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, before[name])
            rows = slice(12, None) if "w_qkv" in name else slice(None)
            assert torch.equal(uniform.state_dict()[name][rows], tensor[rows])

    @pytest.mark.parametrize("bias", [True, False])
    def test_uniform_attention_stays_uniform_while_the_rest_learns(self, bias):
        torch.manual_seed(0)
        model = LanguageModel(7, 5, 6, 3)
        model.attention = MultiHeadAttention(6, 3, bias=bias)
        uniform = with_uniform_attention(model)
        before = copy.deepcopy(uniform.attention.w_qkv)
        train(uniform, repeat_batches(3, 5, 7), predict_next, n_steps=5, learning_rate=1e-2)
        for ours, old in zip(
            uniform.attention.w_qkv.parameters(), before.parameters(), strict=True
        ):
            assert (ours[:12] == 0).all() and not torch.equal(ours[12:], old[12:])

    def test_a_silent_head_is_one_left_out_of_the_sum(self):
        model, x = (
            torch.nn.ModuleList(MultiHeadAttention(6, 3) for _ in range(2)),
            torch.randn(2, 5, 6),
        )
        silent, attention = silence_head(model, 1, layer=1), model[1]
        assert torch.equal(silent[0](x), model[0](x))
        q, k, v = attention.w_qkv(x).chunk(3, dim=-1)
        expected = attention.w_o.bias.expand(2, 5, 6).clone()
        for head in (0, 2):
            own = slice(2 * head, 2 * head + 2)
            scores = q[..., own] @ k[..., own].mT / math.sqrt(2)
            expected += scores.softmax(-1) @ v[..., own] @ attention.w_o.weight[:, own].T
        torch.testing.assert_close(silent[1](x), expected)
        assert not torch.allclose(attention(x), expected)

    @pytest.mark.plain
    def test_a_head_that_is_not_there_is_named(self):
        with pytest.raises(ValueError, match=r"^head must be a whole number from 0 to 3; got 4\.$"):
            silence_head(RepeatModel(), 4)

    @pytest.mark.plain
    def test_weights_made_from_others_are_not_written_into(self):
        for changed, made_of in (
            (lambda layer: prune.l1_unstructured(layer, "weight", 6), "bias, weight_orig"),
            (parametrizations.weight_norm, "bias, parametrizations.weight.original0"),
            (lambda layer: parametrizations.weight_norm(layer, "bias", None), "weight"),
        ):
            for name, call in (
                ("w_o", lambda model: silence_head(model, 0)),
                ("w_qkv", with_uniform_attention),
            ):
                changed(getattr((model := RepeatModel()).attention, name))
                with pytest.raises(ValueError, match=f"^model must .* its {name} as .* {made_of}"):
                    call(model)

    @pytest.mark.parametrize("offsets", [(-3, 0, 2), (-1,), (0,), (1,), (2, 4), (-1, -5), (10,)])
    def test_weight_by_offset_against_a_loop(self, offsets):
        weights = torch.rand(2, 3, 11, 11)
        queries = [t for t in range(11) if all(0 <= t + offset < 11 for offset in offsets)]
        for i, offset in enumerate(offsets):
            mean = sum(weights[:, :, t, t + offset] for t in queries) / len(queries)
            torch.testing.assert_close(weight_by_offset(weights, offsets)[..., i], mean)


def test_a_language_model_learns():
    """On a text that repeats itself every 13 letters a bigram is lost, and attention is not."""
    period = torch.tensor([0, 1, 0, 2, 1, 1, 2, 0, 0, 2, 2, 1, 0])
    text = period.repeat(40)
    torch.manual_seed(0)
    run = train(
        LanguageModel(3, 16, 16, 2),
        text_batches(text, 16, 16),
        predict_next,
        n_steps=150,
        learning_rate=1e-2,
    )
    late = run.model(text[None, :16])[:, 8:]
    assert F.cross_entropy(late[0, :-1], text[9:16]) < 0.1
