"""Commands of question answering: qa train, qa test, qa ask."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import torch
from typer import Argument, Option

from regard.checkpoint import check_out
from regard.cli.options import Device, Json, Quick, Set
from regard.data.files import read_lines
from regard.device import find_device
from regard.plot.style import check_figure, save_and_report
from regard.plot.tables import word_attention_table
from regard.qa.data import Question, make_facts, make_question, read_questions, split_questions
from regard.qa.model import QuestionReader, load_reader, save_reader
from regard.qa.predict import BASELINES, AnswerScores, Prediction, answer_questions
from regard.qa.train import (
    QASettings,
    ceiling,
    pretrain_reader,
    resolve_qa_settings,
    score_predictions,
    start_reader,
    train_reader,
)
from regard.qa.view import (
    AnswerTrace,
    answer_neighbourhood,
    answers_table,
    attention_between,
    mark_answer,
    scores_table,
    trace_answer,
)
from regard.terminal import escape, message, print_json, print_tables, progress_bar, to_json
from regard.train.examples import EpochResult
from regard.train.run import lock_beside

DATA = "Questions as JSON lines (question, context, answers with text and start): .jsonl, also compressed."
START = "scratch, pretrained (masked words of the contexts first), or a translation model to initialise from."
READER = "Folder made by qa train."
FIGURE = "Save a figure of the attention around the answer (.png, .svg, .pdf), or the trace (.safetensors)."
HEAD = "Heads to show: LAYER or LAYER:HEAD, counted from 0."
TRACE_FILE = ".safetensors"
AROUND = 12  # words on either side of the answer in a figure
VALID_SHARE = 0.1
QUICK_FACTS = 1200, 200  # generated questions for training and validation


def train(
    out: Annotated[Path, Option("--out", "-o", help="Folder of the reader.")],
    data: Annotated[list[str] | None, Option(help=DATA)] = None,
    valid: Annotated[list[str] | None, Option(help="Validation questions; by default a tenth is split off.")] = None,
    test: Annotated[list[str] | None, Option(help="Test questions, answered at the end.")] = None,
    start: Annotated[str, Option(help=START)] = "scratch",
    pretrain: Annotated[list[str] | None, Option(help="More text for --start pretrained, one per line.")] = None,
    quick: Quick = False,
    set_: Set = None,
    device: Device = "auto",
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the reader in the folder.")] = False,
    json_: Json = False,
) -> None:
    """With --quick and no --data, questions about generated facts are used: a minute or two."""
    with lock_beside(out):
        check_out(out, overwrite)
        settings = resolve_qa_settings(start, quick, set_ or ())
        training, validation = read_training(data, valid, quick)
        texts = read_texts(pretrain, start)
        reader = make_reader(start, settings, training, texts, device)
        fit(reader, settings, start, (training, validation), texts)
        rows = {"valid": score_reader(reader, validation)}
        if test:
            rows["test"] = score_reader(reader, read_questions(test))
        save_reader(out, reader, {"start": start, **to_json(rows)})
    message(f"reader saved in {escape(str(out))}")
    print_scores(rows, "How good the reader is", json_)


def test(
    data: Annotated[list[str], Option(help=DATA)],
    model: Annotated[Path | None, Option("--model", "-m", help=READER)] = None,
    baselines: Annotated[bool, Option(help="Also answer by rules, without a model.")] = True,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    questions = read_questions(data)
    rows: dict[str, AnswerScores] = {}
    if model is not None:
        reader = open_reader(model, device)
        rows[model.name] = score_reader(reader, questions)
        rows["best its pieces allow"] = ceiling(reader, questions)
    for name, guess in BASELINES.items() if baselines else ():
        rows[name] = score_predictions(
            [guess(each) for each in progress_bar(questions, len(questions), name)], questions
        )
    if not rows:
        raise ValueError("something must answer, got neither --model nor --baselines: name a model")
    print_scores(rows, f"{len(questions):,} questions ({next(iter(rows.values())).rules})", json_)


def ask(
    question: Annotated[str, Argument(help="Question about the text.")],
    model: Annotated[Path, Option("--model", "-m", help=READER)],
    context: Annotated[str, Option("--context", "-c", help="File with the text; - is stdin.")],
    n_best: Annotated[int, Option(min=1, help="Number of answers listed.")] = 5,
    head: Annotated[str | None, Option(help=HEAD, show_default="the mean of all")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help=FIGURE)] = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    if not question.strip():
        raise ValueError(f"a question must have words, got {question!r}")
    if out is None or out.suffix.lower() != TRACE_FILE:
        check_figure(out)
    asked = make_question("asked", question, "\n".join(read_lines(context)), [], context)
    reader = open_reader(model, device)
    (answers,) = answer_questions(reader, [asked], n_best)
    trace = trace_answer(reader, asked, answers.spans[0])
    if out is not None:
        save_answer(trace, out, head)
    print_answer(asked, answers, trace, head, json_)


def read_training(
    data: list[str] | None, valid: list[str] | None, quick: bool
) -> tuple[list[Question], list[Question]]:
    """Read questions for training and validation, or generate them."""
    if data:
        training = read_questions(data)
        return (training, read_questions(valid)) if valid else split_questions(training, VALID_SHARE)
    if not quick:
        raise ValueError("a reader must learn from questions, got none: name files with --data, or try --quick")
    return make_facts(QUICK_FACTS[0], seed=0), make_facts(QUICK_FACTS[1], seed=1)


def read_texts(pretrain: list[str] | None, start: str) -> list[str]:
    """Read further text to pretrain on."""
    if pretrain and start != "pretrained":
        raise ValueError(f"--pretrain goes with --start pretrained, got --start {start}: leave one out")
    return [line for source in pretrain or () for line in read_lines(source) if line.strip()]


def make_reader(
    start: str, settings: QASettings, training: list[Question], texts: list[str], device: str
) -> QuestionReader:
    """Make the reader that training starts from, on its device."""
    where = torch.device(find_device(device))
    reader = start_reader(start, settings, training, texts, message)
    reader.model.to(where)
    n = sum(parameter.numel() for parameter in reader.model.parameters())
    vocabulary = f"{reader.tokenizer.vocab_size('src'):,} tokens"
    message(f"{n:,} parameters, vocabulary of {vocabulary}, {len(training):,} questions, on {where}")
    return reader


def fit(
    reader: QuestionReader,
    settings: QASettings,
    start: str,
    questions: tuple[list[Question], list[Question]],
    texts: list[str],
) -> None:
    """Pretrain where that is asked for, then train on questions."""
    training, validation = questions
    if start == "pretrained":
        contexts = list(dict.fromkeys(question.context for question in training))
        lessons = pretrain_reader(reader, contexts + texts, settings.pretrain)
        report_epochs(lessons, settings.pretrain.epochs, "words", "log p")
    lessons = train_reader(reader, training, validation[: settings.judged], settings.train)
    report_epochs(lessons, settings.train.epochs, "reading", "F1")


def report_epochs(lessons: Iterable[EpochResult], n: int, what: str, score: str) -> None:
    """Report every epoch as it ends."""
    for lesson in progress_bar(lessons, n, f"learning {what}"):
        scores = f"loss {lesson.loss:.3f}, {score} {lesson.score:.2f}"
        message(f"{what}, epoch {lesson.epoch + 1}: {scores} [dim]({lesson.seconds:.0f} s)[/]")


def score_reader(reader: QuestionReader, questions: list[Question]) -> AnswerScores:
    """Answer questions behind a progress bar, and score the answers."""
    answers = progress_bar(answer_questions(reader, questions), len(questions), "answering")
    return score_predictions([each.spans[0].text for each in answers], questions)


def open_reader(folder: Path, device: str) -> QuestionReader:
    """Open a reader on its device."""
    where = torch.device(find_device(device))
    reader = load_reader(folder)
    reader.model.to(where)
    return reader


def print_scores(rows: dict[str, AnswerScores], title: str, json_: bool) -> None:
    """Print scores as a table or JSON."""
    print_json(rows) if json_ else print_tables(scores_table(rows, title))


def parse_heads(head: str | None) -> tuple[int | None, int | None]:
    """Parse LAYER or LAYER:HEAD."""
    parts = [] if head is None else head.split(":")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"heads must be named LAYER or LAYER:HEAD, such as 0:1, got {head!r}")
    layer, number, *_ = [*map(int, parts), None, None]
    return layer, number


def save_answer(trace: AnswerTrace, out: Path, head: str | None) -> None:
    """Save the trace itself, or draw the attention around the answer."""
    if out.suffix.lower() == TRACE_FILE:
        trace.trace.save(out)
        return message(f"[dim]trace saved as[/] {escape(str(out))}")
    from regard.plot.words import draw_answer

    between = attention_between(trace, *parse_heads(head))
    near = answer_neighbourhood(trace.answer, len(trace.context), AROUND)
    columns = slice(near.start, near.stop)
    maps = between.to_context[:, columns].numpy(), between.to_question[columns].numpy()
    words = [word.text for word in trace.question], [word.text for word in trace.context[columns]]
    answer = trace.answer[0] - near.start, trace.answer[1] - near.start
    title = f"{trace.trace.text} → {trace.trace.output} ({between.heads})"
    save_and_report(draw_answer(*maps, *words, answer, title), out)


def print_answer(question: Question, answers: Prediction, trace: AnswerTrace, head: str | None, json_: bool) -> None:
    """Print the answer in its text, the next most likely ones, and what the question's words attended to."""
    between, checks = attention_between(trace, *parse_heads(head)), trace.trace.check()
    words = [word.text for word in trace.question], [word.text for word in trace.context]
    if json_:
        named = {"question": words[0], "context": words[1], "heads": between.heads, "to_context": between.to_context}
        errors = {"weights": checks.weights, "score": trace.score_difference}
        return print_json({"answers": answers.spans, "nowhere": answers.no_answer, "looked": named, "checks": errors})
    best = answers.spans[0]
    print(mark_answer(question.context, best.start, best.stop), end="\n\n")
    shares, title = between.to_context.numpy(), "What each question word attended to"
    attended = word_attention_table(shares, words[1], words[0], title=title)
    attended.columns[0].header = "question"
    print_tables(answers_table(answers), attended)
    print(
        f"shares are of the whole attention of a word, {between.heads}; weights @ v differ from the layers' output by "
        f"{checks.weights:.1e} at most, the answer's score from the search's own by {trace.score_difference:.1e}"
    )
