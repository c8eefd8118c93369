"""The routes that answer questions from a text."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from regard.serve.answered import Answered, Readers, Stretch
from regard.serve.answers import answer
from regard.serve.asks import check_texts
from regard.serve.failures import FAILURES
from regard.serve.house import House
from regard.serve.looking import unless_gone
from regard.serve.payload import view_of
from regard.serve.view import Word

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
    from regard.decode.answers import answer_questions
    from regard.text.passages import cut_passage, make_passage
    from regard.text.questions import make_question
    from regard.trace.answer import trace_answer

    question = make_question("asked", asked.question, asked.context, [], "the question")
    (answers,) = answer_questions(reader, [question], N_BEST)
    seen, cut = trace_answer(reader, question, answers.found[0]), reader.settings.windows
    return Answered(
        reader=name,
        question=[Word(word.text, list(word.places)) for word in seen.question],
        context=[Word(word.text, list(word.places)) for word in seen.context],
        answer=list(seen.answer),
        whole=len(cut_passage(make_passage(question, reader.tokenizer, cut), 0, cut)) == 1,
        stretches=[Stretch(each.text, each.start, each.stop, each.probability) for each in answers.found],
        nowhere=answers.nowhere,
        view=view_of(seen.trace, name),
    )
