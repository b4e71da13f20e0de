"""A status reporter that only remembers what it was told."""

from temporalio import workflow

from plnt.model.status import PhaseReport, Progress


@workflow.defn(name="ReportLog")
class ReportLog:
    """Takes the signals of the real status reporter."""

    def __init__(self) -> None:
        self._reports: list[PhaseReport] = []
        self._words: list[Progress] = []
        self._gone: list[str] = []

    @workflow.signal
    def report(self, report: PhaseReport) -> None:
        self._reports.append(report)

    @workflow.signal
    def progress(self, word: Progress) -> None:
        self._words.append(word)

    @workflow.signal
    def gone(self, uid: str) -> None:
        self._gone.append(uid)

    @workflow.query
    def reports(self) -> list[PhaseReport]:
        return self._reports

    @workflow.query
    def words(self) -> list[Progress]:
        return self._words

    @workflow.query
    def uids_gone(self) -> list[str]:
        return self._gone

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)
