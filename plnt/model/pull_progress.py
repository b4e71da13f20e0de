"""How far a pull is, as heartbeat details and in words."""

from plnt.model.message import Message

_MIB, _GIB = 1 << 20, 1 << 30


class PullProgress(Message):
    """Where a pull stands; the details of its heartbeats."""

    bytes_done: int = 0
    bytes_total: int = 0
    bytes_reused: int = 0
    """Of ``bytes_done``, those that were in the cache before this attempt."""
    bytes_per_second: float = 0.0
    eta_seconds: int | None = None
    """None while the rate is unknown."""
    files_done: int = 0
    files_total: int = 0
    retries: int = 0
    waiting: bool = False
    """True while another rollout pulls the same files and this one waits for it."""


def describe_progress(progress: PullProgress) -> str:
    """Give one line for the status."""
    unit, name = (_GIB, "GiB") if progress.bytes_total >= _GIB else (_MIB, "MiB")
    done, total = progress.bytes_done / unit, progress.bytes_total / unit
    if progress.waiting:
        return f"another rollout pulls the same files: {done:.1f} of {total:.1f} {name}"
    words = [f"{done:.1f} of {total:.1f} {name}", f"{progress.bytes_per_second / _MIB:.1f} MiB/s"]
    if progress.eta_seconds is not None:
        words.append(f"ETA {_describe_seconds(progress.eta_seconds)}")
    if progress.retries:
        words.append(f"{progress.retries} retries")
    return ", ".join(words)


def _describe_seconds(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
