"""What others left in Redis under a reply's name is a reply that can be sent, counted and watched, or none."""

from dataclasses import replace

import numpy as np
import pytest

from service.reply import Reply

GOOD = Reply(b'{"results":[]}', 0, 2, "all_below_threshold", np.zeros(3, dtype=np.float32).tobytes(), b'{"a":0.5}')
HEAD, REST = GOOD.pack().split(b"\n", 1)
STRANGE = {
    "kept a text": replace(GOOD, kept="0").pack(),  # type: ignore[arg-type]
    "kept true": replace(GOOD, kept=True).pack(),
    "kept below 0": replace(GOOD, kept=-1).pack(),
    "kept more than considered": replace(GOOD, kept=3).pack(),
    "considered null": replace(GOOD, considered=None).pack(),  # type: ignore[arg-type]
    "another reason": replace(GOOD, reason="because").pack(),  # type: ignore[arg-type]
    "a reason that is a list": replace(GOOD, reason=[]).pack(),  # type: ignore[arg-type]
    "an empty body": replace(GOOD, body=b"{}").pack(),
    "a body with space behind": replace(GOOD, body=GOOD.body + b" ").pack(),
    "a body that is a list": replace(GOOD, body=b"[1]").pack(),
    "no head": REST,
    "a head of another length": b"[0,2,null]\n" + REST,
    "a head that is no list": b"5\n" + REST,
    "a length that is none": HEAD.replace(b"12", b"1.5") + b"\n" + REST,
    "a length below 0": HEAD.replace(b"12", b"-9") + b"\n" + REST,
    "a length beyond the end": HEAD.replace(b"12", b"9999") + b"\n" + REST,
    "similarities that are none": replace(GOOD, shown=b'{"a":"b"}').pack(),
    "not a number": replace(GOOD, observed=np.full(3, np.nan, dtype=np.float32).tobytes()).pack(),
    "half a number": replace(GOOD, observed=b"abc").pack(),
}


def test_a_reply_is_read_as_it_was_written() -> None:
    assert Reply.unpack_strange(GOOD.pack()) == GOOD
    assert Reply.unpack_strange(replace(GOOD, reason=None, kept=2).pack()).kept == 2


@pytest.mark.parametrize("packed", STRANGE.values(), ids=STRANGE.keys())
def test_what_is_none_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError):
        Reply.unpack_strange(packed)
