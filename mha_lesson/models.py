"""What is built around the taught class: models small enough to train while you watch.

What does not fit (ids of another shape, too many of them, or outside the vocabulary) is refused
with a TypeError or ValueError that says why.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mha_lesson import refusals
from mha_lesson.attention import MultiHeadAttention
from mha_lesson.decoding import GroupedQueryAttention, KVCache
from mha_lesson.refusals import MOST, describe

# ---------------------------------------------------------------- tasks


class RepeatModel(nn.Module):
    """Names the next id of a row: embeddings, causal attention, a linear reader.

    No residual path leads around the attention: all that the reader gets comes out of it.
    """

    def __init__(
        self, n_ids: int = 64, n_tokens: int = 12, d_model: int = 32, n_heads: int = 4
    ) -> None:
        """Args: n_ids: the size of the vocabulary; n_tokens: T, how many positions there are."""
        super().__init__()
        refusals.require_sizes(n_ids=n_ids, n_tokens=n_tokens, d_model=d_model, n_heads=n_heads)
        self.id_embedding = nn.Embedding(n_ids, d_model)
        self.position_embedding = nn.Embedding(n_tokens, d_model)
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.reader = nn.Linear(d_model, n_ids)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T n_ids"]:
        """Scores for the next id at every position."""
        return self.reader(self.attention(self._embed(ids), causal=True))

    @torch.no_grad()
    def weights(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B h T T"]:
        """Where every head looks while it reads these ids."""
        return self.attention(self._embed(ids), causal=True, return_weights=True)[1]

    def _embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T d_model"]:
        positions = _positions("ids", ids, self.id_embedding, self.position_embedding)
        return self.id_embedding(ids) + positions


class TwoSidesModel(nn.Module):
    """Names the letter on the left *and* the one on the right of every position.

    Queries and keys are made from positions only, values from letters only: where a head looks
    cannot depend on what stands there. The two readers are linear and share what they read.
    """

    def __init__(
        self, n_heads: int, *, n_letters: int = 16, n_tokens: int = 12, d_model: int = 32
    ) -> None:
        """Args: n_heads: h, the one thing that matters here; the others: sizes."""
        super().__init__()
        refusals.require_sizes(
            n_heads=n_heads, n_letters=n_letters, n_tokens=n_tokens, d_model=d_model
        )
        self.position_embedding = nn.Embedding(n_tokens, d_model)
        self.letter_embedding = nn.Embedding(n_letters, d_model)
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.read_left, self.read_right = (nn.Linear(d_model, n_letters) for _ in range(2))

    def forward(self, letters: Int[Tensor, "B T"]) -> Float[Tensor, "B T 2 n_letters"]:
        """Scores for the letter on the left, [:, :, 0], and on the right, [:, :, 1]."""
        positions = _positions("letters", letters, self.letter_embedding, self.position_embedding)
        positions = positions.expand(len(letters), -1, -1)
        gathered = self.attention(positions, positions, self.letter_embedding(letters))
        return torch.stack([self.read_left(gathered), self.read_right(gathered)], dim=2)

    @torch.no_grad()
    def weights(self) -> Float[Tensor, "h T T"]:
        """Where every head looks: the same for all rows, since positions alone decide it."""
        positions = self.position_embedding.weight
        return self.attention(positions, return_weights=True)[1]


# ---------------------------------------------------------------- text


def _feed_forward(d_model: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
    )


class LanguageModel(nn.Module):
    """A language model of one block, its norms before its parts (Xiong et al., 2020)."""

    def __init__(
        self, n_symbols: int, n_tokens: int = 48, d_model: int = 64, n_heads: int = 4
    ) -> None:
        """Args: n_symbols: the size of the alphabet; n_tokens: T, how far it can look back."""
        super().__init__()
        refusals.require_sizes(
            n_symbols=n_symbols, n_tokens=n_tokens, d_model=d_model, n_heads=n_heads
        )
        d_model = int(d_model)
        self.n_tokens = n_tokens
        self.symbol_embedding = nn.Embedding(n_symbols, d_model)
        self.position_embedding = nn.Embedding(n_tokens, d_model)
        self.norm_before_attention = nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.norm_before_feed_forward = nn.LayerNorm(d_model)
        self.feed_forward = _feed_forward(d_model)
        self.norm_before_reader = nn.LayerNorm(d_model)
        self.reader = nn.Linear(d_model, n_symbols)
        for embedding in (self.symbol_embedding, self.position_embedding):
            nn.init.normal_(embedding.weight, std=0.1)  # small beside what the block will add

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T n_symbols"]:
        """Scores for the next symbol at every position; no position sees a later one."""
        x = self._embed(ids)  # (B, T, d_model)
        x = x + self.attention(self.norm_before_attention(x), causal=True)
        x = x + self.feed_forward(self.norm_before_feed_forward(x))
        return self.reader(self.norm_before_reader(x))

    @torch.no_grad()
    def weights(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B h T T"]:
        """Where every head looks while it reads these ids."""
        x = self.norm_before_attention(self._embed(ids))
        return self.attention(x, causal=True, return_weights=True)[1]

    @torch.no_grad()
    def continue_ids(
        self, ids: Int[Tensor, " T0"], n_more: int, *, temperature: float = 1.0, seed: int = 0
    ) -> Int[Tensor, " T1"]:
        """The beginning `ids`, and n_more symbols, each drawn from what the model says; on the CPU.

        A temperature below 1 prefers likely symbols more strongly; it must be above 0.
        """
        refusals.require_ids("ids", ids, 1, "(T0,)", self.symbol_embedding.num_embeddings)
        if len(ids) == 0:
            raise ValueError(f"ids must hold at least one symbol; got {describe(ids)}.")
        refusals.require_whole("n_more", n_more, 0, MOST)
        refusals.require_positive("temperature", temperature)
        refusals.require_seed(seed)
        device = self.reader.weight.device
        generator = torch.Generator().manual_seed(int(seed))
        text = ids.cpu()
        scale = max(float(temperature), 1e-6)  # below, scores overflow
        # Training asks nothing of the last position, so its vector has not learned.
        n_back = max(1, self.n_tokens - 1)
        for _ in range(n_more):
            scores = self(text[None, -n_back:].to(device))[0, -1].cpu().float() / scale
            text = torch.cat([text, torch.multinomial(scores.softmax(-1), 1, generator=generator)])
        return text

    def _embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T d_model"]:
        positions = _positions("ids", ids, self.symbol_embedding, self.position_embedding)
        return self.symbol_embedding(ids) + positions


class Writer(nn.Module):
    """`LanguageModel`'s block with rotated positions and a cache, to write one letter at a time."""

    def __init__(
        self,
        n_symbols: int,
        n_heads: int = 4,
        n_kv_heads: int = 4,
        d_model: int = 48,
        *,
        d_k: int | None = None,
    ) -> None:
        """Args: n_symbols: the alphabet's size; the others: as `GroupedQueryAttention`."""
        super().__init__()
        refusals.require_sizes(n_symbols=n_symbols, d_model=d_model)
        d_model = int(d_model)
        self.embedding = nn.Embedding(n_symbols, d_model)
        self.attention = GroupedQueryAttention(
            d_model, n_heads, n_kv_heads, d_k=d_k, rope_base=100.0
        )
        self.feed_forward = _feed_forward(d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))
        self.reader = nn.Linear(d_model, n_symbols)
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(
        self, ids: Int[Tensor, "B T"], cache: KVCache | None = None
    ) -> Float[Tensor, "B T n_symbols"]:
        """Scores for the next symbol at every position; a cache holds all earlier ones."""
        refusals.require_ids("ids", ids, 2, "(B, T)", self.embedding.num_embeddings)
        x = self.embedding(ids)  # (B, T, d_model)
        x = x + self.attention(self.norms[0](x), cache)
        x = x + self.feed_forward(self.norms[1](x))
        return self.reader(self.norms[2](x))


def bigram_log_probabilities(
    ids: Int[Tensor, " N"], n_symbols: int
) -> Float[Tensor, "{n_symbols} {n_symbols}"]:
    """The model to beat: how often each symbol followed each other one, and nothing else.

    Row i, column j is log P(next is j | this is i) in the text `ids`, with one added to every
    count, so that no pair is impossible.
    """
    refusals.require_sizes(n_symbols=n_symbols)
    refusals.require_ids("ids", ids, 1, "(N,)", n_symbols)
    n_symbols = int(n_symbols)
    pairs = ids[:-1].long() * n_symbols + ids[1:]
    counts = torch.bincount(pairs, minlength=n_symbols**2).view(n_symbols, n_symbols) + 1
    return (counts / counts.sum(dim=1, keepdim=True)).log()


def _positions(
    name: str, ids: Tensor, symbols: nn.Embedding, positions: nn.Embedding
) -> Float[Tensor, "T d_model"]:
    """The vectors of positions 0 … T - 1; ids or positions that are not known are refused."""
    refusals.require_ids(name, ids, 2, "(B, T)", symbols.num_embeddings)
    if ids.shape[1] > (n := positions.num_embeddings):
        raise ValueError(f"{name} must have T of at most n_tokens = {n}; got {describe(ids)}.")
    return positions.weight[: ids.shape[1]]


# ---------------------------------------------------------------- the pretrained encoder


class _EncoderLayer(nn.Module):
    """Attention, then two linear layers; each adds to its input, and a LayerNorm follows."""

    def __init__(self, d_model: int, n_heads: int, d_hidden: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.norm_1 = nn.LayerNorm(d_model, eps=1e-12)
        self.widen = nn.Linear(d_model, d_hidden)
        self.narrow = nn.Linear(d_hidden, d_model)
        self.norm_2 = nn.LayerNorm(d_model, eps=1e-12)

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> tuple[Float[Tensor, "B T d_model"], Float[Tensor, "B h T T"] | None]:
        if not return_weights:
            return self.after(x, self.attention(x, mask=mask)), None
        update, weights = self.attention(x, mask=mask, return_weights=True)
        return self.after(x, update), weights

    def after(self, x: Tensor, update: Tensor) -> Float[Tensor, "B T d_model"]:
        """What leaves the layer, where attention has made `update` of x."""
        x = self.norm_1(x + update)
        return self.norm_2(x + self.narrow(F.gelu(self.widen(x))))


class Encoder(nn.Module):
    """BERT's encoder (Devlin et al., 2019) around the taught class, in MiniLM's sizes."""

    def __init__(
        self,
        n_layers: int = 6,
        d_model: int = 384,
        n_heads: int = 12,
        d_hidden: int = 1536,
        n_words: int = 30522,
        n_positions: int = 512,
    ) -> None:
        super().__init__()
        refusals.require_sizes(n_layers=n_layers, n_words=n_words, n_positions=n_positions)
        refusals.require_sizes(d_model=d_model, n_heads=n_heads, d_hidden=d_hidden)
        self.words = nn.Embedding(n_words, d_model)
        self.positions = nn.Embedding(n_positions, d_model)
        self.segments = nn.Embedding(2, d_model)
        self.norm = nn.LayerNorm(d_model, eps=1e-12)
        self.layers = nn.ModuleList(
            _EncoderLayer(d_model, n_heads, d_hidden) for _ in range(n_layers)
        )

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T d_model"]:
        """What enters the first layer: word, position and segment 0, added and normalised."""
        positions = _positions("ids", ids, self.words, self.positions)
        return self.norm(self.words(ids) + positions + self.segments.weight[0])

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        return_weights: bool = False,
    ) -> list[Tensor] | tuple[list[Tensor], list[Tensor]]:
        """Every hidden state (B, T, d_model), the embeddings first, so n_layers + 1 of them.

        With `return_weights` also every layer's weights, (B, h, T, T). `mask`: True = blocked, as
        for `MultiHeadAttention`; a `padding_mask` where lengths differ.
        """
        hidden, weights = [self.embed(ids)], []
        for layer in self.layers:
            x, layer_weights = layer(hidden[-1], mask, return_weights)
            hidden.append(x)
            weights.append(layer_weights)
        return (hidden, weights) if return_weights else hidden


def attentions_of(model: nn.Module) -> list[MultiHeadAttention]:
    """Every MultiHeadAttention in a model, in its order."""
    return [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
