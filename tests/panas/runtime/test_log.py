"""Logs: lines of JSON or text, put aside by size, for their owner alone."""

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from panas.runtime.log import KEPT, JsonLines, Line, append

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_line_has_time_level_and_event_and_no_fact_takes_their_place():
    line = Line("request", {"verb": "hello", "event": "other", "seconds": 0.5}, "warning", AT)
    record = json.loads(line.json())
    assert list(record) == ["time", "level", "event", "verb", "seconds"]
    assert (record["time"], record["level"]) == ("2026-01-02T03:04:05Z", "warning")
    assert record["event"] == "request"


def test_a_line_of_text_stays_one_line_whatever_a_fact_holds():
    about = {"run": "a b", "verb": "x\n\x1b[2J", "code": "DONE", "reason": "", "trace": ["f"]}
    text = Line("request", about, time=AT).text()
    shown = r'run="a b" verb="x\n\u001b[2J" code=DONE trace=["f"]'
    assert text == f"2026-01-02T03:04:05Z INFO request {shown}"
    assert text.isprintable()


def test_a_long_log_is_put_aside_and_the_oldest_goes(tmp_path: Path):
    log = tmp_path / "a.log"
    for k in range(40):
        append(log, Line("e", {"k": k}), longest=300)
    parts = sorted(p.name for p in tmp_path.iterdir())
    assert parts == ["a.log", *(f"a.log.{i + 1}" for i in range(KEPT))]
    for path in tmp_path.iterdir():
        assert path.stat().st_size <= 300
        assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(log.read_text().splitlines()[-1])["k"] == 39


def test_a_torn_line_costs_no_other(tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_text('{"event": "to')
    append(log, Line("whole"))
    torn, whole = log.read_text().splitlines()
    assert torn == '{"event": "to'
    assert json.loads(whole)["event"] == "whole"


def test_what_cannot_be_written_is_raised(tmp_path: Path):
    with pytest.raises(OSError, match="No such file"):
        append(tmp_path / "gone" / "a.log", Line("e"))
    with pytest.raises(OSError, match="No space"):
        append(Path("/dev/full"), Line("e"))


def test_records_of_other_libraries_become_lines_without_the_text_of_an_error():
    try:
        raise ValueError("patient Quill")
    except ValueError as e:
        caught = (type(e), e, e.__traceback__)
    record = logging.LogRecord("flwr", logging.ERROR, "f", 1, "went %s", ("wrong",), caught)
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["logger"], line["text"]) == ("error", "flwr", "went wrong")
    assert line["error"] == "ValueError"
    assert "Quill" not in json.dumps(line)
