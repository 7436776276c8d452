"""Two published checkers of "write multi-head attention", run on the mistakes of shipped.toml.

    pip install torchleet==0.1.0 torch-judge==0.1.1
    python tools/judges.py > data/judges.tsv

A row for each mistake, and for the right class first: what each checker's first failing check is
called, or nothing where all of them pass. Each class is rewritten for the checker's signature.
"""

import re

import torch

from mha_course import shipped


def for_torchleet(cls):
    """A function that calls the class; there True in a mask means that a token is seen."""

    def multi_head_attention(q, k, v, num_heads, d_model, mask=None):
        return cls(d_model, num_heads)(q, None if mask is None else ~mask)

    return multi_head_attention


def for_torch_judge(source):
    """A class with `W_q`, `W_k`, `W_v`, `W_o` that is given queries, keys and values."""
    source = re.sub(r"\bw_([qkvo])\b", r"W_\1", source).replace("n_heads):", "num_heads):", 1)
    source = source.replace("= n_heads", "= num_heads").replace(
        "x, mask=None", "x, K, V, mask=None"
    )
    for layer, name in (("k", "K"), ("v", "V")):
        source = re.sub(rf"(W_{layer}\((?:self\.W_k\()?)x\b", rf"\1{name}", source)
        source = re.sub(rf"({layer} = .*)x\.view\(B, T", rf"\1{name}.view(B, -1", source)
    source = re.sub(r"(W_[kv]\(.*\.view\(B, (?:h, )?)T", r"\1-1", source)
    turned = "x, mask = x.transpose(0, 1), None"
    source = source.replace(turned, f"{turned}; K, V = K.transpose(0, 1), V.transpose(0, 1)")
    namespace = {}
    exec(shipped.IMPORTS + source, namespace)
    return namespace["Attention"]


def first_of_torchleet(cls):
    from torchleet.runner import PASS, run

    results = run("multi-head-attention", {"multi_head_attention": for_torchleet(cls)})
    return next((name for name, status, _ in results if status != PASS), "")


def first_of_torch_judge(source):
    from torch_judge.tasks import get_task

    for test in get_task("mha")["tests"]:
        try:
            exec(test["code"].replace("{fn}", "MultiHeadAttention"),
                 {"MultiHeadAttention": for_torch_judge(source)})  # fmt: skip
        except Exception:
            return test["name"].lower()
    return ""


def main():
    torch.set_num_threads(1)
    print("mistake", "torchleet 0.1.0", "torch-judge 0.1.1", sep="\t")
    rows = [("right", shipped.right(), shipped.ATTENTION)]
    rows += [(b.name, b.build, b.source) for b in shipped.bugs().values() if b.base == "Attention"]
    for name, cls, source in rows:
        print(name, first_of_torchleet(cls), first_of_torch_judge(source), sep="\t")


if __name__ == "__main__":
    main()
