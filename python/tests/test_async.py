"""Works in coroutines: await."""

import asyncio
import gc
import os
import queue
import resource
import signal
import sys
import threading

import numpy as np
import pytest

import shunt


def loop_of_asyncio():
    return asyncio.new_event_loop()


def loop_of_uvloop():
    return pytest.importorskip("uvloop", reason="uvloop is not installed").new_event_loop()


@pytest.fixture(params=[loop_of_asyncio, loop_of_uvloop], ids=["asyncio", "uvloop"])
def loop(request):
    loop = request.param()
    loop.set_debug(True)
    complaints = []
    loop.set_exception_handler(lambda loop, context: complaints.append(context))
    yield loop
    if not loop.is_closed():
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    gc.collect()
    assert complaints == []


def receive(comm, count=4):
    return comm.start("recv", np.zeros(count, "f4"), 1)


def give(comm, count=4):
    comm.send(np.arange(count, dtype="f4"), 0)


async def waits(awaitable):
    """The task of an awaitable, which waits by now."""
    task = asyncio.ensure_future(awaitable)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    return task


def test_works_are_awaited_together_without_threads(pair, loop):
    async def main():
        works = [receive(pair[0], n) for n in range(1, 9)]
        task = await waits(asyncio.gather(*works, works[3]))
        threads = threading.active_count()
        for n in range(1, 9):
            assert not task.done(), "the last has not been sent"
            give(pair[1], n)
        results = await task
        assert threading.active_count() == threads
        assert [len(r) for r in results] == [*range(1, 9), 4] and results[8] is results[3]
        assert all(r.tolist() == list(range(len(r))) for r in results)
        for work, result in zip(works, results):
            assert await work is result and work.wait() is result

    loop.run_until_complete(main())


def test_other_tasks_run_meanwhile(pair, loop):
    async def main():
        work = await waits(receive(pair[0]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not work.done()
        give(pair[1])
        assert (await work).tolist() == [0, 1, 2, 3]

    loop.run_until_complete(main())


def test_what_has_ended_is_there_at_once(pair):
    work = receive(pair[0])
    with pytest.raises(RuntimeError, match="no running event loop"):
        work.__await__().send(None)
    give(pair[1])
    result = work.wait()
    with pytest.raises(StopIteration) as ended:
        work.__await__().send(None)
    assert ended.value.value is result


@pytest.mark.parametrize("stop", ["cancel", "timeout"])
def test_a_task_that_stops_waiting_leaves_the_operation(pair, loop, stop):
    async def main():
        work = receive(pair[0], 1 << 16)
        if stop == "cancel":
            task = await waits(work)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(work, 0.01)
        gc.collect()
        assert not work.done() and repr(work) == "<Work recv in flight>"
        again = await waits(work)
        give(pair[1], 1 << 16)
        assert (await again)[-1] == (1 << 16) - 1
        assert pair[0].error is None

    loop.run_until_complete(main())


def test_the_buffer_of_a_dropped_task_stays(pair, loop):
    async def main():
        buffer = np.zeros(1 << 16, "f4")
        task = await waits(pair[0].start("recv", buffer, 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return buffer

    buffer = loop.run_until_complete(main())
    gc.collect()
    with pytest.raises(ValueError, match="referenc"):
        buffer.resize(1)  # it is lent
    give(pair[1], 1 << 16)
    barrier = pair[0].start("barrier")
    pair[1].barrier()
    barrier.wait()
    assert buffer[-1] == (1 << 16) - 1


def test_the_error_is_that_of_wait(pair, loop):
    async def main():
        work = receive(pair[0])
        task = await waits(work)
        pair[1].abort("enough")
        with pytest.raises(shunt.AbortedError, match="recv on rank 0: rank 1 aborted: enough") as awaited:
            await task
        for again in (work.wait, lambda: work.__await__().send(None)):
            with pytest.raises(shunt.AbortedError) as waited:
                again()
            assert waited.value is awaited.value
        results = await asyncio.gather(work, work, return_exceptions=True)
        assert results == [awaited.value] * 2

    loop.run_until_complete(main())


def test_a_loop_that_ends_before(pair, loop):
    work = receive(pair[0])

    async def main():
        return await waits(work)

    before = len(os.listdir("/proc/self/fd"))
    task = loop.run_until_complete(main())
    task._log_destroy_pending = False  # that is this test's point
    loop.close()
    del task
    gc.collect()
    assert not work.done()

    async def again():
        task = await waits(work)
        give(pair[1])
        return await task

    assert asyncio.run(again()).tolist() == [0, 1, 2, 3]
    assert len(os.listdir("/proc/self/fd")) < before


def test_nothing_is_left(pair, loop):
    async def main():
        for turn in range(60):
            task = await waits(receive(pair[0]))
            if turn % 3 == 0:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            give(pair[1])
            if turn % 3:
                await task
            else:
                pair[0].start("send", np.zeros(1), 1)
                pair[1].recv(np.zeros(1), 0)
            if turn == 10:
                before = len(os.listdir("/proc/self/fd"))
        # The library closes its descriptor right after the notice, maybe a moment later than this.
        assert len(os.listdir("/proc/self/fd")) < before + 10

    loop.run_until_complete(main())


def test_a_thread_waits_too(pair, loop):
    async def main():
        work = receive(pair[0])
        tasks = [await waits(work), await waits(asyncio.to_thread(work.wait))]
        give(pair[1])
        one, two = await asyncio.gather(*tasks)
        assert one is two

    loop.run_until_complete(main())


def test_threads_start_while_others_wait(comm):
    """What lets go of works that have ended looks at them while other threads take theirs away."""
    interval, works, errors = sys.getswitchinterval(), queue.SimpleQueue(), []

    def wait():
        while (work := works.get()) is not None:
            work.wait()

    def start():
        try:
            for _ in range(4000):
                works.put(comm.start("all_reduce", np.ones(1, "f4")))
        except Exception as error:
            errors.append(error)
        finally:
            for _ in waiters:
                works.put(None)

    waiters = [threading.Thread(target=wait) for _ in range(2)]
    threads = [*waiters, threading.Thread(target=start)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []


@pytest.mark.parametrize("left, error", [(0, OSError), (1, shunt.OutOfMemoryError)])
def test_without_descriptors_left(pair, loop, left, error):
    """One is for the loop, one for the library."""
    async def main():
        work = receive(pair[0])
        free = [os.dup(0) for _ in range(left + 1)]
        for descriptor in free:
            os.close(descriptor)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], hard))
        try:
            with pytest.raises(error, match="[Tt]oo many open files"):
                await work
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        give(pair[1])
        assert (await work).tolist() == [0, 1, 2, 3]

    loop.run_until_complete(main())


ENDING = """
    import asyncio, os, signal, sys, threading
    import numpy as np
    import shunt

    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background job of a shell has ignored
    identity, made = shunt.unique_id(), {}
    def make(rank):
        made[rank] = shunt.init(rank, 2, identity)
    other = threading.Thread(target=make, args=(1,))
    other.start()
    make(0)
    other.join()

    async def main(how):
        task = asyncio.ensure_future(made[0].start("recv", np.zeros(4), 1))
        await asyncio.sleep(0)
        if how == "signal":
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
            await task
        assert how == "return", how

    asyncio.run(main(sys.argv[1]))
    print("over")
"""


@pytest.mark.parametrize("how, status, printed", [("return", 0, "over\n"), ("signal", -signal.SIGINT, "")])
def test_a_program_ends_while_a_task_waits(python, how, status, printed):
    done = python(f"import sys; sys.argv = ['', {how!r}]\n" + "\n".join(line[4:] for line in ENDING.split("\n")))
    assert (done.returncode, done.stdout) == (status, printed), done.stderr
    assert ("KeyboardInterrupt" in done.stderr) == (how == "signal"), done.stderr
