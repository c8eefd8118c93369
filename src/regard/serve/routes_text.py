"""/generate, /answer."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from regard.config import DecodeSettings
from regard.serve.jobs import NDJSON, Lines, streamed, unless_gone
from regard.serve.requests import FAILURES, check_texts
from regard.serve.schema_trace import Answered, Readers, Stretch, View, Word, Writers, WrotePiece
from regard.serve.serialize import answer, digits, to_json, view_of
from regard.serve.state import House, Run

if TYPE_CHECKING:
    from regard.pipeline.generator import Generator


class Prompt(BaseModel):
    """A beginning, and how to go on."""

    model_config = ConfigDict(strict=True)

    prompt: Annotated[str, Field(examples=["ROMEO:"])] = ""
    pieces: Annotated[int, Field(ge=1, le=100_000, description="To write at most; fewer where a model ends.")] = 200
    temperature: Annotated[float, Field(ge=0, le=100, description="0 takes the likeliest piece each time.")] = 0.8
    top_k: Annotated[int | None, Field(ge=1, le=1_000_000, description="Draw from the likeliest alone.")] = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    writer: Annotated[str | None, Field(max_length=200, description="One of /writers; the first if none.")] = None


def writing(house: House) -> APIRouter:
    """Makes the routes."""
    router = APIRouter(tags=["look"], responses=FAILURES)

    @router.get("/writers")
    async def writers() -> Writers:
        """Lists the writers of this server."""
        return Writers(list(house.writers.folders))

    @router.post("/generate/stream", response_class=StreamingResponse, responses={200: {"content": {NDJSON: {}}}})
    async def stream(asked: Prompt) -> Response:
        """Goes on with a text, a line for each piece with what it looked at."""
        check_texts([asked.prompt], house.settings, house.settings.max_trace_chars)
        lines = Lines()
        house.looking.submit(lambda: _write(house, asked, lines.write)).add_done_callback(lines.end)
        return await streamed(lines, lambda words: to_json(WrotePiece([], None, [], True, words)))

    @router.post("/generate", response_model=View)
    async def generate(request: Request, asked: Prompt) -> Response:
        """Writes the same text, and shows everything that can be seen in the run; it is kept as traces are."""
        check_texts([asked.prompt], house.settings, house.settings.max_trace_chars)
        return (await unless_gone(request, house.looking.submit(lambda: _traced(house, asked))))[0]

    return router


def chance(writer: "Generator", asked: Prompt, house: House) -> tuple[list[int], DecodeSettings]:
    """Gives the prompt's ids, and settings that end where the model would begin to forget."""
    if asked.pieces > house.settings.max_pieces:
        raise ValueError(f"pieces must be {house.settings.max_pieces} or fewer here, got {asked.pieces}")
    ids = writer.encode(asked.prompt)
    greedy = asked.temperature == 0
    chosen = replace(
        writer.settings,
        method="greedy" if greedy else "sample",
        temperature=1.0 if greedy else asked.temperature,
        top_k=asked.top_k,
        top_p=None,
        n_best=1,
        seed=asked.seed,
        max_extra=asked.pieces,
    )
    return ids, replace(chosen, max_extra=writer.limit_to_window(ids, chosen).max_extra - len(ids))


def _write(house: House, asked: Prompt, write: Callable[[str], None]) -> None:
    """Writes in a thread."""
    _, writer = house.writers.open(asked.writer)
    from regard.trace.run import trace_tokens

    ids, settings = chance(writer, asked, house)

    def tell(tokens: list[int], log_prob: float | None, looked: list[float], done: bool) -> None:
        write(to_json(WrotePiece(writer.tokenizer.pieces(tokens, "tgt"), log_prob, looked, done)) + "\n")

    tell(ids, None, [], False)
    for wrote in trace_tokens(writer, ids, settings):
        tell([wrote.token], wrote.log_prob, digits(wrote.weights), False)
    tell([], None, [], True)


def _traced(house: House, asked: Prompt) -> Response:
    from regard.trace.run import trace_generation

    name, writer = house.writers.open(asked.writer)
    _, settings = chance(writer, asked, house)
    run = Run(name, trace_generation(writer, asked.prompt, settings).traces)
    return answer(view_of(run.trace(), name, house.kept.add(run)))


N_BEST = 5


class Question(BaseModel):
    """A question about a text."""

    model_config = ConfigDict(strict=True)

    question: Annotated[str, Field(min_length=1, examples=["Where does Anna live?"])]
    context: Annotated[str, Field(min_length=1, examples=["Anna lives in Paris."])]
    reader: Annotated[str | None, Field(max_length=200, description="One of /readers; the first if none.")] = None


def answering(house: House) -> APIRouter:
    """Makes the routes."""
    router = APIRouter(tags=["look"], responses=FAILURES)

    @router.get("/readers")
    async def readers() -> Readers:
        """Lists the readers of this server."""
        return Readers(list(house.readers.folders))

    @router.post("/answer", response_model=Answered)
    async def ask(request: Request, asked: Question) -> Response:
        """Finds the stretch of a text that answers a question, and shows what was looked at."""
        check_texts([asked.question, asked.context], house.settings, house.settings.max_chars)
        return (await unless_gone(request, house.looking.submit(lambda: answer(_answered(house, asked)))))[0]

    return router


def _answered(house: House, asked: Question) -> Answered:
    """Reads in a thread; what readers need is loaded only by servers that have one."""
    name, reader = house.readers.open(asked.reader)
    from regard.qa.data import cut_passage, make_passage, make_question
    from regard.qa.predict import answer_questions
    from regard.qa.view import trace_answer

    question = make_question("asked", asked.question, asked.context, [], "the question")
    (answers,) = answer_questions(reader, [question], N_BEST)
    seen, cut = trace_answer(reader, question, answers.spans[0]), reader.settings.windows
    return Answered(
        reader=name,
        question=[Word(word.text, list(word.places)) for word in seen.question],
        context=[Word(word.text, list(word.places)) for word in seen.context],
        answer=list(seen.answer),
        whole=len(cut_passage(make_passage(question, reader.tokenizer, cut), 0, cut)) == 1,
        stretches=[Stretch(each.text, each.start, each.stop, each.probability) for each in answers.spans],
        nowhere=answers.no_answer,
        view=view_of(seen.trace, name),
    )
