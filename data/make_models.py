"""Makes models.json: what the attention of published models keeps and computes, layer by layer.

Needs transformers (pinned in constraints.txt); loads no weights and needs no network:

    .venv/bin/python data/make_models.py

A configuration class's defaults are a published model's, or a smaller one's, or nobody's. Where
they are not those of the model named, others are given here. `second` says where the numbers were
looked up once more.
"""

import json
from pathlib import Path
from typing import Any

import transformers

TYPES = {
    "sliding_attention": "L",
    "full_attention": "G",
    "linear_attention": "S",
    "chunked_attention": "C",
}


def config(name: str, **given: Any) -> Any:
    return getattr(transformers, name)(**given)


def maxtext(name: str) -> str:
    """Google's copy of a model's sizes, made for other code than the class's."""
    return f"AI-Hypercomputer/maxtext, src/maxtext/configs/models/{name}.yml"


def kind(name: str, places: str, project: int, decode: int, **more: Any) -> dict[str, Any]:
    """A kind of layer, in numbers and multiply-adds.

    A token sees the last `near` tokens (in a piece of so many, with `chunk`), and a row for every
    `far` tokens, of these the `most` with the highest score (0: all; `scan` to score one). Kept are
    `kept_near` and `kept_far` numbers for each such row, and `state` whatever the length. Computed
    are `project` for a token, and `prefill` or `decode` for each row that it sees.
    """
    rest = dict(near=0, chunk=False, far=0, most=0, scan=0, kept_near=0, kept_far=0, state=0)
    sees = {"prefill": decode, "decode": decode}
    return {"name": name, "places": places, "project": project} | sees | rest | more


def shared(
    d: int,
    h: int,
    h_kv: int,
    d_k: int,
    places: str,
    near: int = 0,
    *,
    chunk: bool = False,
    gate: bool = False,
    own: int = 2,
) -> dict[str, Any]:
    """h query heads over h_kv heads; `own`: how many of k and v a layer projects itself."""
    name = ("in pieces" if chunk else "local" if near else "global") + ", reused" * (own == 0)
    kept, sees = 2 * h_kv * d_k if own else 0, {"near": near, "chunk": chunk}
    sees = sees | {"kept_near": kept} if near else {"far": 1, "kept_far": kept}
    return kind(name, places, d * d_k * (h * (2 + gate) + own * h_kv), 2 * h * d_k, **sees)


def sizes(c: Any) -> tuple[int, int, int, int]:
    d, h = c.hidden_size, c.num_attention_heads
    return d, h, c.num_key_value_heads, getattr(c, "head_dim", None) or d // h


def latent(c: Any, places: str) -> dict[str, Any]:
    """MLA. In prefill keys and values are made for each head, in decode they are absorbed."""
    d, h, rank, wide = c.hidden_size, c.num_attention_heads, c.kv_lora_rank, c.v_head_dim
    nope, rope, q_rank = c.qk_nope_head_dim, c.qk_rope_head_dim, c.q_lora_rank
    project = q_rank * (d + h * (nope + rope)) if q_rank else d * h * (nope + rope)
    project += d * (rank + rope) + h * rank * (nope + wide) + h * wide * d
    kept, more = rank + rope, {}
    if most := getattr(c, "index_topk", 0):
        scan = c.index_n_heads * c.index_head_dim
        project += q_rank * scan + d * (c.index_head_dim + c.index_n_heads)
        kept, more = kept + c.index_head_dim, {"most": most, "scan": scan}
    return kind(
        "latent" + ", selected" * bool(more),
        places,
        project,
        h * (2 * rank + rope),
        far=1,
        prefill=h * (nope + rope + wide),
        kept_far=kept,
        **more,
    )


def in_blocks(c: Any, places: str) -> dict[str, Any]:
    """MiniMax-M3: each key head sees the newest block and those with the highest scores.

    `most` rows when the newest block is full, and fewer while it is written.
    """
    scan, made = c.index_n_heads * c.index_head_dim, shared(*sizes(c), places)
    made["name"] = f"blocks of {c.index_block_size} selected"
    made["project"] += c.hidden_size * (scan + c.index_head_dim)
    made["kept_far"] += c.index_head_dim
    return made | {"most": c.index_topk_blocks * c.index_block_size, "scan": scan}


def one_tensor(c: Any, every: int = 0, *, select: bool = False) -> dict[str, Any]:
    """DeepSeek-V4: one row is key and value; a window, and a row for `every` so many tokens."""
    d, h, d_k, index = c.hidden_size, c.num_attention_heads, c.head_dim, c.index_head_dim
    project = c.q_lora_rank * (d + h * d_k) + d * d_k + c.o_lora_rank * (h * d_k + c.o_groups * d)
    name, more, turned = "local", {}, "a part turned" + " (YaRN)" * bool(every)
    if every:
        name, more = "compressed", {"far": every, "kept_far": d_k}
        project += 2 * d * d_k * (1 + select)
    if select:
        name, scan = "compressed, selected", c.index_n_heads * index
        more |= {"most": c.index_topk, "kept_far": d_k + index, "scan": scan}
        project += 4 * d * index + c.q_lora_rank * scan + d * c.index_n_heads
    return kind(
        name,
        f"{turned}, turned back in values",
        project,
        2 * h * d_k,
        near=c.sliding_window,
        kept_near=d_k,
        **more,
    )


def linear(
    d: int, keys: int, values: int, d_k: int, d_v: int, conv: int, gates: int
) -> dict[str, Any]:
    """A state (values, d_k, d_v) that does not grow, and the last inputs of a short convolution."""
    width, state = 2 * keys * d_k + values * d_v, values * d_k * d_v
    project = d * (width + values * d_v) + gates + width * conv + 4 * state  # in, out, a step
    return kind("linear", "by the order of the steps", project, 0, state=state + width * (conv - 1))


# fmt: off
def models() -> list[list[Any]]:
    """Each: name, published, kinds of layers, which layer is of which, the class, second source."""
    full, quarter = "all turned", "a quarter turned"
    near, far = "all turned, θ = 10,000", "all turned, θ = 1,000,000, places / 8"
    c = config("LlamaConfig")
    made = [["Llama 2 7B", "2023-07", {"G": shared(*sizes(c), full)}, "G" * c.num_hidden_layers,
             "LlamaConfig", maxtext("llama2-7b")]]
    c = config("MistralConfig")
    made += [["Mistral 7B v0.1", "2023-09", {"L": shared(*sizes(c), full, c.sliding_window)},
              "L" * c.num_hidden_layers, "MistralConfig", "Jiang and others 2023, table 1"]]
    c = config("DeepseekV3Config")
    part = "a part, shared by all heads, YaRN"
    made += [["DeepSeek-V3", "2024-12", {"M": latent(c, part)}, "M" * c.num_hidden_layers,
              "DeepseekV3Config", maxtext("deepseek3-671b")]]
    c = config("DeepseekV32Config")
    made += [["DeepSeek-V3.2", "2025-12", {"M": latent(c, part)}, "M" * c.num_hidden_layers,
              "DeepseekV32Config", maxtext("deepseek3.2-671b")]]
    c = config("Qwen3Config", num_hidden_layers=36, num_key_value_heads=8)
    made += [["Qwen3 8B", "2025-04", {"G": shared(*sizes(c), full)}, "G" * 36,
              "Qwen3Config, with 36 layers and h_kv 8", maxtext("qwen3-8b")]]
    c = config("MiniMaxM2Config")
    made += [["MiniMax-M2", "2025-10", {"G": shared(*sizes(c), "half turned")},
              "G" * c.num_hidden_layers, "MiniMaxM2Config",
              "huggingface.co/MiniMaxAI/MiniMax-M2, config.json"]]
    c = config("MiniMaxM3VLTextConfig")
    kinds = {"G": shared(*sizes(c), "half turned"), "B": in_blocks(c, "half turned")}
    made += [["MiniMax-M3", "2026-06", kinds, "GGG" + "B" * 57,
              "MiniMaxM3VLTextConfig, all but three layers selecting (its default has none)",
              "lablup/mlxcel#799: shapes of its weights, places; ggml-org/llama.cpp#24908: blocks"]]
    c = config("SmolLM3Config")
    kinds = {"G": shared(*sizes(c), full), "N": shared(*sizes(c), "none")}
    made += [["SmolLM3 3B", "2025-07", kinds,
              "".join("NG"[turned] for turned in c.no_rope_layers), "SmolLM3Config",
              "microscale.academy: layers, heads and the pattern"]]
    for name, published, cls, given, local, whole, second in (
        ("Gemma 2 2B", "2024-07", "Gemma2Config", {}, full, full, maxtext("gemma2-2b")),
        ("Gemma 3 4B", "2025-03", "Gemma3TextConfig",
         {"num_hidden_layers": 34, "hidden_size": 2560, "sliding_window": 1024}, near, far,
         maxtext("gemma3-4b")),
        ("gpt-oss 120B", "2025-08", "GptOssConfig", {}, "all turned, YaRN", "all turned, YaRN",
         maxtext("gpt-oss-120b")),
        ("OLMo 3 7B", "2025-11", "Olmo3Config", {}, full, "all turned, YaRN",
         maxtext("olmo3-7b")),
        ("Llama 4 Scout", "2025-04", "Llama4TextConfig", {}, f"{full}, NTK by parts", "none",
         maxtext("llama4-17b-16e")),
    ):
        c = config(cls, **given)
        piece = getattr(c, "attention_chunk_size", 0)
        seen = shared(*sizes(c), local, piece or c.sliding_window, chunk=bool(piece))
        kinds = {"C" if piece else "L": seen, "G": shared(*sizes(c), whole)}
        said = ", ".join((cls, *(f"{k} {v:,}" for k, v in given.items())))
        made += [[name, published, kinds, "".join(TYPES[t] for t in c.layer_types), said, second]]
    for name, published, cls, second in (
        ("Qwen3-Next 80B-A3B", "2025-09", "Qwen3NextConfig", maxtext("qwen3-next-80b-a3b")),
        ("Qwen3.5 9B", "2026-03", "Qwen3_5TextConfig", maxtext("qwen3.5-9b")),
    ):
        c = config(cls)
        d, heads, d_v = c.hidden_size, c.linear_num_value_heads, c.linear_value_head_dim
        state = linear(d, c.linear_num_key_heads, heads, c.linear_key_head_dim, d_v,
                       c.linear_conv_kernel_dim, d * (heads * d_v + 2 * heads))
        kinds = {"S": state, "G": shared(*sizes(c), quarter, gate=True)}
        made += [[name, published, kinds, "".join(TYPES[t] for t in c.layer_types), cls, second]]
    c = config("KimiLinearConfig")
    d, heads, d_v = c.hidden_size, c.linear_num_heads, c.linear_head_dim
    gates = 2 * d_v * (d + heads * d_v) + d * heads  # two of low rank, and β
    state = linear(d, heads, heads, d_v, d_v, c.linear_conv_kernel_dim, gates)
    kinds = {"S": state, "M": latent(c, "none")}
    made += [["Kimi Linear 48B-A3B", "2025-10", kinds, "SSSM" * 6 + "SSM",
              "KimiLinearConfig, its own seven layers of MLA (the class's default has six)",
              "NVIDIA-NeMo/Automodel#3243 prints its modules; config.json as public code has it"]]
    kinds = {"L": shared(5376, 32, 16, 256, near, 1024),
             "G": shared(5376, 32, 4, 512, quarter, own=1)}
    made += [["Gemma 4 31B", "2026-04", kinds, "LLLLLG" * 10,
              "Gemma4TextConfig, with 60 layers, 32 heads, h_kv 16 and 4, a window of 1,024",
              maxtext("gemma4-31b")]]
    e2b = (1536, 8, 1)
    kinds = {"L": shared(*e2b, 256, near, 512), "G": shared(*e2b, 512, quarter),
             "l": shared(*e2b, 256, near, 512, own=0), "g": shared(*e2b, 512, quarter, own=0)}
    made += [["Gemma 4 E2B", "2026-04", kinds, "LLLLG" * 3 + "llllg" * 4,
              "Gemma4TextConfig, 35 layers, d_model 1,536, h_kv 1; 20 layers reuse",
              maxtext("gemma4-e2b")]]
    c = config("DeepseekV4Config")
    kinds = {"L": one_tensor(c), "S": one_tensor(c, 4, select=True), "H": one_tensor(c, 128)}
    made += [["DeepSeek-V4 Flash", "2026-04", kinds, "LL" + "SH" * 20 + "S",
              "DeepseekV4Config, its two first layers local (the class's default has none)",
              maxtext("deepseek4-284b")]]
    return made
# fmt: on


if __name__ == "__main__":
    names = ("name", "published", "kinds", "pattern", "from", "second")
    rows = [dict(zip(names, row, strict=True)) for row in models()]
    rows.sort(key=lambda row: row["published"])
    for row in rows:
        assert set(row["pattern"]) == set(row["kinds"]), row["name"]
    text = json.dumps(
        {"transformers": transformers.__version__, "models": rows}, indent=1, ensure_ascii=False
    )
    Path(__file__).with_name("models.json").write_text(text + "\n", encoding="utf-8")
