"""From sources to a library: made once, found again, and never in anybody's way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard import native as room
from regard.engine.native import find_library
from regard.native import CompileError, Library, UnavailableError, cache_folder, compiled, open_library

try:
    REAL = compiled(cache_folder())
except CompileError as error:
    pytest.skip(f"a compiler is needed to test how it is used: {error}", allow_module_level=True)


def pretend(folder: Path, monkeypatch, does: str) -> Path:
    """Makes a compiler that notes its calls and then does what it is told; $OUT is the file it should write."""
    script, calls = folder / "pretended", folder / "calls"
    lines = [f'echo "$@" >> {calls}', 'while [ "$1" != "-o" ]; do shift; done', 'OUT="$2"', does]
    script.write_text("\n".join(["#!/bin/sh", *lines]) + "\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    calls.touch()
    return calls


def n_calls(calls: Path) -> int:
    return len(calls.read_text(encoding="utf-8").splitlines())


def test_a_library_is_made_once(tmp_path, monkeypatch):
    calls = pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    first = compiled(tmp_path / "cache")
    assert compiled(tmp_path / "cache") == first
    assert n_calls(calls) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.name], "something was left lying about"
    Library(first)


def test_other_sources_flags_and_compilers_make_another(tmp_path, monkeypatch):
    calls = pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    made = {compiled(tmp_path / "cache"), compiled(tmp_path / "cache", [["-O1"]])}
    monkeypatch.setattr(room, "_machine", lambda: ("another",))
    made.add(compiled(tmp_path / "cache"))
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "regard.cpp").write_text("// nothing\n")
    monkeypatch.setattr(room, "SOURCES", sources)
    made.add(compiled(tmp_path / "cache"))
    with (tmp_path / "pretended").open("a") as script:
        script.write("# a newer version\n")
    made.add(compiled(tmp_path / "cache"))
    assert len(made) == n_calls(calls) == 5


def test_a_damaged_library_is_made_again(tmp_path, monkeypatch):
    calls = pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    path = compiled(tmp_path / "cache")
    path.write_bytes(path.read_bytes()[:5000])  # to load this one would end the process
    assert compiled(tmp_path / "cache") == path
    assert path.read_bytes() == REAL.read_bytes()
    assert n_calls(calls) == 2


def test_flags_that_a_compiler_does_not_know_are_left_out(tmp_path, monkeypatch):
    knows = f'case "$(tail -1 {tmp_path}/calls)" in *openmp*) exit 1;; esac; cp {REAL} "$OUT"'
    calls = pretend(tmp_path, monkeypatch, knows)
    compiled(tmp_path / "cache")
    assert n_calls(calls) == 2


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, "echo 'no such header' >&2; exit 1")
    with pytest.raises(CompileError, match="did not compile the sources: no such header"):
        compiled(tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match="no such header"):
        open_library()


def test_a_compiler_that_hangs_is_given_up(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(room, "PATIENCE", 0.2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnavailableError, match="timed out"):
        open_library()


def test_without_a_compiler_the_reason_is_told(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"no C\+\+ compiler was found: c\+\+, g\+\+ or clang\+\+"):
        open_library()


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("REGARD_NATIVE", "0")
    with pytest.raises(UnavailableError, match="REGARD_NATIVE is 0"):
        open_library()


def test_where_nothing_can_be_kept_it_is_made_for_now(tmp_path, monkeypatch):
    calls = pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    library = open_library()
    assert not library.path.exists()
    assert isinstance(library.has_fast_int8(), bool)
    assert n_calls(calls) == 1


def test_what_is_no_library_is_no_error(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, 'echo text > "$OUT"')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnavailableError):
        open_library()


def test_two_processes_can_make_it_at_once(tmp_path, monkeypatch):
    calls = pretend(tmp_path, monkeypatch, f'sleep 0.5; cp {REAL} "$OUT"')
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from regard.native import open_library; print(open_library().path)"]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {process.communicate(timeout=60)[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert n_calls(calls) == 2, "they did not meet"
    assert len(paths) == 1
    assert len(list((tmp_path / "regard").iterdir())) == 1


def test_a_user_without_a_home_gets_a_library_for_now(monkeypatch, tmp_path):
    def no_entry(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_entry)
    with pytest.raises(OSError, match="there is no home folder to keep it in: set HOME or XDG_CACHE_HOME"):
        cache_folder()
    library = Library(REAL)
    monkeypatch.setattr(room, "_open_for_now", lambda: library)
    assert open_library() is library


@pytest.mark.parametrize("what", ["writable by others", "a link", "of another user"])
def test_a_library_that_others_could_have_planted_is_made_again(what, tmp_path, monkeypatch):
    calls = pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    path = compiled(tmp_path / "cache")
    if what == "writable by others":
        path.chmod(0o666)
    elif what == "a link":
        path.rename(tmp_path / "planted.so")
        path.symlink_to(tmp_path / "planted.so")
    else:
        here = path.lstat()
        other = os.stat_result((*here[:4], here.st_uid + 1, *here[5:]))
        lstat, seen = Path.lstat, []
        monkeypatch.setattr(Path, "lstat", lambda each: other if each == path and not seen.append(1) else lstat(each))
    assert compiled(tmp_path / "cache") == path
    assert n_calls(calls) == 2 and not path.is_symlink() and path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_closed_to_them(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    compiled(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_nothing_is_loaded_from_a_folder_of_another_user(tmp_path, monkeypatch):
    calls = pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = open_library().path
    make = room.make_private

    def of_another(folder):
        if folder == kept.parent:
            raise room.ForeignFolderError(f"{folder} must belong to this user to load code from it, got user 5")
        make(folder)

    monkeypatch.setattr(room, "make_private", of_another)
    with pytest.warns(UserWarning, match="must belong to this user to load code from it, got user 5: compiling"):
        library = open_library()
    assert library.path != kept and n_calls(calls) == 2
    monkeypatch.setattr(room, "make_private", make)
    monkeypatch.setattr(room, "USER", room.USER + 1)
    with pytest.raises(OSError, match=f"must belong to this user to load code from it, got user {room.USER - 1}"):
        make(kept.parent)


def test_what_killed_compilers_left_is_removed(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    old, new = tmp_path / "cache" / "making-old", tmp_path / "cache" / "making-new"
    for each in (old, new):
        each.mkdir(parents=True)
        (each / "regard.so").touch()
    os.utime(old, (0, 0))
    compiled(tmp_path / "cache")
    assert not old.exists() and new.exists()


def test_without_compiled_code_one_line_says_what_runs_instead(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(UserWarning, match=r"PyTorch translates.*no C\+\+ compiler was found"):
        assert find_library("float32") is None
    monkeypatch.setenv("REGARD_NATIVE", "0")  # which a user chose, and need not be told
    assert find_library("float32") is None


BEGIN = """
import os, signal, threading
import regard
translator = regard.load("zh-en")
texts = ["介绍一下西安的历史和文化，以及那里的人们。"] * 12
found = translator.translate(texts)
"""
FORK = """
child = os.fork()
if not child:
    signal.alarm(60)  # ends a child that waits for ever
    os._exit(translator.translate(texts) != found)
print(os.waitpid(child, 0)[1], translator.translate(texts) == found)
"""
DAEMON = """
begun = threading.Semaphore(0)
def work(read):
    while True:
        begun.release()
        read()
readers = [lambda: translator.translate(texts)] * 2 + [lambda: translator.tokenizer.encode(texts[0] * 20, "src")] * 2
for read in readers:
    threading.Thread(target=work, args=(read,), daemon=True).start()
for _ in range(20):
    begun.acquire()
print(0, True)
"""


@pytest.mark.parametrize("then", [FORK, DAEMON], ids=["fork", "daemon"])
def test_a_program_may_fork_after_a_search_and_end_during_one(then):
    """The child cannot use its parent's threads, and what a thread still reads is not freed at the end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", BEGIN + then]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stderr
