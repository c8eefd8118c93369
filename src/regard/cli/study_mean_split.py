"""The command that splits the stream into means, and scores into pairs of them: study mean-split."""

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.study_page import Doc, Quick, check_places
from regard.cli.study_text import Data, Model, Sentences, hand_over, read_text, say_unread, short_name
from regard.plot.terminal import with_bar

QUICK_SENTENCES = 60


@study.command("mean-split")
def mean_split(
    model: Model = "zh-en",
    data: Data = None,
    sentences: Sentences = 500,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = None,
    doc: Doc = None,
    json_: Json = False,
) -> None:
    """What the stream is made of at each layer, mean, position, context, word, rest, and which pairs make scores."""
    check_places(out, doc)
    from regard.study.mean_split import run_mean_split
    from regard.study.stats import signature

    wanted = min(sentences, QUICK_SENTENCES) if quick else sentences
    translator, pairs, place = read_text(model, data, wanted, device)
    found = run_mean_split(short_name(model), translator, pairs, seed, with_bar)
    say_unread(found.n_unread)

    def draw():
        from regard.study.mean_split import draw_mean_split

        return draw_mean_split(found)

    from regard.study.mean_split_page import mean_split_page

    signed = signature(place, seed=seed, model=found.model, pairs=found.n_pairs)
    hand_over(found, draw, lambda: mean_split_page(found), signed, (out, doc), json_)
