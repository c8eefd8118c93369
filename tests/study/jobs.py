"""Jobs for processes of their own; a file without imports that take long, as each process reads it."""

import os
import signal
import time


def note(job):
    path, what = job
    if what == "fail":
        raise SystemExit(3)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "wait":
        signal.signal(signal.SIGTERM, lambda *_: (path.write_text("stopped"), os._exit(0)))
        path.write_text("begun")
        time.sleep(60)
    path.write_text(what)
