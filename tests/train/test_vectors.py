"""Tables that start from vectors of the training text."""

import pytest
import torch

from regard.build import build_model
from regard.config import ModelSettings, parse_settings, preset
from regard.data.store import IdStore, write_store
from regard.train.initialise import fill_table, start_from_vectors
from tests.parts import exactly

V = 40

pytest.importorskip("gensim")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Sentences in which ids 4 to 19 stand with each other, and 20 to 34 with each other; the rest never occurs."""
    folder = tmp_path_factory.mktemp("store") / "train"
    chance = torch.Generator().manual_seed(1)
    with write_store(folder, V) as writer:
        for i in range(600):
            low, high = (4, 20) if i % 2 else (20, 35)
            src, tgt = (torch.randint(low, high, (8,), generator=chance).tolist() for _ in range(2))
            writer.add(src, tgt)
    return IdStore(folder)


def make_model(tie):
    torch.manual_seed(2)
    tables = preset("tiny")["model"] | {"d_model": 32, "n_heads": 2, "tie": tie}
    return build_model(parse_settings(ModelSettings, tables), (V, V))


@pytest.mark.parametrize("method", ["skip_gram", "cbow"])
@pytest.mark.parametrize("tie", ["all", "none"])
def test_tables_change_keep_their_spread_and_are_the_same_each_time(store, method, tie):
    before, model, again = make_model(tie), make_model(tie), make_model(tie)
    start_from_vectors(model, store, method, seed=3)
    start_from_vectors(again, store, method, seed=3)
    for side in ("src.table.weight", "tgt.table.weight"):
        old, new = before.get_parameter(side), model.get_parameter(side)
        exactly(new, again.get_parameter(side))
        assert not torch.equal(new[4:35], old[4:35])
        exactly(new[35:], old[35:])  # pieces that never occur stay
        exactly(new[0], torch.zeros(32))  # and so does padding
        assert float(new[4:35].detach().std()) == pytest.approx(32**-0.5, rel=0.02)


def test_pieces_that_stand_together_come_to_lie_together(store):
    model = make_model("all")
    start_from_vectors(model, store, "skip_gram", seed=3)
    vectors = torch.nn.functional.normalize(model.get_parameter("src.table.weight").detach(), dim=-1)
    within = (vectors[4:20] @ vectors[4:20].T).mean()
    across = (vectors[4:20] @ vectors[20:35].T).mean()
    assert within > across + 0.5


@pytest.mark.gpu
def test_a_table_on_a_gpu_is_filled_there():
    table = torch.zeros(12, 8, device="cuda")
    store = [[4, 5, 6], [5, 6, 7], [4, 7, 5]] * 20

    class Said:
        def __iter__(self):
            return iter([[str(i) for i in row] for row in store])

    fill_table(table, Said(), "skip_gram", seed=0)
    assert table[4:8].abs().amin().item() > 0.0
    assert table[:4].abs().amax().item() == 0.0
