"""What every uploader owes the outbox; each transport's tests run it against their own way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from penrose_ray.errors import RefusedReportError, TransportError
from penrose_ray.transport.uploader import BusyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from transport.servers import Told

    from penrose_ray.transport.uploader import Uploader

RECORD = bytes(range(256)) * 16


@dataclass
class Way:
    """An uploader and the service at its end."""

    uploader: Uploader
    told: Told
    cut: Callable[[], object]
    """Takes the service away."""


class UploaderContract:
    """Test classes inherit it and have a fixture `way`."""

    def test_returning_means_that_the_whole_record_arrived(self, way: Way) -> None:
        way.uploader.send(RECORD)
        assert way.told.bodies == [RECORD]

    def test_a_repeat_sends_the_same_bytes(self, way: Way) -> None:
        for _ in range(3):
            way.uploader.send(RECORD)
        assert way.told.bodies == [RECORD] * 3

    def test_busy_says_when_to_come_back(self, way: Way) -> None:
        way.told.status, way.told.headers = 503, {"Retry-After": "17"}
        with pytest.raises(BusyError) as caught:
            way.uploader.send(RECORD)
        assert caught.value.retry_after_s == 17.0

    def test_a_refusal_is_final_and_has_a_remedy(self, way: Way) -> None:
        way.told.status = 400
        way.told.body = json.dumps({"detail": "Too old.", "remedy": "Set the clock."}).encode()
        with pytest.raises(RefusedReportError, match=r"Too old\. Set the clock\.") as caught:
            way.uploader.send(RECORD)
        assert not isinstance(caught.value, TransportError)

    def test_a_failing_service_is_tried_again(self, way: Way) -> None:
        way.told.status = 500
        with pytest.raises(TransportError) as caught:
            way.uploader.send(RECORD)
        assert not isinstance(caught.value, BusyError)
        way.told.status = 200
        way.uploader.send(RECORD)
        assert way.told.bodies[-1] == RECORD

    def test_a_service_that_is_gone_is_a_transport_error(self, way: Way) -> None:
        way.cut()
        with pytest.raises(TransportError):
            way.uploader.send(RECORD)
