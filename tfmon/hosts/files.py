"""The agent's folder on a host: files that the monitor has it keep, and those that it fetches."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO

from tfmon.hosts.frames import CHUNK_BYTES, Frame, Kind, Outbox


class Files:
    """Keeps and sends files. Thread: the agent's loop."""

    def __init__(self, folder: Path, outbox: Outbox, most_waiting: int) -> None:
        """Send parts of files only while less than `most_waiting` bytes wait for the link."""
        self._folder, self._outbox, self._most_waiting = folder, outbox, most_waiting
        self._open: dict[int, BinaryIO] = {}

    def keep(self, frame: Frame) -> None:
        """Keep a file: its name in the folder, a zero byte, its content."""
        name, _, content = frame.payload.partition(b"\0")
        path = self._folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def fetch(self, frame: Frame) -> None:
        """Begin to send a file."""
        name = os.fsdecode(frame.payload)
        try:
            self._open[frame.number] = (self._folder / name).open("rb")
        except OSError as error:
            answer = {"error": f"{name}: {error.strerror}"}
            self._outbox.put(Kind.ANSWER, frame.number, json.dumps(answer).encode())

    def send_parts(self) -> None:
        """Send more of the files; after the last part an empty one."""
        for number, file in list(self._open.items()):
            while self._outbox.waiting_bytes < self._most_waiting:
                part = file.read(CHUNK_BYTES)
                self._outbox.put(Kind.CHUNK, number, part)
                self._outbox.collect()
                if not part:
                    self._open.pop(number).close()
                    break
