"""What a device of its own refuses, allows and computes: `--device pretend` or `--device cuda`.

On the pretended device (see pretend_device.py) this says that the pretence is faithful, and on CUDA
that these are CUDA's ways. On the CPU there is nothing to see.
"""

import copy
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import mha_lesson
from mha_lesson import check, explore, pretrained
from mha_lesson.cost import peak_bytes
from mha_lesson.course import selfcheck
from mha_lesson.heads import breadth
from mha_lesson.text import random_sentences
from mha_lesson.training import two_sides_runs

TWO_DEVICES = (
    "Expected all tensors to be on the same device|indices should be either on|same device"
)
HERE = torch.arange(6.0).view(2, 3)


@pytest.fixture
def there(device: torch.device) -> torch.device:
    return device  # never the CPU: conftest.py leaves these tests out there


@pytest.fixture
def x(there: torch.device) -> Tensor:
    return HERE.to(there)


MIXES: dict[str, Callable[[Tensor], object]] = {
    "add": lambda x: x + HERE,
    "add, the other way": lambda x: HERE + x,
    "a number of the device, a tensor of the CPU": lambda x: HERE * x.sum(),
    "a product with a number of the CPU": lambda x: x @ torch.tensor([1.0, 2.0, 3.0]),
    "in place": lambda x: x.add_(HERE),
    "comparison": lambda x: x != HERE,
    "mm": lambda x: x @ HERE.T,
    "linear": lambda x: nn.Linear(3, 2)(x),
    "cat": lambda x: torch.cat([x, HERE]),
    "stack": lambda x: torch.stack([x, HERE]),
    "where": lambda x: torch.where(HERE > 1, x, x),
    "masked_fill": lambda x: x.masked_fill(HERE > 1, 0.0),
    "equal": lambda x: torch.equal(x, HERE),
    "allclose": lambda x: torch.allclose(x, HERE),
    "embedding": lambda x: F.embedding(torch.tensor([0]), x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1])),
    "gather": lambda x: x.gather(0, torch.tensor([[0]])),
    "layer_norm": lambda x: F.layer_norm(x, (3,), torch.ones(3)),
    "attention": lambda x: F.scaled_dot_product_attention(x, HERE, x),
    "attention's mask": lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(2, 2) > 0),
    "an index of the device for a tensor of the CPU": (
        lambda x: HERE[torch.zeros(1, dtype=torch.long, device=x.device)]
    ),
    "values of the CPU put by index": (
        lambda x: x.index_put_((torch.zeros(1, dtype=torch.long, device=x.device),), torch.ones(3))
    ),
}


@pytest.mark.parametrize("name", MIXES)
def test_refuses_two_devices_in_one_operation(name: str, x: Tensor) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError), match=TWO_DEVICES):
        MIXES[name](x)


def test_refuses_numpy(x: Tensor) -> None:
    for act in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=r"can't convert .* device type tensor to numpy"):
            act()


DRAWS: dict[str, Callable[..., Tensor]] = {
    "randn": lambda x, **how: torch.randn(3, device=x.device, **how),
    "randint": lambda x, **how: torch.randint(9, (3,), device=x.device, **how),
    "randperm": lambda x, **how: torch.randperm(9, device=x.device, **how),
    "multinomial": lambda x, **how: torch.multinomial(x, 1, **how),
    "bernoulli": lambda x, **how: torch.bernoulli(x / 9, **how),
    "normal_": lambda x, **how: x.normal_(**how),
}


@pytest.mark.parametrize("name", DRAWS)
def test_refuses_a_generator_of_the_cpu(name: str, x: Tensor) -> None:
    with pytest.raises(RuntimeError, match=f"Expected a '{x.device.type}' device type for gener"):
        DRAWS[name](x, generator=torch.Generator())
    assert DRAWS[name](x).device == x.device


def test_draws_other_numbers_for_the_same_seed(there: torch.device) -> None:
    torch.manual_seed(0)
    first, cpu = torch.randn(50, device=there), torch.randn(5)
    torch.manual_seed(0)
    assert torch.equal(torch.randn(50, device=there), first)
    assert torch.equal(torch.randn(5), cpu), "what is drawn there leaves the CPU's numbers alone"
    torch.manual_seed(0)
    assert not torch.allclose(first.cpu(), torch.randn(50))
    dropped = [F.dropout(torch.ones(200, device=place), 0.5).cpu() for place in (there, "cpu")]
    assert not torch.equal(*dropped)


def test_refuses_products_of_integers(x: Tensor) -> None:
    n = x.long()
    for act in (lambda: n @ n.T, lambda: torch.einsum("ij,kj->ik", n, n)):
        with pytest.raises(RuntimeError, match=r"not implemented for '(Long|Int64)'"):
            act()


def test_refuses_an_index_out_of_range(x: Tensor) -> None:
    if x.is_cuda:
        pytest.skip("on CUDA the process could not go on after it")
    with pytest.raises(RuntimeError, match="device-side assert"):
        F.embedding(torch.tensor([2], device=x.device), x)


def test_refuses_a_mask_of_one_column_in_the_fused_kernel(there: torch.device) -> None:
    q = torch.ones(1, 2, 3, 8, device=there)
    with pytest.raises(RuntimeError, match="last dimension must be contiguous"):
        F.scaled_dot_product_attention(q, q, q, torch.ones(1, 1, 3, 1, device=there) > 0)


def set_rows(x: Tensor) -> Tensor:
    made = torch.zeros_like(x)
    made[0], made[1] = HERE[0], HERE[1].tolist()[0] + torch.arange(3)
    return made


ALLOWED: dict[str, Callable[[Tensor], Tensor]] = {
    "a number": lambda x: x * 2 + 1 == (HERE * 2 + 1).to(x),
    "a number in every operation": lambda x: torch.remainder(x, 4) == (HERE % 4).to(x),
    "a number of the CPU": lambda x: x * torch.tensor(2.0) == 2 * x,
    "a number of the CPU to fill": lambda x: (
        x.masked_fill(x > 1, torch.tensor(0.0)) == x * (x <= 1)
    ),
    "an index of the CPU": lambda x: x[torch.tensor([1, 0])] == x.flip(0),
    "a mask of the CPU": lambda x: x[torch.tensor([True, False])] == x[:1],
    "copying": lambda x: torch.empty_like(x).copy_(HERE) == x,
    "to set a row": lambda x: set_rows(x) == x,
    "new_tensor": lambda x: x.new_tensor([1.0, 2, 3]) + x == x + torch.tensor([1.0, 2, 3]).to(x),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allows(name: str, x: Tensor) -> None:
    right = ALLOWED[name](x)
    assert right.device == x.device and right.all().item()


def test_says_where_it_is(x: Tensor, there: torch.device) -> None:
    assert x.device.type == there.type and not x.is_cpu
    assert x.device != torch.device(there.type) and repr(x).endswith(f"device='{x.device}')")
    assert x.cpu().is_cpu and x.tolist() == HERE.tolist() and x[1, 2].item() == 5
    assert int(x.max()) == 5 and bool(x[0, 1] > 0) and len(list(x)) == 2
    assert x.T.device == torch.zeros_like(x).device == x.new_ones(2).device == x.device
    with torch.device(there):
        assert torch.ones(2).device == nn.Linear(2, 3).weight.device == x.device


def test_views_share_memory(x: Tensor) -> None:
    view = x.view(3, 2).T[0]
    view += 100
    assert x.flatten().tolist() == [100, 1, 102, 3, 104, 5]
    x[:, 1] = 7
    assert x.tolist() == [[100, 7, 102], [3, 7, 5]]
    assert x.T.data_ptr() == x.data_ptr() == x.detach().data_ptr() != x.clone().data_ptr()
    a, b = x.chunk(2)
    a.copy_(b)
    assert torch.equal(x[0], x[1])
    assert x.unfold(1, 2, 1).shape == (2, 2, 2) and x.expand(4, 2, 3).stride() == (0, 3, 1)
    made = torch.empty(0, device=x.device)
    torch.add(x, x, out=made)
    assert torch.equal(made, 2 * x)
    x.resize_(3, 4)
    assert x.shape == (3, 4) and x[0].tolist() == [3, 7, 5, 3]
    kept = torch.zeros(5, device=x.device)[2:]
    del a, b, x
    assert kept.add_(1).tolist() == [1, 1, 1], "a view keeps the memory"


def test_gradients_through_views_and_in_place(x: Tensor) -> None:
    grads = []
    for data in (HERE, x):
        w = torch.ones(2, 3, device=data.device, requires_grad=True)
        y = w * 2
        y[0] = data[1] * y[1]
        y.T.mul_(data.T)
        y.unfold(1, 2, 1).square().sum().backward()
        grads.append(w.grad.cpu())
    assert torch.equal(*grads)


def test_modules_gradients_and_adam_as_on_the_cpu(there: torch.device) -> None:
    torch.manual_seed(0)
    layers = nn.Linear(3, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 2), nn.Dropout(0.0)
    here = nn.Sequential(*layers)
    moved = copy.deepcopy(here).to(there)
    assert all(p.device.type == there.type and p.is_leaf for p in moved.parameters())
    for model, data in ((here, HERE), (moved, HERE.to(there))):
        adam = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
        for _ in range(5):
            loss = F.cross_entropy(model(data), torch.tensor([0, 1], device=data.device))
            adam.zero_grad()
            loss.backward()
            adam.step()
    for a, b in zip(here.parameters(), copy.deepcopy(moved).parameters(), strict=True):
        assert b.device.type == there.type and moved[0].weight.grad.device == b.device
        assert_close(a, b.cpu(), rtol=1e-4, atol=1e-5)
    here.load_state_dict(moved.state_dict())
    assert torch.equal(here[0].weight, moved[0].weight.cpu())


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.l1_loss, F.huber_loss])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_and_their_gradients_as_on_the_cpu(loss, reduction: str, x: Tensor) -> None:
    found = []
    for place in ("cpu", x.device):
        data = HERE.clone().to(place).requires_grad_()
        loss(data, torch.ones_like(data), reduction=reduction).sum().backward()
        found.append(data.grad.cpu())
    assert_close(*found)


@pytest.mark.parametrize("mask", ["none", "causal", "some"])
@pytest.mark.parametrize("d_k", [8, 7])  # two kernels of CUDA
def test_attention_and_its_gradients_as_on_the_cpu(
    d_k: int, mask: str, there: torch.device
) -> None:
    q, k, v = torch.randn(3, 2, 3, 5, d_k)
    keep = None if mask != "some" else (torch.rand(2, 1, 5, 5) < 0.7) | torch.eye(5, dtype=bool)
    results = []
    for place in (torch.device("cpu"), there):
        inputs = [x.to(place).requires_grad_() for x in (q.clone(), k.clone(), v.clone())]
        fits = None if keep is None else keep.to(place)
        out = F.scaled_dot_product_attention(*inputs, fits, is_causal=mask == "causal")
        out.square().sum().backward()
        results.append([out.detach().cpu(), *(x.grad.cpu() for x in inputs)])
    for a, b in zip(*results, strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_attention_without_weights_holds_no_square(there: torch.device) -> None:
    mha = mha_lesson.MultiHeadAttention(64, 8).to(there)
    x = torch.ones(1, 1024, 64, device=there)
    small, large = (peak_bytes(partial(mha, x[:, :T], causal=True), there) for T in (512, 1024))
    assert large < 3 * small


def test_memory_is_given_back_at_once(there: torch.device) -> None:
    def in_pieces() -> None:
        for _ in range(20):
            torch.ones(1000, device=there).mul(2).sum()

    gc.disable()
    try:
        assert peak_bytes(in_pieces, there) < 5 * 4000
    finally:
        gc.enable()


def test_autocast(there: torch.device) -> None:
    x, layer = torch.randn(2, 3).to(there), nn.Linear(3, 4).to(there)
    with torch.autocast(there.type, dtype=torch.bfloat16):
        assert layer(x).dtype == (x @ x.T).dtype == torch.bfloat16 and (x + x).dtype == x.dtype
    assert layer(x).dtype == torch.float32


def test_inference_mode(there: torch.device) -> None:
    layer, ids = nn.Embedding(5, 3).to(there), torch.tensor([1, 2]).to(there)
    with torch.inference_mode():
        x = layer(ids) + layer.weight[:2]
        assert x.is_inference() and (x + 1).view(3, 2).is_inference()
    layer(ids).sum().backward()
    assert layer.weight.grad.device == x.device


def test_the_course_computes_there(there: torch.device) -> None:
    assert mha_lesson.device.type == there.type
    ask = "import mha_lesson, torch; print(torch.ones(2, device=mha_lesson.device).sum().device)"
    environment = os.environ | {"MHA_LESSON_DEVICE": there.type}
    folder = Path(__file__).parents[2] / "notebooks"  # where their kernels start
    said = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said.strip() == f"{there.type}:0"


PUBLIC: dict[str, Callable[[], object]] = {
    # explore.training takes a minute; two_sides_runs is what it does.
    **{name: getattr(explore, name) for name in explore.__all__ if name != "training"},
    "two_sides_runs": lambda: two_sides_runs(2, [0], n_steps=2),
    "random_sentences": lambda: random_sentences(2, 3),
    "load_untrained": pretrained.load_untrained,
    "selfcheck": lambda: selfcheck._torch(),
    "breadth": lambda: breadth(torch.ones(3, 3, device="cpu")),
    "check": lambda: check.causal_mask(lambda T: torch.ones(T, T, dtype=torch.bool).triu(1)),
}


@pytest.mark.plain  # the checks of annotations take most of the time there
@pytest.mark.parametrize("name", PUBLIC)
def test_works_where_the_device_is_the_default(name: str, there: torch.device) -> None:
    """As after torch.set_default_device("cuda"), which some write in their first cell."""
    before = torch.get_default_device()
    with torch.device(there):
        PUBLIC[name]()
    assert torch.get_default_device() == before


def test_a_mask_made_of_an_int_may_live_anywhere(there: torch.device) -> None:
    """The exercise has no tensor among its inputs whose device the answer could follow."""

    def mask(T: int) -> Tensor:
        return torch.ones(T, T, dtype=torch.bool, device=there).triu(1)

    assert check.causal_mask(mask).passed
