"""Settings: what is read, and how mistakes are answered."""

from dataclasses import FrozenInstanceError, dataclass, fields

import pytest

from regard.config import (
    HeadsSettings,
    PartSettings,
    Settings,
    choose,
    parse_settings,
    unknown,
)
from regard.toml import parse_override, read_toml


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    flag: bool = False


@dataclass(frozen=True)
class Outer:
    count: int = 1
    name: str = "none"
    inner: Inner = Inner()


def test_nothing_given_leaves_every_default():
    assert parse_settings(HeadsSettings, {}) == HeadsSettings()


def test_given_values_replace_defaults():
    given = {"d_model": 12, "d_key": 5, "bias": False, "attention": {"name": "additive", "hidden": 7, "dropout": 0.1}}
    expected = HeadsSettings(
        d_model=12, d_key=5, bias=False, attention=PartSettings("additive", {"hidden": 7, "dropout": 0.1})
    )
    assert parse_settings(HeadsSettings, given) == expected


def test_nested_tables_are_read():
    assert parse_settings(Outer, {"count": 3, "inner": {"flag": True}}) == Outer(3, inner=Inner(flag=True))


def test_a_whole_number_is_taken_for_a_float():
    found = parse_settings(Inner, {"rate": 1})
    assert found.rate == 1.0
    assert type(found.rate) is float


def test_settings_cannot_be_changed():
    for field in fields(HeadsSettings):
        with pytest.raises(FrozenInstanceError):
            setattr(HeadsSettings(), field.name, None)


def test_toml_lists_only_what_differs(tmp_path):
    path = tmp_path / "heads.toml"
    path.write_text('n_heads = 4\n[position]\nname = "rotary"\nbase = 500.0\n', encoding="utf-8")
    assert read_toml(HeadsSettings, path) == HeadsSettings(n_heads=4, position=PartSettings("rotary", {"base": 500.0}))


BAD_SETTINGS = [
    (HeadsSettings, {"n_head": 4}, "unknown setting 'n_head': did you mean 'n_heads'\\? valid are d_model, n_heads, "),
    (HeadsSettings, {"zzz": 4}, "unknown setting 'zzz': valid are d_model, n_heads, d_query, "),
    (
        Outer,
        {"inner": {"rat": 1.0}},
        "unknown setting 'inner.rat': did you mean 'inner.rate'\\? valid are inner.rate, ",
    ),
    (HeadsSettings, {"n_heads": "8"}, "n_heads must be int, got '8'"),
    (HeadsSettings, {"n_heads": 8.0}, "n_heads must be int, got 8.0"),
    (HeadsSettings, {"n_heads": True}, "n_heads must be int, got True"),
    (HeadsSettings, {"d_query": 1.5}, r"d_query must be int \| None, got 1.5"),
    (HeadsSettings, {"d_query": False}, r"d_query must be int \| None, got False"),
    (HeadsSettings, {"bias": 1}, "bias must be bool, got 1"),
    (HeadsSettings, {"attention": "dot"}, "attention must be a table of settings, got 'dot'"),
    (HeadsSettings, {"attention": {"dropout": 0.1}}, "attention.name must name a part, got None"),
    (HeadsSettings, {"attention": {"name": 3}}, "attention.name must name a part, got 3"),
    (Outer, {"inner": {"rate": "fast"}}, "inner.rate must be float, got 'fast'"),
    (Outer, {"inner": {"rate": True}}, "inner.rate must be float, got True"),
    (Outer, {"name": 5}, "name must be str, got 5"),
]


@pytest.mark.parametrize(("cls", "given", "said"), BAD_SETTINGS, ids=[said[:30] for _, _, said in BAD_SETTINGS])
def test_unknown_keys_and_mistyped_values_are_refused(cls, given, said):
    with pytest.raises(ValueError, match=said):
        parse_settings(cls, given)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.form=texts", "unknown data.form 'texts': did you mean 'text'\\? valid are pairs, text, documents"),
        ("text.kind=unigrm", "unknown text.kind 'unigrm': did you mean 'unigram'\\? valid are unigram, bpe, "),
        ("model.family=rnn", "unknown model.family 'rnn': valid are transformer, recurrent, decoder"),
        ("model.norm_place=befor", "unknown model.norm_place 'befor': did you mean 'before'"),
        ("model.state_norm=bogus", "unknown model.state_norm 'bogus': valid are none, layer"),
        (
            "model.state_norm=layer",
            "must be 'none' in the family 'transformer', .* got 'layer': use model.norm, or the",
        ),
        ("model.tie=some", "unknown model.tie 'some': .*valid are all, target, inputs, none"),
        ("decode.method=greed", "unknown decode.method 'greed': did you mean 'greedy'"),
        ("train.schedule=cosin", "unknown train.schedule 'cosin': did you mean 'cosine'"),
        ("train.vectors=skipgram", "unknown train.vectors 'skipgram': did you mean 'skip_gram'"),
        ("train.stop_on=blue", "unknown train.stop_on 'blue': did you mean 'bleu'"),
        ("train.precision=float8", "unknown train.precision 'float8'"),
        ("train.precision=16", "unknown train.precision '16': valid are auto, float32, bfloat16"),
    ],
)
def test_a_setting_with_fixed_values_refuses_others(setting, said):
    with pytest.raises(ValueError, match=said):
        parse_settings(Settings, parse_override(setting))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n_heads = ", "Invalid value"),
        ("n_heads = 4\nn_heads = 5", "Cannot overwrite a value"),
        ("n_head = 4", "unknown setting 'n_head': did you mean 'n_heads'"),
        ("n_heads = 4.5", "n_heads must be int, got 4.5"),
        ("[attention]\ndropout = 0.1", "attention.name must name a part, got None"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(tmp_path, text, said):
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"wrong\.toml: {said}"):
        read_toml(HeadsSettings, path)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"absent\.toml: .*No such file"):
        read_toml(HeadsSettings, tmp_path / "absent.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bytes\.toml: .*0xff"):
        read_toml(HeadsSettings, tmp_path / "bytes.toml")


def test_a_known_name_is_looked_up():
    assert choose({"one": 1, "two": 2}, "two", "number") == 2


@pytest.mark.parametrize(
    ("name", "hint"), [("rotory", "did you mean 'rotary'? "), ("Rotary", "did you mean 'rotary'? "), ("???", "")]
)
def test_an_unknown_name_is_answered_with_the_nearest_and_all(name, hint):
    said = f"unknown position {name!r}: {hint}valid are rotary, alibi"
    assert unknown(name, ["rotary", "alibi"], "position") == said
    with pytest.raises(ValueError) as caught:
        choose({"rotary": 1, "alibi": 2}, name, "position")
    assert str(caught.value) == said


def test_a_dash_is_taken_for_an_underscore():
    assert "did you mean 'scaled_dot'?" in unknown("scaled-dot", ["dot", "scaled_dot"], "attention")
