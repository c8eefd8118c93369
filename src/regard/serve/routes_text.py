"""/generate, /answer."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from regard.config import DecodeSettings
from regard.qa.data import cut_passage, make_passage, make_question
from regard.serve.requests import ERROR_RESPONSES, check_texts, json_response
from regard.serve.schema_api import to_json
from regard.serve.schema_trace import AnswerResponse, AnswerSpan, GeneratedTokenJson, Readers, View, WordJson, Writers
from regard.serve.serialize import make_view, round_numbers
from regard.serve.state import NDJSON, ServerState, TraceRun, load_pytorch

if TYPE_CHECKING:
    from regard.pipeline.generator import Generator


class GenerateRequest(BaseModel):
    """A prompt, and how to continue it."""

    model_config = ConfigDict(strict=True)

    prompt: Annotated[str, Field(examples=["ROMEO:"])] = ""
    pieces: Annotated[
        int, Field(ge=1, le=100_000, description="Maximum number of tokens; fewer if the model ends the text.")
    ] = 200
    temperature: Annotated[float, Field(ge=0, le=100, description="0 is greedy.")] = 0.8
    top_k: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="Sample from the k most likely tokens only.")
    ] = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    writer: Annotated[
        str | None, Field(max_length=200, description="A name from /writers; the first one if omitted.")
    ] = None


def generate_routes(state: ServerState) -> APIRouter:
    """Return the routes of /generate."""
    router = APIRouter(tags=["trace"], responses=ERROR_RESPONSES)

    @router.get("/writers")
    async def writers() -> Writers:
        """List the text generation models of this server."""
        return Writers(list(state.writers.folders))

    @router.post("/generate/stream", response_class=StreamingResponse, responses={200: {"content": {NDJSON: {}}}})
    async def stream(request: Request, wanted: GenerateRequest) -> Response:
        """Continue a prompt, and stream each token with the attention behind it.

        Each line is one JSON object; the last one has `done` set.
        """
        check_texts([wanted.prompt], state.settings)
        return await state.jobs.stream(
            request,
            lambda write: _stream(state, wanted, write),
            lambda error: to_json(GeneratedTokenJson([], None, [], True, error)),
        )

    @router.post("/generate", response_model=View)
    async def generate(request: Request, wanted: GenerateRequest) -> Response:
        """Generate the same text as /generate/stream, and return its trace, which is cached as those of /trace are."""
        check_texts([wanted.prompt], state.settings)
        return await state.jobs.run(request, lambda: _trace(state, wanted))

    return router


def sampling_settings(
    writer: "Generator", wanted: GenerateRequest, max_new_tokens: int
) -> tuple[list[int], DecodeSettings]:
    """Return the ids of the prompt, and settings that stop at the end of the model's context window."""
    if wanted.pieces > max_new_tokens:
        raise ValueError(f"pieces must be at most {max_new_tokens} on this server, got {wanted.pieces}")
    ids = writer.encode(wanted.prompt)
    greedy = wanted.temperature == 0
    settings = replace(
        writer.settings,
        method="greedy" if greedy else "sample",
        temperature=1.0 if greedy else wanted.temperature,
        top_k=wanted.top_k,
        top_p=None,
        n_best=1,
        seed=wanted.seed,
        max_extra=wanted.pieces,
    )
    return ids, replace(settings, max_extra=writer.limit_to_window(ids, settings).max_extra - len(ids))


def _stream(state: ServerState, wanted: GenerateRequest, write: Callable[[str], None]) -> None:
    """Generate in a thread, and write a line for each token."""
    _, writer = state.writers.open_or_first(wanted.writer)
    ids, settings = sampling_settings(writer, wanted, state.settings.max_new_tokens)

    def send(tokens: list[int], log_prob: float | None, weights: list[float], done: bool) -> None:
        write(to_json(GeneratedTokenJson(writer.tokenizer.pieces(tokens, "tgt"), log_prob, weights, done)) + "\n")

    send(ids, None, [], False)
    work = load_pytorch()
    for step in work.trace_tokens(writer, ids, settings):
        send([step.token], step.log_prob, round_numbers(step.weights), False)
    send([], None, [], True)


def _trace(state: ServerState, wanted: GenerateRequest) -> Response:
    name, writer = state.writers.open_or_first(wanted.writer)
    _, settings = sampling_settings(writer, wanted, state.settings.max_new_tokens)
    work = load_pytorch()
    (trace,) = work.trace_generation(writer, wanted.prompt, settings).traces
    run = TraceRun(name, 1, lambda part: trace)
    return json_response(make_view(run.trace(), name, state.traces.add(run)))


N_BEST = 5


class AnswerRequest(BaseModel):
    """A question about a text."""

    model_config = ConfigDict(strict=True)

    question: Annotated[str, Field(min_length=1, examples=["Where does Anna live?"])]
    context: Annotated[str, Field(min_length=1, examples=["Anna lives in Paris."])]
    reader: Annotated[
        str | None, Field(max_length=200, description="A name from /readers; the first one if omitted.")
    ] = None


def answer_routes(state: ServerState) -> APIRouter:
    """Return the routes of /answer."""
    router = APIRouter(tags=["trace"], responses=ERROR_RESPONSES)

    @router.get("/readers")
    async def readers() -> Readers:
        """List the question answering models of this server."""
        return Readers(list(state.readers.folders))

    @router.post("/answer", response_model=AnswerResponse)
    async def answer(request: Request, wanted: AnswerRequest) -> Response:
        """Find the span of a text that answers a question, with the attention behind it."""
        check_texts([wanted.question, wanted.context], state.settings)
        return await state.jobs.run(request, lambda: json_response(_answer(state, wanted)))

    return router


def _answer(state: ServerState, wanted: AnswerRequest) -> AnswerResponse:
    """Answer in a thread."""
    name, reader = state.readers.open_or_first(wanted.reader)
    question = make_question("request", wanted.question, wanted.context, [], "the question")
    work = load_pytorch()
    (answers,) = work.answer_questions(reader, [question], N_BEST)
    seen, windows = work.trace_answer(reader, question, answers.spans[0]), reader.settings.windows
    return AnswerResponse(
        reader=name,
        question=[WordJson(word.text, list(word.indices)) for word in seen.question],
        context=[WordJson(word.text, list(word.indices)) for word in seen.context],
        answer=list(seen.answer),
        whole=len(cut_passage(make_passage(question, reader.tokenizer, windows), 0, windows)) == 1,
        stretches=[AnswerSpan(each.text, each.start, each.stop, each.probability) for each in answers.spans],
        nowhere=answers.no_answer,
        view=make_view(seen.trace, name),
    )
