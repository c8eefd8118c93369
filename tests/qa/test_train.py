"""Learning to read: three starts, a loss that knows no order, and planted facts that are found."""

from dataclasses import replace

import pytest
import torch

from regard.batch import make_source
from regard.build import build_model
from regard.checkpoint.weights import Checkpoint, load_model, save_model
from regard.config import ModelSettings, PartSettings, Settings
from regard.data.tokenizer import Tokenizer
from regard.qa.data import make_facts
from regard.qa.model import ReaderBatch
from regard.qa.predict import answer_questions
from regard.qa.train import (
    FIRST_PIECE,
    ceiling,
    cut_chunks,
    make_windows,
    mask_tokens,
    pretrain_reader,
    resolve_qa_settings,
    score_reader,
    span_loss,
    start_reader,
    train_reader,
)
from regard.zoo import find_model, present
from tests.readers import questions, small_reader, tokenizer

SIZES = ["model.d_model=16", "model.n_heads=2", "model.d_ff=24"]


def quiet(message):
    """Says nothing."""


def translator(folder, **other):
    sizes = {"n_encoder_layers": 2, "n_decoder_layers": 1, "d_model": 12, "n_heads": 2, "d_ff": 14}
    model = ModelSettings(**{**sizes, "norm_place": "before", **other})
    pieces = tokenizer()
    torch.manual_seed(1)
    made = build_model(model, (pieces.vocab_size("src"), pieces.vocab_size("tgt")))
    save_model(folder, Checkpoint(made, pieces, Settings(model=model)), {})
    return str(folder)


def check_same(reader, source):
    """The reader's table and encoder are the translator's, number by number."""
    for mine, theirs in ((reader.model.words, source.model.src), (reader.model.encoder, source.model.encoder)):
        expected = theirs.state_dict()
        assert mine.state_dict().keys() == expected.keys()
        for name, tensor in mine.state_dict().items():
            assert torch.equal(tensor, expected[name]), name
    assert reader.tokenizer.models == source.tokenizer.models


def test_a_reader_that_takes_over_a_translator_begins_with_its_encoder(tmp_path):
    folder = translator(tmp_path / "model")
    reader = start_reader(folder, resolve_qa_settings(folder, True, ["model.dropout=0.25"]), [], [], quiet)
    source = load_model(tmp_path / "model")
    check_same(reader, source)
    src = make_source([[7, 9, 5], [11]])
    plain, shared = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0]]), torch.tensor([[0, 1, 2, 0], [1, 0, 0, 0]])
    with torch.no_grad():
        read, marked = (reader.model.eval().read(ReaderBatch(src, marks)) for marks in (plain, shared))
        torch.testing.assert_close(read, source.model.encode(src))
    assert not torch.equal(marked[0], read[0]), "what both have is marked from the first step on"
    assert torch.equal(marked[1], read[1])
    assert reader.model.words.dropout.rate == reader.settings.model.dropout == 0.25


@pytest.mark.skipif("zh-en" not in present(), reason="this copy comes without the model")
def test_the_bundled_translator_gives_its_encoder_too():
    reader = start_reader("zh-en", resolve_qa_settings("zh-en", False, []), [], [], quiet)
    check_same(reader, load_model(find_model("zh-en")))


def test_a_translator_that_cannot_read_is_refused(tmp_path):
    gru = translator(tmp_path / "gru", family="recurrent", n_heads=1, position=PartSettings("none"))
    with pytest.raises(ValueError, match="got the family 'recurrent'"):
        start_reader(gru, resolve_qa_settings(gru, False, []), [], [], quiet)
    folder = translator(tmp_path / "model")
    with pytest.raises(ValueError, match="d_model=99"):
        start_reader(folder, resolve_qa_settings(folder, False, ["model.d_model=99"]), [], [], quiet)
    with pytest.raises(ValueError, match="nobody: there is no such model"):
        start_reader("nobody", resolve_qa_settings("nobody", False, []), [], [], quiet)


def test_scratch_and_pretrained_begin_alike_and_the_seed_decides():
    facts = make_facts(30, seed=0)
    one, other, third = (
        start_reader(start, resolve_qa_settings(start, True, [*SIZES, f"train.seed={seed}"]), facts, [], quiet)
        for start, seed in (("scratch", 0), ("pretrained", 0), ("scratch", 1))
    )
    assert one.tokenizer.models == other.tokenizer.models
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name
    assert not torch.equal(one.model.words.table.weight, third.model.words.table.weight)


def test_words_are_learned_from_text_alone():
    facts = make_facts(100, seed=0)
    made = resolve_qa_settings("pretrained", True, ["pretrain.epochs=5", "pretrain.lr=0.01"])
    reader = start_reader("pretrained", made, facts, [], quiet)
    before = reader.model.ends.weight.clone()
    lessons = list(pretrain_reader(reader, [question.context for question in facts], made.pretrain))
    assert lessons[-1].score > lessons[0].score + 0.3
    assert lessons[-1].score > -3.5  # pieces alike would have −log 400 = −6
    assert torch.equal(reader.model.ends.weight, before), "nothing is learned about answers"
    with pytest.raises(ValueError, match="more than 1 chunks of text, got 1"):
        list(pretrain_reader(reader, ["Anna lives in Oslo."], made.pretrain))


def test_hiding_leaves_signs_alone_and_says_what_it_hid():
    ids = torch.randint(0, 50, (40, 60), generator=torch.Generator().manual_seed(2))
    shown, hidden = mask_tokens(ids, 50, torch.Generator().manual_seed(5))
    assert torch.equal(shown[~hidden], ids[~hidden])
    assert (ids[hidden] >= FIRST_PIECE).all()
    assert 0.12 < float(hidden.sum() / (ids >= FIRST_PIECE).sum()) < 0.18
    blank = float((shown[hidden] == Tokenizer.unk_id).float().mean())
    same = float((shown[hidden] == ids[hidden]).float().mean())
    assert 0.74 < blank < 0.86
    assert 0.05 < same < 0.17
    _, one = mask_tokens(torch.tensor([[2, 9, 3]]), 50, torch.Generator().manual_seed(0))
    assert one.tolist() == [[False, True, False]], "something is always hidden"


def test_chunks_are_the_texts_end_to_end():
    texts = [[5] * 7, [6], [], [8] * 13]
    chunks = cut_chunks(texts, 5)
    assert all(len(chunk) == 5 for chunk in chunks[:-1])
    whole = [piece for chunk in chunks for piece in chunk]
    assert whole == [*[5] * 7, Tokenizer.eos_id, 6, Tokenizer.eos_id, *[8] * 13, Tokenizer.eos_id][: len(whole)]
    assert len(whole) >= 23


def test_the_loss_is_the_mean_over_windows_whatever_their_order():
    reader = small_reader()
    windows = make_windows(reader, questions())
    windows.append(replace(windows[0], ids=windows[0].ids * 5, marks=windows[0].marks * 5))  # of another bucket
    whole = span_loss(reader.model, windows)
    torch.testing.assert_close(span_loss(reader.model, windows[::-1]), whole)
    torch.testing.assert_close(torch.stack([span_loss(reader.model, [each]) for each in windows]).mean(), whole)


def test_the_ceiling_is_what_pieces_and_the_longest_answer_allow():
    asked = make_facts(20, seed=9)
    reader = small_reader()
    whole = replace(reader, settings=replace(reader.settings, windows=replace(reader.settings.windows, longest=17)))
    assert ceiling(whole, asked).exact == 100.0
    short = replace(reader, settings=replace(reader.settings, windows=replace(reader.settings.windows, longest=1)))
    assert ceiling(short, asked).exact < 100.0


def test_settings_are_those_of_the_start_then_quick_then_said():
    assert resolve_qa_settings("scratch", False, []).model.d_model == 256
    assert resolve_qa_settings("zh-en", False, []).model == ModelSettings()
    quick = resolve_qa_settings("zh-en", True, ["train.lr=0.5"])
    assert (quick.model, quick.train.lr, quick.windows.size) == (ModelSettings(), 0.5, 128)
    with pytest.raises(ValueError, match=r"unknown setting 'train.steps'"):
        resolve_qa_settings("scratch", False, ["train.steps=3"])


def test_planted_facts_are_found():
    facts, others = make_facts(600, seed=0, people=2), make_facts(40, seed=1, people=2)
    made = resolve_qa_settings("scratch", True, ["train.epochs=5"])
    reader = start_reader("scratch", made, facts, [], quiet)
    lessons = list(train_reader(reader, facts, others, made.train))
    assert lessons[-1].loss < 0.2 < 2.0 < lessons[0].loss
    assert score_reader(reader, others).exact >= 95.0


@pytest.mark.gpu
def test_a_gpu_reads_and_learns_alike():
    facts = make_facts(64, seed=0)
    made = resolve_qa_settings("pretrained", True, ["train.epochs=1", "pretrain.epochs=1"])
    reader = start_reader("pretrained", made, facts, [], quiet)
    windows = make_windows(reader, facts)
    here = span_loss(reader.model.eval(), windows)
    result = [answers.spans[0].pieces for answers in answer_questions(reader, facts)]
    reader.model.to("cuda")
    there = span_loss(reader.model, windows)
    torch.testing.assert_close(there.cpu(), here, rtol=0.02, atol=0.0)
    same = [
        answers.spans[0].pieces == one for answers, one in zip(answer_questions(reader, facts), result, strict=True)
    ]
    assert sum(same) >= 60
    lessons = [
        *pretrain_reader(reader, [question.context for question in facts * 4], made.pretrain),
        *train_reader(reader, facts, facts[:8], made.train),
    ]
    assert all(0 < lesson.loss < 10 for lesson in lessons)
