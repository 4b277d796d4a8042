from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penrose_ray.actors.coalesce import Coalescer

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_what_waits_goes_along_with_the_next_call_and_results_find_their_caller() -> None:
    calls: list[list[int]] = []

    async def main() -> list[list[int]]:
        gate = asyncio.Event()

        async def send(items: list[int]) -> Sequence[int]:
            calls.append(items)
            await gate.wait()
            return [10 * item for item in items]

        coalescer = Coalescer(send, window=1)
        callers = [asyncio.create_task(coalescer.call([3 * n, 3 * n + 1])) for n in range(50)]
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*callers)

    results = asyncio.run(main())

    assert results == [[30 * n, 30 * n + 10] for n in range(50)]
    assert len(calls) <= 3
    assert sum(map(len, calls)) == 100


def test_a_call_takes_at_most_so_many_items() -> None:
    sizes: list[int] = []

    async def send(items: list[int]) -> Sequence[int]:
        sizes.append(len(items))
        return items

    async def main() -> list[int]:
        return await Coalescer(send, most=7).call(list(range(30)))

    assert asyncio.run(main()) == list(range(30))
    assert max(sizes) == 7


def test_an_error_reaches_its_callers_and_no_others() -> None:
    async def send(items: list[int]) -> Sequence[int]:
        if 1 in items:
            raise RuntimeError("lost")
        return items

    async def main() -> list[object]:
        coalescer = Coalescer(send, most=1, window=1)
        return await asyncio.gather(*(coalescer.call([n]) for n in range(3)), return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert (first, third) == ([0], [2])
    assert isinstance(second, RuntimeError)


def test_a_caller_that_has_gone_disturbs_nobody() -> None:
    async def main() -> list[int]:
        gate = asyncio.Event()

        async def send(items: list[int]) -> Sequence[int]:
            await gate.wait()
            return items

        coalescer = Coalescer(send)
        gone = asyncio.create_task(coalescer.call([1]))
        stays = asyncio.create_task(coalescer.call([2]))
        await asyncio.sleep(0)
        gone.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await gone
        return await stays

    assert asyncio.run(main()) == [2]


def test_too_few_results_are_an_error_not_a_caller_who_waits_for_ever() -> None:
    async def send(items: list[int]) -> Sequence[int]:
        return items[1:]

    async def main() -> None:
        await Coalescer(send).call([1, 2, 3])

    with pytest.raises(RuntimeError, match="3 items got 2 results"):
        asyncio.run(main())


def test_calls_begin_a_gap_apart_and_the_first_one_at_once() -> None:
    begun: list[tuple[float, int]] = []

    async def send(items: list[int]) -> Sequence[int]:
        begun.append((asyncio.get_running_loop().time(), len(items)))
        return items

    async def main() -> None:
        coalescer = Coalescer(send, gap_s=0.05)
        await coalescer.call([0])
        await asyncio.gather(*(coalescer.call([n]) for n in range(20)))

    asyncio.run(main())
    (first_s, one), (second_s, rest) = begun
    assert (one, rest) == (1, 20)
    assert second_s - first_s >= 0.04


@pytest.mark.parametrize("window", [1, 2])
def test_a_caller_who_comes_right_after_an_answer_is_served(window: int) -> None:
    async def send(items: list[int]) -> Sequence[int]:
        return items

    async def main() -> list[list[list[int]]]:
        coalescer = Coalescer(send, window=window)

        async def twice(number: int) -> list[list[int]]:
            return [await coalescer.call([number]), await coalescer.call([number + 10])]

        async with asyncio.timeout(30):
            return await asyncio.gather(*(twice(number) for number in range(window)))

    assert asyncio.run(main()) == [[[number], [number + 10]] for number in range(window)]
