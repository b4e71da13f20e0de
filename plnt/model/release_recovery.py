"""What to do with a Helm release as it was found, before it is installed or uninstalled.

Helm's lock is the newest record's pending state: it has no holder and no expiry. So a young pending record is
taken for a helm that is still at work, an old one for a helm that was killed. Measured on helm 4: a killed
install leaves ``pending-install``, a killed upgrade ``pending-upgrade``, a signalled rollback
``pending-rollback``; each blocks the next upgrade.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

HELM_AT_WORK = timedelta(seconds=30)
"""Age up to which a pending record counts as alive. helm runs without waiting, so it is done in about a second;
the heartbeat timeout of the steps that run it is 20 seconds."""

_PENDING = frozenset({"pending-install", "pending-upgrade", "pending-rollback", "uninstalling"})
_GOOD = frozenset({"deployed", "superseded"})


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """One version of a release in Helm's storage."""

    release: str
    owner: str
    """Base name of the WorkflowRun in its labels; empty = not plnt's."""
    version: int
    status: str
    """Helm's own word."""
    changed_at: datetime


class Action(StrEnum):
    """What to do first."""

    NOTHING = "nothing"
    """It is as asked."""
    INSTALL = "install"
    WAIT = "wait"
    """A helm may still be at work."""
    UNINSTALL = "uninstall"
    ROLL_BACK = "roll back"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The next action; ``version`` is the target of a rollback, ``after`` how long to wait."""

    action: Action
    version: int = 0
    after: timedelta = timedelta(0)


def newest_record(records: Sequence[ReleaseRecord]) -> ReleaseRecord | None:
    """Give the record that says how the release stands."""
    return max(records, key=lambda record: record.version, default=None)


def choose_before_install(records: Sequence[ReleaseRecord], now: datetime) -> Recovery:
    """Choose the next action on the way to an installed release."""
    newest = newest_record(records)
    if newest is None:
        return Recovery(Action.INSTALL)
    if waiting := _wait_for_helm(newest, now):
        return waiting
    match newest.status:
        case "deployed":
            return Recovery(Action.NOTHING)
        case "pending-upgrade" | "pending-rollback":
            return _roll_back(records)
        case "pending-install" | "uninstalling" | "uninstalled":
            return Recovery(Action.UNINSTALL)
        case _:
            return Recovery(Action.INSTALL)


def choose_before_uninstall(records: Sequence[ReleaseRecord], now: datetime) -> Recovery:
    """Choose the next action on the way to no release; helm uninstalls from every state."""
    newest = newest_record(records)
    if newest is None:
        return Recovery(Action.NOTHING)
    return _wait_for_helm(newest, now) or Recovery(Action.UNINSTALL)


def _wait_for_helm(newest: ReleaseRecord, now: datetime) -> Recovery | None:
    left = newest.changed_at + HELM_AT_WORK - now
    if newest.status in _PENDING and left > timedelta(0):
        return Recovery(Action.WAIT, after=min(left, HELM_AT_WORK))
    return None


def _roll_back(records: Sequence[ReleaseRecord]) -> Recovery:
    """Choose the newest good version; helm's own choice, the version before, may be the bad one."""
    good = newest_record([record for record in records if record.status in _GOOD])
    return Recovery(Action.UNINSTALL) if good is None else Recovery(Action.ROLL_BACK, version=good.version)
