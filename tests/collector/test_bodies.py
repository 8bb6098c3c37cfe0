"""What may be sent, and what is said of the rest."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
import zstandard
from collector.conftest import Served
from collector.points import LOSS, batch_of, block_of, number
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradwatch.collector.app import create_app
from gradwatch.collector.bodies import Limits
from gradwatch.collector.columns import decode_columns
from gradwatch.collector.server import running
from gradwatch.collector.steps import decode_steps
from gradwatch.collector.tables import Tables
from gradwatch.schema import Block, Point, Series
from gradwatch.wire import MSGPACK, Ack, Batch, Columns, pack, unpack

BATCHES = "/api/v1/runs/r/batches"
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SERIES = st.builds(Series, NAMES, NAMES, st.sampled_from(("train", "eval")), st.just(1), role=NAMES, rank=st.integers(-1, 9))
TIMES = st.floats(allow_nan=False)
DOUBLES = st.integers(0, 2**64 - 1).map(number)


@st.composite
def blocks(draw: Any) -> Block:
    block = Block()
    series = draw(st.lists(SERIES, min_size=1, max_size=4, unique=True))
    for one in draw(st.lists(st.tuples(st.sampled_from(series), INT64, DOUBLES, TIMES, st.integers(0, 255)), max_size=12)):
        block.add(*one)
    return block


def columns(block: Block) -> tuple[list[Series], list[bytes]]:
    return block.series, [getattr(block, name).tobytes() for name in ("index", "step", "wall_time", "value", "flags")]


@given(blocks())
def test_columns_travel_bit_for_bit(block: Block) -> None:
    body = msgspec.msgpack.encode(batch_of(block))
    batch, read = decode_columns(body, Tables())
    assert columns(read) == columns(block)
    assert columns(unpack(msgspec.msgpack.decode(body, type=Batch).columns)) == columns(block)
    assert batch == Batch(id="b", process="p")


STEPS = st.lists(st.tuples(INT64, st.lists(st.none() | st.floats(allow_nan=True), min_size=2, max_size=2)), max_size=6)


@given(STEPS)
def test_json_steps_mean_what_they_say(steps: list[tuple[int, list[float | None]]]) -> None:
    named = {"series": ["a", "b"], "steps": [{"step": step, "value": [_name(one) for one in value]} for step, value in steps]}
    bare = {"series": ["a", "b"], "steps": [{"step": step, "value": value} for step, value in steps]}
    wanted = [(name, step, repr(one)) for step, value in steps for name, one in zip("ab", value, strict=True) if one is not None]
    for body in (named, bare):
        _, block = decode_steps(json.dumps(body).encode(), Tables())
        assert [(point.series.metric, point.step, repr(point.value)) for point in block] == wanted
        assert all(math.isnan(point.wall_time) for point in block)


def _name(one: float | None) -> Any:
    if one is None or math.isfinite(one):
        return one
    return "NaN" if math.isnan(one) else "Infinity" if one > 0 else "-Infinity"


def steps_of(series: list[Any]) -> list[Series]:
    body = {"series": series, "steps": [{"step": 1, "value": [1.0] * len(series)}]}
    return decode_steps(json.dumps(body).encode(), Tables())[1].series


def test_a_key_is_read_as_its_framework_means_it() -> None:
    assert steps_of(["eval/solver/reward/mean"]) == [
        Series("reward", "eval/solver/reward/mean", stream="eval", stat="mean", role="solver")
    ]


def test_axes_that_are_given_go_before_the_keys() -> None:
    rows = [{"key": "train/grad_norm", "role": "solver", "rank": 2}, {"metric": "reward", "stat": "mean"}]
    assert steps_of(rows) == [Series("grad_norm", "train/grad_norm", role="solver", rank=2), Series("reward", stat="mean")]


MALFORMED = [
    (b"{", "no JSON"),
    (b"[1]", "Expected `object`, got `array`"),
    (b'{"steps": [{"step": 1, "value": [1, 2]}], "series": ["a"]}', "steps[0].value has 2 values: series lists 1"),
    (b'{"steps": [{"step": 1.5, "value": []}]}', "$.steps[0].step"),
    (b'{"steps": [{"step": 9223372036854775808, "value": []}]}', "$.steps[0].step"),
    (b'{"steps": [{"step": 1, "value": ["1e5x"]}], "series": ["a"]}', "steps[0].value[0] is '1e5x'"),
    (b'{"steps": [{"step": 1, "vlaue": [1]}]}', "unknown field `vlaue`"),
    (b'{"steps": [{"step": 1, "value": [NaN], "x": 1}]}', "unknown field `x`"),
    (b'{"series": ["a", "a"]}', "series lists a series twice"),
    (b'{"series": [{"role": "solver"}]}', "needs a key or a metric"),
    (b'{"samples": [{"output": "x"}]}', "missing required field `step` - at `$.samples[0]`"),
    (b'{"samples": ' + b"[" * 100_000, "Expected `object`"),
    (b'{"samples": [NaN, ' + b"[" * 100_000, "no JSON"),
    (b'{"status": "done"}', "finished, interrupted, failed"),
    (b'{"series": ["' + b"a" * 2000 + b'"]}', "1,000 characters"),
    (b"\xff\xfe", "JSON"),
]


@pytest.mark.parametrize(("body", "detail"), MALFORMED)
def test_a_malformed_body_is_told_where_it_is_wrong(shared: Served, body: bytes, detail: str) -> None:
    answer = shared.http.post(BATCHES, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert detail in answer.json()["detail"]
    assert answer.json()["instance"] == BATCHES


def packed(**more: Any) -> bytes:
    good = msgspec.structs.asdict(pack(block_of(LOSS, [1.0, 2.0])))
    return msgspec.msgpack.encode({"id": "b", "columns": good | more})


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"\xc1", "no msgpack"),
        (packed(value=b"123"), "columns.value has 3 bytes"),
        (packed(index=b"\x05\0\0\0\0\0\0\0"), "columns.index must lie within 0…0"),
        (packed(index=b"\xff\xff\xff\xff\0\0\0\0"), "it reaches from -1"),
        (packed(series=[]), "columns.index must lie within"),
        (packed(series=[{"metric": "a"}, {"metric": "a"}]), "lists a series twice"),
        (packed(series=[{"metric": ""}]), "needs a metric"),
        (packed(series=[{"metric": "a", "rank": 2**63}]), "64 bits"),
        (packed(series=7), "does not fit"),
        (msgspec.msgpack.encode({"process": "p"}), "missing required field `id`"),
        (b"\x91" * 100_000, "does not fit"),
    ],
)
def test_malformed_columns_are_told_where_they_are_wrong(shared: Served, body: bytes, detail: str) -> None:
    answer = shared.http.post(BATCHES, content=body, headers={"Content-Type": MSGPACK})
    assert answer.status_code == 400
    assert detail in answer.json()["detail"]


BODY = msgspec.msgpack.encode(batch_of(block_of(LOSS, [1.0, math.nan] * 50)))


def halves(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda body: pack(body[:50]) + pack(body[50:])


ZSTD = zstandard.ZstdCompressor().compress
UNSIZED = zstandard.ZstdCompressor(write_content_size=False).compress


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("gzip", halves(gzip.compress)),
        ("zstd", ZSTD),
        ("zstd", halves(ZSTD)),
        ("ZSTD", UNSIZED),
    ],
)
def test_bodies_may_be_compressed(shared: Served, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    before = shared.collector.state("r").sequence
    body = msgspec.msgpack.encode(batch_of(block_of(LOSS, [1.0, math.nan] * 500), f"packed {before}"))
    answer = shared.http.post(BATCHES, content=pack(body), headers={"Content-Type": MSGPACK, "Content-Encoding": encoding})
    assert answer.json()["points"] == 1000
    tail = shared.collector.tail("r", before, 1000)[1]
    assert list(map(repr, tail.value)) == ["1.0", "nan"] * 500


@pytest.mark.parametrize(
    ("headers", "status", "detail"),
    [
        ({"Content-Encoding": "br"}, 415, "gzip or zstd"),
        ({"Content-Encoding": "gzip"}, 400, "not what Content-Encoding says"),
        ({"Content-Encoding": "zstd"}, 400, "not what Content-Encoding says"),
        ({"Content-Type": "text/csv"}, 415, "send application/json or application/msgpack"),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(shared: Served, headers: dict[str, str], status: int, detail: str) -> None:
    answer = shared.http.post(BATCHES, content=BODY, headers={"Content-Type": MSGPACK} | headers)
    assert answer.status_code == status
    assert detail in answer.json()["detail"]


def test_what_curl_sends_where_nothing_is_said_counts_as_json(shared: Served) -> None:
    body = b'{"series": ["loss"], "steps": [{"step": 1, "value": [0.5]}]}'
    for headers in ({"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "application/json; charset=utf-8"}, {}):
        assert shared.http.post(BATCHES, content=body, headers=headers).status_code == 200


def test_large_bodies_are_refused_before_and_while_they_are_read(shared: Served) -> None:
    with running(create_app(shared.collector, limits=Limits(10_000, 50_000))) as url, httpx.Client(base_url=url) as http:
        told = http.post(BATCHES, content=bytes(10_001), headers={"Content-Type": MSGPACK})
        untold = http.post(BATCHES, content=(bytes(5_000) for _ in range(3)), headers={"Content-Type": MSGPACK})
        bombs = [
            http.post(BATCHES, content=body, headers={"Content-Type": MSGPACK, "Content-Encoding": name})
            for name, body in (
                ("gzip", gzip.compress(bytes(5_000_000))),
                ("zstd", zstandard.ZstdCompressor().compress(bytes(50_000_000))),
                ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50_000_000))),
            )
        ]
        assert [one.status_code for one in (told, untold, *bombs)] == [413] * 5
        assert "10,000 bytes: send smaller batches" in told.json()["detail"]
        assert http.post(BATCHES, content=BODY, headers={"Content-Type": MSGPACK}).status_code == 200
    assert shared.collector.vitals().refused_requests_total["too_large"] == 5
    assert shared.collector.room.taken == 0


def test_a_zstd_frame_cannot_ask_for_a_window_of_gigabytes(shared: Served) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = packer.compress(bytes(300)) + packer.flush()
    answer = shared.http.post(BATCHES, content=body, headers={"Content-Type": MSGPACK, "Content-Encoding": "zstd"})
    assert answer.status_code == 400


def test_an_ack_is_msgpack_where_that_is_asked_for(shared: Served) -> None:
    headers = {"Content-Type": MSGPACK, "Accept": MSGPACK}
    answer = shared.http.post(BATCHES, content=BODY, headers=headers)
    assert answer.headers["Content-Type"] == MSGPACK
    assert msgspec.msgpack.decode(answer.content, type=Ack).sequence == shared.collector.state("r").sequence


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blocks())
def test_what_was_sent_is_what_is_read(shared: Served, block: Block) -> None:
    # Among values that are all NaN the store keeps one NaN's payload for all.
    shared.collector.submit("r", batch_of(block_of(LOSS, [0.5]), "a finite one")).result(20)
    before = shared.collector.state("r").sequence
    body = msgspec.msgpack.encode(batch_of(block, f"b{before}-{len(block)}-{id(block)}"))
    answer = shared.http.post(BATCHES, content=body, headers={"Content-Type": MSGPACK})
    assert answer.json()["points"] == len(block)
    tail = shared.collector.tail("r", before, 1000)[1]
    assert list(map(_exact, tail)) == list(map(_exact, block))


def _exact(point: Point) -> tuple[Any, ...]:
    return point.series, point.step, number_bits(point.value), number_bits(point.wall_time), point.flags


def number_bits(value: float) -> bytes:
    return msgspec.msgpack.encode(value)


def test_a_table_that_came_before_is_read_once_and_tables_are_forgotten() -> None:
    tables, reads = Tables(most=9), []

    def read(name: str) -> list[Series]:
        reads.append(name)
        return [Series(name), Series(f"{name}2")]

    for name in ("a", "b", "a", "c", "d", "b"):
        tables.get(name, lambda name=name: read(name))
    assert reads == ["a", "b", "c", "d", "b"]


def test_an_index_needs_no_table_where_there_are_no_points(shared: Served) -> None:
    empty = Columns(series=[], index=b"", step=b"", wall_time=b"", value=b"", flags=b"")
    body = msgspec.msgpack.encode(Batch(id="b", process="p", columns=empty))
    assert shared.http.post(BATCHES, content=body, headers={"Content-Type": MSGPACK}).json()["points"] == 0
