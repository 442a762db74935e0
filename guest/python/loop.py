"""The session's event loop: one for all cells, so that a task of one cell goes on in the next one's `await`."""


class Loop:
    def __init__(self):
        import asyncio

        self._asyncio = asyncio
        self._loop = asyncio.new_event_loop()

    def run(self, coroutine):
        """The value of a cell's coroutine. An interrupt cancels it where it waits, or is raised where it computes."""
        asyncio = self._asyncio
        if self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        loop = self._loop
        asyncio.set_event_loop(loop)
        cancelled = False
        trace = None

        async def watched():
            nonlocal trace
            try:
                return await coroutine
            except asyncio.CancelledError as error:
                trace = error.__traceback__  # the task itself forgets where it was, before 3.11
                raise

        task = loop.create_task(watched())

        def cancel():
            nonlocal cancelled
            if cancelled or asyncio.current_task(loop) is not None:
                return False
            cancelled = True
            task.cancel()
            loop.call_soon_threadsafe(int)  # the loop may be asleep
            return True

        interrupts = belljar.interrupts
        interrupts.cancel = cancel
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if cancelled:
                raise KeyboardInterrupt().with_traceback(trace) from None
            raise
        finally:
            trace = None
            interrupts.cancel = None
            self._settle(task)

    def _settle(self, task):
        """After an interrupt of some other task: this cell's own must not go on in the next cell."""
        if not task.done():
            task.cancel()
            for _ in range(100):
                if task.done():
                    break
                stop = self._loop.call_soon(self._loop.stop)
                try:
                    self._loop.run_forever()
                except (KeyboardInterrupt, SystemExit):  # what ended the other task reached this one
                    pass
                finally:
                    stop.cancel()  # left behind, it would stop the next cell
        if task.done() and not task.cancelled():
            task.exception()
