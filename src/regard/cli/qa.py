"""The commands that answer questions from a text: qa train, qa test, qa ask."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json, Set, app
from regard.cli.studies import check_out, keep_figure
from regard.plot.terminal import escaped, print_json, print_tables, say, with_bar

if TYPE_CHECKING:
    from regard.qa.data import Question
    from regard.qa.model import QuestionReader
    from regard.qa.predict import AnswerScores, Prediction
    from regard.qa.train import QASettings
    from regard.qa.view import AnswerTrace

qa = typer.Typer(help="Questions answered from a text by an encoder that reads spans.", no_args_is_help=True)
app.add_typer(qa, name="qa")

DATA = "Questions as JSON lines: question, context, answers of text and start; .jsonl, or packed."
START = "scratch, pretrained (words first, from the contexts), or a translator: its name or folder."
QUICK = "Small sizes, and made facts where no data is named: a minute or two."
FIGURE = "Save a figure of the attention around the answer (.png, .svg, .pdf), or the trace (.safetensors)."
HEAD = "The heads that are shown: LAYER or LAYER:HEAD, counted from 0."
FILE = ".safetensors"
AROUND = 12  # words on either side of the answer in a figure
VALID_SHARE = 0.1
QUICK_FACTS = 1200, 200  # made questions to learn from, and to be judged by


@qa.command()
def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="The reader's folder.")],
    data: Annotated[list[str] | None, typer.Option(help=DATA)] = None,
    valid: Annotated[list[str] | None, typer.Option(help="Validation questions; else a tenth is split off.")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Test questions, answered in the end.")] = None,
    start: Annotated[str, typer.Option(help=START)] = "scratch",
    pretrain: Annotated[list[str] | None, typer.Option(help="Further text for --start pretrained, by lines.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help=QUICK)] = False,
    set_: Set = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Teaches a reader to find answers in a text, and keeps the one that is best on validation questions."""
    from regard.qa.model import save_reader
    from regard.qa.train import resolve_settings

    made = resolve_settings(start, quick, set_ or ())
    taught, judged = _questions(data, valid, quick)
    texts = _texts(pretrain, start)
    reader = _started(start, made, taught, texts, device)
    _learn(reader, made, start, taught, judged, texts)
    rows = {"valid": _scored(reader, judged)}
    if test:
        from regard.qa.data import read_questions

        rows["test"] = _scored(reader, read_questions(test))
    from regard.study.stats import plain

    save_reader(out, reader, {"start": start, **plain(rows)})
    say(f"reader saved in {escaped(str(out))}")
    _show(rows, "How good the reader is", json_)


@qa.command(name="test")
def examine(
    data: Annotated[list[str], typer.Option(help=DATA)],
    model: Annotated[Path | None, typer.Option("--model", "-m", help="A folder that qa train made.")] = None,
    baselines: Annotated[bool, typer.Option(help="Also answer without a model.")] = True,
    device: Device = "cpu",
    json_: Json = False,
) -> None:
    """Answers questions and scores the answers by their set's rules, beside ways that need no model."""
    from regard.qa.data import read_questions
    from regard.qa.predict import BASELINES
    from regard.qa.train import ceiling, score_predictions

    questions = read_questions(data)
    rows: dict[str, Any] = {}
    if model is not None:
        reader = _loaded(model, device)
        rows[model.name] = _scored(reader, questions)
        rows["best its pieces allow"] = ceiling(reader, questions)
    for name, guess in BASELINES.items() if baselines else ():
        rows[name] = score_predictions([guess(each) for each in with_bar(questions, len(questions), name)], questions)
    if not rows:
        raise ValueError("something must answer, got neither --model nor --baselines: name a model")
    _show(rows, f"{len(questions):,} questions ({next(iter(rows.values())).rules})", json_)


@qa.command()
def ask(
    question: Annotated[str, typer.Argument(help="A question about the text.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="A folder that qa train made.")],
    context: Annotated[str, typer.Option("--context", "-c", help="A file with the text; - is stdin.")],
    n_best: Annotated[int, typer.Option(min=1, help="Answers that are listed.")] = 5,
    head: Annotated[str | None, typer.Option(help=HEAD, show_default="the mean of all")] = None,
    out: Annotated[Path | None, typer.Option("--out", "--trace", "-o", help=FIGURE)] = None,
    device: Device = "cpu",
    json_: Json = False,
) -> None:
    """Answers one question from a text, and shows what its words looked at."""
    if not question.strip():
        raise ValueError(f"a question must have words, got {question!r}")
    if out is None or out.suffix.lower() != FILE:
        check_out(out)
    from regard.data.files import read_lines
    from regard.qa.data import make_question
    from regard.qa.predict import answer_questions
    from regard.qa.view import trace_answer

    asked = make_question("asked", question, "\n".join(read_lines(context)), [], context)
    reader = _loaded(model, device)
    (answers,) = answer_questions(reader, [asked], n_best)
    seen = trace_answer(reader, asked, answers.spans[0])
    if out is not None:
        _keep(seen, out, head)
    _tell(asked, answers, seen, head, json_)


def _questions(data: list[str] | None, valid: list[str] | None, quick: bool) -> "tuple[list[Question], list[Question]]":
    """Reads what is to be learned from and what judges it, or makes both."""
    from regard.qa.data import make_facts, read_questions, split_questions

    if data:
        taught = read_questions(data)
        return (taught, read_questions(valid)) if valid else split_questions(taught, VALID_SHARE)
    if not quick:
        raise ValueError("a reader must learn from questions, got none: name files with --data, or try --quick")
    return make_facts(QUICK_FACTS[0], seed=0), make_facts(QUICK_FACTS[1], seed=1)


def _texts(pretrain: list[str] | None, start: str) -> list[str]:
    from regard.data.files import read_lines

    if pretrain and start != "pretrained":
        raise ValueError(f"--pretrain goes with --start pretrained, got --start {start}: leave one out")
    return [line for source in pretrain or () for line in read_lines(source) if line.strip()]


def _started(
    start: str, made: "QASettings", taught: "list[Question]", texts: list[str], device: str
) -> "QuestionReader":
    from regard.qa.train import start_reader
    from regard.train.run import choose_device

    where = choose_device(device)
    reader = start_reader(start, made, taught, texts, say)
    reader.model.to(where)
    n = sum(parameter.numel() for parameter in reader.model.parameters())
    say(f"{n:,} parameters, {reader.tokenizer.vocab_size('src'):,} pieces, {len(taught):,} questions, on {where}")
    return reader


def _learn(
    reader: "QuestionReader",
    made: "QASettings",
    start: str,
    taught: "list[Question]",
    judged: "list[Question]",
    texts: list[str],
) -> None:
    from regard.qa.train import pretrain_reader, train_reader

    if start == "pretrained":
        contexts = list(dict.fromkeys(question.context for question in taught))
        _tell_lessons(pretrain_reader(reader, contexts + texts, made.pretrain), made.pretrain.epochs, "words", "log p")
    lessons = train_reader(reader, taught, judged[: made.judged], made.train)
    _tell_lessons(lessons, made.train.epochs, "reading", "F1")


def _tell_lessons(lessons: Iterable[Any], n: int, what: str, score: str) -> None:
    for lesson in with_bar(lessons, n, f"learning {what}"):
        said = f"{what}, epoch {lesson.epoch + 1}: loss {lesson.loss:.3f}, {score} {lesson.score:.2f}"
        say(f"{said} [dim]({lesson.seconds:.0f} s)[/]")


def _scored(reader: "QuestionReader", questions: "list[Question]") -> "AnswerScores":
    from regard.qa.predict import answer_questions
    from regard.qa.train import score_predictions

    answers = with_bar(answer_questions(reader, questions), len(questions), "answering")
    return score_predictions([each.spans[0].text for each in answers], questions)


def _loaded(folder: Path, device: str) -> "QuestionReader":
    from regard.qa.model import load_reader
    from regard.train.run import choose_device

    where = choose_device(device)
    reader = load_reader(folder)
    reader.model.to(where)
    return reader


def _show(rows: "dict[str, AnswerScores]", title: str, json_: bool) -> None:
    if json_:
        return print_json(rows)
    from regard.qa.view import scores_table

    print_tables(scores_table(rows, title))


def _heads(head: str | None) -> tuple[int | None, int | None]:
    """Reads LAYER or LAYER:HEAD."""
    parts = [] if head is None else head.split(":")
    if len(parts) > 2 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"heads must be named LAYER or LAYER:HEAD, such as 0:1, got {head!r}")
    layer, number, *_ = [*map(int, parts), None, None]
    return layer, number


def _keep(seen: "AnswerTrace", out: Path, head: str | None) -> None:
    """Saves the trace itself, or draws the attention around the answer."""
    if out.suffix.lower() == FILE:
        seen.trace.save(out)
        return say(f"[dim]trace saved as[/] {escaped(str(out))}")
    from regard.qa.view import answer_neighbourhood, attention_between, draw_answer

    between = attention_between(seen, *_heads(head))
    near = answer_neighbourhood(seen.answer, len(seen.context), AROUND)
    columns = slice(near.start, near.stop)
    maps = between.to_context[:, columns].numpy(), between.to_question[columns].numpy()
    words = [word.text for word in seen.question], [word.text for word in seen.context[columns]]
    answer = seen.answer[0] - near.start, seen.answer[1] - near.start
    title = f"{seen.trace.text} → {seen.trace.output} ({between.heads})"
    keep_figure(draw_answer(*maps, *words, answer, title), out)


def _tell(question: "Question", answers: "Prediction", seen: "AnswerTrace", head: str | None, json_: bool) -> None:
    """Prints the answer in its text, the likeliest others, and what the question's words looked at."""
    from regard.qa.view import attention_between

    between, checks = attention_between(seen, *_heads(head)), seen.trace.check()
    words = [word.text for word in seen.question], [word.text for word in seen.context]
    if json_:
        named = {"question": words[0], "context": words[1], "heads": between.heads, "to_context": between.to_context}
        errors = {"weights": checks.weights, "score": seen.score_difference}
        return print_json({"answers": answers.spans, "nowhere": answers.no_answer, "looked": named, "checks": errors})
    from regard.plot.terminal import word_attention_table
    from regard.qa.view import answers_table, mark_answer

    best = answers.spans[0]
    print(mark_answer(question.context, best.start, best.stop), end="\n\n")
    shares, title = between.to_context.numpy(), "What each question word looked at"
    looked = word_attention_table(shares, words[1], words[0], title=title)
    looked.columns[0].header = "question"
    print_tables(answers_table(answers), looked)
    print(
        f"shares are of all that a word looked at by {between.heads}; weights @ v differ from the layers' output by "
        f"{checks.weights:.1e} at most, the answer's score from the search's own by {seen.score_difference:.1e}"
    )
