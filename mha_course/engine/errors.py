"""Errors in the learner's own words: which line, and what torch's message means here.

A new error is one entry of ERRORS: a key, behind a slash patterns of the message, what happened,
and after a bar a question.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from mha_course.engine.report import Finding
from mha_course.engine.safely import Raised

FIXED_DEVICE = "fixed_device"


class Known(NamedTuple):
    key: str
    pattern: str
    does: str
    asks: str


def _read(table: str) -> Iterator[Known]:
    for entry in table.strip().split("\n\n"):
        head, words = re.split(r"\n(?!/ )", entry, maxsplit=1)
        key, *patterns = re.split(r"\s/ ", head)
        does, _, asks = " ".join(words.splitlines()).partition(" | ")
        yield Known(key, "|".join(patterns), does, asks)


ERRORS = tuple(
    _read(r"""
fixed_device / same device|expected device|can't convert \S+ device type tensor to numpy
/ on different devices|not compiled with CUDA|no CUDA GPUs|no NVIDIA driver|not linked with support
/ device type
Something there is on a fixed device, as every numpy array is: when the input is elsewhere (on a
GPU, say), the two cannot be combined. | What do you create yourself, or hand to numpy, and how
could it follow the input?

written_over / modified by an inplace operation|leaf Variable that requires grad
A line writes over numbers in place (`+=`, `[…] =`, or a name that ends in `_`) which the backward
pass still needs. | Which line does, and how could it make a new tensor?

numpy_lacks_dtype / unsupported ScalarType
It hands a tensor to numpy, which does not know this dtype. | Which functions of torch do the same?

numpy_transpose / (transpose|swapaxes|swapdims)\(\) (takes 2 positional|received an invalid comb)
In torch this exchanges *two* axes; numpy's function of that name puts all of them in an order. |
Which function of torch takes all axes in their new order?

three_dots / 'ellipsis'|(?<!no )ellipsis object|not ellipsis
The three dots are still there: what should stand in their place is not written yet. | Which line
holds them?

none_used / NoneType
It computes with `None`, or takes it apart. A function without `return` gives `None`, and so does
an argument that nobody passes. | Which of the names in that line can be `None`, and what should
happen then?

module_not_started / before Module.__init__\(\) call
It sets a layer before the `nn.Module` underneath has been set up. | What has to be the first line
of `__init__` in every `nn.Module`?

view_needs_contiguous / view size is not compatible
`view` only relabels memory as it is: where axes have changed places, or a slice left gaps, its
order no longer fits the new shape. | Which call writes memory anew, or does so only where it must?

shape_for_view / shape '.*' is invalid for input of size|don't multiply up to
The shape asked for has a different number of elements from the tensor. | Multiply the sizes you ask
for: what should their product be, and which axis is missing?

matrix_shapes / shapes cannot be multiplied|Expected size for first two dimensions
/ size mismatch, got|inconsistent tensor size, expected|must match the .*size.*bmm
A matrix product does not fit: the last axis of the left factor has to be as long as the second-last
of the right one. | Write both shapes in letters (B, T, h, d_k, d_model). Do both end in the same
axis, so that one has to be transposed, or is an axis longer or shorter than you thought?

einsum_letters / einsum\(\)
In `einsum` every tensor needs as many letters as it has axes, and one letter stands for one
length. (Three dots stand for whatever axes are in front.) | Write each tensor's shape below its
letters: where do they not fit?

float_mask_overflow / cannot be converted to type .* without overflow|value cannot be converted
It writes a number into a tensor whose dtype cannot hold it: float16 ends at 65504. | Is there a
value that means 'minus infinity' in every floating dtype?

mask_not_bool / only supports boolean masks|mask_fill_? .*bool|expected mask.*bool
/ expected condition to be a boolean
A mask has to be a bool tensor here, and this one has another dtype. | What gives a tensor of True
and False instead of numbers?

dtype_mix / same dtype|expected scalar type|must have the same dtype|dtype.*do(es)? not match
/ Found dtype|promoted
Two tensors of different dtypes are combined: one follows the input, the other is fixed. | Which
tensor do you create yourself, and which dtype does it get?

broadcast_shapes / must match the size of tensor|not broadcastable|shape mismatch|expand\([^)]
/ expanded size of the tensor
Two shapes do not broadcast: from the right, every pair of axes has to be equal, or one of them 1.
| Write the two shapes in letters below each other, aligned at the right: where do they clash?

index_out_of_range / index \S+ is out of bounds for dimension|index out of range in self
/ exceeds dimension size|maximum size for tensor
It asks for a position that the axis does not have: positions run from 0 to its length − 1. | Which
axis is that, and is it the one that you mean to run along?

mask_as_index / shape of the mask .* does not match the shape of the indexed tensor
A mask in square brackets needs the same shape as the tensor that it indexes: nothing is broadcast
there. | Which function fills by a mask and broadcasts it, or how does the mask get that shape?

axes_to_name / number of dimensions in the tensor input does not match
`permute` has to name every axis of the tensor once, but here it names more or fewer. | How many
axes does the tensor have at this line? Print its shape.

axis_out_of_range / Dimension out of range|too many indices|permute\([^)]
/ must have at least 2 dimensions|Dimension specified as .* but tensor has no dimensions
It asks for an axis or a position that the tensor does not have. | How many axes does the tensor
have at this line? Print its shape.

nothing_to_reduce / non-zero size|operation does not have an identity
It takes the largest, the smallest or the like along an axis of length 0: there is nothing to choose
from. | On which input is that axis empty, and why?

unpacking / values to unpack
A tuple, a shape or a tensor (along its first axis) is taken apart into more or fewer names than it
has parts. | How many parts are on the right of that line, and along which axis?

one_for_scalar / a Tensor with \d+ elements cannot be converted to Scalar
/ only (one element|integer) tensors
It uses a tensor with many elements where one number is needed. | Which line needs a single number,
and which axis have you forgotten to reduce or index?

truth_of_a_tensor / Boolean value of Tensor with more than one
It asks a tensor of many entries for *one* truth value, as `and`, `not` and `if` do. | Do you ask
whether there is one at all (`is None`), or about its entries (`&`, `|`, `~`, `any`)?

bmm_axes / batch[12] must be a 3D|must be 3-?D
`bmm` takes tensors of exactly three axes, but here there are more or fewer. | Which product works
with any number of axes in front?

arguments_swapped / masked_fill_?\(\)?.* got \((float|int|bool|NoneType), (Tensor|torch)
/ masked_fill.*\(position 1\) must be Tensor|mask.*must be Tensor, not (float|int)
`masked_fill` gets the number where it wants the mask: the mask comes first, then the number. |
Which of your two arguments is the mask?

method_not_called / builtin_function_or_method|'method'|method_descriptor|'function' (and|object)
/ bound method
A method is used without the round brackets that call it, or with square ones. | Which name in that
line needs `()` after it?

module_called / 'module' object is not callable
Round brackets follow the name of a module, a file of functions. | Which of its functions do you
mean?

not_callable
/ '(Tensor|(torch\.)?Size|int|float|tuple|list|bool|str|property)' object is not callable
Round brackets follow something that cannot be called. | Are there too many brackets, or do you mean
square ones?

integer_needed / 'float' object cannot be interpreted as an integer|must be tuple of ints.*\bfloat\b
/ (view|reshape|zeros|ones|empty|full|expand)\(\).*got \([^)]*float
/ (split|chunk|arange|unflatten|repeat|eye)\(\).*got \([^)]*float|must be int(eger)?, not float
/ slice indices must be integers|valid indices \(got float
A float is used where an int is needed: `/` always gives a float. | Which division of integers gives
an integer?

no_index / are valid indices
What is in square brackets is not an index: an int, a slice, `...`, None or a tensor of them. | What
do you want to take out of the tensor there, and what names its place?

target_dtype / expected.*target.*long|type LongTensor|not implemented for 'Int'|index.*int64
/ tensors used as indices
Integer tensors can be int32 or int64, and this function takes only one of them. | How do you turn
an integer tensor into int64?

loss_counts / batch_size .* to match target batch_size
`cross_entropy` gets more or fewer predictions than targets: it wants one row of logits for each
target. | Which of the two has been cut to the positions that count, and which has not?

cat_axes / Sizes of tensors must match except in dimension|stack expects each tensor to be equal
The tensors for `cat` or `stack` differ in an axis that has to be equally long. | Along which axis
should they be joined, and along which does this line join them?

loss_axes / Expected target size
`cross_entropy` wants the classes in axis 1, or one row of logits per target: with (B, T, V) it
takes T for the classes. | How can logits and targets be laid out as one long list of predictions?

two_axes_only / must be a matrix|expects a tensor with <= 2|[12]D tensors expected|vector \+ matrix
/ Expected 1-D argument|Supports 1D or 2D
Something there is made for a single matrix or vector (as `mm`, `mv`, `dot`, `outer`, `t` and the
weight of `linear` are), but gets a tensor with a different number of axes. | Which product, and
which exchange of axes, works with any number of axes in front?

numbers_of_axes / same number of dimensions
Tensors with different numbers of axes are combined, but all should have the same number. | How many
axes has each of them? Print their shapes.

list_of_tensors / argument 'tensors' \(position 1\) must be|expect(s|ed) a non-empty
`cat` and `stack` take one list or tuple with the tensors in it, but get something else, or an empty
one. | What is in the brackets: one list of tensors?

sizes_of_pieces / split_sizes to sum exactly|split_size can only be 0|chunks` to be greater
/ number of dimensions of repeat dims|repeats must have the same size
The numbers that say how to cut, or how often to repeat, do not fit the tensor. | How long is that
axis, and what do the numbers have to add up to?

two_left_open / only one dimension can be inferred
Two sizes are −1: torch can work out one of them, not two. | Which of the two do you know?

mean_of_integers / could not infer output dtype
A mean of whole numbers, or of True and False, has no dtype of its own here. | Which dtype can hold
a mean?

minus_of_bool / Subtraction, the `-`|Negation, the `-`
There is a minus before, or between, tensors of True and False. | Which sign exchanges True and
False, and which dtype can be subtracted?

turned_no_bool / only implemented on integer and Boolean
`~` exchanges True and False, but this is a tensor of floats. | Do you mean a mask there, or a
minus?

two_results / torch\.return_types
Along an axis `max`, `min`, `sort` and the like give *two* things, the values and their positions. |
How do you take one of the two?

number_for_tensor / must be Tensor, not (int|float|bool)
A function of torch gets a plain Python number where it needs a tensor. | Which function does the
same for a plain number, or which tensor is meant?

numpy_of_learning / Can't call numpy\(\) on Tensor that requires grad
A tensor that learns is given to numpy: the backward pass would end there. | Which function of torch
does the same?

negative_size / negative dimension|bounds? inconsistent with step sign|lower bound and
A size comes out negative, or a range ends before it begins. | Which two numbers are subtracted
there, and which is the larger?

same_axis_twice / dimensions cannot be identical
One axis is named twice where two different ones are needed. | Which two axes are meant?

mask_and_causal / should not be set when is_causal
It gives a mask and `is_causal=True` at once, but only one of the two is allowed. | What does the
mask hold that `is_causal` does not?

written_into / does not support item assignment
It writes into a tuple, a text or a number: their parts cannot be replaced. | How can you make a new
one from old parts?

no_parts / is not iterable|has no len\(\)|is not subscriptable
It counts, indexes or runs through something that has no parts, such as a single number. | What does
that name hold at this line? Print it.

no_power / unsupported operand type\(s\) for \^
In Python `^` is no power: it compares two whole numbers bit by bit. | Which sign, or which
function, raises to a power?

layer_not_called / unsupported operand .*'(Linear|Parameter|\w*Attention)'
A layer stands beside a sign as if it were its weight matrix. | A layer is a function: how is it
given the tokens?

sign_between / unsupported operand|bad operand|can only concatenate|can't multiply sequence
A sign stands between two things that it cannot combine. | What is to the left and to the right of
it: a tensor, a number, a list?

half_not_implemented / not implemented for '\w+'
One of the operations does not exist for this dtype. (`^`, `&` and `|` work on bits: a power is
`**`.) | Which dtype does the tensor have at this line, and is it the operation that you mean?
""")
)

_OF_KINDS = _read("""
unknown_name / NameError
It uses a name that has no value yet: {message}. | Is it spelled as in the line that makes it, or
did you forget an import?

unknown_name / UnboundLocalError
It uses a variable before it has a value. | Which line sets it?

no_such_attribute / AttributeError
It asks an object for something that it does not have: {message}. | Which line gives it that, and is
it spelled the same there?

endless_recursion / RecursionError
It calls itself without an end. | Does the function call its own name where a function of the
package was meant?

exits / SystemExit
It calls `exit`, which would end the whole kernel. | What should it return instead?

interrupted / KeyboardInterrupt
It was interrupted before it returned. | Does a loop of it never end?

own_assertion / AssertionError
An `assert` in the code fails. | Does it hold for every input?

division_by_zero / ZeroDivisionError
It divides by zero. | Which length or count can be 0?

axis_out_of_range / IndexError
It asks for a position that is not there: {message}. | How long is that axis?

einops_pattern / EinopsError
The pattern does not fit the tensor: on both sides of the arrow every axis has its name, and the
sizes have to agree. ({message}) | Write the tensor's shape below the left side: which name stands
for which axis?

not_installed / ModuleNotFoundError
It imports something that is not installed here: {message}.

wrong_signature / TypeError before the first line
It cannot be called with the arguments of this exercise: {message}. | Compare the first line of
your code with the stub: how many arguments, which order?

missing_key / KeyError
A dictionary lacks the key {message}.

value_error / ValueError
A function refuses a value: {message}. | What does that call ask for, and what does it get?

wrong_argument / TypeError
A call does not accept what it was given: {message} | What does the call expect, in which order?
""")
BY_KIND = {known.pattern: known for known in _OF_KINDS}
NOT_CALLED = "TypeError before the first line"
_ADVICE = re.compile(r"(?<!i\.e)[.;!] |, but expected one of|, but found")  # what torch suggests
SAY_IT_ALL = ("SystemExit", "KeyboardInterrupt", "NameError", "UnboundLocalError", "EinopsError")
ARGUMENTS = re.compile(r"(takes|missing) .*(positional|required)? ?argument")


def explain(raised: Raised, note: str = "") -> Finding:
    """What an error means, with the learner's line; `note` says on which input it came."""
    note = f" ({note})" if note else ""
    message = " ".join(raised.message.split())
    known = next((k for k in ERRORS if re.search(k.pattern, message, re.I)), None)
    if raised.kind in SAY_IT_ALL:
        known = BY_KIND[raised.kind]
    if known is None and raised.number is None and ARGUMENTS.search(message):
        known = BY_KIND[NOT_CALLED]
    known = known or BY_KIND.get(raised.kind)
    if known is None:
        stops = "" if raised.number is not None or note else f"It stops with {raised.kind}: "
        known = Known(f"error_{raised.kind}", "", f"{stops}{message}", "")
    line = ""
    if raised.number is not None:
        line = f"Line {raised.number} of your code stops with {raised.kind}{note}"
        line += f": `{raised.source.replace('`', chr(39))}`. " if raised.source else ". "
    elif note:
        line = f"It stops with {raised.kind}{note}. "
    does = known.does.replace("{message}", message.rstrip("."))
    if known in ERRORS:
        does += f" (The message: {_ADVICE.split(message)[0].rstrip('.')}.)"
    key = FIXED_DEVICE if known.key == FIXED_DEVICE else f"error:{known.key}"
    return Finding(key, line + does, known.asks)
