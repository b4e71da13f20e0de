"""When a process was started: with its pid it says which process is meant, since pids are given out again."""

from pathlib import Path


def read_start_ticks(pid: int) -> str:
    """Give the clock ticks from boot to the process's start, as the kernel writes them; empty when there is none.

    Unlike a time of day they do not move when the clock is set. proc(5): starttime is the 22nd field, and the second,
    the name, may hold blanks and parentheses.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
