"""The line for one GPU class: who waits, who holds a lease; the scheduler stays the arbiter of real placement."""

from collections import deque
from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from plnt.model import line as lines
from plnt.model import names
from plnt.model.line import Entry, Line
from plnt.model.messages import Capacity, Join, Leave
from plnt.model.status import Progress
from plnt.steps import COUNT_FREE, JOIN_LINE
from workflows.outbox import Outbox
from workflows.run_step import explain, run_step


@workflow.defn(name="GpuPool")
class GpuPool:
    """Lives for ever. Handlers have defaults, so that a bare signal from the command line cannot wedge it."""

    @workflow.init
    def __init__(self, line: Line | None = None) -> None:
        self._line = line or Line()
        self._inbox: deque[Join | Leave] = deque()
        self._told: dict[str, str] = {}
        self._answer: Capacity | None = None
        self._unchanged = 0
        """Counts in a row that gave the same answer as the one before."""

    @workflow.signal(description="Ask for GPUs")
    def join(self, word: Join | None = None) -> None:
        """Take a place in the line."""
        if word is not None:
            self._inbox.append(word)

    @workflow.signal(description="Give up place or lease")
    def leave(self, word: Leave | None = None) -> None:
        """Give up place or lease."""
        if word is not None:
            self._inbox.append(word)

    @workflow.query(description="Who holds a lease and who waits")
    def line(self) -> Line:
        """Give the line as it is now."""
        return self._line

    @workflow.run
    async def run(self, _: Line | None = None) -> None:
        """Serve the line; while somebody waits, count what is free at every change and every so often."""
        while True:
            await self._await_turn()
            await self._take_words()
            while self._line.head is not None and await self._serve_head():
                await self._take_words()
            if not self._inbox and workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(self._line)

    async def _await_turn(self) -> None:
        timeout = lines.choose_pause(self._line, self._unchanged) if self._line.head is not None else None
        if timeout is None:
            await workflow.wait_condition(lambda: bool(self._inbox))
            return
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: bool(self._inbox), timeout=timeout, timeout_summary="count free GPUs again"
            )

    async def _take_words(self) -> None:
        while self._inbox:
            word = self._inbox.popleft()
            self._answer, self._unchanged = None, 0
            if isinstance(word, Leave):
                self._line = lines.leave(self._line, word)
                continue
            self._line = lines.add(self._line, word)
            self._told.pop(word.run_id, None)
            entry = self._line.find(word.workflow_id)
            if entry is not None and entry.granted:
                await self._signal_grant(entry)

    async def _serve_head(self) -> bool:
        """Count, and grant the head its lease if it fits; whether the line changed and is worth another count."""
        question = lines.ask(self._line)
        head = self._line.head
        try:
            answer = await run_step(COUNT_FREE, question, summary=f"count free GPUs of {self._line.gpu_class}")
        except ActivityError as error:
            failure = explain(error)
            workflow.logger.warning("free GPUs not counted", extra={"reason": failure.reason})
            await self._tell_places(f"unknown: {failure}")
            return False
        self._note(answer)
        before = self._line
        self._line = lines.drop(self._line, lines.closed_runs(question, answer))
        if self._inbox or self._line != before:
            return True
        if head is not None and answer.head_fits:
            self._line = lines.grant(self._line, head.join.run_id)
            await self._signal_grant(head)
            return True
        await self._tell_places(answer.free)
        return False

    def _note(self, answer: Capacity) -> None:
        self._unchanged = self._unchanged + 1 if answer == self._answer else 0
        self._answer = answer

    async def _signal_grant(self, entry: Entry) -> None:
        """Tell the run that it holds the lease; a run that is gone needs none."""
        join = entry.join
        handle = workflow.get_external_workflow_handle(join.workflow_id, run_id=join.run_id)
        try:
            await handle.signal("granted", join.run_id)
        except ApplicationError:
            self._line = lines.drop(self._line, [(join.workflow_id, join.run_id)])

    async def _tell_places(self, free: int | str) -> None:
        places = lines.describe_places(self._line, free)
        for entry in self._line.waiting:
            run_id, ref = entry.join.run_id, entry.join.ref
            if self._told.get(run_id) != places[run_id]:
                outbox = Outbox(names.reporter_id(ref.namespace, ref.name))
                outbox.post("progress", Progress(run_id=run_id, step=JOIN_LINE.name, message=places[run_id]))
                await outbox.drain()
        self._told = places
