"""Whether a changed WorkflowRun lets the running body go on."""

from enum import StrEnum

from plnt.model.desired import Desired
from plnt.model.revision import pods_digest


class Pursuit(StrEnum):
    """What a run does about the WorkflowRun as it is now."""

    SAME = "same"
    IN_PLACE = "in-place"
    """The body takes what changed and goes on."""
    SUPERSEDE = "supersede"
    """The body is stopped and undone, and the run continues as new."""


def compare(working: Desired, seen: Desired | None) -> Pursuit:
    """Compare what the body works on with what a later ``load-desired`` gave; none = the object is gone."""
    if seen is None or seen.uid != working.uid or seen.deleting != working.deleting:
        return Pursuit.SUPERSEDE
    if seen.deleting:
        skipped = seen.options.skip_teardown and not working.options.skip_teardown
        return Pursuit.SUPERSEDE if skipped else Pursuit.SAME
    if seen.identity == working.identity:
        return Pursuit.SAME
    if seen.faults or pods_digest(seen.spec, seen.options) != pods_digest(working.spec, working.options):
        return Pursuit.SUPERSEDE
    return Pursuit.IN_PLACE
