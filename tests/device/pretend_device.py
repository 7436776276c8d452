"""A second device on a machine that has none: `torch.device("pretend")`.

Its tensors hold real numbers in the machine's own memory, and PyTorch's CPU kernels compute them,
but it is a device of its own: two devices in one operation, a CPU generator for its tensors,
`.numpy()` and products of integers are refused as CUDA refuses them; an index out of range is a
RuntimeError; the same seed draws other numbers than on the CPU.

    PYTHONPATH=tests/device MHA_LESSON_DEVICE=pretend python …

loads it: the folder beside this file names `install` as an entry point of torch.backends, which
`import torch` calls, in subprocesses and in the kernels of notebooks as well. `make test-device`
does so. How a GPU rounds, what its own kernels get wrong, and its speed do not show here.
"""

import ctypes
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

NAME = "pretend"
CPU, ELSEWHERE = 1, 12  # DLPack's numbers; the second is torch's PrivateUse1
TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, "
    f"{NAME}:0 and {{}}! (in {{}})"
)
VIEWS = ("as_strided.default", "view.default", "_reshape_alias.default", "unfold.default")
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot"}
OUT_GROWS_MEANWHILE = {"mse_loss.out", "smooth_l1_loss.out"}  # so the CPU's make their own
INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
AUTOCAST = torch._C.DispatchKey.AutocastPrivateUse1
LOWERED = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "scaled_dot_product_attention")
ATTENTION = torch.ops.aten.scaled_dot_product_attention.default

generator = torch.Generator()
libraries: list[torch.library.Library] = []  # a library that is collected takes its kernels along

capsule = ctypes.pythonapi.PyCapsule_GetPointer
capsule.restype, capsule.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def same_memory(x: Tensor, device: int) -> Tensor:
    """`x` as a tensor of the other device, over the same memory, which it keeps alive."""
    lent = torch._C._to_dlpack(x)
    # A DLManagedTensor begins with the address of the numbers, then the device's type.
    ctypes.c_int32.from_address(capsule(lent, b"dltensor") + 8).value = device
    return torch._C._from_dlpack(lent)


def on_host(x: Tensor) -> Tensor:
    """A tensor of the CPU over the memory of `x`."""
    if x.device.type != NAME:
        return x
    host = same_memory(x, CPU)
    # DLPack tidies the strides of axes of length 1.
    return host if host.stride() == x.stride() else host.as_strided(x.shape, x.stride())


@cache
def unchecked() -> set[str]:
    """Operations whose devices PyTorch's own list leaves to themselves: a number may join."""
    import torchgen

    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    found, name = set(), ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("- func: "):
            name = line[8:].split("(")[0]
        elif line.startswith("  device_check: NoCheck"):
            found.add(name)
    return found


class Facts(NamedTuple):
    """What there is to know of an operation before it is called."""

    name: str
    number_may_join: bool  # one of the CPU, of no axes
    indexes: bool  # an index of the CPU may join
    draws: bool
    multiplies: bool
    takes_tensors: list[bool]  # for each argument


@cache
def facts(op: torch._ops.OpOverload) -> Facts:
    packet = op._schema.name.removeprefix("aten::")
    name = f"{packet}.{op._schema.overload_name}".removesuffix(".")
    return Facts(
        name,
        name in unchecked(),
        packet in INDEXING,
        any(argument.name == "generator" for argument in op._schema.arguments),
        packet in PRODUCTS,
        [str(argument.type) == "Tensor" for argument in op._schema.arguments],
    )


def as_tensor(number: float) -> Tensor:
    """A number that PyTorch had wrapped for this operation, and unwrapped on its way here."""
    return torch.tensor(number, dtype=torch.float64 if isinstance(number, float) else None)


def by_the_cpu(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Any operation: the CPU's kernel on the same memory, after the refusals of a device."""
    known = facts(op)
    lent: dict[int, tuple[Tensor, Tensor]] = {}  # id of what stands for it -> it, and that

    def to_host(x: Any, in_list: bool = False) -> Any:
        if isinstance(x, Tensor):
            if x.device.type != NAME:
                joins = x.is_cpu and known.number_may_join and x.ndim == 0
                if not (joins or (known.indexes and in_list)):
                    raise RuntimeError(TWO_DEVICES.format(x.device, f"aten::{known.name}"))
                return x
            # Borrowed memory cannot grow, as an empty `out` is meant to.
            host = on_host(x) if x.numel() else torch.empty(x.shape, dtype=x.dtype)
            lent[id(host)] = x, host
            return host
        if isinstance(x, (list, tuple)):
            return [to_host(y, in_list=True) for y in x]
        return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x

    def to_device(x: Any) -> Any:
        if isinstance(x, Tensor):  # in place and `out` give back what came in
            return lent[id(x)][0] if id(x) in lent else same_memory(x, ELSEWHERE)
        return type(x)(map(to_device, x)) if isinstance(x, (list, tuple)) else x

    if known.draws:
        if theirs := kwargs.get("generator"):
            raise RuntimeError(
                f"Expected a '{NAME}' device type for generator but found '{theirs.device.type}'"
            )
        kwargs["generator"] = generator
    if known.indexes and args[0].is_cpu:
        raise IndexError("indices should be either on cpu or on the same device as the tensor")
    made = kwargs.pop("out", None) if known.name in OUT_GROWS_MEANWHILE else None
    args = tuple(
        as_tensor(x) if wants and isinstance(x, (int, float)) else to_host(x)
        for x, wants in zip(args, known.takes_tensors, strict=False)
    )
    kwargs = {key: to_host(x) for key, x in kwargs.items()}
    if known.multiplies and not any(host.is_floating_point() for _, host in lent.values()):
        raise NotImplementedError(f"\"addmm_{NAME}\" not implemented for 'Long'")
    try:
        call = op if made is None else getattr(torch.ops.aten, known.name.split(".")[0])
        result = call(*args, **kwargs)
    except IndexError as error:
        raise RuntimeError(f"device-side assert triggered ({error})") from None
    for x, host in lent.values():
        if x.shape != host.shape:  # an `out` that was too small
            x.resize_(host.shape).copy_(host)
    found = to_device(result) if made is None else made.copy_(result)
    lent.clear()  # the functions above hold it until the next collection, and it holds memory
    return found


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **how: Any,
) -> Tensor:
    """The CPU's kernel that holds no T × T where the CPU would take it, else written out.

    What CUDA's memory-efficient kernel refuses is refused.
    """
    if (
        attn_mask is not None
        and attn_mask.shape[-1] == 1 < key.shape[-2]
        and key.shape[-1] % 4 == 0
    ):
        raise RuntimeError("(*bias): last dimension must be contiguous")
    given = query, key, value, attn_mask, dropout_p, is_causal
    here = [on_host(x) if isinstance(x, Tensor) else x for x in given]
    if torch._fused_sdp_choice(*here, **how) != SDPBackend.FLASH_ATTENTION.value:
        return ATTENTION.decompose(*given, **how)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(
            ~attn_mask, -torch.inf
        )
    how.pop("enable_gqa", None)
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return fused(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, **how)[0]


def copy_from(x: Tensor, to: Tensor, non_blocking: bool = False) -> Tensor:
    on_host(to).copy_(on_host(x))
    return to


def resize(x: Tensor, size: list[int], **_: Any) -> Tensor:
    made = x.new_empty(size)
    n = min(x.numel(), made.numel())
    made.view(-1)[:n] = x.reshape(-1)[:n]
    return torch.ops.aten.set_.source_Storage_storage_offset(
        x, made.untyped_storage(), 0, made.shape, made.stride()
    )


def in_less_precision(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Under autocast, the products take the dtype that it asks for."""
    dtype = torch.get_autocast_dtype(NAME)

    def cast(x: Any) -> Any:
        lower = isinstance(x, Tensor) and x.dtype == torch.float32
        return x.to(dtype) if lower else x

    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(AUTOCAST)):
        return op(*map(cast, args), **{key: cast(value) for key, value in kwargs.items()})


class Module:
    """What PyTorch asks of `torch.pretend`."""

    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    synchronize = set_device = staticmethod(lambda device=None: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.float16, torch.bfloat16])
    get_rng_state = staticmethod(lambda device=None: generator.get_state())
    set_rng_state = staticmethod(lambda state, device=None: generator.set_state(state))

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        generator.manual_seed((int(seed) ^ 0x9E3779B97F4A7C15) % 2**64)

    manual_seed = manual_seed_all


def install() -> None:
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    except ImportError:
        raise RuntimeError(
            f"torch {torch.__version__} knows no device written in Python: the pretended device "
            "needs a later one (2.13 has it)"
        ) from None
    _setup_privateuseone_for_python_backend(NAME, Module)
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(by_the_cpu, "PrivateUse1")
    own = torch.library.Library("aten", "IMPL", "PrivateUse1")
    cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    generic = (
        *VIEWS,
        "set_.source_Storage_storage_offset",
        "set_.source_Storage",
        "set_.source_Tensor",
    )
    for name in generic:  # the CPU's kernels for these look at no device
        packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        own.impl(op, partial(op.redispatch, cpu))
    own.impl("_copy_from", copy_from)
    gradients = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
    for library in (own, gradients):
        library.impl(ATTENTION, attention)
    own.impl("resize_", resize)
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    autocast = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    for name in LOWERED:
        op = getattr(torch.ops.aten, name).default
        autocast.impl(op, partial(in_less_precision, op))
    libraries.extend([everything, own, gradients, autocast])
    Module.manual_seed_all(torch.initial_seed())
