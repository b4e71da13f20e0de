"""``plnt cache``: look at a weights cache, check it, clear it; for people, beside the janitor."""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from plnt.clients.weights.cache import Cache
from plnt.clients.weights.collect import Collector, Rules
from plnt.errors import PermanentError, PlntError
from plnt.settings import SettingsInvalid

SUMMARY = "look at a weights cache, check it, clear it"
DAY = 86_400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY}


def main(arguments: Sequence[str]) -> int:
    """Run the command; gives the exit status."""
    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except PlntError as error:
        print(f"plnt cache {options.action}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"plnt cache {options.action}: {error}: check the folder and your rights to it", file=sys.stderr)
        return 1


def build_parser() -> argparse.ArgumentParser:
    """Give the command's parser."""
    whole = argparse.ArgumentParser(prog="plnt cache", description=SUMMARY)
    actions = whole.add_subparsers(dest="action", required=True)
    for name, run, words in (
        ("ls", list_trees, "list the trees, the longest unused last"),
        ("verify", verify, "hash trees anew and name every file that is not what it was"),
        ("gc", collect, "remove what nothing uses"),
    ):
        parser = actions.add_parser(name, help=words, description=words)
        parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="the cache (PLNT_CACHE_DIR)")
        parser.set_defaults(run=run)
        if name == "verify":
            parser.add_argument("tree", nargs="*", help="digests, or their beginnings; none = all")
        if name == "gc":
            parser.add_argument(
                "--unused-for", type=parse_time, default=7 * DAY, metavar="TIME", help="such as 12h; 7d if not given"
            )
            parser.add_argument(
                "--no-janitor",
                action="store_true",
                help="go on although no janitor said within a day which trees are in use: nothing uses this cache",
            )
    return whole


def parse_time(text: str) -> float:
    """Give the seconds of a time such as 90s, 5m, 12h or 7d.

    Raises:
        ArgumentTypeError: it is none.
    """
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write a number and s, m, h or d")
    return int(number) * _UNITS[unit]


def list_trees(options: argparse.Namespace) -> int:
    """Print every tree with its size, files, age and use."""
    collector = open_cache(options.dir)
    live = collector.read_live()
    trees = sorted(collector.list_trees(), key=lambda tree: -tree.last_used)
    print(f"{'TREE':<14}{'SIZE':>10}{'FILES':>7}  {'USED':<10}STATE")
    for tree in trees:
        state = "unknown" if live is None else "in use" if tree.digest in live else "unused"
        age = describe_age(time.time() - tree.last_used)
        print(f"{tree.digest[:12]:<14}{describe_bytes(tree.bytes):>10}{len(tree.blobs):>7}  {age:<10}{state}")
    used = describe_bytes(collector.cache.count_used_bytes())
    free = describe_bytes(shutil.disk_usage(options.dir).free)
    print(f"{len(trees)} trees; blobs and partials take {used}; {free} free")
    return 0


def verify(options: argparse.Namespace) -> int:
    """Print every fault; gives 1 if there is one."""
    collector = open_cache(options.dir)
    wanted = tuple(options.tree) or ("",)
    trees = [tree for tree in collector.list_trees() if tree.digest.startswith(wanted)]
    if options.tree and not trees:
        raise CacheUnclear(f"no tree in {options.dir} begins with {' or '.join(wanted)}: see plnt cache ls")
    faults = [fault for tree in trees for fault in collector.find_faults(tree)]
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(trees)} trees checked, {len(faults)} faults")
    return 1 if faults else 0


def collect(options: argparse.Namespace) -> int:
    """Remove trees that nothing used for the time, orphaned blobs and silent partials."""
    collector = open_cache(options.dir)
    live = collector.read_live()
    if live is None and not options.no_janitor:
        raise CacheUnclear(
            f"{options.dir} has no word from a janitor within a day, so which trees are in use is not known: start the "
            f"bridge and the pools, or add --no-janitor if nothing uses this cache"
        )
    done = collector.collect(live or (), collector.list_held_plans(), Rules(options.unused_for, 100))
    for tree in done.trees:
        print(f"removed tree {tree}")
    print(
        f"{len(done.trees)} trees, {done.blobs} blobs and {done.partials} partials removed, "
        f"{describe_bytes(done.bytes_freed)} freed, {describe_bytes(done.bytes_used)} in use"
    )
    return 0


class CacheUnclear(PermanentError):
    """The command cannot tell what it may do."""


def open_cache(folder: Path) -> Collector:
    """Open a cache that exists.

    Raises:
        CacheUnclear: the folder is none.
    """
    if not (folder / "VERSION").is_file():
        raise CacheUnclear(f"{folder} is no weights cache: it has no file VERSION")
    cache = Cache(folder)
    try:
        cache.prepare()
    except SettingsInvalid as error:
        raise CacheUnclear(str(error).removeprefix("PLNT_CACHE_DIR: ")) from error
    return Collector(cache)


def describe_bytes(count: int) -> str:
    """Give a size for people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def describe_age(seconds: float) -> str:
    """Give an age for people."""
    for name in ("d", "h", "m"):
        if seconds >= _UNITS[name]:
            return f"{int(seconds // _UNITS[name])}{name} ago"
    return "now"
