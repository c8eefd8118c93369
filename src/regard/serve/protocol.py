"""uvicorn's HTTP with a limit to its patience, and with its refusals in our words."""

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """Closes connections on which a request does not arrive in time, and those on which an answer is not read.

    uvicorn by itself waits for ever, for the end of a request's first lines and for a client to read on.
    """

    patience = 10.0  # seconds
    timer: asyncio.TimerHandle | None = None
    reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        self._stop_reading()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Counts the time while a request has begun to come and is not there yet."""
        if self.conn.their_state is not h11.IDLE:
            self._rest()
        elif self.timer is None:
            self.timer = self.loop.call_later(self.patience, self._late)

    def _rest(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _late(self) -> None:
        self.timer = None
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._refuse(408, f"a request must arrive within {self.patience:g} seconds")
        else:
            self.transport.close()  # browsers open connections that they may never use

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_reading()
        super().resume_writing()

    def _await_reading(self, left: int) -> None:
        """Looks after a while whether the client has read on, and if so again."""
        self.reading = self.loop.call_later(self.patience, self._unread, left)

    def _unread(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._await_reading(left)

    def _stop_reading(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not HTTP")

    def _refuse(self, status: int, words: str) -> None:
        body = json.dumps({"error": words}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            for event in (
                h11.Response(status_code=status, headers=headers, reason=b""),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def patient(seconds: float) -> type[PatientProtocol]:
    """Gives the protocol with a patience of its own."""
    return type("PatientProtocol", (PatientProtocol,), {"patience": seconds})
