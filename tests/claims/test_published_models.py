"""Notebook 13's lines give what the modules of `transformers` give: random weights, float64."""

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import mutation
from mha_lesson import causal_mask, merge_heads, split_heads

pytestmark = pytest.mark.long
BOOK = Path(__file__).parents[2] / "notebooks/13_todays_models.ipynb"
B, T, WIDTH, HEADS, SHARED, D = 2, 11, 24, 6, 2, 8
POSITIONS = torch.arange(T)


def source_of_the_notebook() -> str:
    """Every function that a cell of the notebook, or the solution of an exercise, defines."""
    cells = json.loads(BOOK.read_text("utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    solutions = [s for text in texts for s in re.findall(r"```python\n(.*?)```", text, re.S)]
    code = [t for t, cell in zip(texts, cells, strict=True) if cell["cell_type"] == "code"]
    given = ast.parse("\n".join(code + solutions))
    wanted = [n for n in given.body if isinstance(n, ast.FunctionDef | ast.Import | ast.ImportFrom)]
    return ast.unparse(ast.Module(wanted, []))


def lines_of_the_notebook(source: str = "") -> SimpleNamespace:
    names: dict[str, Any] = {}
    exec(compile(source or source_of_the_notebook(), str(BOOK), "exec"), names)
    return SimpleNamespace(**names)


class Exact(TorchFunctionMode):
    """Published code rounds norms, angles and softmax to float32; in here it stays in float64."""

    ranked: Tensor  # what was last chosen from

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (Tensor.topk, torch.topk):
            Exact.ranked = args[0]
        if func is Tensor.float:
            func = Tensor.double
        wide = [torch.float64 if a is torch.float32 else a for a in args]
        more = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*wide, **more)


@contextmanager
def exact() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Exact(), torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(before)


def published(model: str, name: str) -> Any:
    """Of a model's module: published("qwen3_next", "modeling.Attention") is Qwen3NextAttention."""
    file, name = name.split(".")
    names = vars(import_module(f"transformers.models.{model}.{file}_{model}"))
    if name in names:
        return names[name]
    [found] = (
        n for n in names if n.replace("_", "").lower() == (model.replace("_", "") + name.lower())
    )
    return names[found]


def settings(model: str, config: str, **more: Any) -> Any:
    sizes = {
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_key_value_heads": SHARED,
        "head_dim": D,
        "num_hidden_layers": 8,
        "attn_implementation": "eager",
    }
    return published(model, f"configuration.{config}")(**(sizes | more))


def turned_in_part(base: float, part: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": part}


def drawn(module: nn.Module, seed: int = 0) -> nn.Module:
    """With every parameter drawn, gains and sinks included."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in module.named_parameters():
        spread = 0.5 if weight.ndim < 2 else 2 * weight.shape[-1] ** -0.5
        weight.copy_(spread * torch.randn(weight.shape, generator=generator))
        if "norm" in name:
            weight.add_(1.0)
    return module.double().eval()


def tokens(T: int = T) -> Tensor:
    return torch.randn(B, T, WIDTH, generator=torch.Generator().manual_seed(3))


def mask(c: Any, x: Tensor, kind: str = "full_attention") -> Tensor:
    """What published code makes for layers of this kind, to be added to the scores."""
    make = import_module("transformers.masking_utils").LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING[kind]
    return make(config=c, inputs_embeds=x, attention_mask=None, cache=None)


def beside_scores(
    mine: Tensor, theirs: Tensor, scores: Tensor, their_scores: Tensor
) -> tuple[Tensor, Tensor]:
    """Both outputs, and beside them the scores by which keys were chosen, where any may be."""
    both = (mine, scores), (theirs, their_scores)
    seen = their_scores > -1e9
    return tuple(torch.cat((out.flatten(), ranks[seen])) for out, ranks in both)


def projected(m: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(split_heads(w(x), w.out_features // D) for w in (m.q_proj, m.k_proj, m.v_proj))


CASES: dict[str, Callable[[Any], tuple[Tensor, Tensor]]] = {}


def case(*names: str) -> Callable:
    """Registers a comparison for each of these modules: ours and theirs, to be equal."""

    def keep(compare: Callable) -> Callable:
        for name in names:
            CASES[name] = lambda ours, name=name: compare(ours, name)
        return compare

    return keep


@case("smollm3", "qwen3", "olmo3", "minimax_m2", "gemma3", "gemma3 local", "gemma2")
def grouped_with_norms(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    model, _, local = name.partition(" ")
    kind = "sliding_attention" if local else "full_attention"
    more = {} if model in ("smollm3", "minimax_m2") else {"layer_types": [kind] * 8}
    more |= {"sliding_window": 4} if local else {}
    more |= {"query_pre_attn_scalar": 20} if "gemma" in model else {}
    part = 4 if model == "minimax_m2" else D
    more |= {"rope_parameters": turned_in_part(5e6, part / D)} if part < D else {}
    text = "Text" if model == "gemma3" else ""
    c = settings(model, f"{text}Config", **more)
    m = drawn(published(model, "modeling.Attention")(c, 0))
    x = tokens()
    rotary = published(model, "modeling.RotaryEmbedding")(c)
    typed = (kind,) if model in ("gemma3", "olmo3") else ()
    cos_sin = rotary(x, POSITIONS[None], *typed)
    blocked = ours.local_mask(T, 4) if local else causal_mask(T)
    theirs = m(x, position_embeddings=cos_sin, attention_mask=mask(c, x, kind))[0]

    rope = c.rope_parameters.get(kind, c.rope_parameters)
    base, q_gain, k_gain = rope["rope_theta"], *gains(m, 1.0 if model == "gemma3" else 0.0)
    eps = c.rms_norm_eps
    if model in ("olmo3", "minimax_m2"):  # a norm over all heads, before they are cut
        q, k = ours.rms(m.q_proj(x), q_gain, eps), ours.rms(m.k_proj(x), k_gain, eps)
        q, k, v = split_heads(q, HEADS), split_heads(k, SHARED), split_heads(m.v_proj(x), SHARED)
    else:
        q, k, v = projected(m, x)
        if q_gain is not None:
            q, k = ours.rms(q, q_gain, eps), ours.rms(k, k_gain, eps)
    q, k = (ours.rotate_part(y, POSITIONS, part, base) for y in (q, k))
    if model == "gemma2":
        q = q * 20**-0.5 * D**0.5
        bare = ours.masked_scores(q, k, torch.zeros(T, T, dtype=torch.bool))
        weights = ours.capped(bare).masked_fill(blocked, -torch.inf).softmax(dim=-1)
        context = weights @ v.repeat_interleave(HEADS // SHARED, dim=1)
    else:
        context = ours.attend(q, k, v, blocked, 20**-0.5 if model == "gemma3" else None)
    return m.o_proj(merge_heads(context)), theirs


def gains(m: Any, plus: float) -> tuple[Tensor | None, Tensor | None]:
    norms = (getattr(m, "q_norm", None), getattr(m, "k_norm", None))
    return tuple(None if n is None else n.weight + plus for n in norms)


@case("gpt_oss", "gpt_oss local")
def sinks(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    kind = "sliding_attention" if "local" in name else "full_attention"
    c = settings("gpt_oss", "Config", layer_types=[kind] * 8, sliding_window=4)
    m = drawn(published("gpt_oss", "modeling.Attention")(c, 0))
    x = tokens()
    blocked = ours.local_mask(T, 4) if "local" in name else causal_mask(T)
    cos_sin = published("gpt_oss", "modeling.RotaryEmbedding")(c)(x, POSITIONS[None])
    theirs = m(x, cos_sin, mask(c, x, kind))[0]

    q, k, v = projected(m, x)
    r = c.rope_parameters
    speed, hot = ours.yarn(D, r["rope_theta"], r["factor"], r["original_max_position_embeddings"])
    q, k = (hot * ours.turned(y, POSITIONS, speed) for y in (q, k))
    weights = ours.with_sink(ours.masked_scores(q, k, blocked), m.sinks)
    return m.o_proj(merge_heads(weights @ v.repeat_interleave(HEADS // SHARED, dim=1))), theirs


MLA = "deepseek_v3, deepseek_v3 absorbed, deepseek_v3 yarn, deepseek_v3 yarn rounded, deepseek_v32"
MLA += ", deepseek_v32 absorbed, glm_moe_dsa, kimi_linear, kimi_linear absorbed"


@case(*MLA.split(", "))
def latents(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    model, _, how = name.partition(" ")
    d, r, dv, dc = 5, 4, 7, 9
    chooses = model in ("deepseek_v32", "glm_moe_dsa")
    more: dict[str, Any] = {"kv_lora_rank": dc, "q_lora_rank": 10, "num_key_value_heads": HEADS}
    more |= {"head_dim": r, "qk_rope_head_dim": r, "qk_nope_head_dim": d, "v_head_dim": dv}
    more |= {"index_topk": 3, "index_head_dim": 6, "index_n_heads": 5} if chooses else {}
    if "yarn" in how:
        more["rope_parameters"] = {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 40.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096,
            "truncate": "rounded" in how,
        }
    c = settings(model, "Config", **more)
    m = drawn(published(model, "modeling.Attention")(c, 0))
    x, blocked = tokens(), causal_mask(T)
    if model == "kimi_linear":
        theirs = m(x, attention_mask=mask(c, x))[0]
    else:
        cos_sin = published(model, "modeling.RotaryEmbedding")(c)(x, POSITIONS[None])
        theirs = m(x, cos_sin, mask(c, x))[0]

    narrow = ours.rms(m.q_a_proj(x), m.q_a_layernorm.weight)
    q, q_rot = split_heads(m.q_b_proj(narrow), HEADS).split((d, r), dim=-1)
    latent, k_rot = m.kv_a_proj_with_mqa(x).split((dc, r), dim=-1)
    latent = ours.rms(latent, m.kv_a_layernorm.weight)
    if "yarn" in how:
        speed, _ = ours.yarn(r, 10_000.0, 40.0, 4096, rounded="rounded" in how)
        evens_first = [0, 2, 1, 3]
        q_rot, k_rot = (ours.turned(y[..., evens_first], POSITIONS, speed) for y in (q_rot, k_rot))
        hot = 1 + 0.1 * torch.tensor(40.0).log()  # on every score, so squared, not on angles
        q, q_rot = q * hot**2, q_rot * hot**2
    elif model != "kimi_linear":
        q_rot, k_rot = ours.rotate_pairs(q_rot, POSITIONS), ours.rotate_pairs(k_rot, POSITIONS)
    if chooses:
        i = m.indexer
        iq, ik = split_heads(i.wq_b(narrow), 5), i.k_norm(i.wk(x))
        if model == "deepseek_v32":
            iq, ik = (ours.rotate_part(y, POSITIONS, r) for y in (iq, ik))
        else:
            iq, ik = (y.roll(-r, -1) for y in (iq, ik))
            iq, ik = (ours.rotate_last(y, POSITIONS, r).roll(r, -1) for y in (iq, ik))
        ranks, chosen_from = ours.index_scores(iq, ik, i.weights_proj(x)), Exact.ranked
        blocked = ours.select_keys(ranks, 3)
    w_uk, w_uv = m.kv_b_proj.weight.view(HEADS, d + dv, dc).split((d, dv), dim=1)
    attention = ours.absorbed if how == "absorbed" else ours.latent
    mine = m.o_proj(merge_heads(attention(q, q_rot, latent, k_rot, w_uk, w_uv, blocked)))
    return beside_scores(mine, theirs, ranks, chosen_from) if chooses else (mine, theirs)


@case("deepseek_v4", "deepseek_v4 compressed", "deepseek_v4 compressed and selected")
def one_tensor(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    kind = {
        "deepseek_v4": "sliding_attention",
        "deepseek_v4 compressed": "heavily_compressed_attention",
    }.get(name, "compressed_sparse_attention")
    d, n, m_rate, window, long = 12, 4, 3, 4, 17
    positions = torch.arange(long)
    c = settings(
        "deepseek_v4",
        "Config",
        head_dim=d,
        q_lora_rank=10,
        o_groups=2,
        o_lora_rank=5,
        num_key_value_heads=1,
        layer_types=[kind] * 8,
        sliding_window=window,
        compress_rates={
            "heavily_compressed_attention": m_rate,
            "compressed_sparse_attention": m_rate,
        },
        partial_rotary_factor=n / d,
        index_topk=2,
        index_n_heads=5,
        index_head_dim=6,
    )
    for rope in ("main", "compress"):
        c.rope_parameters[rope]["partial_rotary_factor"] = n / d
    m = drawn(published("deepseek_v4", "modeling.Attention")(c, 0))
    rotary = published("deepseek_v4", "modeling.RotaryEmbedding")(c)
    x, blocked = tokens(long), ours.local_mask(long, window)
    turns = {
        r: rotary(x, positions[None].expand(B, -1), layer_type=r) for r in ("main", "compress")
    }
    theirs = m(x, turns, positions[None].expand(B, -1), mask(c, x, kind))[0]

    base = () if kind == "sliding_attention" else (160_000.0,)
    narrow = ours.rms(m.q_a_proj(x), m.q_a_norm.weight)
    q = ours.rms(split_heads(m.q_b_proj(narrow), HEADS))
    kv = ours.rms(m.kv_proj(x), m.kv_norm.weight)
    places = positions
    if m.compressor is not None:
        squeeze = ours.compressed if kind.startswith("heavily") else ours.overlapped
        k = m.compressor
        few = squeeze(k.kv_proj(x), k.gate_proj(x), k.position_bias, m_rate)
        kv = torch.cat((kv, ours.rms(few, k.kv_norm.weight)), dim=1)
        starts = m_rate * torch.arange(few.shape[1])
        unready = starts + m_rate > positions[:, None] + 1  # a window is seen when it is whole
        if kind.startswith("compressed"):
            i = k.indexer
            ik = squeeze(i.kv_proj(x), i.gate_proj(x), i.position_bias, m_rate)
            ik = ours.rotate_last(ours.rms(ik, i.kv_norm.weight), starts, n, *base)
            iq = ours.rotate_last(split_heads(i.q_b_proj(narrow), 5), positions, n, *base)
            ranks, chosen_from = ours.index_scores(iq, ik, i.scorer.weights_proj(x)), Exact.ranked
            scores = ranks.masked_fill(unready, -torch.inf)
            chosen = scores.topk(2, dim=-1).indices
            unready = torch.ones_like(scores, dtype=torch.bool).scatter(-1, chosen, False) | unready
        else:
            unready = unready.expand(B, -1, -1)
        blocked = torch.cat((blocked.expand(B, -1, -1), unready), dim=-1)[:, None]
        places = torch.cat((positions, starts))
    context = ours.one_tensor(q, kv[:, None], positions, places, n, m.sinks, blocked, *base)
    grouped = merge_heads(context).unflatten(-1, (2, -1))
    mine = m.o_b_proj(m.o_a_proj(grouped).flatten(2))
    selects = kind == "compressed_sparse_attention"
    return beside_scores(mine, theirs, ranks, chosen_from) if selects else (mine, theirs)


@case("gemma4 local", "gemma4 global", "gemma4 reuse")
def gemma4(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    local = name == "gemma4 local"
    kind = "sliding_attention" if local else "full_attention"
    c = settings(
        "gemma4",
        "TextConfig",
        layer_types=["sliding_attention", "full_attention"] * 4,
        sliding_window=4,
        attention_k_eq_v=name != "gemma4 local",
        num_kv_shared_layers=4,
        full_attention={"head_dim": 2 * D, "num_key_value_heads": SHARED},
    )
    make = published("gemma4", "modeling.TextAttention")
    first = drawn(make(c, 2 if local else 3))
    wide = first.head_dim
    rotary = published("gemma4", "modeling.TextRotaryEmbedding")(c)
    x = tokens()
    cos_sin = rotary(x, POSITIONS[None], kind)
    blocked = ours.local_mask(T, 4) if local else causal_mask(T)
    held: dict[str, Any] = {}
    theirs = first(x, cos_sin, mask(c, x, kind), held)[0]
    last = first
    if name == "gemma4 reuse":
        last = drawn(make(c, 5), seed=1)
        theirs = last(x, cos_sin, mask(c, x, kind), held)[0]

    rope = c.rope_parameters[kind]
    speed = rope["rope_theta"] ** (-torch.arange(0, wide, 2) / wide)
    speed[int(rope.get("partial_rotary_factor", 1.0) * wide // 2) :] = 0.0
    q = ours.rms(last.q_proj(x).unflatten(-1, (HEADS, wide)), last.q_norm.weight).transpose(1, 2)
    k = first.k_proj(x).unflatten(-1, (-1, wide)).transpose(1, 2)
    v = k if first.v_proj is None else first.v_proj(x).unflatten(-1, (-1, wide)).transpose(1, 2)
    k, v = ours.rms(k, first.k_norm.weight), ours.rms(v)
    q, k = ours.turned(q, POSITIONS, speed), ours.turned(k, POSITIONS, speed)
    return last.o_proj(merge_heads(ours.attend(q, k, v, blocked, 1.0))), theirs


@case("qwen3_next", "qwen3_5")
def gates(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    text = "Text" if name == "qwen3_5" else ""
    rope = turned_in_part(1e7, 0.5) | {"mrope_section": [1, 1, 0]}
    c = settings(name, f"{text}Config", rope_parameters=rope)
    m = drawn(published(name, "modeling.Attention")(c, 3))
    x = tokens()
    cos_sin = published(name, f"modeling.{text}RotaryEmbedding")(c)(x, POSITIONS[None])
    theirs = m(x, cos_sin, mask(c, x))[0]

    q, gate = m.q_proj(x).unflatten(-1, (HEADS, 2 * D)).chunk(2, dim=-1)
    k, v = split_heads(m.k_proj(x), SHARED), split_heads(m.v_proj(x), SHARED)
    q_gain, k_gain = gains(m, 1.0)
    q, k = ours.rms(q.transpose(1, 2), q_gain), ours.rms(k, k_gain)
    q, k = (ours.rotate_part(y, POSITIONS, 4, 1e7) for y in (q, k))
    context = merge_heads(ours.attend(q, k, v, causal_mask(T)))
    return m.o_proj(ours.gated(context, gate.flatten(2))), theirs


@case("llama4", "llama4 without positions")
def llama4(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    bare = "without" in name
    c = settings(
        "llama4", "TextConfig", floor_scale=4, no_rope_layers=[1 - bare] * 8, attention_chunk_size=5
    )
    m = drawn(published("llama4", "modeling.TextAttention")(c, 0))
    x = tokens()
    turns = published("llama4", "modeling.TextRotaryEmbedding")(c)(x, POSITIONS[None])
    kind = "full_attention" if bare else "chunked_attention"
    theirs = m(x, turns, mask(c, x, kind))[0]

    blocked = causal_mask(T) if bare else ours.chunk_mask(T, 5)

    q, k, v = projected(m, x)
    if bare:
        later = ours.tempered(q, 2048 * POSITIONS + 2047)  # the published 8,192 for 4
        q = ours.tempered(q, POSITIONS, 4)
        assert torch.equal(q, later)
    else:
        base = c.rope_parameters["rope_theta"]
        q, k = (ours.rms(ours.rotate_pairs(y, POSITIONS, base), eps=c.rms_norm_eps) for y in (q, k))
    return m.o_proj(merge_heads(ours.attend(q, k, v, blocked))), theirs


@case("smollm3 without positions")
def no_places(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    c = settings("smollm3", "Config", no_rope_layers=[0] * 8)
    m = drawn(published("smollm3", "modeling.Attention")(c, 0))
    x = tokens()
    theirs = m(x, None, mask(c, x))[0]
    return m.o_proj(merge_heads(ours.attend(*projected(m, x), causal_mask(T)))), theirs


@case("qwen3_next delta rule", "qwen3_5 delta rule", "kimi_linear delta rule")
def delta_rule(ours: Any, name: str) -> tuple[Tensor, Tensor]:
    model = name.split()[0]
    rule = "recurrent_kimi_delta_attention", "torch_recurrent_gated_delta_rule"
    one = published(model, f"modeling.{rule['kimi' not in model]}")
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(B, T, 3, d, generator=generator) for d in (5, 5, 7))
    g = -torch.rand(B, T, 3, *([5] if "kimi" in model else []), generator=generator)
    beta = torch.rand(B, T, 3, generator=generator)
    more = {"initial_state": None, "output_final_state": False, "use_qk_l2norm_in_kernel": True}
    theirs, _ = one(q, k, v, g=g, beta=beta, **more)

    q, k = (y * (y.pow(2).sum(-1, keepdim=True) + 1e-6).rsqrt() for y in (q, k))
    decay = g.exp() if g.ndim == 4 else g.exp()[..., None]
    S, rows = torch.zeros(B, 3, 5, 7), []
    for t in range(T):
        S, row = ours.delta_step(S, q[:, t] / 5**0.5, k[:, t], v[:, t], beta[:, t], decay[:, t])
        rows.append(row)
    return torch.stack(rows, dim=1), theirs


def far_apart(ours: Any, name: str) -> float:
    with exact():
        mine, theirs = CASES[name](ours)
    assert theirs.dtype == torch.float64 and theirs.abs().mean() > 0.05
    return (mine - theirs).abs().max().item()


@pytest.mark.parametrize("name", CASES)
def test_the_notebooks_lines_are_equal_to_published_code(name: str) -> None:
    pytest.importorskip("transformers", "5.24")
    assert far_apart(lines_of_the_notebook(), name) < 1e-6


def differs(source: str, name: str) -> bool:
    try:
        return not far_apart(lines_of_the_notebook(source), name) < 1e-6
    except Exception:
        return True


def test_each_line_of_the_notebook_that_is_broken_in_one_place_is_caught() -> None:
    """What is left says the same: a row whose gate is −∞ is added, a default is left out."""
    pytest.importorskip("transformers", "5.24")
    source, calling = source_of_the_notebook(), defaultdict(list)
    for name in CASES:
        frames: set[tuple[str, str]] = set()
        sys.setprofile(
            lambda f, *_, seen=frames: seen.add((f.f_code.co_filename, f.f_code.co_name))
        )
        far_apart(lines_of_the_notebook(source), name)
        sys.setprofile(None)
        for file, function in frames:
            calling[function] += [name] * (file == str(BOOK))
    raw, alive, n = source.encode(), [], 0
    for _, where, first, end, _, new in mutation.of_python("", raw):
        broken = (raw[:first] + new.encode() + raw[end:]).decode()
        if names := calling.get(where):
            n += 1
            alive += [where] * (not any(differs(broken, name) for name in names))
    print(f"{n} breaks, {n - len(alive)} caught, the others: {Counter(alive)}")
    assert n > 200 and Counter(alive) == {"yarn": 2, "overlapped": 2, "select_keys": 4}


def test_the_table_in_the_notebook_names_what_is_compared_here() -> None:
    table = re.findall(r'"\| ([a-z0-9_, ]+) \|', BOOK.read_text("utf-8"))
    told = {name for row in table for name in row.split(", ")} - {"module"}
    assert told == {name.split()[0] for name in CASES}
