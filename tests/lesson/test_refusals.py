"""Bad input gets a sentence of ours: the argument, what was expected, what came."""

import itertools
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from mha_lesson import (
    GroupedQueryAttention,
    MultiHeadAttention,
    causal_mask,
    merge_heads,  # noqa: F401, a row calls it
    padding_mask,
    rotate,
    scaled_dot_product_attention,
    split_heads,
)

pytestmark = pytest.mark.plain  # our refusals, not those of the annotations' checker


def x(*sizes, **kwargs):
    return torch.zeros(sizes, **kwargs)


def blocked(*sizes, **kwargs):
    return torch.zeros(sizes, dtype=torch.bool, **kwargs)


def attend(*args, **kwargs):
    return scaled_dot_product_attention(*args, **kwargs)


def mha(*args, **kwargs):
    """A call of a module with d_model = 6 and h = 2."""
    return MultiHeadAttention(6, 2)(*args, **kwargs)


def fitting(**changes):
    """A call of the function whose three inputs fit, but for `changes`."""
    inputs = {name: x(2, 3, 5, 7) for name in ("query", "key", "value")}
    return attend(**(inputs | changes))


def copied(**options):
    return MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 2, **options))


class WithMore(nn.MultiheadAttention):
    """Computes with what PyTorch's class has not, as torch.ao's quantizable one does."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gate = nn.Linear(6, 6)

    def forward(self, *inputs, **options):
        output, weights = super().forward(*inputs, **options)
        return self.gate(output), weights


CONVENTION = "True means blocked | F.scaled_dot_product_attention | keep"

# What is called, what it raises, and phrases of its sentence.
REFUSED = """
# Sizes of a module
MultiHeadAttention(0, 1)  # ValueError: d_model | positive | 0
MultiHeadAttention(True, 1)  # TypeError: d_model | bool True
MultiHeadAttention(2 ** 31, 2)  # ValueError: d_model | at most 2147483647 | 2147483648
MultiHeadAttention(10, 3)
    # ValueError: d_model | divisible by n_heads | d_model = 10 | n_heads = 3 | remainder of 1
MultiHeadAttention(6, 2, dropout=1.0)  # ValueError: dropout | [0, 1) | 1.0
MultiHeadAttention(6, 2, dropout=float("nan"))  # ValueError: dropout | nan
MultiHeadAttention(6, 2, bias=None)  # TypeError: bias | NoneType
# Inputs of a module
mha([1.0])  # TypeError: query | (B, T_q, d_model) | list [1.0]
mha(x(6))  # ValueError: query | (B, T_q, d_model) | (6,)
mha(x(2, 3, 5, 6))  # ValueError: query | (2, 3, 5, 6)
mha(x(2, 5, 7))  # ValueError: query | d_model = 6 | (2, 5, 7)
mha(x(2, 5, 6), x(2, 5, 6), x(2, 5, 7))  # ValueError: value | d_model = 6 | (2, 5, 7)
mha(x(2, 5, 6, dtype=torch.float64))
    # TypeError: query | dtype | torch.float32 | torch.float64 | (2, 5, 6)
mha(x(2, 5, 6), x(3, 5, 6))  # ValueError: query and key | batch size | (2, 5, 6) | (3, 5, 6)
mha(x(2, 5, 6), x(2, 5, 6), x(3, 5, 6))  # ValueError: query and value | (2, 5, 6) | (3, 5, 6)
mha(x(2, 5, 6), x(5, 6))  # ValueError: query and key | or neither | (2, 5, 6) | (5, 6)
mha(x(2, 5, 6), x(2, 7, 6), x(2, 11, 6))  # ValueError: key and value | T_k | (2, 7, 6) | (2, 11, 6)
mha(x(2, 5, 6), x(2, 7, 6), causal=True)  # ValueError: causal | T_q = 5 | T_k = 7 | mask
mha(x(2, 5, 6), causal=1)  # TypeError: causal | True or False | int 1
mha(x(2, 5, 6), mask=x(5, 5))  # TypeError: mask | bool | torch.float32 | (5, 5) | {convention}
mha(x(2, 5, 6), mask=x(5, 5, dtype=torch.long))
    # TypeError: mask | bool | torch.int64 | {convention}
mha(x(2, 5, 6), mask=blocked(5, 7))
    # ValueError: mask | (5, 5) | (2, 5, 5) | (2, 2, 5, 5) | (5, 7) | {convention}
mha(x(2, 5, 6), mask=blocked(3, 5, 5))  # ValueError: mask | (2, 5, 5) | (3, 5, 5)
mha(x(2, 5, 6), mask=blocked(2, 3, 5, 5))  # ValueError: mask | (2, 2, 5, 5) | (2, 3, 5, 5)
mha(x(2, 5, 6), mask=blocked(1, 5, 5))  # ValueError: mask | (1, 5, 5)
# The function
fitting(query=x(2, 3, 5, 7, dtype=torch.long))  # TypeError: query | floating-point | torch.int64
fitting(query=x(7))  # ValueError: query | 2, 3 or 4 axes | (7,)
fitting(key=x(3, 5, 7))  # ValueError: query and key | axes before | (2, 3, 5, 7) | (3, 5, 7)
fitting(value=x(2, 3, 5, 7, dtype=torch.float64))
    # TypeError: value | dtype of query | torch.float32 | torch.float64
fitting(key=x(1, 3, 5, 7))  # ValueError: query and key | batch B | (2, 3, 5, 7) | (1, 3, 5, 7)
fitting(value=x(2, 1, 5, 7))  # ValueError: query and value | heads h | (2, 1, 5, 7)
fitting(key=x(2, 3, 5, 11))  # ValueError: query and key | d_k | (2, 3, 5, 7) | (2, 3, 5, 11)
attend(x(5, 0), x(5, 0), x(5, 7))  # ValueError: query and key | d_k > 0 | (5, 0)
fitting(value=x(2, 3, 11, 7))  # ValueError: key and value | T_k | (2, 3, 5, 7) | (2, 3, 11, 7)
fitting(return_weights=1)  # TypeError: return_weights | int 1
attend(x(5, 7), x(5, 7), x(5, 7), blocked(2, 5, 5))  # ValueError: mask | (1, 5, 5) | (2, 5, 5)
attend(x(2, 5, 7), x(2, 5, 7), x(2, 5, 7), blocked(2, 3, 5, 5))
    # ValueError: mask | (2, 1, 5, 5) | (2, 3, 5, 5)
# Heads
split_heads(x(5, 6), 2)  # ValueError: x | 3 axes, (B, T, h*d_k) | (5, 6)
merge_heads(x(2, 5, 6))  # ValueError: x | 4 axes, (B, h, T, d_k) | (2, 5, 6)
# Masks
causal_mask(0)  # ValueError: n_tokens | positive | 0
causal_mask(5, "nowhere")  # ValueError: device must | 'nowhere'
padding_mask(torch.tensor([1.0, 2.0]))  # TypeError: lengths | integers | torch.float32 | (2,)
padding_mask([True])  # TypeError: lengths | torch.bool
padding_mask(["a"])  # TypeError: lengths | list ['a']
padding_mask(3)  # ValueError: lengths | (B,)
padding_mask([[1, 2]])  # ValueError: lengths | (1, 2)
padding_mask(x(0, dtype=torch.long), 5)  # ValueError: lengths | B > 0 | (0,)
padding_mask([3, -1], 5)  # ValueError: lengths | n_tokens = 5 | [3, -1]
padding_mask([3, 6], 5)  # ValueError: lengths | n_tokens = 5 | 6
padding_mask([0], 0)  # ValueError: n_tokens | positive | 0
padding_mask([0, 0])  # ValueError: n_tokens must be given | [0, 0]
padding_mask(x(2, dtype=torch.long, device="meta"))  # ValueError: n_tokens | meta
# To and from PyTorch
MultiHeadAttention.from_torch(nn.Linear(6, 6))  # TypeError: other | nn.MultiheadAttention | Linear
copied(kdim=5, vdim=7)  # ValueError: other | embed_dim = 6 | kdim = 5 | vdim = 7
copied(add_bias_kv=True)  # ValueError: other | add_bias_kv
copied(add_zero_attn=True)  # ValueError: other | add_zero_attn
MultiHeadAttention.from_torch(WithMore(6, 2))
    # ValueError: other | nn.MultiheadAttention | gate.bias | gate.weight
MultiHeadAttention(6, 2, d_k=5).to_torch()
    # ValueError: n_heads * d_k = d_model | 2 * 5 | d_model = 6
# Slips that are common
mha(x(2, 3, 6), causal_mask(3))  # TypeError: key | pass it as mask=… | {convention}
mha(x(2, 6, 6), causal_mask(6))  # TypeError: key | pass it as mask=… | {convention}
attend(x(3, 3), x(3, 3), causal_mask(3))  # TypeError: value | pass it as mask=…
MultiHeadAttention(2**31 - 1, 1)  # ValueError: d_model * n_heads * d_k | at most
GroupedQueryAttention(2**31 - 1, 1, 1)  # ValueError: d_model * n_heads * d_k | at most
GroupedQueryAttention(12, 4, 2, rope_base=1e4)  # ValueError: d_k | even | 3
split_heads(x(1, 2, 7), 3)  # ValueError: width of x | divisible by n_heads
mha(x(2, 3, 6), attn_mask=None)  # TypeError: attn_mask | PyTorch's | write mask
mha(x(2, 3, 6), need_weights=True)  # TypeError: need_weights | write return_weights
attend(*[x(2, 3, 6)] * 3, is_causal=True)  # TypeError: is_causal | write causal
GroupedQueryAttention(6, 2, 1)(x(2, 3, 6), attn_mask=None)  # TypeError: attn_mask | write mask
"""


def refused():
    for row in REFUSED.replace("\n    #", "  #").splitlines():
        call, _, said = row.partition("  # ")
        if said:
            yield pytest.param(call, *said.split(": ", 1), id=call)


@pytest.mark.parametrize(("call", "kind", "said"), [*refused()])
def test_refused(call, kind, said):
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call)
    assert caught.type.__name__ == kind
    message = str(caught.value)
    for phrase in said.replace("{convention}", CONVENTION).split(" | "):
        whole_words = rf"(?<!\w){re.escape(phrase)}(?!\w)"
        assert re.search(whole_words, message), f"{phrase!r} is missing: {message}"
    assert message[-1] in ".)" and "\n" not in message, f"one sentence or two: {message}"
    assert "mha_lesson" in caught.traceback[-1].path.parts, "raised by this package"


def test_nested_and_sparse_tensors_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls nested tensors a prototype
        rows = [x(3, 6), x(5, 6)]
        odd = [torch.nested.nested_tensor(rows, layout=how) for how in (None, torch.jagged)]
        odd.append(x(2, 5, 6).to_sparse())
        calls = {
            "query": (mha, lambda q: attend(q, q, q)),
            "key": (lambda k: mha(x(2, 5, 6), k), lambda k: attend(x(2, 5, 6), k, k)),
            "x": (lambda y: split_heads(y, 2), lambda y: rotate(y, torch.arange(5))),
            "mask": (lambda m: mha(x(2, 5, 6), mask=m.bool()),),
        }
        for name, several in calls.items():
            for call, given in itertools.product(several, odd):
                with pytest.raises(TypeError, match=rf"^{name} must be a dense .*(nested|sparse)"):
                    call(given)


def test_a_long_value_is_cut_short():
    with pytest.raises(TypeError) as caught:
        MultiHeadAttention(list(range(1000)), 2)
    assert len(str(caught.value)) < 150 and "..." in str(caught.value)


def test_numpy_numbers_are_numbers():
    sizes = {"d_k": np.int8(6), "rope_base": np.float32(100), "window": np.int8(3)}
    made = GroupedQueryAttention(np.int8(100), np.int32(4), np.int64(2), **sizes)
    taken = made.d_model, made.n_heads, made.n_kv_heads, made.d_k, made.window, *made.parts
    assert taken == (100, 4, 2, 6, 3, 24, 12, 12) and {type(n) for n in taken} == {int}
    assert type(made.rope_base) is float and made(torch.randn(2, 5, 100)).shape == (2, 5, 100)
    mha = MultiHeadAttention(np.int64(6), np.int32(2), d_k=np.int64(5), dropout=np.float32(0.5))
    assert {type(size) for size in (mha.d_model, mha.n_heads, mha.d_k)} == {int}
    assert type(mha.dropout) is float
    assert mha(torch.randn(2, 3, 6)).shape == (2, 3, 6)
    assert MultiHeadAttention(np.int64(6), np.int32(2))(torch.randn(3, 6)).shape == (3, 6)
    assert split_heads(torch.randn(2, 3, 6), np.int64(2)).shape == (2, 2, 3, 3)
    assert causal_mask(np.int64(3)).shape == (3, 3)
    assert padding_mask(np.array([1, 2]), np.int64(3)).shape == (2, 1, 1, 3)


def test_inputs_of_another_dtype_are_taken_under_autocast_only():
    module, inputs = MultiHeadAttention(6, 2), torch.randn(2, 5, 6, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert module(inputs).dtype == torch.bfloat16
        with pytest.raises(TypeError, match=re.escape("torch.int64")):
            module(inputs.long())
        with pytest.raises(TypeError, match=re.escape("torch.float64")):  # which is never cast
            module(inputs.double())
    for where in ("cpu", "meta"):
        with pytest.raises(TypeError, match=re.escape("torch.bfloat16")):
            module.to(where)(inputs.to(where))


def test_inputs_on_two_devices(device):
    """Refused, not moved: on a GPU the module and its mask must be there, too."""
    if device.type == "cpu":
        device = torch.device("meta")
    module = MultiHeadAttention(6, 2).to(device)
    inputs = torch.zeros(2, 5, 6, device=device)
    with pytest.raises(ValueError, match="query must be on the device"):
        module(inputs.new_zeros(2, 5, 6, device="cpu"))
    with pytest.raises(ValueError, match="mask must be on the device"):
        module(inputs, mask=causal_mask(5))
    with pytest.raises(ValueError, match="value must be on the device of query"):
        scaled_dot_product_attention(inputs, inputs, torch.zeros(2, 5, 6))


# Names that PyTorch may drop

PRIVATE = """
import torch
del torch._C._current_graph_task_id, torch._C._DisableFuncTorch
from mha_lesson import execution
execution.GLOBAL_HOOKS.clear()
"""
CALLS = """
import torch
from mha_lesson import GroupedQueryAttention, KVCache, MultiHeadAttention
torch.manual_seed(0)
mha, layer = MultiHeadAttention(6, 2), GroupedQueryAttention(6, 2, 1, d_k=4, rope_base=100.0)
cache, x = KVCache(), torch.randn(2, 7, 6)
q, k = x.split((3, 4), dim=1)
print(mha(q, k).sum().item(), layer(q, cache).sum().item(), layer(k, cache).sum().item())
"""


def test_without_pytorchs_private_names_all_is_the_same():
    """Then layers are always called, and angles are computed anew."""
    runs = [
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        for text in (PRIVATE + CALLS, CALLS)
    ]
    without, with_them = ([float(word) for word in run.stdout.split()] for run in runs)
    assert len(without) == 3 and without == pytest.approx(with_them, abs=1e-5), runs[0].stderr
