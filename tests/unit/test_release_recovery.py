from datetime import UTC, datetime, timedelta

import pytest

from plnt.model.release_recovery import (
    HELM_AT_WORK,
    Action,
    Recovery,
    ReleaseRecord,
    choose_before_install,
    choose_before_uninstall,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(minutes=5)
PENDING = ["pending-install", "pending-upgrade", "pending-rollback", "uninstalling"]


def records(*statuses: str, changed_at: datetime = LONG_AGO) -> list[ReleaseRecord]:
    return [ReleaseRecord("m-1", "m", version, status, changed_at) for version, status in enumerate(statuses, 1)]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        pytest.param([], Recovery(Action.INSTALL), id="nothing there"),
        pytest.param(["deployed"], Recovery(Action.NOTHING), id="deployed"),
        pytest.param(["failed"], Recovery(Action.INSTALL), id="failed or cancelled install"),
        pytest.param(["deployed", "failed"], Recovery(Action.INSTALL), id="cancelled upgrade"),
        pytest.param(["pending-install"], Recovery(Action.UNINSTALL), id="killed install"),
        pytest.param(["uninstalling"], Recovery(Action.UNINSTALL), id="killed uninstall"),
        pytest.param(["uninstalled"], Recovery(Action.UNINSTALL), id="history kept by hand"),
        pytest.param(["deployed", "pending-upgrade"], Recovery(Action.ROLL_BACK, 1), id="killed upgrade"),
        pytest.param(
            ["superseded", "failed", "pending-rollback"], Recovery(Action.ROLL_BACK, 1), id="signalled rollback"
        ),
        pytest.param(["failed", "pending-upgrade"], Recovery(Action.UNINSTALL), id="no good version"),
    ],
)
def test_install_starts_from_every_state_that_helm_leaves(statuses: list[str], expected: Recovery) -> None:
    assert choose_before_install(records(*statuses), NOW) == expected


@pytest.mark.parametrize("status", PENDING)
def test_young_pending_record_is_waited_for(status: str) -> None:
    young = records(status, changed_at=NOW - timedelta(seconds=10))
    expected = Recovery(Action.WAIT, after=HELM_AT_WORK - timedelta(seconds=10))
    assert choose_before_install(young, NOW) == expected
    assert choose_before_uninstall(young, NOW) == expected


def test_wait_is_bounded_when_the_other_clock_is_ahead() -> None:
    assert (
        choose_before_install(records("pending-install", changed_at=NOW + timedelta(days=1)), NOW).after <= HELM_AT_WORK
    )


@pytest.mark.parametrize("status", [*PENDING, "deployed", "failed", "unknown"])
def test_uninstall_starts_from_every_state(status: str) -> None:
    assert choose_before_uninstall(records(status), NOW).action is Action.UNINSTALL


def test_uninstall_of_nothing_is_done() -> None:
    assert choose_before_uninstall([], NOW).action is Action.NOTHING
