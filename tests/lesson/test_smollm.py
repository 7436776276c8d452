"""The published writing model in the taught class is the model that its file describes."""

import itertools
import json
import math
import random
import re
import struct
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mha_lesson import rotate, smollm, text
from mha_lesson.weights import WeightsMissing

SIZES = {"N_LAYERS": 2, "D_MODEL": 96, "N_HEADS": 6, "N_KV_HEADS": 2, "D_HIDDEN": 160}


# ---------------------------------------------------------------- a small model in a file


def byte_letters():
    """The letter that stands for each byte in a byte-level table."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in plain else next(others)) for b in range(256)]


MERGES = ["h e", "Ġ t", "Ġt he", "1 2"]
TOKENS = ["<|end|>", "<|start|>", *byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]


def packed(numbers, kind):
    """Quantised bytes of blocks of 32, and the numbers that they stand for, one by one."""
    data, exact = b"", []
    for block in numbers.reshape(-1, 32).tolist():
        if kind == 0:
            data, exact = data + struct.pack("<32f", *block), exact + block
        elif kind == 8:
            [scale] = struct.unpack("<e", struct.pack("<e", max(map(abs, block)) / 127))
            whole = [round(x / scale) for x in block]
            data += struct.pack("<e32b", scale, *(min(127, max(-128, w)) for w in whole))
            exact += [min(127, max(-128, w)) * scale for w in whole]
        else:
            steps = (max(block) - min(block)) / 15, min(block)
            scale, least = struct.unpack("<2e", struct.pack("<2e", *steps))
            whole = [min(15, max(0, round((x - least) / scale))) for x in block]
            halves = [whole[i] | whole[i + 16] << 4 for i in range(16)]
            data += struct.pack("<2e16B", scale, least, *halves)
            exact += [w * scale + least for w in whole]
    return data, torch.tensor(exact, dtype=torch.float64).view(numbers.shape)


def string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def listing(kind, pack, values):
    return struct.pack("<IIQ", 9, kind, len(values)) + b"".join(map(pack, values))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A file as the published one is, of a small random model; and its exact numbers."""
    s, draw = SIZES, torch.Generator().manual_seed(0)
    d, kv = s["D_MODEL"], s["D_MODEL"] // s["N_HEADS"] * s["N_KV_HEADS"]
    shapes = {"token_embd": ((len(TOKENS), d), 8), "output_norm": ((d,), 0)}
    for i in range(s["N_LAYERS"]):
        layer = {
            "attn_norm": (d,),
            "ffn_down": (d, s["D_HIDDEN"]),
            "ffn_gate": (s["D_HIDDEN"], d),
            "ffn_up": (s["D_HIDDEN"], d),
            "ffn_norm": (d,),
            "attn_k": (kv, d),
            "attn_output": (d, d),
            "attn_q": (d, d),
            "attn_v": (kv, d),
        }
        kind = {1: 0, 2: 3}
        shapes |= {f"blk.{i}.{name}": (shape, kind[len(shape)]) for name, shape in layer.items()}
    exact, tensors, data = {}, b"", b""
    for name, (shape, kind) in shapes.items():
        numbers = torch.randn(shape, generator=draw, dtype=torch.float64) * shape[-1] ** -0.5
        block, exact[name] = packed(numbers + (len(shape) == 1), kind)
        sizes = struct.pack(f"<{len(shape)}Q", *shape[::-1])
        tensors += string(f"{name}.weight") + struct.pack("<I", len(shape)) + sizes
        tensors += struct.pack("<IQ", kind, len(data))
        data += block + bytes(-len(block) % 32)
    kinds = [3, 3] + [1] * (len(TOKENS) - 2)
    said = string("general.name") + struct.pack("<I", 8) + string("tiny")
    said += string("llama.rope.freq_base") + struct.pack("<If", 6, 1e5)
    said += string("tokenizer.ggml.tokens") + listing(8, string, TOKENS)
    said += string("tokenizer.ggml.merges") + listing(8, string, MERGES)
    said += string("tokenizer.ggml.token_type") + listing(5, lambda k: struct.pack("<i", k), kinds)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), 5) + said + tensors
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path, exact


@pytest.fixture
def model(published, monkeypatch):
    for name, size in {**SIZES, "N_WORDS": len(TOKENS)}.items():
        monkeypatch.setattr(smollm, name, size)
    monkeypatch.setattr(smollm.Package, "path", lambda *_: published[0])
    return smollm.load()


def reference(exact, ids):
    """A Llama, one query at a time, with neighbours turned as the file's rows are; float64."""
    h, h_kv, d = SIZES["N_HEADS"], SIZES["N_KV_HEADS"], SIZES["D_MODEL"]
    d_k = d // h

    def normed(x, gain):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain

    def turned(row, t):
        angles = torch.tensor([t * 100_000.0 ** (-2 * i / d_k) for i in range(d_k // 2)])
        pairs = torch.view_as_complex(row.view(-1, d_k // 2, 2).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(1)

    x = exact["token_embd"][ids]
    for i in range(SIZES["N_LAYERS"]):
        own = {n.split(".")[-1]: w for n, w in exact.items() if n.startswith(f"blk.{i}.")}
        y = normed(x, own["attn_norm"])
        q, k, v = (y @ own[f"attn_{one}"].T for one in "qkv")
        rows = []
        for t in range(len(ids)):
            keys = torch.stack([turned(k[s], s) for s in range(t + 1)])  # (t + 1, h_kv, d_k)
            heads = []
            for head, one in enumerate(turned(q[t], t)):
                group = head * h_kv // h
                weights = (keys[:, group] @ one / math.sqrt(d_k)).softmax(0)
                heads.append(weights @ v[: t + 1].view(t + 1, h_kv, d_k)[:, group])
            rows.append(torch.cat(heads))
        x = x + torch.stack(rows) @ own["attn_output"].T
        y = normed(x, own["ffn_norm"])
        gate = y @ own["ffn_gate"].T
        x = x + (gate * torch.sigmoid(gate) * (y @ own["ffn_up"].T)) @ own["ffn_down"].T
    return normed(x, exact["output_norm"]) @ exact["token_embd"].T


def test_it_computes_what_the_file_describes(published, model):
    with torch.device("cpu"):
        torch.set_default_dtype(torch.float64)
        try:
            expected = reference(published[1], ids := model.encode("the 12 cats, the é!")[0])
        finally:
            torch.set_default_dtype(torch.float32)
    assert (model(ids[None])[0] - expected).abs().max() < 1e-4


def test_every_number_of_the_file_is_read_exactly(published, model):
    assert torch.equal(model.words.double(), published[1]["token_embd"].float().double())
    names = {"up": "ffn_up", "attention.w_o": "attn_output", "norm_1": "attn_norm"}
    for ours, theirs in names.items():
        numbers, exact = model.layers[1].get_submodule(ours).weight, published[1][f"blk.1.{theirs}"]
        assert (numbers.double() - exact).abs().max() < 1e-6


# ---------------------------------------------------------------- its use


def test_a_text_comes_back_from_its_pieces(model):
    said = "the 12 cats"
    ids = model.encode(said)
    assert model.pieces(ids[0]) == ["t", "he", " ", "1", "2", " ", "c", "a", "t", "s"]
    assert model.pieces(model.encode("<|end|> the")[0]) == ["<|end|>", " the"]
    assert "".join(model.pieces(ids[0])) == said
    assert model.pieces(model.encode("é")[0]) == ["\ufffd"] * 2


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_with_the_cache_and_without_it_writes_the_same(model, temperature):
    def written(seed, cached):
        return "".join(model.write("the é", 30, temperature, seed, cached))

    assert written(3, True) == written(3, False)
    assert (written(3, True) == written(4, True)) == (temperature == 0)


def test_a_sign_of_several_pieces_is_shown_whole(model, monkeypatch):
    signs = iter([*model.encode("aé€b")[0].tolist(), 0])
    monkeypatch.setattr(smollm, "choose", lambda *_: next(signs))
    assert [*model.write("x", 8)] == ["a", "é", "€", "b"]


class Own(nn.Module):
    """What exercise 23 asks for, written plainly."""

    def __init__(self, d_model, n_heads, n_kv_heads, base):
        super().__init__()
        self.h, self.h_kv, self.base, d_kv = (
            n_heads,
            n_kv_heads,
            base,
            d_model * n_kv_heads // n_heads,
        )
        self.w_q, self.w_o = (nn.Linear(d_model, d_model, bias=False) for _ in range(2))
        self.w_k, self.w_v = (nn.Linear(d_model, d_kv, bias=False) for _ in range(2))

    def forward(self, x, cache=None):
        q = self.w_q(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
        k, v = (w(x).unflatten(-1, (self.h_kv, -1)).transpose(1, 2) for w in (self.w_k, self.w_v))
        n_old = 0 if cache is None else cache[0].shape[2]
        at = torch.arange(n_old, n_old + x.shape[1])
        q, k = rotate(q, at, self.base), rotate(k, at, self.base)
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        blocked = torch.ones(x.shape[1], k.shape[2]).triu(n_old + 1).bool()
        shared = (y.repeat_interleave(self.h // self.h_kv, 1) for y in (k, v))
        z = F.scaled_dot_product_attention(q, *shared, ~blocked)
        return self.w_o(z.transpose(1, 2).flatten(2)), (k, v)


def test_a_class_of_ones_own_in_all_layers_writes_the_same(model):
    own, ids = model.with_attention(Own), model.encode("the 12 cats, the")
    assert torch.allclose(own(ids), model(ids), atol=1e-5)
    assert [*own.write("the cat", 20)] == [*model.write("the cat", 20)]
    assert [*own.write("the cat", 9, cached=False)] == [*model.write("the cat", 9)]
    assert own.words is model.words and own.layers[1].up.weight is model.layers[1].up.weight
    with pytest.raises(TypeError, match="another attention already"):
        own.with_attention(Own)


class NoCache(Own):
    def forward(self, x, cache=None):
        return super().forward(x, cache)[0]


class Narrow(Own):
    def forward(self, x, cache=None):
        return super().forward(x, cache)[0][..., :5], None


class SharesNone(Own):
    def __init__(self, d_model, n_heads, *_):
        super().__init__(d_model, n_heads, n_heads, 1.0)


def test_bad_arguments_are_refused(model):
    ids = model.encode("x")
    for call, told in (
        (lambda: model.encode(""), "text must be 1 to 8192 pieces"),
        (lambda: model(torch.tensor([[len(TOKENS)]])), "ids must lie between"),
        (lambda: model(ids, [None]), "caches must be 2"),
        (lambda: [*model.write("x", -1)], "n_more must be"),
        (lambda: [*model.write("x", 1, -1.0)], "temperature must be"),
        (lambda: smollm.choose(torch.zeros(3), math.nan), "temperature must be"),
        (lambda: model.with_attention(lambda *_: nn.Linear(3, 3)), "w_q must be nn.Linear"),
        (lambda: model.with_attention(SharesNone), r"w_k must be nn.Linear \(32, 96\)"),
        (lambda: model.with_attention(NoCache)(ids), r"must give \(output, cache\)"),
        (lambda: model.with_attention(Narrow)(ids), r"output must be \(1, 1, 96\)"),
    ):
        with pytest.raises((TypeError, ValueError), match=told):
            call()


def test_draws_are_in_proportion_and_greedy_takes_the_largest():
    scores, generator = torch.tensor([1.0, 3.0, 2.0]), torch.Generator().manual_seed(0)
    assert smollm.choose(scores) == 1
    for temperature in (0.5, 1.0, 2.0):
        drawn = [smollm.choose(scores, temperature, generator) for _ in range(4000)]
        shares = torch.tensor(drawn).bincount(minlength=3) / 4000
        assert (shares - (scores / temperature).softmax(0)).abs().max() < 0.03


def test_loading_leaves_random_numbers_as_they_are(model):
    before = torch.get_rng_state()
    [*smollm.load().write("x", 2, 1.0)]
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(p.requires_grad or p.is_meta for p in model.parameters())


# ---------------------------------------------------------------- the published file


@pytest.fixture(scope="module")
def real():
    try:
        return smollm.load()
    except WeightsMissing as missing:
        pytest.skip(str(missing))


PEAK = """
from mha_lesson import smollm
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
before, model = peak(), smollm.load()
print((peak() - before) / sum(4 * p.numel() for p in model.parameters()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_loading_takes_hardly_more_memory_than_the_numbers(real):
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.15


def test_the_capital_of_france(real):
    assert "".join(real.write("The capital of France is", 2)) == " Paris."


WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def ids_by_the_rules(rules, said):
    """In plain Python: digits are single, then GPT-2's words, then the earliest merge first."""
    rank, letters, ids = rules["rank"], byte_letters(), []
    for part in re.split(r"(\d)", said):
        for word in WORD.findall(part) if not part.isdigit() else [part]:
            units = [letters[b] for b in word.encode()]
            while pairs := [p for p in itertools.pairwise(units) if p in rank]:
                best, merged = min(pairs, key=rank.get), []
                while units:
                    n = 2 if tuple(units[:2]) == best else 1
                    merged, units = [*merged, "".join(units[:n])], units[n:]
                units = merged
            ids += [rules["vocab"][unit] for unit in units]
    return ids


def test_pieces_are_those_of_the_published_rules(real):
    """Of 200 lines of a novel, and of a hundred mixtures of signs of all kinds."""
    rules = json.loads(real.tokenizer.to_str())["model"]
    rules["rank"] = {tuple(pair): i for i, pair in enumerate(rules["merges"])}
    draw = random.Random(0)
    signs = "abcÉßж漢字👍🏽é  \n\t'’s123.,!?_-#§ don't I'll" + "".join(
        map(chr, range(0x3A0, 0x3FF))
    )
    texts = [*filter(None, text.northanger_abbey().splitlines())][:2000:10]
    texts += ["".join(draw.choices(signs, k=draw.randrange(1, 60))) for _ in range(100)]
    for said in texts:
        assert real.encode(said)[0].tolist() == ids_by_the_rules(rules, said), said
        assert "".join(real.tokenizer.decode(real.encode(said)[0].tolist())) == said


@pytest.mark.long
def test_it_is_the_published_architecture_to_rounding(real):
    """Beside `transformers`, with the file's numbers; its rows of q and k turn in halves, too."""
    transformers = pytest.importorskip("transformers", reason="a maintainer's dependency")
    config = transformers.LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    state = {"model.embed_tokens.weight": real.words, "model.norm.weight": real.norm.weight}
    for i, layer in enumerate(real.layers):
        q, k, v = layer.attention.w_qkv.weight.split(layer.attention.parts)
        names = {
            "self_attn.q_proj": q,
            "self_attn.k_proj": k,
            "self_attn.v_proj": v,
            "self_attn.o_proj": layer.attention.w_o.weight,
            "mlp.gate_proj": layer.gate.weight,
            "mlp.up_proj": layer.up.weight,
            "mlp.down_proj": layer.down.weight,
            "input_layernorm": layer.norm_1.weight,
            "post_attention_layernorm": layer.norm_2.weight,
        }
        state |= {f"model.layers.{i}.{name}.weight": weight for name, weight in names.items()}
    left = theirs.load_state_dict(state, strict=False)
    assert left.missing_keys == ["lm_head.weight"] and not left.unexpected_keys
    theirs.tie_weights()
    ids = real.encode(text.northanger_abbey()[3000:4200])[:, :256]
    with torch.no_grad():
        assert (theirs(ids).logits - real(ids)).abs().max() < 1e-4
