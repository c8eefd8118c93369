"""From sources to a library, and which one is opened."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from regard import native as room
from regard.engine.native import find_library
from regard.native import Library, UnavailableError, build, libraries, open_library
from regard.native.build import CompileError, build_here
from regard.native.libraries import LEVELS, ForeignFolderError, built_here, cache_folder, prebuilt

BUILT = prebuilt()
if not BUILT:
    pytest.skip("no libraries were built: make lib", allow_module_level=True)
REAL = next(iter(BUILT.values()))


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


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder where a library for just this machine is looked for, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.delenv("REGARD_NATIVE", raising=False)
    return cache_folder()


def test_a_library_of_this_machine_comes_first(tmp_path, monkeypatch, cache):
    assert open_library().path == list(BUILT.values())[open_library().best_level()]
    pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    made = build_here(cache)
    assert built_here(cache) == made and open_library().path == made and open_library().level == "native"
    assert [path.name for path in cache.iterdir()] == [made.name], "something was left lying about"
    monkeypatch.setenv("REGARD_NATIVE", next(iter(BUILT)))
    assert open_library().path == REAL


def test_one_of_other_sources_or_another_processor_is_not_opened(tmp_path, monkeypatch, cache):
    pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    made = build_here(cache)
    for name, other in (("sources_key", lambda: "other"), ("machine_key", lambda: "other")):
        with monkeypatch.context() as patch:
            patch.setattr(libraries, name, other)
            assert built_here(cache) is None
    assert made.exists()


def test_one_key_for_one_set_of_sources(tmp_path, monkeypatch):
    keys = {libraries.sources_key()}
    for name, text in (("a.h", "int a;"), ("a.h", "int b;"), ("b.h", "int b;")):
        folder = tmp_path / str(len(keys))
        folder.mkdir()
        (folder / name).write_text(text)
        monkeypatch.setattr(libraries, "SOURCES", folder)
        keys.add(libraries.sources_key())
    assert len(keys) == 4


@pytest.mark.parametrize("what", ["damaged", "writable by others", "a link", "of another user"])
def test_a_library_that_may_do_anything_is_removed(what, tmp_path, monkeypatch, cache):
    pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    path = build_here(cache)
    if what == "damaged":
        path.write_bytes(path.read_bytes()[:5000])  # to load this one would end the process
    elif what == "writable by others":
        path.chmod(0o666)
    elif what == "a link":
        path.rename(tmp_path / "planted.so")
        path.symlink_to(tmp_path / "planted.so")
    else:
        here = path.lstat()
        other = os.stat_result((*here[:4], here.st_uid + 1, *here[5:]))
        lstat = Path.lstat
        monkeypatch.setattr(Path, "lstat", lambda each: other if each == path else lstat(each))
    assert built_here(cache) is None and not os.path.lexists(path)


def test_flags_that_a_compiler_does_not_know_are_left_out(tmp_path, monkeypatch):
    knows = f'case "$(tail -1 {tmp_path}/calls)" in *march*) exit 1;; esac; cp {REAL} "$OUT"'
    calls = pretend(tmp_path, monkeypatch, knows)
    build_here(tmp_path / "cache")
    assert n_calls(calls) == 2


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, "echo 'no such header' >&2; exit 1")
    with pytest.raises(CompileError, match="did not compile the sources: no such header"):
        build_here(tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_a_compiler_that_hangs_is_given_up(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(build, "PATIENCE", 0.2)
    with pytest.raises(CompileError, match="timed out"):
        build_here(tmp_path / "cache")


def test_without_a_compiler_the_reason_is_told(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match=r"no C\+\+ compiler was found: c\+\+, g\+\+ or clang\+\+"):
        build_here(tmp_path / "cache")


def test_all_levels_are_built_and_those_of_old_sources_go(tmp_path, monkeypatch):
    calls = pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    for module in (build, libraries):
        monkeypatch.setattr(module, "LIBRARIES", tmp_path / "lib")
    monkeypatch.setattr(build, "target_machine", lambda compiler: "aarch64")
    old = tmp_path / "lib" / "aarch64" / "neon-0.so"
    old.parent.mkdir(parents=True)
    old.touch()
    assert {path.name.split("-")[0] for path in build.build_levels()} == set(LEVELS["aarch64"]) and not old.exists()
    assert set(prebuilt("aarch64")) == set(LEVELS["aarch64"]) and not prebuilt("x86_64")
    build.build_levels()
    assert n_calls(calls) == 2, "what is there was built again"
    monkeypatch.setattr(build, "target_machine", lambda compiler: "vax")
    with pytest.raises(CompileError, match="libraries are built for x86_64 and aarch64, got vax: run regard native"):
        build.build_levels()


def test_the_tag_of_a_wheel_is_the_oldest_system_that_its_libraries_run_on(tmp_path):
    older, newer, none = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    older.write_bytes(b"..GLIBC_2.4\0GLIBC_2.17..")
    newer.write_bytes(b"..GLIBC_2.34..")
    none.touch()
    assert build.platform_tag([older, newer], "x86_64") == "manylinux_2_34_x86_64"
    assert build.platform_tag([older], "aarch64") == "manylinux_2_17_aarch64"
    assert "." not in build.platform_tag([none], "x86_64") and "manylinux" not in build.platform_tag([none], "x86_64")


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("REGARD_NATIVE", "0")
    with pytest.raises(UnavailableError, match="REGARD_NATIVE is 0"):
        open_library()


def test_an_unknown_or_missing_level_is_named(monkeypatch, cache):
    monkeypatch.setenv("REGARD_NATIVE", "avx3")
    with pytest.raises(ValueError, match=r"REGARD_NATIVE must be one of 0, 1, native, .*, got 'avx3'"):
        open_library()
    last = list(LEVELS[platform.machine()])[-1]
    monkeypatch.setenv("REGARD_NATIVE", last)
    monkeypatch.setattr(Library, "best_level", lambda self: 0)
    with pytest.raises(ValueError, match=rf"a level that this processor has \({next(iter(BUILT))}\), got '{last}'"):
        open_library()
    monkeypatch.setenv("REGARD_NATIVE", "native")
    with pytest.raises(UnavailableError, match="no library was built for just this machine"):
        open_library()


def test_what_is_no_library_is_no_error(tmp_path, monkeypatch, cache):
    text = tmp_path / "text.so"
    text.write_text("text")
    monkeypatch.setattr(room, "prebuilt", lambda machine: {"x86-64": text})
    with pytest.raises(UnavailableError, match=r"text\.so"):
        open_library()


def test_two_processes_can_build_it_at_once(tmp_path, monkeypatch, cache):
    calls = pretend(tmp_path, monkeypatch, f'sleep 0.5; cp {REAL} "$OUT"')
    make = "from regard.native.build import *; from regard.native.libraries import *; print(build_here(cache_folder()))"
    running = [subprocess.Popen([sys.executable, "-c", make], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {process.communicate(timeout=60)[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert n_calls(calls) == 2 and len(paths) == 1 and len(list(cache.iterdir())) == 1


def test_a_user_without_a_home_takes_what_came_with_the_package(monkeypatch):
    def no_entry(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("HOME", "XDG_CACHE_HOME", "REGARD_NATIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_entry)
    with pytest.raises(OSError, match="there is no home folder to keep it in: set HOME or XDG_CACHE_HOME"):
        cache_folder()
    assert open_library().path in BUILT.values()


def test_a_folder_that_others_can_write_to_is_closed_to_them(cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert built_here(cache) is None
    assert cache.stat().st_mode & 0o777 == 0o700


def test_nothing_is_loaded_from_a_folder_of_another_user(tmp_path, monkeypatch, cache):
    pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    build_here(cache)
    monkeypatch.setattr(libraries, "USER", libraries.USER + 1)
    with pytest.raises(
        ForeignFolderError, match=f"belong to this user to load code from it, got user {libraries.USER - 1}"
    ):
        built_here(cache)
    with pytest.warns(UserWarning, match=f"got user {libraries.USER - 1}: it is left alone; name another folder"):
        assert open_library().path in BUILT.values()


def test_what_killed_compilers_left_is_removed(tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, f'cp {REAL} "$OUT"')
    old, new = tmp_path / "cache" / "making-old", tmp_path / "cache" / "making-new"
    for each in (old, new):
        each.mkdir(parents=True)
        (each / "regard.so").touch()
    os.utime(old, (0, 0))
    build_here(tmp_path / "cache")
    assert not old.exists() and new.exists()


def test_without_compiled_code_one_line_says_what_runs_instead(monkeypatch, cache):
    monkeypatch.setattr(room, "prebuilt", lambda machine: {})
    with pytest.warns(UserWarning, match=r"PyTorch translates.*no library was built for this machine.*regard native"):
        assert find_library() is None
    monkeypatch.setenv("REGARD_NATIVE", "0")  # which a user chose, and need not be told
    assert find_library() is None


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
