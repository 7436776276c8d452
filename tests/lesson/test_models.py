"""The small models: shapes, what each position may see, and that the parts are the taught ones."""

import pytest
import torch
from torch import nn

from mha_lesson.models import LanguageModel, RepeatModel, TwoSidesModel, bigram_log_probabilities


class TestRepeatModel:
    def test_its_weights_are_the_ones_it_reads_with(self):
        model, ids = RepeatModel(11, 7, 6, 2), torch.randint(11, (5, 7))
        weights = model.weights(ids)
        assert weights.shape == (5, 2, 7, 7) and (weights.triu(1) == 0).all()
        x = model.id_embedding.weight[ids] + model.position_embedding.weight
        values = model.attention.w_qkv(x)[..., 12:].view(5, 7, 2, 3)  # rows q, k, v
        context = torch.einsum("bhqk,bkhd->bqhd", weights, values).flatten(2)
        torch.testing.assert_close(model(ids), model.reader(model.attention.w_o(context)))


class TestTwoSidesModel:
    def test_as_many_parameters_for_every_h(self):
        models = [TwoSidesModel(h) for h in (1, 2, 4, 8, 16, 32)]
        counts = {sum(p.numel() for p in model.parameters()) for model in models}
        assert counts == {4 * 32 * 32 + 4 * 32 + (12 + 16) * 32 + 2 * (32 * 16 + 16)}

    def test_equals_the_formula(self):
        """o = Σ_heads softmax(P W_Q (P W_K)ᵀ / √d_k) L W_V W_O, positions P, letters L."""
        torch.manual_seed(5)
        model = TwoSidesModel(3, n_letters=7, n_tokens=5, d_model=6).double()
        letters = torch.randint(7, (11, 5))
        P, L = model.position_embedding.weight, model.letter_embedding.weight
        w_q, w_k, w_v = model.attention.w_qkv.weight.split(6)
        for name, parameter in model.attention.named_parameters():
            assert "bias" not in name or (parameter == 0).all()
        gathered = torch.zeros(11, 5, 6, dtype=torch.float64)
        for head in range(3):
            rows = slice(2 * head, 2 * head + 2)
            scores = (P @ w_q[rows].T) @ (P @ w_k[rows].T).T / 2**0.5
            weights = scores.softmax(-1)
            torch.testing.assert_close(model.weights()[head], weights)
            slab = model.attention.w_o.weight[:, rows]
            gathered += torch.einsum("qk,bkd->bqd", weights, L[letters] @ w_v[rows].T @ slab.T)
        expected = torch.stack([model.read_left(gathered), model.read_right(gathered)], dim=2)
        torch.testing.assert_close(model(letters), expected)


class TestLanguageModel:
    def test_equals_pytorchs_block(self):
        model, ids = LanguageModel(13, 11, 6, 3), torch.randint(13, (2, 7))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        block = nn.TransformerEncoderLayer(
            6, 3, 24, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        block.self_attn = model.attention.to_torch()
        block.norm1, block.norm2 = model.norm_before_attention, model.norm_before_feed_forward
        block.linear1, block.linear2 = model.feed_forward[0], model.feed_forward[2]
        x = model.symbol_embedding.weight[ids] + model.position_embedding.weight[:7]
        later, normed = torch.ones(7, 7).triu(1).bool(), block.norm1(x)
        expected = model.reader(model.norm_before_reader(block(x, src_mask=later)))
        torch.testing.assert_close(model(ids), expected, atol=1e-4, rtol=1e-4)
        shares = block.self_attn(*3 * [normed], attn_mask=later, average_attn_weights=False)[1]
        torch.testing.assert_close(model.weights(ids), shares, atol=1e-4, rtol=1e-4)

    def test_continues_what_it_is_given(self):
        model, start = LanguageModel(13, 5, 6, 3), torch.tensor([3, 1, 4])
        state = torch.random.get_rng_state()
        first = model.continue_ids(start, 17, seed=2)
        assert first.shape == (20,) and torch.equal(first[:3], start)
        assert torch.equal(first, model.continue_ids(start, 17, seed=2))
        assert not torch.equal(first, model.continue_ids(start, 17, seed=3))
        assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize(("n_tokens", "dtype"), [(1, None), (5, None), (9, None), (9, torch.half)])
def test_near_zero_temperature_takes_the_likeliest(n_tokens, dtype):
    """After the end of a long text; the last position never had an answer to learn from."""
    model, ids = LanguageModel(13, n_tokens, 6, 3).to(dtype), torch.tensor([3, 1, 4])
    known = max(1, n_tokens - 1)
    model.position_embedding.weight.data[known:] = torch.nan
    for symbol in model.continue_ids(ids, 5, temperature=1e-5)[3:]:
        assert symbol == model(ids[None, -known:])[0, -1].argmax()
        ids = torch.cat([ids, symbol[None]])


def test_a_language_models_embeddings_start_small():
    model = LanguageModel(100, 100)
    for embedding in (model.symbol_embedding, model.position_embedding):
        assert embedding.weight.std().item() == pytest.approx(0.1, rel=0.05)


def test_bigrams_against_a_loop():
    ids = torch.randint(5, (211,))
    table = bigram_log_probabilities(ids, 7)
    pairs = list(zip(ids.tolist(), ids[1:].tolist(), strict=False))
    for i in range(7):
        total = sum(a == i for a, _ in pairs) + 7
        for j in range(7):
            expected = torch.tensor((pairs.count((i, j)) + 1) / total).log()
            torch.testing.assert_close(table[i, j], expected)
